"""What Envoy made of a snapshot, told from its statistics and its log."""

from __future__ import annotations

from pathlib import PurePosixPath

from fsxds.envoy.admin import Expected, Scope
from fsxds.envoy.envoy_log import LoggedRejection
from fsxds.envoy.snapshot_status import EnvoyNack, InEffect, InProgress, Nacked, nacks_of, status_by_statistics
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Origin, Snapshot
from fsxds.protocol.subscription import Subscription, version_of
from tests.envoy.snapshots import snapshot_of, type_url

CDS, RDS = BY_SHORT_NAME["cds"], BY_SHORT_NAME["rds"]
OLD = snapshot_of({"cds": {"a": "1"}, "rds": {"main": "1"}})
NEW = snapshot_of({"cds": {"a": "2"}, "rds": {"main": "1"}}, files={"cds": "edge/cds.yaml"})
CDS_SCOPE, RDS_SCOPE = Scope("cluster_manager.cds", CDS), Scope("http.web.rds.main", RDS, "main")


def statistics(snapshot: Snapshot, **more: int) -> dict[str, int | str]:
    """Return what an Envoy shows that has a snapshot in effect; `cds_rejected=1` and the like on top."""
    routes = version_of(snapshot, Subscription.for_request(RDS.type_url, ["main"]))
    return {
        "cluster_manager.cds.version_text": snapshot.versions[CDS.type_url],
        "cluster_manager.cds.update_rejected": more.get("cds_rejected", 0),
        "cluster_manager.cds.update_success": more.get("cds_success", 0),
        "cluster_manager.cds.update_failure": more.get("cds_failure", 0),
        "http.web.rds.main.version_text": routes,
        "http.web.rds.main.update_rejected": more.get("rds_rejected", 0),
        "cluster_manager.warming_clusters": more.get("warming", 0),
        "listener_manager.total_listeners_warming": 0,
    }


def test_took_when_every_version_shows_and_nothing_warms() -> None:
    """Envoy took a snapshot when all its subscriptions are there; it tells the types that moved."""
    assert InEffect((CDS,)) == status_by_statistics(Expected.of(NEW), statistics(OLD), statistics(NEW), ())


def test_took_tells_nothing_when_nothing_moved() -> None:
    """A snapshot that changes nothing Envoy asks for is in effect already."""
    assert InEffect(()) == status_by_statistics(Expected.of(OLD), statistics(OLD), statistics(OLD), ())


def test_waits_for_a_version() -> None:
    """A subscription that shows an older version is waited for."""
    assert InProgress((CDS_SCOPE,), 0) == status_by_statistics(Expected.of(NEW), statistics(OLD), statistics(OLD), ())


def test_waits_for_warming() -> None:
    """The version of clusters shows before they have their endpoints; the gauge tells when they do."""
    assert InProgress((), 2) == status_by_statistics(Expected.of(NEW), statistics(OLD), statistics(NEW, warming=2), ())


def test_refused_when_a_rejection_was_counted_and_the_version_does_not_show() -> None:
    """One more rejected update, and still another version: nacked."""
    assert Nacked((CDS_SCOPE,)) == status_by_statistics(
        Expected.of(NEW), statistics(OLD), statistics(OLD, cds_rejected=1), ()
    )


def test_took_after_a_rejection_that_healed() -> None:
    """A rejected update that was taken when it was offered again is taken."""
    assert InEffect((CDS,)) == status_by_statistics(
        Expected.of(NEW), statistics(OLD), statistics(NEW, cds_rejected=1), ()
    )


def test_version_after_a_refusal_counts_with_one_more_update() -> None:
    """A part of the nacked update may be in effect under the old version; the old content has to be taken again."""
    expected = Expected.of(OLD, doubted=frozenset({"cluster_manager.cds"}))
    before = statistics(OLD, cds_rejected=1)

    assert status_by_statistics(expected, before, before, ()) == InProgress((CDS_SCOPE,), 0)
    assert status_by_statistics(expected, before, statistics(OLD, cds_rejected=1, cds_success=1), ()) == InEffect(
        (CDS,)
    )


def test_rejections_from_before_do_not_count() -> None:
    """What was rejected before the snapshot was published says nothing about it."""
    before, now = statistics(OLD, cds_rejected=3), statistics(OLD, cds_rejected=3)

    assert InProgress((CDS_SCOPE,), 0) == status_by_statistics(Expected.of(NEW), before, now, ())


