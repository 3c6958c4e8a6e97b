"""What a publisher keeps for the next one, and that its objects stay as long."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from fsxds.fleet.content import FleetContent
from fsxds.fleet.key_values import Put, UnreachableError
from fsxds.fleet.memory_engine import MemoryKeyValues
from fsxds.fleet.publication import Publication
from fsxds.fleet.records import Records
from fsxds.fleet.sealing import Cleartext, Sealing
from fsxds.model.resources import Snapshot
from fsxds.snapshots.encoding import DamagedBytesError, Digest
from tests.fleet.made import KEYS, WHOLE, FaultyEngine, elected
from tests.history.made import assert_same, clusters, snapshot_of

OLD = snapshot_of(clusters(300))
NEW = snapshot_of(clusters(300, {7: b"edited"}), OLD)


def text_of(digests: Mapping[str, Digest]) -> str:
    """Return what the text of a record is in these tests."""
    return ",".join(f"{name}={digest.hex()}" for name, digest in digests.items())


async def begun(publication: Publication) -> Records:
    """Return the records of a publisher that has begun."""
    records = Records(publication)
    await records.begin()
    return records


async def read(records: Records, name: str) -> list[Snapshot]:
    """Return the snapshots of a record, as they are stored."""
    record = records.found[name]
    return [await record.snapshot(records.content, None, root) for root in record.roots]


async def stored(publication: Publication) -> int:
    """Return how many objects are there, when what nobody needs is removed."""
    await publication.collect(publication.order)
    return len(await publication.content.objects())


async def test_the_next_publisher_finds_what_was_kept() -> None:
    """With its snapshots, which nobody serves any more; without the record they go."""
    engine = MemoryKeyValues()
    first = await elected(engine)
    await first.publish(WHOLE, OLD)
    kept = await (await begun(first)).keep("a", {"served": OLD, "target": NEW, "good": OLD}, text_of)
    assert kept.text.startswith("served=")
    assert len(kept.roots) == 2
    await first.publish(WHOLE, NEW)
    await stored(first)

    second = await elected(engine)
    records = await begun(second)
    await second.publish(WHOLE, snapshot_of(clusters(3), NEW))
    with_record = await stored(second)
    assert records.found["a"].text == kept.text
    for expected, found in zip((OLD, NEW), await read(records, "a"), strict=True):
        assert_same(expected, found)

    await records.remove("a")
    assert await stored(second) < with_record
    assert (await begun(await elected(engine))).found == {}


async def test_a_record_is_replaced() -> None:
    """Objects of the text before go; those of the new one stay."""
    engine = MemoryKeyValues()
    publication = await elected(engine)
    records = await begun(publication)
    await records.keep("a", {"served": OLD}, text_of)
    before = await stored(publication)
    for _ in range(3):
        await records.keep("a", {"served": NEW}, text_of)
    assert await stored(publication) == before
    assert_same(NEW, (await read(await begun(await elected(engine)), "a"))[0])


@pytest.mark.parametrize("seed", range(20))
async def test_lost_answers_lose_no_object(seed) -> None:
    """Whatever text came about, its snapshots are there, for this publisher and the next one."""
    chance = random.Random(seed)
    engine = MemoryKeyValues()
    faulty = FaultyEngine(engine, chance, 0.0)
    publication = await elected(faulty)
    records = await begun(publication)
    faulty._share = 0.2
    snapshots = [OLD]
    for number in range(8):
        snapshots.append(snapshot_of(clusters(300, {number * 30: b"%d" % number}), snapshots[-1]))
    for snapshot in snapshots:
        for work in (
            lambda one=snapshot: publication.publish(WHOLE, one),
            lambda one=snapshot: records.keep("a", {"served": one, "target": chance.choice(snapshots)}, text_of),
            lambda: publication.collect(publication.order),
        ):
            try:
                await work()
            except UnreachableError:
                continue
    found = await begun(await elected(engine))
    if "a" in found.found:
        assert [one.by_type for one in await read(found, "a")]


async def test_what_another_key_sealed_is_found_and_not_kept() -> None:
    """Its snapshots can be read until its objects go; what is damaged is passed over."""
    engine = MemoryKeyValues()
    old, new = b"a" * 32, b"b" * 32
    first = await elected(engine, sealing=Sealing((old,)))
    await first.publish(WHOLE, OLD)
    await (await begun(first)).keep("a", {"served": OLD}, text_of)
    await engine.write([Put(KEYS.records + b"damaged", b"x")])

    second = await elected(engine, sealing=Sealing((new, old)))
    records = await begun(second)
    assert {*records.found} == {"a"}
    assert_same(OLD, (await read(records, "a"))[0])
    await second.publish(WHOLE, NEW)
    await second.collect(second.order)
    with pytest.raises(DamagedBytesError):
        await read(records, "a")


async def test_a_record_without_its_objects_is_passed_over() -> None:
    """Somebody removed them: the publisher begins without it."""
    engine = MemoryKeyValues()
    first = await elected(engine)
    await (await begun(first)).keep("a", {"served": OLD}, text_of)
    content = FleetContent(engine, KEYS, Cleartext())
    await content.write(content.object_removals(await content.objects()))
    assert (await begun(await elected(engine))).found == {}
