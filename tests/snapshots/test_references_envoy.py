from __future__ import annotations

from typing import Any

import pytest
import yaml

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraints import FieldRules
from fsxds.api.converter import Converter
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import Severity
from fsxds.snapshots.references import hooks
from tests.support.envoy import validate

EXTENSIONS = "type.googleapis.com/envoy.extensions."
ROUTER = f"{{name: r, typed_config: {{'@type': {EXTENSIONS}filters.http.router.v3.Router}}}}"
GRPC = "grpc_service: {envoy_grpc: {cluster_name: nowhere}}"
URI = "{uri: 'http://x/', cluster: nowhere, timeout: 1s}"
TRACE = "type.googleapis.com/envoy.config.trace.v3."


def tcp(fields: str, type_url: str = "tcp_proxy.v3.TcpProxy") -> str:
    """Write a listener with one network filter."""
    typed = f"{{'@type': {EXTENSIONS}filters.network.{type_url}, stat_prefix: s, {fields}}}"
    chains = f"[{{filters: [{{name: f, typed_config: {typed}}}]}}]"
    return f"{{name: l, address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}, filter_chains: {chains}}}"


def hcm(action: str = "route: {cluster: here}", more: str = "", filters: str = "", config: str = "") -> str:
    """Write a listener with an HTTP connection manager."""
    hosts = f"[{{name: v, domains: ['*'], routes: [{{match: {{prefix: /}}, {action}}}]}}]"
    route_config = f"{{name: r, {config} virtual_hosts: {hosts}}}"
    fields = f"{more} http_filters: [{filters} {ROUTER}], route_config: {route_config}"
    return tcp(fields, "http_connection_manager.v3.HttpConnectionManager")


def http(type_url: str, fields: str) -> str:
    """Write a listener with an HTTP filter."""
    return hcm(filters=f"{{name: f, typed_config: {{'@type': {EXTENSIONS}filters.http.{type_url}, {fields}}}}},")


def tracer(type_url: str, fields: str) -> str:
    """Write a listener with a tracer."""
    return hcm(more=f"tracing: {{provider: {{name: t, typed_config: {{'@type': {TRACE}{type_url}, {fields}}}}}}},")


def fluentd(cluster: str) -> str:
    """Write a listener with an access log that names a cluster."""
    type_url = f"{EXTENSIONS}access_loggers.fluentd.v3.FluentdAccessLogConfig"
    fields = f"cluster: {cluster}, tag: t, stat_prefix: s, record: {{a: b}}"
    return hcm(more=f"access_log: [{{name: a, typed_config: {{'@type': {type_url}, {fields}}}}}],")


MIRROR = "request_mirror_policies: [{cluster: nowhere}]"
OWN_MIRROR = "route: {cluster: here, request_mirror_policies: [{cluster: here}]}"
THRIFT = "thrift_proxy.v3.ThriftProxy"
THRIFT_ROUTES = "routes: [{match: {method_name: x}, route: {cluster: nowhere}}]"

LISTENERS = {
    "route": hcm("route: {cluster: nowhere}"),
    "route, not validated": hcm("route: {cluster: nowhere}", config="validate_clusters: false,"),
    "weighted": hcm("route: {weighted_clusters: {clusters: [{name: nowhere, weight: 1}]}}"),
    "mirror": hcm(f"route: {{cluster: here, {MIRROR}}}"),
    "inherited mirror": hcm(config=f"{MIRROR},"),
    "mirror inherited by a redirect": hcm("redirect: {host_redirect: x}", config=f"{MIRROR},"),
    "mirror that is not inherited": hcm(OWN_MIRROR, config=f"{MIRROR},"),
    "tcp": tcp("cluster: nowhere"),
    "weighted tcp": tcp("weighted_clusters: {clusters: [{name: nowhere, weight: 1}]}"),
    "thrift": tcp(f"route_config: {{name: r, {THRIFT_ROUTES}}}", THRIFT),
    "thrift, not validated": tcp(f"route_config: {{name: r, validate_clusters: false, {THRIFT_ROUTES}}}", THRIFT),
    "external authorization by gRPC": http("ext_authz.v3.ExtAuthz", f"{GRPC}, transport_api_version: V3"),
    "external authorization by HTTP": http("ext_authz.v3.ExtAuthz", f"http_service: {{server_uri: {URI}}}"),
    "external processing": http("ext_proc.v3.ExternalProcessor", GRPC),
    "keys of tokens": http("jwt_authn.v3.JwtAuthentication", f"providers: {{p: {{remote_jwks: {{http_uri: {URI}}}}}}}"),
    "Zipkin": tracer(
        "ZipkinConfig", "collector_cluster: nowhere, collector_endpoint: /x, collector_endpoint_version: HTTP_JSON"
    ),
    "Zipkin service": tracer(
        "ZipkinConfig", f"collector_service: {{http_uri: {URI}}}, collector_endpoint_version: HTTP_JSON"
    ),
    "Datadog": tracer("DatadogConfig", "collector_cluster: nowhere, service_name: s"),
    "OpenTelemetry": tracer("OpenTelemetryConfig", f"{GRPC}, service_name: s"),
    "Fluentd": fluentd("nowhere"),
}


def listener_of(text: str) -> dict[str, Any]:
    """Read a listener."""
    listener: dict[str, Any] = yaml.safe_load(text)
    return listener


@pytest.mark.parametrize("name", LISTENERS)
def test_weight_is_what_envoy_does(catalogue: Catalogue, name: str) -> None:
    """A cluster that is nowhere is an error exactly where Envoy refuses the listener."""
    listener = listener_of(LISTENERS[name])
    converted = Converter(catalogue).convert(listener, BY_SHORT_NAME["lds"].message_type)
    assert converted.message is not None, converted.faults
    references = FieldRules(catalogue, hooks(catalogue)).check(converted.message).references
    here = {"name": "here", "type": "STATIC", "connect_timeout": "1s"}

    accepted, complaint = validate({"static_resources": {"clusters": [here], "listeners": [listener]}})

    (weight,) = {reference.severity for reference in references if reference.name == "nowhere"}
    assert accepted == (weight is not Severity.ERROR), complaint
    assert accepted or "nowhere" in complaint
