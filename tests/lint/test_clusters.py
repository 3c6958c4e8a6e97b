from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.model.values import Severity
from tests.lint.envoy_answers import (
    HTTP_OPTIONS,
    TLS,
    TYPE,
    Case,
    assert_accepted,
    assert_rejected,
    cluster,
    endpoints,
    read,
    rules_found,
)

ONE = "{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 80}}}}]}"
EDS = "eds_cluster_config: {eds_config: {api_config_source: {api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: xds}}]}}}"
POLICIES = "envoy.extensions.load_balancing_policies."


def policy(message_type: str, **fields: object) -> dict[str, object]:
    """A load balancing policy of this type."""
    config = {"@type": f"{TYPE}{POLICIES}{message_type}", **fields}
    return {"policies": [{"typed_extension_config": {"name": "x", "typed_config": config}}]}


def selector(text: str) -> Case:
    """A cluster with a selector of subsets."""
    return cluster(f"{{lb_subset_config: {{subset_selectors: [{text}]}}}}")


HASHED_NAMES = {"common_lb_config": {"consistent_hashing_lb_config": {"use_hostname_for_hashing": True}}}


def drops(*percentages: str) -> Case:
    """A cluster that drops requests."""
    listed = [
        {"category": str(number), "drop_percentage": {"numerator": one}} for number, one in enumerate(percentages)
    ]
    return cluster({"load_assignment": {"cluster_name": "c", "policy": {"drop_overloads": listed}}})


def without_type() -> dict[str, object]:
    """A policy whose inner policy has no type; as a TypedStruct it is held to no constraints."""
    picking: dict[str, object] = {"policies": [{"typed_extension_config": {}}]}
    packed = {
        "@type": TYPE + "xds.type.v3.TypedStruct",
        "type_url": TYPE + "envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality",
        "value": {"endpoint_picking_policy": picking},
    }
    return {"policies": [{"typed_extension_config": {"name": "x", "typed_config": packed}}]}


