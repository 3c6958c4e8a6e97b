"""What streams ask of snapshots, worked out once for all of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fsxds.protocol.subscription import Subscription, version_of
from fsxds.values import Resource, Snapshot, TypeUrl, Version

Rows = Mapping[str, Resource]

# Streams advance together; a few steps and the common subscriptions are all that is asked for again.
MOST_STEPS = 64
MOST_VERSIONS = 4096


@dataclass(frozen=True, slots=True)
class Step:
    """What became of the resources of one type between two snapshots.

    `updated` are those that are new or different, `removed` the names that are gone.
    """

    updated: Mapping[str, Resource]
    removed: frozenset[str]

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
        self._versions: OrderedDict[tuple[int, Subscription], tuple[Snapshot, Version]] = OrderedDict()
        self._collections: OrderedDict[tuple[int, ...], tuple[Resource, ...]] = OrderedDict()

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
            _keep(self._collections, key, found, MOST_STEPS)
        return found

    def step(self, type_url: TypeUrl, before: Snapshot, after: Snapshot) -> Step:
        """Return how a type changed from `before` to `after`; its cost follows the change where one follows the other."""
        old, new = before.resources(type_url), after.resources(type_url)
        if old is new:
            return NO_STEP
        found = self._steps.get((id(old), id(new)))
        if found is None:
            found = old, new, _step(type_url, before, after)
            _keep(self._steps, (id(old), id(new)), found, MOST_STEPS)
        return found[2]

    def version_of(self, snapshot: Snapshot, subscription: Subscription) -> Version:
        """Return the version of what a subscription selects."""
        if subscription.wildcard or subscription.type_url in snapshot.authored:
            return version_of(snapshot, subscription)
        key = id(snapshot.resources(subscription.type_url)), subscription
        found = self._versions.get(key)
        if found is None:
            found = snapshot, version_of(snapshot, subscription)
            _keep(self._versions, key, found, MOST_VERSIONS)
        return found[1]


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


def _keep(memory: OrderedDict, key: object, value: object, most: int) -> None:  # type: ignore[type-arg]
    memory[key] = value
    if len(memory) > most:
        memory.popitem(last=False)
