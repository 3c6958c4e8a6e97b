"""The catalogue of the log's events is what the code writes, and what the docs list."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from fsxds.events import CATALOGUE, EVENTS_BY_NAME, FIELDS
from tests.support.log_events import events_section

TOP = Path(__file__).parent.parent


def strings(node: ast.AST) -> list[str]:
    """Return the strings that are written in a piece of code."""
    return [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def modules_of_lines() -> Iterator[ast.Module]:
    """Yield the modules that make lines of the log."""
    for path in sorted((TOP / "fsxds").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "LogLine(" in text and path.name != "events.py":
            yield ast.parse(text)


def test_every_line_is_in_the_catalogue() -> None:
    """The name that is given to a line has a row; names that are put together have one for each part."""
    calls = [call for tree in modules_of_lines() for call in ast.walk(tree) if isinstance(call, ast.Call)]
    names = {
        call.args[1].value
        for call in calls
        if ast.unparse(call.func) == "LogLine"
        and "level" in ast.unparse(call.args[0]).lower()
        and isinstance(call.args[1], ast.Constant)
    }

    assert len(names) > 30
    assert set() == names - EVENTS_BY_NAME.keys()


def test_every_row_is_written() -> None:
    """What the catalogue lists can be written: each name is in the code, or its parts are."""
    written = {text for tree in modules_of_lines() for text in strings(tree)}
    missing = {name for name in EVENTS_BY_NAME if name not in written and name.rpartition("_")[2] not in written}

    assert set() == missing


def test_every_field_has_one_meaning() -> None:
    """The fields of all rows are those that are explained."""
    assert {name for row in CATALOGUE for name in row.fields} == FIELDS.keys()
    assert sorted(FIELDS) == list(FIELDS)


def test_docs_list_the_catalogue() -> None:
    """The table is in the docs as `tests/support/log_events.py` prints it."""
    page = (TOP / "config" / "README.md").read_text(encoding="utf-8")

    assert events_section() in page
