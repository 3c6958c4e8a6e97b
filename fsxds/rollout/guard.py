"""Which targets are held until somebody approves them: those that remove much of a type, or all of it.

| rule | source |
| --- | --- |
| A target that removes more than a share of a type's resources is held. | a folder that is not mounted looks like one that was emptied |
| So is one that leaves nothing of a type. | ENVOY.md E13 |
| A type with fewer than five resources is never a reason: there, one is a large share. | |
| What went because nobody asks an upstream for it any more, or because its time is over, was removed by nobody. | |
| It is compared with the target before, so what lingers does not count; the first target is never held. | |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsxds.resources import Snapshot
from fsxds.values import TypeUrl

# Of fewer resources, a share says nothing.
LEAST_RESOURCES = 5


@dataclass(frozen=True, slots=True)
class Removal:
    """How many resources of a type a target removes, of how many."""

    type_url: TypeUrl
    removed: int
    before: int


def removals_to_approve(before: Snapshot, target: Snapshot, max_removal: float | None) -> tuple[Removal, ...]:
    """Return the removals because of which a target is held; none where it may be served.

    Args:
        before: the target before.
        target: what is to be served.
        max_removal: the largest share of a type that may go, from 0 to 1; None where everything may.
    """
    return () if max_removal is None else tuple(_too_large(before, target, max_removal))


def _too_large(before: Snapshot, target: Snapshot, max_removal: float) -> Iterator[Removal]:
    for type_url, rows in target.by_type.items():
        rows_before = before.resources(type_url)
        if len(rows_before) < LEAST_RESOURCES or rows is rows_before:
            continue
        let_go = target.let_go.get(type_url, ())
        removed = sum(not any(name in names for names in let_go) for name in rows.changes_since(rows_before).removed)
        if removed > len(rows_before) * max_removal or (removed and not rows):
            yield Removal(type_url, removed, len(rows_before))
