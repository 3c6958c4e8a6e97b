from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
from aiohttp import web

from fsxds.events.client_events import RequestRejected
from fsxds.events.event import Event
from fsxds.model.errors import UsageError
from fsxds.settings.forms import Address, TcpAddress, UnixAddress
from fsxds.transports.rest import http_server
from fsxds.transports.rest.http_server import Connection, ListenerOptions, listening, raise_open_files_limit
from fsxds.transports.rest.tls_layer import HttpTls
from fsxds.transports.sockets import SOCKET_MODE
from tests.support.certificates import Authority
from tests.support.errors import Recorder
from tests.support.patience import NEVER_S, PATIENCE_S
from tests.support.polls import until
from tests.support.ports import free_port

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
LOCALHOST = TcpAddress("127.0.0.1", 0)


async def hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")


@asynccontextmanager
async def serve(address: Address, handler: Handler = hello, grace_s: float = 1.0) -> AsyncIterator[Address]:
    """Serve one handler at `/`."""
    application = web.Application()
    application.router.add_get("/", handler)
    async with listening(application, address, grace_s=grace_s) as bound:
        yield bound


async def get(address: Address) -> str:
    """Return what is served at `/`."""
    connector: aiohttp.BaseConnector
    if isinstance(address, UnixAddress):
        base, connector = "http://x", aiohttp.UnixConnector(str(address.path))
    else:
        base, connector = f"http://{address}", aiohttp.TCPConnector()
    async with aiohttp.ClientSession(base, connector=connector) as client, client.get("/") as response:
        return await response.text()


async def test_port_zero_is_a_free_port() -> None:
    """The address that is given is the one to connect to."""
    async with serve(LOCALHOST) as bound:
        assert isinstance(bound, TcpAddress)
        assert bound.port > 0
        assert await get(bound) == "hello"


async def test_an_empty_host_means_all_interfaces() -> None:
    """IPv4 in any case, and one port for all."""
    async with serve(TcpAddress("", 0)) as bound:
        assert isinstance(bound, TcpAddress)
        assert await get(TcpAddress("127.0.0.1", bound.port)) == "hello"


async def test_a_host_name_means_all_its_addresses() -> None:
    """`localhost` may be ::1 for the client and 127.0.0.1 for the server; both work."""
    async with serve(TcpAddress("localhost", 0)) as bound:
        assert isinstance(bound, TcpAddress)
        for *_, where in socket.getaddrinfo("localhost", bound.port, type=socket.SOCK_STREAM):
            assert await get(TcpAddress(str(where[0]), bound.port)) == "hello"


async def test_a_taken_port() -> None:
    """One line that names the address and the remedy."""
    async with serve(LOCALHOST) as bound:
        with pytest.raises(UsageError) as caught:
            async with serve(bound):
                pass

    assert str(caught.value) == (
        f"{bound} is taken: Address already in use; use --http HOST:PORT, or port 0 for any free one"
    )


async def test_a_port_is_free_again_at_once() -> None:
    """Also while connections of the server before linger."""
    async with serve(TcpAddress("127.0.0.1", free_port())) as bound:
        await get(bound)
    async with serve(bound) as again:
        assert again == bound


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (TcpAddress("no.such.host.invalid", 0), "no.such.host.invalid:0: there is no such host"),
        (TcpAddress("192.0.2.1", 0), "192.0.2.1:0 cannot be listened at: Cannot assign requested address"),
        (UnixAddress(Path("/no/such/directory/x.sock")), "cannot be listened at: No such file or directory"),
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
    """For the user and the group alone; it is gone when the server is."""
    path = tmp_path / "x.sock"
    async with serve(UnixAddress(path)) as bound:
        assert bound == UnixAddress(path)
        assert stat.S_IMODE(path.stat().st_mode) == SOCKET_MODE
        assert await get(bound) == "hello"

    assert not path.exists()


async def test_a_stale_unix_socket_is_replaced(tmp_path: Path) -> None:
    """A process that was killed leaves one behind."""
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    async with serve(UnixAddress(path)) as bound:
        assert await get(bound) == "hello"


async def test_a_unix_socket_in_use_stays(tmp_path: Path) -> None:
    """It is not taken from the one who listens, nor is another file."""
    path = tmp_path / "x.sock"
    async with serve(UnixAddress(path)) as bound:
        with pytest.raises(UsageError, match="is taken"):
            async with serve(bound):
                pass
        assert await get(bound) == "hello"

    path.write_text("mine")
    with pytest.raises(UsageError, match="is taken"):
        async with serve(UnixAddress(path)):
            pass
    assert path.read_text() == "mine"


