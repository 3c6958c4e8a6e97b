"""Names that clients of any server ask for: upstreams are asked for them, and each server gets to know which are absent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from fsxds.fleet.content import FleetContent
from fsxds.fleet.fleet_names import AbsentNames, FleetNames, UpstreamNames
from fsxds.fleet.key_values import Delete, Guard, Lease, Put, UnreachableError
from fsxds.fleet.memory_engine import MemoryKeyValues
from fsxds.fleet.pointers import Order
from fsxds.fleet.publication import Publication
from fsxds.runtime.asked_names import AskedNames
from fsxds.runtime.channels import Latest
from tests.fleet.made import KEYS, FaultyEngine, elected
from tests.fleet.test_member import until
from tests.history.made import CDS
from tests.support.channels import Denier
from tests.support.publishing import virtually


@dataclass
class Fleet:
    """Servers that only serve, and one with an upstream.

    Attributes:
        upstream: knows which names it does not have.
        asked: the names that it is asked for.
        servers: the names of each server.
        applied: the order up to which each server serves.
    """

    engine: MemoryKeyValues
    upstream: Denier
    asked: AskedNames
    upstream_names: UpstreamNames
    servers: list[FleetNames]
    leases: list[Lease]
    applied: list[Latest[Order]]

    def asked_clusters(self) -> set[str]:
        """Return the clusters that the upstream is asked for."""
        return set(self.asked.changed.current.get(CDS, ()))

    def unanswered(self) -> list[set[str]]:
        """Return which of three clusters may exist elsewhere, as far as each server knows."""
        return [set(one.unanswered(CDS, {"a", "b", "*"})) for one in self.servers]

    async def publish(self, publication: Publication, names: UpstreamNames | None) -> AbsentNames:
        """Publish which names are absent, now and whenever that changes."""
        due = asyncio.Event()
        due.set()
        absent = AbsentNames(publication, names, due.set)

        async def keep() -> None:
            while True:
                await due.wait()
                due.clear()
                absent.take()
                await absent.write()

        self.running.append(asyncio.create_task(keep()))
        return absent

    def __post_init__(self) -> None:
        self.running: list[asyncio.Task[None]] = []


@asynccontextmanager
async def fleet(count: int = 2, *, is_asking: bool = False) -> AsyncIterator[Fleet]:
    """Run so many servers."""
    engine, upstream = MemoryKeyValues(), Denier()
    content, asked = FleetContent(engine, KEYS), AskedNames([upstream])
    leases, applied = [Lease(engine) for _ in range(count)], [Latest(Order(5, 0)) for _ in range(count)]
    servers = [
        FleetNames(content, lease, order, is_asking=is_asking) for lease, order in zip(leases, applied, strict=True)
    ]
    made = Fleet(engine, upstream, asked, UpstreamNames(content, asked), servers, leases, applied)
    works = [made.upstream_names.keep_asked()]
    for number, (server, lease) in enumerate(zip(servers, leases, strict=True)):
        works += [server.keep_reported(f"server-{number}"), server.keep_answered(), lease.keep_alive()]
    running = [asyncio.create_task(work) for work in works]
    try:
        yield made
    finally:
        for task in (*running, *made.running):
            task.cancel()
        await asyncio.gather(*running, *made.running, return_exceptions=True)


@virtually
async def test_upstreams_are_asked_for_the_names_of_all_servers() -> None:
    """For each as long as a client of any server asks for it."""
    async with fleet() as run:
        run.servers[0].ask("client", CDS, {"a", "b"})
        run.servers[1].ask("client", CDS, {"b", "c"})
        await until(lambda: run.asked_clusters() == {"a", "b", "c"})
        run.servers[0].forget("client")
        await until(lambda: run.asked_clusters() == {"b", "c"})
        run.servers[1].ask("client", CDS, {"c"})
        await until(lambda: run.asked_clusters() == {"c"})


@virtually
async def test_the_names_of_a_server_that_died_are_forgotten() -> None:
    """When its lease ends; under another lease it reports them again."""
    async with fleet() as run:
        run.servers[0].ask("client", CDS, {"a"})
        await until(lambda: run.asked_clusters() == {"a"})
        await run.engine.revoke(run.leases[0].current.current)
        await until(lambda: run.asked_clusters() == set())
        await until(lambda: run.asked_clusters() == {"a"})


@virtually
async def test_a_name_is_absent_everywhere_when_the_upstream_denies_it() -> None:
    """Before that it is unanswered, also at a server whose clients did not ask for it; so it is when it comes into being."""
    async with fleet() as run:
        await run.publish(await elected(run.engine), run.upstream_names)
        run.servers[0].ask("client", CDS, {"a", "b", "*"})
        await until(lambda: run.asked_clusters() == {"a", "b", "*"})
        await until(lambda: run.unanswered() == [{"a", "b", "*"}] * 2)
        woken = asyncio.Event()
        run.servers[1].listeners[woken] = woken.set
        run.upstream.names = frozenset({"a", "*"})
        run.asked.answered()
        await until(lambda: run.unanswered() == [{"b"}] * 2)
        assert woken.is_set()
        run.upstream.names = frozenset({"b"})
        run.asked.answered()
        await until(lambda: run.unanswered() == [{"a", "*"}] * 2)


@virtually
async def test_a_name_is_absent_when_the_publication_before_is_served() -> None:
    """The publication may have it."""
    async with fleet() as run:
        publication = await elected(run.engine)
        publication.order = Order(7, 3)
        await run.publish(publication, run.upstream_names)
        run.upstream.names = frozenset({"a", "b", "*"})
        run.servers[0].ask("client", CDS, {"a", "b", "*"})
        run.applied[0].replace(Order(7, 3))
        run.applied[1].replace(Order(7, 2))
        await until(lambda: run.unanswered()[0] == set())
        await asyncio.sleep(5.0)
        assert run.unanswered()[1] == {"a", "b", "*"}
        run.applied[1].replace(Order(7, 4))
        await until(lambda: run.unanswered()[1] == set())


@virtually
async def test_no_name_is_unanswered_when_upstreams_are_asked_for_everything() -> None:
    """As soon as a publisher said so: what an earlier one wrote is removed."""
    async with fleet() as run:
        await run.publish(await elected(run.engine), run.upstream_names)
        run.servers[0].ask("client", CDS, {"a"})
        run.upstream.names = frozenset({"a"})
        await until(lambda: run.unanswered() == [{"b", "*"}] * 2)
        await run.publish(await elected(run.engine, "b"), None)
        await until(lambda: run.unanswered() == [set()] * 2)
        assert not (await run.engine.read_prefix(KEYS.absent)).values


@virtually
async def test_names_are_unanswered_until_the_engine_was_read() -> None:
    """If the settings have upstreams asked for names: an absent name may be one that the publisher serves."""
    async with fleet(is_asking=True) as run:
        assert run.unanswered() == [{"a", "b", "*"}] * 2
    async with fleet() as run:
        assert run.unanswered() == [set()] * 2


@virtually
async def test_a_name_more_has_little_written() -> None:
    """Of a thousand names, those in one division."""
    async with fleet() as run:
        names = {f"cluster-{number}" for number in range(1000)}
        run.servers[0].ask("client", CDS, names)
        await until(lambda: run.asked_clusters() == names)
        before = run.engine.revision
        found = await run.engine.read_prefix(KEYS.names)
        run.servers[0].ask("client", CDS, names | {"one more"})
        await until(lambda: "one more" in run.asked_clusters())
        after = await run.engine.read_prefix(KEYS.names)
        written = [one for key, one in after.values.items() if one.modified > before]
        assert len(written) == 1
        assert sum(len(one.value) for one in written) < sum(len(one.value) for one in found.values.values()) / 20


@virtually
async def test_names_that_cannot_be_read_are_passed_over() -> None:
    """They are of a server of another version; the names of the others are asked for."""
    async with fleet() as run:
        await run.engine.write([Put(KEYS.names + b"other/3", b"written by another version")])
        run.servers[0].ask("client", CDS, {"a"})
        await until(lambda: run.asked_clusters() == {"a"})


class Link(FaultyEngine):
    """An engine that calls something before each write."""

    before_write: Callable[[], object] = int

    async def write(self, changes: Sequence[Put | Delete], guards: Collection[Guard] = ()) -> int | None:
        """Write, after a call."""
        self.before_write()
        return await super().write(changes, guards)


@virtually
async def test_no_absent_name_is_lost_by_a_failure_or_while_others_are_written() -> None:
    """Neither if the publication before fails, or the write, nor if another name turns out to be absent meanwhile."""
    async with fleet() as run:
        run.servers[0].ask("client", CDS, {"a", "b"})
        await until(lambda: run.asked_clusters() == {"a", "b"})
        link = Link(run.engine, random.Random(0), 0.0)
        absent = AbsentNames(await elected(link), run.upstream_names, int)
        run.upstream.names = frozenset({"a"})
        absent.take()
        # The publication failed, and is tried again.
        absent.take()
        link.is_away = True
        with pytest.raises(UnreachableError):
            await absent.write()
        link.is_away = False

        def answer() -> None:
            link.before_write = int
            run.upstream.names = frozenset({"a", "b"})
            run.upstream_names._note()

        link.before_write = answer
        absent.take()
        await absent.write()
        await until(lambda: run.unanswered() == [{"b", "*"}] * 2)
        absent.take()
        await absent.write()
        await until(lambda: run.unanswered() == [{"*"}] * 2)
