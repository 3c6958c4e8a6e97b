"""Phrases for people: counts, names, times. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from fsxds.api.secrets import mask_reason
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key
from fsxds.model.values import TypeUrl
from fsxds.protocol.messages import Node

# Control characters, line separators, and marks that change the text's direction.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# Envoy quotes whole messages when it rejects them (ENVOY.md E21).
LONGEST_FOREIGN_TEXT = 500

# More than is quoted, so that no secret is cut before masking.
LONGEST_READ = 4 * LONGEST_FOREIGN_TEXT

# Names in a line for programs.
MOST_RESOURCES = 20

# Names in a line for people.
MOST_NAMES = 3

LONGEST_NAME = 80

NO_REASON = "it gave no reason; see its own log"
"""If a client gave no reason."""

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def escape(text: str) -> str:
    """Escape characters that forge lines or colours."""
    return UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def shortened(text: str) -> str:
    """Cut a foreign text of any length."""
    return text if len(text) <= LONGEST_FOREIGN_TEXT else f"{text[:LONGEST_FOREIGN_TEXT]}…"


def type_name(type_url: TypeUrl) -> str:
    """Return a type's short name (`cds`), or its URL if unknown."""
    row = BY_TYPE_URL.get(type_url)
    return row.short_name if row else type_url


def noun_of(type_url: TypeUrl) -> str:
    """Return a type's noun (`clusters`), or its URL if unknown."""
    row = BY_TYPE_URL.get(type_url)
    return row.noun if row else type_url


def some_of(names: Sequence[str]) -> str:
    """Return the first names: `a, b, c and 5 more`."""
    shown = ", ".join(names[:MOST_NAMES])
    return f"{shown} and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else shown


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a count: `1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"


def duration(time_s: float) -> str:
    """Round to the largest unit: `3 s`, `5 min`, `2 h`, `4 d`."""
    size, unit = next((each for each in _UNITS if time_s >= each[0]), _UNITS[-1])
    return f"{int(time_s / size)} {unit}"


def omitted(repeats: int, noun: str) -> str:
    """Note omitted lines: ` (2 NACKs before it omitted)`, or ""."""
    return f" ({count_of(repeats, noun)} before it omitted)" if repeats else ""


def name_of(node: Node) -> str:
    """Return a client's node id, else its address."""
    return node.id or node.peer or "a client without an id"


def resources_of(keys: Collection[Key]) -> str:
    """Name a few resources, or count them."""
    return some_of(written_keys(keys)) if len(keys) <= MOST_NAMES else count_of(len(keys), "resource")


def written_keys(keys: Iterable[Key]) -> list[str]:
    """Name resources, sorted: `cds web`."""
    return sorted(f"{type_name(type_url)} {name[:LONGEST_NAME]}" for type_url, name in keys)


def quoted(text: str) -> str:
    """Mask and shorten a foreign text, cut first for speed."""
    return shortened(mask_reason(text[:LONGEST_READ]))
