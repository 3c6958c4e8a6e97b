"""Channels: lineages of snapshots that clients of one view with equal rejections share; and waiting for newer values.

Touched from the event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Never, Protocol, TypeAlias, TypeVar

from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers, TypeUrl
from fsxds.protocol.messages import ClientStatus, Node, SyncState
from fsxds.protocol.polling_node import POLLING
from fsxds.protocol.subscription import OnDemand
from fsxds.rollout import Client, Step
from fsxds.rollout.machine import RolloutOptions
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import Nack, NodeKey

Value = TypeVar("Value")


class Latest(Generic[Value]):
    """A replaceable value. Slow readers skip values."""

    def __init__(self, value: Value) -> None:
        self.current = value
        # One event for all waiters; replaced, never cleared, so that no waiter can miss it.
        self._replaced = asyncio.Event()

    def replace(self, value: Value) -> None:
        """Set the value; wake all waiters."""
        self.current = value
        replaced, self._replaced = self._replaced, asyncio.Event()
        replaced.set()

    async def replaced(self) -> None:
        """Wait until `replace` is called. Safe to cancel, like all methods here."""
        await self._replaced.wait()

    async def other_than(self, value: Value) -> Value:
        """Wait for another object."""
        while self.current is value:
            await self._replaced.wait()
        return self.current

    async def run_with(self, work: Callable[[Value], Awaitable[object]]) -> Never:
        """Run `work` with the current value; restart it at each replacement."""
        while True:
            value = self.current
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(_run(work, value))
                await self.other_than(value)
                running.cancel()


async def _run(work: Callable[[Value], Awaitable[object]], value: Value) -> None:
    await work(value)


def end_wait(limit: asyncio.Timeout | None, at_s: float | None) -> None:
    """Set the end in event loop time, or None; not for expired waits."""
    if limit is not None and not limit.expired():
        limit.reschedule(at_s)


class SnapshotStore:
    """Holds the current snapshot, None before the first.

    `listeners`, by owner, are called after publications.
    """

    def __init__(self) -> None:
        self.listeners: dict[object, Callable[[], object]] = {}
        self._latest: Latest[Snapshot | None] = Latest(None)

    @property
    def current(self) -> Snapshot | None:
        """The served snapshot."""
        return self._latest.current

    def publish(self, snapshot: Snapshot) -> None:
        """Wake all waiters. Generations must increase."""
        self._latest.replace(snapshot)
        for listener in self.listeners.values():
            listener()

    async def newer_than(self, generation: int) -> Snapshot:
        """Wait for a generation above this (0: the first); return the newest. Safe to cancel."""
        while (snapshot := self._latest.current) is None or snapshot.generation <= generation:
            await self._latest.replaced()
        return snapshot


@dataclass(frozen=True, slots=True)
class ChannelKey:
    """A channel's nodes.

    Attributes:
        is_canary: they get a change first.
        held: versions not served to them, because they rejected some, or are offered a version again; None if as for all
            nodes.
        lane: above 0 while they catch up with another channel.
        is_shared: versions that others of the channel reject are not served to them either: each set of rejections would
            need another channel.
    """

    layers: Layers = ()
    is_canary: bool = False
    held: frozenset[ResourceVersion] | None = None
    lane: int = 0
    is_shared: bool = False

    @property
    def is_main(self) -> bool:
        """Whether nodes are no canaries, reject nothing, and have caught up."""
        return self.held is None and not self.lane

    @property
    def cohort(self) -> str:
        """These nodes' name for users."""
        if self.lane:
            return "catching up"
        return "rejecting" if self.held is not None else "canary" if self.is_canary else "main"


