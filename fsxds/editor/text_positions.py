"""Converts indexes of a text to positions of editors and problems, and back."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]
"""The index of the first character, and the index after the last."""

# Language Server Protocol 3.17, "Text Documents".
_BREAK = re.compile("\r\n|\n|\r")
# Line ends in YAML; the other formats have the line feed only.
_YAML_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_LINE_FEED = re.compile("\n")
_BYTE_ORDER_MARK = "\ufeff"

UNITS = {"utf-8": 1, "utf-16": 2, "utf-32": 4}
"""The bytes of a code unit."""


@dataclass(frozen=True, slots=True)
class EditorPosition:
    """A line, and the code units before the position, both from 0."""

    line: int
    character: int


class TextPositions:
    """Converts positions of one text; those outside become the nearest within."""

    def __init__(self, text: str, encoding: str = "utf-16") -> None:
        """Code units are in the negotiated encoding."""
        self._text = text
        self._encoding = encoding
        self._starts = _starts(text, _BREAK)

    def position(self, index: int) -> EditorPosition:
        """Return an index's position."""
        index = max(0, min(index, len(self._text)))
        line = bisect_right(self._starts, index) - 1
        return EditorPosition(line, self._units(self._text[self._starts[line] : index]))

    def index(self, position: EditorPosition) -> int:
        """Return a position's index; within a character it is rounded down."""
        if position.line >= len(self._starts):
            return len(self._text)
        start = self._starts[max(0, position.line)]
        end = self._starts[position.line + 1] if position.line + 1 < len(self._starts) else len(self._text)
        line = self._text[start:end].rstrip("\r\n")
        units = 0
        for count, letter in enumerate(line):
            units += self._units(letter)
            if units > position.character:
                return start + count
        return start + len(line)

    def _units(self, part: str) -> int:
        if part.isascii():
            return len(part)
        name = self._encoding if self._encoding == "utf-8" else f"{self._encoding}-le"
        return len(part.encode(name, "surrogatepass")) // UNITS[self._encoding]


class ProblemPositions:
    """Finds problems; lines and columns count from 1, without the byte order mark."""

    def __init__(self, text: str, *, is_yaml: bool) -> None:
        self.text = text
        self._starts = _starts(text, _YAML_BREAK if is_yaml else _LINE_FEED)

    def index(self, line: int, column: int) -> int:
        """Return the index; a missing line's is the text's end."""
        if line > len(self._starts):
            return len(self.text)
        mark = len(_BYTE_ORDER_MARK) if line == 1 and self.text.startswith(_BYTE_ORDER_MARK) else 0
        return min(len(self.text), self._starts[line - 1] + column - 1 + mark)


def _starts(text: str, line_break: re.Pattern[str]) -> list[int]:
    return [0, *(match.end() for match in line_break.finditer(text))]
