"""Decides which missing names a Delta stream reports as removed, and when.

Removed members of collections are remembered: a reconnecting client does not report which it holds.

| rule | source |
| --- | --- |
| A client that begins with a collection receives its view's removals of members. | ENVOY.md E43 |
| Beyond a limit per collection and per view, the oldest removals are forgotten. | their memory |

A member that exists again stays recorded, but is not sent as removed.

Rules: which removed members a reconnecting client is told (kept by `history/` and `disk_cache/member_names.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from fsxds.model.resource_names import SCHEME, glob_of
from fsxds.model.resource_types import ResourceType
from fsxds.model.resources import Key, Snapshot
from fsxds.model.values import TypeUrl
from fsxds.protocol.acks import NOTHING, Acks
from fsxds.protocol.lookup import Changes, Lookup
from fsxds.protocol.subscription import WILDCARD, Unanswered, nothing_unanswered
from fsxds.rollout.uses import names_in_use


class Absence:
    """Decides which names are reported now; others are once they certainly do not exist.

    | if | not reported |
    | --- | --- |
    | a file that was never good may define the type | names that may be in that file |
    | no file ever mentioned the type | resources brought from another process, which may have had files of it |
    | an upstream that may have the name has not answered | the name; for hosts, that these are unknown |
    | it is brought from another process, and a served resource references it | the name: requests would fail |
    | it would hang an Envoy (ENVOY.md E38) | all names; of a type that Envoy lets go of (E86), awaited names |

    Observed removals are always reported. `brought` is set to the brought names that do not exist.
    """

    __slots__ = ("_drops_removed", "_in_use", "_is_hidden", "_type_url", "_unanswered", "brought", "unreported")

    def __init__(self, row: ResourceType, *, is_envoy: bool, unanswered: Unanswered = nothing_unanswered) -> None:
        self.unreported = NOTHING
        self._type_url, self._unanswered = row.type_url, unanswered
        self._is_hidden, self._drops_removed = is_envoy and row.absence_hangs_envoy, row.drops_removed
        # Brought names that have not existed since this process started.
        self.brought = NOTHING
        # Those that a served resource referenced: they stay until the client connects again and goes through the steps.
        self._in_use = NOTHING

    @property
    def is_open(self) -> bool:
        """Whether any name is undecided."""
        return bool(self.unreported or self.brought)

    def reconsider(self, names: frozenset[str], after: Lookup) -> frozenset[str]:
        """Return unreported names, still absent and wanted."""
        if not self.is_open:
            return NOTHING
        absent = self.unreported | self.brought
        absent -= after.existing(absent)
        self.brought &= absent
        unreported, self.unreported = self.unreported & absent, NOTHING
        return unreported & (names | self.brought)

    def withhold(self, changes: Changes, snapshot: Snapshot, subscribed: frozenset[str], acks: Acks) -> Changes:
        """Leave out names not reported now."""
        if self._is_hidden:
            removed = changes.removed - acks.unconfirmed if changes.removed and self._drops_removed else NOTHING
            changes = replace(changes, absent=NOTHING, removed=removed)
        self.unreported = self._uncertain(changes, snapshot, subscribed)
        if not self.unreported:
            return changes
        return replace(
            changes,
            absent=changes.absent - self.unreported,
            removed=changes.removed - self.unreported,
            unpopulated=changes.unpopulated - self.unreported,
        )

    def _uncertain(self, changes: Changes, snapshot: Snapshot, subscribed: frozenset[str]) -> frozenset[str]:
        brought = changes.removed & self.brought
        named = (changes.removed | changes.absent) & self.brought
        self._in_use |= names_in_use(snapshot, self._type_url, named - self._in_use)
        # A name that no client asks for any more was forgotten, and may be asked for again just now.
        unanswered = self._unanswered_among(
            changes.absent | changes.unpopulated | (changes.removed & subscribed), brought - subscribed, subscribed
        )
        if self._type_url in snapshot.incomplete:
            return unanswered | changes.absent | brought
        if self._type_url in snapshot.undeclared:
            return unanswered | (self.brought & (changes.absent | changes.removed))
        self.brought &= unanswered | self._in_use
        return unanswered | (named & self._in_use)

    def _unanswered_among(
        self, names: frozenset[str], brought: frozenset[str], subscribed: frozenset[str]
    ) -> frozenset[str]:
        """Upstreams are not asked for a brought name, but for its subscribed collection or wildcard."""
        if not names and not brought:
            return NOTHING
        asked_as = {name: glob if (glob := glob_of(name)) in subscribed else WILDCARD for name in brought}
        unanswered = self._unanswered(self._type_url, names.union(asked_as.values()))
        return (unanswered & names).union(name for name, asked in asked_as.items() if asked in unanswered)

    def reportable(self, removed: frozenset[str]) -> frozenset[str]:
        """Return reportable names of `removed`, all sent before."""
        return NOTHING if self._is_hidden else removed


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
    """Count all members of a view no longer followed as removed."""
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
