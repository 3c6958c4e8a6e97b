"""Runs an HTTP server until its context ends, then stops it gracefully.

Rules: connections that wait to be accepted at the end are answered with `connection: close`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Never

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from fsxds.events.client_events import RequestAnswered, RequestRejected
from fsxds.events.event import Observer
from fsxds.settings.forms import Address, TcpAddress
from fsxds.transports.rest.poll_responses import INTERNAL, ErrorResponse, error_response
from fsxds.transports.rest.tls_layer import HttpTls, TlsLayer, unsent_bytes
from fsxds.transports.sockets import (
    CHECK_INTERVAL_S,
    OWN_ALONE,
    SocketAccess,
    bind_tcp,
    bind_unix,
    bound_address,
    close_all,
    drain,
    explained,
    listened_at,
    replace_unix,
)

# Thousands of Envoys may reconnect after a restart; net.core.somaxconn limits it.
BACKLOG = 4096
# Envoy copes with closed idle connections: with polls 2 to 3 s apart and connections closed after 2.5 s, 17 of 18 were
# closed, with polls 75 s apart 1 of 2, and no update failed. asyncio reads received data before it looks at the time,
# so a poll that has arrived is answered.
KEEPALIVE_S = 75.0
# From the connection, or a request's first byte, to the end of the head.
HEAD_S = 10.0
# For the unread body of a rejected request: a client that is cut off while it sends may never read the reason.
LINGER_S = 1.0
LINGER_BYTES = 1024 * 1024
# The kernel holds half a megabyte for each client that does not read.
SEND_S = 30.0
ACCEPT_PAUSE_S = 0.1
# For new connections' requests at the end, if another process takes over.
LAST_REQUEST_S = 1.0
# Connections accepted in a row before other work runs.
ACCEPTED_AT_ONCE = 64
# For files, gRPC and the parser; at most a quarter of a small limit.
SPARE_FILES = 256
# Connections above the limit that get the reason; more are closed.
MOST_SURPLUS = 256
# An Envoy sends a dozen headers of some hundred bytes; a token takes thousands.
MOST_HEADERS = 128
MOST_HEADER_BYTES = 8190
MALFORMED = "the request is not well-formed HTTP"
# Of the parser's message in responses.
MOST_WORDS = 200

MakeProtocol = Callable[[], asyncio.BaseProtocol]

# Below an Envoy's request, far above any object kept for a held poll.
LARGE_BUFFER_BYTES = 64 * 1024
# The default number of held polls.
MOST_CONNECTIONS = 100_000
_M_MMAP_THRESHOLD = -3  # malloc.h
_M_ARENA_MAX = -8
# Each arena of threads reserves 64 MB of address space: ten took 670 of 864 MB of an idle server, which used 105.
# Python runs one thread at a time.
MOST_ARENAS = 2


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """Settings of a listener.

    Attributes:
        option: names the address in errors.
        tls: None for plain text.
        max_connections: returns the limit; more get 503.
        is_shared: others may listen too: at the end no connection may be lost.
        observer: receives clients that do not read, and malformed requests.
        name: in `RequestAnswered`.
    """

    option: str = "http"
    tls: HttpTls | None = None
    access: SocketAccess = OWN_ALONE
    max_connections: Callable[[], int] = lambda: MOST_CONNECTIONS
    is_shared: bool = False
    observer: Observer = lambda _: None
    name: str = "REST"


DEFAULT_OPTIONS = ListenerOptions()


def raise_open_files_limit() -> int:
    """Raise and return the limit of open files: each held poll takes one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems report "unlimited" and reject it.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft


