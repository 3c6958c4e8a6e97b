"""Attack a real `fsxds serve` as strangers might, and measure its memory, and whether others are served meanwhile.

    python -m tests.end_to_end.attacks [--only NAME] [--scale 1]

Each attack has a process of its own. While it goes on, the tree is edited again and again, a client that behaves polls for each
edit, and another opens one gRPC stream after the other. What is printed: resident memory before, at most, and once the attackers
are gone; how many of the updates came, and the slowest; how many of the streams were answered, and the slowest. The exit status
is 1 if an update did not come, if one stream of a hundred was not answered, or if memory grew by more than the attack is allowed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp
import grpc.aio
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2

from tests.support.server import Server

CDS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
EDS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
CLUSTERS = "/v3/discovery:clusters"
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
# As long as an update may take on a busy machine.
PATIENCE_S = 60.0
LARGEST_READ = 1 << 16


@dataclass
class Target:
    """A running server, and the tree that it serves.

    Attributes:
        server: the process.
        tree: its tree.
        clusters: how many clusters are served; each has some hundred bytes.
        edits: how often the tree was edited.
    """

    server: Server
    tree: Path
    clusters: int = 10
    edits: int = field(default=0, init=False)

    @property
    def http(self) -> tuple[str, int]:
        """Where polls go."""
        return address_of(self.server.ready["http"])

    @property
    def grpc(self) -> tuple[str, int]:
        """Where streams go."""
        return address_of(self.server.ready["grpc"])

    def rss_mib(self) -> float:
        """Return the memory that the process has now."""
        pages = int(Path(f"/proc/{self.server.ready['pid']}/statm").read_text().split()[1])
        return pages * 4096 / 2**20

    def edit(self) -> str:
        """Change what is served; return what is in it now and was not before."""
        self.edits += 1
        mark = f"mark-{self.edits}"
        clusters = [{"name": f"c{number}", "alt_stat_name": mark} for number in range(self.clusters)]
        path = self.tree / ".next"
        path.write_text(json.dumps(clusters))
        path.rename(self.tree / "cds.json")
        return mark


def address_of(text: str) -> tuple[str, int]:
    """Return host and port."""
    host, _, port = text.rpartition(":")
    return host, int(port)


Attack = Callable[[Target, float], Awaitable[None]]
"""Attacks until it is done or cancelled; the number scales what it does."""


# HTTP


async def send_raw(address: tuple[str, int], parts: AsyncIterator[bytes], *, linger_s: float = 0.0) -> bytes:
    """Send bytes over a connection of their own, and return the first bytes of the answer, if one comes in time."""
    reader, writer = await asyncio.open_connection(*address)
    answer = b""
    try:
        with suppress(ConnectionError):
            async for part in parts:
                writer.write(part)
                await writer.drain()
                if reader.at_eof():
                    break
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(linger_s):
                answer = await reader.read(LARGEST_READ)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return answer


async def send_parts(address: tuple[str, int], make: Callable[[], AsyncIterator[bytes]]) -> bytes:
    """Do so with the parts that a function makes."""
    return await send_raw(address, make())


def head_of(*headers: str) -> bytes:
    """Return the head of a poll."""
    lines = (f"POST {CLUSTERS} HTTP/1.1", "host: localhost", "content-type: application/json", *headers)
    return "\r\n".join((*lines, "", "")).encode()


async def polls_of_many_nodes(target: Target, scale: float) -> None:
    """Ten thousand node ids that nobody has, each with a kilobyte of metadata, and each polling twice."""
    host, port = target.http
    metadata = {f"key-{number}": "x" * 80 for number in range(10)}
    at_once = asyncio.Semaphore(20)

    async def poll(session: aiohttp.ClientSession, number: int) -> None:
        body = {"node": {"id": f"made-up-{number}", "cluster": "nobody", "metadata": metadata}}
        async with at_once:
            for service, names in (("clusters", []), ("endpoints", [f"endpoints-{number}"])):
                url = f"http://{host}:{port}/v3/discovery:{service}?timeout=0"
                async with session.post(url, json={**body, "resource_names": names}) as response:
                    await response.read()

    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=20)) as session,
        asyncio.TaskGroup() as polling,
    ):
        for number in range(int(10_000 * scale)):
            polling.create_task(poll(session, number))


async def polls_of_many_names(target: Target, scale: float) -> None:
    """Five hundred nodes, each with a megabyte of names that nobody has, which are remembered."""
    host, port = target.http
    async with aiohttp.ClientSession() as session:
        for number in range(int(500 * scale)):
            names = [f"{number}-{index}" for index in range(70_000)]
            body = json.dumps({"node": {"id": f"n{number}"}, "resource_names": names}, separators=(",", ":"))
            url = f"http://{host}:{port}/v3/discovery:endpoints?timeout=0"
            headers = {"content-type": "application/json"}
            async with session.post(url, data=body, headers=headers) as response:
                await response.read()


async def slow_bodies(target: Target, scale: float) -> None:
    """A thousand clients announce a megabyte each, send half of it, and then a byte a second."""

    async def body() -> AsyncIterator[bytes]:
        yield head_of("content-length: 1000000")
        yield b" " * 500_000
        while True:
            yield b" "
            await asyncio.sleep(1.0)

    await together(int(1000 * scale), lambda: send_raw(target.http, body()))


async def slow_heads(target: Target, scale: float) -> None:
    """A thousand clients send a header's letter a second, without end."""

    async def head() -> AsyncIterator[bytes]:
        yield b"POST / HTTP/1.1\r\nx-y: "
        while True:
            yield b"a"
            await asyncio.sleep(1.0)

    await together(int(1000 * scale), lambda: send_raw(target.http, head()))


