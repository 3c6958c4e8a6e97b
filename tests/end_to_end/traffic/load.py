"""A constant load of HTTP requests, the backends that answer them, and a record of each request that failed.

Half of the clients keep their connection alive, the other half open a new one for each request.

What is a failed request: its connection could not be made, was reset or closed without a complete answer, the answer was not
200, or did not come in time. One case is none: a kept-alive connection that the server closes before it answers anything.
The server may close it at any time, and then a request without effects is sent again on a new connection (RFC 9112, 9.3.1 and
9.5). That is done once, and counted.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial

# Each client sends this often, so that the rate follows from their number.
PERIOD_S = 0.1
# No request takes so long, on a busy machine either.
PATIENCE_S = 20.0
# Of so many requests one is slow, where any is: changes come while it is under way.
SLOW_ONE_OF = 8
# As it is in the access log.
REQUEST_ID = "x-request"


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that failed.

    Attributes:
        request: its number, as in its header.
        at_s: the time on the monotonic clock.
        since_edit_s: the time since the last edit began.
        change: what was under way.
        reason: what happened.
        is_reused: it was not the first request of its connection.
    """

    request: int
    at_s: float
    since_edit_s: float
    change: str
    reason: str
    is_reused: bool


class RequestError(Exception):
    """What happened to a request. `is_unanswered`: its connection was closed before any byte of an answer."""

    def __init__(self, reason: str, *, is_unanswered: bool = False) -> None:
        super().__init__(reason)
        self.is_unanswered = is_unanswered


@dataclass
class Record:
    """What became of the requests.

    Attributes:
        change: the change that is under way.
        edited_at_s: when its last edit began.
        requests: how many were answered or failed, by change.
        failures: those that failed.
        repeated: how many were sent again, because their kept-alive connection had been closed; by change.
    """

    change: str = ""
    edited_at_s: float = field(default_factory=time.monotonic)
    requests: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    repeated: Counter[str] = field(default_factory=Counter)

    def begin(self, change: str) -> None:
        """Note that a change begins."""
        self.change, self.edited_at_s = change, time.monotonic()

    def fail(self, request: int, reason: str, *, is_reused: bool) -> None:
        """Note a failure."""
        now_s = time.monotonic()
        self.failures.append(
            Failure(request, now_s, now_s - self.edited_at_s, self.change, reason, is_reused=is_reused)
        )


