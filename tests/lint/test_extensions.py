from __future__ import annotations

from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.lint.linter import make_field_rules
from tests.lint.envoy_answers import (
    HTTP_OPTIONS,
    NETWORK,
    ROUTER,
    TLS,
    TYPE,
    Case,
    action,
    assert_accepted,
    assert_rejected,
    cluster,
    http_filter,
    listener,
    manager,
    route,
    route_config,
    rules_found,
    virtual_host,
)

NODE = "envoy.config.core.v3.Node"
CORS = "envoy.extensions.filters.http.cors.v3.Cors"
GZIP = "envoy.extensions.compression.gzip"


def named(message_type: str | None) -> dict[str, Any]:
    """An extension of this type, or with a name alone."""
    return {"name": "x", **({"typed_config": {"@type": TYPE + message_type}} if message_type else {})}


def named_struct(message_type: str) -> dict[str, Any]:
    """An extension that is written as a TypedStruct of this type."""
    return {
        "name": "x",
        "typed_config": {"@type": TYPE + "xds.type.v3.TypedStruct", "type_url": message_type, "value": {}},
    }


def struct(message_type: str, **value: object) -> dict[str, Any]:
    """A TypedStruct of this type."""
    return {"@type": TYPE + "xds.type.v3.TypedStruct", "type_url": TYPE + message_type, "value": value}


ROUTE = {
    "@type": TYPE + "envoy.config.route.v3.Route",
    "match": {"prefix": "/"},
    "direct_response": {"status": 200},
}


def session(name: str, message_type: str = "cookie.v3.CookieBasedSessionState") -> Case:
    """A filter that keeps sessions by an extension of this name and type."""
    fields = {"cookie": {"name": "a"}} if message_type.startswith("cookie") else {"name": "a"}
    config = {"@type": f"{TYPE}envoy.extensions.http.stateful_session.{message_type}", **fields}
    return http_filter("stateful_session.v3.StatefulSession", {"session_state": {"name": name, "typed_config": config}})


def policies(*types: str) -> Case:
    """A cluster with load balancing policies of these types."""
    listed = [{"typed_extension_config": named(one)} for one in types]
    return cluster({"load_balancing_policy": {"policies": listed}})


HTTP = "envoy.extensions.filters.http."
CODEC = named(f"{HTTP}upstream_codec.v3.UpstreamCodec")


def upstream(*filters: object) -> Case:
    """A cluster with these filters."""
    protocol: dict[str, Any] = {"explicit_http_config": {"http_protocol_options": {}}}
    config = {"@type": TYPE + HTTP_OPTIONS, **protocol, "http_filters": list(filters)}
    return cluster({"typed_extension_protocol_options": {HTTP_OPTIONS: config}})


def discovered(message_type: str) -> dict[str, Any]:
    """A filter of this type that is discovered."""
    source = {"path_config_source": {"path": "/dev/null"}}
    return {"name": "d", "config_discovery": {"config_source": source, "type_urls": [f"{TYPE}{HTTP}{message_type}"]}}


def composed(message_type: str) -> dict[str, Any]:
    """A composite filter that may choose one of this type."""
    settings = {"max_request_bytes": 5} if "Buffer" in message_type else {}
    chosen = {"name": "f", "typed_config": {"@type": f"{TYPE}{HTTP}{message_type}", **settings}}
    action = {"@type": f"{TYPE}{HTTP}composite.v3.ExecuteFilterAction", "typed_config": chosen}
    config = {
        "@type": TYPE + "envoy.extensions.common.matching.v3.ExtensionWithMatcher",
        "extension_config": named(f"{HTTP}composite.v3.Composite"),
        "xds_matcher": {"on_no_match": {"action": {"name": "a", "typed_config": action}}},
    }
    return {"name": "composite", "typed_config": config}


def authorized(retries: dict[str, object]) -> Case:
    """A filter that asks a service by gRPC, and retries so."""
    service = {"envoy_grpc": {"cluster_name": "xds"}, "retry_policy": retries}
    return http_filter("ext_authz.v3.ExtAuthz", {"transport_api_version": "V3", "grpc_service": service})


