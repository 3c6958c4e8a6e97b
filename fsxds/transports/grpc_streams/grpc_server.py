"""Runs a gRPC server until its context ends, then stops it gracefully.

grpcio decodes all calls' paths in one task, and a path that is not UTF-8 ends the whole server for good (seen in grpcio
1.85; `tests/fuzzing` found it). So every method is registered: gRPC then compares paths as bytes, and rejects other
calls undecoded.

Closes connections that reset calls faster than they are answered: HTTP/2 rapid reset, CVE-2023-44487.

gRPC stops reading from a connection that reset 10 000 calls without a write to it: `ping_on_rst_stream_percent` makes
each reset count, instead of every hundredth. While the process is busy, connections that go on are closed, by the counts
of channelz. A check costs 0.12 ms per connection: it gets at most a tenth of the time. Unix sockets' are not closed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from time import monotonic, process_time
from typing import Any, Never, Protocol

import grpc
import grpc.aio
from grpc._cython import cygrpc
from grpc.aio import _server

from fsxds.events.client_events import LimitReached
from fsxds.events.event import Observer
from fsxds.runtime.supervisor import Supervisor
from fsxds.settings.forms import Address, TcpAddress, UnixAddress
from fsxds.settings.options import Settings
from fsxds.transports.limits import DEFAULTS
from fsxds.transports.sockets import (
    OWN_ALONE,
    STALLED_AFTER_S,
    SocketAccess,
    beside,
    bind_tcp,
    bind_unix,
    bound_address,
    close_all,
    drain,
    explained,
    listened_at,
    make_way,
)

# A token takes some thousand bytes. gRPC's own limits are half of these; above the first it rejects at random, above
# the second always.
MAX_METADATA_BYTES = 16 * 1024
MOST_METADATA_BYTES = 32 * 1024
# Calls above a client's limit, which are rejected with the reason; more wait in the client, by HTTP/2.
SPARE_STREAMS = 100
# For a client whose machine is gone.
KEEPALIVE_MS = 300_000
KEEPALIVE_TIMEOUT_MS = 20_000
# A silent client is cut off.
HANDSHAKE_MS = 10_000

OPTIONS = (
    ("grpc.max_send_message_length", -1),
    # As for HTTP; gRPC's default is 120 s.
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    # Envoy pings as configured, idle or not; gRPC would close its connection (ENVOY.md E31).
    ("grpc.http2.min_ping_interval_without_data_ms", 0),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MOST_METADATA_BYTES),
)


def options_of(settings: Settings) -> tuple[tuple[str, int], ...]:
    """Return the server's channel arguments.

    gRPC itself limits floods of pings and settings: it stops reading from connections that take no answers, and takes few
    new streams per read (`tests/end_to_end/attacks.py`).
    """
    streams = min(settings.max_streams, settings.max_streams_per_peer or settings.max_streams)
    return (
        *OPTIONS,
        *RESET_OPTIONS,
        # Or a second process would get half of an occupied port's clients.
        ("grpc.so_reuseport", int(settings.reuse_port)),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_concurrent_streams", streams + SPARE_STREAMS),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
    )


# glibc maps larger buffers separately.
_LARGEST_LEARNED_BYTES = 32 * 1024 * 1024 - 64 * 1024


class Services(Protocol):
    """The served gRPC services."""

    @property
    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """The handlers to register."""

    def running(self, supervisor: Supervisor) -> AbstractAsyncContextManager[None]:
        """Run background work in `supervisor`."""

    @property
    def open_streams(self) -> int:
        """Count open long-lived calls."""

    async def drain(self) -> None:
        """End long-lived calls; accept none."""


@dataclass(frozen=True, slots=True)
class GrpcSecurity:
    """A listener's TLS or None, its socket's permissions, and gRPC's limits."""

    credentials: grpc.ServerCredentials | None = None
    access: SocketAccess = OWN_ALONE
    settings: Settings = DEFAULTS


PLAIN = GrpcSecurity()


