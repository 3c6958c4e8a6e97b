"""What jsonschema-rs cannot read is judged all the same."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fsxds.model.values import SpelledFloat
from tests.support.validation import Validator

NUMBERS = {"additionalProperties": {"type": "number"}}


@pytest.mark.parametrize("compares", [False, True])
@pytest.mark.parametrize(
    ("value", "taken"),
    [
        ({"a": 1}, True),
        ({"a": SpelledFloat("1.50", 1.5)}, True),
        ({"a": "1.50"}, False),
        ({"a": math.nan}, True),
        ({"a": [math.inf]}, False),
        ({True: 1}, True),
        ({1: "one"}, False),
        ({"a": "\ud800"}, False),
    ],
)
def test_what_json_cannot_say(value: Any, *, taken: bool, compares: bool) -> None:
    """Floats with a spelling, NaN, keys that are no text, and half a character."""
    validator = Validator(NUMBERS, compares=compares)

    assert taken == validator.is_valid(value)
    assert taken == (not validator.messages(value))


def test_two_that_disagree_are_told_of() -> None:
    """A dollar is the end of the text to one of them, and the end of its last line to the other."""
    schema = {"type": "string", "pattern": "^a$"}

    assert not Validator(schema, compares=False).is_valid("a\n")
    with pytest.raises(AssertionError, match="disagree"):
        Validator(schema, compares=True).is_valid("a\n")
