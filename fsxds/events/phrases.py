"""Phrases of log lines and of the command line: counts, names, times. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from fsxds.api.secrets import mask_reason
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key
from fsxds.model.values import TypeUrl
from fsxds.protocol.messages import Node

# Control characters, line separators, and marks that change the direction of the text after them.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# Envoy quotes whole messages of its configuration when it rejects them (ENVOY.md E21).
LONGEST_FOREIGN_TEXT = 500

# More than is quoted, so that no secret is cut before it is masked.
LONGEST_READ = 4 * LONGEST_FOREIGN_TEXT

# The maximum number of resource names in one line for programs.
MOST_RESOURCES = 20

# The maximum number of clients, files or resources in one line for people; the rest is counted.
MOST_NAMES = 3

LONGEST_NAME = 80

NO_REASON = "it gave no reason; see its own log"
"""The reason in a log line if a client gave none."""

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def escape(text: str) -> str:
    """Escape characters that could forge lines or colours on a terminal."""
    return UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def shortened(text: str) -> str:
    """Cut a foreign text, so that one rejected megabyte does not become one line."""
    return text if len(text) <= LONGEST_FOREIGN_TEXT else f"{text[:LONGEST_FOREIGN_TEXT]}…"


def type_name(type_url: TypeUrl) -> str:
    """Return the short name of a type (`cds`), or its URL if unknown."""
    row = BY_TYPE_URL.get(type_url)
    return row.short_name if row else type_url


def noun_of(type_url: TypeUrl) -> str:
    """Return the noun of a type's resources (`clusters`), or its URL if unknown."""
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
    """Return the note about omitted lines: ` (2 NACKs before it omitted)`; empty for none."""
    return f" ({count_of(repeats, noun)} before it omitted)" if repeats else ""


def name_of(node: Node) -> str:
    """Return the name of a client in the log: its node id, else its address."""
    return node.id or node.peer or "a client without an id"


def resources_of(keys: Collection[Key]) -> str:
    """Return the names of a few resources, or their number."""
    return some_of(written_keys(keys)) if len(keys) <= MOST_NAMES else count_of(len(keys), "resource")


def written_keys(keys: Iterable[Key]) -> list[str]:
    """Return resources as the log names them, sorted: `cds web`."""
    return sorted(f"{type_name(type_url)} {name[:LONGEST_NAME]}" for type_url, name in keys)


def quoted(text: str) -> str:
    """Return a foreign text masked and shortened; it is cut first, since masking takes longer for longer texts."""
    return shortened(mask_reason(text[:LONGEST_READ]))
