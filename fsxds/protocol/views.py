"""What streams ask of snapshots, worked out once for all of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from weakref import WeakValueDictionary

from fsxds.protocol.lookup import Lookup
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.protocol.virtual_hosts import VIRTUAL_HOSTS
from fsxds.protocol.xdstp_names import SCHEME
from fsxds.resources import Resource, Snapshot, version_of_set
from fsxds.values import TypeUrl, Version

Rows = Mapping[str, Resource]

# Streams advance together; a few steps and the common subscriptions are all that is asked for again. Each step keeps the
# resources of a type as they were alive.
MOST_STEPS = 16
MOST_COLLECTIONS = 256
MOST_VERSIONS = 4096

# So many names of members of collections are remembered that are gone.
MOST_BURIED = 10_000


@dataclass(frozen=True, slots=True)
class Step:
    """What became of the resources of one type between two snapshots.

    `updated` are those that are new or different, `removed` the names that are gone. `renewed` are the names of those
    updated of which only the time to live or the aliases are others, `fresh` all the other names of them.
    """

    updated: Mapping[str, Resource]
    removed: frozenset[str]
    renewed: frozenset[str] = frozenset()
    fresh: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Whether there is any difference."""
        return bool(self.updated or self.removed)


NO_STEP = Step({}, frozenset())


class Views:
    """Answers that do not depend on the stream. One object is shared by all streams of a server.

    What it returns is the same object for the same question, so that others can keep things by its identity.
    """

    def __init__(self) -> None:
        self._steps: OrderedDict[tuple[int, int], tuple[Rows, Rows, Step]] = OrderedDict()
        self._whole: OrderedDict[int, tuple[Rows, tuple[Resource, ...]]] = OrderedDict()
        self._versions: OrderedDict[int, tuple[Rows, OrderedDict[Subscription, Version]]] = OrderedDict()
        self._collections: OrderedDict[tuple[int, ...], tuple[Resource, ...]] = OrderedDict()
        self._unions: OrderedDict[tuple[int, ...], tuple[tuple[Resource, ...], tuple[Resource, ...], Version]] = (
            OrderedDict()
        )
        self._names: OrderedDict[int, tuple[Collection[Resource], frozenset[str]]] = OrderedDict()
        self._timed: OrderedDict[int, tuple[Rows, Mapping[str, Resource]]] = OrderedDict()
        self._said: OrderedDict[Version, bool] = OrderedDict()
        self._subscriptions: OrderedDict[Subscription, Subscription] = OrderedDict()
        self._lookups: OrderedDict[int, Lookup] = OrderedDict()
        self._name_sets: WeakValueDictionary[int, frozenset[str]] = WeakValueDictionary()
        self._members: dict[TypeUrl, Rows] = {}
        self._buried: dict[TypeUrl, dict[str, None]] = {}

    def whole(self, rows: Rows) -> tuple[Resource, ...]:
        """Return all resources of a type in the order of their names."""
        found = self._whole.get(id(rows))
        if found is None:
            found = rows, tuple(rows.values())
            _keep(self._whole, id(rows), found, MOST_STEPS)
        return found[1]

    def same(self, resources: Collection[Resource]) -> tuple[Resource, ...]:
        """Return these resources as the one tuple that all streams have of them."""
        key = tuple(map(id, resources))
        found = self._collections.get(key)
        if found is None:
            found = tuple(resources)
            _keep(self._collections, key, found, MOST_COLLECTIONS)
        return found

    def together(
        self, type_url: TypeUrl, resources: tuple[Resource, ...], gone: tuple[Resource, ...]
    ) -> tuple[tuple[Resource, ...], Version]:
        """Return resources and those that are gone from them in the order of their names, and the version of all."""
        key = (id(resources), *map(id, gone))
        found = self._unions.get(key)
        if found is None:
            union = tuple(sorted((*resources, *gone), key=lambda resource: resource.name))
            version = version_of_set(type_url, ((resource.name, resource.version) for resource in union))
            found = resources, union, version
            _keep(self._unions, key, found, MOST_STEPS)
        return found[1:]

    def names(self, resources: tuple[Resource, ...]) -> frozenset[str]:
        """Return the names of resources that came from `whole` or `same`."""
        found = self._names.get(id(resources))
        if found is None:
            found = resources, frozenset(resource.name for resource in resources)
            _keep(self._names, id(resources), found, MOST_COLLECTIONS)
        return found[1]

    def timed(self, rows: Rows) -> Mapping[str, Resource]:
        """Return those resources of a type that have a time to live, by name."""
        found = self._timed.get(id(rows))
        if found is None:
            found = rows, {name: resource for name, resource in rows.items() if resource.ttl_s is not None}
            _keep(self._timed, id(rows), found, MOST_STEPS)
        return found[1]

    def lookup(self, type_url: TypeUrl, snapshot: Snapshot, before: Snapshot | None = None) -> Lookup:
        """Return what finds the resources of a type by the names that clients use.

        What was looked up in `before` is not looked up again where nothing but contents changed.
        """
        rows = snapshot.resources(type_url)
        found = self._lookups.get(id(rows))
        if found is None:
            last = self._lookups.get(id(before.resources(type_url))) if before is not None else None
            if (
                before is not None
                and last is not None
                and _keeps_names(self.step(type_url, before, snapshot), last.rows)
            ):
                found = last.following(rows)
            else:
                found = Lookup(rows, is_on_demand=type_url == VIRTUAL_HOSTS)
            _keep(self._lookups, id(rows), found, MOST_STEPS)
        return found

    def shared_names(self, names: frozenset[str]) -> frozenset[str]:
        """Return these names as the one set that all streams have of them, as long as one of them has it."""
        found = self._name_sets.setdefault(hash(names), names)
        return found if found == names else names

    def buried(self, type_url: TypeUrl, snapshot: Snapshot) -> Collection[str]:
        """Return the members of collections that were seen by this method before, and do not exist any more.

        Who connects again does not say which members of a collection it holds (ENVOY.md C2): it is told of these.
        """
        rows, buried = snapshot.resources(type_url), self._buried.setdefault(type_url, {})
        seen = self._members.get(type_url, rows)
        self._members[type_url] = rows
        if seen is not rows:
            buried.update(dict.fromkeys(name for name in seen if name.startswith(SCHEME) and name not in rows))
            self._buried[type_url] = buried = {name: None for name in buried if name not in rows}
            while len(buried) > MOST_BURIED:
                del buried[next(iter(buried))]
        return buried

    def shared(self, subscription: Subscription) -> Subscription:
        """Return this subscription as the one object that all streams have of it: its names may be many."""
        found = self._subscriptions.get(subscription)
        if found is None:
            found = subscription
            _keep(self._subscriptions, subscription, found, MOST_VERSIONS)
        return found

    def step(self, type_url: TypeUrl, before: Snapshot, after: Snapshot) -> Step:
        """Return how a type changed from `before` to `after`; its cost follows the change where one follows the other."""
        old, new = before.resources(type_url), after.resources(type_url)
        if old is new:
            return NO_STEP
        found = self._steps.get((id(old), id(new)))
        if found is None:
            found = old, new, _with_kinds(_step(type_url, before, after), old)
            _keep(self._steps, (id(old), id(new)), found, MOST_STEPS)
        return found[2]

    def say(self, version: Version) -> None:
        """Remember that this process told somebody of this version, or found that somebody holds it."""
        if version not in self._said:
            _keep(self._said, version, True, MOST_VERSIONS)

    def has_said(self, version: Version) -> bool:
        """Whether what is of this version was known to this process, so that what is gone from it was removed."""
        return version in self._said

    def version_of(self, snapshot: Snapshot, subscription: Subscription) -> Version:
        """Return the version of what a subscription selects."""
        if subscription.wildcard or subscription.type_url in snapshot.authored:
            return version_of(snapshot, subscription)
        rows = snapshot.resources(subscription.type_url)
        found = self._versions.get(id(rows))
        if found is None:
            found = rows, OrderedDict()
            _keep(self._versions, id(rows), found, MOST_STEPS)
        version = found[1].get(subscription)
        if version is None:
            version = version_of(snapshot, subscription)
            _keep(found[1], subscription, version, MOST_VERSIONS)
        return version


