"""Find one's way in JSON text: where members and items stand, skipping the rest at the speed of json's own scanner."""

from __future__ import annotations

import json
import re
from typing import Final

from fsxds.formats.visiting import Visitor
from fsxds.values import FieldPath

_BLANKS: Final = re.compile(r"[ \t\n\r]*+")


def skip_blanks(text: str, index: int) -> int:
    """Return the index of the next character that is not white space."""
    found = _BLANKS.match(text, index)
    return found.end() if found else index


class Places:
    """Lines and columns of indexes that only grow, each character looked at once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._index = 0
        self._line = 1
        self._line_start = 0

    def place(self, index: int) -> tuple[int, int]:
        """Return line and column, from 1, of an index not smaller than the last one."""
        newlines = self._text.count("\n", self._index, index)
        if newlines:
            self._line += newlines
            self._line_start = self._text.rfind("\n", self._index, index) + 1
        self._index = index
        return self._line, index - self._line_start + 1


class JsonWalk:
    """One walk through a JSON text, showing a visitor what it wants to see."""

    def __init__(self, text: str, visitor: Visitor) -> None:
        self._text = text
        self._visitor = visitor
        self._places = Places(text)
        self._skip = json.JSONDecoder().raw_decode

    def walk(self) -> None:
        """Walk from the top.

        Raises:
            json.JSONDecodeError: where the text stops being JSON, after what stands before was shown.
        """
        start = skip_blanks(self._text, 0)
        self._visitor.meet((), *self._places.place(start))
        self._value(start, ())

    def _value(self, index: int, path: FieldPath) -> int:
        """Walk through the value at an index; return where it ends."""
        opener = self._text[index : index + 1]
        inside = self._visitor.enter(path, opener) if opener in ("{", "[") else None
        if inside is not None:
            return self._members(index, inside) if opener == "{" else self._items(index, inside)
        return self._skip(self._text, index)[1]

    def _members(self, index: int, path: FieldPath) -> int:
        index = skip_blanks(self._text, index + 1)
        if self._text[index : index + 1] == "}":
            return index + 1
        while True:
            key, end = self._skip(self._text, index)
            inner = (*path, str(key))
            self._visitor.meet(inner, *self._places.place(index))
            index = self._expect(":", end)
            end = self._value(skip_blanks(self._text, index), inner)
            index = skip_blanks(self._text, end)
            if self._text[index : index + 1] == "}":
                return index + 1
            index = skip_blanks(self._text, self._expect(",", index))

    def _items(self, index: int, path: FieldPath) -> int:
        index = skip_blanks(self._text, index + 1)
        if self._text[index : index + 1] == "]":
            return index + 1
        position = 0
        while True:
            inner = (*path, position)
            self._visitor.meet(inner, *self._places.place(index))
            index = skip_blanks(self._text, self._value(index, inner))
            if self._text[index : index + 1] == "]":
                return index + 1
            index = skip_blanks(self._text, self._expect(",", index))
            position += 1

    def _expect(self, mark: str, index: int) -> int:
        index = skip_blanks(self._text, index)
        if self._text[index : index + 1] != mark:
            raise json.JSONDecodeError(f"Expecting '{mark}' delimiter", self._text, index)
        return index + 1
