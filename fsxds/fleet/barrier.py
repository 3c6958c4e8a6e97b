"""Lets no client go back that comes from another server: before it is sent something else, this server catches up.

| rule | reason |
| --- | --- |
| Who brings versions, and would be sent something else, waits until this server serves all that is published. | What it has may be newer. |
| What is published is read after it came: one read for all who came before. | A read that was on its way may not know what it has. |
| Who has what it was sent here does not wait. | All that follows is later; and this server may wait for it. |
| Who would be sent nothing else waits for a moment, and not at all while nobody can be asked. | The next types of its stream may be others. |
| Who was here before, and was led on elsewhere, is where its versions say. | It would be led again from where it left. |
| Nobody waits for longer than the settings allow. | A server may be cut off from the others for long, and serve all the same. |
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
from fsxds.protocol.on_demand import OnDemand
from fsxds.publishing.node_channels import NodeChannels
from fsxds.rollout import RolloutOptions
from fsxds.runtime.channels import Channel, HoldsOf, holds_nothing
from fsxds.runtime.store import Latest
from fsxds.snapshots.parsed_bytes import DamagedBytesError

# What is published is read at most so often for those who come.
READ_EVERY_S = 0.02
RETRY_S = 0.3

# So long those wait who would be sent nothing else.
EQUAL_PATIENCE_S = 1.0


class Barrier:
    """Catches up with what is published. `keep_reading` is to be run.

    Args:
        content: where what is published is read.
        following: follows it.
        is_served: returns whether a view is served all that is at hand of it.
    """

    def __init__(self, content: FleetContent, following: Following, is_served: Callable[[ViewKey], bool]) -> None:
        self.following = following
        self._content = content
        self._is_served = is_served
        self._waiting: list[asyncio.Future[None]] = []
        self._is_due = asyncio.Event()
        # Is replaced whenever something else may be served.
        self._progress: Latest[object] = Latest(None)

    def note(self) -> None:
        """Note that something else may be served."""
        self._progress.replace(object())

    async def passed(self, view: ViewKey) -> None:
        """Wait until a view is served all that was published before this call, or something later."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._is_due.set()
        await waiting
        while not self._is_served(view):
            await self._progress.replaced()

    async def keep_reading(self) -> Never:
        """Read what is published for those who wait, until cancelled."""
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
    """Says which channel a node follows, when it may be served what is there: the `Channels` of a server of a fleet.

    Args:
        channels: those of the server.
        barrier: catches up.
        patience_s: so long a client waits for that.
        on_demand: has upstreams asked for the names that clients ask for.

    Attributes:
        on_demand: the same.
        on_moved: what is called when nodes may follow other channels.
    """

    def __init__(self, channels: NodeChannels, barrier: Barrier, patience_s: float, on_demand: OnDemand) -> None:
        self.on_demand = on_demand
        self.on_moved = channels.on_moved
        self._patience_s = patience_s
        self._channels = channels
        self._barrier = barrier

    @property
    def rollout(self) -> RolloutOptions:
        """How changes are rolled out now."""
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
