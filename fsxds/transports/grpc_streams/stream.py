"""One stream: passes requests to its core, and the core's responses to the client.

An idle stream is one task, waiting for a request. Snapshots and timers ask the core at once; only its responses need a
second task. Events during a write wait: a slow client skips versions, and costs one response at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

import grpc.aio

from fsxds.events.client_events import (
    AuthorityMissing,
    MembersNotKept,
    RequestRejected,
    ResponseSent,
    StreamClosed,
    StreamOpened,
    ack_or_nack,
)
from fsxds.events.event import Observer
from fsxds.events.process_events import InternalError
from fsxds.model.errors import ProtocolError
from fsxds.model.relay_ids import RelayIds
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.values import TypeUrl
from fsxds.protocol.delta import DeltaStream
from fsxds.protocol.messages import (
    Acknowledgement,
    ClientStatus,
    DeltaResponse,
    Node,
    SotwResponse,
    SyncState,
    combined_state,
)
from fsxds.protocol.sotw import SotwStream
from fsxds.protocol.subscription import SharedMemory, reason_of
from fsxds.protocol.ttl import TtlMode
from fsxds.rollout import Step
from fsxds.rollout.step import Standing
from fsxds.runtime.channels import Channel
from fsxds.transports.exchange import Clients, Exchange, Requester, check_page, peer_of, peer_of_call
from fsxds.transports.grpc_streams.stream_requests import (
    STOPPING,
    Context,
    DiscoveryMethod,
    GrpcRequestReader,
    where,
)
from fsxds.transports.grpc_streams.stream_responses import ResponseWriter, Waking
from fsxds.transports.limits import report_rejection
from fsxds.transports.rest.poll_responses import INTERNAL

# Reported ignored types and rejected names per stream; more are ignored silently.
MOST_IGNORED_REPORTED = 8
LONGEST_IGNORED = 200

# Timers may fire a little early.
TIMER_TOLERANCE_S = 0.002

Responses = tuple[SotwResponse | DeltaResponse, ...]
StreamCore = SotwStream | DeltaStream


class StreamContext:
    """Shared by a server's streams.

    Attributes:
        forgets_members: without a state file, a restart will lose removals; not reported yet.
        knows_authority_is_missing: a client that asks without authority was reported.
        tasks: of unrequested responses; set before the first stream.
        ttl_mode: resources that keep their time to live.
    """

    def __init__(
        self, exchange: Exchange, observer: Observer, registry: Clients, relays: RelayIds | None = None
    ) -> None:
        self.exchange = exchange
        self.limiter, self.access = exchange.limiter, exchange.access
        self.observer = observer
        self.registry = registry
        settings = exchange.limiter.settings
        self.ttl_mode = TtlMode(settings.ttl)
        self.forgets_members = settings.state is None
        self.knows_authority_is_missing = False
        self.relays = relays or RelayIds()
        channels = exchange.channels
        self.memory = SharedMemory(channels.on_demand.unanswered, lambda: channels.rollout)
        self.reader = GrpcRequestReader(
            lambda: self.limiter.settings.max_names, lambda: self.limiter.settings.authority
        )
        # A function, as the relays downstream change.
        self.writer = ResponseWriter(
            passes_redirects=settings.redirects == "client", identifier=lambda: self.relays.identifier
        )
        self.waking = Waking(channels.on_demand)
        self.tasks: asyncio.TaskGroup

    def admit(self, context: Context) -> None:
        """Count a call. Raises ProtocolError for a too fast peer, or a web page (gRPC-Web)."""
        self.limiter.admit_request(peer_of(context.peer()))
        check_page(dict(context.invocation_metadata() or ()), origins=self.limiter.settings.cors_origin or ())

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Start a task, which must not raise."""
        self.tasks.create_task(work)