def with_keys(retries: dict[str, object]) -> Case:
    """A filter that fetches the keys of tokens, and retries so."""
    keys = {"http_uri": {"uri": "http://x", "cluster": "xds", "timeout": "1s"}, "retry_policy": retries}
    return http_filter("jwt_authn.v3.JwtAuthentication", {"providers": {"p": {"remote_jwks": keys}}})


POLICIES = "envoy.extensions.load_balancing_policies."


def test_later_policies_are_not_read(catalogue: Catalogue) -> None:
    """Envoy takes the first that it knows; what is wrong with that, or before it, is found."""
    good = {"name": "a", "typed_config": {"@type": f"{TYPE}{POLICIES}round_robin.v3.RoundRobin"}}
    ring = {"@type": f"{TYPE}{POLICIES}ring_hash.v3.RingHash", "minimum_ring_size": 99999999}
    bad = {"name": "b", "typed_config": ring}

    def found(*listed: object) -> set[str]:
        policy = {"policies": [{"typed_extension_config": one} for one in listed]}
        return rules_found(catalogue, cluster({"load_balancing_policy": policy}))

    assert [found(good, bad), found(bad, good), found(named(NODE), good, bad)] == [set(), {"wrong-cluster"}, set()]


def test_extensions_that_envoy_accepts(catalogue: Catalogue) -> None:
    """The type decides, not the name; what is optional may be unknown; of policies the first that is known is taken."""
    assert_accepted(
        catalogue,
        cluster({"transport_socket": named(TLS + "UpstreamTlsContext")}),
        manager({"http_filters": [{**named(NODE), "is_optional": True}, ROUTER]}),
        route_config({"cluster_specifier_plugins": [{"is_optional": True, "extension": named(CORS)}]}),
        policies(NODE, "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"),
        http_filter("compressor.v3.Compressor", {"compressor_library": named(GZIP + ".compressor.v3.Gzip")}),
        session("envoy.http.stateful_session.cookie"),
        upstream(discovered("buffer.v3.Buffer"), CODEC),
        upstream(composed("buffer.v3.Buffer"), CODEC),
        manager({"http_filters": [composed("cors.v3.Cors"), ROUTER]}),
        authorized({"retry_priority": named(CORS)}),
        # What is not looked up when it is made.
        cluster({"typed_dns_resolver_config": named(CORS), "upstream_config": named(CORS)}),
        manager({"request_id_extension": {}}),
        listener({"listener_filters": [named("envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector")]}),
    )


REDIS_CLUSTER = "envoy.extensions.clusters.redis.v3.RedisClusterConfig"


