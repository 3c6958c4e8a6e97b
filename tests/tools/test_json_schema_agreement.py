"""Changed resources that fsxds takes are taken by the schema as well."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.formats import format_of
from fsxds.formats.decoded import PlainDocument
from fsxds.model.values import SpelledFloat
from tests.agreement.cases import Case, make_cases
from tests.agreement.comparing import file_text
from tests.agreement.fsxds_judge import FsxdsJudge
from tests.agreement.seeds import Seed, seeds
from tests.tools.conftest import ValidatorOf

COUNT, SEED = 16, 20261120


@pytest.fixture(scope="module")
def cases(catalogue: Catalogue) -> list[Case]:
    """Resources with one change each, good and bad ones."""
    return make_cases(catalogue, COUNT, SEED)


def is_stricter_on_purpose(value: Any) -> bool:
    """Tell whether a document has what the schema refuses though Envoy takes it.

    That is null, decimals that are text, lists in lists, and settings of a route for a filter that it skips.
    """
    if isinstance(value, dict):
        if "config" in value and value.get("is_optional", value.get("isOptional")):
            return True
        return any(map(is_stricter_on_purpose, value.values()))
    if isinstance(value, list):
        return any(isinstance(element, list) or is_stricter_on_purpose(element) for element in value)
    return value is None or isinstance(value, SpelledFloat)


@pytest.mark.parametrize("one", seeds(), ids=lambda one: f"{one.type_name}-{one.name}")
def test_the_schema_of_one_spelling_takes_what_is_written_in_it(one: Seed, validator_of: ValidatorOf) -> None:
    """Resources that Envoy takes, as its documentation writes them."""
    assert [] == validator_of(one.type_name).messages(one.resource)


def test_the_schema_refuses_nothing_that_is_taken(
    catalogue: Catalogue, cases: list[Case], validator_of: ValidatorOf
) -> None:
    """No false alarm, and most of what is refused is refused by both."""
    judge, alarms, refused, missed = FsxdsJudge(catalogue), [], 0, 0
    for case in cases:
        name, text = f"{case.seed.type_name}{case.suffix}", file_text(case)
        file_format = format_of(PurePosixPath(name))
        assert file_format is not None
        values = [
            document.value
            for document in file_format.decode(text.encode(), catalogue, None).documents
            if isinstance(document, PlainDocument)
        ]
        is_taken = not judge.judge(name, text)
        validator = validator_of(case.seed.type_name, spelling="both")
        is_valid = all(validator.is_valid(value) for value in values)
        if is_taken and not is_valid and not is_stricter_on_purpose(values):
            alarms.append(case.name)
        refused += not is_taken
        missed += not is_taken and is_valid

    assert [] == alarms
    assert missed < refused / 2
