"""(o): what thousands of held GETs take, against as many polls for the same."""

from __future__ import annotations

import asyncio
import json
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench import processes
from tests.bench.clients import Connection, get, post
from tests.bench.data import clusters, replace_file, write_tree
from tests.bench.figures import Figure
from tests.bench.serving import CLUSTERS, wake_all


@dataclass(frozen=True, slots=True)
class _Held:
    """What held requests took: bytes and CPU seconds of each, and seconds from the edit to the last byte of the last one."""

    each_bytes: float
    each_s: float
    last_s: float


def measure(count: int) -> Iterator[Figure]:
    """Hold so many of each, and change what they wait for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 1000)), hard))
    polls, gets = _hold(count, is_get=False), _hold(count, is_get=True)
    detail = f"{count} of each: {gets.each_bytes / 1024:.1f} kB against {polls.each_bytes / 1024:.1f} kB"
    yield Figure("(o) memory of a held GET / of a held poll", gets.each_bytes / polls.each_bytes, 1.2, "", detail)
    detail = (
        f"{count} of each, from the edit to rest: {gets.each_s * 1e3:.2f} ms against {polls.each_s * 1e3:.2f} ms each"
    )
    yield Figure("(o) CPU of a GET that is woken / of a poll", gets.each_s / polls.each_s, 1.2, "", detail)
    detail = f"{count} of each, settling included: {gets.last_s * 1e3:.0f} ms against {polls.last_s * 1e3:.0f} ms"
    yield Figure("(o) all woken, last byte: GETs / polls", gets.last_s / polls.last_s, 1.2, "", detail)


def _hold(count: int, *, is_get: bool) -> _Held:
    with tempfile.TemporaryDirectory() as folder:
        edited = write_tree(Path(folder), 1, 1)
        with processes.fsxds(Path(folder)) as server:
            polled = json.loads(Connection(server.port).ask(post(CLUSTERS, b"{}")).body)
            path = f"/envoy.config.cluster.v3.Cluster/{polled['resources'][0]['name']}"
            tag = Connection(server.port).ask(get(path)).header("etag")
            requests = [
                _get(path, tag, number) if is_get else _poll(polled["version_info"], number) for number in range(count)
            ]
            cpu_s: list[float] = []

            def change() -> None:
                cpu_s.append(server.cpu_s())
                replace_file(edited, clusters(0, 1, 9000))

            each_bytes, last_s = asyncio.run(wake_all(server, requests, change))
            return _Held(each_bytes, (server.cpu_s() - cpu_s[0]) / count, last_s)


def _poll(version: str, number: int) -> bytes:
    return post(CLUSTERS, json.dumps({"version_info": version, "node": {"id": f"node-{number}"}}).encode())


def _get(path: str, tag: str, number: int) -> bytes:
    return get(f"{path}?xds.node.id=node-{number}", "prefer: wait=60", f"if-none-match: {tag}")
