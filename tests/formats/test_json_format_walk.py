"""A walk through JSON text."""

import json

import pytest

from fsxds.formats.decoded import LineIndex
from fsxds.formats.json_format import JsonWalk, skip_blanks


class Everything:
    """A visitor that wants to see all and notes it."""

    def __init__(self):
        self.met = []

    def note_place(self, path, line, column):
        """Note the path and its place."""
        self.met.append((path, line, column))

    def enter(self, path, opener):
        """Look everywhere."""
        return path


def test_everything_is_met_in_order():
    """Keys and items are shown with their places, empty containers without any inside."""
    visitor = Everything()

    JsonWalk(' {"a": {}, "b": [[],\n 1], "c": "]"}', visitor).walk()

    assert visitor.met == [
        ((), 1, 2),
        (("a",), 1, 3),
        (("b",), 1, 12),
        (("b", 0), 1, 18),
        (("b", 1), 2, 2),
        (("c",), 2, 6),
    ]


@pytest.mark.parametrize("text", ["", "{", '{"a" 1}', '{"a": 1 "b": 2}', "[1 2]", "[1,", "{1}", "x"])
def test_broken_texts(text):
    """A walk ends where the text stops being JSON."""
    with pytest.raises(json.JSONDecodeError):
        JsonWalk(text, Everything()).walk()


def test_lines_and_columns():
    """Lines and columns of one index after the other."""
    lines = LineIndex("a\n\nbc")

    assert [(1, 1), (1, 2), (2, 1), (3, 1), (3, 2), (3, 2)] == [lines.place(index) for index in (0, 1, 2, 3, 4, 4)]


def test_blanks_of_json():
    """Only the four blanks of JSON are skipped."""
    assert [4, 0, 1] == [skip_blanks(" \n\t\r", 0), skip_blanks("\u00a0", 0), skip_blanks("a", 1)]
