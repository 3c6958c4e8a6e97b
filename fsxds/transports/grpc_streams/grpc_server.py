"""Runs a gRPC server until its context ends, then stops it gracefully.

No call of an unknown method can end this server. grpcio decodes the path of each call in the one task that accepts
calls, and ends the whole server if the path is not UTF-8: one request of a stranger would end all streams, for good
(seen in grpcio 1.85; `tests/fuzzing` found it). Here every method is registered, so that gRPC compares paths as bytes
with known methods, and rejects all other calls without decoding their path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio
from grpc._cython import cygrpc
from grpc.aio import _server

from fsxds.runtime.supervisor import Supervisor
from fsxds.settings.forms import Address, TcpAddress, UnixAddress
from fsxds.settings.options import Settings
from fsxds.transports.grpc_streams import resets
from fsxds.transports.limits import DEFAULTS
from fsxds.transports.sockets import (
    OWN_ALONE,
    STALLED_AFTER_S,
    SocketAccess,
    beside,
    bind_tcp,
    bind_unix,
    close_all,
    drain,
    explained,
    listened_at,
    make_way,
)

# Metadata of a call: a token takes some thousand bytes. gRPC's own limits are half of these; calls above the first are
# rejected at random, and always above the second.
MAX_METADATA_BYTES = 16 * 1024
MOST_METADATA_BYTES = 32 * 1024
# A client may have this many calls above its limit, so that it gets the reason from those that are rejected. More of
# them wait in the client, by HTTP/2.
SPARE_STREAMS = 100
# A client whose machine is gone sends nothing; its connection is closed after this time.
KEEPALIVE_MS = 300_000
KEEPALIVE_TIMEOUT_MS = 20_000
# A client that is silent, or stops during the handshake, is cut off.
HANDSHAKE_MS = 10_000

OPTIONS = (
    ("grpc.max_send_message_length", -1),
    # gRPC's default is 120 s; this is the same as for HTTP.
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    # Envoy pings as often as it is configured to, idle or not; by default gRPC then closes its connection (ENVOY.md
    # E31).
    ("grpc.http2.min_ping_interval_without_data_ms", 0),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MOST_METADATA_BYTES),
)


def options_of(settings: Settings) -> tuple[tuple[str, int], ...]:
    """Return the channel arguments of a server with these limits.

    gRPC itself limits floods of pings and settings: it stops reading from a connection to which it cannot write
    answers, and takes few new streams at each read. `tests/end_to_end/attacks.py` measures them.
    """
    streams = min(settings.max_streams, settings.max_streams_per_peer or settings.max_streams)
    return (
        *OPTIONS,
        *resets.OPTIONS,
        # By default a second process would get half of the clients of an occupied port.
        ("grpc.so_reuseport", int(settings.reuse_port)),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_concurrent_streams", streams + SPARE_STREAMS),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
    )


# glibc maps every larger buffer separately.
_LARGEST_LEARNED_BYTES = 32 * 1024 * 1024 - 64 * 1024


class Services(Protocol):
    """The served gRPC services."""

    @property
    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """The handlers to register."""

    def running(self, supervisor: Supervisor) -> AbstractAsyncContextManager[None]:
        """Run the background work as components of `supervisor`."""

    @property
    def open_streams(self) -> int:
        """Return the number of open long-lived calls."""

    async def drain(self) -> None:
        """End all long-lived calls, and accept no more."""


@dataclass(frozen=True, slots=True)
class GrpcSecurity:
    """TLS of a listener, None for plain text; the permissions of its unix socket; and gRPC's own limits."""

    credentials: grpc.ServerCredentials | None = None
    access: SocketAccess = OWN_ALONE
    settings: Settings = DEFAULTS


PLAIN = GrpcSecurity()


def keep_freed_memory() -> None:
    """Let the C library keep some freed memory: 64 MB, twice the largest freed buffer.

    A response with the whole state takes megabytes, and is copied once for each client. A copy to new pages of the
    kernel takes up to ten times as long as to reused pages. Only glibc learns this, unless
    `rest.http_server.keep_large_buffers_apart` was called; elsewhere nothing is lost, as these pages are not touched.
    """
    bytes(_LARGEST_LEARNED_BYTES)


@asynccontextmanager
async def listening_grpc(
    services: Services,
    address: Address,
    supervisor: Supervisor,
    *,
    grace_s: float,
    security: GrpcSecurity = PLAIN,
) -> AsyncIterator[Address]:
    """Serve `services` at `address` while the context lasts, and yield the bound address.

    At the end no new connection is accepted, streams are ended, and calls in progress end, within `grace_s` seconds and
    while they make progress.

    Raises:
        UsageError: the address cannot be bound.
    """
    keep_freed_memory()
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_no_departure)
    server = KnownMethodsServer(services.handlers, options_of(security.settings))
    with explained(address, "grpc"):
        bound = await _bind(server, address, security)
    async with services.running(supervisor):
        await server.start()
        try:
            # The file is removed before the server stops: afterwards another process may have replaced it.
            with listened_at(address):
                yield bound
        finally:
            await _stop(server, services, grace_s)


