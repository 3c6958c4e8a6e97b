"""Keeps an Envoy running, and reports its status on each snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Never, Protocol

import aiohttp

from fsxds.envoy.admin import AdminPage, Listening, Statistics
from fsxds.envoy.envoy_bootstrap import BootstrapRequest, Section, files_of
from fsxds.envoy.envoy_log import EnvoyLogLine, LoggedRejection, read_rejection
from fsxds.envoy.process import EndedEnvoy, EnvoyLog, LocalEnvoy, running_envoy
from fsxds.envoy.snapshot_status import AckSource, EnvoyNack, InEffect, InProgress, Nacked, StatisticsAcks, nacks_of
from fsxds.model.resource_types import ResourceType
from fsxds.model.resources import Snapshot
from fsxds.runtime.channels import SnapshotStore

# More frequent requests slow Envoy down; an Envoy with many statistics takes long to answer.
POLL_S = 0.05
SHARE_OF_TIME = 0.1
# How often to look when it is no longer urgent: a NACKed update may be fixed.
SLOW_POLL_S = 1.0
# After this time without an ACK or NACK, missing parts are reported; then at three times that age, and every half
# minute.
LONG_S = 3.0
LONGEST_REPORT_PAUSE_S = 30.0
# The sightings of a NACK before it is reported: two, so that its log line has arrived; and half a second of them after
# another NACK, whose update fsxds may have offered again just before.
SIGHTINGS = 2
SIGHTINGS_AFTER_NACK = 10


class EnvoyObserver(Protocol):
    """Receives the events of a local Envoy."""

    def envoy_started(self, admin: str, listeners: tuple[Listening, ...]) -> None:
        """Envoy runs, with these addresses for traffic."""

    def envoy_acked(self, types: tuple[ResourceType, ...], elapsed_s: float) -> None:
        """The snapshot is in effect; `types` have new resources."""

    def envoy_nacked(self, nack: EnvoyNack, elapsed_s: float) -> None:
        """Envoy NACKed a part of the snapshot."""

    def envoy_pending(self, waiting: InProgress, unready: tuple[str, ...], elapsed_s: float) -> None:
        """The snapshot is late; Envoy waits for `unready`."""

    def envoy_listens(self, listeners: tuple[Listening, ...]) -> None:
        """The addresses for traffic have changed."""

    def envoy_ended(self, ended: EndedEnvoy) -> None:
        """Envoy ended without being asked to."""


@dataclass(frozen=True, slots=True)
class EnvoyView:
    """Admin page, log and ACKs of one Envoy."""

    admin: AdminPage
    log: EnvoyLog
    acks: AckSource


class Follower:
    """Follows one Envoy from snapshot to snapshot."""

    def __init__(self, store: SnapshotStore, insight: EnvoyView, observer: EnvoyObserver) -> None:
        self._store = store
        self._admin = insight.admin
        self._log = insight.log
        self._acks = insight.acks
        self._observer = observer
        # The state before the current snapshot.
        self._before: Statistics = {}
        self._log_length = 0
        self._listeners: tuple[Listening, ...] = ()
        self._is_live = False

    async def follow(self, snapshot: Snapshot, seen_s: float) -> None:
        """Report until a snapshot is in effect or superseded.

        `seen_s` is the event loop's clock when it was published.
        """
        was_nacked = self._acks.begin(snapshot)
        loop = asyncio.get_running_loop()
        trial = SnapshotProgress(snapshot, loop.time, since_s=seen_s, was_nacked=was_nacked)
        before, log_length = self._before, self._log_length
        while self._store.current is snapshot:
            length = self._log.length
            asked_s = trial.elapsed_s
            statistics = await self._admin.statistics()
            # An answer that crossed with a newer snapshot may already reflect that one.
            if statistics is not None and self._store.current is snapshot:
                self._before, self._log_length = statistics, length
                if await self._is_over(trial, before, log_length):
                    return
            await self._pause(trial, trial.elapsed_s - asked_s)

    async def _is_over(self, trial: SnapshotProgress, before: Statistics, log_length: int) -> bool:
        logged = read_rejections(self._log, log_length)
        status, reasons = self._acks.status(before, self._before, logged)
        for nack in trial.receive_status(status, reasons):
            self._observer.envoy_nacked(nack, trial.elapsed_s)
        if trial.is_reported:
            self._acks.note_reported()
        await self._look_whether_live()
        if (isinstance(status, InProgress) or not self._is_live) and trial.is_report_due():
            waiting = status if isinstance(status, InProgress) else InProgress((), 0)
            self._observer.envoy_pending(waiting, await self._admin.unready(), trial.elapsed_s)
        if not self._is_live:
            return False
        if isinstance(status, InEffect) and status.types:
            self._observer.envoy_acked(status.types, trial.elapsed_s)
        if not isinstance(status, InProgress):
            await self._look_at_listeners()
        return isinstance(status, InEffect)

    async def _look_whether_live(self) -> None:
        if not self._is_live and await self._admin.is_live():
            self._is_live = True
            self._listeners = await self._admin.listeners() or ()
            self._observer.envoy_started(self._admin.address, self._listeners)

    async def _look_at_listeners(self) -> None:
        listeners = await self._admin.listeners()
        if listeners is not None and listeners != self._listeners:
            self._listeners = listeners
            self._observer.envoy_listens(listeners)

    async def _pause(self, trial: SnapshotProgress, answer_took_s: float) -> None:
        pause_s = SLOW_POLL_S if trial.is_reported else max(POLL_S, answer_took_s / SHARE_OF_TIME)
        try:
            async with asyncio.timeout(pause_s):
                await self._store.newer_than(trial.snapshot.generation)
        except TimeoutError:
            return


class SnapshotProgress:
    """A snapshot's age and reports.

    `since_s` is the publication by `clock`, None for now; `was_nacked` concerns the previous snapshot.
    """

    def __init__(
        self, snapshot: Snapshot, clock: Callable[[], float], *, since_s: float | None = None, was_nacked: bool = False
    ) -> None:
        self.snapshot = snapshot
        self.is_reported = False
        self._clock = clock
        self._started_s = clock() if since_s is None else since_s
        self._sightings_due = SIGHTINGS_AFTER_NACK if was_nacked else SIGHTINGS
        self._reported: set[EnvoyNack] = set()
        self._report_at_s = LONG_S

    @property
    def elapsed_s(self) -> float:
        """Seconds since the snapshot was seen."""
        return self._clock() - self._started_s

    def receive_status(
        self, status: InEffect | Nacked | InProgress, reasons: Sequence[LoggedRejection]
    ) -> tuple[EnvoyNack, ...]:
        """Return the NACKs to report now."""
        if not isinstance(status, Nacked):
            return ()
        self._sightings_due -= 1
        if self._sightings_due > 0:
            return ()
        nacks = nacks_of(status, reasons, self.snapshot)
        new = tuple(nack for nack in nacks if nack not in self._reported)
        self._reported.update(new)
        self.is_reported = True
        return new

    def is_report_due(self) -> bool:
        """Return whether to report a pending snapshot again."""
        elapsed_s = self.elapsed_s
        if elapsed_s < self._report_at_s:
            return False
        self._report_at_s = elapsed_s + min(2 * elapsed_s, LONGEST_REPORT_PAUSE_S)
        return True


def read_rejections(log: EnvoyLog, length: int) -> tuple[LoggedRejection, ...]:
    """Return rejections after the first `length` lines."""
    return tuple(found for line in log.since(length) if (found := read_rejection(line.message)))


FILE_POLL_S = 0.02
# Envoy answers in milliseconds; one that does not is stuck, which does not merit an endless wait.
ADMIN_TIMEOUT = aiohttp.ClientTimeout(total=10.0)


async def _request_by(snapshot: Snapshot) -> BootstrapRequest:
    return BootstrapRequest.by(snapshot)


@dataclass(frozen=True, slots=True)
class EnvoyPlan:
    """How to start Envoy.

    Attributes:
        executable: the binary itself.
    """

    executable: Path
    bootstrap_for: Callable[[BootstrapRequest], Section]
    observe_log: Callable[[EnvoyLogLine], None] | None = None
    ack_source_of: Callable[[BootstrapRequest], AckSource] = lambda _: StatisticsAcks()
    wanted_by: Callable[[Snapshot], Awaitable[BootstrapRequest]] = _request_by


async def run_envoy(store: SnapshotStore, plan: EnvoyPlan, observer: EnvoyObserver) -> Never:
    """Keep an Envoy running, and report its status on each snapshot.

    It restarts with a snapshot that needs more subscriptions (the first listener of a tree, another runtime layer),
    and, after it ended by itself, with one that it did not start with.

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
            following = tasks.create_task(_follow_until_more_needed(store, envoy, wanted, plan, observer))
            status = await envoy.ended()
            following.cancel()
        if not envoy.was_stopped:
            observer.envoy_ended(EndedEnvoy(status, envoy.log.tail()))
        snapshot = await store.newer_than(snapshot.generation)


async def _wait_for(files: tuple[PurePath, ...]) -> None:
    while not _exist(files):  # noqa: ASYNC110, a file that appears has no event to wait for
        await asyncio.sleep(FILE_POLL_S)


def _exist(files: tuple[PurePath, ...]) -> bool:
    return all(Path(file).exists() for file in files)


async def _follow_until_more_needed(
    store: SnapshotStore, envoy: LocalEnvoy, wanted: BootstrapRequest, plan: EnvoyPlan, observer: EnvoyObserver
) -> None:
    address = await envoy.admin_address()
    if address is None:
        return
    async with aiohttp.ClientSession(timeout=ADMIN_TIMEOUT) as session:
        insight = EnvoyView(AdminPage(session, address), envoy.log, plan.ack_source_of(wanted))
        follower = Follower(store, insight, observer)
        now_s = asyncio.get_running_loop().time
        snapshot: Snapshot = await store.newer_than(0)
        seen_s = now_s()
        while wanted.covers(await plan.wanted_by(snapshot)):
            await follower.follow(snapshot, seen_s)
            snapshot = await store.newer_than(snapshot.generation)
            seen_s = now_s()
    await envoy.stop()
