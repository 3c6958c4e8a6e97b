"""(j) Clients that go away, at any byte: what is logged of them, what stays behind, and whether others are served."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from fsxds.settings.forms import Address, TcpAddress, UnixAddress
from tests.bench import data
from tests.bench.figures import Figure
from tests.bench.stream_clients import Channels, Stream
from tests.support.departures import many_go_away
from tests.support.grpc_departures import conversations
from tests.support.server import Server

# Their response takes over a mebibyte: of those, the server keeps the last two alone.
CLUSTERS = 2000
# During each part the tree is edited, and the client that stays has to be sent it.
PARTS = 20
# What a client that stays may be made to wait for an edit, on a busy machine.
PATIENCE_S = 20.0
# So long after a connection is gone, gRPC has let go of all that it kept for it.
SETTLED_S = 20
OF_EDITS = {"snapshot_published", "change_reported"}


def measure(times: int) -> Iterator[Figure]:
    """Let `times` clients of gRPC go away, half of them from a unix socket."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("TCP", "a unix socket"):
            yield from _measure(Path(folder), name, times // 2)


def _measure(folder: Path, name: str, times: int) -> Iterator[Figure]:
    tree = folder / "tree"
    tree.mkdir(exist_ok=True)
    (tree / "clusters.yaml").write_text(data.clusters(0, CLUSTERS))
    socket_path = folder / "grpc.sock"
    grpc = "127.0.0.1:0" if name == "TCP" else f"unix:{socket_path}"
    (folder / "fsxds.log").unlink(missing_ok=True)
    with Server(tree, folder, grpc=grpc, fresh=True) as server:
        address: Address = TcpAddress("127.0.0.1", server.grpc_port) if name == "TCP" else UnixAddress(socket_path)
        told_before = len(server.log_file.read_text())
        grown_kb, left, slowest_s = asyncio.run(_depart(server, tree, address, times))
        lines = _lines(server.log_file.read_text()[told_before:])
    yield Figure(
        f"(j) lines logged of {times} disconnects from {name}", len(lines), 0, "lines", "; ".join(lines[:3])[:300]
    )
    detail = f"files and threads left: {left}; an edit reached the client that stays within {slowest_s * 1e3:.0f} ms"
    yield Figure(f"(j) memory that they left behind, {name}", grown_kb / 1024, 8, "MB", detail)


async def _depart(server: Server, tree: Path, address: Address, times: int) -> tuple[float, int, float]:
    """Return how the server grew in the second half, and the slowest edit.

    That is in kilobytes, files and threads; and in seconds.
    """
    async with Channels(str(address), 1) as channels:
        async with asyncio.timeout(PATIENCE_S):
            (stream,) = await channels.subscribe(1, is_delta=True)
        slowest_s, states = 0.0, []
        for part in range(PARTS):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(many_go_away(address, conversations, times // PARTS, seed=part))
                slowest_s = max(slowest_s, await _edit(stream, tree, part))
            # What is taken once, and fragments, is there after the first half.
            if part + 1 in {PARTS // 2, PARTS}:
                states.append(await _state_of(server))
    (before_kb, before), (after_kb, after) = states
    return after_kb - before_kb, after - before, slowest_s


async def _edit(stream: Stream, tree: Path, number: int) -> float:
    """Change one more file; return how long it took until the client that stays was sent it."""
    began_s = time.monotonic()
    written = data.clusters(CLUSTERS, 1).replace("alt_stat_name: ", f"alt_stat_name: n{number}_")
    data.replace_file(tree / "edited.yaml", written)
    async with asyncio.timeout(PATIENCE_S):
        while f"n{number}_".encode() not in await stream.take():
            pass
    return time.monotonic() - began_s


async def _state_of(server: Server) -> tuple[float, int]:
    """Return the resident kilobytes of a server, and its files and threads, when it let go of what it can."""
    await asyncio.sleep(SETTLED_S)
    return _resident_kb(server.pid), _files_and_threads(server.pid)


def _resident_kb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def _files_and_threads(pid: int) -> int:
    return sum(len(os.listdir(f"/proc/{pid}/{folder}")) for folder in ("fd", "task"))  # noqa: PTH208


def _lines(log: str) -> list[str]:
    """Return what was logged and is not of the edits; what is no JSON is none of ours."""
    lines = log.splitlines()
    return [line for line in lines if not line.startswith("{") or json.loads(line)["event"] not in OF_EDITS]