def keep_large_buffers_apart() -> None:
    """Map large buffers separately, so that freed ones return to the system.

    Small objects of held polls settle between buffers of Envoy's 77 kB requests, and the heap never shrinks: 41 kB per
    held poll against 14 kB, for 0.08 ms more CPU. Fewer heaps save address space (`ulimit -v`). For glibc only.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES)
        mallopt(_M_ARENA_MAX, MOST_ARENAS)


@asynccontextmanager
async def listening(
    application: web.Application,
    address: Address,
    *,
    grace_s: float,
    options: ListenerOptions = DEFAULT_OPTIONS,
) -> AsyncIterator[Address]:
    """Serve `application` at `address` within the context; yield the bound address.

    Handlers are cancelled when clients go. At the end, takes only connections made already, runs `on_shutdown`, and lets
    requests end, within `grace_s` seconds and while they make progress. Raises UsageError if unbindable.
    """
    runner = web.AppRunner(
        application,
        handler_cancellation=True,
        # `_stop` covers longer waits.
        shutdown_timeout=grace_s,
    )
    with explained(address, options.option):
        if isinstance(address, TcpAddress):
            listeners = await bind_tcp(address, is_shared=options.is_shared)
            address = bound_address(listeners)
        else:
            listeners = [(replace_unix if options.is_shared else bind_unix)(address.path, options.access)]
    stopping = asyncio.Event()
    try:
        # Before the sockets are closed: afterwards another process may have replaced it.
        with ExitStack() as file:
            file.enter_context(listened_at(address))
            await runner.setup()
            async with _accepting(listeners, _connections_of(runner, options, stopping)):
                try:
                    yield address
                finally:
                    stopping.set()
                    file.close()
    finally:
        close_all(listeners)
        await _stop(runner, grace_s, last_request_s=LAST_REQUEST_S if options.is_shared else 0.0)


@asynccontextmanager
async def _accepting(listeners: list[socket.socket], make_connection: MakeProtocol) -> AsyncIterator[None]:
    for listener in listeners:
        listener.listen(BACKLOG)
        listener.setblocking(False)
    try:
        async with asyncio.TaskGroup() as tasks:
            acceptors = [tasks.create_task(_accept(listener, make_connection)) for listener in listeners]
            try:
                yield
            finally:
                for acceptor in acceptors:
                    acceptor.cancel()
    except BaseExceptionGroup as group:
        # Raise a single error of the context as it is.
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None


async def _accept(listener: socket.socket, make_connection: MakeProtocol) -> None:
    """Until cancelled, then the waiting connections; the kernel resets any left.

    asyncio's server would log thousands of errors when descriptors run out.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as connecting:

        def accept_one() -> None:
            connection, _ = listener.accept()
            connection.setblocking(False)
            if not _has_spare_files(connection.fileno(), 0.5):
                connection.close()
            else:
                connecting.create_task(_connect(loop, connection, make_connection))

        try:
            await _keep_accepting(listener, accept_one)
        except asyncio.CancelledError:
            # No `await` from here: later connections are lost. Limited, to end in a flood.
            with contextlib.suppress(OSError):
                for _ in range(BACKLOG):
                    accept_one()
            listener.close()


