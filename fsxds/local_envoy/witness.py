"""What tells whether an Envoy took a snapshot: the statistics on its admin page, or what it says on its streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from fsxds.local_envoy.complaints import Complaint
from fsxds.local_envoy.scopes import Expected, Statistics
from fsxds.local_envoy.verdict import Refused, Took, Waiting, judge, judge_streams
from fsxds.protocol.messages import WatchStatus
from fsxds.resources import Snapshot
from fsxds.store import SnapshotStore
from fsxds.values import TypeUrl, Version

Verdict = Took | Refused | Waiting


class Witness(Protocol):
    """Follows one Envoy from snapshot to snapshot."""

    def begin(self, snapshot: Snapshot) -> bool:
        """Turn to a snapshot that was just published; tell whether Envoy refused something of the one before."""

    def judge(
        self, before: Statistics, now: Statistics, complaints: Sequence[Complaint]
    ) -> tuple[Verdict, Sequence[Complaint]]:
        """Decide what became of the snapshot, and say with what complaints.

        Args:
            before: the statistics from before it was published; empty for a new Envoy.
            now: the present statistics.
            complaints: of Envoy's log since the snapshot was published.
        """


class StatisticsWitness:
    """Compares the versions on the admin page with those that were sent: by REST, and by files, nobody else can tell."""

    def __init__(self) -> None:
        self._expected: Expected | None = None
        # The prefixes of the subscriptions that refused their last update.
        self._refused: frozenset[str] = frozenset()

    def begin(self, snapshot: Snapshot) -> bool:
        """Work out which versions Envoy should show now."""
        self._expected = Expected.of(snapshot, self._expected, self._refused)
        return bool(self._refused)

    def judge(
        self, before: Statistics, now: Statistics, complaints: Sequence[Complaint]
    ) -> tuple[Verdict, Sequence[Complaint]]:
        """Compare."""
        if self._expected is None:
            raise RuntimeError("a snapshot is judged that nobody turned to")
        verdict = judge(self._expected, before, now, complaints)
        if isinstance(verdict, Refused):
            self._refused |= {scope.prefix for scope in verdict.scopes}
        elif isinstance(verdict, Took):
            self._refused = frozenset()
        return verdict, complaints


class StreamWitness:
    """Reads Envoy's own verdicts, which its streams bring: ACKs, and NACKs with a reason.

    Args:
        store: holds the snapshots that streams are told.
        watches: where the streams of this Envoy stand now.
    """

    def __init__(self, store: SnapshotStore, watches: Callable[[], Iterable[WatchStatus]]) -> None:
        self._store = store
        self._watches = watches
        self._generation = 0
        # What it had accepted when it had taken all of the snapshot before, and of this one.
        self._before: dict[TypeUrl, Version | None] = {}
        self._accepted: dict[TypeUrl, Version | None] = {}
        self._is_refused = False

    def begin(self, snapshot: Snapshot) -> bool:
        """Note what Envoy has accepted so far."""
        self._generation = snapshot.generation
        self._before = self._accepted
        was_refused, self._is_refused = self._is_refused, False
        return was_refused

    def judge(
        self, before: Statistics, now: Statistics, complaints: Sequence[Complaint]
    ) -> tuple[Verdict, Sequence[Complaint]]:
        """Look where the streams stand; clusters and listeners that are warming are found in the statistics."""
        current = self._store.current
        if current is None or current.generation < self._generation:
            return Waiting((), 0), ()
        watches = tuple(self._watches())
        verdict = judge_streams(current, watches, self._before, now)
        if isinstance(verdict, Took):
            self._accepted = {watch.type_url: watch.acked for watch in watches}
        self._is_refused = isinstance(verdict, Refused)
        said = [Complaint(watch.reason, watch.type_url) for watch in watches if watch.rejected and watch.reason]
        return verdict, said
