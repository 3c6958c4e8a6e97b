"""How many clients may go away, at any byte of their request or answer, before anybody else notices."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from fsxds.settings.forms import Address, UnixAddress, parse_address
from tests.bench.data import write_tree
from tests.bench.figures import Figure
from tests.support.departures import JSON, bad_requests, connected, good_requests, many_go_away, wire
from tests.support.server import Server, events_in

CLUSTERS = "/v3/discovery:clusters"
# What is refused is told as `request_rejected`; all other lines would be about those who go away.
EXPECTED = frozenset({"api_found", "listening", "watching", "snapshot_published", "request_rejected"})
# A part of the clients goes away first, so that caches and pools are full before memory is measured.
WARM_UP = 0.2
BATCH = 50


def measure(departures: int) -> Iterator[Figure]:
    """Let so many clients go away, half of them over TCP and half over a unix socket."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        tree.mkdir()
        write_tree(tree, 1000, 10)
        for http in ("127.0.0.1:0", f"unix:{folder}/x.sock"):
            with Server(tree, Path(folder), "--log-format", "json", http=http, grpc="off", fresh=True) as server:
                yield asyncio.run(_measure_one(server, parse_address(server.ready["http"]), departures // 2))
            Path(folder, "fsxds.log").unlink()


async def _measure_one(server: Server, address: Address, departures: int) -> Figure:
    version = json.loads((await _poll(address))[1].partition(b"\r\n\r\n")[2])["version_info"]
    requests = [*good_requests(random.Random(1), {CLUSTERS: version}), *bad_requests()]
    warm_up = int(departures * WARM_UP)
    descriptors = _descriptors(server)
    await many_go_away(address, lambda _: requests, warm_up, seed=1)
    memory = _memory_bytes(server)
    times_s: list[float] = []
    for batch in range((departures - warm_up) // BATCH):
        # One poll beside each batch: connections of those who left wait to be accepted before its own.
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(many_go_away(address, lambda _: requests, BATCH, seed=2 + batch))
            times_s.append(await _served_s(address))
    await _until(lambda: _descriptors(server) <= descriptors)
    lines = Counter(event["event"] for event in events_in(server.log_file.read_bytes()))
    others = sum(count for event, count in lines.items() if event not in EXPECTED)
    detail = (
        f"log lines about them, {'unix' if isinstance(address, UnixAddress) else 'TCP'}: {departures} went away, "
        f"{len(times_s)} polls of another served meanwhile, in {median(times_s) * 1e3:.0f} ms, the slowest in {max(times_s) * 1e3:.0f} ms; "
        f"{_descriptors(server) - descriptors} descriptors and {(_memory_bytes(server) - memory) / 2**20:.1f} MiB more"
    )
    return Figure("(j) REST: disconnects survived", others, 0, "lines", detail)


async def _served_s(address: Address) -> float:
    began = time.monotonic()
    status, _ = await _poll(address)
    if status != 200:
        message = f"one who stays got {status}"
        raise RuntimeError(message)
    return time.monotonic() - began


async def _poll(address: Address) -> tuple[int, bytes]:
    request = wire(CLUSTERS, b'{"node": {"id": "stays"}}', JSON, "connection: close")
    reader, writer = await asyncio.open_connection(sock=connected(address))
    writer.write(request)
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    return int(answer.split(maxsplit=2)[1]), answer


async def _until(predicate: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not predicate():  # noqa: ASYNC110, the process of another tells nothing
            await asyncio.sleep(0.05)


def _descriptors(server: Server) -> int:
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


def _memory_bytes(server: Server) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))
