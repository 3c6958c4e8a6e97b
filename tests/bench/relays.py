"""(p): what a relay adds to the way of an edit, and what a client of a relay takes, beside one of the server itself."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from tests.bench.data import lean_clusters, replace_file
from tests.bench.figures import Figure
from tests.bench.processes import Server
from tests.bench.stream_clients import Channels, Stream

LEVELS = 3
COUNT = 1000
ROUNDS = 21
# Between two edits, so that each is one of its own.
PAUSE_S = 0.7
FIRST_CLIENTS, CLIENTS, CONNECTIONS = 200, 1000, 20
# What a relay may add to the way of an edit.
TARGET_MS = 10.0


def measure() -> Iterator[Figure]:
    """Measure a server, and relays one behind another, with their defaults."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for number in range(COUNT):
            (tree / f"{number:04d}.yaml").write_text(lean_clusters(number, 1))
        with _chain(tree, LEVELS) as servers:
            levels_ms = asyncio.run(latencies_ms(tree, [server.grpc_port for server in servers]))
        added_ms = [after - before for before, after in pairwise(levels_ms)]
        detail = f"1 of {COUNT} clusters, median of {ROUNDS} edits, at levels 0 to {LEVELS}: " + ", ".join(
            f"{each:.1f}" for each in levels_ms
        )
        yield Figure(
            "(p) what one relay adds to the way of an edit", statistics.mean(added_ms), TARGET_MS, "ms", detail
        )
        with _chain(tree, 1) as servers:
            direct, relayed = (asyncio.run(_bytes_of_client(server)) for server in servers)
    detail = f"Delta, {CLIENTS} clients over {CONNECTIONS} connections: {relayed / 1024:.1f} kB against {direct / 1024:.1f} kB"
    yield Figure("(p) memory of a client of a relay / of the server", relayed / direct, 1.2, "", detail)


async def latencies_ms(tree: Path, ports: list[int]) -> list[float]:
    """Return how long an edit takes to the client of each level, in milliseconds of wall time: the median of each."""
    async with AsyncExitStack() as stack:
        streams = []
        for port in ports:
            channels = await stack.enter_async_context(Channels(port, 1))
            streams += await channels.subscribe(1, is_delta=True)
        rounds = [await _times_ms(tree, streams, 9000 + number) for number in range(ROUNDS)]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


async def _times_ms(tree: Path, streams: list[Stream], port: int) -> list[float]:
    async def arrival(stream: Stream) -> float:
        body: bytes = await stream.call.read()
        at_s = time.monotonic()
        await stream.accept(body)
        return at_s

    await asyncio.sleep(PAUSE_S)
    async with asyncio.TaskGroup() as tasks:
        arrivals = [tasks.create_task(arrival(stream)) for stream in streams]
        began_s = time.monotonic()
        await asyncio.to_thread(replace_file, tree / "0007.yaml", lean_clusters(7, 1, port))
    return [(task.result() - began_s) * 1e3 for task in arrivals]


async def _bytes_of_client(server: Server) -> float:
    """Return the bytes that one more client takes, after as many as were there before."""
    async with Channels(server.grpc_port, CONNECTIONS) as channels:
        first = await channels.subscribe(FIRST_CLIENTS, is_delta=True)
        await asyncio.sleep(2)
        before = server.memory_bytes()
        more = await channels.subscribe(CLIENTS, is_delta=True)
        await asyncio.sleep(2)
        assert len(first) + len(more) == FIRST_CLIENTS + CLIENTS
        return (server.memory_bytes() - before) / CLIENTS


@contextmanager
def _chain(tree: Path, relays: int) -> Iterator[list[Server]]:
    """Serve a tree, and so many relays one behind another; yields all of them, from the server on."""
    with serving(str(tree)) as first:
        servers = [first]
        with ExitStack() as stack:
            for _ in range(relays):
                address = f"127.0.0.1:{servers[-1].grpc_port}"
                servers.append(stack.enter_context(serving("--upstream", address)))
            yield servers


@contextmanager
def serving(*source: str) -> Iterator[Server]:
    """Serve a source by gRPC alone."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder, "ready.json")
        options = ["--http", "off", "--admin", "off", "--grpc", "127.0.0.1:0", "--ready-file", str(ready)]
        command = [sys.executable, "-m", "fsxds", "serve", *source, *options]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                while not ready.exists():
                    time.sleep(0.05)
                port = json.loads(ready.read_text())["grpc"].rpartition(":")[2]
                yield Server(process.pid, 0, int(port))
            finally:
                process.terminate()
