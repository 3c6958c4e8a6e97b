"""One stream: requests to its core as they come, responses to the client in the core's order, one at a time.

An idle stream is one task, which waits for the next request. News, and the core's alarm clock, come from outside: then the
core is asked at once, and only where it has something to say a second task is made to say it. What happens while a response
is being written is looked at when it is written; so a slow client skips what it missed, and costs one response at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import grpc.aio

from fsxds.errors import ProtocolError
from fsxds.events import (
    AckReceived,
    ClientLedger,
    InternalError,
    NackReceived,
    Observer,
    RequestRejected,
    ResponseSent,
    StreamClosed,
    StreamOpened,
)
from fsxds.protocol.messages import (
    Acknowledgement,
    ClientStatus,
    DeltaRequest,
    DeltaResponse,
    Node,
    Reaction,
    SotwRequest,
    SotwResponse,
    WatchStatus,
)
from fsxds.protocol.subscription import Subscription, files_of
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Snapshot
from fsxds.store import SnapshotStore
from fsxds.transports.grpc_streams.calls import INTERNAL, STOPPING, where
from fsxds.transports.grpc_streams.requests import Context, DiscoveryMethod, RequestReader, Variant, peer_of
from fsxds.transports.grpc_streams.responses import ResponseWriter
from fsxds.values import TypeUrl

# So many types that are not served are told per stream; a client that goes on is not listened to for its errors.
MOST_IGNORED_TOLD = 8

# Timers may fire a hair early; who asked for a moment is to find it reached.
HAIR_S = 0.002


class StreamCore(Protocol):
    """What `SotwStream` and `DeltaStream` have in common; requests and responses are those of its variant."""

    @property
    def node(self) -> Node | None:
        """Who asks, once it was told."""

    @property
    def timer_at_s(self) -> float | None:
        """When `receive_timer` has something to do."""

    def receive_request(self, request: Any, snapshot: Snapshot | None, now_s: float) -> Reaction[Any]:
        """Take a request."""

    def receive_snapshot(self, snapshot: Snapshot, now_s: float) -> tuple[Any, ...]:
        """Take news."""

    def receive_timer(self, now_s: float) -> tuple[Any, ...]:
        """Look at the clock."""

    def subscription_of(self, type_url: TypeUrl) -> Subscription:
        """Tell what the client wants of a type."""

    def statistics(self) -> tuple[WatchStatus, ...]:
        """Tell where each type stands."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all streams of a server share; `spawn` makes a task, which must not raise."""

    store: SnapshotStore
    observer: Observer
    clients: ClientLedger
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    reader: RequestReader
    writer: ResponseWriter


