"""Bytes to text: strict UTF-8, or the fault that stands in the way.

What a walk through a text tells, whatever the format.

Find one's way in JSON text: where members and items stand, skipping the rest at the speed of json's own scanner.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Final, Protocol

from fsxds.formats.decoded import UnreadableError
from fsxds.values import Fault, FieldPath

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_OTHER_ENCODINGS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def read_text(content: bytes, *, allow_mark: bool = True) -> str:
    """Return the text of a file without its byte order mark.

    Args:
        content: the bytes of the file.
        allow_mark: whether a byte order mark may stand at the start. Envoy takes one in YAML and refuses it in JSON.

    Raises:
        UnreadableError: for bytes that are no UTF-8, for NUL characters, and for a mark that may not be there.
    """
    for mark, encoding in _OTHER_ENCODINGS:
        if content.startswith(mark):
            raise UnreadableError(
                Fault("bad-encoding", f"the file is {encoding}, not UTF-8", "save it as UTF-8", (), 1, 1)
            )
    if b"\0" in content:
        before = content[: content.index(b"\0")]
        raise UnreadableError(_fault_after(before, "the file holds a NUL character", "remove it; is this a text file?"))
    if content.startswith(codecs.BOM_UTF8):
        if not allow_mark:
            fact = "the file begins with a byte order mark, which Envoy refuses in JSON"
            raise UnreadableError(Fault("bad-encoding", fact, "save it without the mark, or name it .yaml", (), 1, 1))
        content = content[len(codecs.BOM_UTF8) :]
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start]
        raise UnreadableError(_fault_after(before, "the bytes here are not UTF-8", "save the file as UTF-8")) from None


def place_after(before: str) -> tuple[int, int]:
    """Return line and column, from 1, of what follows this beginning of a text."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _fault_after(before: bytes, message: str, remedy: str) -> Fault:
    line, column = place_after(before.decode(errors="replace"))
    return Fault("bad-encoding", message, remedy, (), line, column)


class EnoughError(Exception):
    """A visitor has seen what it came for: the rest of the text need not be walked."""


class Visitor(Protocol):
    """Is shown the places of a text in their order."""

    def meet(self, path: FieldPath, line: int, column: int) -> None:
        """Hear where the key or the list item of a path stands, from 1; the empty path is the top.

        Raises:
            EnoughError: to end the walk; who began it has to catch it.
        """

    def enter(self, path: FieldPath, opener: str) -> FieldPath | None:
        """Return the path to tell of what is inside the container at `path`, None to have it skipped.

        `opener` is `{` or `[`. The path is mostly the same one; a visitor may take an object for a list of one.
        """


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
