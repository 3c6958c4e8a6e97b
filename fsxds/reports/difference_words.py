"""A difference in words: names of sides, counts, values cut to what people read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from fsxds.comparison.changes import Act, Difference, FieldChange, TypeDifference
from fsxds.operations.log_lines import escape
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Resource
from fsxds.values import PlainValue

_PLAIN_WORD = re.compile(r"[\w.:/@*%+-]+")
_LONGEST_VALUE = 100
_MOST_PARTS = 6

SIGNS = {Act.ADDED: "+", Act.REMOVED: "-", Act.CHANGED: "~", Act.REORDERED: "~"}


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared.

    Attributes:
        label: what the user calls it.
        prefix: stands before the paths of its files, so that they can be opened; None where it has no files.
    """

    label: str
    prefix: str | None = ""

    def place(self, resource: Resource) -> str:
        """Return where a resource of this side is written, empty where that is nowhere."""
        return "" if self.prefix is None else escape(f"{self.prefix}{resource.origin}")


@dataclass(frozen=True, slots=True)
class Unread:
    """Something of a side that could not be read: a file, or what a server withholds, and why."""

    place: str
    reason: str

    def __str__(self) -> str:
        return escape(f"{self.place}: {self.reason}")


@dataclass(frozen=True, slots=True)
class Compared:
    """A difference, the two sides that it is between, and what of these could not be read."""

    before: Side
    after: Side
    difference: Difference
    unread: tuple[Unread, ...] = ()

    @property
    def are_same(self) -> bool:
        """Whether what could be read of both sides is the same."""
        return not any(counts_of(self.difference)) and not self.unknown

    @property
    def unknown(self) -> int:
        """How many resources of one side may stand in what could not be read of the other."""
        return sum(row.unknown for row in self.difference.types)


def unknown_of(difference: TypeDifference, compared: Compared) -> Iterator[tuple[Resource, Side]]:
    """Yield the resources of a type that are not known to be added or removed, with the side that has them."""
    for resource in difference.maybe_added:
        yield resource, compared.after
    for resource in difference.maybe_removed:
        yield resource, compared.before


def noun_of(difference: TypeDifference) -> str:
    """Return what resources of a type are called: `clusters`."""
    return BY_TYPE_URL[difference.type_url].noun


def counts_of(difference: Difference) -> tuple[int, int, int]:
    """Return how many resources of all types were added, changed and removed."""
    rows = difference.types
    return (
        sum(len(row.added) for row in rows),
        sum(len(row.changed) for row in rows),
        sum(len(row.removed) for row in rows),
    )


def worded_counts(added: int, changed: int, removed: int, unknown: int = 0) -> str:
    """Return counts in words, without those that are zero: `1 added, 2 changed`."""
    parts = ((added, "added"), (changed, "changed"), (removed, "removed"), (unknown, "unknown"))
    return ", ".join(f"{number} {word}" for number, word in parts if number)


def summary(compared: Compared) -> str:
    """Return the result in one line."""
    names = f"{compared.before.label} → {compared.after.label}"
    counts = worded_counts(*counts_of(compared.difference), compared.unknown)
    if compared.unread:
        return escape(f"{names}: {counts or 'no difference in what could be read'}; {unread_words(compared)}")
    return escape(f"{names}: {counts or 'no difference'}")


def unread_words(compared: Compared) -> str:
    """Return how much could not be read: `not compared: 2 that could not be read`."""
    return f"not compared: {len(compared.unread)} that could not be read"


def value_of(change: FieldChange, value: PlainValue) -> str:
    """Return one of the values of a change as people write it, cut where it is long."""
    if change.is_hidden:
        return "<hidden>"
    return escape(_written(value))


def note_of(change: FieldChange) -> str:
    """Return what there is to say beside, or instead of, the values of a change; empty where there is nothing."""
    if change.is_hidden:
        return f"a secret, {change.act.value}"
    if change.act is Act.REORDERED:
        return "another order"
    return ""


def _written(value: PlainValue) -> str:
    if isinstance(value, str) and _PLAIN_WORD.fullmatch(value):
        return _cut(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= _LONGEST_VALUE:
        return text
    if isinstance(value, dict):
        return f"{{…}} with {_some(list(value))}"
    return f"[…] with {len(value)} items" if isinstance(value, list) else _cut(text)


def _some(names: list[str]) -> str:
    shown = _cut(", ".join(names[:_MOST_PARTS]))
    return f"{shown} and {len(names) - _MOST_PARTS} more" if len(names) > _MOST_PARTS else shown


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
