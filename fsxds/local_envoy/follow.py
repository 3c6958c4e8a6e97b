"""Watch an Envoy take or refuse each snapshot, and tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fsxds.local_envoy.admin import AdminPage, Listening
from fsxds.local_envoy.complaints import Complaint, read_complaint
from fsxds.local_envoy.process import Ended, EnvoyLog
from fsxds.local_envoy.scopes import Statistics
from fsxds.local_envoy.verdict import Refusal, Refused, Took, Waiting, explain
from fsxds.local_envoy.witness import Witness
from fsxds.resource_types import ResourceType
from fsxds.resources import Snapshot
from fsxds.store import SnapshotStore

# Asking more often slows Envoy itself down; of an Envoy with many statistics, an answer takes its time.
LOOK_EVERY_S = 0.05
SHARE_OF_TIME = 0.1
# How often to look when there is no hurry any more: to see whether it heals.
LOOK_SELDOM_S = 1.0
# After this time without a verdict, say what is missing; then at three times that age, and every half minute from then on.
LONG_S = 3.0
LONGEST_SILENCE_S = 30.0
# A refusal is told when it was seen so often: once more than once, so that the log has arrived too; and for half a
# second after another refusal, whose update fsxds may have offered again just before.
SIGHTINGS = 2
SIGHTINGS_AFTER_REFUSAL = 10


class EnvoyObserver(Protocol):
    """What a local Envoy has to tell."""

    def envoy_started(self, admin: str, listeners: tuple[Listening, ...]) -> None:
        """Envoy runs: where its admin page is, and where it listens for traffic."""

    def envoy_took(self, types: tuple[ResourceType, ...], elapsed_s: float) -> None:
        """The current snapshot is in effect; `types` are those of which Envoy took something new."""

    def envoy_refused(self, refusal: Refusal, elapsed_s: float) -> None:
        """Envoy refused a part of the current snapshot."""

    def envoy_waits(self, waiting: Waiting, unready: tuple[str, ...], elapsed_s: float) -> None:
        """The current snapshot is not in effect after a long time; `unready` is what Envoy says it waits for."""

    def envoy_listens(self, listeners: tuple[Listening, ...]) -> None:
        """The addresses for traffic are others than before."""

    def envoy_ended(self, ended: Ended) -> None:
        """Envoy ended without being asked to."""


@dataclass(frozen=True, slots=True)
class Insight:
    """What can be seen of one Envoy: its admin page, its log, and what knows whether it took a snapshot."""

    admin: AdminPage
    log: EnvoyLog
    witness: Witness


class Follower:
    """Follows one Envoy from snapshot to snapshot.

    Args:
        store: holds the snapshots that Envoy is served.
        insight: what can be seen of it.
        observer: is told.
    """

    def __init__(self, store: SnapshotStore, insight: Insight, observer: EnvoyObserver) -> None:
        self._store = store
        self._admin = insight.admin
        self._log = insight.log
        self._witness = insight.witness
        self._observer = observer
        # As they were when the current snapshot was not there yet.
        self._before: Statistics = {}
        self._log_length = 0
        self._listeners: tuple[Listening, ...] = ()
        self._is_live = False

    async def follow(self, snapshot: Snapshot, seen_s: float) -> None:
        """Tell what becomes of a snapshot; return when Envoy has it in effect, or when there is a newer one.

        Args:
            snapshot: the snapshot.
            seen_s: reading of the event loop's clock when it was published.
        """
        was_refused = self._witness.begin(snapshot)
        loop = asyncio.get_running_loop()
        trial = Trial(snapshot, loop.time, since_s=seen_s, was_refused=was_refused)
        before, log_length = self._before, self._log_length
        while self._store.current is snapshot:
            length = self._log.length
            asked_s = trial.elapsed_s
            statistics = await self._admin.statistics()
            # An answer that crossed with a newer snapshot may already hold what became of that one.
            if statistics is not None and self._store.current is snapshot:
                self._before, self._log_length = statistics, length
                if await self._is_over(trial, before, log_length):
                    return
            await self._pause(trial, trial.elapsed_s - asked_s)

    async def _is_over(self, trial: Trial, before: Statistics, log_length: int) -> bool:
        """Judge by the last statistics, and tell what is new in the verdict."""
        logged = read_complaints(self._log, log_length)
        verdict, complaints = self._witness.judge(before, self._before, logged)
        for refusal in trial.receive_verdict(verdict, complaints):
            self._observer.envoy_refused(refusal, trial.elapsed_s)
        await self._look_whether_live()
        if (isinstance(verdict, Waiting) or not self._is_live) and trial.is_silent_for_long():
            waiting = verdict if isinstance(verdict, Waiting) else Waiting((), 0)
            self._observer.envoy_waits(waiting, await self._admin.unready(), trial.elapsed_s)
        if not self._is_live:
            return False
        if isinstance(verdict, Took) and verdict.types:
            self._observer.envoy_took(verdict.types, trial.elapsed_s)
        if not isinstance(verdict, Waiting):
            await self._look_at_listeners()
        return isinstance(verdict, Took)

    async def _look_whether_live(self) -> None:
        """Tell where Envoy listens as soon as its start is over."""
        if not self._is_live and await self._admin.is_live():
            self._is_live = True
            self._listeners = await self._admin.listeners() or ()
            self._observer.envoy_started(self._admin.address, self._listeners)

    async def _look_at_listeners(self) -> None:
        listeners = await self._admin.listeners()
        if listeners is not None and listeners != self._listeners:
            self._listeners = listeners
            self._observer.envoy_listens(listeners)

    async def _pause(self, trial: Trial, answer_took_s: float) -> None:
        """Wait until it is time to look again, or until there is a newer snapshot."""
        pause_s = LOOK_SELDOM_S if trial.is_told else max(LOOK_EVERY_S, answer_took_s / SHARE_OF_TIME)
        try:
            async with asyncio.timeout(pause_s):
                await self._store.newer_than(trial.snapshot.generation)
        except TimeoutError:
            return


class Trial:
    """One snapshot before Envoy: for how long, and what was told of it.

    Args:
        snapshot: the snapshot.
        clock: reads the time in seconds.
        since_s: when it was published by that clock; None for now.
        was_refused: something of the snapshot before was.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        clock: Callable[[], float],
        *,
        since_s: float | None = None,
        was_refused: bool = False,
    ) -> None:
        self.snapshot = snapshot
        self.is_told = False
        self._clock = clock
        self._started_s = clock() if since_s is None else since_s
        self._sightings_due = SIGHTINGS_AFTER_REFUSAL if was_refused else SIGHTINGS
        self._told: set[Refusal] = set()
        self._speak_at_s = LONG_S

    @property
    def elapsed_s(self) -> float:
        """Seconds since the snapshot was seen."""
        return self._clock() - self._started_s

    def receive_verdict(
        self, verdict: Took | Refused | Waiting, complaints: Sequence[Complaint]
    ) -> tuple[Refusal, ...]:
        """Return the refusals that are to be told now."""
        if not isinstance(verdict, Refused):
            return ()
        self._sightings_due -= 1
        if self._sightings_due > 0:
            return ()
        refusals = explain(verdict, complaints, self.snapshot)
        news = tuple(refusal for refusal in refusals if refusal not in self._told)
        self._told.update(news)
        self.is_told = True
        return news

    def is_silent_for_long(self) -> bool:
        """Say whether it is time to say again what is waited for: never more than half a minute after the last time."""
        elapsed_s = self.elapsed_s
        if elapsed_s < self._speak_at_s:
            return False
        self._speak_at_s = elapsed_s + min(2 * elapsed_s, LONGEST_SILENCE_S)
        return True


def read_complaints(log: EnvoyLog, length: int) -> tuple[Complaint, ...]:
    """Return the complaints in the log since it had `length` lines."""
    return tuple(found for line in log.since(length) if (found := read_complaint(line.message)))
