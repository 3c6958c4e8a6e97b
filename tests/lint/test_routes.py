from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.lint.linter import make_field_rules
from fsxds.model.values import PlainValue
from tests.lint.envoy_answers import (
    TYPE,
    Case,
    action,
    assert_accepted,
    assert_rejected,
    http_filter,
    route,
    route_config,
    virtual_host,
)


def weighted(*clusters: str) -> Case:
    """A route to weighted clusters."""
    return action(f"{{weighted_clusters: {{clusters: [{', '.join(clusters)}]}}}}")


def body(size: int, limit: str = "") -> Case:
    """A direct response of a size."""
    routes = [{"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": "x" * size}}}]
    fields = {"virtual_hosts": [{"name": "v", "domains": ["*"], "routes": routes}]}
    return route_config({**fields, **({"max_direct_response_body_size_bytes": int(limit)} if limit else {})})


def test_routes_that_envoy_accepts(catalogue: Catalogue) -> None:
    """One way to rewrite, weights with a sum, upgrades once."""
    assert_accepted(
        catalogue,
        action("{regex_rewrite: {pattern: {regex: a}, substitution: b}}"),
        weighted("{name: a, weight: 0}", "{name: a, weight: 1}", "{cluster_header: x, weight: 4294967294}"),
        body(4096),
        body(4097, "5000"),
        action("{upgrade_configs: [{upgrade_type: CONNECT, connect_config: {}}, {upgrade_type: websocket}]}"),
        action("{request_mirror_policies: [{cluster: a}, {cluster_header: b}]}"),
        route("{direct_response: {status: 200, body: {inline_bytes: AAAA}}}"),
    )


@pytest.mark.parametrize(
    "case",
    [
        action("{prefix_rewrite: /x, regex_rewrite: {pattern: {regex: a}, substitution: b}}"),
        weighted("{name: a}"),
        weighted("{name: a, weight: 0}"),
        weighted("{weight: 1}"),
        weighted("{name: a, cluster_header: x, weight: 1}"),
        weighted("{name: a, weight: 4294967295}", "{name: b, weight: 1}"),
        body(4097),
        action("{cluster_specifier_plugin: x}"),
        action("{upgrade_configs: [{upgrade_type: websocket}, {upgrade_type: WebSocket}]}"),
        action("{upgrade_configs: [{upgrade_type: websocket, connect_config: {}}]}"),
        action("{request_mirror_policies: [{}]}"),
        action("{request_mirror_policies: [{cluster: a, cluster_header: b}]}"),
    ],
)
def test_routes_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """The parts of a route must fit one another."""
    assert_rejected(catalogue, "wrong-route", case)


def test_a_scope_has_routes(catalogue: Catalogue) -> None:
    """A scope that is served names its routes, or holds them."""
    rules = make_field_rules(catalogue)
    key: PlainValue = {"fragments": [{"string_key": "a"}]}
    found = []
    others: list[dict[str, PlainValue]] = [
        {},
        {"route_configuration_name": "r"},
        {"route_configuration": {"name": "r"}},
    ]
    for other in others:
        plain: PlainValue = {"name": "s", "key": key, **other}
        message = Converter(catalogue).convert(plain, "envoy.config.route.v3.ScopedRouteConfiguration").message
        assert message is not None
        found.append([fault.rule for fault in rules.check(message).faults])

    assert [["wrong-route"], [], []] == found


def hosts(*domains: str) -> Case:
    """Virtual hosts with these lists of domains."""
    listed = ", ".join(f"{{name: v{number}, domains: {one}}}" for number, one in enumerate(domains))
    return route_config(f"{{virtual_hosts: [{listed}]}}")


