"""Lets a client that comes from another server wait until this one has caught up.

| rule | reason |
| --- | --- |
| A client that would be sent other versions than it brings waits until this server serves everything published. | Its versions may be newer. |
| The last order is read after the client came; one read serves all earlier clients. | A read under way may miss the client's versions. |
| A client with versions from this server does not wait. | This server may itself wait for that client. |
| A client that would be sent the same versions waits briefly, and not while the engine is unreachable. | The next types of its stream may differ. |
| A client that was led on elsewhere gets the place that its versions indicate. | Else it would be led again from the place where it left. |
| No client waits longer than the settings allow. | A server may be cut off for long, and serves all the same. |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Never

from fsxds.fleet.content import FleetContent
from fsxds.fleet.following import Following
from fsxds.fleet.key_values import RejectedRequestError, UnreachableError
from fsxds.fleet.pointers import ViewKey
from fsxds.protocol.messages import Node
from fsxds.protocol.subscription import OnDemand
from fsxds.publishing.node_channels import NodeChannels
from fsxds.rollout import RolloutOptions
from fsxds.runtime.channels import Channel, HoldsOf, holds_nothing
from fsxds.runtime.store import Latest
from fsxds.snapshots.encoding import DamagedBytesError

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
        """Note a possible change of served snapshots."""
        self._progress.replace(object())

    async def passed(self, view: ViewKey) -> None:
        """Wait until a view is served everything published by now."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._is_due.set()
        await waiting
        while not self._is_served(view):
            await self._progress.replaced()

    async def keep_reading(self) -> Never:
        """Read the last order for waiting clients."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            waiting, self._waiting = self._waiting, []
            try:
                order = await self._content.last_order()
            except (UnreachableError, RejectedRequestError, DamagedBytesError):
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
    """A server's `Channels`: a client may have to wait, `patience_s` at most."""

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