class ChannelClient(Client, Protocol):
    """A stream, a polling node, a mirror."""

    @property
    def node(self) -> Node:
        """The node, as sent."""

    @property
    def name(self) -> str:
        """In logs: node id, address, or a mirror's directory."""

    @property
    def transport(self) -> str:
        """`REST`, `gRPC` or `mirror`."""

    @property
    def identity(self) -> str:
        """For votes: its credentials' name, else node id or name."""

    @property
    def has_returned(self) -> bool:
        """Whether it stays: an open stream, or a poll after an answer."""

    @property
    def node_count(self) -> int:
        """How many nodes it represents, each with a vote."""

    @property
    def is_away(self) -> bool:
        """Whether it is unreachable: between two polls, or after its last."""

    def selected(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """Return the subscribed subset of `names`."""

    def reachable(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """Return the subset of `names` that it can be sent at once."""

    def sync_state(self) -> SyncState:
        """Return the state; quick: called for all clients."""

    def status(self) -> ClientStatus:
        """Return the versions sent, ACKed and NACKed."""

    def wake(self) -> None:
        """Process its channel's current snapshot."""

    def follow(self, channel: Channel) -> None:
        """Switch to a channel already joined."""


def node_key(client: ChannelClient) -> NodeKey:
    """Without node id, each client is a node."""
    return (client.node.id, client.node.cluster) if client.node.id else client


class Channel:
    """The lineage of snapshots that some nodes of one view share, and its clients.

    Attributes:
        streams: the same store, or one with config sources rewritten to ADS.
        clients: in order of arrival.
        absent: clients that were away when the rollout stopped awaiting them; their nodes have not left.
        step: to be taken by clients, or None.
        detected_s: `time.monotonic()` at the first sign of the file change that the last step serves, for latency metrics;
            None after another cause, such as a rollback, or a removal after draining.
        readers: the number of waiting requests that are no clients.
        on_progress: called with each client that may have taken the step, or left.
        on_nack: called with each rejecting client and its NACK.
    """

    __slots__ = (
        *("absent", "clients", "detected_s", "key", "on_nack", "on_progress", "readers", "step", "store", "streams"),
    )

    def __init__(self, key: ChannelKey, streams: SnapshotStore | None = None) -> None:
        """`streams`: given if they get another snapshot."""
        self.key = key
        self.store = SnapshotStore()
        self.streams = streams or self.store
        self.clients: dict[ChannelClient, None] = {}
        self.absent: dict[ChannelClient, None] = {}
        self.step: Step | None = None
        self.readers = 0
        self.detected_s: float | None = None
        self.on_progress: Callable[[ChannelClient], object] = lambda _: None
        self.on_nack: Callable[[ChannelClient, Nack], object] = lambda *_: None

    def join(self, client: ChannelClient) -> None:
        """Add a client."""
        self.clients[client] = None

    def leave(self, client: ChannelClient) -> None:
        """Remove a client, if known."""
        if client in self.clients or client in self.absent:
            self.clients.pop(client, None)
            self.on_progress(client)
            self.absent.pop(client, None)

    def leave_with_polls(self, node: NodeKey) -> bool:
        """Remove a node, unless it has streams; return whether it has none."""
        present = [client for client in self.clients if node_key(client) == node]
        has_streams = any(client.transport != POLLING for client in present)
        for client in () if has_streams else present:
            self.leave(client)
        return not has_streams

    def expect(self, client: ChannelClient) -> None:
        """Record an absent client that will return."""
        self.absent[client] = None
        client.follow(self)

    @property
    def known(self) -> Iterator[ChannelClient]:
        """Yield present clients, then absent ones."""
        yield from self.clients
        yield from self.absent

    def progressed(self, client: ChannelClient) -> None:
        """Report a request or response, unless the client left."""
        if client in self.clients:
            self.on_progress(client)


HoldsOf: TypeAlias = Callable[[Snapshot], bool]
"""Whether a client holds the content of a snapshot."""


def holds_nothing(_: Snapshot) -> bool:
    """Return False."""
    return False


class Channels(Protocol):
    """Assigns nodes to channels.

    `on_moved` callbacks, by owner, are called when nodes may have moved; for waiting requests that are not clients.
    """

    on_demand: OnDemand
    on_moved: dict[object, Callable[[], object]]

    @property
    def rollout(self) -> RolloutOptions:
        """The current rollout options."""

    async def channel_of(
        self, node: Node, *, holds: bool | None = None, holds_of: HoldsOf = holds_nothing, is_here: bool = False
    ) -> Channel:
        """Return a node's channel, as soon as its snapshot is loaded.

        Args:
            node: as sent.
            holds: whether it reports content; None if it is not to become a client.
            holds_of: whether that is a snapshot's content.
            is_here: no other server sent it content since this one.

        Raises:
            ProtocolError: no view is for this node (`NOT_FOUND`).
        """