async def test_a_handler_ends_with_its_client() -> None:
    """Which aiohttp does only where it is asked to."""
    started, ended = asyncio.Event(), asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return web.Response()

    async with serve(LOCALHOST, wait) as bound, asyncio.timeout(PATIENCE_S):
        client = asyncio.ensure_future(get(bound))
        await started.wait()
        client.cancel()
        await ended.wait()


@pytest.fixture
def waits_for_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the grace alone limit how long the end of a server takes."""
    monkeypatch.setattr("fsxds.transports.sockets.STALLED_AFTER_S", NEVER_S)


@pytest.mark.usefixtures("waits_for_stalled")
async def test_the_end_waits_for_requests_in_hand_but_not_for_ever() -> None:
    """One that takes too long is cancelled within the grace."""
    started = asyncio.Event()

    async def wait(request: web.Request) -> web.Response:
        started.set()
        await asyncio.sleep(float(request.query["s"]))
        return web.Response(text="done")

    for takes_s, grace_s, is_answered in ((0.1, NEVER_S, True), (NEVER_S, 0.1, False)):
        started.clear()
        async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as client:
            async with serve(LOCALHOST, wait, grace_s=grace_s) as bound:
                request = asyncio.ensure_future(client.get(f"http://{bound}/?s={takes_s}"))
                await started.wait()
            [answer] = await asyncio.gather(request, return_exceptions=True)

        assert isinstance(answer, aiohttp.ClientResponse) is is_answered


@pytest.mark.usefixtures("waits_for_stalled")
async def test_idle_connections_do_not_delay_the_end() -> None:
    """Envoys keep theirs open."""
    async with (
        asyncio.timeout(PATIENCE_S),
        aiohttp.ClientSession() as client,
        serve(LOCALHOST, grace_s=NEVER_S) as bound,
        client.get(f"http://{bound}/") as response,
    ):
        await response.read()


def test_the_limit_of_open_files_is_raised() -> None:
    """As far as the kernel lets us, and never lowered."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))

        assert raise_open_files_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_large_buffers_can_be_kept_apart() -> None:
    """In a process of its own, because it cannot be undone: held polls on asyncio's loop then leave no holes."""
    code = "from fsxds.transports.rest.http_server import keep_large_buffers_apart as keep; keep(); print(len(bytes(10**6)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "1000000\n" == done.stdout


SIZE_WITH_THREADS = """
import threading
from pathlib import Path
from fsxds.transports.rest.http_server import keep_large_buffers_apart

if {is_kept}:
    keep_large_buffers_apart()
begun = threading.Barrier(9)

def work():
    kept = [bytes(1000) for _ in range(1000)]
    begun.wait()
    begun.wait()

for _ in range(8):
    threading.Thread(target=work).start()
begun.wait()
print(Path("/proc/self/status").read_text().partition("VmSize:")[2].split()[0])
begun.wait()
"""


def test_threads_share_heaps() -> None:
    """Else each reserves as much address space as a whole server needs, and a limit of that is reached at rest."""
    size, before = (
        int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
        for code in (SIZE_WITH_THREADS.format(is_kept=True), SIZE_WITH_THREADS.format(is_kept=False))
    )

    assert size < before / 2


async def test_a_head_must_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends nothing, or drips a head, is cut off; a request that takes longer to answer is not."""
    monkeypatch.setattr("fsxds.transports.rest.http_server.HEAD_S", 0.2)
    released = asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        await released.wait()
        return web.Response(text="late")

    async with serve(LOCALHOST, wait) as bound, asyncio.timeout(PATIENCE_S):
        assert isinstance(bound, TcpAddress)
        held = await asyncio.open_connection(bound.host, bound.port)
        held[1].write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET")
        silent = await asyncio.open_connection(bound.host, bound.port)
        assert await silent[0].read() == b""
        dripping = await asyncio.open_connection(bound.host, bound.port)
        with contextlib.suppress(ConnectionError):
            while not dripping[0].at_eof():
                dripping[1].write(b"G")
                await dripping[1].drain()
                await asyncio.sleep(0.01)
        released.set()
        assert (await held[0].readuntil(b"late")).startswith(b"HTTP/1.1 200")
        for _, writer in (held, silent, dripping):
            writer.close()


async def test_an_idle_connection_is_closed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an answer, and later than it takes to send a head."""
    monkeypatch.setattr("fsxds.transports.rest.http_server.KEEPALIVE_S", 0.2)
    async with serve(LOCALHOST) as bound, asyncio.timeout(PATIENCE_S):
        assert isinstance(bound, TcpAddress)
        reader, writer = await asyncio.open_connection(bound.host, bound.port)
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await reader.readuntil(b"hello")
        assert await reader.read() == b""
        writer.close()


