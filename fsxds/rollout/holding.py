"""Composes the snapshot to serve; held resources stay as they were.

| rule | source |
| --- | --- |
| A resource rejected by clients, or rolled back, is held at its last good version; all else follows the tree. | |
| A changed resource that would newly name a held one is held, too: a route keeps its old cluster. | |
| A resource already moved to a rejected new one, to be removed again, moves back. | |
| A changed resource that would newly name an undefined one is held until that is defined. | ENVOY.md E6 |
| A name undefined in the served snapshot is no obstacle: it may be a static cluster. | |
| If neither the tree nor an upstream has any resource of a type, another server has its names: none is undefined. | |
| So it does secrets and extensions requested from a separate gRPC service. | `expects` in `uses` |
| A removed resource stays while a served one names it. | xDS protocol, "Eventual consistency considerations" |
| A removal of much of a type waits for approval; all else is served. | below |
| A changed resource that claims what a held one has, such as an address, waits until that is free. | ENVOY.md E56 |
| A served resource gives way to no rollback, and to no good version of a rejected one. | |
| Claims that two resources of the tree, or two served ones, share are no obstacle. | |

An edit that changes no name, reference or claim costs only its changes (`composed_again`), others the difference of
served and new, and the holds.

Removals that need approval:

| rule | source |
| --- | --- |
| A type that shrinks by more than a share is held; replaced names do not count. | a folder not mounted looks emptied |
| So is one that becomes empty, and a list collection that does either. | ENVOY.md E13 |
| Fewer than five resources, or entries, need no approval: one is a large share. | |
| A resource that an upstream let go, unsubscribed or expired, does not count. | |
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from types import MappingProxyType

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Key, Resource, Rows, Snapshot, claims_of, key_of
from fsxds.model.values import TypeUrl
from fsxds.rollout.uses import (
    CLAIMING,
    CLUSTERS,
    SCOPES,
    STAYS_IN_USE,
    claimers_of,
    demanded_names,
    demands_of,
    expects,
    is_pattern,
    names_any,
    users_of,
)

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


class HoldReason(Enum):
    """Why a resource does not follow the tree."""

    REJECTED = "rejected"
    PINNED = "pinned"
    REMOVAL = "waits for approval"
    IN_USE = "in use"
    UNDEFINED = "names an undefined resource"
    DEPENDS = "names a held resource"
    CLAIMS = "claims what another one has"
    CANARY = "waits for canaries"


@dataclass(frozen=True, slots=True)
class Hold:
    """A resource that does not follow the tree.

    `kept` is served instead of the tree's `asked`; either may be None. `other` is the user of a resource in use, the
    undefined or held name, or a claim's owner, else None; `good` the snapshot before a rejected version, else None.
    """

    reason: HoldReason
    kept: Resource | None
    asked: Resource | None
    other: Key | None = None
    good: Snapshot | None = field(default=None, compare=False, repr=False)


Holds = Mapping[Key, Hold]
NO_HOLDS: Holds = MappingProxyType({})
NOTHING_BEGUN: Mapping[TypeUrl, Sequence[Resource]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HoldingRules:
    """The rules for holds.

    `keeps_references`: False serves a change that breaks references. `max_removal`: a type's largest share that needs
    no approval, from 0 to 1; None for no limit. `approved` are removals' ids. `is_static`: whether the bootstrap
    certainly has a name; `knows_static`: it has no others.
    """

    keeps_references: bool = True
    max_removal: float | None = 0.5
    approved: frozenset[str] = frozenset()
    is_static: Callable[[Key], bool] = field(default=lambda _: False, compare=False)
    knows_static: bool = False


@dataclass(frozen=True, slots=True)
class Basis:
    """The inputs of `compose`, if these were all."""

    tree: Snapshot
    base: Snapshot
    rules: HoldingRules


@dataclass(frozen=True, slots=True)
class Composed:
    """The snapshot to serve; the tree itself if it holds nothing.

    `approval_id` approves the removals. `basis` is None if rejections, rollbacks or a present step had an effect.
    """

    snapshot: Snapshot
    holds: Holds = field(default_factory=lambda: NO_HOLDS)
    removals: tuple[Removal, ...] = ()
    approval_id: str | None = None
    basis: Basis | None = field(default=None, compare=False, repr=False)


def compose(
    tree: Snapshot,
    base: Snapshot | None,
    explicit: Holds,
    rules: HoldingRules,
    begun: Mapping[TypeUrl, Sequence[Resource]] = NOTHING_BEGUN,
) -> Composed:
    """Return the snapshot to serve of a tree.

    `base` is the last target reached; None before the first, when only `explicit` and conflicting claims are held.
    `explicit` are rejected, pinned, or wait for canaries. `begun` are new, served beside `base`, and ignored by the
    guard.
    """
    reached = base or tree
    rows = {url: reached.resources(url).with_changes(new, ()).prepared() for url, new in begun.items() if new}
    extended = replace(reached, by_type=MappingProxyType({**reached.by_type, **rows})) if rows else reached
    composition = _Composition(tree, (reached, extended), explicit, rules)
    removals = composition.close(is_first=base is None)
    holds, id_of_removals = MappingProxyType(composition.holds), approval_id(removals) if removals else None
    is_plain = base is not None and not explicit and not any(begun.values())
    basis = Basis(tree, reached, rules) if holds and is_plain else None
    return Composed(composition.snapshot(), holds, removals, id_of_removals, basis)


def with_rows(tree: Snapshot, rows: Mapping[TypeUrl, Rows]) -> Snapshot:
    """Replace rows; their types lose authored versions."""
    authored = {type_url: each for type_url, each in tree.authored.items() if type_url not in rows}
    return replace(tree, by_type=MappingProxyType({**tree.by_type, **rows}), authored=MappingProxyType(authored))


class _Composition:
    def __init__(self, tree: Snapshot, bases: tuple[Snapshot, Snapshot], explicit: Holds, rules: HoldingRules) -> None:
        self._tree, self._rules = tree, rules
        # The last target reached, and the same with the resources begun.
        self._reached, self._base = bases
        self.holds: dict[Key, Hold] = {}
        # By rejected resource, the snapshot before it.
        self._before = {key: hold.good for key, hold in explicit.items() if hold.good is not None}
        # These snapshots, in which held resources may have references.
        self._good = list({id(good): good for good in self._before.values()}.values())
        # The rejected resources without a good version.
        self._gone = {key for key in self._before if explicit[key].kept is None}
        # By resource, the claims that it lost to others.
        self._taken: defaultdict[Key, set[Key]] = defaultdict(set)
        self._changes = {
            type_url: rows.changes_since(self._base.resources(type_url))
            for type_url, rows in tree.by_type.items()
            if rows is not self._base.by_type.get(type_url)
        }
        for key, hold in explicit.items():
            if hold.kept is not hold.asked:
                self.holds[key] = hold

    def close(self, *, is_first: bool) -> tuple[Removal, ...]:
        if is_first:
            self._hold_claimers()
            return ()
        users = self._new_users()
        self._hold_users(users, self.holds)
        for key, good in self._before.items():
            if self._served(key) is None:
                self._roll_back_users(key, good)
        if self._rules.keeps_references:
            undefined = dict(self._undefined(users))
            self._hold_users(users | undefined, undefined)
        self._keep(users)
        removals = removals_to_approve(self._reached, self.snapshot(), self._rules.max_removal)
        if not removals or approval_id(removals) in self._rules.approved:
            return ()
        for key in (key for removal in removals for key in removal.keys):
            self._hold(key, HoldReason.REMOVAL)
        self._keep(users)
        return removals

    def _keep(self, users: Mapping[Key, list[Key]]) -> None:
        self._keep_used()
        while claimers := self._hold_claimers():
            self._hold_users(users, claimers)
            self._keep_used()

    def snapshot(self) -> Snapshot:
        kept: defaultdict[TypeUrl, dict[str, Resource | None]] = defaultdict(dict)
        for (type_url, name), hold in self.holds.items():
            kept[type_url][name] = hold.kept
        if not kept:
            return self._tree
        rows = {}
        for type_url, of_type in kept.items():
            updated = [one for one in of_type.values() if one is not None]
            gone = [name for name, one in of_type.items() if one is None]
            rows[type_url] = self._tree.by_type[type_url].with_changes(updated, gone).prepared()
        filled = frozenset(type_url for type_url in kept if rows[type_url])
        # If all of a type is held, no more is known of it than before.
        empty = kept.keys() - filled
        return replace(
            with_rows(self._tree, rows),
            withheld=(self._tree.withheld - filled) | (self._base.withheld & empty),
            undeclared=(self._tree.undeclared - filled) | (self._base.undeclared & empty),
        )

    def _hold(self, key: Key, reason: HoldReason, other: Key | None = None) -> None:
        type_url, name = key
        each = (one.resources(type_url).get(name) for one in (self._base, *self._good))
        found = [one for one in each if one is not None]
        # Prefer the version that does not name a removed resource, if there is one.
        sound = (one for one in found if not self._gone or self._gone.isdisjoint(demands_of(one)))
        kept = next(sound, found[0] if found else None)
        self.holds.setdefault(key, Hold(reason, kept, self._tree.resources(type_url).get(name), other))

    def _served(self, key: Key) -> Resource | None:
        hold = self.holds.get(key)
        return self._tree.resources(key[0]).get(key[1]) if hold is None else hold.kept

    def _new_users(self) -> dict[Key, list[Key]]:
        users: defaultdict[Key, list[Key]] = defaultdict(list)
        for type_url, change in self._changes.items():
            rows, rows_before = self._tree.by_type[type_url], self._base.resources(type_url)
            for name in change.fresh:
                _add_new_demands(users, rows[name], rows_before.get(name))
        for (type_url, name), hold in self.holds.items():
            if hold.reason is HoldReason.PINNED and hold.kept is not None:
                _add_new_demands(users, hold.kept, self._base.resources(type_url).get(name))
        return users

    def _hold_users(self, users: Mapping[Key, list[Key]], obstacles: Iterable[Key]) -> None:
        found = list(obstacles)
        while found:
            obstacle = found.pop()
            hold = self.holds.get(obstacle)
            if hold is not None and hold.reason is HoldReason.PINNED and hold.kept is not None:
                continue
            reason = HoldReason.UNDEFINED if hold is None else HoldReason.DEPENDS
            for user in users.get(obstacle, ()):
                if user not in self.holds or self.holds[user].reason is HoldReason.PINNED:
                    self.holds.pop(user, None)
                    self._hold(user, reason, obstacle)
                    found.append(user)

    def _roll_back_users(self, key: Key, good: Snapshot) -> None:
        """Hold users, and their users in turn, at the version before they named a removed resource."""
        found = [key]
        while found:
            obstacle = found.pop()
            for user in users_of(self._tree, {obstacle}):
                key_of_user = user.type_url, user.name
                was = good.resources(user.type_url).get(user.name)
                if self._served(key_of_user) is not user or (was is not None and obstacle in demands_of(was)):
                    continue
                self.holds[key_of_user] = Hold(HoldReason.DEPENDS, was, user, obstacle)
                if was is None:
                    found.append(key_of_user)

    def _undefined(self, users: Mapping[Key, list[Key]]) -> Iterator[tuple[Key, list[Key]]]:
        """Omit users with names from another server."""
        missing = {key for key in users if self._is_missing(key)}
        expected = {type_url for type_url in {key[0] for key in missing} if self._is_expected_here(type_url)}
        unknown = {key for key in missing if key[0] == CLUSTERS and key[1] not in self._base.resources(CLUSTERS)}
        # The served snapshot names these without a definition, too.
        known = {
            (one.type_url, one.name)
            for user in users_of(self._base, unknown)
            for one in user.references
            if not one.is_static
        }
        for key in (key for key in missing - (unknown & known) if key[0] in expected):
            found = ((user, self._served(user)) for user in users[key])
            yield key, [user for user, resource in found if resource is not None and expects(resource, key)]

    def _is_missing(self, key: Key) -> bool:
        type_url, name = key
        rows = self._tree.resources(type_url)
        return not (rows if is_pattern(name) else name in rows) and not self._rules.is_static(key)

    def _is_expected_here(self, type_url: TypeUrl) -> bool:
        rows, rows_before = self._tree.resources(type_url), self._base.resources(type_url)
        if type_url == CLUSTERS:
            return bool(rows or rows_before or self._rules.knows_static)
        # If there are none, or some names are undefined, the type comes from another server.
        return bool(rows) and all(one in rows_before for one in demanded_names(self._base, type_url))

    def _keep_used(self) -> None:
        gone = {
            (type_url, name)
            for type_url, change in self._changes.items()
            for name in change.removed
            if self._served((type_url, name)) is None
        }
        gone |= {
            key
            for key, hold in self.holds.items()
            if hold.reason is HoldReason.PINNED and hold.kept is None and key[1] in self._base.resources(key[0])
        }
        gone |= self._missed(self.holds)
        while used := dict(self._uses_of(gone)):
            for key, user in used.items():
                self.holds.pop(key, None)
                self._hold(key, HoldReason.IN_USE, user)
            # The last target may lack references of these, too: it had moved on.
            gone = (gone - used.keys()) | self._missed(used)

    def _missed(self, keys: Iterable[Key]) -> set[Key]:
        """Return unserved references that existed before a rejection."""
        kept = [one for key in keys if (one := self.holds[key].kept) is not None] if self._good else []
        return {
            key
            for one in kept
            for key in demands_of(one)
            if self._served(key) is None and any(key[1] in good.resources(key[0]) for good in self._good)
        }

    def _uses_of(self, gone: set[Key]) -> Iterator[tuple[Key, Key]]:
        if not gone:
            return
        scopes = {key for key in gone if key[0] == SCOPES}
        wanted = gone | {(SCOPES, "*")} if scopes and not self._has_scopes() else gone
        for user in (*self._kept_users(wanted), *users_of(self._tree, wanted)):
            key_of_user = user.type_url, user.name
            if self._served(key_of_user) is not user:
                continue
            is_held = key_of_user in self.holds
            if not (self._rules.keeps_references or is_held):
                continue
            for key in {(one.type_url, one.name) for one in user.references if not one.is_static} & wanted:
                if is_held or key[0] in STAYS_IN_USE:
                    yield from ((each, key_of_user) for each in (scopes if is_pattern(key[1]) else (key,)))

    def _kept_users(self, wanted: set[Key]) -> list[Resource]:
        kept = (hold.kept for hold in self.holds.values())
        return [one for one in kept if one is not None and names_any(one, wanted)]

    def _hold_claimers(self) -> list[Key]:
        found: list[Key] = []
        kept = {key: self._claims_of(key) for key in self.holds if key[0] in CLAIMING}
        keys = [*kept]
        while claims := frozenset[Key]().union(*(kept[key] for key in keys)):
            claimers: defaultdict[Key, set[Key]] = defaultdict(set)
            of_tree = {key_of(one): claims_of(one) for one in claimers_of(self._tree, claims)}
            for key, claimed in (*of_tree.items(), *kept.items()):
                for claim in claimed & claims:
                    claimers[claim].add(key)
            several = sorted(claim for claim, each in claimers.items() if len(each) > 1)
            keys = [key for claim in several for key in self._settle_claim(claim, claimers[claim])]
            kept |= {key: self._claims_of(key) for key in keys}
            found += keys
        return found

    def _settle_claim(self, claim: Key, keys: Iterable[Key]) -> Iterator[Key]:
        served = sorted(key for key in keys if claim in self._claims_of(key))
        served.sort(key=partial(self._right_to_claim, claim), reverse=True)
        for other in served[1:]:
            owner = served[0]
            is_allowed = any(
                claim in _claims_in(one, owner) & _claims_in(one, other) for one in (self._tree, self._reached)
            )
            if not is_allowed and claim not in self._taken[other]:
                self._taken[other].add(claim)
                asked, kept = self._tree.resources(other[0]).get(other[1]), self._without_taken(other)
                self.holds[other] = Hold(HoldReason.CLAIMS, kept, asked, owner)
                yield other

    def _without_taken(self, key: Key) -> Resource | None:
        """Return None if each version has a lost claim."""
        hold, taken = self.holds.get(key), self._taken[key]
        rejected = hold.asked.version if hold and hold.asked and hold.reason is HoldReason.REJECTED else None
        found = (one.resources(key[0]).get(key[1]) for one in (self._base, *self._good))
        good = (one for one in found if one is not None and one.version != rejected)
        return next((one for one in good if taken.isdisjoint(claims_of(one))), None)

    def _right_to_claim(self, claim: Key, key: Key) -> int:
        """Rank rights to a claim: a rejected resource's good version, present owner, rollback, tree."""
        hold = self.holds.get(key)
        if claim in _claims_in(self._reached, key):
            return 2
        if hold is None:
            return 0
        return 1 if hold.reason is HoldReason.PINNED else 3

    def _claims_of(self, key: Key) -> frozenset[Key]:
        served = self._served(key)
        return frozenset() if served is None else claims_of(served)

    def _has_scopes(self) -> bool:
        return bool(self._tree.resources(SCOPES)) or any(
            key[0] == SCOPES and one.kept for key, one in self.holds.items()
        )


def _claims_in(snapshot: Snapshot, key: Key) -> frozenset[Key]:
    found = snapshot.resources(key[0]).get(key[1])
    return frozenset() if found is None else claims_of(found)


def _add_new_demands(users: dict[Key, list[Key]], resource: Resource, before: Resource | None) -> None:
    if resource.references and (before is None or before.references != resource.references):
        for key in demands_of(resource) - (frozenset() if before is None else demands_of(before)):
            users[key].append((resource.type_url, resource.name))