class StreamCall:
    """Carries one stream, as its core decides."""

    transport: Final = "gRPC"
    node_count = 1
    # The stream is open.
    has_returned = True
    is_away = False

    __slots__ = (
        "_announced",
        "_channel",
        "_context",
        "_core",
        "_detected_s",
        "_generation",
        "_has_answers",
        "_ignored",
        "_is_closed",
        "_is_due",
        "_is_writing",
        "_loop",
        "_method",
        "_name_count",
        "_peer",
        "_sender",
        "_shared",
        "_since_s",
        "_timer",
        "_token",
        "_written",
    )

    def __init__(self, shared: StreamContext, method: DiscoveryMethod, core: StreamCore, context: Context) -> None:
        self._shared = shared
        self._method = method
        self._core = core
        self._context = context
        self._sender = peer_of_call(context)
        self._peer = self._sender.address
        # Faster than looking up the running loop each time.
        self._loop = asyncio.get_running_loop()
        self._since_s = self._loop.time()
        # None until the first request.
        self._channel: Channel | None = None
        # Of the registry; None until the first request.
        self._token: object | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Another task that wants to write waits for `_written`.
        self._is_writing = False
        self._written: asyncio.Event | None = None
        # A snapshot or time may be unprocessed.
        self._is_due = False
        # Of the last processed snapshot.
        self._generation = 0
        # Upstreams answered since the core's last look.
        self._has_answers = False
        # Of the last processed change; None if it was none of files.
        self._detected_s: float | None = None
        self._is_closed = False
        # In the limiter's count.
        self._name_count = 0
        self._ignored: tuple[str, ...] = ()
        # Of an ignored request, for a client that does not repeat it.
        self._announced: Node | None = None

    async def converse(self) -> None:
        """Serve until the client ends the stream."""
        try:
            # Strangers must not make the server read their requests.
            self._shared.access.current.check_peer(self._sender)
            while (content := await self._context.read()) is not grpc.aio.EOF:
                await self._receive(content)
                # Envoy's request takes 61 kB.
                del content
            await self._wait_for_turn()
        except ProtocolError as error:
            report_rejection(self._shared.observer, self._peer, error.code, error)
            await self._wait_for_turn()
            # The server's end may have ended the stream.
            if not self._is_closed:
                self._is_closed = True
                await self._context.abort(grpc.StatusCode[error.code], str(error))
        finally:
            self._close()
            # gRPC rejects a status during a write.
            await self._wait_for_turn()

    @property
    def name(self) -> str:
        """As in the log."""
        return self.node.id or self._peer

    @property
    def node(self) -> Node:
        """As in the first request."""
        return self._core.node or Node("", peer=self._peer)

    @property
    def identity(self) -> str:
        """See `ChannelClient`."""
        return self._shared.access.current.identity_of(self._sender, self.node) or self.name

    def standing(self, step: Step) -> Standing:
        """See `ChannelClient`."""
        return self._core.standing(step)

    def selected(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """See `ChannelClient`."""
        return self._core.selected(type_url, names)

    reachable = selected

    def sync_state(self) -> SyncState:
        """See `ChannelClient`."""
        snapshot = None if self._channel is None else self._channel.streams.current
        return combined_state(self._core.sync_states(0 if snapshot is None else snapshot.generation))

    def status(self) -> ClientStatus:
        """See `ChannelClient`."""
        return ClientStatus(self.node, self._method.name, self._core.statistics(), self._since_s)

    def follow(self, channel: Channel) -> None:
        """Follow another channel, already joined."""
        self._channel = channel
        self._shared.waking.follow(channel)
        self.wake()

    def wake(self) -> None:
        """Process snapshot and time; a separate task writes."""
        self._is_due = True
        if self._is_writing or self._is_closed:
            return
        try:
            responses = self._look()
            if not responses:
                self._set_timer()
                self._progress()
                return
        # The edge of every stream: the caller wakes other streams too.
        except Exception as error:  # noqa: BLE001
            self._is_closed = True
            self._shared.spawn(self._fail(error))
            return
        self._is_writing = True
        self._shared.spawn(self._write_apart(responses))

    def wake_for_answers(self) -> None:
        """Process upstreams' answers."""
        self._has_answers = True
        self.wake()

    def check_access(self) -> None:
        """End the stream if its node or types are denied."""
        if self._channel is None or self._is_closed:
            return
        try:
            self._check_node(self._core.node)
            for watch in self._core.statistics():
                self._shared.access.current.check_type(self._sender, watch.type_url)
        except ProtocolError as error:
            report_rejection(self._shared.observer, self._peer, error.code, error)
            self._is_closed = True
            self._shared.spawn(self._end_with(error.code, str(error)))

    async def end(self) -> None:
        """End the stream after the present response."""
        await self._end_with("UNAVAILABLE", STOPPING)

    async def _receive(self, content: bytes) -> None:
        request = self._shared.reader.read(content, self._method, self._peer, knows_node=self._core.node is not None)
        type_url = request.type_url
        if self._is_ignored(type_url):
            self._announced = self._announced or request.node
            return
        if self._announced is not None and request.node is None and self._core.node is None:
            request = replace(request, node=self._announced)
        for name, reason in request.rejected_names.items():
            self._report_ignored(name, "INVALID_ARGUMENT", reason_of(reason))
        await self._wait_for_turn()
        if self._channel is None:
            requester = Requester(self._sender, request.node or Node("", peer=self._peer))
            channel = await self._shared.exchange.channel_of(requester, holds=request.holds, holds_of=request.holds_of)
            channel.join(self)
            self._shared.waking.follow(channel)
            self._channel = channel
        elif request.node is not None:
            # Checked once per stream, unless the node comes late.
            self._check_node(request.node)
        snapshot = self._channel.streams.current
        # The reader and the core are of one variant.
        reaction = self._core.receive_request(cast("Any", request), snapshot, self._loop.time())
        self._shared.exchange.channels.on_demand.ask(self, type_url, self._core.subscription_of(type_url).asked)
        self._note_waiting()
        without_authority = request.without_authority
        del request
        self._shared.limiter.hold_names(self._core.name_count, self._name_count)
        self._name_count = self._core.name_count
        if self._token is None:
            self._token = self._shared.registry.opened(self.status)
            self._shared.observer(StreamOpened(self.node, self._method.name, self._peer))
        if reaction.acknowledgement is not None:
            self._report_answer(type_url, reaction.acknowledgement)
        if self._shared.forgets_members and self._core.has_members:
            self._shared.forgets_members = False
            self._shared.observer(MembersNotKept(self.node))
        if without_authority and not self._shared.knows_authority_is_missing:
            self._shared.knows_authority_is_missing = True
            authority = self._shared.limiter.settings.authority
            self._shared.observer(AuthorityMissing(self.node, without_authority, authority))
        # It may be the ACK that a step waits for, and another step may follow before the responses.
        self._progress()
        await self._write(reaction.responses)

    def _report_answer(self, type_url: TypeUrl, acknowledgement: Acknowledgement) -> None:
        if self._channel is not None:
            subscription, snapshot = self._core.subscription_of(type_url), self._channel.streams.current
            self._shared.observer(ack_or_nack(self.node, subscription, acknowledgement, snapshot))
            if acknowledgement.nack is not None:
                self._channel.on_nack(self, acknowledgement.nack)

    def _note_waiting(self) -> None:
        if self._core.awaits_answers and not self._is_closed:
            self._shared.waking.awaiting[self.wake_for_answers] = None
        else:
            self._shared.waking.awaiting.pop(self.wake_for_answers, None)

    def _check_node(self, node: Node | None) -> None:
        self._shared.exchange.check(Requester(self._sender, node or Node("", peer=self._peer)))

    async def _wait_for_turn(self) -> None:
        while self._is_writing:
            if self._written is None:
                self._written = asyncio.Event()
            await self._written.wait()

    async def _write_apart(self, responses: Responses) -> None:
        try:
            await self._write(responses, self._detected_s)
        except grpc.aio.BaseError:
            # The reading task finds the same, and ends the stream.
            return
        # The same edge, in a separate task.
        except Exception as error:  # noqa: BLE001
            await self._fail(error)

    async def _write(self, responses: Responses, detected_s: float | None = None) -> None:
        """Write responses, then those to events meanwhile, until another task waits for its turn.

        `detected_s` is of the causing change; None if the client asked.
        """
        self._is_writing = True
        try:
            while True:
                for response in responses:
                    if self._is_closed:
                        return
                    await self._context.write(self._shared.writer.write(response))
                    subscription = self._core.subscription_of(response.type_url)
                    self._shared.observer(ResponseSent(self.node, subscription, response.version, detected_s))
                if self._written is not None or not self._is_due:
                    break
                responses = self._look()
                detected_s = self._detected_s
        finally:
            self._is_writing = False
            if self._written is not None:
                self._written.set()
                self._written = None
        self._set_timer()
        self._progress()

    def _progress(self) -> None:
        if self._channel is not None:
            self._channel.progressed(self)

    def _look(self) -> Responses:
        self._is_due = False
        snapshot = None if self._channel is None else self._channel.streams.current
        now_s = self._loop.time()
        has_answers, self._has_answers, self._detected_s = self._has_answers, False, None
        is_newer = snapshot is not None and snapshot.generation != self._generation
        if snapshot is not None and (is_newer or has_answers):
            if is_newer and self._channel is not None:
                self._detected_s = self._channel.detected_s
            self._generation = snapshot.generation
            responses = self._core.receive_snapshot(snapshot, now_s)
            self._note_waiting()
            return responses
        at_s = self._core.timer_at_s
        if at_s is None or at_s > now_s + TIMER_TOLERANCE_S:
            return ()
        return self._core.receive_timer(max(now_s, at_s))

    def _set_timer(self) -> None:
        at_s = None if self._is_closed else self._core.timer_at_s
        if self._timer is not None:
            if self._timer.when() == at_s:
                return
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            self._timer = self._loop.call_at(at_s, self._receive_timer)

    def _receive_timer(self) -> None:
        self._timer = None
        self.wake()

    def _is_ignored(self, type_url: TypeUrl) -> bool:
        """On an aggregated stream, after a report."""
        try:
            self._shared.access.current.check_type(self._sender, type_url)
        except ProtocolError as error:
            if not self._method.is_aggregated:
                raise
            self._report_ignored(type_url, error.code, str(error))
            return True
        if self._method.serves(type_url):
            return False
        fact = "is served over Delta alone" if type_url in BY_TYPE_URL else "is not served"
        message = f"type_url: {type_url[:LONGEST_IGNORED]} {fact}; its requests on this stream are ignored"
        self._report_ignored(type_url, "IGNORED", message)
        return True

    def _report_ignored(self, ignored: str, status: str, reason: str) -> None:
        # Kept for as long as the stream; clients send megabytes.
        ignored = ignored[:LONGEST_IGNORED]
        if ignored not in self._ignored and len(self._ignored) < MOST_IGNORED_REPORTED:
            self._ignored = (*self._ignored, ignored)
            self._shared.observer(RequestRejected(self._peer, status, reason))

    async def _fail(self, error: Exception) -> None:
        """End the stream after an error that its handler does not see.

        gRPC would reject a status during a write, and the client wait for ever.
        """
        self._shared.observer(InternalError(where(self._method.name), error))
        await self._end_with("INTERNAL", INTERNAL.message)

    async def _end_with(self, code: str, reason: str) -> None:
        self._is_closed = True
        self._set_timer()
        await self._wait_for_turn()
        with suppress(grpc.aio.BaseError):
            await self._context.abort(grpc.StatusCode[code], reason)

    def _close(self) -> None:
        self._is_closed = True
        self._shared.limiter.release_names(self._name_count)
        self._name_count = 0
        self._set_timer()
        self._shared.exchange.channels.on_demand.forget(self)
        self._note_waiting()
        if self._channel is not None:
            self._channel.leave(self)
        if self._token is not None:
            self._shared.registry.closed(self._token)
            self._shared.observer(StreamClosed(self.node, self._method.name, self._peer))
