"""How one client stands with each type, and what it has against what is current."""

from __future__ import annotations

import pytest

from fsxds.model.resources import Snapshot
from fsxds.model.values import Version
from fsxds.protocol.messages import ClientStatus, Node, SyncState, WatchStatus, combined_state
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.status.channel_facts import state_of, subscribed_types, type_detail, type_report
from fsxds.transports.admin.admin_reports import TypeDetail, TypeReport
from tests.support.snapshots import snapshot, type_url

CDS, EDS = type_url("CDS"), type_url("EDS")
OLD = snapshot({"CDS": {"a": "1", "b": "1", "gone": "1"}}, generation=1)
NEW = snapshot({"CDS": {"a": "1", "b": "2", "c": "1"}}, generation=2)


def polled(served: Snapshot, **more: object) -> WatchStatus:
    """Return the state of a client that polled all clusters, and was sent and accepted them."""
    version = version_of(served, Subscription(CDS))
    found: dict[str, object] = {"sent": version, "acked": version, "state": SyncState.SYNCED, "since_s": 5.0}
    return WatchStatus(CDS, None, resources=served.resources(CDS).everything, **{**found, **more})  # type: ignore[arg-type]


def streamed(served: Snapshot, **more: object) -> WatchStatus:
    """Return the same of a stream."""
    return polled(served, generation=served.generation, **more)


def report_of(*watches: WatchStatus, served: Snapshot = NEW, service: str = "REST") -> tuple[TypeReport, TypeDetail]:
    """Return how a client stands with the one type that it wants, and the details."""
    status = ClientStatus(Node("edge-1"), service, watches, since_s=2.0)
    [types] = subscribed_types(status, served)
    report = type_report(types, status, served, 8.0, 10.0)
    return report, type_detail(types, report, served)


@pytest.mark.parametrize("watch", [polled, streamed])
def test_a_client_that_has_what_is_current_is_synced(watch: object) -> None:
    """It lacks nothing, and has been so since it accepted it."""
    report, detail = report_of(watch(NEW))  # type: ignore[operator]

    assert (report.type, report.state, report.resources, report.since_s) == ("cds", "SYNCED", 3, 5.0)
    assert report.sent == report.acked == report.current == NEW.versions[CDS]
    assert [detail.lacks.count, detail.outdated.count, detail.surplus.count, detail.missing.count] == [0, 0, 0, 0]


@pytest.mark.parametrize("watch", [polled, streamed])
def test_a_client_with_something_older_is_stale(watch: object) -> None:
    """What it lacks, what is outdated and what is gone is named."""
    report, detail = report_of(watch(OLD))  # type: ignore[operator]

    assert report.since_s == 2.0  # since the newer one was published
    assert (report.state, report.sent, report.current) == ("STALE", OLD.versions[CDS], NEW.versions[CDS])
    assert detail.lacks.names == ("c",)
    assert detail.outdated.names == ("b",)
    assert detail.surplus.names == ("gone",)


def test_a_stream_that_was_sent_all_of_a_snapshot_is_synced_whatever_its_version() -> None:
    """A change that its names are not in is not sent to it."""
    names = frozenset({"a"})
    watch = WatchStatus(CDS, names, Version("1"), Version("1"), state=SyncState.SYNCED, generation=2)

    assert state_of(watch, NEW) is SyncState.SYNCED
    assert report_of(watch, service="DeltaClusters")[0].current == "1"


def test_what_is_not_confirmed_is_lacked_before_the_first_ack_and_outdated_after_it() -> None:
    """Nobody knows whether a client took what it did not answer."""
    waits = {"state": SyncState.STALE, "unconfirmed": frozenset({"b", "c"})}
    first, later = report_of(streamed(NEW, acked=None, **waits)), report_of(streamed(NEW, **waits))

    assert first[0].state == later[0].state == "STALE"
    assert (first[1].lacks.names, first[1].outdated.names) == (("b", "c"), ())
    assert (later[1].lacks.names, later[1].outdated.names) == ((), ("b", "c"))


def test_a_nack_has_its_reason_without_secrets() -> None:
    """Envoy quotes the message that it rejects."""
    reason = 'Proto constraint validation failed: private_key { inline_string: "hunter2" }'
    watch = streamed(NEW, state=SyncState.NACK, nacked=NEW.versions[CDS], reason=reason, rejected=frozenset({"old"}))
    report, detail = report_of(watch)

    assert (report.state, report.nacked) == ("NACK", NEW.versions[CDS])
    assert report.reason is not None
    assert "hunter2" not in report.reason
    assert detail.surplus.names == ("old",)


def test_of_many_subscriptions_the_worst_is_shown() -> None:
    """A node polls for the endpoints of each cluster apart; it is in the state since the first of them."""
    good = WatchStatus(EDS, frozenset({"a"}), state=SyncState.NOT_SENT, missing=("a",))
    bad = [
        WatchStatus(EDS, frozenset({name}), Version(name), nacked=Version(name), state=SyncState.NACK, since_s=since_s)
        for name, since_s in (("b", 7.0), ("c", 4.0))
    ]
    report, detail = report_of(good, *bad)

    assert (report.state, report.subscriptions, report.nacked, report.since_s) == ("NACK", 3, "b", 6.0)
    assert detail.missing.names == ("a",)


def test_of_many_names_the_first_are_listed() -> None:
    """Their number says how many there are."""
    large = snapshot({"CDS": {f"c{number:03}": "1" for number in range(300)}}, generation=2)
    _, detail = report_of(polled(snapshot({"CDS": {}})), served=large)

    assert (detail.lacks.count, len(detail.lacks.names), detail.lacks.names[-1]) == (300, 100, "c099")


def test_what_a_client_wants_no_more_is_not_shown() -> None:
    """A stream that unsubscribed before it was sent anything stands nowhere."""
    status = ClientStatus(Node("edge-1"), "StreamEndpoints", (WatchStatus(EDS, frozenset()),))

    assert subscribed_types(status, NEW) == ()
    assert state_of(WatchStatus(EDS, frozenset()), None) is SyncState.NOT_SENT


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (("SYNCED", "NACK", "STALE"), "NACK"),
        (("SYNCED", "STALE"), "STALE"),
        (("SYNCED", "NOT SENT"), "SYNCED"),
        (("NOT SENT",), "NOT SENT"),
        ((), "NOT SENT"),
    ],
)
def test_a_client_is_as_its_worst_type(states: tuple[str, ...], expected: str) -> None:
    """Types for which there is nothing count last."""
    assert combined_state(map(SyncState, states)).value == expected
