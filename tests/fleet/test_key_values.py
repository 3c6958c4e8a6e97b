"""What each engine promises: the one in memory, the same at a socket, and a real etcd."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from fsxds.fleet import memory_engine
from fsxds.fleet.key_values import (
    Changed,
    CompactedError,
    Delete,
    Guard,
    KeyValue,
    KeyValues,
    LeaseLostError,
    Put,
)
from fsxds.fleet.memory_engine import MemoryKeyValues, served
from tests.fleet.engines import ENGINES, asked, running_engine
from tests.support.patience import PATIENCE_S


@pytest.fixture(params=ENGINES)
async def engine(request, tmp_path) -> AsyncIterator[KeyValues]:
    async with running_engine(request.param, tmp_path) as made:
        yield made


async def test_what_is_written_is_read(engine) -> None:
    """By key, and by a range of keys, at the revision of the write."""
    revision = await engine.write([Put(b"a/1", b"one"), Put(b"a/2", b"\0\xff"), Put(b"b", b"")])

    found = await engine.read([b"a/1", b"b", b"a/0"])
    within = await engine.read_prefix(b"a/")

    assert found.values == {b"a/1": KeyValue(b"one", revision, revision), b"b": KeyValue(b"", revision, revision)}
    assert list(within.values) == [b"a/1", b"a/2"]
    assert within.revision == found.revision == revision
    assert (await engine.read_prefix(b"a/", is_keys_only=True)).values[b"a/2"].value == b""


async def test_what_is_written_again_was_created_before(engine) -> None:
    """A removed key is created anew."""
    first = await engine.write([Put(b"k", b"1")])
    second = await engine.write([Put(b"k", b"2")])
    assert (await engine.read([b"k"])).values == {b"k": KeyValue(b"2", first, second)}

    await engine.write([Delete(b"k")])
    assert not (await engine.read([b"k"])).values
    third = await engine.write([Put(b"k", b"3")])

    assert (await engine.read([b"k"])).values == {b"k": KeyValue(b"3", third, third)}


async def test_all_guards_hold_or_nothing_is_written(engine) -> None:
    """A guard is about when a key was created, or written last."""
    first = await engine.write([Put(b"owner", b"me")], [Guard(b"owner", created=0)])
    assert first is not None

    assert await engine.write([Put(b"owner", b"other")], [Guard(b"owner", created=0)]) is None
    assert await engine.write([Put(b"x", b"")], [Guard(b"owner", created=first), Guard(b"x", modified=first)]) is None
    second = await engine.write([Put(b"x", b"1")], [Guard(b"owner", created=first), Guard(b"x", modified=0)])
    assert second is not None
    assert await engine.write([Put(b"x", b"2")], [Guard(b"x", modified=second)]) is not None
    assert await engine.write([Put(b"x", b"3")], [Guard(b"x", modified=second)]) is None
    assert (await engine.read([b"x"])).values[b"x"].value == b"2"


async def test_changes_are_seen_from_a_revision_on(engine) -> None:
    """One write is one change, and keys beside the range are not in it."""
    revision = await engine.write([Put(b"p/1", b"1"), Put(b"q", b"")])
    await engine.write([Put(b"q", b"1")])
    await engine.write([Put(b"p/2", b"2"), Put(b"p/3", b"3"), Delete(b"p/1"), Delete(b"p/0")])
    seen = await _seen(engine, revision, 4)

    last = await engine.write([Put(b"p/4", b"4")])
    later = await _seen(engine, last, 1)

    by_key = {key: one.value if one else None for changed in seen for key, one in changed.values.items()}
    assert by_key == {b"p/1": None, b"p/2": b"2", b"p/3": b"3"}
    assert later == [Changed(last, {b"p/4": KeyValue(b"4", last, last)})]


async def _seen(engine: KeyValues, since: int, count: int) -> list[Changed]:
    """Return what a watch yields, until so many changes of keys are in it."""
    seen = list[Changed]()
    async with asyncio.timeout(PATIENCE_S):
        async for changed in engine.watch(b"p/", since):
            seen.append(changed)
            count -= len(changed.values)
            if count <= 0 or changed.values.get(b"p/3"):
                return seen
    return seen


async def test_who_watches_hears_of_what_comes(engine) -> None:
    """Each write is heard of while one watches."""
    heard = asyncio.Queue[Changed]()
    revision = (await engine.read([b"p/1"])).revision

    async def watch() -> None:
        async for changed in engine.watch(b"p/", revision + 1):
            heard.put_nowait(changed)

    watching = asyncio.create_task(watch())
    for number in range(3):
        await engine.write([Put(b"p/1", b"%d" % number)])
        async with asyncio.timeout(PATIENCE_S):
            assert [one and one.value for one in (await heard.get()).values.values()] == [b"%d" % number]
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_keys_of_a_lease_go_with_it(engine) -> None:
    """Those that were written without it later stay."""
    lease = await engine.grant(3600)
    await engine.keep_alive(lease)
    await engine.write([Put(b"s/1", b"1", lease), Put(b"s/2", b"2", lease), Put(b"kept", b"")])
    await engine.write([Put(b"s/2", b"2")])

    await engine.revoke(lease)
    await engine.revoke(lease)

    assert list((await engine.read([b"s/1", b"s/2", b"kept"])).values) == [b"s/2", b"kept"]
    with pytest.raises(LeaseLostError):
        await engine.keep_alive(lease)
    with pytest.raises(LeaseLostError):
        await engine.write([Put(b"s/1", b"1", lease)])


async def test_a_lease_outlives_a_pause_of_the_engine_itself() -> None:
    """What was sent while its process did not run is read before the lease ends; it ends after that."""
    engine = MemoryKeyValues()
    lease = await engine.grant(1)
    time.sleep(1.2)  # noqa: ASYNC251 - the process does not run
    await asyncio.sleep(0.01)
    await engine.keep_alive(lease)
    await asyncio.sleep(3)
    with pytest.raises(LeaseLostError):
        await engine.keep_alive(lease)


async def test_lease_that_nobody_keeps_alive_ends(engine) -> None:
    """Its keys go, and those who watch hear of it."""
    lease = await engine.grant(1)
    await engine.write([Put(b"s/1", b"1", lease)])

    found = await engine.read([b"s/1"])
    watching = engine.watch(b"s/", found.revision + 1)

    assert found.values
    async with asyncio.timeout(PATIENCE_S):
        assert (await anext(watching)).values == {b"s/1": None}


async def test_what_is_not_known_any_more_is_said(monkeypatch, tmp_path) -> None:
    """The engine in memory forgets old changes, as a compacted etcd does, and names the first that it knows."""
    monkeypatch.setattr(memory_engine, "MOST_LOGGED", 3)
    engine = MemoryKeyValues()
    for number in range(5):
        await engine.write([Put(b"p/1", b"%d" % number)])

    target = f"unix:{tmp_path}/engine"
    async with served(engine, target), asked(target) as remote:
        for each in engine, remote:
            with pytest.raises(CompactedError, match=f"before revision {engine.revision - 2} was compacted"):
                await anext(each.watch(b"p/", engine.revision - 3))
            async with aclosing(each.watch(b"p/", engine.revision - 2)) as watching:
                assert [one and one.value for one in (await anext(watching)).values.values()] == [b"4"]
