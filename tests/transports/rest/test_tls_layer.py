from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from fsxds.events.client_events import HandshakeFailed
from fsxds.events.event import Event
from fsxds.settings.forms import TcpAddress
from fsxds.transports.credentials import Tls, TlsFiles
from fsxds.transports.rest import tls_layer
from fsxds.transports.rest.http_server import ListenerOptions, listening
from fsxds.transports.rest.poll_responses import Payload, send
from fsxds.transports.rest.tls_layer import HttpTls
from tests.support.certificates import Authority, Pair

SPIFFE = "spiffe://acme/edge/1"
LARGE = 8 * 1024 * 1024


@dataclass
class Server:
    """A server with TLS, which its clients reach at `port`; `events` are those of handshakes that failed."""

    authority: Authority
    folder: Path
    tls: Tls
    events: list[Event] = field(default_factory=list)
    port: int = 0
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    def rotate(self) -> Pair:
        """Replace the certificate."""
        pair = self.authority.issue("localhost")
        pair.write(self.folder, "tls")
        self.tls.look()
        return pair

    def context(self, pair: Pair | None) -> ssl.SSLContext:
        """What a client connects with that has this certificate."""
        context = ssl.create_default_context(cadata=self.authority.chain)
        if pair is not None:
            context.load_cert_chain(*pair.write(self.folder, "client"))
        return context

    async def get(self, path: str = "/", pair: Pair | None = None) -> bytes:
        """Return what is served."""
        shown = self.context(pair or self.authority.issue(SPIFFE))
        async with (
            aiohttp.ClientSession(f"https://localhost:{self.port}") as client,
            client.get(path, ssl=shown) as response,
        ):
            return await response.read()

    async def reasons(self, count: int = 1) -> list[str]:
        """Return why handshakes failed, when so many did."""
        await until(lambda: len(self.events) >= count)
        return [each.reason for each in self.events if isinstance(each, HandshakeFailed)]


async def answer(request: web.Request) -> web.StreamResponse:
    transport = request.transport
    assert transport is not None
    assert request.secure
    names = [name for _, name in transport.get_extra_info("peercert")["subjectAltName"]]
    return web.Response(text=", ".join(names))


async def answer_much(request: web.Request) -> web.StreamResponse:
    response, _ = await send(request, Payload(bytes(LARGE)))
    return response


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path) as running:
        yield running


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    authority = Authority()
    files = TlsFiles(*authority.issue("localhost").write(folder, "tls"), authority.write(folder / "ca.crt"))
    running = Server(authority, folder, Tls(files))
    options = ListenerOptions(tls=HttpTls(lambda: running.tls.context(is_strict=True), running.events.append))
    application = web.Application()

    async def hold(_: web.Request) -> web.StreamResponse:
        await running.ending.wait()
        return web.Response(text="held")

    async def end(_: web.Application) -> None:
        running.ending.set()

    application.router.add_get("/", answer)
    application.router.add_get("/much", answer_much)
    application.router.add_get("/held", hold)
    application.on_shutdown.append(end)
    async with listening(application, TcpAddress("localhost", 0), grace_s=5, options=options) as bound:
        assert isinstance(bound, TcpAddress)
        running.port = bound.port
        yield running


async def test_names_of_a_client_arrive(server: Server) -> None:
    """Whoever answers the request sees the names in the certificate that was verified."""
    assert await server.get(pair=server.authority.issue(SPIFFE, "edge-1.acme")) == f"{SPIFFE}, edge-1.acme".encode()


def start_of_handshake() -> bytes:
    """Return the first message of a client."""
    context = ssl.create_default_context()
    sent = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    return sent.read()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", "it speaks plain HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "it does not speak TLS"),
        (bytes(600), ""),
    ],
)
async def test_what_is_no_tls(server: Server, content: bytes, said: str) -> None:
    """It is cut off, and the log says what came; others are answered."""
    reader, writer = await asyncio.open_connection("localhost", server.port)
    writer.write(content)
    with suppress(ConnectionError):
        await reader.read()
    writer.close()

    assert said in (await server.reasons())[0]
    assert await server.get()


