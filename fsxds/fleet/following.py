"""Keeps published snapshots of wanted views at hand; clients from other servers wait until it has caught up.

| rule | reason |
| --- | --- |
| A publication earlier than the snapshot at hand is ignored. | A restored etcd has it: clients would go back. |
| After a lost watch, or if a snapshot is gone, pointers are read again. | |
| While the engine cannot be read, the snapshots at hand stay. | |
| A client that would be sent other versions than it brings waits until everything published is served. | Its versions may be newer. |
| The last order is read after the client came; one read serves all earlier ones. | An earlier read may miss its versions. |
| A client with versions from this server does not wait. | This server may wait for it. |
| A client that would be sent the same versions waits briefly, and not for an unreachable engine. | Its next types may differ. |
| A client led on elsewhere gets the place that its versions indicate. | Else it would be led again from where it left. |
| No client waits longer than set. | A server cut off for long serves all the same. |

Rules: no earlier publication is served again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import cached_property
from time import monotonic
from types import MappingProxyType
from typing import Never

from fsxds.events.event import Observer
from fsxds.events.fleet_events import FleetLost, FleetReached, SnapshotUnreadable
from fsxds.fleet.content import FleetContent
from fsxds.fleet.key_values import EngineError
from fsxds.fleet.pointers import NOTHING_PUBLISHED, Head, Order, Pointer, ViewKey
from fsxds.model.resources import Rows, Snapshot
from fsxds.model.values import Layers
from fsxds.protocol.messages import Node
from fsxds.protocol.subscription import OnDemand
from fsxds.publishing.node_channels import NodeChannels
from fsxds.rollout.machine import RolloutOptions
from fsxds.rollout.planning import steps_between
from fsxds.runtime.channels import Channel, HoldsOf, Latest, holds_nothing
from fsxds.runtime.views import Views
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
        """Steps from earlier snapshots; each takes 1 ms among 100 000 resources."""
        steps = (one for earlier in self._earlier for one in steps_between(earlier, self.snapshot))
        return tuple(one.step.snapshot for one in steps if not one.is_last)


class Following:
    """Follows a fleet; the `ViewLoading` of clients' views. Run `keep_current`.

    Attributes:
        head: None before the first read.
        applied: up to this order all publications of wanted views are at hand.
        lost_s: the monotonic time when the engine stopped answering; None while it answers, or was not asked yet.
    """

    def __init__(
        self, content: FleetContent, observer: Observer, on_changed: Callable[[Mapping[ViewKey, Snapshot]], object]
    ) -> None:
        self.head: Head | None = None
        self.applied = Latest(NOTHING_PUBLISHED)
        self.snapshots: dict[ViewKey, Snapshot] = {}
        self.orders: dict[ViewKey, Order] = {}
        # The pointers as last read.
        self.published: dict[ViewKey, Pointer] = {}
        self.is_reached = False
        self.lost_s: float | None = None
        self._content = content
        self._observer = observer
        self._on_changed = on_changed
        self._wanted: set[Layers] = {()}
        # Set when other snapshots are published or wanted.
        self._is_due = asyncio.Event()
        self._generation = 0
        # The last publications of each view, the newest first.
        self._recent: dict[ViewKey, deque[_RecentPublication]] = {}

    @property
    def existing(self) -> frozenset[str]:
        """The publisher's existing layers."""
        return frozenset() if self.head is None else self.head.existing

    def is_loaded_by(self, views: Views) -> bool:
        """Return True: the publisher loads views."""
        return True

    def recent(self, key: ViewKey) -> Iterator[Snapshot]:
        """Yield snapshots that a server may have served lately.

        Published ones, the newest first, then steps between any two: a server that missed publications led its clients by
        steps that were never published.
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
        """Follow until cancelled, despite failures."""
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._keep_received())
                    tasks.create_task(self._keep_applied())
            except* EngineError as group:
                if self.lost_s is None:
                    self.is_reached, self.lost_s = False, monotonic()
                    self._observer(FleetLost(str(group.exceptions[0])))
            except* DamagedBytesError as group:
                self._observer(SnapshotUnreadable(str(group.exceptions[0])))
            await asyncio.sleep(PAUSE_S)

    async def _keep_received(self) -> None:
        async with aclosing(self._content.followed()) as following:
            async for published, is_all in following:
                if is_all and not self.is_reached:
                    self._observer(FleetReached(0.0 if self.lost_s is None else monotonic() - self.lost_s))
                    self.is_reached, self.lost_s = True, None
                if is_all:
                    self.published.clear()
                for key, pointer in published.pointers.items():
                    if pointer is None:
                        self.published.pop(key, None)
                    else:
                        self.published[key] = pointer
                if published.head is not None:
                    self.head = published.head
                self._is_due.set()

    async def _keep_applied(self) -> Never:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            order = NOTHING_PUBLISHED if self.head is None else self.head.order
            changed, damage = False, None
            try:
                for key, pointer in tuple(self.published.items()):
                    try:
                        changed |= await self._apply(key, pointer)
                    except DamagedBytesError as error:
                        # The other views are served all the same.
                        damage = error
            finally:
                if changed:
                    self._on_changed(self.snapshots)
            if damage is not None:
                raise damage
            if order > self.applied.current:
                self.applied.replace(order)

    async def _apply(self, key: ViewKey, pointer: Pointer) -> bool:
        """Take a wanted later publication; return whether it was one."""
        if key.layers not in self._wanted or pointer.order <= self.orders.get(key, NOTHING_PUBLISHED):
            return False
        near = self.snapshots.get(key) or self.snapshots.get(ViewKey(key.layers)) or self.snapshots.get(ViewKey())
        snapshot = await self._content.snapshot(pointer, near)
        if key.layers not in self._wanted:
            return False
        self._generation += 1
        before = self.snapshots.get(key)
        changes = {
            type_url: type_change(
                Rows(type_url) if before is None else before.resources(type_url), rows, self._generation
            )
            for type_url, rows in snapshot.by_type.items()
            if before is None or rows is not before.resources(type_url)
        }
        snapshot = replace(snapshot, generation=self._generation, changes=MappingProxyType(changes))
        self.snapshots[key], self.orders[key] = snapshot, pointer.order
        recent = self._recent.setdefault(key, deque(maxlen=MOST_RECENT))
        recent.appendleft(_RecentPublication(self.snapshots[key], tuple(one.snapshot for one in recent)))
        return True


# The least time between two reads of the last order.
READ_EVERY_S = 0.02
RETRY_S = 0.3

# The longest wait of clients that would be sent the same versions.
EQUAL_PATIENCE_S = 1.0


class Barrier:
    """Catches up with the last publication. Run `keep_reading`."""

    def __init__(self, content: FleetContent, following: Following, is_served: Callable[[ViewKey], bool]) -> None:
        self.following = following
        self._content = content
        self._is_served = is_served
        self._waiting: list[asyncio.Future[None]] = []
        self._is_due = asyncio.Event()
        # Replaced whenever a view may be served another snapshot.
        self._progress: Latest[object] = Latest(None)

    def note(self) -> None:
        """Served snapshots may have changed."""
        self._progress.replace(object())

    async def passed(self, view: ViewKey) -> None:
        """Wait until everything published by now is served."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._is_due.set()
        await waiting
        while not self._is_served(view):
            await self._progress.replaced()

    async def keep_reading(self) -> Never:
        """Read the last order for clients."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            waiting, self._waiting = self._waiting, []
            try:
                order = await self._content.last_order()
            except (EngineError, DamagedBytesError):
                self._waiting += (one for one in waiting if not one.done())
                self._is_due.set()
                await asyncio.sleep(RETRY_S)
                continue
            while self.following.applied.current < order:
                await self.following.applied.replaced()
            for one in waiting:
                if not one.done():
                    one.set_result(None)
            await asyncio.sleep(READ_EVERY_S)


class FleetChannels:
    """A server's `Channels`: a client waits `patience_s` at most."""

    def __init__(self, channels: NodeChannels, barrier: Barrier, patience_s: float, on_demand: OnDemand) -> None:
        self.on_demand = on_demand
        self.on_moved = channels.on_moved
        self._patience_s = patience_s
        self._channels = channels
        self._barrier = barrier

    @property
    def rollout(self) -> RolloutOptions:
        """The current rollout options."""
        return self._channels.rollout

    async def channel_of(
        self, node: Node, *, holds: bool | None = None, holds_of: HoldsOf = holds_nothing, is_here: bool = False
    ) -> Channel:
        """Return the channel of a node; see `Channels`."""
        if holds:
            channel = await self._channels.channel_of(node)
            served, view = channel.store.current, ViewKey(channel.key.layers, channel.key.is_canary)
            is_equal = served is not None and holds_of(served)
            if not is_here and (not is_equal or self._barrier.following.is_reached):
                with suppress(TimeoutError):
                    async with asyncio.timeout(EQUAL_PATIENCE_S if is_equal else self._patience_s):
                        await self._barrier.passed(view)
            self._channels.correct_place(node, holds_of, self._barrier.following.recent(view))
        return await self._channels.channel_of(node, holds=holds, holds_of=holds_of)
