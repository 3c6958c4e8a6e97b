"""The schemas of files, each made once per test process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.tools.json_schema import Schema, Spelling
from fsxds.tools.schema_documents import documents_schema
from tests.support.validation import Validator

SchemaOf = Callable[..., Schema]
ValidatorOf = Callable[..., Validator]


@pytest.fixture(scope="session")
def schema_of(catalogue: Catalogue) -> SchemaOf:
    """Return the schema of files of these types, by their short names; of all types where none is given."""

    @cache
    def of(*names: str, packed: tuple[str, ...] = (), spelling: Spelling = "snake") -> Schema:
        return documents_schema(catalogue, [BY_SHORT_NAME[name] for name in names], packed, spelling)

    return of


@pytest.fixture(scope="session")
def validator_of(schema_of: SchemaOf, *, nightly: bool) -> ValidatorOf:
    """Return what judges files by the schema of the same arguments."""

    @cache
    def of(*names: str, packed: tuple[str, ...] = (), spelling: Spelling = "snake") -> Validator:
        return Validator(schema_of(*names, packed=packed, spelling=spelling), compares=nightly)

    return of
