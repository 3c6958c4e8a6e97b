"""Closes gRPC connections that reset calls faster than they are answered: HTTP/2 rapid reset, CVE-2023-44487.

gRPC stops reading from a connection that reset 10 000 calls without a write to it: `ping_on_rst_stream_percent` makes
each reset count, instead of every hundredth. While the process is busy, connections are checked, and closed if they go
on; channelz has the counts, as most of these calls never reach Python. A check costs 0.12 ms per connection, so checks
get at most a tenth of the time.

Connections of unix sockets cannot be distinguished, and are not closed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from time import monotonic, process_time
from typing import Any, Never

from grpc._cython import cygrpc

from fsxds.events.client_events import LimitReached
from fsxds.events.event import Observer

OPTIONS = (("grpc.enable_channelz", 1), ("grpc.http2.ping_on_rst_stream_percent", 100))

_TEXT = "resets calls faster than they are answered; its connection is closed"
# Between checks; a connection may reset `MOST_RESETS` calls meanwhile.
LOOK_EVERY_S = 0.25
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
    """Return the connections that reset too many calls, by gRPC's ascending numbers."""
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
    """Close connections that flood with resets; report each once by LimitReached."""
    loop = asyncio.get_running_loop()
    before: dict[int, CallCounts] | None = None
    closing: set[int] = set()
    pause_s = LOOK_EVERY_S
    while True:
        began_s, used_s = monotonic(), process_time()
        await asyncio.sleep(pause_s)
        if process_time() - used_s < BUSY * (monotonic() - began_s):
            before, pause_s = None, LOOK_EVERY_S
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
        pause_s = max(LOOK_EVERY_S, REST_FACTOR * (monotonic() - began_s))


async def _connections() -> AsyncIterator[tuple[int, CallCounts]]:
    """Yield all TCP connections of this process's gRPC servers, by gRPC's number."""
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
    """Normalize an IP address: IPv4 also from an IPv6 socket; no interface."""
    ip = ip_address(address.partition("%")[0] if isinstance(address, str) else address)
    return str(getattr(ip, "ipv4_mapped", None) or ip)


def _close(ends: set[tuple[Endpoint, Endpoint]]) -> None:
    """Shut connections down, which gRPC has no call for, but detects."""
    for path in Path("/dev/fd").iterdir():
        # It may be gone or unconnected.
        with suppress(OSError), _socket_of(int(path.name)) as connection:
            if (_end(connection.getsockname()), _end(connection.getpeername())) in ends:
                connection.shutdown(socket.SHUT_RDWR)


def _end(name: Any) -> Endpoint:
    return (_written(name[0]), name[1]) if isinstance(name, tuple) else (str(name), 0)


def _socket_of(descriptor: int) -> socket.socket:
    """Raises OSError for other files."""
    handle = os.dup(descriptor)
    try:
        return socket.socket(fileno=handle)
    except OSError:
        os.close(handle)
        raise