def test_clusters_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Types with the fields that they need, and settings of policies that are not in use."""
    assert_accepted(
        catalogue,
        cluster("{type: STATIC}"),
        cluster(f"{{type: EDS, {EDS}}}"),
        endpoints(f"[{ONE}]", type="LOGICAL_DNS"),
        cluster("{type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED}"),
        cluster("{lb_policy: ROUND_ROBIN, ring_hash_lb_config: {minimum_ring_size: 100, maximum_ring_size: 10}}"),
        cluster("{lb_policy: MAGLEV, maglev_lb_config: {table_size: 101}}"),
        cluster("{lb_policy: RING_HASH, ring_hash_lb_config: {maximum_ring_size: 1024}}"),
        cluster({"lb_policy": "RANDOM", "load_balancing_policy": policy("round_robin.v3.RoundRobin")}),
        selector("{keys: [a, b], fallback_policy: KEYS_SUBSET, fallback_keys_subset: [a]}"),
        selector("{keys: [], fallback_policy: KEYS_SUBSET, fallback_keys_subset: [a]}"),
        selector("{keys: [], fallback_policy: KEYS_SUBSET}"),
        selector("{keys: [], fallback_keys_subset: [a]}"),
        cluster("{outlier_detection: {base_ejection_time: 400s}}"),
        cluster("{circuit_breakers: {per_host_thresholds: [{max_connections: 1}]}}"),
        cluster("{http2_protocol_options: {custom_settings_parameters: [{identifier: 10, value: 3}]}}"),
        drops("100"),
        cluster(HASHED_NAMES | {"type": "STRICT_DNS"}),
        cluster({"original_dst_lb_config": {"http_header_name": "a"}}),
        # The policy that is given counts, and not the other.
        cluster({"lb_policy": "CLUSTER_PROVIDED", "load_balancing_policy": policy("round_robin.v3.RoundRobin")}),
    )


def test_useless_endpoints_are_worth_a_warning(catalogue: Catalogue) -> None:
    """Envoy ignores endpoints that are written into a cluster of type EDS."""
    case = cluster(f"{{type: EDS, {EDS}, load_assignment: {{cluster_name: c}}}}")

    assert_accepted(catalogue, case)
    assert {"cluster-type"} == rules_found(catalogue, case, Severity.WARNING)


@pytest.mark.parametrize(
    "case",
    [
        cluster("{type: EDS}"),
        cluster(f"{{type: STATIC, {EDS}}}"),
        cluster("{type: LOGICAL_DNS}"),
        endpoints(f"[{ONE}, {ONE}]", type="LOGICAL_DNS"),
        endpoints(f"[{ONE}, {{}}]", type="LOGICAL_DNS"),
        cluster("{type: ORIGINAL_DST}"),
        cluster("{type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED, load_assignment: {cluster_name: c}}"),
        cluster("{type: STATIC, lb_policy: CLUSTER_PROVIDED}"),
    ],
)
def test_types_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """A type has fields that it needs, and others that it excludes."""
    assert_rejected(catalogue, "cluster-type", case)


@pytest.mark.parametrize(
    "case",
    [
        cluster(HASHED_NAMES),
        cluster(
            {
                "type": "ORIGINAL_DST",
                "lb_policy": "CLUSTER_PROVIDED",
                "original_dst_lb_config": {"http_header_name": "a"},
            }
        ),
        cluster({"load_balancing_policy": policy("wrr_locality.v3.WrrLocality")}),
        cluster(
            {
                "load_balancing_policy": policy(
                    "wrr_locality.v3.WrrLocality", endpoint_picking_policy=policy("round_robin.v3.RoundRobin")
                )
            }
        ),
        cluster({"max_requests_per_connection": 5, "common_http_protocol_options": {"max_requests_per_connection": 5}}),
        cluster("{lb_policy: LOAD_BALANCING_POLICY_CONFIG}"),
        cluster("{load_balancing_policy: {policies: []}}"),
        cluster({"load_balancing_policy": policy("round_robin.v3.RoundRobin"), "lb_subset_config": {}}),
        cluster(
            {
                "load_balancing_policy": policy("round_robin.v3.RoundRobin"),
                "common_lb_config": {"locality_weighted_lb_config": {}},
            }
        ),
        cluster({"load_balancing_policy": policy("ring_hash.v3.RingHash", maximum_ring_size=10)}),
        cluster({"load_balancing_policy": policy("maglev.v3.Maglev", table_size=100)}),
        cluster("{lb_policy: RING_HASH, ring_hash_lb_config: {minimum_ring_size: 100, maximum_ring_size: 10}}"),
        cluster("{lb_policy: MAGLEV, maglev_lb_config: {table_size: 100}}"),
        cluster({"load_balancing_policy": policy("maglev.v3.Maglev", table_size=0)}),
        cluster({"load_balancing_policy": without_type()}),
        selector("{keys: [a], fallback_policy: KEYS_SUBSET}"),
        selector("{keys: [a], fallback_policy: KEYS_SUBSET, fallback_keys_subset: [a]}"),
        selector("{keys: [a], fallback_keys_subset: [a]}"),
        cluster("{outlier_detection: {base_ejection_time: 40s, max_ejection_time: 30s}}"),
        cluster("{circuit_breakers: {per_host_thresholds: [{max_requests: 1}]}}"),
        cluster(
            "{upstream_bind_config: {source_address: {address: 127.0.0.1, port_value: 0}, "
            "extra_source_addresses: [{address: {address: 127.0.0.2, port_value: 0}}]}}"
        ),
        cluster("{http2_protocol_options: {custom_settings_parameters: [{identifier: 2, value: 1}]}}"),
        cluster("{http2_protocol_options: {custom_settings_parameters: [{identifier: 8, value: 1}]}}"),
        drops("200"),
        drops("20", "20"),
    ],
)
def test_clusters_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """Sizes, keys, times and sources must fit one another."""
    assert_rejected(catalogue, "wrong-cluster", case)


def test_a_policy_of_subsets_needs_balancing_by_envoy(catalogue: Catalogue) -> None:
    """Subsets exclude a load balancer of the cluster's own."""
    case = cluster(
        "{type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED, lb_subset_config: {subset_selectors: [{keys: [a]}]}}"
    )

    assert_rejected(catalogue, "wrong-cluster", case)


EVERY = {"timeout": "1s", "interval": "1s", "unhealthy_threshold": 1, "healthy_threshold": 1}


def checked(*texts: str, **fields: object) -> Case:
    """A cluster with health checks."""
    return cluster({"health_checks": [{**EVERY, **read(text)} for text in texts], **fields})


def speaking(**options: object) -> dict[str, object]:
    """The protocol options of a cluster."""
    return {"typed_extension_protocol_options": {HTTP_OPTIONS: {"@type": TYPE + HTTP_OPTIONS, **options}}}


def statuses(start: int, end: int, field: str = "expected_statuses") -> Case:
    """A health check by HTTP with a range of statuses."""
    return checked(f"{{http_health_check: {{path: /, {field}: [{{start: {start}, end: {end}}}]}}}}")


