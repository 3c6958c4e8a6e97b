"""What one server publishes, others serve: with a real etcd, and with an engine that loses answers."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import pytest

from fsxds.events.fleet_events import FleetLost, FleetReached, SnapshotUnreadable
from fsxds.fleet import following
from fsxds.fleet.content import FleetContent
from fsxds.fleet.key_values import KeyValue, Put, UnreachableError
from fsxds.fleet.memory_engine import MemoryKeyValues
from fsxds.fleet.pointers import Order, ViewKey
from fsxds.fleet.publication import NoPublisherError
from tests.fleet.engines import ENGINES, running_engine
from tests.fleet.made import KEYS, WHOLE, FaultyEngine, Follower, elected
from tests.history.made import CDS, assert_same, cluster, clusters, snapshot_of
from tests.support.patience import PATIENCE_S


@pytest.fixture(params=ENGINES)
async def engine(request, tmp_path):
    async with running_engine(request.param, tmp_path) as made:
        yield made


@asynccontextmanager
async def followed(*followers: Follower) -> AsyncIterator[None]:
    running = [asyncio.create_task(one.following.keep_current()) for one in followers]
    try:
        yield
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def until(is_true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_true():  # noqa: ASYNC110 - it is in several places
            await asyncio.sleep(0.01)


async def reached(follower: Follower, order: Order) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while follower.following.applied.current < order:
            await follower.following.applied.replaced()


async def test_what_is_published_is_served_elsewhere(engine) -> None:
    """From before a server follows, and while it does; a large body, too."""
    publication = await elected(engine)
    first = snapshot_of(clusters(3000))
    await publication.publish(WHOLE, first)
    follower = Follower(engine)
    async with followed(follower):
        await reached(follower, Order(1, 1))
        assert_same(first, follower.served[-1])

        then = snapshot_of([*clusters(2990, {17: os.urandom(2_000_000)}), cluster("new")], first)
        await reached(follower, await publication.publish(WHOLE, then))
        assert_same(then, follower.served[-1])

        later = snapshot_of([*clusters(2990, {17: b"small"}), cluster("new")], then)
        await reached(follower, await publication.publish(WHOLE, later))
        assert_same(later, follower.served[-1])

    assert len(follower.served) == 3
    change = follower.served[2].resources(CDS).changes_since(follower.served[1].resources(CDS))
    assert change.names == {"cluster-00017"}


async def test_views_that_nobody_wants_are_not_read(engine) -> None:
    """One that is wanted later is there at once."""
    publication = await elected(engine)
    edge = ViewKey(("base", "edge"))
    await publication.publish(WHOLE, snapshot_of(clusters(3)))
    await publication.publish(edge, snapshot_of(clusters(5)))
    await publication.publish_head({"base", "edge"})
    follower = Follower(engine)
    async with followed(follower):
        await reached(follower, publication.order)
        assert follower.following.snapshots.keys() == {WHOLE}
        assert follower.following.head is not None
        assert follower.following.head.existing == {"base", "edge"}

        follower.following.want(edge.layers)
        await until(lambda: edge in follower.following.snapshots)
        assert len(follower.following.snapshots[edge].resources(CDS)) == 5

        await publication.remove([edge])
        follower.following.drop(edge.layers)
        await reached(follower, publication.order)
        assert follower.following.published.keys() == {WHOLE}


@pytest.mark.parametrize("damaged", [WHOLE, ViewKey(("edge",))])
async def test_a_view_that_cannot_be_read_keeps_no_other_from_being_served(damaged, monkeypatch) -> None:
    """Whichever is read first; the damage is reported, and not all is at hand."""
    monkeypatch.setattr(following, "PAUSE_S", 0.01)
    engine = MemoryKeyValues()
    publication = await elected(engine)
    for key in WHOLE, ViewKey(("edge",)):
        await publication.publish(key, snapshot_of([cluster(key.text)]))
    content = publication.content
    pointer = (await content.published()).pointers[damaged]
    assert pointer is not None
    await content.write(content.object_removals({content.name_of(pointer.root): 1}))
    follower = Follower(engine)
    follower.following.want(("edge",))
    changed = list[set[ViewKey]]()
    follower.following._on_changed = lambda snapshots: changed.append({*snapshots})
    async with followed(follower):
        await until(lambda: SnapshotUnreadable in map(type, follower.events))

    assert changed == [{WHOLE, ViewKey(("edge",))} - {damaged}]
    assert follower.following.applied.current == Order(0, 0)


async def test_the_next_publisher_goes_on(engine) -> None:
    """It comes after what was published before; the one before writes nothing any more."""
    before = await elected(engine, "a")
    first = snapshot_of(clusters(100))
    await before.publish(WHOLE, first)

    after = await elected(engine, "b")

    assert_same(first, after.served[WHOLE])
    with pytest.raises(NoPublisherError):
        await before.publish(WHOLE, snapshot_of(clusters(99), first))
    with pytest.raises(NoPublisherError):
        await before.publish_head({"x"})
    assert await after.publish(WHOLE, snapshot_of(clusters(101), first)) == Order(2, 1)


async def test_unused_objects_are_removed_when_all_have_gone_on(engine) -> None:
    """Also those of a publisher before, and of views that are published no more."""
    content = FleetContent(engine, KEYS)
    before = await elected(engine, "a")
    first = snapshot_of(clusters(1000))
    await before.publish(WHOLE, first)
    await before.publish(ViewKey(("a",)), snapshot_of(clusters(7, {1: os.urandom(2_000_000)})))
    publication = await elected(engine, "b")
    await publication.remove([ViewKey(("a",))])
    last = first
    for number in range(5):
        last = snapshot_of(clusters(1000, {number: b"edited"}), last)
        await publication.publish(WHOLE, last)
    count = len(await content.objects())

    await publication.collect(Order(1, 9))
    assert len(await content.objects()) < count
    await publication.collect(publication.order)

    uses = {*(await content.objects())}
    fresh = Follower(engine)
    async with followed(fresh):
        await reached(fresh, publication.order)
    assert_same(last, fresh.served[-1])
    other = MemoryKeyValues()
    await (await elected(other)).publish(WHOLE, last)
    assert uses == {*(await FleetContent(other, KEYS).objects())}


async def test_damage_is_reported_and_what_is_served_stays(monkeypatch) -> None:
    """A follower that cannot read what is published serves on, and goes on when the next pointer can be read."""
    monkeypatch.setattr(following, "PAUSE_S", 0.01)
    engine = MemoryKeyValues()
    publication = await elected(engine)
    first = snapshot_of(clusters(3))
    await publication.publish(WHOLE, first)
    follower = Follower(engine)
    async with followed(follower):
        await reached(follower, publication.order)
        good = (await engine.read([KEYS.pointer(WHOLE)])).values[KEYS.pointer(WHOLE)].value
        await engine.write([Put(KEYS.pointer(WHOLE), b"nonsense")])
        await until(lambda: any(isinstance(one, SnapshotUnreadable) for one in follower.events))
        assert len(follower.served) == 1

        await engine.write([Put(KEYS.pointer(WHOLE), good)])
        then = snapshot_of(clusters(4), first)
        await reached(follower, await publication.publish(WHOLE, then))
        assert_same(then, follower.served[-1])


async def test_what_was_published_earlier_is_passed_over() -> None:
    """An etcd that was restored from a backup leads nobody back; the publisher goes on above what is reported."""
    engine = MemoryKeyValues()
    publication = await elected(engine)
    snapshots = [snapshot_of(clusters(1))]
    backup: Mapping[bytes, KeyValue] = {}
    follower = Follower(engine)
    async with followed(follower):
        for number in range(2, 6):
            snapshots.append(snapshot_of(clusters(number), snapshots[-1]))
            await reached(follower, await publication.publish(WHOLE, snapshots[-1]))
            if number == 3:
                backup = (await engine.read_prefix(KEYS.pointers)).values
        last = follower.following.applied.current
        await engine.write([Put(key, one.value) for key, one in backup.items()])

        after = await elected(engine, "b")
        assert after.order < last or not after.advance_past(last)
        served = {**after.served}
        assert len(served[WHOLE].resources(CDS)) == 3
        after.advance_past(last)
        await reached(follower, await after.publish(WHOLE, snapshots[-1]))

    counts = [len(one.resources(CDS)) for one in follower.served]
    assert counts == sorted(counts)


async def test_whoever_cannot_ask_serves_on(monkeypatch) -> None:
    """It says so once, and when it can."""
    monkeypatch.setattr(following, "PAUSE_S", 0.01)
    engine = MemoryKeyValues()
    publication = await elected(engine)
    await publication.publish(WHOLE, snapshot_of(clusters(1)))
    link = FaultyEngine(engine, random.Random(0), 0.0)
    follower = Follower(link)
    async with followed(follower):
        await reached(follower, publication.order)
        link.is_away = True
        await publication.publish(WHOLE, snapshot_of(clusters(2)))
        await asyncio.sleep(0.1)
        assert len(follower.served) == 1
        link.is_away = False
        await reached(follower, publication.order)

    assert [type(one) for one in follower.events] == [FleetReached, FleetLost, FleetReached]


@pytest.mark.parametrize("seed", range(40))
async def test_what_is_served_is_what_was_published_in_turn(seed, monkeypatch) -> None:
    """Each follower serves some of what was published, in this order, and the last; whatever answers are lost.

    Publishers follow each other, also while the one before still writes.
    """
    monkeypatch.setattr(following, "PAUSE_S", 0.0)
    monkeypatch.setattr("fsxds.fleet.publication.PAUSE_S", 0.0)
    chance, engine = random.Random(seed), MemoryKeyValues()
    followers = [Follower(FaultyEngine(engine, chance, 0.1)) for _ in range(3)]
    published = list[tuple[str, ...]]()
    last = snapshot_of(clusters(1))
    publications = [await elected(engine, "0")]
    async with followed(*followers):
        for number in range(30):
            last = snapshot_of(clusters(300, {chance.randrange(300): b"edit %d" % number}), last)
            if chance.random() < 0.2:
                link = FaultyEngine(engine, chance, 0.0)
                publications.append(await elected(link, str(number)))
                link._share = 0.1
            publication = publications[-1]
            if len(publications) > 1 and chance.random() < 0.3:
                with pytest.raises((NoPublisherError, UnreachableError)):
                    await publications[-2].publish(WHOLE, snapshot_of([cluster("wrong")]))
            await _until_published(publication, last)
            published.append(_rows(last))
            if chance.random() < 0.3:
                with suppress(UnreachableError):
                    await publication.collect(min(one.following.applied.current for one in followers))
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)
        for one in followers:
            await reached(one, publications[-1].order)

    for one in followers:
        places = [published.index(_rows(each)) for each in one.served]
        assert places == sorted(set(places))
        assert places[-1] == 29


async def _until_published(publication, snapshot) -> None:
    while True:
        with suppress(UnreachableError):
            await publication.publish(WHOLE, snapshot)
            return


def _rows(snapshot) -> tuple[str, ...]:
    return tuple(f"{name}={row.version}" for name, row in snapshot.resources(CDS).items())
