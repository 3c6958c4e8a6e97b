"""A server without sockets: the real publisher, channels and protocol cores, and what serves streams and polls of a fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from fsxds.events.event import Event
from fsxds.events.process_events import InternalError
from fsxds.events.rollout_events import VersionsHeld
from fsxds.history.rejection_rows import encode_rejections, restore_rejections
from fsxds.model.resources import Key, Snapshot
from fsxds.model.values import Layers, TypeUrl
from fsxds.protocol.delta import DeltaStream
from fsxds.protocol.messages import ClientStatus, DeltaRequest, Node, SotwRequest, SyncState, combined_state
from fsxds.protocol.poll import PollMemory, PollRequest, Send, Wait
from fsxds.protocol.polling_node import PollingNode
from fsxds.protocol.sotw import SotwStream
from fsxds.protocol.subscription import Selection, SharedMemory
from fsxds.protocol.ttl import TtlMode
from fsxds.publishing.node_channels import MOST_HELD, NodeChannels
from fsxds.publishing.publisher import Publisher, PublishRules
from fsxds.rollout import Step
from fsxds.rollout.machine import RolloutState
from fsxds.rollout.rejections import Rejections
from fsxds.rollout.step import Standing
from fsxds.runtime.access import Peer
from fsxds.runtime.channels import Channel, ChannelKey
from fsxds.runtime.views import NodeRules, Views
from fsxds.transports.exchange import Exchange, Requester
from fsxds.transports.grpc_streams.stream_responses import Waking
from fsxds.transports.rest.application import RestClients

HOLD_S = 30.0
LOADS_WITHIN_S = 0.05


class KeptState:
    """What survives a restart, in memory: a state directory without a disk."""

    def __init__(self) -> None:
        self.read: dict[ChannelKey, Callable[[], RolloutState | None]] = {}
        self.states: dict[ChannelKey, RolloutState] = {}
        self.rejections: Rejections | None = None
        self.text = b""
        self.read_members: Callable[[], Mapping[Layers, Any]] = dict
        self.read_behind: Callable[[], Mapping[ChannelKey, RolloutState]] = dict

    def restored(self) -> dict[ChannelKey, RolloutState]:
        """Return the places of all rollouts."""
        return self.states

    def restored_members(self) -> dict[Layers, Any]:
        """Return no removed members."""
        return {}

    def restore_rejections(self, rejections: Rejections) -> None:
        """Take what nodes rejected."""
        self.rejections = rejections
        if self.text:
            now_s = asyncio.get_running_loop().time()
            restore_rejections(rejections, self.text, now_s, now_s)

    def save(self, key: ChannelKey, read: Callable[[], RolloutState | None]) -> None:
        """Remember where the place of a rollout is read."""
        self.read[key] = read

    def forget(self, key: ChannelKey) -> None:
        """Forget a rollout."""
        self.read.pop(key, None)

    def note_rejections(self) -> None:
        """Do nothing: they are read when the process ends."""

    def end(self) -> None:
        """Read everything: the process ends."""
        self.states = {key: state for key, read in self.read.items() if (state := read()) is not None}
        self.states |= self.read_behind()
        self.read = {}
        if self.rejections is not None:
            now_s = asyncio.get_running_loop().time()
            self.text = encode_rejections(self.rejections, now_s, now_s).encode()


class LoadedViews:
    """Views of layers that exist always; each is loaded a moment after somebody wants it.

    Attributes:
        loaded_by: the rules by which the last tree was loaded.
        wanted: the views that somebody wants, by their layers.
        load: loads the tree.
    """

    existing = frozenset({"one", "two"})

    def __init__(self, views: Views, load: Callable[[], object]) -> None:
        self.loaded_by = views
        self.wanted: set[Layers] = {()} if views.is_whole else set()
        self.load = load

    def is_loaded_by(self, views: Views) -> bool:
        """Whether the last tree was loaded by these rules."""
        return views is self.loaded_by

    def want(self, layers: Layers) -> None:
        """Load a view soon."""
        if layers not in self.wanted:
            self.wanted.add(layers)
            asyncio.get_running_loop().call_later(LOADS_WITHIN_S, self.load)

    def drop(self, layers: Layers) -> None:
        """Load a view no more."""
        self.wanted.discard(layers)


class Server:
    """One process.

    Args:
        rules: how changes are published.
        kept: what the process before left.
        loading: loads views.
        on_held: receives versions that are held back from all nodes.
        most_held: so many channels of a view are for nodes with the same rejections.

    Attributes:
        publisher: the real one.
        channels: likewise.
        views: the rules by which nodes see views.
    """

    def __init__(
        self,
        rules: PublishRules,
        kept: KeptState,
        loading: LoadedViews,
        on_held: Callable[[VersionsHeld], object],
        most_held: int = MOST_HELD,
    ) -> None:
        self.kept = kept
        self.views = loading.loaded_by
        self._on_held = on_held
        self._errors: list[BaseException] = []
        kept_writer: Any = kept
        self.publisher = Publisher(rules, self._observe, kept_writer)
        self.channels = NodeChannels(self.publisher, loading, NodeRules(self.views, rules.canary))
        self.channels.most_held = most_held
        self.memory = SharedMemory(rollout=lambda: self.channels.rollout)
        self.polls = PollMemory(forget=self._forget, recognized=self._recognize)
        self.rest = RestClients()
        self.exchange = Exchange(self.channels)
        self.streams: dict[SimulatedStream, None] = {}
        self.waking = Waking(self.channels.on_demand)
        works = self.publisher.keep_publishing(), self.waking.keep_waking()
        self._tasks = [asyncio.get_running_loop().create_task(work) for work in works]
        self.is_up = True

    def load(self, targets: Mapping[Layers, Snapshot]) -> None:
        """Take a tree, of each view."""
        self.publisher.receive(targets, asyncio.get_running_loop().time())

    def _observe(self, event: Event) -> None:
        if isinstance(event, InternalError):
            self._errors.append(event.error)
        elif isinstance(event, VersionsHeld):
            self._on_held(event)

    def _forget(self, node: PollingNode) -> None:
        self.rest.forget(node)

    def _recognize(self, node: PollingNode) -> None:
        self.rest.receive_recognized(node)

    def end(self) -> None:
        """End the process: streams break, polls are not answered."""
        self.is_up = False
        for task in self._tasks:
            task.cancel()
        self.kept.end()
        for stream in tuple(self.streams):
            stream.close()

    def check(self) -> None:
        """Raise what went wrong within the server."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()
        for error in self._errors:
            raise error

    async def answer(self, poll: PollRequest) -> tuple[Selection | None, bool]:
        """Answer a poll; None for 304. The second is whether there is anything to answer with."""
        holds = poll.version_info is not None or self.polls.node_of(poll.node) is not None
        requester = Requester(Peer("", is_private=True), poll.node)
        channel = await self.exchange.channel_of(requester, holds=holds, holds_of=poll.holds_of)
        channel = self.rest.channel_of(self.polls.node_of(poll.node), channel)
        loop = asyncio.get_running_loop()
        snapshot = channel.store.current
        decision, _ = self.polls.receive_request(poll, snapshot, loop.time())
        client = self.rest.receive_poll(poll, self.polls.node_of(poll.node), channel, poll.node.id)
        is_answered, deadline_s = False, loop.time() + HOLD_S
        try:
            while isinstance(decision, Wait) and loop.time() < deadline_s:
                until_s = deadline_s if decision.until_s is None else min(decision.until_s, deadline_s)
                now_s = await self.exchange.wait(requester, client, snapshot, Wait(until_s))
                snapshot = client.channel.store.current
                decision = self.polls.receive_snapshot(poll, snapshot, now_s)
            is_answered = True
            return (decision.selection, True) if isinstance(decision, Send) else (None, isinstance(decision, Wait))
        finally:
            self.polls.receive_end(poll, loop.time(), is_given_up=not is_answered)
            self.rest.receive_end(client)


