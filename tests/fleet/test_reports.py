from __future__ import annotations

import asyncio

import pytest

from fsxds.fleet.content import FleetContent
from fsxds.fleet.key_values import Lease, Put
from fsxds.fleet.memory_engine import MemoryKeyValues
from fsxds.fleet.pointers import Order, ViewKey
from fsxds.fleet.reports import MemberReport, MemberReporter, RejectingGroup, Servers, ViewClients
from fsxds.fleet.sealing import Sealing
from fsxds.model.values import TypeUrl, Version
from fsxds.snapshots.encoding import DamagedBytesError
from tests.fleet.made import KEYS
from tests.support.patience import PATIENCE_S


def test_report_comes_back() -> None:
    """With all views that a server serves."""
    canary = ViewKey(("a",), is_canary=True)
    version = (TypeUrl("type"), "name"), Version("1f")
    clients = {
        ViewKey(): ViewClients(17, (RejectingGroup({version: 'no "such" thing'}, (("edge-1", "c"),), 9),)),
        canary: ViewClients(2, (), {("edge-2", ""): True, ("edge-3", "c"): False}),
    }
    report = MemberReport(Order(3, 4), {ViewKey(): Order(3, 2), canary: Order(1, 1)}, clients)

    assert MemberReport.decoded(report.encoded()) == report


@pytest.mark.parametrize(
    "damaged", [b"", b"[]", b'{"order":[1,2]}', b'{"order":[1,1],"taken":{},"clients":{"[[],false]":[1]}}']
)
def test_damaged_bytes_are_no_report(damaged) -> None:
    """Whatever JSON they are."""
    with pytest.raises(DamagedBytesError):
        MemberReport.decoded(damaged)


async def test_servers_are_there_as_long_as_their_leases() -> None:
    """Each reports when it has something else to say, and again under another lease; one of another version is there, too."""
    engine = MemoryKeyValues()
    changed = asyncio.Event()
    content = FleetContent(engine, KEYS, Sealing((b"k" * 32,)))
    servers = Servers(content, changed.set)
    lease = Lease(engine)
    reports = [MemberReport(Order(1, 1))]
    reporter = MemberReporter(content, KEYS.servers + b"a", lease, lambda: reports[-1])
    running = [asyncio.create_task(one) for one in (servers.keep_current(), reporter.keep_reported())]

    async def until(expected: dict[str, MemberReport]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while servers.reports != expected:
                changed.clear()
                await changed.wait()

    lease.current.replace(await engine.grant(60))
    await until({"a": reports[-1]})
    assert b"order" not in (await engine.read([KEYS.servers + b"a"])).values[KEYS.servers + b"a"].value
    reports.append(MemberReport(Order(1, 2), {}, {ViewKey(): ViewClients(3)}))
    reporter.note()
    await until({"a": reports[-1]})
    await engine.write([Put(KEYS.servers + b"b", b"written by another version")])
    await until({"a": reports[-1], "b": MemberReport()})
    await engine.revoke(lease.current.current)
    await until({"b": MemberReport()})
    lease.current.replace(await engine.grant(60))
    await until({"a": reports[-1], "b": MemberReport()})

    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
