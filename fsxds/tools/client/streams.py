"""A client on gRPC streams: one at a time, opened again after it was lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from enum import Enum
from types import TracebackType
from typing import Any, Protocol, Self

import grpc.aio

from fsxds.tools.client.messages import LostError, Update, WrongAnswerError, lost_by
from fsxds.values import TypeUrl


class _Signal(Enum):
    """What is heard beside responses and the end."""

    CONNECTED = "connected"


_Heard = bytes | _Signal | LostError


class Dialogue(Protocol):
    """What a client says, and what it makes of the answers: `sotw.SotwDialogue` or `delta.DeltaDialogue`."""

    def opening(self) -> Iterator[bytes]:
        """Begin a stream."""

    def subscribe(self, type_url: TypeUrl, names: Iterable[str]) -> bytes:
        """Ask for more names."""

    def unsubscribe(self, type_url: TypeUrl, names: Iterable[str]) -> bytes:
        """Ask for fewer names."""

    def judge(self, update: Update, reason: str | None) -> bytes | None:
        """Say ACK, or NACK; nothing of a type that was not asked for."""

    def read(self, data: bytes) -> Update:
        """Read a response."""


class StreamClient:
    """A client over one stream. Use as an async context manager.

    It can be cancelled while it waits in `next()`: nothing is lost. When the stream ends, `next()` raises LostError, and
    opens a new one when it is called again, with what the client holds by then. `on_connected` is called when there is a
    connection, the first or another one.
    """

    def __init__(self, channel: grpc.aio.Channel, method: str, dialogue: Dialogue) -> None:
        """Speak over a channel, which is left open in the end.

        Args:
            channel: see `channels.open_channel`.
            method: see `channels.method_of` and `channels.ads_method`.
            dialogue: what to say.
        """
        self._method = channel.stream_stream(method)
        self._path = method
        self._dialogue = dialogue
        self._tasks: asyncio.TaskGroup = asyncio.TaskGroup()
        self._call: Any = None
        self._reading: asyncio.Task[None] | None = None
        self._outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._inbox: asyncio.Queue[_Heard] = asyncio.Queue(maxsize=1)
        self._unjudged: Update | None = None
        self._was_lost = False
        self.on_connected: Callable[[], None] = _nothing

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.disconnect()
        # Without the error of the body, which would come out as a group.
        await self._tasks.__aexit__(None, None, None)

    def subscribe(self, type_url: TypeUrl, *names: str) -> None:
        """Ask for names of a type beside those asked for before; without any, for everything."""
        self._say(self._dialogue.subscribe(type_url, names))

    def unsubscribe(self, type_url: TypeUrl, *names: str) -> None:
        """Let go of names of a type."""
        self._say(self._dialogue.unsubscribe(type_url, names))

    async def next(self) -> Update:
        """Wait for the next update, after an ACK to the one before where it has no verdict yet.

        Raises:
            LostError: the stream ended, or there is none.
            WrongAnswerError: the update cannot be taken, and was refused with a NACK.
        """
        self.ack()
        if self._call is None:
            self._open()
        heard = await self._inbox.get()
        while isinstance(heard, _Signal):
            self._was_lost = False
            self.on_connected()
            heard = await self._inbox.get()
        if isinstance(heard, LostError):
            self.disconnect()
            self._was_lost = True
            raise heard
        try:
            self._unjudged = self._dialogue.read(heard)
        except WrongAnswerError as error:
            self._judge(error.update, str(error))
            raise
        return self._unjudged

    def ack(self) -> None:
        """Accept the last update now; nothing if it has its verdict."""
        if self._unjudged is not None:
            self._judge(self._unjudged, None)

    def nack(self, reason: str, update: Update | None = None) -> None:
        """Refuse the last update, or the one given."""
        refused = update or self._unjudged
        if refused is None:
            raise ValueError("there is no update without a verdict")
        self._judge(refused, reason)

    def defer(self) -> Update:
        """Leave the last update without a verdict, and return it: for `accept`, later or never."""
        if self._unjudged is None:
            raise ValueError("there is no update without a verdict")
        update, self._unjudged = self._unjudged, None
        return update

    def accept(self, update: Update) -> None:
        """Accept an update that was deferred."""
        self._judge(update, None)

    async def finish(self, patience_s: float = 1.0) -> None:
        """Accept the last update, and end the stream when all is said; what the server says meanwhile is not heard."""
        self.ack()
        if self._call is not None:
            self._outbox.put_nowait(None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    while not isinstance(await self._inbox.get(), LostError):
                        pass
        self.disconnect()

    def disconnect(self) -> None:
        """End the stream; the next `next()` opens another one."""
        self._unjudged = None
        if self._reading is not None:
            self._reading.cancel()
            self._call.cancel()
        self._call = self._reading = None

    def _judge(self, update: Update, reason: str | None) -> None:
        self._unjudged = None
        self._say(self._dialogue.judge(update, reason))

    def _say(self, request: bytes | None) -> None:
        """Send a request. What is said before there is a stream, the stream begins with anyway."""
        if request is not None and self._call is not None:
            self._outbox.put_nowait(request)

    def _open(self) -> None:
        self._outbox, self._inbox = asyncio.Queue(), asyncio.Queue(maxsize=1)
        for request in self._dialogue.opening():
            self._outbox.put_nowait(request)
        # At first a server that is not there is told at once; who had a connection waits until it is back.
        self._call = self._method(_taken_from(self._outbox), wait_for_ready=self._was_lost)
        self._reading = self._tasks.create_task(_read(self._call, self._inbox, self._path))


def _nothing() -> None:
    """Hear of a connection, and do nothing."""


async def _taken_from(outbox: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
    while (request := await outbox.get()) is not None:
        yield request


async def _read(call: Any, inbox: asyncio.Queue[_Heard], method: str) -> None:
    """Pass on what a call tells, and in the end how it ended. Cancelling a read would cancel the call."""
    try:
        await call.wait_for_connection()
        await inbox.put(_Signal.CONNECTED)
        while (data := await call.read()) is not grpc.aio.EOF:
            await inbox.put(data)
    except grpc.aio.AioRpcError as error:
        await inbox.put(lost_by(error.code(), error.details() or "", method))
    else:
        await inbox.put(LostError("the server ended the stream", "OK"))
