"""A real server in this process whose clients send anything: what they send, and what must not come of it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
from hypothesis import strategies as st

from fsxds.settings.forms import TcpAddress
from fsxds.settings.options import Settings
from tests.support.errors import Recorder
from tests.support.grpc_clients import GrpcServer, serving_grpc
from tests.support.patience import PATIENCE_S
from tests.support.polls import Server, envoy_catalogue, named, running

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# What a client may be told. The others would say that fsxds failed.
REPLIES = frozenset({200, 304, 400, 404, 405, 408, 411, 413, 414, 415, 417, 429, 431, 501, 503, 505})
CODES = frozenset(
    {
        *(grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED),
        *(grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND),
        *(grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED),
    }
)


@st.composite
def mutations(draw: st.DrawFn, read: Callable[[], bytes]) -> bytes:
    """Make contents that differ from one in a few places: bytes replaced, put in, taken out, doubled, or all from one on."""
    content = read()
    place = st.integers(0, len(content))
    edit = st.tuples(st.sampled_from(("replace", "insert", "drop", "double", "cut")), place, st.binary(max_size=8))
    return _edited(content, draw(st.lists(edit, min_size=1, max_size=6)))


def _edited(content: bytes, edits: list[tuple[str, int, bytes]]) -> bytes:
    for kind, place, more in edits:
        before, after = content[:place], content[place:]
        match kind:
            case "replace":
                content = before + more + after[len(more) :]
            case "insert":
                content = before + more + after
            case "drop":
                content = before + after[len(more) + 1 :]
            case "double":
                content = before + after[:64] + after
            case _:
                content = before
    return content


class Fuzzed:
    """The servers, as they are seen from other threads."""

    # No dataclass: hypothesis would print all that is in it.
    def __init__(
        self, rest: Server, streams: GrpcServer, channel: grpc.Channel, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.rest, self.streams, self.channel, self.loop = rest, streams, channel, loop

    @property
    def recorders(self) -> tuple[Recorder, Recorder]:
        """What both reported."""
        return self.rest.recorder, self.streams.recorder

    def status_of(self, content: bytes, *, is_whole: bool = True) -> int | None:
        """Send bytes to the REST address; return the status of the final answer, None for none.

        A client that expects `100 Continue` may be told so before, if its body has not arrived by then. Where they are no whole request, the client says that nothing comes after them; others would be taken to be gone. It
        raises TimeoutError where the connection is not closed in time.
        """
        answer = exchange(self.rest.address, content, is_whole=is_whole).removeprefix(CONTINUE)
        return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1") else None

    def exchange_grpc(self, content: bytes) -> bytes:
        """Send bytes to the gRPC address, and nothing after them; return the answer."""
        return exchange(self.streams.address, content)

    def code_of(self, path: str, messages: list[bytes]) -> grpc.StatusCode:
        """Send messages on a stream of a method, and nothing after them; return how it ends."""
        call = self.channel.stream_stream(path)(iter(messages), timeout=PATIENCE_S)
        try:
            for _ in call:
                pass
        except grpc.RpcError as error:
            return error.code()
        return call.code()

    def left_behind(self) -> dict[str, int]:
        """Return what is counted of clients that are gone, where that is not nothing."""
        asked = asyncio.run_coroutine_threadsafe(self._left_behind(), self.loop)
        return asked.result(PATIENCE_S)

    async def _left_behind(self) -> dict[str, int]:
        rest, services = self.rest.rest, self.streams.services
        limiters = rest.exchange.limiter, services._shared.limiter

        def count() -> dict[str, int]:
            counts = {"held": len(rest.exchange), "streams": services.open_streams}
            counts |= {f"names {number}": each.names for number, each in enumerate(limiters)}
            counts |= {f"calls {number}": each.streams for number, each in enumerate(limiters)}
            return {name: number for name, number in counts.items() if number}

        deadline_s = self.loop.time() + PATIENCE_S
        # Nothing tells when the server has noticed that the last client is gone.
        while count() and self.loop.time() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return count()


def exchange(address: object, content: bytes, *, is_whole: bool = False) -> bytes:
    """Send bytes, and say so where they are not whole; return all that comes until the connection is closed."""
    assert isinstance(address, TcpAddress)
    answer = b""
    with socket.create_connection((address.host, address.port), PATIENCE_S) as connection:
        try:
            connection.sendall(content)
            if not is_whole:
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                answer += part
        except (ConnectionError, BrokenPipeError):
            pass
    return answer


@contextmanager
def fuzzed() -> Iterator[Fuzzed]:
    """Run both servers in a thread, with something to serve, and with polls that are held for a moment at most."""
    ready: Callable[[Fuzzed], object]
    started, made = threading.Event(), list[Any]()
    ready = made.append

    async def serve() -> None:
        settings = Settings(max_names=1000, allowed_hosts=("*",))
        async with (
            running(max_hold_s=0.05, settings=settings) as rest,
            serving_grpc(catalogue=envoy_catalogue(), settings=settings) as server,
        ):
            rest.publish(named("cds", "a"), named("eds", "a"))
            server.publish({"CDS": {"a": "1"}, "EDS": {"a": "1"}})
            stop = asyncio.Event()
            with grpc.insecure_channel(str(server.address)) as channel:
                ready(Fuzzed(rest, server, channel, asyncio.get_running_loop()))
                made.append(stop)
                started.set()
                await stop.wait()

    def work() -> None:
        try:
            asyncio.run(serve())
        finally:
            started.set()

    thread = threading.Thread(target=work, name="fuzzed server")
    thread.start()
    assert started.wait(PATIENCE_S)
    server, stop = made
    try:
        yield server
    finally:
        server.loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_S)
