"""What the nodes of one view are served: a channel, with the store that they follow, and the clients that follow it.

Touched from the event loop only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fsxds.protocol.messages import ClientStatus, Node
from fsxds.protocol.on_demand import OnDemand
from fsxds.protocol.sync_states import SyncState
from fsxds.rollout import Client, Step
from fsxds.store import SnapshotStore
from fsxds.values import Layers


@dataclass(frozen=True, slots=True)
class ChannelKey:
    """Which nodes a channel is for: those whose view has these layers, and of them the canaries or the others.

    `transition` is a number above 0 where they are on their way to the channel of all others with these layers.
    """

    layers: Layers = ()
    is_canary: bool = False
    transition: int = 0


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

    def sync_state(self) -> SyncState:
        """Return how it stands with what its channel serves. It is asked of every client at once, so it must be quick."""

    def status(self) -> ClientStatus:
        """Return what it was sent, ACKed and NACKed."""

    def wake(self) -> None:
        """Look at what is served now."""

    def follow(self, channel: Channel) -> None:
        """Look at another channel from now on, which it has joined already."""


class Channel:
    """What the nodes of one view are served, and who they are.

    Attributes:
        key: which nodes it is for.
        store: what is served.
        streams: what is served on streams: the same, or with its config sources made ADS.
        clients: those that follow it, in the order of their arrival.
        step: the step that clients are waited for to take; None while nobody is.
        detected_s: the monotonic clock at the first sign of the change in files that is served since the last publication;
            None where that is no such change, such as a rollback, or the end of what lingered.
        readers: how many requests wait for what is served next, and are no clients that take steps.
        on_progress: receives the clients that may have taken the step, or left; it is called only while there is one.
    """

    __slots__ = ("clients", "detected_s", "key", "on_progress", "readers", "step", "store", "streams")

    def __init__(self, key: ChannelKey, streams: SnapshotStore | None = None) -> None:
        """Serve nothing yet; `streams` is given where streams are served something else."""
        self.key = key
        self.store = SnapshotStore()
        self.streams = streams or self.store
        self.clients: dict[ChannelClient, None] = {}
        self.step: Step | None = None
        self.readers = 0
        self.detected_s: float | None = None
        self.on_progress: Callable[[ChannelClient], object] = lambda _: None

    def join(self, client: ChannelClient) -> None:
        """Take a client that follows the channel from now on."""
        self.clients[client] = None

    def leave(self, client: ChannelClient) -> None:
        """Forget a client, which may be unknown."""
        self.clients.pop(client, None)
        self.progressed(client)

    def progressed(self, client: ChannelClient) -> None:
        """Note that a client sent a request or got a response: it may have taken the step."""
        if self.step is not None:
            self.on_progress(client)


class Channels(Protocol):
    """What knows which channel a node follows.

    Attributes:
        on_demand: has other servers asked for what clients ask for.
    """

    on_demand: OnDemand

    async def channel_of(self, node: Node) -> Channel:
        """Return the channel of a node, as soon as what it serves is loaded.

        Raises:
            ProtocolError: no view is for this node; with the code `NOT_FOUND`.
        """