async def endless_heads(target: Target, scale: float) -> None:
    """Clients send headers as fast as they can, short ones and one that is endless."""

    async def head(line: bytes) -> AsyncIterator[bytes]:
        yield b"POST / HTTP/1.1\r\nx-y: 1"
        for _ in range(int(2000 * scale)):
            yield line * 100

    for line in (b"\r\na: b", b"aaaaaaaaaa"):
        await together(20, partial(send_parts, target.http, partial(head, line)))


async def huge_bodies(target: Target, scale: float) -> None:
    """A gigabyte in one body: announced, in chunks that say nothing of it, and as a megabyte of gzip."""
    megabyte = b" " * 2**20
    count = int(1024 * scale)

    async def announced() -> AsyncIterator[bytes]:
        yield head_of(f"content-length: {count * 2**20}")
        for _ in range(count):
            yield megabyte

    async def chunked() -> AsyncIterator[bytes]:
        yield head_of("transfer-encoding: chunked")
        for _ in range(count):
            yield f"{len(megabyte):x}\r\n".encode() + megabyte + b"\r\n"

    def compress() -> bytes:
        coder = zlib.compressobj(9, wbits=31)
        return b"".join((*(coder.compress(megabyte) for _ in range(count)), coder.flush()))[: 2**20]

    # Beside the client that behaves, which must not wait for it.
    bomb = await asyncio.to_thread(compress)

    async def compressed() -> AsyncIterator[bytes]:
        yield head_of("content-encoding: gzip", f"content-length: {len(bomb)}")
        yield bomb

    for parts in (announced, chunked, compressed):
        answer = await send_raw(target.http, parts(), linger_s=PATIENCE_S)
        if answer and b" 413 " not in answer.partition(b"\r\n")[0]:
            raise AssertionError(f"{parts.__name__}: {answer[:200]!r}")


async def polls_that_never_read(target: Target, scale: float) -> None:
    """A thousand connections send a hundred polls each, one after the other, and read no answer."""
    body = b'{"node": {"id": "deaf"}}'
    poll = head_of(f"content-length: {len(body)}") + body

    async def polls() -> AsyncIterator[bytes]:
        yield poll * 100
        await asyncio.sleep(5.0)

    await together(int(1000 * scale), lambda: send_unread(target.http, polls()))


async def send_unread(address: tuple[str, int], parts: AsyncIterator[bytes]) -> None:
    """Send bytes over a socket from which nothing is read, not even by the event loop."""
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await loop.sock_connect(connection, address)
        async for part in parts:
            await loop.sock_sendall(connection, part)


async def together(count: int, make: Callable[[], Awaitable[object]]) -> None:
    """Do something so many times at once; who is rejected does not stop the others."""

    async def one() -> None:
        with suppress(OSError):
            await make()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(one())


# gRPC


@asynccontextmanager
async def channel_to(target: Target) -> AsyncIterator[grpc.aio.Channel]:
    """Open a connection of its own."""
    host, port = target.grpc
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(f"{host}:{port}", options=options) as channel:
        yield channel


async def streams_of_many_nodes(target: Target, scale: float) -> None:
    """Ten thousand node ids on streams, one after the other on twenty connections."""
    numbers = iter(range(int(10_000 * scale)))

    async def connect() -> None:
        async with channel_to(target) as channel:
            for number in numbers:
                call = channel.stream_stream(f"{ADS}StreamAggregatedResources")()
                node = base_pb2.Node(id=f"made-up-{number}", cluster="nobody")
                node.metadata.update({f"key-{index}": "x" * 80 for index in range(10)})
                await call.write(discovery_pb2.DiscoveryRequest(type_url=CDS, node=node).SerializeToString())
                await call.read()
                call.cancel()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(connect())


