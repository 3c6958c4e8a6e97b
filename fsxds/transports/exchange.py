"""Handles the steps that requests share over all transports.

| step | transports |
| --- | --- |
| Check that the sender may ask as this node and for this type; again after each wait, which may have taken long. | all |
| Find the channel of the node. | all |
| Ask upstreams for the names, for as long as the request lasts. | all |
| Count a request that has to wait; wait for a newer snapshot, other access, or the end of the server. | polls, GET, Fetch |

Streams are pushed to, so that an idle stream needs no task; mirrors have no sender.
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
class Requester:
    """A request's sender and subject, compared by identity.

    `type_url` is None until known; `*` in `asked` means all.
    """

    peer: Peer
    node: Node
    type_url: TypeUrl | None = None
    asked: AbstractSet[str] = frozenset()


class Waiting(Protocol):
    """Waits for its channel's next snapshot; `limits` are timeouts."""

    channel: Channel
    limits: set[asyncio.Timeout]


class Reader:
    """Waits without being a client that rollout steps wait for."""

    __slots__ = ("channel", "limits")

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.limits: set[asyncio.Timeout] = set()


class _Asking(AbstractContextManager[None]):
    """Not a generator, which would take 0.5 kB for each held request."""

    __slots__ = ("_on_demand", "_requester")

    def __init__(self, on_demand: OnDemand, requester: Requester) -> None:
        self._on_demand, self._requester = on_demand, requester

    def __enter__(self) -> None:
        if self._requester.type_url is not None:
            self._on_demand.ask(self._requester, self._requester.type_url, self._requester.asked)

    def __exit__(self, *_: object) -> None:
        # Also if the request fails or is cancelled.
        self._on_demand.forget(self._requester)


def _store(channel: Channel) -> SnapshotStore:
    return channel.store


class Exchange:
    """Takes the requests of one listener.

    Without `limiter` the default limits apply; without `access` everyone may ask. `store_of` returns a channel's store.
    While `is_draining`, requests must not wait.
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
        # Of requests that wait for upstreams to answer which names do not exist.
        self._awaiting: set[asyncio.Timeout] = set()
        self._readers: set[Reader] = set()

    @classmethod
    def of_streams(cls, channels: Channels, limiter: Limiter | None = None, access: AccessInUse | None = None) -> Self:
        """Create an exchange for streamed snapshots."""
        return cls(channels, limiter, access, lambda channel: channel.streams)

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self._limits)

    @contextmanager
    def woken(self) -> Iterator[None]:
        """Wake waiting requests at changes of access, channels, or upstreams' answers."""
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

    def check(self, requester: Requester) -> None:
        """Check that the sender may ask. Raises ProtocolError."""
        access = self.access.current
        if requester.type_url is None:
            access.check_node(requester.peer, requester.node)
        else:
            access.check_request(requester.peer, requester.node, requester.type_url)

    async def channel_of(
        self,
        requester: Requester,
        *,
        holds: bool | None = None,
        holds_of: HoldsOf = holds_nothing,
        is_here: bool = False,
    ) -> Channel:
        """Return a node's channel; see `Channels.channel_of`. Raises ProtocolError."""
        self.check(requester)
        channel = await self.channels.channel_of(requester.node, holds=holds, holds_of=holds_of, is_here=is_here)
        # Finding the channel can take long.
        self.check(requester)
        return channel

    def asking(self, requester: Requester) -> AbstractContextManager[None]:
        """Ask upstreams while the context lasts."""
        return _Asking(self.channels.on_demand, requester)

    def snapshot_of(self, channel: Channel) -> Snapshot | None:
        """Return the current snapshot of a channel."""
        return self._store_of(channel).current

    async def wait(self, requester: Requester, waiting: Waiting, snapshot: Snapshot | None, wait: Wait) -> float:
        """Wait for a newer snapshot, another channel, other access, a time, or the server's end.

        `snapshot` is the present one; `wait` may end with upstreams' answers too. Times, also the returned one, are of
        the event loop.

        Raises:
            ProtocolError: the sender may no longer ask for this.
        """
        until_s = inf if wait.until_s is None else wait.until_s
        # One coroutine: each further one would stay allocated for thousands of waiting requests.
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
                # Timers may fire a little early; callers expect `until_s` to be reached then.
                now_s = max(until_s, now_s)
        else:
            now_s = asyncio.get_running_loop().time()
        self.check(requester)
        return now_s

    async def wait_reading(
        self, requester: Requester, reader: Reader, until_s: float, *, awaits_answers: bool
    ) -> float:
        """Wait like `wait`, and update the reader's channel."""
        channel = reader.channel
        channel.readers += 1
        self._readers.add(reader)
        try:
            now_s = await self.wait(requester, reader, self.snapshot_of(channel), Wait(until_s, awaits_answers))
        finally:
            channel.readers -= 1
            self._readers.discard(reader)
        reader.channel = await self.channel_of(requester)
        return now_s

    async def pause(self, pause_s: float) -> None:
        """Wait for `pause_s`, other access, or the server's end."""
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
        """End all waits, and allow none."""
        self.is_draining = True
        self.wake()

    def wake(self) -> None:
        """Have every waiting request check again."""
        _end((*self._limits, *self._pauses))

    def wake_readers(self) -> None:
        """Have readers look up their channels again."""
        _end([limit for reader in self._readers for limit in reader.limits])

    def wake_for_answers(self) -> None:
        """Wake requests that wait for upstreams' answers."""
        _end(tuple(self._awaiting))


def _end(limits: tuple[asyncio.Timeout, ...] | list[asyncio.Timeout]) -> None:
    now_s = asyncio.get_running_loop().time()
    for limit in limits:
        end_wait(limit, now_s)
