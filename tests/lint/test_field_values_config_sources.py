import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_answers import Case, assert_accepted, assert_rejected, cluster, http_filter, manager, rules_found

LEDS = (
    "{load_assignment: {cluster_name: c, endpoints: [{leds_cluster_locality_config: {leds_collection_name: 'NAME'}}]}}"
)

SERVICE = "{envoy_grpc: {cluster_name: xds}}"


def eds(source: str) -> Case:
    """A cluster whose endpoints come from an API."""
    return cluster(f"{{type: EDS, eds_cluster_config: {{eds_config: {{api_config_source: {source}}}}}}}")


def test_sources_that_envoy_accepts(catalogue: Catalogue) -> None:
    """REST with one cluster and a delay, gRPC with one service."""
    assert_accepted(
        catalogue,
        eds("{api_type: REST, transport_api_version: V3, cluster_names: [xds], refresh_delay: 0.001s}"),
        eds(f"{{api_type: GRPC, grpc_services: [{SERVICE}]}}"),
        cluster("{type: EDS, eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V2}}}"),
    )


@pytest.mark.parametrize(
    "case",
    [
        cluster("{type: EDS, eds_cluster_config: {}}"),
        manager("{rds: {route_config_name: r}}"),
        cluster("{type: EDS, eds_cluster_config: {eds_config: {self: {}}}}"),
        eds("{api_type: REST, cluster_names: [xds]}"),
        eds("{api_type: REST, refresh_delay: 1s}"),
        eds("{api_type: REST, refresh_delay: 1s, cluster_names: [xds, xds]}"),
        eds(f"{{api_type: REST, refresh_delay: 1s, grpc_services: [{SERVICE}]}}"),
        eds("{api_type: GRPC}"),
        eds("{api_type: GRPC, cluster_names: [xds]}"),
        eds(f"{{api_type: GRPC, grpc_services: [{SERVICE}, {SERVICE}]}}"),
        eds("{api_type: AGGREGATED_GRPC}"),
        eds(f"{{api_type: GRPC, transport_api_version: V2, grpc_services: [{SERVICE}]}}"),
        http_filter("ext_authz.v3.ExtAuthz", f"{{transport_api_version: V2, grpc_service: {SERVICE}}}"),
        http_filter(
            "ratelimit.v3.RateLimit",
            f"{{domain: d, rate_limit_service: {{transport_api_version: V2, grpc_service: {SERVICE}}}}}",
        ),
    ],
)
def test_sources_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """A source says in one way where resources come from."""
    assert_rejected(catalogue, "wrong-config-source", case)


def test_a_short_delay_is_told(catalogue: Catalogue) -> None:
    """Below 1 ms Envoy divides by zero, which its validation does not see."""
    case = eds("{api_type: REST, cluster_names: [xds], refresh_delay: 0.0005s}")

    assert {"short-refresh-delay"} == rules_found(catalogue, case)


def test_sources_that_are_not_read_are_not_judged(catalogue: Catalogue) -> None:
    """The source of the routes of scopes is read only when a scope names its routes."""
    key = "scope_key_builder: {fragments: [{header_value_extractor: {name: a, index: 0}}]}"
    source = "rds_config_source: {api_config_source: {api_type: REST, cluster_names: []}}"
    case = manager(
        f"{{scoped_routes: {{name: x, {key}, {source}, scoped_rds: {{scoped_rds_config_source: {{ads: {{}}}}}}}}}}"
    )

    assert set() == rules_found(catalogue, case)


@pytest.mark.parametrize(
    ("name", "is_right"),
    [
        ("xdstp://a/envoy.config.endpoint.v3.LbEndpoint/web/*", True),
        ("xdstp:///envoy.config.endpoint.v3.LbEndpoint/web?region=a", True),
        ("web/*", False),
        ("http://a/envoy.config.endpoint.v3.LbEndpoint/web/*", False),
        ("xdstp://a/envoy.config.endpoint.v3.Endpoint/web/*", False),
        ("xdstp://a/envoy.config.endpoint.v3.LbEndpoint/web/*#part", False),
        ("", False),
    ],
)
def test_names_of_collections(catalogue: Catalogue, name: str, *, is_right: bool) -> None:
    """Of endpoints by collection, Envoy takes xdstp names of their type; it looks at them when they come by EDS."""
    in_cluster = cluster(LEDS.replace("NAME", name))
    by_eds = Case("endpoints", in_cluster.resource["load_assignment"])

    assert ("wrong-config-source" not in rules_found(catalogue, by_eds)) is is_right
    assert "wrong-config-source" not in rules_found(catalogue, in_cluster)
