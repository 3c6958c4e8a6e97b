"""Run an HTTP server until its context ends, then stop it with grace."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from fsxds.addresses import (
    Address,
    TcpAddress,
    UnixAddress,
    bind_tcp,
    bind_unix,
    close_all,
    identity_of,
    remove_own,
    unavailable,
)
from fsxds.draining import LOOK_EVERY_S, drain

# Thousands of Envoys may come back at once after a restart; the kernel cuts it down to net.core.somaxconn.
BACKLOG = 4096
# Envoy closes an idle connection after an hour. Closing later than it does, we never close one that it is about to use.
KEEPALIVE_S = 3630.0

# Below the size of an Envoy's request, far above that of anything that is kept for a held poll.
LARGE_BUFFER_BYTES = 64 * 1024
_M_MMAP_THRESHOLD = -3  # malloc.h

# Between two looks at the file of a unix socket.
LOST_AFTER_S = 1.0

HOW_TO_CHOOSE = "use --http HOST:PORT, or port 0 for any free one"


def raise_open_files_limit() -> int:
    """Raise the limit of open files as far as this process may, and return it: a held poll takes one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems say "unlimited" and refuse it.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft


def keep_large_buffers_apart() -> None:
    """Make the C library map every large buffer by itself, so that it goes back whole when it is let go of.

    asyncio reads Envoy's 77 kB requests into buffers between which the small objects of held polls settle; the heap
    then never shrinks: 41 kB per held poll against 14 kB, for 0.08 ms more of CPU per request. Only glibc
    knows how.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES)


@asynccontextmanager
async def listening(application: web.Application, address: Address, *, grace_s: float) -> AsyncIterator[Address]:
    """Serve `application` at `address` while the context lasts, and give the address that was really bound.

    A handler is cancelled when its client goes. At the end no new connection is taken, the application's `on_shutdown`
    runs, and requests in hand end, as long as they make progress, and within `grace_s` seconds.

    Raises:
        UsageError: when the address cannot be had.
    """
    runner = web.AppRunner(
        application,
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=KEEPALIVE_S,
        # Who waits longer is in `_stop`.
        shutdown_timeout=grace_s,
        logger=_server_log(),
    )
    listeners = await _bind(address)
    identity = identity_of(address.path) if isinstance(address, UnixAddress) else None
    try:
        await runner.setup()
        for listener in listeners:
            await web.SockSite(runner, listener, backlog=BACKLOG).start()
        yield _bound(address, listeners[0])
    finally:
        if isinstance(address, UnixAddress):
            # While it is still ours: once nobody listens, a successor may put its own in this place.
            remove_own(address.path, identity)
        await _stop(runner, grace_s)
        close_all(listeners)


async def _stop(runner: web.AppRunner, grace_s: float) -> None:
    """Answer the requests in hand, write what was handed to the sockets, and cut off who does not take it."""
    connections = [] if runner.server is None else runner.server.connections
    transports = [each.transport for each in connections if isinstance(each.transport, asyncio.Transport)]

    def left() -> list[tuple[int, int]]:
        return [
            (number, _unsent(each)) for number, each in enumerate(transports) if not each.is_closing() or _unsent(each)
        ]

    async def end() -> None:
        await runner.cleanup()
        while any(map(_unsent, transports)):  # noqa: ASYNC110, a transport has no event for this
            await asyncio.sleep(LOOK_EVERY_S)

    if not await drain(end(), left, grace_s):
        for transport in transports:
            transport.abort()
        await runner.cleanup()


def _unsent(transport: asyncio.Transport) -> int:
    try:
        return transport.get_write_buffer_size()
    except (RuntimeError, AttributeError):
        return 0  # It is closed.


async def until_lost(address: Address) -> None:
    """Return when nobody can connect to a bound address any more: somebody removed or replaced the file of a unix socket."""
    if not isinstance(address, UnixAddress):
        await asyncio.Event().wait()
        return
    identity = identity_of(address.path)
    while identity == identity_of(address.path):  # noqa: ASYNC110, a file has no event to wait for
        await asyncio.sleep(LOST_AFTER_S)


def _bound(address: Address, listener: socket.socket) -> Address:
    if isinstance(address, UnixAddress):
        return address
    host, port = listener.getsockname()[:2]
    return TcpAddress(host, port)


async def _bind(address: Address) -> list[socket.socket]:
    try:
        return [bind_unix(address.path)] if isinstance(address, UnixAddress) else await bind_tcp(address)
    except OSError as error:
        raise unavailable(address, error, HOW_TO_CHOOSE) from error


def _server_log() -> logging.Logger:
    log = logging.getLogger("fsxds.serving")
    log.addFilter(_lower_those_of_clients)
    return log


# Malformed HTTP and broken bodies are their sender's mistakes, and are answered as such; a client may go away at any byte.
_OF_CLIENTS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)


def _lower_those_of_clients(record: logging.LogRecord) -> bool:
    """Make what aiohttp reports of a client a debug message, whatever aiohttp takes it for."""
    if record.exc_info and isinstance(record.exc_info[1], _OF_CLIENTS):
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return True
