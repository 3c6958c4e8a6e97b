import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_answers import HTTP_OPTIONS, TLS, TYPE, Case, assert_accepted, assert_rejected, cluster

SOCKET = {"transport_socket": {"name": "t", "typed_config": {"@type": TYPE + TLS + "UpstreamTlsContext"}}}
CLUSTERS = "envoy.extensions.clusters."


def speaking(options: dict[str, object], **more: object) -> Case:
    """A cluster with protocol options."""
    config = {"@type": TYPE + HTTP_OPTIONS, **options}
    return cluster({"typed_extension_protocol_options": {HTTP_OPTIONS: config}, **more})


def extended(message_type: str, lb_policy: str, **fields: object) -> Case:
    """A cluster of a type that is an extension."""
    config = {"@type": TYPE + message_type, **fields}
    return cluster({"lb_policy": lb_policy, "cluster_type": {"name": "x", "typed_config": config}})


def test_clusters_that_envoy_takes(catalogue: Catalogue) -> None:
    """Negotiation with TLS, and load balancers where the type says."""
    assert_accepted(
        catalogue,
        speaking({"auto_config": {}}, **SOCKET),
        speaking({"use_downstream_protocol_config": {}}),
        extended(CLUSTERS + "aggregate.v3.ClusterConfig", "CLUSTER_PROVIDED", clusters=["xds"]),
        extended(CLUSTERS + "dns.v3.DnsCluster", "ROUND_ROBIN"),
    )


@pytest.mark.parametrize(
    ("rule", "case"),
    [
        ("wrong-cluster", speaking({"auto_config": {}})),
        ("wrong-cluster", speaking({"auto_config": {"http3_protocol_options": {}}}, **SOCKET)),
        ("wrong-cluster", speaking({"explicit_http_config": {"http3_protocol_options": {}}}, **SOCKET)),
        (
            "wrong-extension",
            cluster(
                {"typed_extension_protocol_options": {HTTP_OPTIONS: {"@type": TYPE + "envoy.config.core.v3.Node"}}}
            ),
        ),
        ("wrong-extension", extended("envoy.config.core.v3.Node", "ROUND_ROBIN")),
        ("cluster-type", extended(CLUSTERS + "aggregate.v3.ClusterConfig", "ROUND_ROBIN", clusters=["xds"])),
        ("cluster-type", extended(CLUSTERS + "dns.v3.DnsCluster", "CLUSTER_PROVIDED")),
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
def test_clusters_that_envoy_rejects(catalogue: Catalogue, rule: str, case: Case) -> None:
    """Without TLS nothing is negotiated, and HTTP/3 needs QUIC."""
    assert_rejected(catalogue, rule, case)
