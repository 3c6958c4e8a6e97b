"""What all requests for resources have in common, whatever transport they come by.

| step | who takes it |
| --- | --- |
| The sender may ask as this node, and for this type; that is asked again after each wait, which may have taken long. | all |
| The channel of the node answers. | all |
| Upstreams are asked for the names, as long as the request lasts. | all |
| A request that has to wait is counted, and waits for a newer snapshot, other access, or the end of the server. | polls, GET, Fetch |

Streams are pushed, so that an idle one has no task; mirrors have no sender.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import Protocol, Self

from fsxds.model.resources import Snapshot
from fsxds.model.values import TypeUrl
from fsxds.protocol.messages import Node
from fsxds.protocol.on_demand import OnDemand
from fsxds.protocol.poll import Wait
from fsxds.runtime.access import AccessInUse, Peer
from fsxds.runtime.channels import Channel, Channels, HoldsOf, holds_nothing
from fsxds.runtime.store import SnapshotStore, end_wait
from fsxds.transports.limits import Limiter


@dataclass(frozen=True, slots=True, eq=False)
class Asker:
    """Who sends a request, and what for; equal to itself alone.

    Attributes:
        peer: the sender.
        node: as which it asks.
        type_url: what it asks for; None as long as that is not known.
        asked: the names, `*` among them for everything.
    """

    peer: Peer
    node: Node
    type_url: TypeUrl | None = None
    asked: AbstractSet[str] = frozenset()


class Waiting(Protocol):
    """One that waits for what is served next.

    Attributes:
        channel: what it is served.
        limits: its time limits while it waits.
    """

    channel: Channel
    limits: set[asyncio.Timeout]


class Reader:
    """One that waits without being a client of its channel: no step waits for it.

    Attributes:
        channel: what its node is served.
        limits: its time limit while it waits.
    """

    __slots__ = ("channel", "limits")

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.limits: set[asyncio.Timeout] = set()


class _Asking(AbstractContextManager[None]):
    """Has upstreams asked while it lasts. Not made of a generator: each held request keeps one, which takes 0.5 kB."""

    __slots__ = ("_asker", "_on_demand")

    def __init__(self, on_demand: OnDemand, asker: Asker) -> None:
        self._on_demand, self._asker = on_demand, asker

    def __enter__(self) -> None:
        if self._asker.type_url is not None:
            self._on_demand.ask(self._asker, self._asker.type_url, self._asker.asked)

    def __exit__(self, *_: object) -> None:
        # Also when it is cancelled, because the client gave its request up, or fails.
        self._on_demand.forget(self._asker)


def _store(channel: Channel) -> SnapshotStore:
    return channel.store


class Exchange:
    """Takes requests of one listener; each as the table says.

    Args:
        channels: knows what each node is served.
        limiter: bounds what clients take; what is usual where none is given.
        access: decides who may ask; everybody where none is given.
        store_of: returns the store of a channel that answers.

    Attributes:
        is_draining: the server ends, and no request is to wait.
    """

    def __init__(
        self,
        channels: Channels,
        limiter: Limiter | None = None,
        access: AccessInUse | None = None,
        store_of: Callable[[Channel], SnapshotStore] = _store,
    ) -> None:
        self.limiter = limiter or Limiter()
        self.channels = channels
        self.access = access or AccessInUse()
        self.is_draining = False
        self._store_of = store_of
        self._limits: set[asyncio.Timeout] = set()
        self._pauses: set[asyncio.Timeout] = set()
        # Those of the ones that wait to hear what does not exist.
        self._awaiting: set[asyncio.Timeout] = set()
        self._readers: set[Reader] = set()

    @classmethod
    def of_streams(cls, channels: Channels, limiter: Limiter | None = None, access: AccessInUse | None = None) -> Self:
        """Take requests that are answered as streams are, which may be served something else."""
        return cls(channels, limiter, access, lambda channel: channel.streams)

    def __len__(self) -> int:
        """How many requests wait now."""
        return len(self._limits)

    @contextmanager
    def woken(self) -> Iterator[None]:
        """Let requests look again while the context lasts: at other access, other channels, and answers of upstreams."""
        channels = self.channels
        listeners: tuple[tuple[dict[object, Callable[[], object]], Callable[[], object]], ...] = (
            (self.access.listeners, self.wake),
            (channels.on_moved, self.wake_readers),
            (channels.on_demand.listeners, self.wake_for_answers),
        )
        for by_owner, listener in listeners:
            by_owner[self] = listener
        try:
            yield
        finally:
            for by_owner, _ in listeners:
                by_owner.pop(self, None)

    def check(self, asker: Asker) -> None:
        """Check that one may ask for this, now. Raises ProtocolError."""
        access = self.access.current
        if asker.type_url is None:
            access.check_node(asker.peer, asker.node)
        else:
            access.check_request(asker.peer, asker.node, asker.type_url)

    async def channel_of(
        self, asker: Asker, *, holds: bool | None = None, holds_of: HoldsOf = holds_nothing, is_here: bool = False
    ) -> Channel:
        """Return what a node is served; see `Channels.channel_of`. Raises ProtocolError: it may not ask for that."""
        self.check(asker)
        channel = await self.channels.channel_of(asker.node, holds=holds, holds_of=holds_of, is_here=is_here)
        # That may have taken long.
        self.check(asker)
        return channel

    def asking(self, asker: Asker) -> AbstractContextManager[None]:
        """Have upstreams asked as long as the context lasts."""
        return _Asking(self.channels.on_demand, asker)

    def snapshot_of(self, channel: Channel) -> Snapshot | None:
        """Return what a channel serves now."""
        return self._store_of(channel).current

    async def wait(self, asker: Asker, waiting: Waiting, snapshot: Snapshot | None, wait: Wait) -> float:
        """Wait for a snapshot newer than this, another channel, other access, a time or the end of the server.

        Args:
            asker: who waits.
            waiting: what it is served.
            snapshot: what it was decided by that it waits.
            wait: until which time, of the event loop, and whether also for more to be known of what does not exist.

        Returns:
            What time it is then, of the event loop.

        Raises:
            ProtocolError: the sender may ask for this no longer.
        """
        until_s = inf if wait.until_s is None else wait.until_s
        # In one coroutine: thousands of requests wait, and each would keep another one.
        try:
            async with asyncio.timeout_at(until_s) as limit:
                found_by = (self._limits, waiting.limits, *((self._awaiting,) if wait.awaits_answers else ()))
                for limits in found_by:
                    limits.add(limit)
                try:
                    store = self._store_of(waiting.channel)
                    await store.newer_than(0 if snapshot is None else snapshot.generation)
                finally:
                    for limits in found_by:
                        limits.discard(limit)
        except TimeoutError:
            now_s = asyncio.get_running_loop().time()
            if limit.when() == until_s:
                # Timers may fire a little early; at `until_s` it must be reached.
                now_s = max(until_s, now_s)
        else:
            now_s = asyncio.get_running_loop().time()
        self.check(asker)
        return now_s

    async def wait_reading(self, asker: Asker, reader: Reader, until_s: float, *, awaits_answers: bool) -> float:
        """Wait like `wait`, for something newer than what is served now, and have a reader follow its node."""
        channel = reader.channel
        channel.readers += 1
        self._readers.add(reader)
        try:
            now_s = await self.wait(asker, reader, self.snapshot_of(channel), Wait(until_s, awaits_answers))
        finally:
            channel.readers -= 1
            self._readers.discard(reader)
        reader.channel = await self.channel_of(asker)
        return now_s

    async def pause(self, pause_s: float) -> None:
        """Wait for so long, for other access, or for the end of the server."""
        if self.is_draining:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s) as limit:
                self._pauses.add(limit)
                try:
                    await asyncio.Event().wait()
                finally:
                    self._pauses.discard(limit)

    def drain(self) -> None:
        """Let no request wait any longer."""
        self.is_draining = True
        self.wake()

    def wake(self) -> None:
        """Let every request look again."""
        _end((*self._limits, *self._pauses))

    def wake_readers(self) -> None:
        """Let readers look again what their nodes are served."""
        _end([limit for reader in self._readers for limit in reader.limits])

    def wake_for_answers(self) -> None:
        """Let those look again that wait to hear what does not exist."""
        _end(tuple(self._awaiting))


def _end(limits: tuple[asyncio.Timeout, ...] | list[asyncio.Timeout]) -> None:
    now_s = asyncio.get_running_loop().time()
    for limit in limits:
        end_wait(limit, now_s)
