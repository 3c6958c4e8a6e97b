"""Keeps the published snapshots of wanted views at hand.

| rule | reason |
| --- | --- |
| A publication earlier than the snapshot at hand is ignored. | An etcd restored from a backup has it: clients would go back. |
| After a lost watch, or if a snapshot is no longer there, the pointers are read again. | |
| While the engine cannot be read, the snapshots at hand stay. | |
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
from fsxds.rollout.planning import steps_between
from fsxds.runtime.store import Latest
from fsxds.snapshots.encoding import DamagedBytesError
from fsxds.snapshots.load import type_change

# Between two attempts to reach the engine, or to read a snapshot.
PAUSE_S = 0.5

# Limit of the remembered snapshots per view: another server may have led a client to one of them.
MOST_RECENT = 16


class _RecentPublication:
    def __init__(self, snapshot: Snapshot, earlier: tuple[Snapshot, ...]) -> None:
        self.snapshot = snapshot
        self._earlier = earlier

    @cached_property
    def steps(self) -> tuple[Snapshot, ...]:
        """Steps from earlier snapshots; each takes a millisecond among 100 000 resources."""
        steps = (one for earlier in self._earlier for one in steps_between(earlier, self.snapshot))
        return tuple(one.step.snapshot for one in steps if not one.is_last)


class Following:
    """Follows a fleet. Run `keep_current`.

    Attributes:
        head: None before the first read.
        applied: the order up to which all publications of wanted views are at hand.
        lost_s: the monotonic time when the engine stopped answering; None while it answers, or was not asked yet.
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
        # Set when other snapshots are published or wanted.
        self._is_due = asyncio.Event()
        self._generation = 0
        # The last publications of each view, the newest first.
        self._recent: dict[ViewKey, deque[_RecentPublication]] = {}

    @property
    def published(self) -> Mapping[ViewKey, Pointer]:
        """The pointers as last read."""
        return self._pointers

    def recent(self, key: ViewKey) -> Iterator[Snapshot]:
        """Yield snapshots that a server may have served lately.

        Published ones first, the newest first, then the steps between any two: a server that missed publications led
        its clients by steps that were never published.
        """
        published = tuple(self._recent.get(key, ()))
        yield from (one.snapshot for one in published)
        for one in published:
            yield from one.steps

    def want(self, layers: Layers) -> None:
        """Keep a view at hand."""
        if layers not in self._wanted:
            self._wanted.add(layers)
            self._is_due.set()

    def drop(self, layers: Layers) -> None:
        """Stop keeping a view at hand."""
        self._wanted.discard(layers)
        for key in [key for key in self.snapshots if key.layers == layers]:
            del self.snapshots[key], self.orders[key], self._recent[key]

    async def keep_current(self) -> Never:
        """Follow until cancelled, also while the engine fails."""
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
                # The pointers are read again.
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
