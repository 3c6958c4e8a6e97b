"""Finds removals that need approval.

| rule | source |
| --- | --- |
| A type that shrinks by more than a share is held; replaced names do not count. | a folder not mounted looks emptied |
| So is one that becomes empty, and a list collection that does either. | ENVOY.md E13 |
| Fewer than five resources, or entries, need no approval: one is a large share. | |
| A resource that an upstream let go, unsubscribed or expired, does not count. | |
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Key, Rows, Snapshot
from fsxds.model.values import TypeUrl

# A share of fewer resources means nothing.
LEAST_RESOURCES = 5
ID_DIGITS = 12

COLLECTIONS = BY_SHORT_NAME["lcds"].type_url

_ENTRY_TAG = 0x0A  # field 1 of a ListenerCollection, with a length


@dataclass(frozen=True, slots=True)
class Removal:
    """Removed resources of a type that shrinks too much.

    `removed` is the number of resources, however many are added, or of list collections' entries; `keys` are the
    removed resources, or the shrunken collections.
    """

    type_url: TypeUrl
    removed: int
    before: int
    keys: frozenset[Key]


def removals_to_approve(before: Snapshot, after: Snapshot, max_removal: float | None) -> tuple[Removal, ...]:
    """Return removals that need approval; `max_removal` is a type's largest share, from 0 to 1, None for no limit."""
    if max_removal is None:
        return ()
    found = []
    for type_url, rows in after.by_type.items():
        rows_before = before.resources(type_url)
        if rows is rows_before:
            continue
        released = after.released.get(type_url, ())
        change = rows.changes_since(rows_before)
        gone = frozenset(name for name in change.removed if not any(name in names for names in released))
        shrinks_by = len(gone) - (len(rows) - (len(rows_before) - len(change.removed)))
        if gone and _is_too_large(shrinks_by, len(rows_before), max_removal):
            found.append(Removal(type_url, len(gone), len(rows_before), frozenset((type_url, one) for one in gone)))
        if type_url == COLLECTIONS:
            found += _shrunken_collections(rows_before, rows, max_removal)
    return tuple(found)


def _is_too_large(shrinks_by: int, before: int, max_removal: float) -> bool:
    return before >= LEAST_RESOURCES and (shrinks_by > before * max_removal or shrinks_by == before)


def _shrunken_collections(before: Rows, rows: Rows, max_removal: float) -> Iterator[Removal]:
    for name in sorted(rows.changes_since(before).fresh & before.keys()):
        count = entry_count(before[name].body)
        shrinks_by = count - entry_count(rows[name].body)
        if _is_too_large(shrinks_by, count, max_removal):
            yield Removal(COLLECTIONS, shrinks_by, count, frozenset({(COLLECTIONS, name)}))


def entry_count(body: bytes) -> int:
    """Count entries; 0 for other content."""
    count = at = 0
    while at < len(body) and body[at] == _ENTRY_TAG:
        size = shift = 0
        at += 1
        while at < len(body):
            byte = body[at]
            size |= (byte & 0x7F) << shift
            shift += 7
            at += 1
            if byte < 0x80:  # the last byte of a length
                break
        at += size
        count += 1
    return count


def body_with_entries(count: int) -> bytes:
    """Return a body with `count` entries."""
    return bytes((_ENTRY_TAG, 0)) * count


def approval_id(removals: Iterable[Removal]) -> str:
    """Return 12 hex digits, equal for equal removals."""
    lines = {
        # The names of a collection's entries are not known, so their number identifies the removal.
        f"{type_url}\0{name}\0{removal.removed if type_url == COLLECTIONS else ''}\n"
        for removal in removals
        for type_url, name in removal.keys
    }
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()[:ID_DIGITS]
