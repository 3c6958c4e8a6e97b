"""When a status is told: not before the log has arrived, not twice, and not never."""

from __future__ import annotations

from pathlib import PurePosixPath

from fsxds.envoy.admin import Scope
from fsxds.envoy.envoy_log import LoggedRejection
from fsxds.envoy.follow import SIGHTINGS_AFTER_NACK, EnvoyLog, SnapshotProgress, read_rejections
from fsxds.envoy.snapshot_status import InEffect, InProgress, Nacked, RejectedResource, StreamAcks
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Origin
from fsxds.model.values import Version
from fsxds.runtime.channels import SnapshotStore
from tests.envoy.snapshots import snapshot_of, type_url

SNAPSHOT = snapshot_of({"cds": {"a": "1"}})
SCOPE = Scope("cluster_manager.cds", BY_SHORT_NAME["cds"])
REFUSED = Nacked((SCOPE,))
BAD = LoggedRejection("bad address", type_url("cds"), "a")
WORSE = LoggedRejection("worse", type_url("cds"), "a")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def trial_of(clock: Clock | None = None, *, was_nacked: bool = False) -> SnapshotProgress:
    return SnapshotProgress(SNAPSHOT, clock or Clock(), was_nacked=was_nacked)


def test_refusal_is_told_at_the_second_sight() -> None:
    """The log comes another way than the statistics, and may be a moment later."""
    trial = trial_of()

    assert trial.receive_status(REFUSED, ()) == ()
    assert [one.reason for one in trial.receive_status(REFUSED, [BAD])] == ["bad address"]


def test_refusal_is_told_once() -> None:
    """An update that is offered again and nacked again is not reported again; another reason is."""
    trial = trial_of()
    trial.receive_status(REFUSED, [BAD])
    trial.receive_status(REFUSED, [BAD])

    assert trial.receive_status(REFUSED, [BAD, BAD]) == ()
    assert [one.reason for one in trial.receive_status(REFUSED, [BAD, WORSE])] == ["worse"]


def test_refusal_after_another_is_looked_at_longer() -> None:
    """The update before may have been offered again, and nacked again, a moment before this one was published."""
    trial = trial_of(was_nacked=True)
    told = [bool(trial.receive_status(REFUSED, [BAD])) for _ in range(SIGHTINGS_AFTER_NACK)]

    assert told == [False] * (SIGHTINGS_AFTER_NACK - 1) + [True]


def test_other_verdicts_are_no_refusals() -> None:
    """Taking and waiting tell nothing here."""
    trial = trial_of()

    assert trial.receive_status(InEffect(()), ()) == ()
    assert trial.receive_status(InProgress((SCOPE,), 0), ()) == ()


def test_long_wait_is_told_again_and_again() -> None:
    """What is waited for is told after some seconds, ever more seldom, but each half minute for as long as it lasts."""
    clock = Clock()
    trial = trial_of(clock)
    told = []
    for second in range(121):
        clock.now_s = 100.0 + second
        if trial.is_report_due():
            told.append(second)

    assert told == [3, 9, 27, 57, 87, 117]


def test_complaints_are_read_from_a_moment_on() -> None:
    """What the log said before a snapshot does not speak against it."""
    log = EnvoyLog()
    log.append("warning upstream cds: cluster \\'a\\' config rejected: bad address")
    length = log.length
    log.append("info main all is well")
    log.append("warning upstream cds: cluster \\'a\\' config rejected: worse")

    assert read_rejections(log, length) == (WORSE,)


def test_what_is_taken_back_on_a_stream_is_told_once() -> None:
    """Envoy holds something else by then; the line is that of what it rejected, and another version counts anew."""
    store, place = SnapshotStore(), Origin(PurePosixPath("web.yaml"), 7)
    store.publish(SNAPSHOT)
    key = type_url("cds"), "web"
    rejected = {(key, Version("bad")): RejectedResource("bad address", place)}
    acks, trial = StreamAcks(store, tuple, lambda: rejected), trial_of()
    acks.begin(SNAPSHOT)
    told = [trial.receive_status(*acks.status({}, {}, ())) for _ in range(2)]

    assert [(nack.resource_name, nack.reason, nack.origins) for nack in told[1]] == [("web", "bad address", (place,))]
    acks.note_reported()
    assert isinstance(acks.status({}, {}, ())[0], InProgress)
    rejected = {(key, Version("worse")): RejectedResource("worse", place)}
    assert isinstance(acks.status({}, {}, ())[0], Nacked)