class SimulatedStream:
    """A stream of a client; what is sent on it is handed to `deliver`."""

    transport = "gRPC"
    has_returned, is_away, node_count = True, False, 1

    def __init__(self, server: Server, node: Node, deliver: Callable[[Any], object], *, is_delta: bool) -> None:
        self.server, self.node, self._deliver = server, node, deliver
        make: Any = DeltaStream if is_delta else SotwStream
        self._core = make(server.memory, TtlMode.ENVOY, is_aggregated=True)
        self._channel: Channel | None = None
        self._generation = 0
        self._timer: asyncio.TimerHandle | None = None
        self.is_closed = False
        self.on_closed: Callable[[], object] = lambda: None
        server.streams[self] = None

    @property
    def name(self) -> str:
        """The node id."""
        return self.node.id

    identity = name

    @property
    def due_removals(self) -> frozenset[Key]:
        """The removals that wait for a timer: their users linger on a client of an earlier server."""
        if not isinstance(self._core, DeltaStream) or self._core.timer_at_s is None:
            return frozenset()
        return frozenset((url, name) for url, watch in self._core._watches.items() for name in watch.gone)

    async def open(self, first: SotwRequest | DeltaRequest) -> None:
        """Follow the channel of the node, which may hold something already."""
        channel = await self.server.channels.channel_of(self.node, holds=first.holds, holds_of=first.holds_of)
        if not self.is_closed:
            self._channel = channel
            channel.join(self)
            self.server.waking.follow(channel)

    def receive(self, request: Any) -> None:
        """Take a request."""
        if self._channel is None or self.is_closed:
            return
        reaction = self._core.receive_request(request, self._channel.streams.current, _now_s())
        if reaction.acknowledgement is not None and reaction.acknowledgement.nack is not None:
            self._channel.on_nack(self, reaction.acknowledgement.nack)
        self._channel.progressed(self)
        self._send(reaction.responses)

    def wake(self) -> None:
        """Look at the channel and the time."""
        if self.is_closed or self._channel is None:
            return
        snapshot, now_s, responses = self._channel.streams.current, _now_s(), ()
        if snapshot is not None and snapshot.generation != self._generation:
            self._generation = snapshot.generation
            responses = self._core.receive_snapshot(snapshot, now_s)
        elif (at_s := self._core.timer_at_s) is not None and at_s <= now_s:
            responses = self._core.receive_timer(now_s)
        self._send(responses)

    def _send(self, responses: Any) -> None:
        for response in responses:
            self._deliver(response)
        if self._timer is not None:
            self._timer.cancel()
        at_s = self._core.timer_at_s
        self._timer = None if at_s is None else asyncio.get_running_loop().call_at(max(at_s, _now_s()), self.wake)
        if self._channel is not None:
            self._channel.progressed(self)

    def close(self) -> None:
        """End the stream, on either side."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.server.streams.pop(self, None)
        if self._channel is not None:
            self._channel.leave(self)
        self.on_closed()

    def standing(self, step: Step) -> Standing:
        """Return where the client is with a step."""
        standing: Standing = self._core.standing(step)
        return standing

    def selected(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """Return those of some names of a type that the client subscribes to."""
        selected: frozenset[str] = self._core.selected(type_url, names)
        return selected

    reachable = selected

    def sync_state(self) -> SyncState:
        """Return how the client stands."""
        snapshot = None if self._channel is None else self._channel.streams.current
        return combined_state(self._core.sync_states(0 if snapshot is None else snapshot.generation))

    def status(self) -> ClientStatus:
        """Nothing is shown of it."""
        return ClientStatus(self.node, self.transport)

    def follow(self, channel: Channel) -> None:
        """Look at another channel from now on."""
        self._channel = channel
        self.server.waking.follow(channel)
        self.wake()

    @property
    def channel(self) -> Channel | None:
        """What it follows."""
        return self._channel


def _now_s() -> float:
    return asyncio.get_running_loop().time()
