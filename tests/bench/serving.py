"""(c), (d) and (e): what an answer costs, how soon an edit arrives, and what thousands of held polls take."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import processes
from tests.bench.clients import Connection, HeldPoll, ask_often, get, post
from tests.bench.data import clusters, replace_file, write_tree
from tests.bench.figures import Figure

CLUSTERS = "/v3/discovery:clusters"
REAL_REQUEST = Path(__file__).parents[1] / "data" / "rest-request-clusters.json"


def measure(polls: int) -> Iterator[Figure]:
    """Measure the running server; `polls` is how many are held at once."""
    yield from _answers()
    for count, target in ((1000, 1.5), (10_000, 1.0)):
        yield _edit_to_answer(count, target)
    yield from _held_polls(polls)


def _answers() -> Iterator[Figure]:
    times = 3000
    with tempfile.TemporaryDirectory() as folder:
        write_tree(Path(folder), 1000, 10)
        with processes.fsxds(Path(folder)) as server:
            request = post(CLUSTERS, b'{"node":{"id":"bench"}}')
            body = Connection(server.port).ask(request).body
            ours_s = _cpu_per_request(server, request, times)
            real = json.loads(REAL_REQUEST.read_bytes())
            real["version_info"] = json.loads(body)["version_info"]
            # A deadline under 300 ms is answered at once.
            unchanged = post(CLUSTERS, json.dumps(real).encode(), "x-envoy-expected-rq-timeout-ms: 200")
            assert Connection(server.port).ask(unchanged).status == 304
            unchanged_s = _cpu_per_request(server, unchanged, times * 2)
    if shutil.which("nginx") or Path("/usr/sbin/nginx").exists():
        with processes.nginx(body, _free_port()) as baseline:
            assert Connection(baseline.port).ask(get("/body")).body == body
            nginx_s = _cpu_per_request(baseline, get("/body"), times)
        detail = f"1000 clusters, {len(body) / 1e6:.1f} MB: {ours_s * 1e3:.2f} ms against {nginx_s * 1e3:.2f} ms CPU"
        yield Figure("(c) REST 200 / nginx, same bytes", ours_s / nginx_s, 2.5, "", detail)
    with processes.bare_aiohttp() as baseline:
        unchanged = post("/unchanged", json.dumps(real).encode())
        assert Connection(baseline.port).ask(unchanged).status == 304
        bare_s = _cpu_per_request(baseline, unchanged, times)
    size = f"Envoy's real request of {REAL_REQUEST.stat().st_size / 1e3:.0f} kB"
    detail = f"{size}: {unchanged_s * 1e3:.2f} ms against {bare_s * 1e3:.2f} ms CPU"
    yield Figure("(c) REST 304 / bare aiohttp that reads the JSON", unchanged_s / bare_s, 0.5, "", detail)


def _cpu_per_request(server: processes.Server, request: bytes, times: int) -> float:
    ask_often(server.port, request, times // 10)
    before = server.cpu_s()
    ask_often(server.port, request, times)
    return (server.cpu_s() - before) / times


def _edit_to_answer(count: int, target: float) -> Figure:
    """Edit one of 100 files while a poll is held; the settle window of 50 ms is included."""
    with tempfile.TemporaryDirectory() as folder:
        edited = write_tree(Path(folder), count, 100)
        with processes.fsxds(Path(folder)) as server:
            ours_ms, size = _edits_ms(server.port, CLUSTERS, edited, count // 100)
        with processes.bare_aiohttp(tree=Path(folder)) as server:
            bare_ms, _ = _edits_ms(server.port, "/poll", edited, count // 100)
    detail = f"{size / 1e6:.1f} MB, by hand with watchdog, CSafeLoader and aiohttp: {ours_ms:.0f} ms against {bare_ms:.0f} ms"
    return Figure(f"(d) edit to bytes, {count} clusters / by hand", ours_ms / bare_ms, target, "", detail)


def _edits_ms(port: int, path: str, edited: Path, count: int) -> tuple[float, int]:
    """Return the median of the milliseconds from an edit to the last byte at a held poll, and how many bytes these are."""
    connection = Connection(port)
    version, times_ms, size = None, [], 0
    if path == CLUSTERS:
        version = json.loads(connection.ask(post(path, b'{"node":{"id":"bench"}}')).body)["version_info"]
    for number in range(9000, 9007):
        body = {"node": {"id": "bench"}} | ({"version_info": version} if version else {})
        connection.send(post(path, json.dumps(body).encode(), "x-envoy-expected-rq-timeout-ms: 30000"))
        time.sleep(0.3)
        began = time.monotonic()
        _replace(edited, count, number)
        answer = connection.read_answer()
        assert answer.status == 200
        times_ms.append((answer.at_s - began) * 1000)
        size = len(answer.body)
        version = version and json.loads(answer.body)["version_info"]
    return statistics.median(times_ms), size


def _replace(path: Path, count: int, port: int) -> None:
    replace_file(path, clusters(0, count, port))


def _held_polls(polls: int) -> Iterator[Figure]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, polls + 1000)), hard))
    with tempfile.TemporaryDirectory() as folder:
        edited = write_tree(Path(folder), 1, 1)
        with processes.fsxds(Path(folder)) as server:
            answer = Connection(server.port).ask(post(CLUSTERS, b"{}"))
            version = json.loads(answer.body)["version_info"]
            requests = [_real_poll(version, number) for number in range(polls)]
            ours = asyncio.run(wake_all(server, requests, lambda: _replace(edited, 1, 9000)))
    with processes.bare_aiohttp(answer.body) as server:
        baseline = asyncio.run(
            wake_all(server, [post("/poll", b'{"node":{"id":"bench"}}')] * polls, lambda: _wake(server.port))
        )
    detail = f"{polls} polls, {ours[0] / 1024:.1f} kB for 77 kB against {baseline[0] / 1024:.1f} kB for 22 bytes"
    yield Figure("(e) memory of a held poll / bare aiohttp", ours[0] / baseline[0], 1.5, "", detail)
    detail = (
        f"{polls} polls, from the edit: {ours[1] * 1e3:.0f} ms (settling included), bare: {baseline[1] * 1e3:.0f} ms"
    )
    yield Figure("(e) all woken, last byte / bare aiohttp", ours[1] / baseline[1], 4, "", detail)


def _real_poll(version: str, number: int) -> bytes:
    """Return the request of one of many Envoys: 77 kB, and no two alike."""
    request = json.loads(REAL_REQUEST.read_bytes())
    request["version_info"] = version
    request["node"]["id"] = f"node-{number}"
    return post(CLUSTERS, json.dumps(request).encode())


def _wake(port: int) -> None:
    Connection(port).ask(post("/wake", b"{}"))


async def wake_all(server: processes.Server, requests: list[bytes], change: Callable[[], None]) -> tuple[float, float]:
    """Return bytes of memory per held poll, and seconds from the change to the last byte of the last answer."""
    loop = asyncio.get_running_loop()
    done: asyncio.Queue[tuple[float, float]] = asyncio.Queue()
    before = server.memory_bytes()
    transports = []
    for request in requests:
        transport, _ = await loop.create_connection(lambda sent=request: HeldPoll(sent, done), "127.0.0.1", server.port)
        transports.append(transport)
    # All are held: not after some time, but when the server has read them all and rests.
    await asyncio.to_thread(server.wait_until_idle, len(requests))
    each = (server.memory_bytes() - before) / len(requests)
    began = time.monotonic()
    await asyncio.to_thread(change)
    last_s = max([await done.get() for _ in requests])[1]
    for transport in transports:
        transport.close()
    return each, last_s - began


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
