"""A patch is merged into a message by RFC 7386, and by what the API says of its fields."""

from __future__ import annotations

from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.merge_patch import PatchMerger
from fsxds.model.values import PlainValue

CLUSTER = "envoy.config.cluster.v3.Cluster"
LISTENER = "envoy.config.listener.v3.Listener"
ROUTES = "envoy.config.route.v3.RouteConfiguration"
TCP = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
HCM = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"


def filter_chain(**config: Any) -> dict[str, Any]:
    """Return a listener with one named chain of one filter."""
    return {"filter_chains": [{"name": "c", "filters": [{"name": "f", "typed_config": {**config}}]}]}


@pytest.mark.parametrize(
    ("message_type", "base", "patch", "expected"),
    [
        (CLUSTER, {"name": "a"}, {"connectTimeout": "2s"}, {"name": "a", "connect_timeout": "2s"}),
        (CLUSTER, {"connect_timeout": "1s"}, {"connectTimeout": None, "connect_timeout": None}, {}),
        (CLUSTER, {"connect_timeout": "1s"}, {"nothing": None}, {"connect_timeout": "1s"}),
        # One field of a oneof takes the place of the other.
        (CLUSTER, {"type": "STATIC"}, {"cluster_type": {"name": "x"}}, {"cluster_type": {"name": "x"}}),
        (CLUSTER, {"type": "STATIC"}, {"cluster_type": None}, {"type": "STATIC"}),
        # Maps, and what has no fields, are merged by the keys that are written.
        (
            CLUSTER,
            {"metadata": {"filter_metadata": {"envoy.lb": {"a_b": 1, "c": {"d": 2}}}}},
            {"metadata": {"filterMetadata": {"envoy.lb": {"aB": 3, "c": {"d": None}}, "x": {"y": [None]}}}},
            {"metadata": {"filter_metadata": {"envoy.lb": {"a_b": 1, "aB": 3, "c": {}}, "x": {"y": [None]}}}},
        ),
        (CLUSTER, {"metadata": {"filter_metadata": {"a": {}}}}, {"metadata": {"filter_metadata": {"a": None}}}, {"metadata": {"filter_metadata": {}}}),
        # Lists of values are replaced.
        (ROUTES, {"internal_only_headers": ["a", "b"]}, {"internal_only_headers": ["c"]}, {"internal_only_headers": ["c"]}),
        # Lists by name.
        (
            ROUTES,
            {"virtual_hosts": [{"name": "a", "domains": ["a"]}, {"name": "b", "domains": ["b"]}]},
            {"virtual_hosts": [{"name": "c"}, {"name": "b", "domains": ["x"]}, {"name": "a", "$patch": "delete"}]},
            {"virtual_hosts": [{"name": "b", "domains": ["x"]}, {"name": "c"}]},
        ),
        # One object stands for a list of one.
        (ROUTES, {"virtual_hosts": [{"name": "a"}]}, {"virtual_hosts": {"name": "b"}}, {"virtual_hosts": [{"name": "a"}, {"name": "b"}]}),
        # Where a name is missing, or twice, a list is replaced.
        (ROUTES, {"virtual_hosts": [{"name": "a"}, {}]}, {"virtual_hosts": [{"name": "b"}]}, {"virtual_hosts": [{"name": "b"}]}),
        (ROUTES, {"virtual_hosts": [{"name": "a"}]}, {"virtual_hosts": [{"name": "b"}, {"name": "b"}]}, {"virtual_hosts": [{"name": "b"}, {"name": "b"}]}),
        (ROUTES, {"virtual_hosts": [{"name": "a"}]}, {"virtual_hosts": ["b", 3]}, {"virtual_hosts": ["b", 3]}),
        # Headers by their keys.
        (
            ROUTES,
            {"request_headers_to_add": [{"header": {"key": "a", "value": "1"}}, {"header": {"key": "b", "value": "1"}}]},
            {"request_headers_to_add": [{"header": {"key": "b", "value": "2"}}]},
            {"request_headers_to_add": [{"header": {"key": "a", "value": "1"}}, {"header": {"key": "b", "value": "2"}}]},
        ),
        # Messages of any type.
        (LISTENER, filter_chain(**{"@type": TCP, "cluster": "a", "stat_prefix": "s"}), filter_chain(cluster="b"), filter_chain(**{"@type": TCP, "cluster": "b", "stat_prefix": "s"})),
        (LISTENER, filter_chain(**{"@type": TCP, "cluster": "a"}), filter_chain(**{"@type": TCP, "statPrefix": "s"}), filter_chain(**{"@type": TCP, "cluster": "a", "stat_prefix": "s"})),
        (LISTENER, filter_chain(**{"@type": TCP, "cluster": "a"}), filter_chain(**{"@type": HCM, "codec_type": None}), filter_chain(**{"@type": HCM})),
        (LISTENER, filter_chain(**{"@type": TCP, "cluster": "a"}), filter_chain(weightedClusters={"clusters": []}), filter_chain(**{"@type": TCP, "weighted_clusters": {"clusters": []}})),
        # What is odd replaces, and is reported by who reads it.
        (CLUSTER, {"load_assignment": {"cluster_name": "a"}}, {"load_assignment": 3}, {"load_assignment": 3}),
        (CLUSTER, {"connect_timeout": "1s"}, {"connect_timeout": {"a": None}}, {"connect_timeout": {}}),
    ],
)  # fmt: skip
def test_merged(
    catalogue: Catalogue, message_type: str, base: Any, patch: Any, expected: dict[str, PlainValue]
) -> None:
    """What the API says of the fields decides how they are merged; base and patch stay as they are."""
    before = repr((base, patch))

    assert PatchMerger(catalogue).merge(base, patch, message_type).value == expected
    assert repr((base, patch)) == before


def test_sources(catalogue: Catalogue) -> None:
    """Each part of the result is known by where it was written."""
    base: dict[str, PlainValue] = {"name": "r", "virtual_hosts": [{"name": "a"}, {"name": "b", "domains": ["*"]}]}
    patch: dict[str, PlainValue] = {
        "virtualHosts": [{"name": "c"}, {"name": "a", "$patch": "delete"}, {"name": "b", "requireTls": "ALL"}]
    }
    merged = PatchMerger(catalogue).merge(base, patch, ROUTES)

    assert merged.value["virtual_hosts"] == [{"name": "b", "domains": ["*"], "require_tls": "ALL"}, {"name": "c"}]
    assert merged.sources == {
        ("virtual_hosts", 0): (False, ("virtual_hosts", 1)),
        ("virtual_hosts", 0, "name"): (True, ("virtualHosts", 2, "name")),
        ("virtual_hosts", 0, "require_tls"): (True, ("virtualHosts", 2, "requireTls")),
        ("virtual_hosts", 1): (True, ("virtualHosts", 0)),
    }
