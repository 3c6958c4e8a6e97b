"""What streams say of a snapshot: told, accepted, nacked."""

from __future__ import annotations

from dataclasses import replace

from fsxds.envoy.admin import Scope
from fsxds.envoy.envoy_log import LoggedRejection
from fsxds.envoy.snapshot_status import InEffect, InProgress, Nacked, StreamAcks
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Snapshot
from fsxds.model.values import Version
from fsxds.protocol.messages import WatchStatus
from fsxds.runtime.channels import SnapshotStore
from tests.envoy.snapshots import snapshot_of, type_url

CDS, EDS = type_url("cds"), type_url("eds")
OLD = snapshot_of({"cds": {"a": "1"}, "eds": {"a": "1"}})
NEW = replace(snapshot_of({"cds": {"a": "2"}, "eds": {"a": "1"}}), generation=OLD.generation + 1)


class Stream:
    """One stream of an Envoy, and what becomes of its ACKs."""

    def __init__(self) -> None:
        self.store = SnapshotStore()
        self.watches: list[WatchStatus] = []
        self._acks = StreamAcks(self.store, lambda: self.watches)

    def publish(self, snapshot: Snapshot) -> bool:
        """Publish a snapshot, and turn to it."""
        self.store.publish(snapshot)
        return self._acks.begin(snapshot)

    def tell(self, snapshot: Snapshot, sent: str, accepted: str) -> None:
        """Have clusters, and the endpoints of `a`, told as they are in a snapshot."""
        versions = Version(sent), Version(accepted)
        clusters = tuple(snapshot.resources(CDS).values())
        endpoints = tuple(snapshot.resources(EDS).values())
        self.watches = [
            WatchStatus(CDS, None, *versions, resources=clusters),
            WatchStatus(
                EDS, frozenset({"a", "gone"}), Version("e"), Version("e"), resources=endpoints, missing=("gone",)
            ),
        ]

    def status(self, warming: int = 0) -> InEffect | Nacked | InProgress:
        """Return the status."""
        return self._acks.status({}, {"cluster_manager.warming_clusters": warming}, ())[0]


def test_everything_accepted_is_taken() -> None:
    """A snapshot is in effect when all that it changes is accepted, and only what moved is told."""
    stream = Stream()
    stream.publish(OLD)
    stream.tell(OLD, "1", "1")

    assert stream.status() == InEffect((BY_SHORT_NAME["cds"], BY_SHORT_NAME["eds"]))

    stream.publish(NEW)
    stream.tell(NEW, "2", "2")

    assert stream.status() == InEffect((BY_SHORT_NAME["cds"],))


def test_what_was_not_told_or_not_accepted_is_awaited() -> None:
    """Before Envoy has a stream, before it was told, before its ACK, and while clusters warm, nothing is in effect."""
    stream = Stream()
    stream.publish(OLD)
    waits = Scope("clusters", BY_SHORT_NAME["cds"])

    assert stream.status() == InProgress((), 0)
    stream.tell(OLD, "1", "")
    assert stream.status() == InProgress((waits,), 0)
    stream.tell(OLD, "1", "1")
    assert stream.status(warming=1) == InProgress((), 1)
    stream.publish(NEW)
    assert stream.status() == InProgress((waits,), 0)


def test_refusal_has_envoys_words() -> None:
    """What Envoy says on the stream is the complaint, and the next snapshot knows of it."""
    stream = Stream()
    stream.publish(OLD)
    nack = WatchStatus(CDS, None, Version("1"), nacked=Version("1"), reason="bad", rejected=frozenset({"a"}))
    stream.watches = [nack]

    status, reasons = stream._acks.status({}, {}, ())

    assert status == Nacked((Scope("clusters", BY_SHORT_NAME["cds"], "a"),))
    assert reasons == [LoggedRejection("bad", CDS)]
    assert stream.publish(NEW)


def test_streams_that_lag_behind_are_awaited() -> None:
    """Streams may be told a snapshot later than the store had it; what they say before is of the one before."""
    stream = Stream()
    stream.publish(OLD)
    stream.tell(OLD, "1", "1")
    stream._acks.begin(NEW)

    assert stream.status() == InProgress((), 0)
