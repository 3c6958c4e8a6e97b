"""An admin address in this process, and rollouts that are kept in a list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from fsxds.history.entries import HistoryChange, HistoryEntry, SomeNames
from fsxds.model.errors import ProtocolError
from fsxds.model.values import Layers
from fsxds.publishing.rollout_operator import RolloutOperator
from fsxds.settings.forms import Address, TcpAddress
from fsxds.transports.admin.admin_api import AdminApi
from fsxds.transports.admin.admin_reports import (
    ApprovalReport,
    ChannelReport,
    FleetServerReport,
    HeldReport,
    LingeringReport,
    OperatorDecision,
    StepReport,
    WaitingReport,
)
from fsxds.transports.admin.status_paths import RolloutPaths
from fsxds.transports.rest.http_server import ListenerOptions, listening
from tests.support.errors import Recorder

LOCALHOST = TcpAddress("127.0.0.1", 0)
COMMON: Layers = ("common",)
EDGE: Layers = ("common", "edge")
REJECTED = HeldReport(
    type="lds",
    name="web",
    reason="rejected",
    place="edge/lds.yaml:3",
    message="envoy-1 rejects listener web: cannot bind",
    remedy="correct the resource, or that node; until then the node keeps its version, and all other nodes get the new one",
    nodes=("envoy-1",),
    since_s=42.0,
)
REMOVED = HeldReport(
    type="cds",
    name="old",
    reason="waits for approval",
    place="common/cds.yaml:9",
    message="cluster old was removed, and stays until that is approved",
    remedy="run `fsxds rollout approve`",
    since_s=7.0,
)
ROLLED_BACK = replace(
    REMOVED,
    name="web",
    reason="pinned",
    place="common/cds.yaml:1",
    message="cluster web is rolled back",
    remedy="change it, or run `fsxds rollout resume`",
)
BUSY = ChannelReport(
    views=("edge",),
    layers=EDGE,
    cohort="canary",
    clients=2,
    served="0123456789ab",
    target="ba9876543210",
    asked="ba9876543210",
    is_done=False,
    step=StepReport("grow", 1.25, 3.75, (WaitingReport("envoy-1", "gRPC", 1.25),)),
    lingering=(LingeringReport("cds", "old", ("web",), 598.4),),
    held=(REJECTED,),
)
HELD = ChannelReport(
    views=("everyone",),
    layers=COMMON,
    cohort="main",
    clients=40,
    served="0123456789ab",
    target="0123456789ab",
    asked="ba9876543210",
    is_done=True,
    held=(REMOVED,),
    approval=ApprovalReport("9b8c7d6e5f4a", "6 of 10 clusters"),
)
QUIET = replace(HELD, served="ba9876543210", target="ba9876543210", held=(), approval=None)
PINNED = replace(QUIET, held=(ROLLED_BACK,), pinned=1, pinned_for_s=300.0)


CHANGES = {
    "cds": HistoryChange(SomeNames(70, ("a", "b")), SomeNames(1, ("c",))),
    "rds": HistoryChange(removed=SomeNames(1, ("gone",))),
}
HISTORY = [
    HistoryEntry(3, EDGE, "3" * 12, 3000.0, "c0ffee0c0ffee0", CHANGES),
    HistoryEntry(2, COMMON, "2" * 12, 2000.0),
    HistoryEntry(1, EDGE, "1" * 12, 1000.0),
]


@dataclass
class KeptRollouts:
    """Rollouts that an operator decides about, and that nothing else changes.

    Attributes:
        reports: what becomes of each channel.
        nodes: the layers of connected clients, by node id.
        snapshots: the history; None without `--state`.
    """

    reports: list[ChannelReport] = field(default_factory=lambda: [BUSY, HELD])
    nodes: dict[str, Layers] = field(default_factory=lambda: {"envoy-1": EDGE})
    snapshots: list[HistoryEntry] | None = field(default_factory=lambda: HISTORY)
    state_directory: Path | None = Path("/var/lib/fsxds")

    async def channels(self) -> Sequence[ChannelReport]:
        """Return what becomes of each channel."""
        return self.reports

    async def decide(self, decision: OperatorDecision) -> int:
        """Do what an operator decides."""
        return await RolloutOperator.decide(self, decision)  # type: ignore[arg-type]  # it has the same methods

    def views(self) -> Sequence[tuple[str, Layers]]:
        """Return the views of the channels."""
        return [(name, each.layers) for each in self.reports for name in each.views]

    def layers_of_node(self, node_id: str) -> Layers | None:
        """Return the layers of a client."""
        return self.nodes.get(node_id)

    def approve(self, approval_id: str) -> int:
        """Let a removal go on."""
        return self._change(None, lambda each: each.approval and each.approval.id == approval_id, QUIET)

    def retry(self, name: str | None) -> int:
        """Offer what is rejected again."""
        rejected = {one for each in self.reports for one in each.held if one.reason == "rejected"}
        retried = {one for one in rejected if name in (None, one.name)}
        for index, each in enumerate(self.reports):
            self.reports[index] = replace(each, held=tuple(one for one in each.held if one not in retried))
        return len(retried)

    def promote(self) -> int:
        """End canaries."""
        return self._change(None, lambda each: each.waits_for_canary, QUIET)

    def abort(self, layers: frozenset[Layers] | None) -> int:
        """End steps."""
        return self._change(layers, lambda each: each.step is not None, QUIET)

    def resume(self, layers: frozenset[Layers] | None) -> int:
        """End pins."""
        return self._change(layers, lambda each: each.pinned, QUIET)

    async def servers(self) -> Sequence[FleetServerReport]:
        """Return none."""
        return ()

    async def history(self) -> Sequence[HistoryEntry]:
        """Return the snapshots."""
        if self.snapshots is None:
            raise ProtocolError("there is no history; start fsxds with --state DIR", "FAILED_PRECONDITION")
        return self.snapshots

    async def rollback(self, number: int) -> int:
        """Pin a snapshot."""
        for snapshot in await self.history():
            if snapshot.number == number:
                return self._change(frozenset((snapshot.layers,)), bool, replace(PINNED, served=snapshot.version))
        raise ProtocolError(f"@{number}: the history has no such snapshot", "NOT_FOUND")

    async def rollback_all(self, time_s: float) -> int:
        """Pin the newest snapshots that were there at a time."""
        found = {each.layers: each for each in reversed(await self.history()) if each.time_s <= time_s}
        return sum([await self.rollback(each.number) for each in found.values()])

    def _change(self, layers: frozenset[Layers] | None, wants: Any, after: ChannelReport) -> int:
        count = 0
        for index, each in enumerate(self.reports):
            if wants(each) and (layers is None or each.layers in layers):
                self.reports[index] = replace(after, views=each.views, layers=each.layers, cohort=each.cohort)
                count += 1
        return count


@dataclass(frozen=True)
class Admin:
    """A running admin address, and a client of it."""

    rollouts: KeptRollouts
    recorder: Recorder
    address: Address
    client: aiohttp.ClientSession

    async def ask(self, method: str, path: str, **request: Any) -> tuple[int, Any]:
        """Send a request, and return the status and the JSON of the answer; None for an empty body."""
        async with self.client.request(method, path, **request) as response:
            body = await response.read()
            return response.status, await response.json() if body else None

    async def raw(self, content: bytes, *, leave: bool = False) -> bytes:
        """Send bytes on a connection of their own, and return all that comes until it is closed; or `leave` at once."""
        assert isinstance(self.address, TcpAddress)
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port)
        try:
            writer.write(content)
            await writer.drain()
            return b"" if leave else await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def running_admin(rollouts: KeptRollouts | None = None, address: Address = LOCALHOST) -> AsyncIterator[Admin]:
    """Run an admin address, whose rollouts are at work, with a held version, where none are given."""
    kept, recorder = rollouts or KeptRollouts(), Recorder()
    application = AdminApi(RolloutPaths(kept).paths, address, recorder).application()
    async with listening(application, address, grace_s=1.0, options=ListenerOptions("admin")) as bound:
        is_tcp = isinstance(bound, TcpAddress)
        connector = aiohttp.TCPConnector(limit=0) if is_tcp else aiohttp.UnixConnector(str(bound)[len("unix:") :])
        base = f"http://{bound}" if is_tcp else "http://fsxds"
        async with aiohttp.ClientSession(base, connector=connector) as client:
            yield Admin(kept, recorder, bound, client)


@contextmanager
def admin_in_thread(rollouts: KeptRollouts) -> Iterator[str]:
    """Run an admin address beside this thread, and yield it as `--admin` has it."""
    bound: Future[str] = Future()

    async def run() -> None:
        ending, loop = asyncio.Event(), asyncio.get_running_loop()
        async with running_admin(rollouts) as admin:
            ends.append(lambda: loop.call_soon_threadsafe(ending.set))
            bound.set_result(str(admin.address))
            await ending.wait()

    ends: list[Any] = []
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(lambda: asyncio.run(run()))
        try:
            yield bound.result(60)
        finally:
            ends[0]()
            running.result(60)
