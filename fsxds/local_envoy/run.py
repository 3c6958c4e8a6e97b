"""Run an Envoy beside fsxds, and start another when the tree asks for more than it can get."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Never

import aiohttp

from fsxds.local_envoy.admin import AdminPage
from fsxds.local_envoy.bootstrap import Section, Wanted, files_of
from fsxds.local_envoy.complaints import LogLine
from fsxds.local_envoy.follow import EnvoyObserver, Follower, Insight
from fsxds.local_envoy.process import Ended, LocalEnvoy, running_envoy
from fsxds.local_envoy.witness import StatisticsWitness, Witness
from fsxds.resources import Snapshot
from fsxds.store import SnapshotStore

LOOK_EVERY_S = 0.02
# Envoy answers in milliseconds; one that does not is stuck, which is not worth a wait without end.
ADMIN_TIMEOUT = aiohttp.ClientTimeout(total=10.0)


async def _wanted_by(snapshot: Snapshot) -> Wanted:
    return Wanted.by(snapshot)


@dataclass(frozen=True, slots=True)
class EnvoyPlan:
    """How to start Envoy.

    Attributes:
        executable: the binary itself.
        bootstrap_for: makes the bootstrap for what the tree calls for.
        observe_log: is told every line of Envoy's log; None for nobody.
        witness_of: makes what knows whether an Envoy with such a bootstrap takes a snapshot.
        wanted_by: works out what a snapshot calls for.
    """

    executable: Path
    bootstrap_for: Callable[[Wanted], Section]
    observe_log: Callable[[LogLine], None] | None = None
    witness_of: Callable[[Wanted], Witness] = lambda _: StatisticsWitness()
    wanted_by: Callable[[Snapshot], Awaitable[Wanted]] = _wanted_by


async def run_envoy(store: SnapshotStore, plan: EnvoyPlan, observer: EnvoyObserver) -> Never:
    """Keep an Envoy running beside the store, and tell what it makes of each snapshot.

    It starts with the first snapshot. It starts anew with a snapshot that calls for more than its bootstrap asks for
    (the first listener of a tree, another runtime layer), and, after it ended by itself, with one that it did not start
    with.

    Raises:
        UsageError: the executable cannot be started; in an ExceptionGroup, as from any task group.
    """
    snapshot = await store.newer_than(0)
    while True:
        wanted = await plan.wanted_by(snapshot)
        bootstrap = plan.bootstrap_for(wanted)
        await _wait_for(files_of(bootstrap))
        # The log is read until the very end: an Envoy whose pipe is full does not end.
        async with asyncio.TaskGroup() as tasks, running_envoy(plan.executable, bootstrap, plan.observe_log) as envoy:
            tasks.create_task(envoy.read_log())
            following = tasks.create_task(_follow_until_outgrown(store, envoy, wanted, plan, observer))
            status = await envoy.ended()
            following.cancel()
        if not envoy.was_stopped:
            observer.envoy_ended(Ended(status, envoy.log.tail()))
        snapshot = await store.newer_than(snapshot.generation)


async def _wait_for(files: tuple[PurePath, ...]) -> None:
    """Wait until files exist that somebody else is about to write."""
    while not _exist(files):  # noqa: ASYNC110, a file that appears has no event to wait for
        await asyncio.sleep(LOOK_EVERY_S)


def _exist(files: tuple[PurePath, ...]) -> bool:
    return all(Path(file).exists() for file in files)


async def _follow_until_outgrown(
    store: SnapshotStore, envoy: LocalEnvoy, wanted: Wanted, plan: EnvoyPlan, observer: EnvoyObserver
) -> None:
    """Follow an Envoy until a snapshot calls for more than it asks for, and stop it then."""
    address = await envoy.admin_address()
    if address is None:
        return
    async with aiohttp.ClientSession(timeout=ADMIN_TIMEOUT) as session:
        insight = Insight(AdminPage(session, address), envoy.log, plan.witness_of(wanted))
        follower = Follower(store, insight, observer)
        now_s = asyncio.get_running_loop().time
        snapshot: Snapshot = await store.newer_than(0)
        seen_s = now_s()
        while wanted.covers(await plan.wanted_by(snapshot)):
            await follower.follow(snapshot, seen_s)
            snapshot = await store.newer_than(snapshot.generation)
            seen_s = now_s()
    await envoy.stop()
