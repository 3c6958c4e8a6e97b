from __future__ import annotations

import pytest
import yaml

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.lint.linter import make_field_rules
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Reference
from fsxds.model.values import pointer_of
from tests.lint.envoy_answers import (
    ROUTER,
    TYPE,
    Case,
    assert_accepted,
    assert_rejected,
    http_filter,
    manager,
    rules_found,
)

EXTENSIONS = "type.googleapis.com/envoy.extensions."
HCM = f"{EXTENSIONS}filters.network.http_connection_manager.v3.HttpConnectionManager"
REST = "{api_config_source: {api_type: REST, transport_api_version: V3, refresh_delay: 1s, cluster_names: [xds]}}"
GRPC = (
    "{api_config_source: {api_type: GRPC, transport_api_version: V3, grpc_services: {envoy_grpc: {cluster_name: x}}}}"
)
DEFAULT = "default_config: {'@type': type.googleapis.com/google.protobuf.Duration, value: 1s},"
FILE = "{path_config_source: {path: /etc/x.yaml}}"


@pytest.fixture(scope="module")
def find(catalogue: Catalogue) -> Finder:
    """Find references in YAML."""
    return Finder(catalogue)


class Finder:
    """Collects the references of resources that are written as YAML."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._converter = Converter(catalogue)
        self._rules = make_field_rules(catalogue)

    def walk(self, short_name: str, text: str) -> list[Reference]:
        """Return the references of one resource."""
        converted = self._converter.convert(yaml.safe_load(text), BY_SHORT_NAME[short_name].message_type)
        assert converted.message is not None, converted.faults
        return self._rules.check(converted.message).references

    def __call__(self, short_name: str, text: str) -> list[str]:
        """Return the references of one resource as `CDS name severity`, static ones with `=`."""
        return [brief(reference) for reference in self.walk(short_name, text)]

    def listener(self, *filters: str) -> list[str]:
        """Return the references of a listener with network filters."""
        chains = [{"filters": [yaml.safe_load(one) for one in filters]}]
        return self("lds", yaml.safe_dump({"name": "l", "filter_chains": chains}))

    def hcm(self, fields: str) -> list[str]:
        """Return the references of a listener with an HTTP connection manager."""
        return self.listener(network(HCM, f"stat_prefix: s, {fields}"))

    def http(self, type_url: str, fields: str) -> list[str]:
        """Return the references of a listener with an HTTP filter."""
        return self.hcm(f"http_filters: [{{name: f, typed_config: {{'@type': '{EXTENSIONS}{type_url}', {fields}}}}}]")


def network(type_url: str, fields: str) -> str:
    """Write a network filter."""
    return f"{{name: f, typed_config: {{'@type': '{type_url}', {fields}}}}}"


def brief(reference: Reference) -> str:
    """Write a reference shortly."""
    kinds = {row.type_url: row.short_name.upper() for row in BY_SHORT_NAME.values()}
    head = kinds.get(reference.type_url, reference.type_url.replace("type.googleapis.com/", ""))
    return f"{'=' if reference.is_static else ''}{head} {reference.name!r} {reference.severity.value}"


ROUTES = "virtual_hosts: [{name: v, domains: ['*'], routes: [{match: {prefix: /}, ACTION}]}]"


def routes(action: str, more: str = "") -> str:
    """Write a route configuration in braces."""
    return "{name: r, " + more + ROUTES.replace("ACTION", action) + "}"


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("route: {cluster: c}", ["CDS 'c' {}"]),
        (
            "route: {weighted_clusters: {clusters: [{name: a, weight: 1}, {name: b, weight: 1}]}}",
            ["CDS 'a' {}", "CDS 'b' {}"],
        ),
        ("route: {cluster: c, request_mirror_policies: [{cluster: m}]}", ["CDS 'c' {}", "CDS 'm' {}"]),
        ("route: {cluster_header: x-c}", ["CDS '*' note"]),
        ("route: {weighted_clusters: {clusters: [{cluster_header: x, weight: 1}]}}", ["CDS '*' note"]),
        ("redirect: {host_redirect: x}", []),
    ],
)
def test_routes(find: Finder, action: str, expected: list[str]) -> None:
    """What a route names is an error where Envoy looks for it at once: in a listener, or where validate_clusters says so."""
    errors, warnings = [row.format("error") for row in expected], [row.format("warning") for row in expected]

    assert warnings == find("rds", routes(action))
    assert errors == find("rds", routes(action, "validate_clusters: true, "))
    assert errors == find.hcm(f"route_config: {routes(action)}")
    assert warnings == find.hcm(f"route_config: {routes(action, 'validate_clusters: false, ')}")


def test_inherited_mirrors(find: Finder) -> None:
    """A mirror of a virtual host counts where a route of it has none of its own; one of the whole likewise."""
    own = "{cluster: c, request_mirror_policies: [{cluster: m}]}"
    host = "{name: v, domains: ['*'], MIRRORS routes: [{match: {prefix: /}, route: ROUTE}]}"

    def mirrors(of_all: str, of_host: str, route: str) -> list[str]:
        text = host.replace("MIRRORS", of_host).replace("ROUTE", route)
        return [
            row
            for row in find("rds", f"{{name: r, validate_clusters: true, {of_all} virtual_hosts: [{text}]}}")
            if "'x'" in row
        ]

    policy = "request_mirror_policies: [{cluster: x}],"
    assert ["CDS 'x' error"] == mirrors("", policy, "{cluster: c}")
    assert ["CDS 'x' warning"] == mirrors("", policy, own)
    assert ["CDS 'x' error"] == mirrors(policy, "", "{cluster: c}")
    assert ["CDS 'x' warning"] == mirrors(policy, policy.replace("x", "y"), "{cluster: c}")


def test_routes_of_a_matcher(find: Finder) -> None:
    """Envoy does not look for the clusters of routes in a matcher."""
    action = "{name: r, typed_config: {'@type': type.googleapis.com/envoy.config.route.v3.Route, match: {prefix: /}, route: {cluster: c}}}"
    config = (
        f"{{name: r, virtual_hosts: [{{name: v, domains: ['*'], matcher: {{on_no_match: {{action: {action}}}}}}}]}}"
    )

    assert ["CDS 'c' warning"] == find.hcm(f"route_config: {config}")


GRPC_SERVICE = "grpc_service: {envoy_grpc: {cluster_name: c}}"
URI = "{uri: 'http://x', cluster: c, timeout: 1s}"


@pytest.mark.parametrize(
    ("type_url", "fields"),
    [
        ("filters.http.ext_authz.v3.ExtAuthz", GRPC_SERVICE),
        ("filters.http.ext_authz.v3.ExtAuthz", f"http_service: {{server_uri: {URI}}}"),
        ("filters.http.ext_proc.v3.ExternalProcessor", GRPC_SERVICE),
        ("filters.http.ratelimit.v3.RateLimit", f"domain: d, rate_limit_service: {{{GRPC_SERVICE}}}"),
        ("filters.http.jwt_authn.v3.JwtAuthentication", f"providers: {{p: {{remote_jwks: {{http_uri: {URI}}}}}}}"),
        ("filters.http.oauth2.v3.OAuth2", f"config: {{token_endpoint: {URI}}}"),
    ],
)
def test_http_filters(find: Finder, type_url: str, fields: str) -> None:
    """Services of HTTP filters are looked for when they are called."""
    assert ["CDS 'c' warning"] == find.http(type_url, fields)


@pytest.mark.parametrize(
    ("type_url", "fields", "expected"),
    [
        ("tcp_proxy.v3.TcpProxy", "cluster: c", ["CDS 'c' warning"]),
        ("tcp_proxy.v3.TcpProxy", "weighted_clusters: {clusters: [{name: a, weight: 1}]}", ["CDS 'a' warning"]),
        ("redis_proxy.v3.RedisProxy", "prefix_routes: {catch_all_route: {cluster: c}}", ["CDS 'c' warning"]),
        ("thrift_proxy.v3.ThriftProxy", "route_config: {routes: [{route: {cluster: c}}]}", ["CDS 'c' error"]),
        (
            "thrift_proxy.v3.ThriftProxy",
            "route_config: {validate_clusters: false, routes: [{route: {cluster: c}}]}",
            ["CDS 'c' warning"],
        ),
        ("dubbo_proxy.v3.DubboProxy", "route_config: [{routes: [{route: {cluster: c}}]}]", ["CDS 'c' warning"]),
        ("ext_authz.v3.ExtAuthz", GRPC_SERVICE, ["CDS 'c' warning"]),
    ],
)
def test_network_filters(find: Finder, type_url: str, fields: str, expected: list[str]) -> None:
    """Network filters name clusters, and Envoy looks at once only for those of Thrift."""
    assert expected == find.listener(network(f"{EXTENSIONS}filters.network.{type_url}", f"stat_prefix: s, {fields}"))


@pytest.mark.parametrize(
    ("type_url", "fields", "expected"),
    [
        ("ZipkinConfig", "collector_cluster: c, collector_endpoint: /x", ["CDS 'c' error"]),
        ("ZipkinConfig", f"collector_service: {{http_uri: {URI}}}", ["CDS 'c' error"]),
        ("DatadogConfig", "collector_cluster: c, service_name: s", ["CDS 'c' error"]),
        ("OpenTelemetryConfig", GRPC_SERVICE, ["CDS 'c' warning"]),
        ("SkyWalkingConfig", GRPC_SERVICE, ["CDS 'c' warning"]),
    ],
)
def test_tracers(find: Finder, type_url: str, fields: str, expected: list[str]) -> None:
    """Of tracers, Envoy looks at once for the collectors of Zipkin and Datadog."""
    typed = f"{{'@type': type.googleapis.com/envoy.config.trace.v3.{type_url}, {fields}}}"

    assert expected == find.hcm(f"tracing: {{provider: {{name: t, typed_config: {typed}}}}}")


def test_access_log_that_needs_a_static_cluster(find: Finder) -> None:
    """The Fluentd access log takes no cluster of CDS."""
    typed = f"{{'@type': '{EXTENSIONS}access_loggers.fluentd.v3.FluentdAccessLogConfig', cluster: c}}"

    assert ["=CDS 'c' error"] == find.hcm(f"access_log: [{{name: a, typed_config: {typed}}}]")


def test_scripts_may_use_any_cluster(find: Finder) -> None:
    """Where code may call a cluster, none can be said to be unused."""
    assert ["CDS '*' note"] == find.http("filters.http.lua.v3.Lua", "default_source_code: {inline_string: x}")


def test_names_that_match_are_no_references(find: Finder) -> None:
    """The fault filter compares the name of a cluster with that of the route; it may be anything."""
    assert [] == find.http("filters.http.fault.v3.HTTPFault", "upstream_cluster: c")


@pytest.mark.parametrize("cluster_type", ["aggregate", "composite"])
def test_clusters_of_clusters(find: Finder, cluster_type: str) -> None:
    """A cluster of clusters names them."""
    named = "[a]" if cluster_type == "aggregate" else "[{name: a}]"
    typed = f"{{'@type': '{EXTENSIONS}clusters.{cluster_type}.v3.ClusterConfig', clusters: {named}}}"

    assert ["CDS 'a' warning"] == find("cds", f"{{name: c, cluster_type: {{name: t, typed_config: {typed}}}}}")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{ads: {}}", ["EDS 'c' warning"]),
        ("{self: {}}", ["EDS 'c' warning"]),
        (REST, ["=CDS 'xds' error", "EDS 'c' warning"]),
        (GRPC, ["=CDS 'x' error", "EDS 'c' warning"]),
        (FILE, ["file:envoy.config.endpoint.v3.ClusterLoadAssignment '/etc/x.yaml\\nc' error", "EDS 'c' note"]),
        ("{ads: {}, authorities: [{name: a}]}", []),
        ("{}", []),
    ],
)
def test_endpoints(find: Finder, source: str, expected: list[str]) -> None:
    """A cluster asks for its endpoints by its name, if its source may be this server."""
    assert expected == find("cds", f"{{name: c, type: EDS, eds_cluster_config: {{eds_config: {source}}}}}")


def test_endpoints_by_service_name(find: Finder) -> None:
    """A service name goes before that of the cluster."""
    (reference,) = find.walk(
        "cds", "{name: c, type: EDS, eds_cluster_config: {service_name: s, eds_config: {ads: {}}}}"
    )

    assert "EDS 's' warning" == brief(reference)
    assert "eds_cluster_config.service_name" == pointer_of(reference.field_path)


def test_other_clusters_ask_for_no_endpoints(find: Finder) -> None:
    """Only a cluster of type EDS does."""
    assert [] == find("cds", "{name: c, type: STATIC, eds_cluster_config: {eds_config: {ads: {}}}}")


def test_route_discovery(find: Finder) -> None:
    """A listener asks for its routes; those of elsewhere may lead to any cluster."""
    assert ["RDS 'r' warning"] == find.hcm("rds: {route_config_name: r, config_source: {ads: {}}}")
    assert "CDS '*' note" in find.hcm(f"rds: {{route_config_name: r, config_source: {FILE}}}")


def test_scopes(find: Finder) -> None:
    """A listener asks for scopes or has them, and a scope names its routes."""
    scope = "{name: a, route_configuration_name: r, key: {fragments: [{string_key: k}]}}"
    listed = f"scoped_route_configurations_list: {{scoped_route_configurations: [{scope}]}}"

    assert ["RDS 'r' warning"] == find("srds", scope)
    assert ["RDS 'r' warning"] == find.hcm(f"scoped_routes: {{name: s, rds_config_source: {{ads: {{}}}}, {listed}}}")
    assert ["SRDS '*' warning"] == find.hcm(
        "scoped_routes: {name: s, rds_config_source: {ads: {}}, scoped_rds: {scoped_rds_config_source: {ads: {}}}}"
    )


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("{name: s, sds_config: {ads: {}}}", ["SDS 's' error"]),
        (f"{{name: s, sds_config: {REST}}}", ["CDS 'xds' note", "SDS 's' error"]),
        (f"{{name: s, sds_config: {GRPC}}}", ["CDS 'x' note", "SDS 's' warning"]),
        ("{name: s}", ["=SDS 's' error"]),
        (
            f"{{name: s, sds_config: {FILE}}}",
            ["file:envoy.extensions.transport_sockets.tls.v3.Secret '/etc/x.yaml\\ns' error", "SDS 's' note"],
        ),
    ],
)
def test_secrets(find: Finder, config: str, expected: list[str]) -> None:
    """A secret is discovered, or static; a gRPC service of its own may be an agent that has others."""
    common = f"common_tls_context: {{validation_context_sds_secret_config: {config}}}"
    socket = (
        f"{{name: t, typed_config: {{'@type': '{EXTENSIONS}transport_sockets.tls.v3.UpstreamTlsContext', {common}}}}}"
    )

    assert expected == find("cds", f"{{name: c, transport_socket: {socket}}}")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", "ECDS 'x' error"),
        (DEFAULT, "ECDS 'x' warning"),
        (
            f"apply_default_config_without_warming: true, {DEFAULT}",
            "ECDS 'x' note",
        ),
    ],
)
def test_extensions(find: Finder, more: str, expected: str) -> None:
    """A filter whose configuration is discovered holds its listener up, unless a default is used at once."""
    discovery = f"{{name: x, config_discovery: {{{more} config_source: {{ads: {{}}}}, type_urls: [a/b]}}}}"

    assert [expected] == find.hcm(f"http_filters: [{discovery}]")
    assert [expected] == find.listener(discovery)
    assert [expected] == find("lds", f"{{name: l, listener_filters: [{discovery}]}}")
    assert [expected] == find("cds", f"{{name: c, filters: [{discovery}]}}")


def test_addresses(find: Finder) -> None:
    """A listener claims its addresses, in one spelling, and none that any number of listeners may have."""

    def claims(address: str, more: str = "") -> list[str]:
        return find("lds", f"{{name: l, address: {address}{more}}}")

    socket = "{socket_address: {address: '%s', port_value: %d}}"
    assert claims(socket % ("::1", 80)) == claims(socket % ("0:0:0:0:0:0:0:1", 80))
    assert claims(socket % ("::1", 80)) != claims(socket % ("::1", 81))
    assert [] == claims(socket % ("::1", 0))
    assert [] == claims(socket % ("localhost", 80))
    assert 1 == len(claims("{pipe: {path: /run/x}}"))
    assert 1 == len(claims(socket % ("::1", 80), f", additional_addresses: [{{address: {socket % ('::1', 80)}}}]"))
    assert 2 == len(claims(socket % ("::1", 80), f", additional_addresses: [{{address: {socket % ('::1', 81)}}}]"))


def test_virtual_hosts_that_are_discovered(find: Finder) -> None:
    """A route configuration that discovers virtual hosts asks for those named after it, and keeps its own domains."""
    text = "{name: a/r, virtual_hosts: [{name: v, domains: [X.com, '*']}], VHDS}"

    assert [] == find("rds", text.replace(", VHDS", ""))
    assert ["host 'a/r/x.com' error", "host 'a/r/*' error", "VHDS 'a/r/*' note"] == sorted(
        find("rds", text.replace("VHDS", "vhds: {config_source: {ads: {}}}")), reverse=True
    )
    assert [
        ("virtual_hosts[0].domains[0]", "a/r/x.com"),
        ("virtual_hosts[0].domains[1]", "a/r/*"),
        ("vhds", "a/r/*"),
    ] == [
        (pointer_of(reference.field_path), reference.name)
        for reference in find.walk("rds", text.replace("VHDS", "vhds: {config_source: {ads: {}}}"))
    ]


def test_virtual_hosts_within_a_listener_are_not_discovered(find: Finder) -> None:
    """Envoy does not look at `vhds` of a route configuration that stands in a listener."""
    assert [] == find.hcm(
        "route_config: {name: r, vhds: {config_source: {ads: {}}}, virtual_hosts: [{name: v, domains: [a]}]}"
    )


def test_cluster_through_which_virtual_hosts_come(find: Finder) -> None:
    """The cluster that virtual hosts are discovered through may come by CDS."""
    source = GRPC.replace("api_type: GRPC", "api_type: DELTA_GRPC")

    assert ["VHDS 'r/*' note", "CDS 'x' note"] == find("rds", f"{{name: r, vhds: {{config_source: {source}}}}}")


def test_routes_of_a_virtual_host_alone(find: Finder) -> None:
    """What the routes of a virtual host name is looked for when a request needs it, as by RDS."""
    policy = "request_mirror_policies: [{cluster: m}]"
    text = f"{{name: r/v, domains: ['*'], {policy}, routes: [{{match: {{prefix: /}}, route: {{cluster: c}}}}]}}"

    assert ["CDS 'c' warning", "CDS 'm' warning"] == sorted(find("vhds", text))


def test_endpoints_by_collection(find: Finder) -> None:
    """A locality may ask for its endpoints by a collection."""
    collection = "xdstp://a/envoy.config.endpoint.v3.LbEndpoint/web/*"
    locality = f"leds_cluster_locality_config: {{leds_collection_name: '{collection}', leds_config: {{ads: {{}}}}}}"

    assert [f"LEDS '{collection}' note"] == find("eds", f"{{cluster_name: c, endpoints: [{{{locality}}}]}}")


HTTP = "envoy.extensions.filters.http."


def struct(message_type: str, value: dict[str, object], package: str = "xds.type.v3") -> Case:
    """A filter that is configured by plain values."""
    config = {"@type": f"{TYPE}{package}.TypedStruct", "type_url": TYPE + message_type, "value": value}
    return manager({"http_filters": [{"name": "f", "typed_config": config}, ROUTER]})


def test_structs_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Plain values that the message takes, in either TypedStruct."""
    assert_accepted(
        catalogue,
        struct(HTTP + "buffer.v3.Buffer", {"max_request_bytes": 5}),
        struct(HTTP + "buffer.v3.Buffer", {"max_request_bytes": "5"}, "udpa.type.v1"),
        http_filter("lua.v3.Lua"),
    )


