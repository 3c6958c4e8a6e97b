"""A client on gRPC streams, reopened after a loss."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from enum import Enum
from types import TracebackType
from typing import Any, Protocol, Self

import grpc.aio

from fsxds.client.updates import ENDED_EARLY, ConnectionLostError, Update, WrongResponseError, lost_by
from fsxds.model.values import TypeUrl

# If a server sends without reading, requests to it pile up; this many are tolerated for a slow server.
MOST_UNSENT = 10_000
# A server that ended a stream too early to send a reason gets this time at the next attempt, before the first request.
TIME_TO_REJECT_S = 0.25


class _Signal(Enum):
    CONNECTED = "connected"


_Received = bytes | _Signal | ConnectionLostError


class Dialogue(Protocol):
    """Creates requests, and reads responses."""

    def first_requests(self) -> Iterator[bytes]:
        """Yield a stream's first requests."""

    def subscribe(self, type_url: TypeUrl, names: Iterable[str]) -> bytes:
        """Return the request for more names."""

    def unsubscribe(self, type_url: TypeUrl, names: Iterable[str]) -> bytes:
        """Return the request to unsubscribe."""

    def answer(self, update: Update, reason: str | None) -> bytes | None:
        """Return the ACK or NACK, if subscribed."""

    def read(self, data: bytes) -> Update:
        """Read a response."""


class StreamClient:
    """A client over one stream. Use as an async context manager.

    `next()` may be cancelled. When the stream ends, it raises ConnectionLostError; the following call opens a new stream
    with the same subscriptions. `on_connected` is called after each connect. Set `token`, a bearer token, and `headers`
    before use.
    """

    def __init__(self, channel: grpc.aio.Channel, method: str, dialogue: Dialogue) -> None:
        """Use a channel, which stays open; `method` is the streaming method's path."""
        self._method = channel.stream_stream(method)
        self._path = method
        self._dialogue = dialogue
        self._tasks: asyncio.TaskGroup = asyncio.TaskGroup()
        self._call: Any = None
        self._reading: asyncio.Task[None] | None = None
        self._outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._inbox: asyncio.Queue[_Received] = asyncio.Queue(maxsize=1)
        self._unanswered: Update | None = None
        self._was_lost = False
        self.token = ""
        self.headers: tuple[tuple[str, str], ...] = ()
        self.on_connected: Callable[[], None] = _nothing

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.disconnect()
        # Without the error of the body, which would become a group.
        await self._tasks.__aexit__(None, None, None)

    def subscribe(self, type_url: TypeUrl, *names: str) -> None:
        """Subscribe to more names, or everything."""
        self._send(self._dialogue.subscribe(type_url, names))

    def unsubscribe(self, type_url: TypeUrl, *names: str) -> None:
        """Unsubscribe from names."""
        self._send(self._dialogue.unsubscribe(type_url, names))

    async def next(self) -> Update:
        """Await the next update; ACK the previous one unless answered.

        Raises:
            ConnectionLostError: the stream ended, or there is none.
            WrongResponseError: the update cannot be accepted; a NACK was sent.
        """
        self.ack()
        if self._outbox.qsize() > MOST_UNSENT:
            self.disconnect()
            raise ConnectionLostError("the server does not read its requests", "RESOURCE_EXHAUSTED")
        if self._call is None:
            self._open()
        received = await self._receive()
        if isinstance(received, ConnectionLostError) and received.code == ENDED_EARLY:
            self.disconnect()
            self._open(TIME_TO_REJECT_S)
            received = await self._receive()
        if isinstance(received, ConnectionLostError):
            self.disconnect()
            self._was_lost = True
            raise received
        try:
            self._unanswered = self._dialogue.read(received)
        except WrongResponseError as error:
            self._answer(error.update, str(error))
            raise
        return self._unanswered

    async def _receive(self) -> bytes | ConnectionLostError:
        received = await self._inbox.get()
        while isinstance(received, _Signal):
            self._was_lost = False
            self.on_connected()
            received = await self._inbox.get()
        return received

    def ack(self) -> None:
        """ACK the last update now, unless answered."""
        if self._unanswered is not None:
            self._answer(self._unanswered, None)

    def nack(self, reason: str, update: Update | None = None) -> None:
        """NACK the last update, or the given one."""
        rejected = update or self._unanswered
        if rejected is None:
            raise ValueError("there is no unanswered update")
        self._answer(rejected, reason)

    def defer(self) -> Update:
        """Return the last update for a later `accept`."""
        if self._unanswered is None:
            raise ValueError("there is no unanswered update")
        update, self._unanswered = self._unanswered, None
        return update

    def accept(self, update: Update) -> None:
        """ACK a deferred update."""
        self._answer(update, None)

    async def finish(self, patience_s: float = 1.0) -> None:
        """ACK the last update; end the stream once requests are sent, dropping responses."""
        self.ack()
        if self._call is not None:
            self._outbox.put_nowait(None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    while not isinstance(await self._inbox.get(), ConnectionLostError):
                        pass
        self.disconnect()

    def disconnect(self) -> None:
        """End the stream; `next()` opens another one."""
        self._unanswered = None
        if self._reading is not None:
            self._reading.cancel()
            self._call.cancel()
            # If the server ended the call, gRPC's task that waits for requests ends only with their end.
            self._outbox.put_nowait(None)
        self._call = self._reading = None

    def _answer(self, update: Update, reason: str | None) -> None:
        self._unanswered = None
        self._send(self._dialogue.answer(update, reason))

    def _send(self, request: bytes | None) -> None:
        """Dropped without a stream: the next one starts with every subscription."""
        if request is not None and self._call is not None:
            self._outbox.put_nowait(request)

    def _open(self, waits_s: float = 0.0) -> None:
        self._outbox, self._inbox = asyncio.Queue(), asyncio.Queue(maxsize=1)
        for request in self._dialogue.first_requests():
            self._outbox.put_nowait(request)
        # At first an unreachable server is an immediate error; after a lost stream its return is awaited.
        metadata = (*credentials_of(self.token), *self.headers)
        requests = _taken_from(self._outbox, waits_s)
        self._call = self._method(requests, wait_for_ready=self._was_lost, metadata=metadata)
        self._reading = self._tasks.create_task(_read(self._call, self._inbox, self._path))


def credentials_of(token: str) -> tuple[tuple[str, str], ...]:
    """Return headers with the token, if any."""
    return (("authorization", f"Bearer {token}"),) if token else ()


def _nothing() -> None:
    """The default of `on_connected`."""


async def _taken_from(outbox: asyncio.Queue[bytes | None], waits_s: float) -> AsyncIterator[bytes]:
    await asyncio.sleep(waits_s)
    while (request := await outbox.get()) is not None:
        yield request


async def _read(call: Any, inbox: asyncio.Queue[_Received], method: str) -> None:
    """Cancelling a read would cancel the call."""
    try:
        await call.wait_for_connection()
        await inbox.put(_Signal.CONNECTED)
        while (data := await call.read()) is not grpc.aio.EOF:
            await inbox.put(data)
    except grpc.aio.AioRpcError as error:
        await inbox.put(lost_by(error.code(), error.details() or "", method))
    else:
        await inbox.put(ConnectionLostError("the server ended the stream", "OK"))