def test_domains_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Domains that differ in a port or a dot at the end, and wildcards in odd places, do not collide."""
    assert_accepted(
        catalogue,
        hosts("[a]", '["a:80"]', '["a."]', '["*.a"]', '["a.*"]', '["*"]'),
        hosts('["a.*.b"]', '["**"]', '[""]'),
        hosts("[ä]", "[Ä]"),
        virtual_host("{virtual_clusters: [{name: x, headers: [{name: ':path', present_match: true}]}]}"),
    )


@pytest.mark.parametrize(
    "case",
    [
        hosts("[a]", "[a]"),
        hosts("[a, A]"),
        hosts('["*"]', '["*"]'),
        hosts('["*.a"]', '["*.A"]'),
        hosts("[ä.A]", "[ä.a]"),
    ],
)
def test_domains_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """A domain has one owner, whatever the case of its letters."""
    assert_rejected(catalogue, "duplicate-domain", case)


@pytest.mark.parametrize(
    "case",
    [
        virtual_host("{virtual_clusters: [{name: x}]}"),
        virtual_host(
            "{routes: [{match: {prefix: /}, direct_response: {status: 200}}], matcher: {on_no_match: {action: {name: x, "
            'typed_config: {"@type": type.googleapis.com/envoy.config.route.v3.Route, match: {prefix: /}, '
            "direct_response: {status: 200}}}}}}"
        ),
    ],
)
def test_virtual_hosts_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """Virtual clusters match something, and a virtual host has routes or a matcher."""
    assert_rejected(catalogue, "wrong-route", case)


def test_virtual_hosts_are_discovered_by_delta_only(catalogue: Catalogue) -> None:
    """Envoy rejects to discover virtual hosts by other means than delta gRPC."""
    source = "{api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: xds}}]}"
    case = route_config(f"{{vhds: {{config_source: {{api_config_source: {source}}}}}}}")

    assert_rejected(catalogue, "wrong-config-source", case)


def test_a_virtual_host_alone_is_checked_too(catalogue: Catalogue) -> None:
    """A virtual host that is served on its own does not repeat a domain either."""
    plain: PlainValue = {"name": "v", "domains": ["a", "b", "A"]}
    message = Converter(catalogue).convert(plain, "envoy.config.route.v3.VirtualHost").message
    assert message is not None

    faults = make_field_rules(catalogue).check(message).faults

    assert [("duplicate-domain", ("domains", 2))] == [(fault.rule, fault.field_path) for fault in faults]


MATCH = TYPE + "envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig"
REWRITE = TYPE + "envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig"


def by_template(pattern: str, *, is_struct: bool = False) -> dict[str, object]:
    """A match by a template."""
    value = {"path_template": pattern}
    struct = {"@type": TYPE + "xds.type.v3.TypedStruct", "type_url": MATCH, "value": value}
    return {"path_match_policy": {"name": "m", "typed_config": struct if is_struct else {"@type": MATCH, **value}}}


def templated(pattern: str, rewrite: str = "") -> Case:
    """A route that matches, and perhaps rewrites, by a template."""
    return route({"match": by_template(pattern), "route": {"cluster": "c", **rewriting(rewrite)}})


def rewriting(rewrite: str) -> dict[str, object]:
    """A rewrite by a template."""
    config = {"@type": REWRITE, "path_template_rewrite": rewrite}
    return {"path_rewrite_policy": {"name": "r", "typed_config": config}} if rewrite else {}


def test_templates_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Variables, globs and literals in any order that makes sense."""
    patterns = [
        "/a",
        "/{a}",
        "/{a=**}",
        "/{a=*}/b",
        "/a*",
        "/**",
        "/**/a",
        "/{a}x",
        "/{a=**}.m3u8",
        "/%41",
        "/a/*/",
        "/a/{b=x/*}",
        "/",
    ]
    assert_accepted(catalogue, *map(templated, patterns), templated("/{a}", "/{a}"), templated("/{a}", "/x/*"))


@pytest.mark.parametrize(
    "pattern",
    ["/{a}/{a}", "a", "/{a", "/a}", "/{}", "/{1a}", "/{c-d}", "/{abcdefghijklmnopq}", "/{a}/{b}/{c}/{d}/{e}/{f}"],
)
def test_patterns_that_envoy_rejects(catalogue: Catalogue, pattern: str) -> None:
    """Braces have partners and names in them, few and each once."""
    assert_rejected(catalogue, "wrong-path-template", templated(pattern))


@pytest.mark.parametrize(
    "case",
    [
        templated("/{a}", "/{b}"),
        templated("/{a}", "{a}"),
        route({"route": {"cluster": "c", **rewriting("/x")}}),
        route({"match": by_template("/{a}"), "route": {"cluster": "c", "prefix_rewrite": "/x"}}),
        route({"match": by_template("/{a}"), "redirect": {"prefix_rewrite": "/x"}}),
        route({"match": by_template("/{a}", is_struct=True), "redirect": {"prefix_rewrite": "/x"}}),
        route({"match": by_template("a", is_struct=True)}),
    ],
)
def test_rewrites_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """A rewrite uses the variables of the pattern, which there must be."""
    assert_rejected(catalogue, "wrong-path-template", case)


def adding(header: str, more: str = "") -> Case:
    """A virtual host that adds a header."""
    return virtual_host(f"{{request_headers_to_add: [{{header: {header}{more}}}]}}")


def test_headers_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Other headers are added and removed as one likes."""
    assert_accepted(
        catalogue,
        adding("{key: a b, value: x}"),
        adding("{key: hosts, value: x}", ", append: false"),
        adding("{key: a, value: x}", ", append: false, append_action: APPEND_IF_EXISTS_OR_ADD"),
        virtual_host("{response_headers_to_remove: [a b, hosting]}"),
        http_filter("header_mutation.v3.HeaderMutation", "{mutations: {request_mutations: [{remove: host}]}}"),
        action("{internal_redirect_policy: {response_headers_to_copy: [a]}}"),
    )


@pytest.mark.parametrize(
    "case",
    [
        adding("{key: ':path', value: x}"),
        adding("{key: Host, value: x}"),
        adding("{key: a, value: x}", ", append: true, append_action: ADD_IF_ABSENT"),
        virtual_host("{request_headers_to_remove: [HOST]}"),
        virtual_host("{response_headers_to_remove: [':status']}"),
        action("{weighted_clusters: {clusters: [{name: a, weight: 1, request_headers_to_remove: [host]}]}}"),
        action("{internal_redirect_policy: {response_headers_to_copy: [host]}}"),
        http_filter(
            "header_mutation.v3.HeaderMutation",
            "{mutations: {request_mutations: [{append: {header: {key: ':path', value: x}}}]}}",
        ),
    ],
)
def test_headers_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """The host and the headers that begin with a colon are not to be touched."""
    assert_rejected(catalogue, "wrong-header", case)
