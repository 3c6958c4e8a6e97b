"""Remembers removed members of collections: a reconnecting client does not report which it holds.

| rule | source |
| --- | --- |
| A client that begins with a collection receives the removals of members from its view. | ENVOY.md E43 |
| Beyond a limit per collection and per view, the oldest removals are forgotten. | the memory that they take |

A member that exists again stays recorded, and is not sent as removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from fsxds.model.resource_names import SCHEME, glob_of
from fsxds.model.resources import Key, Snapshot
from fsxds.model.values import TypeUrl

# An Envoy receives all of them when it reconnects: these are less than a megabyte.
MOST_OF_A_COLLECTION = 10_000
MOST_OF_A_VIEW = 100_000

Tombstones = Mapping[Key, dict[str, int]]
"""By type and collection: removed members, each with an increasing number, in this order."""

NO_TOMBSTONES: Tombstones = MappingProxyType({})


def after_change(known: Tombstones, before: Snapshot | None, after: Snapshot) -> Tombstones:
    """Return the same object if no member was removed."""
    if before is None:
        return known
    gone: list[tuple[TypeUrl, str]] = []
    for type_url, rows in after.by_type.items():
        old = before.resources(type_url)
        if old is not rows and old:
            gone += ((type_url, name) for name in rows.changes_since(old).removed if name.startswith(SCHEME))
    return with_removed(known, gone)


def after_parting(known: Tombstones, last: Snapshot | None) -> Tombstones:
    """All members of a view that is no longer followed count as removed."""
    by_type = last.by_type.items() if last is not None else ()
    return with_removed(
        known, ((type_url, name) for type_url, rows in by_type for name, _ in rows.starting_with(SCHEME))
    )


def with_removed(known: Tombstones, names: Iterable[tuple[TypeUrl, str]]) -> Tombstones:
    """Add names; return the same object for none."""
    gone: dict[Key, list[str]] = {}
    for type_url, name in names:
        gone.setdefault((type_url, glob_of(name)), []).append(name)
    return _with(known, gone) if gone else known


def removed_members(snapshot: Snapshot, type_url: TypeUrl, globs: Iterable[str]) -> frozenset[str]:
    """Return removed members that do not exist."""
    rows = snapshot.resources(type_url)
    noted = (snapshot.tombstones.get((type_url, glob), {}) for glob in globs)
    return frozenset(name for names in noted for name in names if name not in rows)


def _with(known: Tombstones, gone: Mapping[Key, Iterable[str]]) -> Tombstones:
    number = max((names[next(reversed(names))] for names in known.values()), default=0)
    after = dict(known)
    for key, removed in gone.items():
        # The collection becomes the most recent one.
        names = dict(after.pop(key, {}))
        for name in sorted(removed):
            number += 1
            names.pop(name, None)
            names[name] = number
        after[key] = _newest(names, MOST_OF_A_COLLECTION)
    excess = sum(map(len, after.values())) - MOST_OF_A_VIEW
    while excess > 0:
        key = next(iter(after))
        names = after.pop(key)
        if len(names) > excess:
            after = {key: _newest(names, len(names) - excess), **after}
        excess -= len(names)
    return MappingProxyType(after)


def _newest(names: dict[str, int], most: int) -> dict[str, int]:
    return dict(list(names.items())[-most:]) if len(names) > most else names
