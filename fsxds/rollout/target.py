"""Composes one channel's target from the tree.

| rule | source |
| --- | --- |
| A rollback pins the resources that it reverts; each follows the tree again when its own content changes there. | |
| It reverts the tree's served content, and the content that waits to be served: neither is served then. | |
| A rollback of all, from before the first tree, pins the resources that differ there. | |
| A rejected version is replaced by the good one before, or by nothing if new; if that is unknown, clients keep theirs: they are not sent a removal. | ENVOY.md E12 |
| An approval is for one removal: once served, an equal one waits again. | `guard` |
| A broken file's content from before a restart stays. | `Restored` |
| Holds that nodes bring from another view stay while the tree has the same version. | |

A file broken when a process starts was never good in it, so the tree lacks its last content. It is served until the
removal is certain:

| rule | source |
| --- | --- |
| Restored resources that an incomplete, withheld or undeclared type lacks are served on. | `Snapshot` |
| So is the former content of a redirect that dangles now. | `Snapshot` |
| It goes with a target in which it is neither, or that has another resource of its name. | |

An edit that changes no name, reference or claim costs only its changes, however many resources wait for approval.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from types import MappingProxyType

from fsxds.model.resources import Key, Resource, Rows, Snapshot, key_of
from fsxds.model.values import TypeUrl, Version
from fsxds.rollout.holding import (
    COLLECTIONS,
    NO_HOLDS,
    NOTHING_BEGUN,
    Basis,
    Composed,
    Hold,
    HoldingRules,
    HoldReason,
    Holds,
    compose,
    with_rows,
)
from fsxds.rollout.pending import ResourceVersion


@dataclass(frozen=True, slots=True)
class Pin:
    """The version that a rollback serves, and those of the tree that it replaces; None for none."""

    kept: Resource | None
    asked: frozenset[Version | None]


NO_PINS: Mapping[Key, Pin] = MappingProxyType({})

# Rejections and rollbacks are taken over by other means.
_BROUGHT = frozenset(HoldReason) - {HoldReason.REJECTED, HoldReason.PINNED}


class Target:
    """One channel's target.

    `pins` are held by a rollback, `pinned_at_s` counts since 1970, None without pins. `before` has the snapshot before
    versions that clients reject. `restored` is the previous process's target, `tree` None before the first, `composed`
    the last result of `compose`. `pinned` is to roll back to, until a tree shows the resources to pin.
    """

    def __init__(
        self,
        pins: Mapping[Key, Pin] = NO_PINS,
        pinned_at_s: float | None = None,
        before: Mapping[ResourceVersion, Snapshot] = MappingProxyType({}),
        restored: Snapshot | None = None,
    ) -> None:
        self.tree: Snapshot | None = None
        self.composed: Composed | None = None
        self.pins: Mapping[Key, Pin] = dict(pins)
        self.pinned_at_s = pinned_at_s
        # With the last target reached at the time of approval.
        self._approved: tuple[Snapshot | None, frozenset[str]] = None, frozenset()
        self.before = dict(before)
        self.pinned: Snapshot | None = None
        self._restored = Restored(restored)
        # Before the first tree: the target of the previous process, from which nodes may have rejected versions.
        self._first = restored
        # The tree, with the resources that it may lack by mistake.
        self._whole: Snapshot | None = None
        self._brought: Holds = NO_HOLDS

    def split(self) -> Target:
        """Return a copy for another channel."""
        made = Target()
        vars(made).update(vars(self) | {"before": dict(self.before)})
        return made

    @property
    def is_rolled_back(self) -> bool:
        """Whether a rollback holds resources, or will with the first tree."""
        return bool(self.pins) or self.pinned is not None

    def take_rollback(self, other: Target) -> None:
        """Take over another rollback of the view."""
        self.pins, self.pinned_at_s, self.pinned = other.pins, other.pinned_at_s, other.pinned

    def begin_with(self, other: Target) -> None:
        """Begin with another channel's holds; all else follows the tree at once."""
        if self.composed is None:
            self._brought = {
                **self._brought,
                **{key: hold for key, hold in other.holds.items() if hold.reason in _BROUGHT},
            }

    def receive_tree(self, tree: Snapshot) -> None:
        """Take the snapshot of the files."""
        self.tree, self._whole, self._first = tree, self._restored.complete(tree), None
        if self.pinned is not None:
            self.pin(self.pinned, self.pinned_at_s or 0.0)
        self.pins = {key: pin for key, pin in self.pins.items() if version_of(self._whole, key) in pin.asked}
        self.pinned_at_s = self.pinned_at_s if self.pins else None

    @property
    def holds(self) -> Holds:
        """Resources that do not follow the tree."""
        return NO_HOLDS if self.composed is None else self.composed.holds

    def compose(
        self,
        base: Snapshot | None,
        rejected: Collection[ResourceVersion],
        rules: HoldingRules,
        begun: Mapping[TypeUrl, Sequence[Resource]] = NOTHING_BEGUN,
    ) -> Snapshot | None:
        """Return the snapshot to serve; None before the first tree.

        `base` is the last target reached, `begun` are served beside it; `rejected` are not to be served.
        """
        if self._whole is None:
            return None
        if base is None and self._brought:
            base = self._with_brought(self._whole)
        if self._approved[0] is not base:
            self._approved = None, frozenset()
        self.remember(rejected, base)
        explicit = dict(self._pinned(self._whole))
        for version in self.held_of(rejected):
            key = version[0]
            if key not in explicit or explicit[key].reason is not HoldReason.REJECTED:
                kept, found = self._good(self._asked(key), rejected), _found(self._whole, key)
                explicit[key] = Hold(HoldReason.REJECTED, kept, found, good=self.before[version])
        if self._approved[1]:
            rules = replace(rules, approved=rules.approved | self._approved[1])
        again = None
        if self.composed is not None and base is not None and not explicit and not any(begun.values()):
            again = composed_again(self.composed, self._whole, base, rules)
        self.composed = again or compose(self._whole, base, explicit, rules, begun)
        return self.composed.snapshot

    def _with_brought(self, tree: Snapshot) -> Snapshot:
        same = {
            key: hold
            for key, hold in self._brought.items()
            if version_of(tree, key) == (None if hold.asked is None else hold.asked.version)
        }
        return compose(tree, None, same, HoldingRules()).snapshot

    def remember(self, versions: Collection[ResourceVersion], *bases: Snapshot | None) -> None:
        """Record the snapshot before rejected versions: the first of `bases` without any, if any."""
        for version in versions:
            key = version[0]
            lacking = (one for one in bases if one is not None and (key, version_of(one, key)) not in versions)
            if (good := next(lacking, None)) is not None:
                self.before[version] = good

    def forget_past(self, *having: Snapshot | None) -> None:
        """Forget the snapshots before versions that are neither in these, nor may be served."""
        self.before = {
            version: good
            for version, good in self.before.items()
            if self.may_serve(version)
            or any(one is not None and version_of(one, version[0]) == version[1] for one in having)
        }

    def without(self, snapshot: Snapshot, rejected: Collection[ResourceVersion]) -> Snapshot:
        """Replace rejected versions, as for their rejecters."""
        holds = dict[Key, Hold]()
        for key, version in rejected:
            found = _found(snapshot, key)
            if found is not None and found.version == version and (key, version) in self.before:
                kept = self._good(found, rejected)
                holds[key] = Hold(HoldReason.REJECTED, kept, found, good=self.before[key, version])
        return compose(snapshot, None, holds, HoldingRules()).snapshot

    def held_of(self, rejected: Collection[ResourceVersion]) -> list[ResourceVersion]:
        """Return replaced versions, each before its good predecessors."""
        found = []
        for key in {key for key, _ in rejected}:
            chain = [(key, one.version) for one in self._chain(self._asked(key))]
            bad = list(takewhile(lambda version: version in rejected, chain))
            # If the good version is not known, clients keep what they have.
            if all(version in self.before for version in bad):
                found += bad
        return found

    def replaced_for(
        self, rejected: Collection[ResourceVersion], served: Snapshot | None
    ) -> frozenset[ResourceVersion]:
        """Return versions that separate their rejecters from the channel.

        Some are replaced; the rest were removed or rolled back, but are still served.
        """
        found = set(self.held_of(rejected))
        if served is not None:
            known = (one for one in self.before.keys() & rejected if version_of(served, one[0]) == one[1])
            found |= {one for one in known if one[0] in self.pins or self._asked(one[0]) is None}
        return frozenset(found)

    def suspects(
        self, versions: frozenset[ResourceVersion], known: Collection[ResourceVersion], base: Snapshot | None
    ) -> frozenset[ResourceVersion]:
        """Return versions that a NACK may mean.

        Excluded are good predecessors of `known` rejections and, if others remain, the versions in `base`, which
        clients took in a previous process.
        """
        good = {
            (key, one)
            for key, version in known
            if (before := self.before.get((key, version))) is not None and (one := version_of(before, key)) is not None
        }
        suspects = versions - good or versions
        taken = {one for one in suspects if base is not None and version_of(base, one[0]) == one[1]}
        return suspects - (taken - set(known)) or suspects

    def may_serve(self, version: ResourceVersion) -> bool:
        """Whether a version is to be served, or may be if others are rejected."""
        return any(one.version == version[1] for one in self._chain(self._asked(version[0])))

    def find(self, version: ResourceVersion) -> Resource | None:
        """Return a version of the tree or of a rollback."""
        key, pin = version[0], self.pins.get(version[0])
        found = (None if self.tree is None else _found(self.tree, key), None if pin is None else pin.kept)
        return next((one for one in found if one is not None and one.version == version[1]), None)

    def _asked(self, key: Key) -> Resource | None:
        pin = self.pins.get(key)
        if pin is not None:
            return pin.kept
        tree = self._whole or self._first
        return None if tree is None else _found(tree, key)

    def _chain(self, resource: Resource | None) -> Iterator[Resource]:
        seen = set[Version]()
        while resource is not None and resource.version not in seen:
            seen.add(resource.version)
            yield resource
            key = key_of(resource)
            good = self.before.get((key, resource.version))
            resource = None if good is None else _found(good, key)

    def _good(self, resource: Resource | None, rejected: Collection[ResourceVersion]) -> Resource | None:
        return next((one for one in self._chain(resource) if (key_of(one), one.version) not in rejected), None)

    def pin(self, snapshot: Snapshot, now_s: float, wanted: Snapshot | None = None) -> bool:
        """Roll back; return whether the tree differs from `snapshot`, or is not there yet.

        A tree that waits for other nodes is `wanted`. `now_s` counts since 1970.
        """
        if self._whole is None:
            self.pins, self.pinned, self.pinned_at_s = {}, snapshot, now_s
            return True
        coming = self._whole if wanted is None or wanted is self.tree else wanted
        changed = changed_keys(coming, snapshot)
        asked = {key: {version_of(self._whole, key)} for key in changed | changed_keys(self._whole, snapshot)}
        for key in changed:
            asked[key].add(version_of(coming, key))
        self.pins = {key: Pin(_found(snapshot, key), frozenset(versions)) for key, versions in asked.items()}
        self.pinned, self.pinned_at_s = None, now_s if self.pins else None
        return bool(self.pins)

    def resume(self, base: Snapshot | None, rules: HoldingRules) -> bool:
        """Follow the tree again, whatever that removes; return whether there was a rollback."""
        if not self.is_rolled_back:
            return False
        self.pins, self.pinned, self.pinned_at_s = {}, None, None
        if self._whole is None:
            return True
        approval_id = compose(self._whole, base, NO_HOLDS, rules).approval_id
        self._approved = base, frozenset(() if approval_id is None else (approval_id,))
        return True

    def approve(self, approval_id: str, base: Snapshot | None) -> bool:
        """Approve a waiting removal; return whether one has this id."""
        if self.composed is None or self.composed.approval_id != approval_id:
            return False
        self._approved = base, frozenset((approval_id,))
        return True

    def _pinned(self, tree: Snapshot) -> Iterator[tuple[Key, Hold]]:
        for key, pin in self.pins.items():
            if (None if pin.kept is None else pin.kept.version) != version_of(tree, key):
                yield key, Hold(HoldReason.PINNED, pin.kept, _found(tree, key))


