"""(c), (d) and (e): what an answer costs, how soon an edit arrives, and what thousands of held polls take."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import processes
from tests.bench.clients import Answer, Connection, HeldPoll, ask_often, get, post
from tests.bench.data import clusters, replace_file, write_tree
from tests.bench.figures import Figure

CLUSTERS = "/v3/discovery:clusters"
REAL_REQUEST = Path(__file__).parents[1] / "data" / "rest-request-clusters.json"


def measure(polls: int) -> Iterator[Figure]:
    """Measure the running server; `polls` is how many are held at once."""
    yield from _answers()
    for count, target_ms in ((1000, 100.0), (10_000, 300.0)):
        yield _edit_to_answer(count, target_ms)
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
    detail = f"Envoy's real request of {REAL_REQUEST.stat().st_size / 1e3:.0f} kB"
    yield Figure("(c) REST 304, CPU", unchanged_s * 1e3, 0.35, "ms", detail)


def _cpu_per_request(server: processes.Server, request: bytes, times: int) -> float:
    ask_often(server.port, request, times // 10)
    before = server.cpu_s()
    ask_often(server.port, request, times)
    return (server.cpu_s() - before) / times


def _edit_to_answer(count: int, target_ms: float) -> Figure:
    """Edit one of 100 files while a poll is held; the settle window of 50 ms is included."""
    with tempfile.TemporaryDirectory() as folder:
        edited = write_tree(Path(folder), count, 100)
        with processes.fsxds(Path(folder)) as server:
            connection = Connection(server.port)
            answer = connection.ask(post(CLUSTERS, b'{"node":{"id":"bench"}}'))
            times_ms = []
            for port in range(9000, 9007):
                elapsed_s, answer = _one_edit(connection, answer, lambda at=port: _replace(edited, count // 100, at))
                times_ms.append(elapsed_s * 1000)
    median = sorted(times_ms)[len(times_ms) // 2]
    detail = (
        f"{count} clusters in 100 files, {len(answer.body) / 1e6:.1f} MB; {min(times_ms):.0f} to {max(times_ms):.0f} ms"
    )
    return Figure(f"(d) edit to bytes, {count} clusters", median, target_ms, "ms", detail)


def _replace(path: Path, count: int, port: int) -> None:
    replace_file(path, clusters(0, count, port))


def _one_edit(connection: Connection, answer: Answer, edit: Callable[[], None]) -> tuple[float, Answer]:
    version = json.loads(answer.body)["version_info"]
    body = json.dumps({"version_info": version, "node": {"id": "bench"}}).encode()
    with_deadline = post(CLUSTERS, body, "x-envoy-expected-rq-timeout-ms: 30000")
    connection._socket.sendall(with_deadline)  # sending apart from reading is what this measures
    time.sleep(0.3)
    began = time.monotonic()
    edit()
    news = connection.read_answer()
    assert news.status == 200
    return news.at_s - began, news


def _held_polls(polls: int) -> Iterator[Figure]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, polls + 1000)), hard))
    with tempfile.TemporaryDirectory() as folder:
        edited = write_tree(Path(folder), 1, 1)
        with processes.fsxds(Path(folder)) as server:
            answer = Connection(server.port).ask(post(CLUSTERS, b"{}"))
            version = json.loads(answer.body)["version_info"]
            requests = [_real_poll(version, number) for number in range(polls)]
            ours = asyncio.run(_wake_all(server, requests, lambda: _replace(edited, 1, 9000)))
    with processes.bare_aiohttp(answer.body) as server:
        baseline = asyncio.run(
            _wake_all(server, [post("/poll", b'{"node":{"id":"bench"}}')] * polls, lambda: _wake(server.port))
        )
    detail = f"{polls} polls of 77 kB; a bare aiohttp server, of 22 bytes: {baseline[0] / 1024:.1f} kB"
    yield Figure("(e) memory of a held poll", ours[0] / 1024, 16, "kB", detail)
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


async def _wake_all(server: processes.Server, requests: list[bytes], change: Callable[[], None]) -> tuple[float, float]:
    """Return bytes of memory per held poll, and seconds from the change to the last byte of the last answer."""
    loop = asyncio.get_running_loop()
    done: asyncio.Queue[tuple[float, float]] = asyncio.Queue()
    before = server.memory_bytes()
    transports = []
    for request in requests:
        transport, _ = await loop.create_connection(lambda sent=request: HeldPoll(sent, done), "127.0.0.1", server.port)
        transports.append(transport)
    await asyncio.sleep(2)
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