def _is_no_departure(record: logging.LogRecord) -> bool:
    """Drop log records about clients that disconnect during a write."""
    return not (record.exc_info and isinstance(record.exc_info[1], grpc.aio.BaseError))


async def _stop(server: grpc.aio.Server, services: Services, grace_s: float) -> None:
    loop = asyncio.get_running_loop()
    ends_at_s = loop.time() + grace_s
    is_drained = await drain(services.drain(), lambda: services.open_streams, grace_s)
    # Clients that do not read are not waited for again.
    await server.stop(max(0.0, min(STALLED_AFTER_S, ends_at_s - loop.time())) if is_drained else 0.0)


async def _bind(server: grpc.aio.Server, address: Address, security: GrpcSecurity) -> Address:
    if isinstance(address, UnixAddress):
        _bind_unix(server, address.path, security)
        return address
    return await _bind_tcp(server, address, security)


async def _bind_tcp(server: grpc.aio.Server, address: TcpAddress, security: GrpcSecurity) -> TcpAddress:
    # gRPC does not report why an address cannot be bound; our own sockets do.
    listeners = await bind_tcp(address, is_shared=security.settings.reuse_port)
    hosts = [str(listener.getsockname()[0]) for listener in listeners]
    port = int(listeners[0].getsockname()[1])
    close_all(listeners)
    # The unspecified address stands for all interfaces, of both families.
    hosts = hosts[:1] if ip_address(hosts[0]).is_unspecified else hosts
    if len(hosts) == 1 and not address.port:
        # Binding port 0 in gRPC itself leaves no gap for another process.
        port = 0
    for host in hosts:
        port = _add_port(server, str(TcpAddress(host, port)), security.credentials)
    return TcpAddress(hosts[0], port)


def _bind_unix(server: grpc.aio.Server, path: Path, security: GrpcSecurity) -> None:
    """Bind a unix socket, in place of one without a listener.

    gRPC removes any socket at the path that it binds, before it listens and after it. So it binds a temporary path, and
    the socket is renamed after it got its mode.
    """
    make_way(path, is_shared=security.settings.reuse_port)
    temporary = beside(path)
    # As with TCP, this reports why it cannot be bound. gRPC replaces a socket without a listener.
    bind_unix(temporary, security.access).close()
    _add_port(server, f"unix:{temporary}", security.credentials)
    security.access.give(temporary)
    temporary.replace(path)


def _add_port(server: grpc.aio.Server, where: str, credentials: grpc.ServerCredentials | None) -> int:
    try:
        if credentials is None:
            return int(server.add_insecure_port(where))
        return int(server.add_secure_port(where, credentials))
    except RuntimeError as error:
        raise OSError(str(error)) from error


# Stands for the path of a call, which is not read.
_UNKNOWN = "/unknown"


class KnownMethodsServer(_server.Server):  # type: ignore[misc]  # grpc has no types
    """A server of `grpc.aio` with a fixed set of methods.

    Args:
        handlers: must have `_method_handlers`, as `grpc.method_handlers_generic_handler` makes them.
        options: channel arguments.
    """

    # Does not call the base class, whose own server would never end.
    def __init__(self, handlers: Iterable[grpc.GenericRpcHandler], options: Sequence[tuple[str, Any]]) -> None:
        self._loop = cygrpc.get_working_loop()
        arguments = _server._augment_channel_arguments(options, None)  # noqa: SLF001 - as the base class does
        self._server = _Core(self._loop, None, (), (), arguments, None)
        for handler in handlers:
            self._server.add_registered_method_handlers(handler._method_handlers)  # noqa: SLF001 - nothing else tells


class _Core(cygrpc.AioServer):  # type: ignore[misc]
    """Accepts calls of registered methods, and rejects all others with UNIMPLEMENTED."""

    async def _request_call(self) -> object:
        loop, resolver = asyncio.get_running_loop(), cygrpc._MethodResolver([], {})  # noqa: SLF001
        ended: cygrpc._RequestCallError | None = None
        async with asyncio.TaskGroup() as rejecting:
            while ended is None:
                try:
                    call = await super()._request_call()
                except cygrpc._RequestCallError as error:  # noqa: SLF001
                    ended = error
                else:
                    answer = cygrpc._handle_rpc(_UNKNOWN, resolver, (), call, loop, False)  # noqa: SLF001
                    rejecting.create_task(_reject(cygrpc._schedule_rpc_coro(answer, call, loop, _UNKNOWN)))  # noqa: SLF001
        raise ended


async def _reject(answer: Any) -> None:
    # The client may be gone already.
    with suppress(grpc.aio.BaseError):
        await answer