def changed_keys(tree: Snapshot, before: Snapshot) -> set[Key]:
    """Return the resources that differ."""
    changes = {url: rows.changes_since(before.resources(url)) for url, rows in tree.by_type.items()}
    return {(url, name) for url, one in changes.items() for name in one.fresh | one.renewed | one.removed}


def _found(snapshot: Snapshot, key: Key) -> Resource | None:
    return snapshot.resources(key[0]).get(key[1])


def version_of(snapshot: Snapshot, key: Key) -> Version | None:
    """Return a resource's version, or None."""
    found = _found(snapshot, key)
    return None if found is None else found.version


class Restored:
    """Restored resources that no target of this process had."""

    def __init__(self, target: Snapshot | None = None) -> None:
        self._rows: dict[TypeUrl, Rows] = {} if target is None else dict(target.by_type)

    def complete(self, target: Snapshot) -> Snapshot:
        """Add resources that a target may lack by mistake; forget others."""
        if not self._rows:
            return target
        rows = {type_url: _lacking(each, type_url, target) for type_url, each in self._rows.items()}
        self._rows = {type_url: each for type_url, each in rows.items() if each}
        return _joined(target, self._rows) if self._rows else target


def _lacking(rows: Rows, type_url: TypeUrl, target: Snapshot) -> Rows:
    if type_url in target.incomplete | target.withheld | target.undeclared:
        return rows.with_changes((), target.resources(type_url))
    names = {name for unresolved_type, name in target.unresolved if unresolved_type == type_url}
    return Rows(type_url, {name: rows[name] for name in rows.among(names - target.resources(type_url).keys())})


