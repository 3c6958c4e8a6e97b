from __future__ import annotations

import asyncio

import pytest

from fsxds.model.resources import Snapshot
from fsxds.runtime.channels import Latest, SnapshotStore
from tests.support.snapshots import snapshot


def generation(number: int) -> Snapshot:
    return snapshot({}, generation=number)


async def settle() -> None:
    """Let every task go on until it waits."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_store_is_empty_at_first() -> None:
    """Before anything was loaded nothing is current."""
    assert SnapshotStore().current is None


async def test_newer_snapshot_is_returned_at_once() -> None:
    """Who holds an old generation, or none, need not wait."""
    store = SnapshotStore()
    store.publish(generation(2))

    assert store.current is await store.newer_than(0)
    assert store.current is await store.newer_than(1)


async def test_waiter_is_woken_by_the_next_snapshot() -> None:
    """Who holds the current generation waits for the next one."""
    store = SnapshotStore()
    store.publish(generation(1))
    async with asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(store.newer_than(1))
        await settle()
        assert not waiter.done()

        store.publish(generation(2))

    assert waiter.result().generation == 2


async def test_first_snapshot_wakes_those_who_wait_for_any() -> None:
    """Generation 0 stands for none."""
    store = SnapshotStore()
    async with asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(store.newer_than(0))
        await settle()
        store.publish(generation(1))

    assert waiter.result().generation == 1


async def test_waiter_ahead_of_the_store_goes_on_waiting() -> None:
    """A snapshot that is not above what a waiter holds does not end its wait."""
    store = SnapshotStore()
    async with asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(store.newer_than(2))
        await settle()
        store.publish(generation(1))
        await settle()
        store.publish(generation(2))
        await settle()
        assert not waiter.done()
        store.publish(generation(3))

    assert waiter.result().generation == 3


async def test_slow_reader_skips_what_it_missed() -> None:
    """Nothing is queued: who comes late gets the newest, once."""
    store = SnapshotStore()
    async with asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(store.newer_than(0))
        await settle()
        for number in (1, 2, 3):
            store.publish(generation(number))

    assert waiter.result().generation == 3


async def test_thousands_are_woken_by_one_event() -> None:
    """All who wait are woken by one snapshot, and share it."""
    store = SnapshotStore()
    async with asyncio.TaskGroup() as tasks:
        waiters = [tasks.create_task(store.newer_than(0)) for _ in range(5000)]
        await settle()
        store.publish(generation(1))

    assert {id(store.current)} == {id(waiter.result()) for waiter in waiters}


async def test_cancelled_waiter_takes_nothing_from_others() -> None:
    """Waiting consumes nothing: a waiter that is cancelled leaves the others theirs, and may wait again."""
    store = SnapshotStore()
    async with asyncio.TaskGroup() as tasks:
        given_up, patient = tasks.create_task(store.newer_than(0)), tasks.create_task(store.newer_than(0))
        await settle()
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        store.publish(generation(1))

    assert patient.result() is await store.newer_than(0)


async def test_waiter_that_runs_out_of_time_misses_nothing() -> None:
    """A time limit around waiting ends the wait; what comes then is found at the next look."""
    store = SnapshotStore()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await store.newer_than(0)

    store.publish(generation(1))

    assert store.current is await store.newer_than(0)


async def test_snapshot_published_while_waking_is_not_missed() -> None:
    """A snapshot that comes before a woken waiter ran is the one that it gets, and it waits for the one after."""
    store = SnapshotStore()
    seen = []

    async def read() -> None:
        reached = 0
        while reached < 3:
            reached = (await store.newer_than(reached)).generation
            seen.append(reached)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(read())
        await settle()
        store.publish(generation(1))
        store.publish(generation(2))
        await settle()
        store.publish(generation(3))

    assert seen == [2, 3]


async def test_work_runs_with_each_value() -> None:
    """Work with a value is cancelled when another one comes, and begins again with the newest; equal values are others."""
    latest = Latest([1])
    begun: list[list[int]] = []
    ended: list[list[int]] = []

    async def work(value: list[int]) -> None:
        begun.append(value)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(value)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(latest.run_with(work))
        await settle()
        latest.replace([2])
        latest.replace([1])
        await settle()
        await settle()
        running.cancel()

    assert begun == ended == [[1], [1]]
    assert latest.current == [1]


async def test_work_that_is_done_is_not_repeated() -> None:
    """It waits for the next value."""
    latest = Latest("a")
    values: list[str] = []

    async def work(value: str) -> None:
        values.append(value)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(latest.run_with(work))
        await settle()
        assert values == ["a"]
        latest.replace("b")
        await settle()
        await settle()
        running.cancel()

    assert values == ["a", "b"]
