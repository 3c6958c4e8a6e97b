"""(q): what etcd adds to the way of an edit, and what many servers cost its members."""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Iterator
from pathlib import Path

from fsxds.fleet.content import FleetContent
from fsxds.fleet.etcd import EtcdKeyValues, Members
from fsxds.fleet.following import Following
from fsxds.fleet.key_values import Lease
from fsxds.fleet.pointers import NOTHING_PUBLISHED
from fsxds.fleet.reports import MemberReport, MemberReporter, Servers, ViewClients
from fsxds.model.resources import Snapshot
from tests.bench.data import lean_clusters
from tests.bench.figures import Figure
from tests.bench.relays import COUNT, ROUNDS, latencies_ms, serving
from tests.fleet.made import KEYS, WHOLE, elected
from tests.history.made import clusters, snapshot_of
from tests.support.etcd import ETCD, Etcd, running_etcd

SERVERS, NODES, CLUSTERS, EDITS = 20, 5000, 10_000, 15
IDLE_S = 10.0
# The limits that a fleet was built for: an edit a second, in one step.
TARGET_MS, TARGET_CORE, TARGET_KB = 30.0, 0.15, 40.0


def measure() -> Iterator[Figure]:
    """Measure with three members of a real etcd; nothing if there is none here."""
    if ETCD is None:
        return
    with tempfile.TemporaryDirectory() as folder, running_etcd(Path(folder), 3) as etcd:
        yield _edit(etcd)
    with tempfile.TemporaryDirectory() as folder, running_etcd(Path(folder), 3) as etcd:
        yield from asyncio.run(_many_servers(etcd))


def _edit(etcd: Etcd) -> Figure:
    """Serve one tree alone, and by a fleet to a client of a server without a tree."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for number in range(COUNT):
            (tree / f"{number:04d}.yaml").write_text(lean_clusters(number, 1))
        fleet = "--fleet", f"{etcd.url}/bench"
        with serving(str(tree)) as alone, serving(str(tree), *fleet), serving(*fleet) as follower:
            alone_ms, fleet_ms = asyncio.run(latencies_ms(tree, [alone.grpc_port, follower.grpc_port]))
    detail = f"1 of {COUNT} clusters, median of {ROUNDS} edits: {fleet_ms:.1f} ms, alone {alone_ms:.1f} ms"
    return Figure("(q) what a fleet adds to the way of an edit", fleet_ms - alone_ms, TARGET_MS, "ms", detail)


class _Member:
    """A server that follows, and reports nodes of its own whenever it serves something else."""

    def __init__(self, engine: EtcdKeyValues, name: str) -> None:
        content = FleetContent(engine, KEYS)
        self.following = Following(content, lambda _: None, self._receive)
        self._lease = Lease(engine)
        self._reporter = MemberReporter(content, KEYS.servers + name.encode(), self._lease, self._report)

    def _receive(self, _: object) -> None:
        self._reporter.note()

    def _report(self) -> MemberReport:
        taken = self.following.orders.get(WHOLE, NOTHING_PUBLISHED)
        return MemberReport(self.following.applied.current, {WHOLE: taken}, {WHOLE: ViewClients(NODES)})

    def start(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Run it."""
        works = self.following.keep_current, self._lease.keep_alive, self._reporter.keep_reported
        return [tasks.create_task(work()) for work in works]


async def _many_servers(etcd: Etcd) -> list[Figure]:
    """Publish an edit each second to many servers, each of which reports that its nodes have taken it."""
    engines = [EtcdKeyValues(Members(etcd.targets)) for _ in range(SERVERS + 1)]
    publication = await elected(engines[0])
    snapshot = snapshot_of(clusters(CLUSTERS))
    await publication.publish(WHOLE, snapshot)
    reported = asyncio.Event()
    servers = Servers(publication.content, reported.set)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(servers.keep_current())]
        for number, engine in enumerate(engines[1:]):
            running += _Member(engine, f"server-{number:02d}").start(tasks)
        await asyncio.sleep(IDLE_S)
        idle = await _during(etcd, asyncio.sleep(IDLE_S))
        late_ms: list[float] = []

        async def edit() -> None:
            before: Snapshot = snapshot
            for number in range(EDITS):
                ends_s = time.monotonic() + 1.0
                before = snapshot_of(clusters(CLUSTERS, {number: b"edit %d" % number}), before)
                began_s = time.monotonic()
                order = await publication.publish(WHOLE, before)
                while sum(one.order >= order for one in servers.reports.values()) < SERVERS:
                    reported.clear()
                    await reported.wait()
                late_ms.append((time.monotonic() - began_s) * 1e3)
                await asyncio.sleep(max(0.0, ends_s - time.monotonic()))

        busy = await _during(etcd, edit())
        for each in running:
            each.cancel()
    detail = (
        f"{SERVERS} servers that report {NODES} nodes each, {CLUSTERS} clusters, an edit a second; idle {idle[0]:.1%}"
    )
    kilobytes = (busy[1] - idle[1] * EDITS / IDLE_S) / EDITS / 1e3
    lateness = f"all servers had reported it within {statistics.median(late_ms):.0f} ms (median)"
    return [
        Figure("(q) CPU of three members of etcd, of one core", busy[0], TARGET_CORE, "", detail),
        Figure("(q) sent to etcd for an edit", kilobytes, TARGET_KB, "kB", lateness),
    ]


async def _during(etcd: Etcd, work: Awaitable[object]) -> tuple[float, float]:
    """Return the share of a core that the members took during `work`, and the bytes that they were sent."""
    began_s, before = time.monotonic(), await asyncio.to_thread(_spent, etcd)
    await work
    after, took_s = await asyncio.to_thread(_spent, etcd), time.monotonic() - began_s
    return (after[0] - before[0]) / took_s, after[1] - before[1]


def _spent(etcd: Etcd) -> tuple[float, float]:
    """Return the seconds of CPU of all members so far, and the bytes that clients sent them."""
    cpu_s = received = 0.0
    for process in etcd.processes.values():
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        cpu_s += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    for _, _, metrics in etcd.ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics") as response:
            found = re.search(
                r"^etcd_network_client_grpc_received_bytes_total (\S+)", response.read().decode(), re.MULTILINE
            )
        received += float(found[1]) if found else 0.0
    return cpu_s, received
