"""Phrases of log lines and of the command line: counts, names, times. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.values import TypeUrl
from fsxds.protocol.messages import Node

# Control characters, line separators, and marks that turn the direction of the text after them.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# Envoy quotes whole messages of its configuration when it rejects them (ENVOY.md E21).
LONGEST_FOREIGN_TEXT = 500

# Of clients, files or resources in one line for people; the others are counted.
MOST_NAMES = 3

LONGEST_NAME = 80

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def escape(text: str) -> str:
    """Escape what could forge lines or colours on a terminal."""
    return UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def shortened(text: str) -> str:
    """Cut a foreign text, so that one rejected megabyte does not become one line."""
    return text if len(text) <= LONGEST_FOREIGN_TEXT else f"{text[:LONGEST_FOREIGN_TEXT]}…"


def type_name(type_url: TypeUrl) -> str:
    """Return the short name of a type (`cds`); its URL where it is none of the table's."""
    row = BY_TYPE_URL.get(type_url)
    return row.short_name if row else type_url


def noun_of(type_url: TypeUrl) -> str:
    """Return what resources of a type are called (`clusters`); its URL where it is none of the table's."""
    row = BY_TYPE_URL.get(type_url)
    return row.noun if row else type_url


def some_of(names: Sequence[str]) -> str:
    """Return the first few names as a phrase: `a, b, c and 5 more`."""
    shown = ", ".join(names[:MOST_NAMES])
    return f"{shown} and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else shown


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"


def duration(time_s: float) -> str:
    """Return a time in its largest unit: `3 s`, `5 min`, `2 h`, `4 d`."""
    size, unit = next((each for each in _UNITS if time_s >= each[0]), _UNITS[-1])
    return f"{int(time_s / size)} {unit}"


def omitted(repeats: int, noun: str) -> str:
    """Return what follows a line before which others were not written: ` (2 NACKs before it omitted)`; empty for none."""
    return f" ({count_of(repeats, noun)} before it omitted)" if repeats else ""


def name_of(node: Node) -> str:
    """Return how a client is called in the log: by its node id, else by its address."""
    return node.id or node.peer or "a client without an id"