async def _keep_accepting(listener: socket.socket, accept_one: Callable[[], None]) -> Never:
    """`loop.sock_accept` may lose a connection when it is cancelled."""
    accepted = 0
    while True:
        try:
            accept_one()
        except BlockingIOError:
            loop, readable = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(listener, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(listener)
            continue
        except OSError:
            # The client is gone, or no descriptor is left.
            await asyncio.sleep(ACCEPT_PAUSE_S)
            continue
        accepted += 1
        if accepted % ACCEPTED_AT_ONCE == 0:
            await asyncio.sleep(0)


async def _connect(loop: asyncio.AbstractEventLoop, connection: socket.socket, make_connection: MakeProtocol) -> None:
    # The client may be gone already.
    with contextlib.suppress(OSError):
        await loop.connect_accepted_socket(make_connection, connection)


def _has_spare_files(descriptor: int, share: float) -> bool:
    """Whether a connection leaves that share of the spare descriptors free.

    The kernel assigns the lowest free one: it shows how many are in use.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return descriptor < limit - share * min(SPARE_FILES, limit // 4)


def _connections_of(runner: web.AppRunner, options: ListenerOptions, stopping: asyncio.Event) -> MakeProtocol:
    """Closed after an answer once `stopping` is set."""
    loop, server = asyncio.get_running_loop(), runner.server
    if server is None:
        raise RuntimeError("the runner is set up before")
    answer = server.request_handler

    async def begin(request: web.BaseRequest) -> web.StreamResponse:
        if isinstance(request.protocol, Connection):
            request.protocol.begin()
        response = await answer(request)
        if stopping.is_set() and not response.prepared:
            response.force_close()
        return response

    server.request_handler = begin
    server.request_factory = partial(runner.app._make_request, _cls=_HttpRequest)  # noqa: SLF001, it has no public name

    def make(layer: TlsLayer | None = None) -> Connection:
        connection = Connection(server, loop, options)
        connection.layer = layer
        return connection

    tls = options.tls
    return make if tls is None else lambda: TlsLayer(loop, make, tls)


class _HttpRequest(web.Request):
    """No `Server` header: it shows aiohttp's and Python's versions."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        await super()._prepare_hook(response)
        response.headers.popall("Server", None)


class Connection(web.RequestHandler):
    """A connection with limits that aiohttp lacks.

    `surplus`: why requests are rejected, or ""; `layer`: its TLS or None; `has_asked`: a head was received.
    """

    __slots__ = (
        *("_is_answered", "_is_busy", "_options", "_peer", "_read_after_answer", "_until_head", "_until_read"),
        *("has_asked", "layer", "surplus"),
    )

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop, options: ListenerOptions) -> None:
        log = logging.getLogger("fsxds.transports.rest.http_server")
        log.addFilter(_lower_client_errors)
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # aiohttp's own way to have none
            keepalive_timeout=KEEPALIVE_S,
            lingering_time=LINGER_S,
            # aiohttp would decompress unread bodies too.
            auto_decompress=False,
            logger=log,
            max_line_size=MOST_HEADER_BYTES,
            max_field_size=MOST_HEADER_BYTES,
            max_headers=MOST_HEADERS,
        )
        self.surplus = ""
        self.layer: TlsLayer | None = None
        self._options = options
        self._peer = ""
        self._until_head: asyncio.TimerHandle | None = None
        self._until_read: asyncio.TimerHandle | None = None
        self.has_asked = self._is_busy = self._is_answered = False
        self._read_after_answer = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Limit the head's time; mark surplus connections for a 503."""
        super().connection_made(transport)
        self._peer = _limit_sending(transport)
        server, most = self._manager, self._options.max_connections()
        count = 0 if server is None else len(server._connections)  # noqa: SLF001, `connections` makes a list of all
        if count > most + MOST_SURPLUS:
            self.force_close()
        elif count > most:
            self.surplus = f"{most} connections are open; close some, or have the setting max_connections raised"
        elif not _has_spare_files(transport.get_extra_info("socket").fileno(), 1):
            self.surplus = "too many connections for the limit of open files; close some and ask again"
        self._limit_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop timers; report a client that did not read."""
        self._forget_limit()
        self._forget_unread()
        if isinstance(exc, TimeoutError):
            self._report_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a request's bytes; discard them after a rejection."""
        if self._is_answered:
            self._read_after_answer += len(data)
            if self._read_after_answer > LINGER_BYTES:
                self.force_close()
                return
        elif not self._is_busy and self._until_head is None:
            self._limit_head()
        super().data_received(data)

    def pause_writing(self) -> None:
        """Limit the time to read."""
        super().pause_writing()
        self._limit_unread()

    def resume_writing(self) -> None:
        """End that limit."""
        self._forget_unread()
        super().resume_writing()

    def begin(self) -> None:
        """Record that a head was received."""
        self.has_asked = self._is_busy = True
        self._forget_limit()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write a response; record whether the connection stays."""
        finished = await super().finish_response(request, resp, start_time)
        self._is_busy = False
        self._is_answered = not resp.keep_alive
        return finished

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Log like aiohttp; answer a malformed request in JSON."""
        super().handle_error(request, status, exc, message)
        fact = (message or "").partition("\n")[0][:MOST_WORDS]
        error = INTERNAL
        if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            error = ErrorResponse(status, 3, f"{MALFORMED}: {fact}")
            self._options.observer(RequestRejected(self._peer, status, MALFORMED, fact))
            self._options.observer(RequestAnswered(self._options.name, status, self._peer))
        response = error_response(error)
        response.force_close()
        return response

    def _limit_unread(self) -> None:
        unsent = self._unsent
        self._until_read = self._loop.call_later(SEND_S, lambda: self._look_unread(unsent))

    def _look_unread(self, before: int) -> None:
        if self._unsent < before:
            self._limit_unread()
            return
        self._report_unread()
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()

    def _forget_unread(self) -> None:
        if self._until_read is not None:
            self._until_read.cancel()
            self._until_read = None

    @property
    def _unsent(self) -> int:
        return _unsent_of(self.transport, self.layer)

    def _report_unread(self) -> None:
        fact = f"it read nothing of its answer for {SEND_S:g} seconds; read answers at once"
        self._options.observer(RequestRejected(self._peer, 408, fact))

    def _limit_head(self) -> None:
        self._until_head = self._loop.call_later(HEAD_S, self.force_close)

    def _forget_limit(self) -> None:
        if self._until_head is not None:
            self._until_head.cancel()
            self._until_head = None


