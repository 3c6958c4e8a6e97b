"""Which subscription a statistic speaks of, and which version it should show."""

from __future__ import annotations

import re

import pytest

from fsxds.envoy.admin import STATISTICS_FILTER, Expected, Scope, Statistics, scope_of, scopes_in
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Snapshot
from fsxds.model.values import Version
from fsxds.protocol.subscription import Subscription, version_of
from tests.envoy.snapshots import snapshot_of, type_url


def scope(prefix: str) -> Scope:
    found = scope_of(prefix)
    assert found is not None
    return found


def version(snapshot: Snapshot, short_name: str, name: str | None = None) -> Version:
    names = [] if name is None else [name]
    return version_of(snapshot, Subscription.for_request(type_url(short_name), names))


@pytest.mark.parametrize(
    ("prefix", "short_name", "name"),
    [
        ("cluster_manager.cds", "cds", None),
        ("listener_manager.lds", "lds", None),
        ("http.web.scoped_rds.scopes", "srds", None),
        ("http.web.rds.main", "rds", "main"),
        ("http.web.rds.main.v2", "rds", "main.v2"),
        ("sds.certificate", "sds", "certificate"),
        ("runtime", "rtds", None),
        ("extension_config_discovery.http_filter.lua", "ecds", "lua"),
        ("cluster.backend.v2", "eds", "backend.v2"),
    ],
)
def test_prefix_tells_type_and_name(prefix: str, short_name: str, name: str | None) -> None:
    """The prefix of a statistic tells the type of the subscription, and the resource where there is one for each."""
    expected = Scope(prefix, BY_SHORT_NAME[short_name], name)

    assert expected == scope_of(prefix)


@pytest.mark.parametrize("prefix", ["server", "listener_manager", "http.web"])
def test_other_statistics_are_no_subscription(prefix: str) -> None:
    """What is no subscription's is not taken for one."""
    assert scope_of(prefix) is None


def test_subscriptions_are_found_by_their_version_texts() -> None:
    """Envoy has the subscriptions of which there is a version_text, whatever its value."""
    statistics: Statistics = {
        "cluster_manager.cds.version_text": "",
        "cluster_manager.cds.update_success": 0,
        "sds.a.version_text": "1",
    }

    assert [one.prefix for one in scopes_in(statistics)] == ["cluster_manager.cds", "sds.a"]


@pytest.mark.parametrize(
    ("name", "is_asked_for"),
    [
        ("cluster_manager.cds.version_text", True),
        ("cluster.a.update_rejected", True),
        ("cluster_manager.warming_clusters", True),
        ("listener_manager.total_listeners_warming", True),
        ("cluster.a.update_attempt", False),
        ("cluster.a.membership_total", False),
    ],
)
def test_filter_lets_through_what_is_judged(name: str, *, is_asked_for: bool) -> None:
    """The filter names versions, verdicts and warming gauges, and nothing else."""
    assert is_asked_for == bool(re.search(STATISTICS_FILTER, name))


def test_bundle_is_settled_at_the_version_of_the_whole_type() -> None:
    """CDS shows the version of all clusters."""
    before, after = snapshot_of({"cds": {"a": "1"}}), snapshot_of({"cds": {"a": "2"}})
    expected = Expected.of(after)

    assert expected.is_settled(scope("cluster_manager.cds"), version(after, "cds"))
    assert not expected.is_settled(scope("cluster_manager.cds"), version(before, "cds"))
    assert not expected.is_settled(scope("cluster_manager.cds"), "")


def test_named_subscription_is_settled_at_the_version_of_its_name() -> None:
    """An EDS subscription shows the version of the one name that it asked for, not of the type."""
    before, after = snapshot_of({"eds": {"a": "1", "b": "1"}}), snapshot_of({"eds": {"a": "2", "b": "1"}})
    expected = Expected.of(after, Expected.of(before))

    assert expected.is_settled(scope("cluster.a"), version(after, "eds", "a"))
    assert expected.is_settled(scope("cluster.b"), version(before, "eds", "b"))
    assert not expected.is_settled(scope("cluster.a"), version(before, "eds", "a"))


def test_cluster_may_ask_for_another_name_than_its_own() -> None:
    """A cluster with a service_name shows the version of that name."""
    snapshot = snapshot_of({"eds": {"service": "1"}})

    assert Expected.of(snapshot).is_settled(scope("cluster.a"), version(snapshot, "eds", "service"))


def test_removed_endpoints_are_settled_at_the_version_of_their_absence() -> None:
    """EDS and RDS answer a name that is gone with an empty list, which has a version."""
    before, after = snapshot_of({"eds": {"a": "1", "b": "1"}}), snapshot_of({"eds": {"b": "1"}})
    expected = Expected.of(after, Expected.of(before))

    assert not expected.is_settled(scope("cluster.a"), version(before, "eds", "a"))
    assert expected.is_settled(scope("cluster.a"), version(after, "eds", "a"))


def test_removed_secret_stays_as_it_was() -> None:
    """The absence of a secret cannot be told: Envoy keeps the last one, and its version."""
    before, after = snapshot_of({"sds": {"a": "1", "b": "1"}}), snapshot_of({"sds": {"b": "1"}})
    expected = Expected.of(after, Expected.of(before))

    assert expected.is_settled(scope("sds.a"), version(before, "sds", "a"))


def test_secret_that_never_was_is_not_waited_for() -> None:
    """A secret that the tree does not have is never answered."""
    expected = Expected.of(snapshot_of({"sds": {"b": "1"}}))

    assert expected.is_settled(scope("sds.a"), "")
    assert not expected.is_settled(scope("sds.b"), "")


def test_colons_in_names_are_underscores_in_statistics() -> None:
    """A secret named like a SPIFFE id is known by the name that its statistics have."""
    expected = Expected.of(snapshot_of({"sds": {"spiffe://a/b:c": "1"}}))

    assert not expected.is_settled(scope("sds.spiffe_a/b_c"), "")


def test_runtime_layers_share_a_scope() -> None:
    """The version of any present layer is right for `runtime`, that of a past one is not."""
    before, after = snapshot_of({"rtds": {"a": "1", "b": "1"}}), snapshot_of({"rtds": {"a": "2", "b": "1"}})
    expected = Expected.of(after, Expected.of(before))

    assert expected.is_settled(scope("runtime"), version(after, "rtds", "b"))
    assert not expected.is_settled(scope("runtime"), version(before, "rtds", "a"))


def test_types_whose_removals_are_not_told_are_unsure() -> None:
    """Where a file was never good, or nobody speaks of a type any more, Envoy may rightly hold more."""
    expected = Expected.of(snapshot_of({"cds": {}, "lds": {}}, unsure=("cds",)))

    assert type_url("cds") in expected.unsure
    assert type_url("eds") in expected.unsure
    assert type_url("lds") not in expected.unsure
