from __future__ import annotations

import pytest

from fsxds.model.values import PlainValue
from fsxds.tools.diff.compare import ChangeAction, FieldChange
from fsxds.tools.diff.difference import Side, summary, value_of
from tests.tools.diff.differences import EXAMPLE, compared, resource


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("LEAST_REQUEST", "LEAST_REQUEST"),
        ("10.0.0.1:80", "10.0.0.1:80"),
        ("two words", '"two words"'),
        ("", '""'),
        (5.0, "5"),
        (0.5, "0.5"),
        (True, "true"),
        (None, "null"),
        ([1, {"a": "b"}], '[1, {"a": "b"}]'),
        (["x"] * 100, "[…] with 100 items"),
        ({f"key_{number}": "x" * 20 for number in range(8)}, "{…} with key_0, key_1, key_2, key_3, key_4, key_5 and 2 more"),
        ("x" * 200, "x" * 99 + "…"),
        ("\u202eabc", '"\\u202eabc"'),
    ],
)  # fmt: skip
def test_values(value: PlainValue, expected: str) -> None:
    """Values are written briefly: words as they are, texts in quotes, long ones cut or summed up."""
    assert expected == value_of(FieldChange("x", ChangeAction.ADDED, None, value), value)


def test_a_secret() -> None:
    """A secret has no value to write."""
    assert "<hidden>" == value_of(FieldChange("x", ChangeAction.CHANGED, is_hidden=True), "S3CR3T")


def test_places() -> None:
    """A place can be opened; what a server told has none."""
    assert "HEAD:xds/cds.yaml:4" == Side("HEAD", "HEAD:xds/").place(resource("a", 4))
    assert "" == Side("http://x", None).place(resource("a"))


def test_summary() -> None:
    """The result in one line."""
    assert "main → HEAD: 1 added, 2 changed, 1 removed" == summary(EXAMPLE)
    assert "main → HEAD: no difference" == summary(compared())
