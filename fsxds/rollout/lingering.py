"""Keeps resources that the target lacks while draining listeners' connections use them.

| rule | source |
| --- | --- |
| When a listener changes or is removed, its open connections keep its old version until the drain ends. | ENVOY.md E66 |
| Until then, a resource that only the old version names stays, whenever the tree drops it. | the same |
| Nor are its references, if removed as well: routes, their clusters, the endpoints of these. | the same |
| References of a resource that stays do not linger: its changes reach open connections. | ENVOY.md E67 |
| A name that ends with `*` may mean any resource with that prefix: all removed ones linger. | `ANY` in `snapshots/references.py` |
| References to the bootstrap's resources keep nothing. | ENVOY.md E6 |

Each step computes it anew from `Draining`, which has all references, removed or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Key, Resource, RowsChange, Snapshot
from fsxds.model.values import TypeUrl
from fsxds.rollout.uses import is_pattern, names_meant

LISTENERS = BY_SHORT_NAME["lds"].type_url


@dataclass(frozen=True, slots=True)
class Lingering:
    """`ends_at_s` is None until clients have taken the changed listeners."""

    listeners: frozenset[str]
    ends_at_s: float | None = None

    def joined_with(self, other: Lingering) -> Lingering:
        """Merge two reasons: the later end counts."""
        ends = None if None in {self.ends_at_s, other.ends_at_s} else max(self.ends_at_s or 0, other.ends_at_s or 0)
        return Lingering(self.listeners | other.listeners, ends)


@dataclass(frozen=True, slots=True)
class DrainingListener:
    """A listener's old version with possibly open connections.

    `keys` are resources that its next version does not name, `patterns` names that may mean several. `ends_at_s` is
    None until clients have the next version.
    """

    name: str
    keys: frozenset[Key]
    patterns: frozenset[Key] = frozenset()
    ends_at_s: float | None = None


LingeringByKey = Mapping[Key, Lingering]
Draining = tuple[DrainingListener, ...]
Changes = Mapping[TypeUrl, RowsChange]


def draining_after(served: Snapshot, target: Snapshot, draining: Draining) -> Draining:
    """Add the target's listeners; new ones have no end."""
    rows, new_rows = served.resources(LISTENERS), target.resources(LISTENERS)
    change = new_rows.changes_since(rows)
    names = sorted(rows.among(change.fresh | change.removed))
    found = (_drained(rows[name], new_rows.get(name)) for name in names)
    return (*draining, *(one for one in found if one.keys or one.patterns)) if names else draining


def _drained(old: Resource, new: Resource | None) -> DrainingListener:
    keys = set(_named_by(old)) - set(() if new is None else _named_by(new))
    patterns = frozenset(key for key in keys if is_pattern(key[1]))
    return DrainingListener(old.name, frozenset(keys - patterns), patterns)


def lingering_of(served: Snapshot, changes: Changes, draining: Draining) -> dict[Key, Lingering]:
    """Return removed resources that draining listeners use, at a cost per removal.

    `changes` from served to target already remove lingering resources.
    """
    removed = {type_url: change.removed for type_url, change in changes.items() if change.removed}
    removed_keys = {(type_url, name) for type_url, names in removed.items() for name in names} if draining else set()
    found: dict[Key, Lingering] = {}
    for listener in draining if removed_keys else ():
        lingering = Lingering(frozenset((listener.name,)), listener.ends_at_s)
        for key in _kept_by((*(listener.keys & removed_keys), *listener.patterns), served, removed):
            found[key] = found[key].joined_with(lingering) if key in found else lingering
    return found


def _kept_by(keys: Iterable[Key], served: Snapshot, removed: Mapping[TypeUrl, frozenset[str]]) -> set[Key]:
    found: set[Key] = set()
    mentions = list(keys)
    while mentions:
        type_url, name = mentions.pop()
        meant = {(type_url, one) for one in names_meant(name, removed.get(type_url, ()))} - found
        found |= meant
        mentions += [named for _, one in meant for named in _named_by(served.resources(type_url)[one])]
    return found


def _named_by(user: Resource) -> Iterator[Key]:
    return ((one.type_url, one.name) for one in user.references if not one.is_static)


def names_by_type(keys: Iterable[Key]) -> dict[TypeUrl, frozenset[str]]:
    """Group names by type."""
    names: defaultdict[TypeUrl, set[str]] = defaultdict(set)
    for type_url, name in keys:
        names[type_url].add(name)
    return {type_url: frozenset(found) for type_url, found in names.items()}


def with_ends(draining: Draining, ends_at_s: float) -> Draining:
    """Set missing ends: clients have taken the new listeners."""
    return tuple(replace(one, ends_at_s=ends_at_s) if one.ends_at_s is None else one for one in draining)


def without_drained(draining: Draining, listeners: Collection[str]) -> Draining:
    """Remove old versions with an end."""
    return tuple(one for one in draining if one.ends_at_s is None or one.name not in listeners)


def without_ended(draining: Draining, now_s: float) -> Draining:
    """Remove ended listeners."""
    return tuple(one for one in draining if one.ends_at_s is None or one.ends_at_s > now_s)


def shifted(draining: Draining, by_s: float) -> Draining:
    """Move all ends."""
    return tuple(one if one.ends_at_s is None else replace(one, ends_at_s=one.ends_at_s + by_s) for one in draining)


def first_end_s(draining: Draining) -> float | None:
    """Return the next end."""
    first_s = min((one.ends_at_s for one in draining if one.ends_at_s is not None), default=inf)
    return None if first_s == inf else first_s