class StreamCall:
    """Carries one stream. What is said on it is decided by its core.

    Args:
        shared: what it has in common with others.
        method: what was called.
        core: decides.
        context: reads from the client, and writes to it.
    """

    __slots__ = (
        *("_alarm", "_closed", "_context", "_core", "_idle", "_ignored", "_is_due", "_loop"),
        *("_method", "_peer", "_seen", "_shared", "_speaking", "_token"),
    )

    def __init__(self, shared: Surroundings, method: DiscoveryMethod, core: StreamCore, context: Context) -> None:
        self._shared = shared
        self._method = method
        self._core = core
        self._context = context
        self._peer = peer_of(context.peer())
        # Asking which loop runs takes longer than asking it for the time.
        self._loop = asyncio.get_running_loop()
        self._token: object | None = None
        self._alarm: asyncio.TimerHandle | None = None
        # Somebody writes; who wants to write next waits for `_idle`, which is there only while somebody waits.
        self._speaking = False
        self._idle: asyncio.Event | None = None
        # There may be news that the core was not asked about.
        self._is_due = False
        # The generation of the snapshot that it was asked about last.
        self._seen = 0
        self._closed = False
        self._ignored: tuple[str, ...] = ()

    async def converse(self) -> None:
        """Serve the stream until the client is done with it."""
        try:
            while (content := await self._context.read()) is not grpc.aio.EOF:
                await self._receive(content)
                # 61 kB of Envoy's, which an idle stream must not hold.
                del content
            await self._turn()
        except ProtocolError as error:
            await self._refuse(error)
        finally:
            self._close()

    def wake(self) -> None:
        """Look at news: of the store, or of the clock. What there is to say is said in a task of its own."""
        self._is_due = True
        if self._speaking or self._closed:
            return
        try:
            responses = self._look()
            if not responses:
                self._set_alarm()
                return
        # The edge of every stream, beside that of its handler: whoever wakes it wakes others too.
        except Exception as error:  # noqa: BLE001
            self._shared.spawn(self._fail(error))
            return
        self._speaking = True
        self._shared.spawn(self._speak_alone(responses))

    async def end(self) -> None:
        """End the stream after the response that is being written."""
        self._closed = True
        await self._turn()
        with suppress(grpc.aio.BaseError):
            await self._context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)

    async def _receive(self, content: bytes) -> None:
        request = self._read(content)
        if self._is_ignored(request.type_url):
            return
        await self._turn()
        self._speaking = True
        snapshot = self._shared.store.current
        reaction = self._core.receive_request(request, snapshot, self._loop.time())
        self._note_open()
        if reaction.acknowledgement is not None:
            self._tell(request.type_url, reaction.acknowledgement, snapshot)
        del request
        await self._speak(reaction.responses)

    def _read(self, content: bytes) -> SotwRequest | DeltaRequest:
        reader = self._shared.reader
        read = reader.delta if self._method.variant is Variant.DELTA else reader.sotw
        return read(content, self._method.row, self._peer, knows_node=self._core.node is not None)

    async def _turn(self) -> None:
        """Wait until nobody writes."""
        while self._speaking:
            if self._idle is None:
                self._idle = asyncio.Event()
            await self._idle.wait()

    async def _speak_alone(self, responses: tuple[Any, ...]) -> None:
        try:
            await self._speak(responses)
        except grpc.aio.BaseError:
            # The client is gone; whoever reads from it finds the same, and ends the stream.
            return
        # The same edge, in a task of its own.
        except Exception as error:  # noqa: BLE001
            await self._fail(error)

    async def _fail(self, error: Exception) -> None:
        """End the stream because of an error of fsxds that its handler does not see."""
        self._shared.observer(InternalError(where(self._method.name), error))
        self._closed = True
        self._set_alarm()
        with suppress(grpc.aio.BaseError):
            await self._context.abort(grpc.StatusCode.INTERNAL, INTERNAL)

    async def _speak(self, responses: tuple[Any, ...]) -> None:
        """Write responses, and what news calls for meanwhile; give the turn to whoever waits for it."""
        try:
            while True:
                for response in responses:
                    if self._closed:
                        return
                    await self._context.write(self._shared.writer.write(response))
                    self._tell_sent(response)
                if self._idle is not None or not self._is_due:
                    break
                responses = self._look()
        finally:
            self._speaking = False
            if self._idle is not None:
                self._idle.set()
                self._idle = None
        self._set_alarm()

    def _look(self) -> tuple[Any, ...]:
        """Ask the core what it says to what is current now, or to the time."""
        self._is_due = False
        snapshot, now_s = self._shared.store.current, self._loop.time()
        if snapshot is not None and snapshot.generation != self._seen:
            self._seen = snapshot.generation
            return self._core.receive_snapshot(snapshot, now_s)
        at_s = self._core.timer_at_s
        if at_s is None or at_s > now_s + HAIR_S:
            return ()
        return self._core.receive_timer(max(now_s, at_s))

    def _set_alarm(self) -> None:
        at_s = None if self._closed else self._core.timer_at_s
        if self._alarm is not None:
            if self._alarm.when() == at_s:
                return
            self._alarm.cancel()
            self._alarm = None
        if at_s is not None:
            self._alarm = self._loop.call_at(at_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.wake()

    def _node(self) -> Node:
        return self._core.node or Node("", peer=self._peer)

    def _note_open(self) -> None:
        if self._token is None:
            self._token = self._shared.clients.opened(self._status)
            self._shared.observer(StreamOpened(self._node(), self._method.name, self._peer))

    def _status(self) -> ClientStatus:
        return ClientStatus(self._node(), self._method.name, self._core.statistics())

    def _close(self) -> None:
        self._closed = True
        self._set_alarm()
        if self._token is not None:
            self._shared.clients.closed(self._token)
            self._shared.observer(StreamClosed(self._node(), self._method.name, self._peer))

    def _tell_sent(self, response: SotwResponse | DeltaResponse) -> None:
        subscription = self._core.subscription_of(response.type_url)
        self._shared.observer(ResponseSent(self._node(), subscription, response.version))

    def _tell(self, type_url: TypeUrl, verdict: Acknowledgement, snapshot: Snapshot | None) -> None:
        subscription = self._core.subscription_of(type_url)
        if verdict.accepted:
            self._shared.observer(AckReceived(self._node(), subscription, verdict.version))
        else:
            files = () if snapshot is None else files_of(subscription, verdict.version, snapshot)
            self._shared.observer(NackReceived(self._node(), subscription, verdict, files))

    def _is_ignored(self, type_url: TypeUrl) -> bool:
        """Tell whether an aggregated stream speaks of what is not served there; it goes on without it."""
        row = BY_TYPE_URL.get(type_url)
        if row is not None and (row.has_sotw or self._method.variant is Variant.DELTA):
            return False
        if type_url not in self._ignored and len(self._ignored) < MOST_IGNORED_TOLD:
            self._ignored = (*self._ignored, type_url)
            fact = "is not served" if row is None else "is served over Delta alone"
            message = f"type_url: {type_url[:200]} {fact}; its requests on this stream are ignored"
            self._shared.observer(RequestRejected(self._peer, "IGNORED", message))
        return True

    async def _refuse(self, error: ProtocolError) -> None:
        self._shared.observer(RequestRejected(self._peer, error.code, str(error)))
        await self._turn()
        # Who stops the server may have ended the stream meanwhile.
        if not self._closed:
            self._closed = True
            await self._context.abort(grpc.StatusCode[error.code], str(error))
