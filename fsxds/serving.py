"""Run an HTTP server until its context ends, then stop it with grace."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import logging
import os
import re
import resource
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from fsxds.errors import UsageError

# Thousands of Envoys may come back at once after a restart; the kernel cuts it down to net.core.somaxconn.
BACKLOG = 4096
# Envoy closes an idle connection after an hour. Closing later than it does, we never close one that it is about to use.
KEEPALIVE_S = 3630.0
# Whoever may read the socket may read the secrets; Envoy runs as the same user or in the same group.
SOCKET_MODE = 0o660

# Below the size of an Envoy's request, far above that of anything that is kept for a held poll.
LARGE_BUFFER_BYTES = 64 * 1024
_M_MMAP_THRESHOLD = -3  # malloc.h

HOW_TO_CHOOSE = "use --http HOST:PORT, or port 0 for any free one"
_TCP = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*):(?P<port>[0-9]{1,5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host and a port; an empty host means all interfaces, port 0 any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        """`127.0.0.1:18001`, `[::1]:18001`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The path of a unix socket."""

    path: Path

    def __str__(self) -> str:
        """`unix:/run/fsxds.sock`."""
        return f"unix:{self.path}"


Address = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """Read `127.0.0.1:18001`, `[::1]:18001`, `:18001` or `unix:/run/fsxds.sock`.

    Raises:
        UsageError: when it is none of these.
    """
    if text.startswith("unix:") and len(text) > len("unix:"):
        return UnixAddress(Path(text.removeprefix("unix:")))
    match = _TCP.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise UsageError(f"{text!r} is no address; write 127.0.0.1:18001, [::1]:18001, :18001 or unix:/run/fsxds.sock")
    return TcpAddress(match["host"].strip("[]"), int(match["port"]))


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
    then never shrinks: 41 kB per held poll against 14 kB, for 0.08 ms more of CPU per request. uvloop reads into one
    buffer and has no need. Only glibc knows how.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES)


@asynccontextmanager
async def listening(application: web.Application, address: Address, *, grace_s: float) -> AsyncIterator[Address]:
    """Serve `application` at `address` while the context lasts, and give the address that was really bound.

    A handler is cancelled when its client goes. At the end no new connection is taken, the application's `on_shutdown`
    runs, and requests in hand have `grace_s` seconds to end.

    Raises:
        UsageError: when the address cannot be had.
    """
    runner = web.AppRunner(
        application,
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=KEEPALIVE_S,
        # aiohttp waits so long for handlers to end, and then so long again for them to be cancelled.
        shutdown_timeout=grace_s / 2,
        logger=_server_log(),
    )
    listeners = await _bind(address)
    try:
        await runner.setup()
        for listener in listeners:
            await web.SockSite(runner, listener, backlog=BACKLOG).start()
        yield _bound(address, listeners[0])
    finally:
        if isinstance(address, UnixAddress):
            # While it is still ours: once nobody listens, a successor may put its own in this place.
            address.path.unlink(missing_ok=True)
        await runner.cleanup()
        _close(listeners)


def _bound(address: Address, listener: socket.socket) -> Address:
    if isinstance(address, UnixAddress):
        return address
    host, port = listener.getsockname()[:2]
    return TcpAddress(host, port)


async def _bind(address: Address) -> list[socket.socket]:
    try:
        return [_bind_unix(address.path)] if isinstance(address, UnixAddress) else await _bind_tcp(address)
    except socket.gaierror as error:
        raise UsageError(f"{address}: there is no such host: {error.strerror}; {HOW_TO_CHOOSE}") from error
    except OSError as error:
        fact = "is taken" if error.errno == errno.EADDRINUSE else "cannot be listened at"
        raise UsageError(f"{address} {fact}: {_words_of(error)}; {HOW_TO_CHOOSE}") from error


def _words_of(error: OSError) -> str:
    # create_server() adds the address to the text, which the reader has seen already.
    return str(error) if error.errno is None else os.strerror(error.errno)


async def _bind_tcp(address: TcpAddress) -> list[socket.socket]:
    """Bind every IP address of a host, all to the same port."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    try:
        for family, where in dict.fromkeys((family, where) for family, *_, where in found):
            port = listeners[0].getsockname()[1] if listeners else address.port
            listeners.extend(_bind_one(family, (str(where[0]), port)))
    except OSError:
        _close(listeners)
        raise
    if not listeners:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
    return listeners


def _bind_one(family: int, where: tuple[str, int]) -> Iterator[socket.socket]:
    try:
        yield socket.create_server(where, family=family)
    except OSError as error:
        # `localhost` names ::1 also where IPv6 is switched off.
        if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
            raise


def _bind_unix(path: Path) -> socket.socket:
    """Bind a unix socket, in place of one that nobody listens at any more."""
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        # Before anybody can connect: that takes listen().
        path.chmod(SOCKET_MODE)
    except OSError:
        listener.close()
        raise
    return listener


def _remove_stale(path: Path) -> None:
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()


def _close(listeners: list[socket.socket]) -> None:
    for listener in listeners:
        listener.close()


def _server_log() -> logging.Logger:
    log = logging.getLogger("fsxds.serving")
    log.addFilter(_is_ours)
    return log


def _is_ours(record: logging.LogRecord) -> bool:
    """Tell whether aiohttp has something to say of us: malformed HTTP is its sender's mistake, and is answered as such."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
