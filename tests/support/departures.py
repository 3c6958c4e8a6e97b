"""Clients that go away: at any byte of what they send, or of what they are sent; and the requests of those over REST."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import random
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fsxds.settings.forms import Address, TcpAddress, UnixAddress
from fsxds.transports.client_status.status_service import CLIENT_STATUS_PATH
from fsxds.transports.rest.application import ROWS
from fsxds.transports.rest.poll_requests import MAX_REQUEST_BYTES

REAL_REQUEST = Path(__file__).parents[1] / "data" / "rest-request-clusters.json"
# Those who go away use a few names only, so that what is remembered of them is bounded by what they ask for.
NODES = 5
AT_ONCE = 16
# A client that reads nothing for so long leaves: its poll is held, or its stream is idle.
READ_S = 0.02
JSON = "content-type: application/json"


def wire(path: str, body: bytes, *headers: str, version: str = "1.1", method: str = "POST") -> bytes:
    """Write a request with its length."""
    lines = [f"{method} {path} HTTP/{version}", "host: localhost", *headers, f"content-length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


def chunked(path: str, body: bytes, *headers: str) -> bytes:
    """Write a request in three chunks."""
    lines = [f"POST {path} HTTP/1.1", "host: localhost", *headers, "transfer-encoding: chunked", "", ""]
    third = len(body) // 3 + 1
    pieces = [body[start : start + third] for start in range(0, len(body), third)]
    chunks = b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces)
    return "\r\n".join(lines).encode() + chunks + b"0\r\n\r\n"


def good_requests(rng: random.Random, versions: dict[str, str]) -> Iterator[bytes]:
    """Yield requests of every form that are answered, or held where they bear the current version."""
    for path in (*ROWS, CLIENT_STATUS_PATH):
        is_status = path == CLIENT_STATUS_PATH
        poll = {} if is_status else {"node": {"id": f"gone-{rng.randrange(NODES)}"}}
        body = json.dumps(poll).encode()
        for headers in ((), ("accept-encoding: gzip",), ("expect: 100-continue",), ("connection: close",)):
            yield wire(path, body, JSON, *headers)
        yield wire(path, body, JSON, version="1.0")
        yield wire(path, body, JSON, version="1.0") + b"more"
        yield wire(path, body, JSON) * 4
        yield chunked(path, body, JSON)
        yield wire(path, gzip.compress(body), JSON, "content-encoding: gzip")
        if not is_status:
            current = json.dumps({**poll, "version_info": versions.get(path, "")}).encode()
            for deadline_ms in (200, 320, 20_000):
                yield wire(path, current, JSON, f"x-envoy-expected-rq-timeout-ms: {deadline_ms}")
    yield wire("/v3/discovery:clusters", REAL_REQUEST.read_bytes(), JSON, "x-envoy-expected-rq-timeout-ms: 320")


def bad_requests() -> Iterator[bytes]:
    """Yield requests of every form that are refused."""
    path = "/v3/discovery:clusters"
    large = b" " * (MAX_REQUEST_BYTES + 100_000)
    yield wire("/nowhere", b"{}", JSON)
    yield wire("/nowhere", large, JSON)
    yield wire(path, b"", method="GET")
    yield wire(path, large, JSON, method="PUT")
    yield wire(path, large, "content-type: text/plain")
    yield wire(path, large, JSON)
    yield chunked(path, large, JSON)
    yield wire(path, large, JSON, "expect: 100-continue")
    yield wire(path, b"{}", JSON, "expect: wonders")
    yield wire(path, b"{", JSON)
    yield wire(path, b"no gzip", JSON, "content-encoding: gzip")
    yield wire(path, gzip.compress(b" " * 50_000_000), JSON, "content-encoding: gzip")
    yield wire(path, b"{}", JSON, "content-encoding: strange")
    yield b"POST / HTTP/1.1\r\nbad header\r\n\r\n"
    yield chunked(path, b"{}", JSON).replace(b"\r\n1\r\n", b"\r\nxyz\r\n")
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


async def go_away(address: Address, sent: Sequence[bytes], rng: random.Random) -> None:
    """Connect, send all or a part, read a part of what comes, and leave with a FIN or a RST."""
    content = rng.choice(sent)
    cut = len(content) if rng.random() < 0.5 else rng.randrange(len(content) + 1)
    with connected(address) as connection, contextlib.suppress(OSError, TimeoutError):
        loop = asyncio.get_running_loop()
        half = rng.randrange(cut + 1)
        async with asyncio.timeout(1):
            await loop.sock_sendall(connection, content[:half])
            await asyncio.sleep(rng.choice([0, 0, 0.001]))
            await loop.sock_sendall(connection, content[half:cut])
        left = int(10 ** rng.uniform(0, 6.5)) - 1
        while left > 0:
            async with asyncio.timeout(READ_S):
                read = len(await loop.sock_recv(connection, min(left, 65536)))
            left = left - read if read else 0
        if rng.random() < 0.5 and isinstance(address, TcpAddress):
            # Closing sends a RST then.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif rng.random() < 0.3:
            connection.shutdown(socket.SHUT_WR)


def connected(address: Address) -> socket.socket:
    """Connect, without waiting for the server to accept."""
    family = socket.AF_UNIX if isinstance(address, UnixAddress) else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    connection.connect(str(address.path) if isinstance(address, UnixAddress) else (address.host, address.port))
    connection.setblocking(False)
    return connection


async def many_go_away(
    address: Address, sent: Callable[[random.Random], Sequence[bytes]], times: int, seed: int
) -> None:
    """Let so many clients go away, some at a time; `sent` returns what one of them may send in all."""

    async def some(number: int) -> None:
        rng = random.Random(seed * 1000 + number)
        contents = sent(rng)
        for _ in range(number, times, AT_ONCE):
            await go_away(address, contents, rng)

    async with asyncio.TaskGroup() as tasks:
        for number in range(AT_ONCE):
            tasks.create_task(some(number))