def _step(type_url: TypeUrl, before: Snapshot, after: Snapshot) -> Step:
    old, new = before.resources(type_url), after.resources(type_url)
    last, change = before.changes.get(type_url), after.changes.get(type_url)
    if last is not None and change is not None and before.generation < after.generation:
        if change.generation == last.generation:
            return NO_STEP
        if change.follows == last.generation:
            updated = {name: new[name] for name in (*change.added, *change.changed)}
            return Step(updated, frozenset(change.removed))
    updated = {name: row for name, row in new.items() if name not in old or not row.says_the_same_as(old[name])}
    return Step(updated, frozenset(old.keys() - new.keys()))


def _keeps_names(step: Step, old: Rows) -> bool:
    same = (name in old and old[name].aliases == resource.aliases for name, resource in step.updated.items())
    return not step.removed and all(same)


def _with_kinds(step: Step, old: Rows) -> Step:
    renewed = frozenset(
        name for name, resource in step.updated.items() if name in old and resource.version == old[name].version
    )
    return Step(step.updated, step.removed, renewed, frozenset(step.updated) - renewed)


def _keep(memory: OrderedDict, key: object, value: object, most: int) -> None:  # type: ignore[type-arg]
    memory[key] = value
    if len(memory) > most:
        memory.popitem(last=False)
