"""Ask the real Envoy and our rules the same question: is this resource right?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraints import FieldRules
from fsxds.api.converter import Converter
from fsxds.lint.linter import make_field_rules
from fsxds.model.values import Severity
from tests.support.envoy import validate

TYPE = "type.googleapis.com/"
NETWORK = "envoy.extensions.filters.network."
TLS = "envoy.extensions.transport_sockets.tls.v3."
TYPES = {
    "clusters": "envoy.config.cluster.v3.Cluster",
    "endpoints": "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "listeners": "envoy.config.listener.v3.Listener",
    "secrets": TLS + "Secret",
}
HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
ROUTER = {"name": "router", "typed_config": {"@type": TYPE + "envoy.extensions.filters.http.router.v3.Router"}}
TCP_CHAIN = {
    "filters": [
        {
            "name": "tcp",
            "typed_config": {"@type": TYPE + NETWORK + "tcp_proxy.v3.TcpProxy", "stat_prefix": "s", "cluster": "xds"},
        }
    ]
}


@dataclass(frozen=True)
class Case:
    """One resource among the static resources of a bootstrap."""

    group: str
    resource: Any

    def __str__(self) -> str:
        return self.group


def read(text: str | dict[str, Any]) -> dict[str, Any]:
    """Read YAML, unless it is read already."""
    value: dict[str, Any] = yaml.load(text, yaml.CSafeLoader) if isinstance(text, str) else text
    return value or {}


def cluster(text: str | dict[str, Any]) -> Case:
    """A cluster with these fields."""
    return Case("clusters", {"name": "c", **read(text)})


def endpoints(text: str, **fields: Any) -> Case:
    """A cluster with these endpoints."""
    return cluster({"load_assignment": {"cluster_name": "c", "endpoints": yaml.load(text, yaml.CSafeLoader)}, **fields})


def listener(text: str | dict[str, Any]) -> Case:
    """A listener with these fields, and a filter chain unless they hold one."""
    fields = read(text)
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 10000}}
    return Case("listeners", {"name": "l", "address": address, "filter_chains": [TCP_CHAIN], **fields})


def chain(text: str | dict[str, Any]) -> Case:
    """A listener whose only filter chain has these fields, and a TCP proxy unless they hold filters."""
    return listener({"filter_chains": [{**TCP_CHAIN, **read(text)}]})


def manager(text: str | dict[str, Any]) -> Case:
    """An HTTP connection manager with these fields."""
    fields = {"stat_prefix": "s", "http_filters": [ROUTER], "route_config": {"name": "r"}, **read(text)}
    fields["@type"] = TYPE + NETWORK + "http_connection_manager.v3.HttpConnectionManager"
    if "rds" in fields or "scoped_routes" in fields:
        del fields["route_config"]
    return listener({"filter_chains": [{"filters": [{"name": "hcm", "typed_config": fields}]}]})


def http_filter(message_type: str, text: str | dict[str, Any] = "{}") -> Case:
    """An HTTP filter of this type below `envoy.extensions.filters.http`, with these fields."""
    config = {"@type": f"{TYPE}envoy.extensions.filters.http.{message_type}", **read(text)}
    return manager({"http_filters": [{"name": "f", "typed_config": config}, ROUTER]})


def route_config(text: str | dict[str, Any]) -> Case:
    """A route configuration with these fields."""
    return manager({"route_config": {"name": "r", "validate_clusters": False, **read(text)}})


def virtual_host(text: str | dict[str, Any]) -> Case:
    """A virtual host with these fields."""
    return route_config({"virtual_hosts": [{"name": "v", "domains": ["*"], **read(text)}]})


def route(text: str | dict[str, Any]) -> Case:
    """A route with these fields, to a cluster unless they hold another action."""
    fields = {"match": {"prefix": "/"}, **read(text)}
    if not {"direct_response", "redirect"} & set(fields):
        fields.setdefault("route", {"cluster": "c"})
    return virtual_host({"routes": [fields]})


def action(text: str | dict[str, Any]) -> Case:
    """A route whose action has these fields, and a cluster unless they name one."""
    fields = read(text)
    if not {"weighted_clusters", "cluster_header", "cluster_specifier_plugin"} & set(fields):
        fields = {"cluster": "c", **fields}
    return route({"route": fields})


def server_tls(context: dict[str, Any]) -> Case:
    """A filter chain with this TLS context."""
    config = {"@type": TYPE + TLS + "DownstreamTlsContext", **context}
    return chain({"transport_socket": {"name": "tls", "typed_config": config}})


def client_tls(context: dict[str, Any]) -> Case:
    """A cluster with this TLS context."""
    config = {"@type": TYPE + TLS + "UpstreamTlsContext", **context}
    return cluster({"transport_socket": {"name": "tls", "typed_config": config}})


XDS = cluster(
    {
        "name": "xds",
        "load_assignment": {
            "cluster_name": "xds",
            "endpoints": [
                {
                    "lb_endpoints": [
                        {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 18000}}}}
                    ]
                }
            ],
        },
        "typed_extension_protocol_options": {
            HTTP_OPTIONS: {"@type": TYPE + HTTP_OPTIONS, "explicit_http_config": {"http2_protocol_options": {}}}
        },
    }
).resource


def envoy_accepts(*cases: Case) -> tuple[bool, str]:
    """Tell whether the real Envoy takes all of these at once, and what it says."""
    resources: dict[str, list[Any]] = {"clusters": [XDS]}
    for number, case in enumerate(cases):
        resource = dict(case.resource, name=f"{case.resource['name']}{number}")
        resources.setdefault(case.group, []).append(resource)
    return validate({"node": {"id": "n", "cluster": "c"}, "static_resources": resources})


@cache
def _tools(catalogue: Catalogue) -> tuple[Converter, FieldRules]:
    return Converter(catalogue), make_field_rules(catalogue)


def rules_found(catalogue: Catalogue, case: Case, least: Severity = Severity.ERROR) -> set[str]:
    """Return the names of the rules that our side tells, of errors alone or of `least` alone."""
    converter, rules = _tools(catalogue)
    converted = converter.convert(case.resource, TYPES[case.group])
    assert converted.message is not None, converted.faults
    return {fault.rule for fault in rules.check(converted.message).faults if fault.severity is least}


def assert_accepted(catalogue: Catalogue, *cases: Case) -> None:
    """Assert that Envoy takes all of these, each at an address of its own, and that no rule objects."""
    apart = []
    for number, case in enumerate(cases):
        resource = dict(case.resource)
        address = resource.get("address")
        if address == {"socket_address": {"address": "127.0.0.1", "port_value": 10000}}:
            resource["address"] = {"socket_address": {"address": "127.0.0.1", "port_value": 20000 + number}}
        apart.append(Case(case.group, resource))
    assert [set()] * len(cases) == [rules_found(catalogue, case) for case in cases]
    accepted, words = envoy_accepts(*apart)
    assert accepted, words


def assert_rejected(catalogue: Catalogue, rule: str, case: Case) -> None:
    """Assert that Envoy rejects this, and that the rule tells it, perhaps beside others."""
    accepted, words = envoy_accepts(case)
    assert (False, True) == (accepted, rule in rules_found(catalogue, case)), (words, rules_found(catalogue, case))