def _limit_sending(transport: asyncio.BaseTransport) -> str:
    connection = transport.get_extra_info("socket")
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        return ""
    # Linux only; elsewhere only data beyond the kernel's buffers counts. The client may be gone.
    with contextlib.suppress(AttributeError, OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * SEND_S))
    return str(peer[0])


async def _stop(runner: web.AppRunner, grace_s: float, *, last_request_s: float) -> None:
    connections = [] if runner.server is None else runner.server.connections
    # The transport is gone from a closed connection.
    sending = [
        (each.transport, each.layer)
        for each in connections
        if isinstance(each, Connection) and each.transport is not None
    ]

    def left() -> list[tuple[int, int]]:
        return [
            (number, unsent)
            for number, (transport, layer) in enumerate(sending)
            if (unsent := _unsent_of(transport, layer)) or not transport.is_closing()
        ]

    async def end() -> None:
        await _until_asked(connections, last_request_s)
        await runner.cleanup()
        while any(_unsent_of(*each) for each in sending):  # noqa: ASYNC110, a transport has no event for this
            await asyncio.sleep(CHECK_INTERVAL_S)

    if not await drain(end(), left, grace_s):
        for transport, _ in sending:
            transport.abort()
        await runner.cleanup()


def _unsent_of(transport: asyncio.BaseTransport | None, layer: TlsLayer | None) -> int:
    """Bytes that the socket has not taken, encrypted or not."""
    return unsent_bytes(transport) + (0 if layer is None else unsent_bytes(layer.below))


async def _until_asked(connections: list[web.RequestHandler], limit_s: float) -> None:
    loop = asyncio.get_running_loop()
    ends_at_s = loop.time() + limit_s
    new = [each for each in connections if isinstance(each, Connection) and not each.has_asked]
    while loop.time() < ends_at_s and any(not each.has_asked and each.transport is not None for each in new):  # noqa: ASYNC110, aiohttp has no event
        await asyncio.sleep(CHECK_INTERVAL_S)


# Malformed HTTP and broken bodies are clients' mistakes; clients may go away any time.
_OF_CLIENTS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)


def _lower_client_errors(record: logging.LogRecord) -> bool:
    if record.exc_info and isinstance(record.exc_info[1], _OF_CLIENTS):
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return True