async def many_names(target: Target, scale: float) -> None:
    """Streams of Delta subscribe to a hundred thousand names each, a thousand at a time, until they are ended."""

    async def subscribe(stream: int) -> None:
        async with channel_to(target) as channel:
            call = channel.stream_stream(f"{ADS}DeltaAggregatedResources")()
            for batch in range(int(100 * scale)):
                names = [f"stream-{stream}-name-{batch}-{index}" for index in range(1000)]
                node = base_pb2.Node(id=f"n{stream}")
                request = discovery_pb2.DeltaDiscoveryRequest(type_url=EDS, resource_names_subscribe=names, node=node)
                await call.write(request.SerializeToString())
            await asyncio.sleep(3)
            call.cancel()

    async with asyncio.TaskGroup() as tasks:
        for stream in range(4):
            tasks.create_task(subscribe(stream))


async def streams_that_never_read(target: Target, scale: float) -> None:
    """A hundred streams ask for everything, and read none of it."""
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(channel_to(target))
        for number in range(int(100 * scale)):
            call = channel.stream_stream(f"{ADS}StreamAggregatedResources")()
            node = base_pb2.Node(id=f"deaf-{number}")
            await call.write(discovery_pb2.DiscoveryRequest(type_url=CDS, node=node).SerializeToString())
            stack.callback(call.cancel)
        await asyncio.sleep(5)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return an HTTP/2 frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def call_head(path: bytes = f"{ADS}StreamAggregatedResources".encode()) -> bytes:
    """Return the headers of a call, in HPACK without Huffman codes and without its table."""
    headers = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"fsxds"))
    more = ((b"content-type", b"application/grpc"), (b"te", b"trailers"))
    parts = (bytes([0, len(name)]) + name + bytes([len(value)]) + value for name, value in (*headers, *more))
    return b"".join(parts)


async def flood(target: Target, frames: Callable[[int], bytes], count: int) -> None:
    """Send frames over a connection of HTTP/2 without reading anything, until the server closes it."""

    async def parts() -> AsyncIterator[bytes]:
        yield PREFACE + frame(SETTINGS, 0, 0, b"")
        for number in range(count):
            yield frames(number)

    with suppress(TimeoutError):
        async with asyncio.timeout(10.0):
            await send_raw(target.grpc, parts())


def resets(number: int, path: bytes = f"{ADS}StreamAggregatedResources".encode()) -> bytes:
    """Return a hundred calls, each of which is reset at once."""
    head, cancel = call_head(path), struct.pack(">I", 8)
    streams = (2 * (number * 100 + index) + 1 for index in range(100))
    return b"".join(frame(HEADERS, 4, one, head) + frame(RST_STREAM, 0, one, cancel) for one in streams)


async def rapid_resets(target: Target, scale: float) -> None:
    """Twenty connections of strangers reset calls at once, as fast as they can, and come back for a while."""
    parts = [resets(number) for number in range(int(1000 * max(scale, 0.1)))]
    for _ in range(max(1, int(3 * scale))):
        async with asyncio.TaskGroup() as tasks:
            for _ in range(20):
                tasks.create_task(flood(target, parts.__getitem__, len(parts)))


async def http2_floods(target: Target, scale: float) -> None:
    """Floods of settings, pings, streams that are reset at once, streams that stay, and a head without an end."""
    head = call_head()
    rounds = int(300 * scale)

    def opened(number: int) -> bytes:
        return b"".join(frame(HEADERS, 4, 2 * (number * 100 + index) + 1, head) for index in range(100))

    kinds: tuple[Callable[[int], bytes], ...] = (
        lambda _: frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535)) * 100,
        lambda _: frame(PING, 0, 0, bytes(8)) * 100,
        resets,
        opened,
        lambda number: frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b" * 3000) if number else frame(HEADERS, 0, 1, head),
    )
    for frames in kinds:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(4):
                tasks.create_task(flood(target, frames, rounds))


# What is measured


@dataclass(frozen=True)
class Row:
    """An attack, what it is allowed to grow memory by in MiB while it goes on, and how large the tree is."""

    attack: Attack
    growth_mib: float
    clusters: int = 10

    @property
    def name(self) -> str:
        """What it is called."""
        return getattr(self.attack, "__name__", "").replace("_", "-")


ROWS = (
    Row(polls_of_many_nodes, 250),
    Row(polls_of_many_names, 700),
    Row(slow_bodies, 900),
    Row(slow_heads, 100),
    Row(endless_heads, 100),
    Row(huge_bodies, 100),
    Row(polls_that_never_read, 500, 10_000),
    Row(streams_of_many_nodes, 250),
    Row(many_names, 400),
    Row(streams_that_never_read, 500, 10_000),
    Row(http2_floods, 500),
    Row(rapid_resets, 200),
)


