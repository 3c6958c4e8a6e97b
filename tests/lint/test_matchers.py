import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_answers import (
    TCP_CHAIN,
    TYPE,
    Case,
    assert_accepted,
    assert_rejected,
    cluster,
    http_filter,
    listener,
    virtual_host,
)

HEADER = "envoy.type.matcher.v3.HttpRequestHeaderMatchInput"
PORT = "envoy.extensions.matching.common_inputs.network.v3.DestinationPortInput"


def extension(message_type: str, **fields: object) -> dict[str, object]:
    """An extension of a type."""
    return {"name": "x", "typed_config": {"@type": TYPE + message_type, **fields}}


CHAIN = {"action": extension("google.protobuf.StringValue", value="a")}
ROUTE = {"action": extension("envoy.config.route.v3.Route", match={"prefix": "/"}, direct_response={"status": 200})}
EXACT = {"value_match": {"exact": "a"}}


def tree(source: dict[str, object], outcome: object) -> dict[str, object]:
    """A matcher that looks something up."""
    return {"matcher_tree": {"input": source, "exact_match_map": {"map": {"80": outcome}}}}


def listed(source: dict[str, object], outcome: object) -> dict[str, object]:
    """A matcher that asks one thing after another."""
    single = {"single_predicate": {"input": source, **EXACT}}
    predicate = {"or_matcher": {"predicate": [single, {"not_matcher": single}]}}
    return {"matcher_list": {"matchers": [{"predicate": predicate, "on_match": outcome}]}}


def chains(matcher: object) -> Case:
    """A listener whose filter chains are chosen by a matcher."""
    return listener({"filter_chains": [{**TCP_CHAIN, "name": "a"}], "filter_chain_matcher": matcher})


def routes(matcher: object) -> Case:
    """A virtual host whose routes are chosen by a matcher."""
    return virtual_host({"matcher": matcher})


def test_matchers_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Ports choose chains, headers choose routes, also within other matchers."""
    header = extension(HEADER, header_name="a")
    assert_accepted(
        catalogue,
        chains(tree(extension(PORT), {"matcher": tree(extension(PORT), CHAIN)})),
        chains({"on_no_match": CHAIN}),
        chains({"on_no_match": {"action": extension("envoy.config.core.v3.Node"), "keep_matching": True}}),
        routes(listed(header, ROUTE)),
    )


CEL = "xds.type.matcher.v3.HttpAttributesCelMatchInput"
LOCAL_RESPONSE = "envoy.extensions.http.custom_response.local_response_policy.v3.LocalResponsePolicy"
QUERY = "envoy.type.matcher.v3.HttpRequestQueryParamMatchInput"
SERVER_NAME = "envoy.extensions.matching.common_inputs.network.v3.ServerNameInput"
SOCKET_NAME = "envoy.extensions.matching.common_inputs.transport_socket.v3.TransportSocketNameAction"
STATUS = "envoy.type.matcher.v3.HttpResponseStatusCodeMatchInput"
EXPRESSION = {"cel_expr_parsed": {"expr": {"id": 1, "const_expr": {"bool_value": True}}}}
ALLOW = {"action": extension("envoy.config.rbac.v3.Action", name="a")}


def permissions(matcher: object) -> Case:
    """An RBAC filter that decides by a matcher."""
    return http_filter("rbac.v3.RBAC", {"matcher": matcher})


def responses(matcher: object) -> Case:
    """A filter that answers by a matcher."""
    return http_filter("custom_response.v3.CustomResponse", {"custom_response_matcher": matcher})


def sockets(matcher: object) -> Case:
    """A cluster whose transport sockets are chosen by a matcher."""
    raw = extension("envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer")
    matches = [{"name": "a", "match": {}, "transport_socket": raw}]
    return cluster({"transport_socket_matcher": matcher, "transport_socket_matches": matches})


def datagrams(matcher: object) -> Case:
    """A UDP proxy that chooses clusters by a matcher."""
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 1, "protocol": "UDP"}}
    proxy = extension("envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig", stat_prefix="x", matcher=matcher)
    return listener({"address": address, "filter_chains": [], "listener_filters": [proxy]})


def single(source: str, outcome: object, **test: object) -> dict[str, object]:
    """A matcher with one test of an input without settings."""
    predicate = {"single_predicate": {"input": extension(source), **(test or EXACT)}}
    return {"matcher_list": {"matchers": [{"predicate": predicate, "on_match": outcome}]}}


TO_CLUSTER = {"action": extension("envoy.extensions.filters.udp.udp_proxy.v3.Route", cluster="xds")}
SOURCE_IP = "envoy.extensions.matching.common_inputs.network.v3.SourceIPInput"
RANGES = extension(
    "xds.type.matcher.v3.IPMatcher",
    range_matchers=[{"ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}], "on_match": ALLOW}],
)
OF_CEL = extension("xds.type.matcher.v3.CelMatcher", expr_match=EXPRESSION)


def test_other_matchers_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Expressions have a matcher of their own; responses, sockets and datagrams have actions of their own."""
    assert_accepted(
        catalogue,
        permissions(single(CEL, ALLOW, custom_match=OF_CEL)),
        permissions(single(SERVER_NAME, ALLOW)),
        permissions({"matcher_tree": {"input": extension(SOURCE_IP), "custom_match": RANGES}}),
        responses(single(STATUS, {"action": extension(LOCAL_RESPONSE)})),
        sockets({"on_no_match": {"action": extension(SOCKET_NAME, name="a")}}),
        datagrams(single(PORT, TO_CLUSTER)),
    )


@pytest.mark.parametrize(
    "case",
    [
        permissions(single(CEL, ALLOW)),
        permissions({"matcher_tree": {"input": extension(SERVER_NAME), "custom_match": OF_CEL}}),
        permissions(tree(extension(CEL), ALLOW)),
        permissions(single(SERVER_NAME, ALLOW, custom_match=OF_CEL)),
        permissions(single(SERVER_NAME, ALLOW, custom_match=extension(LOCAL_RESPONSE))),
        permissions(listed(extension(QUERY, query_param="a"), ALLOW)),
        permissions(single(STATUS, ALLOW)),
        routes(single(SERVER_NAME, ROUTE)),
        routes(listed(extension(QUERY, query_param="a"), ROUTE)),
        responses(single(STATUS, ROUTE)),
        responses(single(LOCAL_RESPONSE, {"action": extension(LOCAL_RESPONSE)})),
        sockets(single(STATUS, {"action": extension(SOCKET_NAME, name="a")})),
        datagrams(single(SERVER_NAME, TO_CLUSTER)),
        http_filter(
            "rate_limit_quota.v3.RateLimitQuotaFilterConfig",
            {
                "rlqs_server": {"envoy_grpc": {"cluster_name": "xds"}},
                "domain": "x",
                "bucket_matchers": {"on_no_match": ALLOW},
            },
        ),
        chains(tree(extension(HEADER, header_name="a"), CHAIN)),
        chains(tree(extension(PORT), {"matcher": {"on_no_match": ROUTE}})),
        routes(tree(extension(HEADER, header_name="a"), CHAIN)),
        routes({"on_no_match": {"action": extension("envoy.config.core.v3.Node")}}),
        routes({"on_no_match": {**ROUTE, "keep_matching": True}}),
    ],
)
def test_matchers_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """Connections have no headers, and a route is not a filter chain."""
    assert_rejected(catalogue, "wrong-extension", case)
