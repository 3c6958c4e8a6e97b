"""Make before break: nothing is removed before what uses it has moved on.

| rule | source |
| --- | --- |
| Changes go out in push order, the row order of `RESOURCE_TYPES`: what is used before what uses it. | xDS protocol, "Eventual consistency considerations" |
| Removals follow all changes, in reverse order: what uses before what is used. | xDS protocol, "Eventual consistency considerations" |
| Where one message or file has the whole state, the old and the new go out together first, the new alone after their users. | ENVOY.md E26 |

SotW and Delta streams use it for responses, the mirror for files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from fsxds.resource_types import RESOURCE_TYPES

Part = TypeVar("Part")

# The types that may use clusters.
USERS_OF_CLUSTERS = frozenset(row.type_url for row in RESOURCE_TYPES if row.uses_clusters)


@dataclass(frozen=True, slots=True)
class Staged(Generic[Part]):
    """A change in two parts: `make` goes out before its users change, `removal` after them; None for no such part."""

    make: Part | None
    removal: Part | None = None


def staged_state(before: Part | None, both: Part, after: Part) -> Staged[Part]:
    """Divide the change of a whole state that is in use; `before` is None where it is not known.

    `both` is the new state together with what it removes from `before`.
    """
    if both == after:
        return Staged(None if after == before else after)
    return Staged(None if both == before else both, after)


def make_before_break(changes: Iterable[Staged[Part]]) -> Iterator[Part]:
    """Yield the parts of changes, which are in push order, in the order in which they go out."""
    removals = []
    for change in changes:
        if change.make is not None:
            yield change.make
        if change.removal is not None:
            removals.append(change.removal)
    yield from reversed(removals)