def keep_freed_memory() -> None:
    """Let the C library keep 64 MB of freed memory, twice the largest freed buffer.

    The whole state takes megabytes, copied per client; to new pages up to ten times as long as to reused ones. For glibc,
    unless `rest.http_server.keep_large_buffers_apart` was called.
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
    """Serve `services` at `address` within the context; yield the bound address. Raises UsageError if unbindable.

    At the end no connection is accepted, streams end, and calls end within `grace_s` seconds, while they make progress.
    """
    keep_freed_memory()
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_no_disconnect)
    server = KnownMethodsServer(services.handlers, options_of(security.settings))
    with explained(address, "grpc"):
        bound = await _bind(server, address, security)
    async with services.running(supervisor):
        await server.start()
        try:
            # Before the server stops: afterwards another process may have replaced it.
            with listened_at(address):
                yield bound
        finally:
            loop = asyncio.get_running_loop()
            ends_at_s = loop.time() + grace_s
            is_drained = await drain(services.drain(), lambda: services.open_streams, grace_s)
            # Not again for clients that do not read.
            await server.stop(max(0.0, min(STALLED_AFTER_S, ends_at_s - loop.time())) if is_drained else 0.0)


def _is_no_disconnect(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], grpc.aio.BaseError))


async def _bind(server: grpc.aio.Server, address: Address, security: GrpcSecurity) -> Address:
    if isinstance(address, UnixAddress):
        make_way(address.path, is_shared=security.settings.reuse_port)
        # gRPC removes any socket at its path, before and after it listens. Renamed after it got its mode.
        temporary = beside(address.path)
        # Reports why it cannot be bound; gRPC replaces it.
        bind_unix(temporary, security.access).close()
        _add_port(server, f"unix:{temporary}", security.credentials)
        security.access.give(temporary)
        temporary.replace(address.path)
        return address
    return await _bind_tcp(server, address, security)


async def _bind_tcp(server: grpc.aio.Server, address: TcpAddress, security: GrpcSecurity) -> TcpAddress:
    # gRPC does not report why it cannot bind; our own sockets do.
    listeners = await bind_tcp(address, is_shared=security.settings.reuse_port)
    hosts = [str(listener.getsockname()[0]) for listener in listeners]
    bound = bound_address(listeners)
    close_all(listeners)
    # The unspecified address stands for all interfaces of both families.
    hosts = hosts[:1] if ip_address(hosts[0]).is_unspecified else hosts
    # gRPC itself binds port 0 without a gap for another process.
    port = 0 if len(hosts) == 1 and not address.port else bound.port
    for host in hosts:
        port = _add_port(server, str(TcpAddress(host, port)), security.credentials)
    return TcpAddress(bound.host, port)


def _add_port(server: grpc.aio.Server, where: str, credentials: grpc.ServerCredentials | None) -> int:
    try:
        if credentials is None:
            return int(server.add_insecure_port(where))
        return int(server.add_secure_port(where, credentials))
    except RuntimeError as error:
        raise OSError(str(error)) from error


# Stands for unread paths.
_UNKNOWN = "/unknown"


class KnownMethodsServer(_server.Server):  # type: ignore[misc]  # grpc has no types
    """A `grpc.aio` server of `handlers`, which need `_method_handlers`."""

    # The base class would make a server that never ends.
    def __init__(self, handlers: Iterable[grpc.GenericRpcHandler], options: Sequence[tuple[str, Any]]) -> None:
        self._loop = cygrpc.get_working_loop()
        arguments = _server._augment_channel_arguments(options, None)  # noqa: SLF001 - as the base class does
        self._server = _Core(self._loop, None, (), (), arguments, None)
        for handler in handlers:
            self._server.add_registered_method_handlers(handler._method_handlers)  # noqa: SLF001 - nothing else tells


class _Core(cygrpc.AioServer):  # type: ignore[misc]
    """Rejects calls of unregistered methods with UNIMPLEMENTED."""

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


RESET_OPTIONS = (("grpc.enable_channelz", 1), ("grpc.http2.ping_on_rst_stream_percent", 100))

_TEXT = "resets calls faster than they are answered; its connection is closed"
# Between checks; a connection may reset `MOST_RESETS` calls meanwhile.
CHECK_INTERVAL_S = 0.25
MOST_RESETS = 200
# Share of one core: a flood takes whole cores.
BUSY = 0.3
# Until then gRPC does not read from it, so the client waits; if closed at once, it would come back.
CLOSED_AFTER_S = 10.0
# The least pause after a check, as a multiple of its duration.
REST_FACTOR = 9
# Before other work runs.
_AT_ONCE = 20
# By default only the first are listed.
_ALL = 1_000_000

Endpoint = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CallCounts:
    """A TCP connection; `unanswered`: resets beyond sent messages."""

    local: Endpoint
    remote: Endpoint
    unanswered: int


def offenders(before: Mapping[int, CallCounts], now: Mapping[int, CallCounts]) -> dict[int, CallCounts]:
    """Return connections that reset too many calls, by gRPC's ascending numbers."""
    newest = max(before, default=0)
    found: dict[int, CallCounts] = {}
    for number, connection in now.items():
        # Streams answered long ago may end together.
        was = max(before[number].unanswered, 0) if number in before else 0
        # An older connection not seen before has no count for this period.
        if connection.unanswered - was > MOST_RESETS and (number in before or number > newest):
            found[number] = connection
    return found