@pytest.mark.parametrize(
    "case",
    [
        cluster({"transport_socket": named(None)}),
        cluster({"transport_socket": named(TLS + "DownstreamTlsContext")}),
        cluster({"transport_socket_matches": [{"name": "a", "match": {}}]}),
        policies(NODE),
        upstream(discovered("cors.v3.Cors"), CODEC),
        upstream(composed("cors.v3.Cors"), CODEC),
        manager({"http_filters": [composed("upstream_codec.v3.UpstreamCodec"), ROUTER]}),
        manager({"http_filters": [discovered("upstream_codec.v3.UpstreamCodec"), ROUTER]}),
        with_keys({"retry_priority": named(CORS)}),
        with_keys({"retry_host_predicate": [named(CORS)]}),
        listener({"filter_chains": [{"filters": [named(CORS)]}]}),
        listener({"filter_chains": [{"filters": [named(None)]}]}),
        listener({"listener_filters": [named(NETWORK + "echo.v3.Echo")]}),
        listener({"listener_filters": [named("envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig")]}),
        listener({"access_log": [named(None)]}),
        manager({"http_filters": [named(NODE), ROUTER]}),
        manager({"http_filters": [named(None), ROUTER]}),
        http_filter("compressor.v3.Compressor", {"compressor_library": named(GZIP + ".decompressor.v3.Gzip")}),
        action(
            {
                "hash_policy": [],
                "cors": {"allow_origin_string_match": [{"custom": named(CORS)}]},
            }
        ),
        route_config({"cluster_specifier_plugins": [{"extension": named(CORS)}]}),
        manager({"http_filters": [named_struct(""), ROUTER]}),
        # Types that are no extension of any category.
        manager({"http_filters": [named("envoy.config.trace.v3.TraceServiceConfig"), ROUTER]}),
        cluster({"transport_socket": named("envoy.admin.v3.Clusters")}),
        cluster({"type": "STRICT_DNS", "typed_dns_resolver_config": named(CORS)}),
        cluster(
            {
                "cluster_type": {"name": "x", "typed_config": {"@type": TYPE + REDIS_CLUSTER}},
                "lb_policy": "CLUSTER_PROVIDED",
                "typed_dns_resolver_config": named(CORS),
            }
        ),
        manager({"request_id_extension": {"typed_config": {"@type": TYPE + CORS}}}),
        session("x"),
        session("envoy.http.stateful_session.cookie", "header.v3.HeaderBasedSessionState"),
        action("{retry_policy: {retry_host_predicate: [{name: envoy.retry_host_predicates.previous_hosts}]}}"),
    ],
)
def test_extensions_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """A type that is made for another place, and none at all, are rejected."""
    assert_rejected(catalogue, "wrong-extension", case)


@pytest.mark.parametrize(
    "case",
    [
        manager(
            {
                "request_id_extension": {
                    "typed_config": struct("envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig")
                }
            }
        ),
        http_filter(
            "compressor.v3.Compressor",
            {"compressor_library": {"name": "x", "typed_config": struct(GZIP + ".compressor.v3.Gzip")}},
        ),
        cluster(
            {
                "cluster_type": {"name": "x", "typed_config": struct(REDIS_CLUSTER)},
                "lb_policy": "CLUSTER_PROVIDED",
            }
        ),
        virtual_host(
            {
                "matcher": {
                    "matcher_tree": {
                        "input": {
                            "name": "x",
                            "typed_config": struct(
                                "envoy.type.matcher.v3.HttpRequestHeaderMatchInput", header_name="x"
                            ),
                        },
                        "exact_match_map": {"map": {"a": {"action": {"name": "x", "typed_config": ROUTE}}}},
                    }
                }
            }
        ),
    ],
)
def test_where_envoy_looks_into_no_struct(catalogue: Catalogue, case: Case) -> None:
    """In some places Envoy goes by the type of the message itself, which is that of the TypedStruct."""
    assert_rejected(catalogue, "wrong-extension", case)


def test_policies_are_held_to_no_constraints(catalogue: Catalogue) -> None:
    """What a load balancing policy lacks by the API is no matter, in a message as in a TypedStruct."""
    policy = f"{POLICIES}round_robin.v3.RoundRobin"
    fields: dict[str, object] = {"locality_lb_config": {}}
    assert_accepted(
        catalogue,
        *(
            cluster(
                {
                    "load_balancing_policy": {
                        "policies": [{"typed_extension_config": {"name": "x", "typed_config": one}}]
                    }
                }
            )
            for one in (struct(policy, **fields), {"@type": TYPE + policy, **fields})
        ),
    )


def test_the_other_side_is_proposed(catalogue: Catalogue) -> None:
    """For the TLS of a server in a client, the remedy names that of clients."""
    case = cluster({"transport_socket": named(TLS + "DownstreamTlsContext")})
    message = Converter(catalogue).convert(case.resource, "envoy.config.cluster.v3.Cluster").message
    assert message is not None

    remedies = [fault.remedy for fault in make_field_rules(catalogue).check(message).faults]

    assert f"perhaps {TLS}UpstreamTlsContext is meant" in remedies


