"""Run a gRPC server until its context ends, then stop it with grace.

A gRPC server that a call of no method cannot end.

grpcio decodes the path of each call in the one task that accepts calls, and ends the whole server where it is not UTF-8: one
request of a stranger would end all streams, for good (seen in grpcio 1.85; `tests/fuzzing` found it). Here every method is
registered, so that gRPC compares the bytes of paths with those of known methods, and whatever is left is rejected without a look at
its path.
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

# Metadata of a call: a token takes some thousand bytes. gRPC's own bounds are a half of these; those who send more are
# rejected at random, and always above the second.
MAX_METADATA_BYTES = 16 * 1024
MOST_METADATA_BYTES = 32 * 1024
# A client may have so many more calls than it is allowed, so that it is told why by those that are rejected. More of them wait
# in the client, as HTTP/2 has it.
SPARE_STREAMS = 100
# A client whose machine is gone sends nothing; its connection is closed after this time.
KEEPALIVE_MS = 300_000
KEEPALIVE_TIMEOUT_MS = 20_000
# A client that says nothing, or stops within the handshake, is cut off.
HANDSHAKE_MS = 10_000

OPTIONS = (
    ("grpc.max_send_message_length", -1),
    # Its own default is 120 s; the same as for HTTP.
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    # Envoy pings as often as it is configured to, idle or not; by default gRPC closes its connection then (ENVOY.md E31).
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

    Floods of pings and settings are bounded by gRPC itself: it stops to read from a connection whose answers it cannot write,
    and takes few new streams at each read. `tests/end_to_end/attacks.py` measures them.
    """
    streams = min(settings.max_streams, settings.max_streams_per_peer or settings.max_streams)
    return (
        *OPTIONS,
        *resets.OPTIONS,
        # By default a second process would get half of the clients of a port that is taken.
        ("grpc.so_reuseport", int(settings.reuse_port)),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_concurrent_streams", streams + SPARE_STREAMS),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
    )


# Above this, glibc maps every buffer apart.
_LARGEST_LEARNED_BYTES = 32 * 1024 * 1024 - 64 * 1024


class Services(Protocol):
    """What is served."""

    @property
    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """What the server registers."""

    def running(self, supervisor: Supervisor) -> AbstractAsyncContextManager[None]:
        """Do what goes on beside the calls, as components of `supervisor`."""

    @property
    def open_streams(self) -> int:
        """How many calls that last are open."""

    async def drain(self) -> None:
        """End all calls that last, and take no more."""


@dataclass(frozen=True, slots=True)
class GrpcSecurity:
    """TLS of a listener, None for plain text; who may connect to a unix socket; and the limits that gRPC itself keeps."""

    credentials: grpc.ServerCredentials | None = None
    access: SocketAccess = OWN_ALONE
    settings: Settings = DEFAULTS


PLAIN = GrpcSecurity()


def keep_freed_memory() -> None:
    """Let the C library keep some of the memory that is freed: 64 MB, twice the largest buffer that was freed.

    A response with the whole state takes megabytes, and is copied once for each of its clients. Each copy on pages that the
    kernel has to provide first takes up to ten times as long as on those of the copy before. Only glibc learns this way, where
    `rest.server.keep_large_buffers_apart` did not forbid it; elsewhere nothing is lost, as these pages are not touched.
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
    """Serve `services` at `address` while the context lasts, and yield the address that was bound.

    At the end no new connection is taken, streams are ended, and calls in progress end, within `grace_s` seconds.

    Args:
        services: what is served.
        address: where.
        supervisor: runs what goes on beside the calls.
        grace_s: how long calls may take to end, as long as some do.
        security: TLS, who may connect to a unix socket, and limits.

    Raises:
        UsageError: when the address cannot be bound.
    """
    keep_freed_memory()
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_no_departure)
    server = KnownMethodsServer(services.handlers, options_of(security.settings))
    with explained(address, "grpc"):
        bound = await _bind(server, address, security)
    async with services.running(supervisor):
        await server.start()
        try:
            # Its file is removed before the server stops: afterwards another process may put its own in this place.
            with listened_at(address):
                yield bound
        finally:
            await _stop(server, services, grace_s)


def _is_no_departure(record: logging.LogRecord) -> bool:
    """Drop log records that are caused by clients that disconnect while they are written to."""
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
    """Bind every IP address of a host, all to the same port."""
    # gRPC does not report why an address cannot be bound; sockets of our own do.
    listeners = await bind_tcp(address, is_shared=security.settings.reuse_port)
    hosts = [str(listener.getsockname()[0]) for listener in listeners]
    port = int(listeners[0].getsockname()[1])
    close_all(listeners)
    # One of them stands for all interfaces, of both families.
    hosts = hosts[:1] if ip_address(hosts[0]).is_unspecified else hosts
    if len(hosts) == 1 and not address.port:
        # No process can take it in between.
        port = 0
    for host in hosts:
        port = _add_port(server, str(TcpAddress(host, port)), security.credentials)
    return TcpAddress(hosts[0], port)


def _bind_unix(server: grpc.aio.Server, path: Path, security: GrpcSecurity) -> None:
    """Bind a Unix socket, in place of one that no process listens at any more.

    gRPC removes whatever socket has the name that it binds, before it listens and after it. So it is given another name,
    and the socket gets its own when it has its mode.
    """
    make_way(path, is_shared=security.settings.reuse_port)
    temporary = beside(path)
    # As with TCP: this reports why it cannot be bound. gRPC takes the place of a socket that no process listens at.
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


# Stands for the path of a call that is not looked at.
_UNKNOWN = "/unknown"


class KnownMethodsServer(_server.Server):  # type: ignore[misc]  # grpc has no types
    """A server of `grpc.aio` with the methods that it is made with.

    Args:
        handlers: their methods are in `_method_handlers`, as in what `grpc.method_handlers_generic_handler` makes.
        options: channel arguments.
    """

    # Not that of the base class: its server would have no end.
    def __init__(self, handlers: Iterable[grpc.GenericRpcHandler], options: Sequence[tuple[str, Any]]) -> None:
        self._loop = cygrpc.get_working_loop()
        arguments = _server._augment_channel_arguments(options, None)  # noqa: SLF001 - as the base class does
        self._server = _Core(self._loop, None, (), (), arguments, None)
        for handler in handlers:
            self._server.add_registered_method_handlers(handler._method_handlers)  # noqa: SLF001 - nothing else tells


class _Core(cygrpc.AioServer):  # type: ignore[misc]
    """Accepts calls of registered methods, and rejects all others with UNIMPLEMENTED."""

    async def _request_call(self) -> object:
        """Reject the calls of no method, until the server ends, which is an error of gRPC's own."""
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