@dataclass
class Measured:
    """Memory in MiB before an attack, at most, and after it; how long updates and streams took that came; and what failed."""

    before: float
    most: float = 0.0
    after: float = 0.0
    updates_s: list[float] = field(default_factory=list)
    made: int = 0
    retries: int = 0
    streams_s: list[float] = field(default_factory=list)
    unanswered: int = 0

    @property
    def growth(self) -> float:
        """How much more memory there was."""
        return self.most - self.before


async def measure(target: Target, attack: Attack, scale: float) -> Measured:
    """Attack, and poll for edits as a client that behaves until it is over and at least three came."""
    measured = Measured(target.rss_mib())
    async with asyncio.TaskGroup() as tasks:
        attacking = tasks.create_task(_until_done(attack, target, scale))
        watching = tasks.create_task(_watch_memory(target, measured))
        opening = tasks.create_task(_open_streams(target, measured))
        while not attacking.done() or measured.made < 3:
            await _see_update(target, measured)
            await asyncio.sleep(0.1)
        watching.cancel()
        opening.cancel()
    measured.after = target.rss_mib()
    return measured


async def _until_done(attack: Attack, target: Target, scale: float) -> None:
    # Those that go on for ever end here.
    with suppress(TimeoutError):
        async with asyncio.timeout(3 + 57 * scale):
            await attack(target, scale)


async def _watch_memory(target: Target, measured: Measured) -> None:
    while True:
        measured.most = max(measured.most, target.rss_mib())
        await asyncio.sleep(0.02)


async def _open_streams(target: Target, measured: Measured) -> None:
    """Open one stream after the other, and wait for its first response."""
    request = discovery_pb2.DeltaDiscoveryRequest(type_url=CDS, node={"id": "opens"}).SerializeToString()
    async with channel_to(target) as channel:
        while True:
            began = time.monotonic()
            call = channel.stream_stream(f"{ADS}DeltaAggregatedResources")()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await call.write(request)
                    answered = await call.read() is not grpc.aio.EOF
            except (TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
                answered = False
            call.cancel()
            if answered:
                measured.streams_s.append(time.monotonic() - began)
            else:
                measured.unanswered += 1
            await asyncio.sleep(0.05)


async def _see_update(target: Target, measured: Measured) -> None:
    """Edit the tree, and poll until a response has it."""
    host, port = target.http
    mark, began = target.edit(), time.monotonic()
    measured.made += 1
    version = ""
    async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
        while True:
            body = {"node": {"id": "behaves"}, "version_info": version}
            try:
                async with session.post(f"http://{host}:{port}{CLUSTERS}?timeout=5", json=body) as response:
                    status, content = response.status, await response.read()
            except aiohttp.ClientConnectionError:
                # As Envoy does: the server may be too busy to answer a new connection, and it asks again.
                measured.retries += 1
                await asyncio.sleep(0.5)
                continue
            if status == 200:
                version = json.loads(content)["version_info"]
                if mark.encode() + b'"' in content:
                    measured.updates_s.append(time.monotonic() - began)
                    return


@asynccontextmanager
async def attacked(clusters: int = 10) -> AsyncIterator[Target]:
    """Run a server to attack."""
    with tempfile.TemporaryDirectory(prefix="attacks-") as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        target = Target(Server(tree, Path(folder), "--rollout", "off", "--log-level", "warning"), tree, clusters)
        target.edit()
        with target.server:
            yield target


async def run(row: Row, scale: float) -> bool:
    """Measure an attack, and print it; return whether all went well."""
    async with attacked(row.clusters) as target:
        measured = await measure(target, row.attack, scale)
    streams = len(measured.streams_s)
    is_well = measured.growth <= row.growth_mib and len(measured.updates_s) == measured.made
    is_well = is_well and measured.unanswered * 100 <= streams + measured.unanswered
    print(
        f"| {row.name} | {measured.before:.0f} | {measured.most:.0f} | {measured.after:.0f} "
        f"| {len(measured.updates_s)} of {measured.made} | {max(measured.updates_s, default=0):.2f} s | {measured.retries} "
        f"| {streams} of {streams + measured.unanswered} | {max(measured.streams_s, default=0):.2f} s |"
        f"{'' if is_well else ' FAILED'}",
        flush=True,
    )
    return is_well


async def main() -> int:
    """Run the attacks that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[row.name for row in ROWS], help="this one; may be repeated")
    parser.add_argument("--scale", type=float, default=1.0, help="do so much of it")
    arguments = parser.parse_args()
    print(
        "| attack | RSS before, MiB | at most | after | updates | the slowest | polls failed | streams | the slowest |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    rows = [row for row in ROWS if not arguments.only or row.name in arguments.only]
    return 0 if all([await run(row, arguments.scale) for row in rows]) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
