"""A file's decoded documents, and common helpers."""

from __future__ import annotations

import codecs
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.model.values import Fault, FieldPath, PlainValue

MAX_DEPTH = 100
"""The deepest real Envoy configurations have about 40 levels."""

MAX_FAULTS = 1000
"""Reading ends after as many faults; a generated file could have millions."""

LONGEST_KEY, LONGEST_TYPE = 40, 120
"""The most characters of keys and type names in messages; values are never quoted."""


@dataclass(frozen=True, slots=True)
class PlainDocument:
    """One document of plain values.

    `line` is its first line, from 1. `item_lines` are those of items at the top or under `resources`; empty without such a
    list in place (none, or an alias to one).
    """

    value: PlainValue
    line: int
    item_lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MessageDocument:
    """A DiscoveryResponse from binary."""

    message: Message
    line: int
    item_lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Decoded:
    """A file's documents; none after a fault of syntax."""

    documents: tuple[PlainDocument | MessageDocument, ...]
    faults: tuple[Fault, ...] = ()


Decode = Callable[[bytes, Catalogue, str | None], Decoded]
"""Content, message types, and the type by the file's name, or None. Never raises."""

Encode = Callable[[Message, Printer], bytes]
"""Writes a message: deterministic; text ends with a newline."""


class UnreadableError(Exception):
    """Reading ends with this fault; never leaves this package."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def unreadable(fault: Fault) -> Decoded:
    """Return only the fault."""
    return Decoded((), (fault,))


def too_deep(line: int | None = None, column: int | None = None, field_path: FieldPath = ()) -> Fault:
    """Report nesting beyond `MAX_DEPTH`."""
    fact = f"values are nested more than {MAX_DEPTH} levels deep"
    return Fault("too-deep", fact, "write fewer levels; no Envoy API needs as many", field_path, line, column)


def shown(name: str, longest: int = LONGEST_KEY) -> str:
    """Quote a name, cut to a length."""
    cut = name if len(name) <= longest else name[: longest - 1] + "…"
    return '"' + "".join(letter if letter.isprintable() else "?" for letter in cut) + '"'


# UTF-32 first: its little-endian mark begins with that of UTF-16.
_OTHER_ENCODINGS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def read_text(content: bytes, *, allow_mark: bool = True) -> str:
    """Return text without its byte order mark, which Envoy accepts only in YAML.

    UnreadableError: it is not UTF-8, or has NUL characters, or a mark that is not allowed.
    """
    for mark, encoding in _OTHER_ENCODINGS:
        if content.startswith(mark):
            raise UnreadableError(_fault_after(b"", f"the file is {encoding}, not UTF-8", "save it as UTF-8"))
    if b"\0" in content:
        before = content[: content.index(b"\0")]
        raise UnreadableError(_fault_after(before, "the file holds a NUL character", "remove it; is this a text file?"))
    if content.startswith(codecs.BOM_UTF8):
        if not allow_mark:
            fact = "the file begins with a byte order mark, which Envoy rejects in JSON"
            raise UnreadableError(_fault_after(b"", fact, "save it without the mark, or name it .yaml"))
        content = content[len(codecs.BOM_UTF8) :]
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start]
        raise UnreadableError(_fault_after(before, "the bytes here are not UTF-8", "save the file as UTF-8")) from None


def place_after(before: str) -> tuple[int, int]:
    """Return the next line and column, from 1."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _fault_after(before: bytes, message: str, remedy: str) -> Fault:
    line, column = place_after(before.decode(errors="replace"))
    return Fault("bad-encoding", message, remedy, (), line, column)


class LineIndex:
    """Converts indexes to lines and columns."""

    def __init__(self, text: str) -> None:
        self._starts = list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))

    def place(self, index: int) -> tuple[int, int]:
        """Return line and column, from 1."""
        line = bisect_right(self._starts, index)
        return line, index - self._starts[line - 1] + 1


class AllFoundError(Exception):
    """All places are found: the walk ends."""


class Visitor(Protocol):
    """Receives places in the order of the text."""

    def note_place(self, path: FieldPath, line: int, column: int) -> None:
        """Receive a key's or item's place, from 1; the empty path is the top. AllFoundError: the walk's end."""

    def enter(self, path: FieldPath, opener: str) -> FieldPath | None:
        """Return the path of a container's content; None to skip it.

        `opener` is `{` or `[`. An object may stand for a list of one.
        """