HTTP1: dict[str, object] = {"explicit_http_config": {"http_protocol_options": {}}}
HTTP2: dict[str, object] = {"explicit_http_config": {"http2_protocol_options": {}}}
GRPC = "{grpc_health_check: {}}"


def test_checks_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Hex, ranges within 100 and 600, bodies of POST, gRPC where HTTP/2 is spoken."""
    assert_accepted(
        catalogue,
        checked('{tcp_health_check: {send: {text: "00fF"}, receive: [{text: "01"}]}}'),
        checked("{name: a, http_health_check: {path: x}}", "{name: b, tcp_health_check: {}}"),
        statuses(100, 600),
        checked('{http_health_check: {path: /, method: POST, send: {text: "00"}}}'),
        checked(GRPC, http2_protocol_options={}),
        checked(GRPC, **speaking(**HTTP2)),
        checked(GRPC, **speaking(use_downstream_protocol_config={"http2_protocol_options": {}})),
    )


@pytest.mark.parametrize(
    "case",
    [
        checked("{tcp_health_check: {send: {text: zz}}}"),
        checked('{tcp_health_check: {send: {text: "000"}}}'),
        statuses(300, 200),
        statuses(200, 200),
        statuses(99, 200),
        statuses(100, 601),
        statuses(300, 200, "retriable_statuses"),
        checked('{http_health_check: {path: /, send: {text: "00"}}}'),
        checked(GRPC),
        checked(GRPC, **speaking(**HTTP1)),
        checked("{name: a, tcp_health_check: {}}", "{name: a, tcp_health_check: {}}"),
        checked("{name: a, tcp_health_check: {}}", "{tcp_health_check: {}}"),
    ],
)
def test_checks_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """What cannot be sent, expected or asked is rejected."""
    assert_rejected(catalogue, "wrong-health-check", case)


SOCKET = {"transport_socket": {"name": "t", "typed_config": {"@type": TYPE + TLS + "UpstreamTlsContext"}}}
CLUSTERS = "envoy.extensions.clusters."


def using(options: dict[str, object], **more: object) -> Case:
    """A cluster with protocol options."""
    config = {"@type": TYPE + HTTP_OPTIONS, **options}
    return cluster({"typed_extension_protocol_options": {HTTP_OPTIONS: config}, **more})


def extended(message_type: str, lb_policy: str, **fields: object) -> Case:
    """A cluster of a type that is an extension."""
    config = {"@type": TYPE + message_type, **fields}
    return cluster({"lb_policy": lb_policy, "cluster_type": {"name": "x", "typed_config": config}})


def test_protocols_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Negotiation with TLS, and load balancers where the type says."""
    assert_accepted(
        catalogue,
        using({"auto_config": {}}, **SOCKET),
        using({"use_downstream_protocol_config": {}}),
        extended(CLUSTERS + "aggregate.v3.ClusterConfig", "CLUSTER_PROVIDED", clusters=["xds"]),
        extended(CLUSTERS + "dns.v3.DnsCluster", "ROUND_ROBIN"),
    )


@pytest.mark.parametrize(
    ("rule", "case"),
    [
        ("wrong-cluster", using({"auto_config": {}})),
        ("wrong-cluster", using({"auto_config": {"http3_protocol_options": {}}}, **SOCKET)),
        ("wrong-cluster", using({"explicit_http_config": {"http3_protocol_options": {}}}, **SOCKET)),
        (
            "wrong-extension",
            cluster(
                {"typed_extension_protocol_options": {HTTP_OPTIONS: {"@type": TYPE + "envoy.config.core.v3.Node"}}}
            ),
        ),
        ("wrong-extension", extended("envoy.config.core.v3.Node", "ROUND_ROBIN")),
        ("cluster-type", extended(CLUSTERS + "aggregate.v3.ClusterConfig", "ROUND_ROBIN", clusters=["xds"])),
        ("cluster-type", extended(CLUSTERS + "dns.v3.DnsCluster", "CLUSTER_PROVIDED")),
        ("cluster-type", extended(CLUSTERS + "redis.v3.RedisClusterConfig", "CLUSTER_PROVIDED")),
        (
            "cluster-type",
            cluster(
                {
                    "eds_cluster_config": {"eds_config": {"ads": {}}},
                    "cluster_type": {"name": "x", "typed_config": {"@type": TYPE + CLUSTERS + "dns.v3.DnsCluster"}},
                }
            ),
        ),
    ],
)
def test_protocols_that_envoy_rejects(catalogue: Catalogue, rule: str, case: Case) -> None:
    """Without TLS nothing is negotiated, and HTTP/3 needs QUIC."""
    assert_rejected(catalogue, rule, case)