def _joined(target: Snapshot, more: Mapping[TypeUrl, Rows]) -> Snapshot:
    rows = {
        type_url: each.with_changes(more[type_url].values(), ()) if type_url in more else each
        for type_url, each in target.by_type.items()
    }
    authored = {type_url: version for type_url, version in target.authored.items() if type_url not in more}
    return replace(
        target,
        by_type=MappingProxyType(rows),
        authored=MappingProxyType(authored),
        withheld=target.withheld - more.keys(),
        undeclared=target.undeclared - more.keys(),
    )


def composed_again(before: Composed, tree: Snapshot, base: Snapshot, rules: HoldingRules) -> Composed | None:
    """Return the result of `compose`, unless the edit since `before` affects its holds.

    `rules` must be the object of `before`: a function knows the bootstrap's names.
    """
    was = before.basis
    if was is None or was.rules is not rules:
        return None
    if not (_is_apart(before.holds, was.tree, tree) and _is_apart(before.holds, was.base, base)):
        return None
    rows = {}
    for type_url in {key[0] for key in before.holds}:
        edited = tree.by_type[type_url]
        names = edited.changes_since(was.tree.by_type[type_url]).names
        served_rows = before.snapshot.by_type[type_url]
        rows[type_url] = served_rows.with_changes((edited[name] for name in names), ()).prepared()
    served = before.snapshot
    snapshot = replace(with_rows(tree, rows), withheld=served.withheld, undeclared=served.undeclared)
    return replace(before, snapshot=snapshot, basis=Basis(tree, base, rules))


def _is_apart(holds: Holds, earlier: Snapshot, later: Snapshot) -> bool:
    if any(getattr(earlier, mark) != getattr(later, mark) for mark in ("withheld", "undeclared", "released")):
        return False
    for type_url in earlier.by_type.keys() | later.by_type.keys():
        before, after = earlier.resources(type_url), later.resources(type_url)
        if after is before:
            continue
        change = after.changes_since(before)
        # The guard counts the entries of list collections.
        if change.removed or (change and type_url == COLLECTIONS):
            return False
        for name in change.names:
            was = before.get(name)
            if was is None or (type_url, name) in holds or _mentions_of(was) != _mentions_of(after[name]):
                return False
    return True


def _mentions_of(resource: Resource) -> set[tuple[object, ...]]:
    return {(one.type_url, one.name, one.severity, one.is_static) for one in resource.references}