class Connection(asyncio.Protocol):
    """A connection to Envoy, for one request after the other.

    Attributes:
        requests: how many were sent.
        is_ending: the server said that the last answer is the last.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.is_ending = False
        self._received = b""
        self._lost: str | None = None
        self._transport: asyncio.Transport | None = None
        self._changed = asyncio.Event()

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect."""
        try:
            _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        except OSError as error:
            raise RequestError(f"connect: {error.strerror}") from error
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Collect the answer."""
        self._received += data
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        self._lost = f"reset ({exc})" if exc else "closed"
        self._changed.set()

    async def ask(self, request: int, *, keep: bool) -> None:
        """Send a request and read its answer; RequestError where that fails."""
        assert self._transport is not None
        self.requests += 1
        self._received = b""
        header = f"GET /{request} HTTP/1.1\r\nhost: front\r\n{REQUEST_ID}: {request}\r\n"
        self._transport.write((header + ("\r\n" if keep else "connection: close\r\n\r\n")).encode())
        while not (answer := self._answer()):
            if self._lost is not None:
                raise RequestError(self._lost, is_unanswered=not self._received)
            self._changed.clear()
            await self._changed.wait()
        if answer[0] != "200":
            raise RequestError(" ".join(answer))

    def _answer(self) -> tuple[str, str] | None:
        head, blank, body = self._received.decode().partition("\r\n\r\n")
        if not blank:
            return None
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:])
        if len(body) < int(headers.get("content-length", 0)):
            return None
        self.is_ending = headers.get("connection") == "close"
        return head.split(" ", 2)[1], body[:80]

    def close(self) -> None:
        """Close it, whatever its state."""
        assert self._transport is not None
        self._transport.abort()


class Load:
    """The clients, and their record.

    Attributes:
        slow_s: how long backends take for some requests.
        connections: when it rises, all clients end their kept-alive connections and make new ones.
    """

    def __init__(self, port: int, rate: float, slow_s: float = 0.0) -> None:
        self.slow_s = slow_s
        self.record = Record()
        self.connections = 0
        self._port = port
        self._count = max(1, round(rate * PERIOD_S / 2))
        self._request = 0
        self._is_over = False
        self._has_ended = threading.Event()

    def stop(self) -> None:
        """Have each client end after its request."""
        self._is_over = True

    def wait(self) -> None:
        """Wait, in another thread, until all clients have ended."""
        self._has_ended.wait(PATIENCE_S)

    async def run(self) -> None:
        """Send requests until stopped."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._count):
                for keep in (True, False):
                    tasks.create_task(self._client((number + keep / 2) / self._count, keep=keep))
        self._has_ended.set()

    async def _client(self, share: float, *, keep: bool) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + share * PERIOD_S
        connection: Connection | None = None
        connections = self.connections
        while not self._is_over:
            await asyncio.sleep(due_s - loop.time())
            # Nobody makes up for time that was lost: the rate is the highest that there is.
            due_s = max(due_s + PERIOD_S, loop.time())
            if connection is not None and connections != self.connections:
                connection.close()
                connection = None
            connections = self.connections
            connection = await self._ask(connection, keep=keep)
        if connection is not None:
            connection.close()

    async def _ask(self, connection: Connection | None, *, keep: bool) -> Connection | None:
        """Make a request; return its connection, None where it has ended."""
        self._request += 1
        request, change = self._request, self.record.change
        try:
            async with asyncio.timeout(PATIENCE_S):
                if connection is not None:
                    try:
                        return await self._ask_by(connection, request, keep=keep)
                    except RequestError as error:
                        if not error.is_unanswered:
                            raise
                        self.record.repeated[change] += 1
                        connection = None
                connection = await Connection.open(self._port)
                return await self._ask_by(connection, request, keep=keep)
        except (RequestError, TimeoutError) as error:
            is_reused = connection is not None and connection.requests > 1
            self.record.fail(request, str(error) or "no answer in time", is_reused=is_reused)
        finally:
            self.record.requests[change] += 1
        return None

    async def _ask_by(self, connection: Connection, request: int, *, keep: bool) -> Connection | None:
        is_kept = False
        try:
            await connection.ask(request, keep=keep)
            is_kept = keep and not connection.is_ending
        except RequestError as error:
            # An answer that says no has come whole: its connection goes on, and so do its failures.
            is_kept = keep and str(error)[:1].isdigit() and not connection.is_ending
            if not is_kept:
                raise
            self.record.fail(request, str(error), is_reused=connection.requests > 1)
        finally:
            if not is_kept:
                connection.close()
        return connection if is_kept else None


class Backend(asyncio.Protocol):
    """Answers each request with 200 and the port that it came to, and keeps every connection.

    Args:
        slow_s: so long takes one of `SLOW_ONE_OF` requests.
    """

    def __init__(self, slow_s: float) -> None:
        self._slow_s = slow_s
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Prepare the answer."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        body = str(transport.get_extra_info("sockname")[1]).encode()
        self._answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        *requests, self._received = (self._received + data).split(b"\r\n\r\n")
        for request in requests:
            number = int(request.split(b" ", 2)[1].removeprefix(b"/"))
            delay_s = 0.0 if number % SLOW_ONE_OF else self._slow_s
            if delay_s:
                asyncio.get_running_loop().call_later(delay_s, self._write)
            else:
                self._write()

    def _write(self) -> None:
        assert self._transport is not None
        self._transport.write(self._answer)


@asynccontextmanager
async def backends(sockets: list[socket.socket], slow_s: float) -> AsyncIterator[None]:
    """Answer on these sockets."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(partial(Backend, slow_s), sock=one) for one in sockets]
    try:
        yield
    finally:
        for server in servers:
            server.close()


def bound_sockets(count: int) -> list[socket.socket]:
    """Return so many sockets with ports of their own, on which somebody will listen."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    return sockets


@contextmanager
def in_thread(sockets: list[socket.socket], load: Load, go: threading.Event) -> Iterator[None]:
    """Run backends on `sockets`, and from `go` on the load until it is stopped, in a thread beside the block."""
    is_up, is_over = threading.Event(), threading.Event()

    async def run() -> None:
        async with backends(sockets, load.slow_s):
            is_up.set()
            await asyncio.to_thread(go.wait)
            await load.run()
            await asyncio.to_thread(is_over.wait)

    thread = threading.Thread(target=asyncio.run, args=[run()], name="load")
    thread.start()
    is_up.wait()
    try:
        yield
    finally:
        go.set()
        load.stop()
        is_over.set()
        thread.join()