def test_what_is_served_on_its_own_is_a_filter(catalogue: Catalogue) -> None:
    """A TypedExtensionConfig at the top is checked for being some filter; Envoy's own validation has no such place."""
    rules = make_field_rules(catalogue)
    message_type = "envoy.config.core.v3.TypedExtensionConfig"
    found = []
    for one in (CORS, GZIP + ".compressor.v3.Gzip"):
        message = Converter(catalogue).convert(named(one), message_type).message
        assert message is not None
        found.append([fault.rule for fault in rules.check(message).faults])

    assert [[], ["wrong-extension"]] == found


HTTP = "envoy.extensions.filters.http."
WRAPPER = "envoy.config.route.v3.FilterConfig"


GRADIENT = {
    "concurrency_limit_params": {"concurrency_update_interval": "1s"},
    "min_rtt_calc_params": {"interval": "60s"},
}


def saying(message_type: str, **fields: object) -> Case:
    """A route that says something to a filter."""
    config = {"f": {"@type": TYPE + message_type, **fields}}
    return route({"direct_response": {"status": 200}, "typed_per_filter_config": config})


def test_what_routes_may_say(catalogue: Catalogue) -> None:
    """Settings for routes, none at all, and what is said in case that the filter is known."""
    node = {"@type": TYPE + "envoy.config.core.v3.Node"}
    assert_accepted(
        catalogue,
        saying(HTTP + "cors.v3.CorsPolicy"),
        saying(HTTP + "lua.v3.Lua"),
        saying(HTTP + "buffer.v3.BufferPerRoute", disabled=True),
        saying(WRAPPER, disabled=True),
        saying(WRAPPER, is_optional=True, config=node),
        # It lacks a field that it must have; nobody reads it.
        saying(WRAPPER, is_optional=True, config={"@type": TYPE + "envoy.config.core.v3.HttpUri"}),
        # A route cannot configure it, which matters to nobody here.
        saying(WRAPPER, is_optional=True, config={"@type": TYPE + HTTP + "ip_tagging.v3.IPTagging"}),
        # It is read as the settings that its filter has for routes, which need nothing.
        saying(HTTP + "grpc_http1_reverse_bridge.v3.FilterConfig"),
    )


@pytest.mark.parametrize(
    "case",
    [
        saying("envoy.config.core.v3.Node"),
        saying(HTTP + "router.v3.Router"),
        saying(HTTP + "buffer.v3.Buffer", max_request_bytes=5),
        saying(WRAPPER, config={"@type": TYPE + "envoy.config.core.v3.Node"}),
        saying(WRAPPER),
        saying(HTTP + "adaptive_concurrency.v3.AdaptiveConcurrency", gradient_controller_config=GRADIENT),
        route({"direct_response": {"status": 200}, "typed_per_filter_config": {"f": struct(WRAPPER, disabled=True)}}),
        saying(WRAPPER, is_optional=True),
        saying(WRAPPER, is_optional=True, config={"@type": TYPE + HTTP + "buffer.v3.Buffer", "max_request_bytes": 5}),
        route("{direct_response: {status: 200}, typed_per_filter_config: {f: {}}}"),
        http_filter("buffer.v3.BufferPerRoute", "{disabled: true}"),
    ],
)
def test_what_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """A filter's own settings are not for routes, nor those for routes for the filter."""
    assert_rejected(catalogue, "wrong-extension", case)


def test_empty_settings_of_a_filter_are_read_as_those_for_routes(catalogue: Catalogue) -> None:
    """What the settings for routes need is missing in the empty settings of the filter, too."""
    assert_rejected(catalogue, "required-field", saying(HTTP + "composite.v3.Composite"))
    assert_rejected(
        catalogue, "required-choice", saying(WRAPPER, config={"@type": TYPE + HTTP + "ext_authz.v3.ExtAuthz"})
    )
    assert_rejected(catalogue, "wrong-filter", saying(HTTP + "aws_lambda.v3.PerRouteConfig"))