@pytest.mark.parametrize("value", ["many", 5.5])
def test_values_that_envoy_refuses(catalogue: Catalogue, value: object) -> None:
    """A value that the message does not take is refused."""
    assert_rejected(catalogue, "wrong-typed-struct", struct(HTTP + "buffer.v3.Buffer", {"max_request_bytes": value}))


def test_rules_hold_within(catalogue: Catalogue) -> None:
    """Rules over messages hold for what a TypedStruct stands for."""
    headers = [{"name": "a", "safe_regex_match": {"regex": "("}}]

    assert_rejected(catalogue, "wrong-regex", struct(HTTP + "fault.v3.HTTPFault", {"headers": headers}))


@pytest.mark.parametrize(
    ("message_type", "value", "expected"),
    [
        ("fault.v3.HTTPFault", {"abort": {"http_statuz": 418, "http_status": 418}}, {"unknown-field"}),
        ("fault.v3.HTTPFault", {"abortt": {}}, {"unknown-field"}),
        ("buffer.v3.Buffer", {"max_request_bytes": 5, "Max_request_bytes": 5}, {"unknown-field"}),
        ("fault.v3.HTTPFaultt", {}, {"unknown-type"}),
    ],
)
def test_what_a_struct_misspells_is_found(
    catalogue: Catalogue, message_type: str, value: dict[str, object], expected: set[str]
) -> None:
    """As strictly as in the message itself: Envoy leaves unknown fields out, and knows no filter of an unknown type."""
    assert expected == rules_found(catalogue, struct(HTTP + message_type, value))


def test_unknown_types_are_left_alone(catalogue: Catalogue) -> None:
    """Of a type that the catalogue does not have, and that is not Envoy's, nothing is said."""
    assert set() == rules_found(catalogue, struct("example.Own", {"a": 1}))
