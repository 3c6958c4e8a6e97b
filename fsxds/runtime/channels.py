"""What the nodes of one view are served: a channel, with the store that they follow, and the clients that follow it.

Touched from the event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers, TypeUrl
from fsxds.protocol.messages import ClientStatus, Node, SyncState
from fsxds.protocol.on_demand import OnDemand
from fsxds.rollout import Client, Nack, NodeKey, ResourceVersion, RolloutOptions, Step
from fsxds.runtime.store import SnapshotStore


@dataclass(frozen=True, slots=True)
class ChannelKey:
    """Which nodes a channel is for.

    Attributes:
        layers: those of their view.
        is_canary: they get a change before the others.
        held: the versions that they are not served, if these are others than for all nodes: they rejected some, or are
            offered again what all others are not served.
        lane: a number above 0 while they catch up with another channel.
        is_shared: they are not served either what other nodes reject, as each set of rejections would be one channel more.
    """

    layers: Layers = ()
    is_canary: bool = False
    held: frozenset[ResourceVersion] | None = None
    lane: int = 0
    is_shared: bool = False

    @property
    def is_main(self) -> bool:
        """Whether it is for all nodes of a view, but for canaries, those that reject something, and those that catch up."""
        return self.held is None and not self.lane

    @property
    def cohort(self) -> str:
        """What users call these nodes among those of their view."""
        if self.lane:
            return "catching up"
        return "rejecting" if self.held is not None else "canary" if self.is_canary else "main"


class ChannelClient(Client, Protocol):
    """One that follows a channel: a stream, a node that polls, a mirror."""

    @property
    def node(self) -> Node:
        """The client as it described itself."""

    @property
    def name(self) -> str:
        """What it is called in the log: its node id, its address, or the directory of a mirror."""

    @property
    def transport(self) -> str:
        """How it is served: `REST`, `gRPC` or `mirror`."""

    @property
    def identity(self) -> str:
        """Whose vote it has a part of: the name of its credentials, else its node id or what it is called."""

    @property
    def has_returned(self) -> bool:
        """Whether it has shown that it stays: a stream that is open, or a node that polled again after an answer."""

    @property
    def node_count(self) -> int:
        """For how many nodes it stands, each with a vote: mostly for one."""

    @property
    def is_away(self) -> bool:
        """Whether nothing can be sent to it before it comes back: a node between two polls, or after its last one."""

    def selected(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """Return those of some names of a type that it subscribes to."""

    def sync_state(self) -> SyncState:
        """Return how it stands with what its channel serves. It is asked of every client at once, so it must be quick."""

    def status(self) -> ClientStatus:
        """Return what it was sent, ACKed and NACKed."""

    def wake(self) -> None:
        """Look at what is served now."""

    def follow(self, channel: Channel) -> None:
        """Look at another channel from now on, which it has joined already."""


def node_key(client: ChannelClient) -> NodeKey:
    """Return what the clients of one node have in common; one without a node id is a node of its own."""
    return (client.node.id, client.node.cluster) if client.node.id else client


class Channel:
    """What the nodes of one view are served, and who they are.

    Attributes:
        key: which nodes it is for.
        store: what is served.
        streams: what is served on streams: the same, or with its config sources made ADS.
        clients: those that follow it, in the order of their arrival.
        absent: those that were away when they were waited for no more, and have not come back yet: their nodes have not left.
        step: the step that clients are waited for to take; None while nobody is.
        detected_s: the monotonic clock at the first sign of the change in files that is served since the last publication;
            None where that is no such change, such as a rollback, or the end of what lingered.
        readers: how many requests wait for what is served next, and are no clients that take steps.
        on_progress: receives the clients that answered, or left: they may have taken the step.
        on_nack: receives the clients that rejected something, and what.
    """

    __slots__ = (
        *("absent", "clients", "detected_s", "key", "on_nack", "on_progress", "readers", "step", "store", "streams"),
    )

    def __init__(self, key: ChannelKey, streams: SnapshotStore | None = None) -> None:
        """Serve nothing yet; `streams` is given where streams are served something else."""
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
        """Take a client that follows the channel from now on."""
        self.clients[client] = None

    def leave(self, client: ChannelClient) -> None:
        """Forget a client, which may be unknown."""
        if client in self.clients or client in self.absent:
            self.clients.pop(client, None)
            self.on_progress(client)
            self.absent.pop(client, None)

    def expect(self, client: ChannelClient) -> None:
        """Know a client that has left a channel, and comes back to this one, as one that is there."""
        self.absent[client] = None
        client.follow(self)

    @property
    def known(self) -> Iterator[ChannelClient]:
        """Yield all that are there, in the order of their arrival, and then those that are away."""
        yield from self.clients
        yield from self.absent

    def progressed(self, client: ChannelClient) -> None:
        """Note that a client sent a request or got a response: it may have taken the step. One that left has no say."""
        if client in self.clients:
            self.on_progress(client)


HoldsOf: TypeAlias = Callable[[Snapshot], bool]
"""Whether a client says that it holds what a snapshot has."""


def holds_nothing(_: Snapshot) -> bool:
    """Return False."""
    return False


class Channels(Protocol):
    """What knows which channel a node follows.

    Attributes:
        on_demand: has other servers asked for what clients ask for.
        on_moved: by whom they belong to: what is called when nodes may follow other channels, for those that wait and are
            no clients.
    """

    on_demand: OnDemand
    on_moved: dict[object, Callable[[], object]]

    @property
    def rollout(self) -> RolloutOptions:
        """How changes are rolled out now."""

    async def channel_of(
        self, node: Node, *, holds: bool | None = None, holds_of: HoldsOf = holds_nothing, is_here: bool = False
    ) -> Channel:
        """Return the channel of a node, as soon as what it serves is loaded.

        Args:
            node: as it describes itself.
            holds: whether it says that it holds something already; None if it is to become no client of the channel.
            holds_of: whether that is what a snapshot has.
            is_here: it holds what it was sent here, and no other server sent it something since.

        Raises:
            ProtocolError: no view is for this node; with the code `NOT_FOUND`.
        """