async def test_a_connection_that_nobody_accepted_yet_is_answered_at_the_end() -> None:
    """The kernel would reset it; it may ask a little later, where another process listens from now on."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="answered")

    application = web.Application()
    application.router.add_get("/", answer)
    options = ListenerOptions(is_shared=True)
    async with listening(application, TcpAddress("127.0.0.1", 0), grace_s=5.0, options=options) as bound:
        assert isinstance(bound, TcpAddress)
        # It waits for connections from here on, and accepts none without an `await`.
        await asyncio.sleep(0)
        client = socket.create_connection((bound.host, bound.port), timeout=PATIENCE_S)
        asyncio.get_running_loop().call_later(0.05, client.sendall, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    with client, client.makefile("rb") as reader:
        head, _, body = reader.read().partition(b"\r\n\r\n")
    assert (head[:12], body) == (b"HTTP/1.1 200", b"answered")
    assert b"connection: close" in head.lower()


class Sent(NamedTuple):
    """A server that sends much, and what it reports."""

    address: Address
    recorder: Recorder
    is_reported: asyncio.Event


@asynccontextmanager
async def sending(size: int, address: Address = LOCALHOST, tls: HttpTls | None = None) -> AsyncIterator[Sent]:
    """Serve so many bytes at `/`."""
    recorder, is_reported = Recorder(), asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=bytes(size))

    def report(event: Event) -> None:
        recorder(event)
        is_reported.set()

    application = web.Application()
    application.router.add_get("/", answer)
    options = ListenerOptions(tls=tls, observer=report)
    async with listening(application, address, grace_s=1.0, options=options) as bound:
        yield Sent(bound, recorder, is_reported)


def connected(address: Address) -> socket.socket:
    """Connect with the smallest buffer."""
    client = socket.socket(socket.AF_INET if isinstance(address, TcpAddress) else socket.AF_UNIX)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((address.host, address.port) if isinstance(address, TcpAddress) else str(address.path))
    return client


@pytest.mark.parametrize("where", ["kernel", "server", "unix", "tls"])
async def test_a_client_that_never_reads_is_cut_off(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its answer waits in the buffers of the kernel or in those of the server, once and with its address."""
    monkeypatch.setattr(http_server, "SEND_S", 0.3)
    tls, client_tls = None, None
    if where == "tls":
        server_tls, client_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority = Authority()
        server_tls.load_cert_chain(*authority.issue("localhost").write(tmp_path, "tls"))
        client_tls.load_verify_locations(authority.write(tmp_path / "ca.crt"))
        tls = HttpTls(lambda: server_tls, Recorder())
    address = UnixAddress(tmp_path / "socket") if where == "unix" else LOCALHOST
    async with sending(300_000 if where == "kernel" else 30_000_000, address, tls) as sent:
        client = connected(sent.address)
        if client_tls is not None:
            client = await asyncio.to_thread(client_tls.wrap_socket, client, server_hostname="localhost")
        with client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            async with asyncio.timeout(PATIENCE_S):
                await sent.is_reported.wait()

    [event] = sent.recorder.of(RequestRejected)
    assert (event.peer, event.status) == ("" if where == "unix" else "127.0.0.1", 408)
    assert "read nothing of its answer" in event.reason


async def test_a_client_that_reads_something_is_not_cut_off() -> None:
    """Whatever the whole takes: each look asks whether it took something since the one before."""
    asked: list[Connection] = []

    async def answer(request: web.Request) -> web.Response:
        assert isinstance(request.protocol, Connection)
        asked.append(request.protocol)
        return web.Response(body=bytes(30_000_000))

    async with serve(LOCALHOST, answer) as address:
        with connected(address) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await until(lambda: bool(asked and asked[0]._until_read))
            [connection] = asked
            unsent = connection._unsent
            connection._look_unread(unsent + 1)
            assert connection.transport is not None
            assert not connection.transport.is_closing()
            connection._look_unread(unsent)
            assert connection.transport is None or connection.transport.is_closing()
