"""Follows what is published in a fleet: keeps the snapshots of the views that are wanted at hand.

| rule | reason |
| --- | --- |
| What was published earlier than what is at hand is passed over. | An etcd that was restored from a backup has it: clients would go back. |
| After a lost watch, what is published is read again, and of it what is missing. | |
| A snapshot that is not there any more is looked for again: it is not published any more either. | |
| As long as nothing can be read, what is at hand stays. | |
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property
from time import monotonic
from types import MappingProxyType
from typing import Never

from fsxds.events.event import Observer
from fsxds.events.fleet_events import FleetLost, FleetReached, SnapshotUnreadable
from fsxds.fleet.content import FleetContent, Published
from fsxds.fleet.key_values import CompactedError, RejectedRequestError, UnreachableError
from fsxds.fleet.pointers import NOTHING_PUBLISHED, Head, Order, Pointer, ViewKey
from fsxds.model.resources import Rows, Snapshot
from fsxds.model.values import Layers
from fsxds.rollout import steps_between
from fsxds.runtime.store import Latest
from fsxds.snapshots.load import type_change
from fsxds.snapshots.parsed_bytes import DamagedBytesError

# Between two tries to reach the engine, or to read what could not be read.
PAUSE_S = 0.5

# So many snapshots of a view are remembered: who comes may have been led to one of them elsewhere.
MOST_RECENT = 16


class _RecentPublication:
    """A published snapshot, and those that were published before it."""

    def __init__(self, snapshot: Snapshot, earlier: tuple[Snapshot, ...]) -> None:
        self.snapshot = snapshot
        self._earlier = earlier

    @cached_property
    def steps(self) -> tuple[Snapshot, ...]:
        """The steps that lead from earlier snapshots to this one; among 100 000 resources, each takes a millisecond."""
        steps = (one for earlier in self._earlier for one in steps_between(earlier, self.snapshot))
        return tuple(one.step.snapshot for one in steps if not one.is_last)


class Following:
    """Follows a fleet. `keep_current` is to be run.

    Args:
        content: where what is published is read.
        observer: receives whether it can be read.
        on_changed: is called with the snapshots of the views that are wanted, whenever some of them changed.

    Attributes:
        head: what was published last, as it was read; None before it was read.
        applied: the order up to which all that is published is at hand, of the views that are wanted.
        snapshots: what is at hand, by view.
        orders: the order of each.
        is_reached: the engine answers.
        lost_s: the monotonic clock when it did not any more; None while it answers, or was not asked yet.
    """

    def __init__(
        self, content: FleetContent, observer: Observer, on_changed: Callable[[Mapping[ViewKey, Snapshot]], object]
    ) -> None:
        self.head: Head | None = None
        self.applied = Latest(NOTHING_PUBLISHED)
        self.snapshots: dict[ViewKey, Snapshot] = {}
        self.orders: dict[ViewKey, Order] = {}
        self.is_reached = False
        self.lost_s: float | None = None
        self._content = content
        self._observer = observer
        self._on_changed = on_changed
        self._wanted: set[Layers] = {()}
        self._pointers: dict[ViewKey, Pointer] = {}
        # Is set when something else is published or wanted.
        self._is_due = asyncio.Event()
        self._generation = 0
        # What was published lately of each view, the newest first.
        self._recent: dict[ViewKey, deque[_RecentPublication]] = {}

    @property
    def published(self) -> Mapping[ViewKey, Pointer]:
        """What is published, as it was read last."""
        return self._pointers

    def recent(self, key: ViewKey) -> Iterator[Snapshot]:
        """Yield the snapshots of a view that a server may have served lately.

        First the published ones, the newest first, then the steps between any two of them: a server that missed
        publications led its clients by steps that were never published.
        """
        published = tuple(self._recent.get(key, ()))
        yield from (one.snapshot for one in published)
        for one in published:
            yield from one.steps

    def want(self, layers: Layers) -> None:
        """Have a view at hand from now on."""
        if layers not in self._wanted:
            self._wanted.add(layers)
            self._is_due.set()

    def drop(self, layers: Layers) -> None:
        """Have a view at hand no more."""
        self._wanted.discard(layers)
        for key in [key for key in self.snapshots if key.layers == layers]:
            del self.snapshots[key], self.orders[key], self._recent[key]

    async def keep_current(self) -> Never:
        """Follow until cancelled, whatever becomes of the engine."""
        while True:
            try:
                published = await self._content.published()
                self._note_reached()
                self._pointers.clear()
                self._receive(published)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._watch(published.revision + 1))
                    tasks.create_task(self._keep_applied())
            except* (UnreachableError, RejectedRequestError) as group:
                self._note_lost(str(group.exceptions[0]))
            except* DamagedBytesError as group:
                self._observer(SnapshotUnreadable(str(group.exceptions[0])))
            except* CompactedError:
                # What is published is read again.
                pass
            await asyncio.sleep(PAUSE_S)

    async def _watch(self, since: int) -> None:
        async with aclosing(self._content.changes(since)) as changes:
            async for published in changes:
                self._receive(published)

    async def _keep_applied(self) -> Never:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            await self._apply()

    def _note_reached(self) -> None:
        if not self.is_reached:
            self._observer(FleetReached(0.0 if self.lost_s is None else monotonic() - self.lost_s))
            self.is_reached, self.lost_s = True, None

    def _note_lost(self, reason: str) -> None:
        if self.lost_s is None:
            self.is_reached, self.lost_s = False, monotonic()
            self._observer(FleetLost(reason))

    def _receive(self, published: Published) -> None:
        for key, pointer in published.pointers.items():
            if pointer is None:
                self._pointers.pop(key, None)
            else:
                self._pointers[key] = pointer
        if published.head is not None:
            self.head = published.head
        self._is_due.set()

    async def _apply(self) -> None:
        """Have at hand what is wanted and published."""
        order = NOTHING_PUBLISHED if self.head is None else self.head.order
        changed = False
        for key, pointer in tuple(self._pointers.items()):
            known = self.orders.get(key, NOTHING_PUBLISHED)
            if key.layers not in self._wanted or pointer.order <= known:
                continue
            near = self.snapshots.get(key) or self.snapshots.get(ViewKey(key.layers)) or self.snapshots.get(ViewKey())
            snapshot = await self._content.snapshot(pointer, near)
            if key.layers in self._wanted:
                self.snapshots[key], self.orders[key] = self._numbered(key, snapshot), pointer.order
                recent = self._recent.setdefault(key, deque(maxlen=MOST_RECENT))
                recent.appendleft(_RecentPublication(self.snapshots[key], tuple(one.snapshot for one in recent)))
                changed = True
        if changed:
            self._on_changed(self.snapshots)
        if order > self.applied.current:
            self.applied.replace(order)

    def _numbered(self, key: ViewKey, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot that knows what changed in it."""
        self._generation += 1
        before = self.snapshots.get(key)
        changes = {
            type_url: type_change(
                Rows(type_url) if before is None else before.resources(type_url), rows, self._generation
            )
            for type_url, rows in snapshot.by_type.items()
            if before is None or rows is not before.resources(type_url)
        }
        return replace(snapshot, generation=self._generation, changes=MappingProxyType(changes))