@pytest.mark.parametrize(
    ("name", "alert", "said"),
    [
        ("none", "CERTIFICATE_REQUIRED", "it shows no certificate; give it one that the --client-ca signed"),
        ("ended", "CERTIFICATE_EXPIRED", "its certificate is not accepted: certificate has expired; give it one that"),
        ("stranger", "ALERT_(UNKNOWN_CA|DECRYPT_ERROR)", "its certificate is not accepted: "),
    ],
)
async def test_clients_hear_why_they_are_rejected(server: Server, name: str, alert: str, said: str) -> None:
    """TLS has an alert for each reason; the log has it in words."""
    issued = {"ended": server.authority.issue("x", ended=True), "stranger": Authority().issue("x"), "none": None}
    reader, writer = await asyncio.open_connection(
        "localhost", server.port, ssl=server.context(issued[name]), server_hostname="localhost"
    )
    # With TLS 1.3 a client is done before the server is.
    with pytest.raises(ssl.SSLError, match=alert):
        await reader.read()
    writer.close()

    assert (await server.reasons())[0].startswith(said)


async def test_a_client_that_does_not_trust_us(server: Server) -> None:
    """The log says so, because the client's own log is on another machine."""

    def connect() -> None:
        # asyncio itself would leave without a word.
        with socket.create_connection(("localhost", server.port)) as plain:
            ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")

    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.to_thread(connect)

    assert await server.reasons() == ["it does not trust our certificate; give it the CA that signed --tls-cert"]


async def test_clients_that_leave_within_the_handshake(server: Server) -> None:
    """At any byte of it, politely or not: nothing is logged, nothing is left, others are answered."""
    hello = start_of_handshake()
    for count in range(0, len(hello) + 1, 40):
        reader, writer = await asyncio.open_connection("localhost", server.port)
        writer.write(hello[:count])
        await writer.drain()
        if count % 3 == 0:
            writer.transport.abort()
        else:
            writer.close()
        del reader

    assert await server.get()
    assert server.events == []
    await until(lambda: connections() == 0)


def connections() -> int:
    """Return how many TLS connections of a server there are in this process."""
    gc.collect()
    return sum(isinstance(each, tls_layer.TlsLayer) for each in gc.get_objects())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110, nothing tells
            await asyncio.sleep(1)


async def test_handshakes_that_never_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are cut off after a time, however many there are; others are answered meanwhile."""
    monkeypatch.setattr(tls_layer, "HANDSHAKE_S", 2)
    hello = start_of_handshake()
    slow = []
    for number in range(300):
        connection = socket.create_connection(("localhost", server.port))
        connection.setblocking(False)
        connection.send(hello[: number % 3 * 100])
        slow.append(connection)
        await asyncio.sleep(0)

    assert await server.get()
    await until(lambda: all(map(is_closed, slow)))
    for each in slow:
        each.close()
    assert server.events == []


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side closed a connection, after whatever it sent."""
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


async def test_a_new_certificate_closes_no_connection(server: Server) -> None:
    """A held poll goes on with the certificate that it began with; a new connection gets the new one."""
    async with aiohttp.ClientSession(f"https://localhost:{server.port}") as client, asyncio.TaskGroup() as tasks:
        context = server.context(server.authority.issue(SPIFFE))
        held = tasks.create_task(text_of(client, "/held", context))
        await client.get("/", ssl=context)
        pair = server.rotate()
        _, writer = await asyncio.open_connection(
            "localhost", server.port, ssl=server.context(server.authority.issue("c"))
        )
        assert ssl.PEM_cert_to_DER_cert(pair.chain) == writer.get_extra_info("ssl_object").getpeercert(True)
        writer.close()
        assert not held.done()
        server.ending.set()
        assert await held == "held"


async def text_of(client: aiohttp.ClientSession, path: str, context: ssl.SSLContext) -> str:
    async with client.get(path, ssl=context) as response:
        return await response.text()


async def test_all_of_a_large_body_arrives_although_the_server_ends(tmp_path: Path) -> None:
    """A reader that is slow gets what was handed over, before the process may end."""
    async with asyncio.TaskGroup() as tasks:
        async with serving(tmp_path) as server:
            reader, writer = await asyncio.open_connection(
                "localhost", server.port, ssl=server.context(server.authority.issue("c")), limit=4096
            )
            writer.write(b"GET /much HTTP/1.1\r\nhost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            reading = tasks.create_task(read_slowly(reader))
        assert str(LARGE).encode() in head
        assert LARGE == await reading
        writer.close()


async def read_slowly(reader: asyncio.StreamReader) -> int:
    count = 0
    while content := await reader.read(256 * 1024):
        count += len(content)
        await asyncio.sleep(0.001)
    return count
