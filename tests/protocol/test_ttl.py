"""Which clients are sent a time to live, and how it is renewed."""

from __future__ import annotations

import pytest

from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.protocol.ttl import SOTW_TTL_FEATURE, TTL_FEATURE, TtlMode, TtlUse, heartbeat_s, ttl_use
from tests.support.snapshots import type_url

BOTH = frozenset((TTL_FEATURE, SOTW_TTL_FEATURE))
ALONE = frozenset((TTL_FEATURE,))

# What survives in an Envoy, by ENVOY.md E40.
SURVIVES = {"CDS", "LDS", "RTDS"}


@pytest.mark.parametrize("short_name", [row.short_name.upper() for row in RESOURCE_TYPES])
def test_envoy_is_told_where_it_survives(short_name: str) -> None:
    """An Envoy is sent the time to live of clusters, listeners and runtime layers; endpoints that expire crash it."""
    survives = short_name in SURVIVES
    sotw = ttl_use(type_url(short_name), BOTH, TtlMode.ENVOY, is_delta=False)
    delta = ttl_use(type_url(short_name), ALONE, TtlMode.ENVOY, is_delta=True)

    assert sotw is (TtlUse.FULL if survives else TtlUse.NONE)
    assert delta is (TtlUse.HEARTBEAT if survives else TtlUse.NONE)


@pytest.mark.parametrize("short_name", [row.short_name.upper() for row in RESOURCE_TYPES])
def test_specification_has_heartbeats_for_every_type(short_name: str) -> None:
    """Where the specification is followed, every type has its time to live and light heartbeats."""
    for is_delta in (False, True):
        assert ttl_use(type_url(short_name), BOTH, TtlMode.SPECIFICATION, is_delta=is_delta) is TtlUse.HEARTBEAT


@pytest.mark.parametrize("mode", list(TtlMode))
def test_who_does_not_announce_it_is_told_nothing(mode: TtlMode) -> None:
    """A client has to announce that it knows times to live, and on state-of-the-world streams that it knows wrappers."""
    clusters = type_url("CDS")

    assert ttl_use(clusters, frozenset(), mode, is_delta=False) is TtlUse.NONE
    assert ttl_use(clusters, frozenset(), mode, is_delta=True) is TtlUse.NONE
    assert ttl_use(clusters, ALONE, mode, is_delta=False) is TtlUse.NONE
    assert ttl_use(clusters, frozenset((SOTW_TTL_FEATURE,)), mode, is_delta=False) is TtlUse.NONE


def test_grpc_clients_name_the_feature_otherwise() -> None:
    """What grpcio announces for wrappers counts as well."""
    features = frozenset((TTL_FEATURE, "xds.config.resource-in-sotw"))

    assert ttl_use(type_url("EDS"), features, TtlMode.SPECIFICATION, is_delta=False) is TtlUse.HEARTBEAT


def test_a_heartbeat_may_be_late() -> None:
    """Two heartbeats come within a time to live."""
    assert heartbeat_s(10.0) == 5.0
