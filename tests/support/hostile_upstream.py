"""A server that misbehaves, byte by byte: it accepts TCP connections, and does with each what a test says.

What is written here of HTTP/2 is what a gRPC client needs to believe that it talks to a server, and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

Behaviour = Callable[["HostileConnection"], Awaitable[object]]
"""What the server does with a connection; when it returns, the connection is closed."""

# Frame types of RFC 9113.
DATA, HEADERS, SETTINGS, PING, GOAWAY = 0x0, 0x1, 0x4, 0x6, 0x7
ACK, END_HEADERS = 0x1, 0x4
ENHANCE_YOUR_CALM = 0xB
# `:status: 200` and `content-type: application/grpc`, in HPACK without its tables.
_RESPONSE_HEADERS = b"\x88\x0f\x10\x10application/grpc"
_PREFACE_BYTES = 24


def frame(of_type: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    """Return a frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes((of_type, flags)) + stream.to_bytes(4, "big") + payload


def message_head(size_bytes: int) -> bytes:
    """Return what gRPC puts before a message of this size."""
    return b"\0" + size_bytes.to_bytes(4, "big")


@dataclass
class HostileConnection:
    """One connection of a client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, content: bytes) -> None:
        """Send bytes."""
        self.writer.write(content)
        await self.writer.drain()

    async def read_on(self) -> None:
        """Read until the client goes, and answer pings: the connection is alive."""
        while True:
            of_type, flags, payload = await self.next_frame()
            if of_type == PING and not flags & ACK:
                await self.say(frame(PING, payload, flags=ACK))

    async def next_frame(self) -> tuple[int, int, bytes]:
        """Return the type, the flags and the payload of the next frame."""
        head = await self.reader.readexactly(9)
        return head[3], head[4], await self.reader.readexactly(int.from_bytes(head[:3], "big"))

    async def shake_hands(self) -> None:
        """Be a server of HTTP/2."""
        await self.reader.readexactly(_PREFACE_BYTES)
        await self.say(frame(SETTINGS) + frame(SETTINGS, flags=ACK))

    async def open_stream(self) -> int:
        """Shake hands, wait for the first call, and answer it with headers; return the number of its stream."""
        await self.shake_hands()
        return await self.next_call()

    async def next_call(self) -> int:
        """Wait for another call, and answer it with headers; return the number of its stream."""
        while True:
            head = await self.reader.readexactly(9)
            await self.reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] == HEADERS:
                stream = int.from_bytes(head[5:], "big")
                await self.say(frame(HEADERS, _RESPONSE_HEADERS, flags=END_HEADERS, stream=stream))
                return stream


@dataclass
class HostileServer:
    """A server that runs.

    Attributes:
        address: where.
        connections: how many there were.
    """

    address: str = ""
    connections: int = 0


@asynccontextmanager
async def hostile(behaviour: Behaviour) -> AsyncIterator[HostileServer]:
    """Run a server as long as the context lasts."""
    server = HostileServer()
    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        serving.add(asyncio.current_task())
        # The client goes whenever it likes.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await behaviour(HostileConnection(reader, writer))
        serving.discard(asyncio.current_task())
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        for each in serving:
            if each is not None:
                each.cancel()
        await listening.wait_closed()
