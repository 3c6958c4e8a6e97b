"""What a file holds before anyone asks what it means: its documents, and the faults of its text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.values import Fault, FieldPath, PlainValue

MAX_DEPTH = 100
"""Levels of nesting that are read; the deepest real Envoy configurations have about 40."""

MAX_FAULTS = 1000
"""Faults of one file after which reading ends; a generated file could have millions."""

LONGEST_KEY, LONGEST_TYPE = 40, 120
"""Characters of a file's keys and of its type names that a message may repeat; its values are never repeated."""


@dataclass(frozen=True, slots=True)
class PlainDocument:
    """One document of plain values, from YAML, JSON or text format.

    `line` is where it begins, from 1. `item_lines` are the lines of the items of the top-level list or of the list under
    `resources`; empty where there is no such list in place (none at all, or an alias to one).
    """

    value: PlainValue
    line: int
    item_lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MessageDocument:
    """One document that is a message already: a DiscoveryResponse, from binary. It has no lines but the first."""

    message: Message
    line: int
    item_lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Decoded:
    """What came out of one file. A fault of syntax ends the file: then there are no documents."""

    documents: tuple[PlainDocument | MessageDocument, ...]
    faults: tuple[Fault, ...] = ()


Decode = Callable[[bytes, Catalogue, str | None], Decoded]
"""Content, the known message types, and the message type that the file's name speaks of, or None. Never raises."""

Encode = Callable[[Message, Printer], bytes]
"""A message to the bytes of a file: deterministic, ending with a newline where it is text."""


class UnreadableError(Exception):
    """Reading cannot go on after this fault; never leaves this package."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def unreadable(fault: Fault) -> Decoded:
    """Return what is left of a file that cannot be read: the fault alone."""
    return Decoded((), (fault,))


def too_deep(line: int | None = None, column: int | None = None, field_path: FieldPath = ()) -> Fault:
    """Return the fault of nesting beyond `MAX_DEPTH`."""
    return Fault(
        "too-deep",
        f"values are nested more than {MAX_DEPTH} levels deep",
        "write fewer levels; no Envoy API needs as many",
        field_path,
        line,
        column,
    )


def shown(name: str, longest: int = LONGEST_KEY) -> str:
    """Return a key or name in quotes, cut to what a message may repeat."""
    cut = name if len(name) <= longest else name[: longest - 1] + "…"
    return '"' + "".join(letter if letter.isprintable() else "?" for letter in cut) + '"'