def test_failed_update_counts_when_a_file_could_not_be_read() -> None:
    """A poll that finds nobody fails too; only the log's word about a file makes a failure a NACK."""
    before, now = statistics(OLD), statistics(OLD, cds_failure=1)

    assert InProgress((CDS_SCOPE,), 0) == status_by_statistics(Expected.of(NEW), before, now, ())
    assert Nacked((CDS_SCOPE,)) == status_by_statistics(
        Expected.of(NEW), before, now, [LoggedRejection("unexpected EOF", is_failure=True)]
    )


def test_unsure_types_are_not_waited_for_but_can_be_refused() -> None:
    """Where Envoy may rightly hold more than the snapshot has, only a rejection tells something."""
    unsure = snapshot_of({"cds": {"a": "2"}, "rds": {"main": "1"}}, unsure=("cds",))

    assert InEffect(()) == status_by_statistics(Expected.of(unsure), statistics(OLD), statistics(OLD), ())
    assert Nacked((CDS_SCOPE,)) == status_by_statistics(
        Expected.of(unsure), statistics(OLD), statistics(OLD, cds_rejected=1), ()
    )


def test_refusal_names_each_resource_that_envoy_names() -> None:
    """What the log says of a resource goes before what it says of the update; each has its place."""
    reasons = [
        LoggedRejection("bad address", CDS.type_url, "a"),
        LoggedRejection("Error adding/updating cluster(s) a: bad address", CDS.type_url),
        LoggedRejection("bad address", CDS.type_url, "a"),
    ]
    expected = (EnvoyNack(CDS, "a", "bad address", (Origin(PurePosixPath("cds/a.yaml"), 7),)),)

    assert expected == nacks_of(Nacked((CDS_SCOPE,)), reasons, NEW)


def test_refusal_of_a_named_subscription_is_at_its_resource() -> None:
    """The name of an RDS subscription tells where its routes were written, whatever the reason says."""
    reasons = [LoggedRejection("missing ): (", RDS.type_url), LoggedRejection("bad address", CDS.type_url, "a")]
    expected = (EnvoyNack(RDS, "main", "missing ): (", (Origin(PurePosixPath("rds/main.yaml"), 7),)),)

    assert expected == nacks_of(Nacked((RDS_SCOPE,)), reasons, NEW)


def test_refusal_finds_a_name_in_the_reason() -> None:
    """Where only the text names a resource, that is its place."""
    expected = (EnvoyNack(CDS, None, "cluster a: no", (Origin(PurePosixPath("cds/a.yaml"), 7),)),)

    assert expected == nacks_of(Nacked((CDS_SCOPE,)), [LoggedRejection("cluster a: no")], NEW)


def test_refusal_without_a_name_is_at_the_files_that_changed() -> None:
    """Where nothing names a resource, the files whose change brought the update are told."""
    expected = (EnvoyNack(CDS, None, "Invalid duration", (Origin(PurePosixPath("edge/cds.yaml"), 1),)),)

    assert expected == nacks_of(Nacked((CDS_SCOPE,)), [LoggedRejection("Invalid duration", CDS.type_url)], NEW)


def test_refusal_without_a_word_in_the_log() -> None:
    """A NACK that the log does not explain is told all the same."""
    nacked = Nacked((CDS_SCOPE, RDS_SCOPE))
    snapshot = snapshot_of({"cds": {"a": "2"}, "rds": {"main": "1"}})

    assert [(CDS, None, ()), (RDS, "main", (Origin(PurePosixPath("rds/main.yaml"), 7),))] == [
        (one.resource_type, one.reason or one.resource_name, one.origins) for one in nacks_of(nacked, (), snapshot)
    ]


def test_complaint_without_type_is_for_the_type_that_has_none_of_its_own() -> None:
    """Files: clusters and routes nacked at once, and only the clusters named."""
    reasons = [LoggedRejection("bad address", type_url("cds"), "a"), LoggedRejection("wildcard in route main")]
    nacks = nacks_of(Nacked((CDS_SCOPE, RDS_SCOPE)), reasons, NEW)

    assert [one.reason for one in nacks] == ["bad address", "wildcard in route main"]
