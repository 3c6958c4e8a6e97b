"""The table of this folder's README names tests that exist, and all tests of this folder."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
TESTS = FOLDER.parent
# Why something has no test.
REASONS = ("*no client*", "*not in the API*")


def rows() -> list[tuple[str, str, str]]:
    """Return section, sentence and tests of each row."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8").partition("| --- |")[2]
    cells = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in text.splitlines()[1:] if line.startswith("|")]
    return [(section, sentence, tests) for section, sentence, tests in cells]


def functions_of(path: Path) -> set[str]:
    """Return the names of the tests that a file has, without running it."""
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name for node in functions if node.name.startswith("test_")}


def named(tests: str) -> list[str]:
    """Return the tests that a cell names: `path::name`."""
    return re.findall(r"`([\w/]+\.py::\w+)`", tests)


@pytest.mark.parametrize(("section", "sentence", "tests"), rows())
def test_every_sentence_has_its_tests(section: str, sentence: str, tests: str) -> None:
    """Each sentence names tests that exist, or why there is none."""
    missing = [
        each for each in named(tests) if each.partition("::")[2] not in functions_of(TESTS / each.partition("::")[0])
    ]

    assert section
    assert sentence
    assert missing == []
    assert named(tests) or any(tests.startswith(reason) for reason in REASONS)


def test_every_test_of_this_folder_is_named() -> None:
    """No test of a sentence is missing in the table."""
    there = {
        f"{FOLDER.name}/{path.name}::{name}"
        for path in FOLDER.glob("test_*.py")
        if path != Path(__file__)
        for name in functions_of(path)
    }

    assert there - {each for *_, tests in rows() for each in named(tests)} == set()


def test_what_is_missing_is_found() -> None:
    """A name of no test, or of a file that is not there, is no test."""
    assert named("x `next_steps/test_names.py::test_nothing`, `y/z.py::test_a`") == [
        "next_steps/test_names.py::test_nothing",
        "y/z.py::test_a",
    ]
    assert "test_nothing" not in functions_of(FOLDER / "test_names.py")
    assert functions_of(FOLDER / "nothing.py") == set()
