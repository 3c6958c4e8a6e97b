from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from fsxds.model.errors import UsageError
from fsxds.runtime.supervisor import Supervisor
from fsxds.settings.forms import Address, TcpAddress, UnixAddress
from fsxds.transports.grpc_streams.grpc_server import GrpcSecurity, _is_no_disconnect, listening_grpc
from fsxds.transports.limits import DEFAULTS
from fsxds.transports.sockets import SOCKET_MODE
from tests.support.certificates import make_pair
from tests.support.errors import make_supervisor
from tests.support.grpc_clients import channel_to
from tests.support.patience import NEVER_S, PATIENCE_S
from tests.support.ports import free_port

LOCALHOST = TcpAddress("127.0.0.1", 0)


class Echo:
    """A service that says what it is told, and one whose answers never come."""

    open_streams = 0

    def __init__(self) -> None:
        self.is_running = False
        self.drained = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.waiting = asyncio.Event()
        methods = {
            "Say": grpc.unary_unary_rpc_method_handler(self._say),
            "Wait": grpc.unary_unary_rpc_method_handler(self._wait),
        }
        self.handlers = (grpc.method_handlers_generic_handler("Echo", methods),)

    async def _say(self, content: bytes, _: object) -> bytes:
        return content

    async def _wait(self, content: bytes, _: object) -> bytes:
        self.waiting.set()
        await asyncio.sleep(float(content))
        return b"done"

    @asynccontextmanager
    async def running(self, supervisor: Supervisor) -> AsyncIterator[None]:
        """Remember."""
        self.is_running = True
        yield
        self.is_running = False

    async def drain(self) -> None:
        """Remember."""
        self.drained.set()
        await self.may_end.wait()


def serve(address: Address = LOCALHOST, services: Echo | None = None, grace_s: float = 1.0) -> Any:
    """Serve one service."""
    return listening_grpc(services or Echo(), address, make_supervisor(), grace_s=grace_s)


async def say(address: Address, content: bytes = b"hello", **options: int) -> bytes:
    """Return what the service says, over a connection of its own."""
    async with channel_to(address, **options) as channel:
        call = channel.unary_unary("/Echo/Say")
        return bytes(await call(content, timeout=PATIENCE_S))


async def test_port_zero_is_a_free_port() -> None:
    """The address that is given is the one to connect to."""
    async with serve() as bound:
        assert bound.host == "127.0.0.1"
        assert bound.port > 0
        assert await say(bound) == b"hello"


async def test_an_empty_host_means_all_interfaces() -> None:
    """IPv4 in any case, and one port for all."""
    async with serve(TcpAddress("", 0)) as bound:
        assert await say(TcpAddress("127.0.0.1", bound.port)) == b"hello"


async def test_a_host_name_means_all_its_addresses() -> None:
    """`localhost` may be ::1 for the client and 127.0.0.1 for the server; both work."""
    async with serve(TcpAddress("localhost", 0)) as bound:
        for *_, where in socket.getaddrinfo("localhost", bound.port, type=socket.SOCK_STREAM):
            assert await say(TcpAddress(str(where[0]), bound.port)) == b"hello"


async def test_a_taken_port() -> None:
    """One line that names the address and the remedy; no second process shares it silently."""
    async with serve() as bound:
        with pytest.raises(UsageError) as caught:
            async with serve(bound):
                pass
        assert await say(bound) == b"hello"

    assert str(caught.value) == (
        f"{bound} is taken: Address already in use; use --grpc HOST:PORT, or port 0 for any free one"
    )


async def test_a_port_is_free_again_at_once() -> None:
    """Also while connections of the server before linger."""
    async with serve(TcpAddress("127.0.0.1", free_port())) as bound:
        await say(bound)
    async with serve(bound) as again:
        assert again == bound
        assert await say(again) == b"hello"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (TcpAddress("no.such.host.invalid", 0), "no.such.host.invalid:0: there is no such host"),
        (TcpAddress("192.0.2.1", 0), "192.0.2.1:0 cannot be listened at: Cannot assign requested address"),
        (UnixAddress(Path("/no/such/directory/x.sock")), "cannot be listened at: No such file or directory"),
        (UnixAddress(Path("/tmp") / ("x" * 120)), "cannot be listened at: AF_UNIX path too long"),
    ],
)
async def test_an_address_that_cannot_be_had(address: Address, said: str) -> None:
    """The user is told, in one line."""
    with pytest.raises(UsageError) as caught:
        async with serve(address):
            pass

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_unix_socket(tmp_path: Path) -> None:
    """For the user and the group alone; it is gone when the server is, and leaves nothing."""
    path = tmp_path / "x.sock"
    async with serve(UnixAddress(path)) as bound:
        assert bound == UnixAddress(path)
        assert stat.S_IMODE(path.stat().st_mode) == SOCKET_MODE
        assert await say(bound) == b"hello"

    assert os.listdir(tmp_path) == []  # noqa: PTH208


async def test_a_stale_unix_socket_is_replaced(tmp_path: Path) -> None:
    """A process that was killed leaves one behind."""
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    async with serve(UnixAddress(path)) as bound:
        assert await say(bound) == b"hello"


async def test_a_unix_socket_in_use_stays(tmp_path: Path) -> None:
    """It is not taken from the one who listens, nor is another file."""
    path = tmp_path / "x.sock"
    async with serve(UnixAddress(path)) as bound:
        with pytest.raises(UsageError, match="is taken"):
            async with serve(bound):
                pass
        assert await say(bound) == b"hello"

    path.write_text("mine")
    with pytest.raises(UsageError, match="is taken"):
        async with serve(UnixAddress(path)):
            pass
    assert path.read_text() == "mine"