async def watch_resets(observer: Observer) -> Never:
    """Close connections that flood with resets, reporting each once by LimitReached."""
    loop = asyncio.get_running_loop()
    before: dict[int, CallCounts] | None = None
    closing: set[int] = set()
    pause_s = CHECK_INTERVAL_S
    while True:
        began_s, used_s = monotonic(), process_time()
        await asyncio.sleep(pause_s)
        if process_time() - used_s < BUSY * (monotonic() - began_s):
            before, pause_s = None, CHECK_INTERVAL_S
            continue
        began_s = monotonic()
        now = {number: connection async for number, connection in _connections()}
        found = {} if before is None else offenders(before, now)
        found = {number: each for number, each in found.items() if number not in closing}
        closing = (closing & now.keys()) | found.keys()
        if found:
            loop.call_later(CLOSED_AFTER_S, _close, {(each.local, each.remote) for each in found.values()})
        for each in found.values():
            observer(LimitReached("resets", each.remote[0], f"{each.remote[0]} {_TEXT}"))
        before = now
        pause_s = max(CHECK_INTERVAL_S, REST_FACTOR * (monotonic() - began_s))


async def _connections() -> AsyncIterator[tuple[int, CallCounts]]:
    servers = _asked(cygrpc.channelz_get_servers, 0)["server"]
    listed = [_asked(cygrpc.channelz_get_server_sockets, int(each["ref"]["serverId"]), 0, _ALL) for each in servers]
    numbers = [int(reference["socketId"]) for each in listed for reference in each.get("socketRef", ())]
    for index, number in enumerate(numbers):
        if not index % _AT_ONCE:
            await asyncio.sleep(0)
        found = _asked(cygrpc.channelz_get_socket, number).get("socket", {})
        local, remote = _endpoint(found.get("local")), _endpoint(found.get("remote"))
        if local and remote:
            data = found["data"]
            yield number, CallCounts(local, remote, int(data["streamsFailed"]) - int(data["messagesSent"]))


def _asked(ask: Callable[..., bytes], *arguments: int) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(ask(*arguments))
    except ValueError:
        return {}
    return answer


def _endpoint(address: dict[str, Any] | None) -> Endpoint | None:
    tcp = (address or {}).get("tcpipAddress")
    return None if tcp is None else (_written(base64.b64decode(tcp["ipAddress"])), int(tcp["port"]))


def _written(address: bytes | str) -> str:
    """IPv4 also from an IPv6 socket; no interface."""
    ip = ip_address(address.partition("%")[0] if isinstance(address, str) else address)
    return str(getattr(ip, "ipv4_mapped", None) or ip)


def _close(ends: set[tuple[Endpoint, Endpoint]]) -> None:
    """For gRPC, which has no call for it, but detects it."""
    for path in Path("/dev/fd").iterdir():
        # It may be gone or unconnected.
        with suppress(OSError), _socket_of(int(path.name)) as connection:
            if (_end(connection.getsockname()), _end(connection.getpeername())) in ends:
                connection.shutdown(socket.SHUT_RDWR)


def _end(name: Any) -> Endpoint:
    return (_written(name[0]), name[1]) if isinstance(name, tuple) else (str(name), 0)


def _socket_of(descriptor: int) -> socket.socket:
    handle = os.dup(descriptor)
    try:
        return socket.socket(fileno=handle)
    except OSError:
        os.close(handle)
        raise
