"""No client goes back that comes from a server that is ahead."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from fsxds.fleet.key_values import Found, KeyValues
from fsxds.fleet.memory_engine import MemoryKeyValues
from tests.fleet.fleet_servers import fleet_of
from tests.fleet.made import FaultyEngine
from tests.fleet.test_member import NEW, OLD, serving, until
from tests.support.publishing import CDS, virtually


def engines(count: int) -> tuple[list[KeyValues], FaultyEngine]:
    """Return the engines of so many servers, and that of the last one, which may lag."""
    engine = MemoryKeyValues()
    last = FaultyEngine(engine, random.Random(0), 0.0)
    return [*[engine] * (count - 1), last], last


@virtually
async def test_who_comes_from_a_server_that_is_ahead_waits() -> None:
    """Until this one has what is published; who has the same as others here does not."""
    given, link = engines(2)
    async with fleet_of(1, 1, engines=given) as servers:
        await serving(servers)
        client, other = await servers[0].join("edge-1"), await servers[0].join("edge-2", is_quick=False)
        link.lag_s = 2.0
        servers[0].save({"CDS": {"old": "1", "new": "2"}, "RDS": {"r": "1 CDS:old"}})
        await until(lambda: client.clusters() == {"old": "1", "new": "2"})
        other.leave()
        client.leave()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        served = await servers[1].come(client)
        assert list(served.resources(CDS)) == ["new", "old"]
        assert 0.5 < loop.time() - began_s < 2.5


@virtually
async def test_who_comes_waits_also_for_the_steps_of_this_server() -> None:
    """It missed what was published, and leads its own clients there: who is ahead of them is served the last step."""
    given, link = engines(2)
    async with fleet_of(1, 1, engines=given) as servers:
        await serving(servers)
        client = await servers[0].join("edge-1")
        slow = await servers[1].join("slow", is_quick=False)
        link.lag_s = 40.0
        servers[0].save(NEW)
        await until(lambda: client.clusters() == {"new": "bad"})
        link.lag_s = 0.0
        client.leave()
        store = servers[1].publisher.whole.store
        await until(lambda: store.current is not None and "new" in store.current.resources(CDS))
        coming = asyncio.create_task(servers[1].come(client))
        await asyncio.sleep(1.0)
        assert not coming.done()
        slow.quicken()
        assert [*(await coming).resources(CDS)] == ["new"]


@virtually
async def test_nobody_waits_for_longer_than_is_allowed() -> None:
    """A server that is cut off serves what it has; at once to those who have that."""
    given, link = engines(2)
    async with fleet_of(1, 1, engines=given) as servers:
        await serving(servers)
        client, old = await servers[0].join("edge-1"), await servers[1].join("edge-2")
        link.is_away = True
        await until(lambda: not servers[1].member.following.is_reached)
        servers[0].save(NEW)
        await until(lambda: client.clusters() == {"new": "bad"})
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert list((await servers[1].come(old)).resources(CDS)) == ["old"]
        assert loop.time() - began_s < 0.1
        assert list((await servers[1].come(client)).resources(CDS)) == ["old"]
        assert 4.9 < loop.time() - began_s < 5.5


@virtually
async def test_one_read_serves_all_who_wait() -> None:
    """A hundred that come together cost a few reads."""
    engine = MemoryKeyValues()
    reads = list[int]()

    class Counting(FaultyEngine):
        async def read(self, keys: Sequence[bytes]) -> Found:
            reads.append(len(keys))
            return await super().read(keys)

    async with fleet_of(1, 1, engines=[engine, Counting(engine, random.Random(0), 0.0)]) as servers:
        await serving(servers, OLD)
        clients = [await servers[0].join(f"edge-{number}") for number in range(100)]
        before = len(reads)
        await asyncio.gather(*(servers[1].come(client) for client in clients))
        assert len(reads) - before <= 3


@virtually
async def test_who_was_answered_here_does_not_wait() -> None:
    """Its next poll says that it took the step, which the server waits for; nor does one that is late by a whole change."""
    async with fleet_of(1, 1) as servers:
        await serving(servers)
        client = await servers[1].join("edge-1", is_quick=False)
        servers[0].save({"CDS": {"old": "2"}, "RDS": {"r": "1 CDS:old"}})
        store = servers[1].publisher.whole.store
        before = store.current
        await until(lambda: store.current is not before)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await servers[1].come(client, is_here=True)
        client.quicken()
        await servers[1].come(client, is_here=True)
        assert loop.time() == began_s


@virtually
async def test_the_last_step_is_not_waited_for() -> None:
    """Nothing follows it: who comes from elsewhere is served what is published, though others have not taken it yet."""
    async with fleet_of(1, 1) as servers:
        await serving(servers)
        client = await servers[0].join("edge-1")
        await servers[1].join("slow", is_quick=False)
        servers[0].save({"CDS": {"old": "2"}, "RDS": {"r": "1 CDS:old"}})
        await until(lambda: client.clusters() == {"old": "2"})
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await servers[1].come(client)
        assert loop.time() - began_s < 0.2


@virtually
async def test_who_was_left_behind_here_and_led_on_elsewhere_does_not_go_back() -> None:
    """It follows the others at its own pace here, is served by another server meanwhile, and polls here again."""
    async with fleet_of(1, 1) as servers:
        await serving(servers)
        here, other = [await servers[1].join(name, is_quick=False) for name in ("edge-1", "edge-3")]
        quick = await servers[1].join("edge-2")
        elsewhere = await servers[0].join("edge-1")
        servers[0].save(NEW)
        await until(lambda: quick.clusters() == {"new": "bad"})
        assert elsewhere.clusters() == {"new": "bad"}
        assert here.channel.key.lane
        assert other.channel is here.channel
        elsewhere.leave()
        here.leave()
        assert [*(await servers[1].come(elsewhere)).resources(CDS)] == ["new"]


@virtually
async def test_who_was_led_on_by_a_step_that_was_never_published_does_not_go_back() -> None:
    """A server that missed publications led it by a step of its own; the server that it left before knows that step."""
    given, link = engines(3)
    async with fleet_of(1, 2, engines=given) as servers:
        await serving(servers)
        quick = await servers[1].join("edge-2")
        (await servers[1].join("edge-1")).leave()
        elsewhere, slow = await servers[2].join("edge-1"), await servers[2].join("slow", is_quick=False)
        link.is_away = True
        servers[0].save({"CDS": {"mid": "2"}, "RDS": {"r": "2 CDS:mid"}})
        await until(lambda: quick.clusters() == {"mid": "2"})
        servers[0].save(NEW)
        await until(lambda: quick.clusters() == {"new": "bad"})
        link.is_away = False
        await until(lambda: elsewhere.clusters() == {"old": "1", "new": "bad"})
        elsewhere.leave()
        slow.leave()
        assert "new" in (await servers[1].come(elsewhere)).resources(CDS)