async def test_the_socket_of_a_successor_stays(tmp_path: Path) -> None:
    """A server that stops gives its place away before its calls end, and removes nothing afterwards."""
    address, first = UnixAddress(tmp_path / "x.sock"), Echo()
    first.may_end.clear()

    async def begin_and_end() -> None:
        async with serve(address, first):
            pass

    async with asyncio.TaskGroup() as tasks:
        ending = tasks.create_task(begin_and_end())
        await first.drained.wait()
        async with serve(address):
            first.may_end.set()
            await ending
            assert await say(address) == b"hello"


async def _wait(channel: grpc.aio.Channel, seconds: float) -> bytes:
    return bytes(await channel.unary_unary("/Echo/Wait")(str(seconds).encode(), timeout=PATIENCE_S))


async def test_what_goes_on_beside_the_calls() -> None:
    """It runs before the first call and is drained before the last."""
    services = Echo()
    async with serve(services=services) as bound:
        assert services.is_running
        await say(bound)
        assert not services.drained.is_set()

    assert services.drained.is_set()
    assert not services.is_running


async def test_large_requests() -> None:
    """Up to the limit they are taken; above it the client is told which limit that is."""
    async with serve() as bound:
        assert len(await say(bound, bytes(DEFAULTS.max_message_bytes))) == DEFAULTS.max_message_bytes
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await say(bound, bytes(DEFAULTS.max_message_bytes + 1))

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert f"larger than max ({DEFAULTS.max_message_bytes + 1} vs. {DEFAULTS.max_message_bytes})" in (
        caught.value.details() or ""
    )


# HTTP/2, https://www.rfc-editor.org/rfc/rfc9113: a frame is its length, type, flags, stream and content.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY, ACK = 4, 6, 7, 1


def frame(of: int, content: bytes = b"", flags: int = 0) -> bytes:
    """Return a frame of the connection."""
    return struct.pack("!IBI", len(content) << 8 | of, flags, 0) + content


async def next_frame(reader: asyncio.StreamReader) -> tuple[int, int]:
    """Return the type and the flags of the next frame."""
    length, flags, _ = struct.unpack("!IBI", await reader.readexactly(9))
    await reader.readexactly(length >> 8)
    return length & 0xFF, flags


async def test_pings_close_no_connection() -> None:
    """An Envoy pings as often as it is told to, with streams and without; gRPC's own limit is three pings in five minutes."""
    async with serve() as bound, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(bound.host, bound.port)
        writer.write(PREFACE + frame(SETTINGS))
        for _ in range(20):
            writer.write(frame(PING, bytes(8)))
            while (found := await next_frame(reader)) != (PING, ACK):
                assert found[0] != GOAWAY
        writer.close()
        await writer.wait_closed()


async def test_the_end_waits_for_calls_in_hand_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes too long is cancelled within the grace."""
    monkeypatch.setattr("fsxds.transports.grpc_streams.grpc_server.STALLED_AFTER_S", NEVER_S)
    for takes_s, grace_s, is_answered in ((0.1, NEVER_S, True), (NEVER_S, 0.1, False)):
        services = Echo()
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            async with serve(services=services, grace_s=grace_s) as bound:
                channel = await channel_to(bound).__aenter__()
                call = tasks.create_task(_outcome(channel, takes_s))
                await services.waiting.wait()
            assert await call == (b"done" if is_answered else grpc.StatusCode.UNAVAILABLE)
            await channel.close()


async def _outcome(channel: grpc.aio.Channel, seconds: float) -> bytes | grpc.StatusCode:
    try:
        return await _wait(channel, seconds)
    except grpc.aio.AioRpcError as error:
        return error.code()


async def test_idle_connections_do_not_delay_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Envoys keep theirs open."""
    monkeypatch.setattr("fsxds.transports.grpc_streams.grpc_server.STALLED_AFTER_S", NEVER_S)
    async with asyncio.timeout(PATIENCE_S):
        async with serve(grace_s=NEVER_S) as bound:
            channel = await channel_to(bound).__aenter__()
            await channel.unary_unary("/Echo/Say")(b"x")
        await channel.close()


async def test_credentials(caplog: pytest.LogCaptureFixture) -> None:
    """With those of TLS, clients that trust the certificate are served, and nobody in plain text."""
    caplog.set_level(logging.CRITICAL)
    pair = make_pair("localhost")
    key, chain = pair.key.encode(), pair.chain.encode()
    async with listening_grpc(
        Echo(),
        LOCALHOST,
        make_supervisor(),
        grace_s=1.0,
        security=GrpcSecurity(grpc.ssl_server_credentials([(key, chain)])),
    ) as bound:
        trusting = grpc.ssl_channel_credentials(chain)
        name = (("grpc.ssl_target_name_override", "localhost"),)
        async with grpc.aio.secure_channel(str(bound), trusting, options=name) as channel:
            assert await channel.unary_unary("/Echo/Say")(b"x", timeout=PATIENCE_S) == b"x"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await say(bound)

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("error", "is_kept"), [(None, True), (ValueError("ours"), True), (grpc.aio.AbortError("a client's"), False)]
)
def test_log_records_of_departures_are_dropped(error: BaseException | None, *, is_kept: bool) -> None:
    """A client that goes while it is written to is no error of grpc's; every other record stays."""
    exc_info = None if error is None else (type(error), error, None)
    record = logging.LogRecord("grpc", logging.ERROR, __file__, 1, "text", None, exc_info)

    assert _is_no_disconnect(record) is is_kept
