"""Successors of v2's message types and fields, for remedies and `fsxds import --upgrade`.

The API names each message's predecessor (`udpa.annotations.versioning`). The fields are those that v3 lacks, found by
comparing `xds-protos` (`tests/api/test_v2_spellings.py` repeats that). One with the same number was renamed; else
comments of v2 name the replacement.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fsxds.api.catalogue import Catalogue, DynamicMessage

_VERSIONING = "udpa.annotations.versioning"

VALUE: Final = "$"
"""Stands for the value in a pattern."""

_CORE, _LISTENER, _ROUTE = "envoy.config.core.v3.", "envoy.config.listener.v3.", "envoy.config.route.v3."
_CLUSTER = "envoy.config.cluster.v3.Cluster"
_HTTP_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_REDIS = "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy"
_TLS = "envoy.extensions.transport_sockets.tls.v3."

PATTERNS: Mapping[tuple[str, str], str] = MappingProxyType({
    (_CLUSTER, "drain_connections_on_host_removal"): "ignore_health_on_host_removal: $",
    (f"{_ROUTE}RouteAction", "auto_host_rewrite_header"): "host_rewrite_header: $",
    (f"{_ROUTE}RouteAction", "request_mirror_policy"): "request_mirror_policies: [$]",
    (f"{_ROUTE}RouteMatch", "regex"): "safe_regex: {regex: $}",
    (f"{_ROUTE}HeaderMatcher", "regex_match"): "string_match: {safe_regex: {regex: $}}",
    ("envoy.type.matcher.v3.StringMatcher", "regex"): "safe_regex: {regex: $}",
    (f"{_CORE}HealthCheck.HttpHealthCheck", "service_name"): "service_name_matcher: {prefix: $}",
    (f"{_REDIS}", "cluster"): "prefix_routes: {catch_all_route: {cluster: $}}",
    (f"{_REDIS}.PrefixRoutes", "catch_all_cluster"): "catch_all_route: {cluster: $}",
    ("envoy.extensions.filters.http.dynamic_forward_proxy.v3.PerRouteConfig", "host_rewrite"):
        "host_rewrite_literal: $",
    ("envoy.extensions.filters.http.dynamic_forward_proxy.v3.PerRouteConfig", "auto_host_rewrite_header"):
        "host_rewrite_header: $",
})  # fmt: skip
"""The v3 form of a v2 field, by v3 message type and v2 field. The value only moves, and keeps its meaning."""

CONFIG, HOSTS, TLS_CONTEXT = "config", "hosts", "tls_context"
"""Fields of v2 whose replacement depends on their surroundings."""

UPSTREAM_TLS, DOWNSTREAM_TLS = f"{_TLS}UpstreamTlsContext", f"{_TLS}DownstreamTlsContext"

TLS_CONTEXTS: Mapping[str, str] = MappingProxyType({_CLUSTER: UPSTREAM_TLS, f"{_LISTENER}FilterChain": DOWNSTREAM_TLS})
"""The type that replaces the `tls_context` of a v2 message, packed in a `transport_socket`."""

_REMEDIES: Mapping[tuple[str, str], str] = MappingProxyType({
    (_CLUSTER, HOSTS): "load_assignment: {cluster_name: …, endpoints: [{lb_endpoints: [{endpoint: {address: …}}]}]}",
    **{
        (message, TLS_CONTEXT): 'transport_socket: {name: envoy.transport_sockets.tls, typed_config: {"@type": '
        f"type.googleapis.com/{context}, …}}}}"
        for message, context in TLS_CONTEXTS.items()
    },
    (_CLUSTER, "extension_protocol_options"): "typed_extension_protocol_options, each with an @type",
    **{
        (f"{_ROUTE}{message}", "per_filter_config"): "typed_per_filter_config, each with an @type"
        for message in ("Route", "VirtualHost", "WeightedCluster.ClusterWeight")
    },
    (f"{_ROUTE}RouteAction.RequestMirrorPolicy", "runtime_key"): "runtime_fraction: {runtime_key: …, default_value: …}",
    (f"{_ROUTE}CorsPolicy", "allow_origin"): "allow_origin_string_match: [{exact: …}]",
    (f"{_ROUTE}CorsPolicy", "allow_origin_regex"): "allow_origin_string_match: [{safe_regex: {regex: …}}]",
    (f"{_ROUTE}CorsPolicy", "enabled"): "filter_enabled: {default_value: …}",
    (f"{_ROUTE}QueryParameterMatcher", "value"): "string_match: {exact: …}",
    (f"{_ROUTE}QueryParameterMatcher", "regex"): "string_match: {safe_regex: {regex: …}}",
    (f"{_ROUTE}VirtualCluster", "pattern"): "headers: [{name: ':path', string_match: {safe_regex: {regex: …}}}]",
    (f"{_ROUTE}VirtualCluster", "method"): "headers: [{name: ':method', string_match: {exact: …}}]",
    (f"{_CORE}HealthCheck.HttpHealthCheck", "use_http2"): "codec_client_type: HTTP2",
    (_HTTP_MANAGER, "idle_timeout"): "common_http_protocol_options: {idle_timeout: …}",
    (f"{_HTTP_MANAGER}.Tracing", "operation_name"): "traffic_direction of the listener",
    (f"{_HTTP_MANAGER}.Tracing", "request_headers_for_tags"): "custom_tags: [{tag: …, request_header: {name: …}}]",
    (f"{_TLS}CertificateValidationContext", "verify_subject_alt_name"):
        "match_typed_subject_alt_names: [{san_type: DNS, matcher: {exact: …}}]",
    ("envoy.config.bootstrap.v3.Bootstrap", "runtime"):
        "layered_runtime: {layers: [{name: disk, disk_layer: {…}}, {name: admin, admin_layer: {}}]}",
})  # fmt: skip

_GONE: frozenset[tuple[str, str]] = frozenset({
    ("envoy.config.endpoint.v3.ClusterLoadAssignment.Policy", "disable_overprovisioning"),
    ("envoy.extensions.filters.common.fault.v3.FaultDelay", "type"),
    (f"{_CORE}Node", "build_version"),
    ("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "deprecated_v1"),
    (f"{_LISTENER}UdpListenerConfig", "udp_listener_name"),
    (f"{_TLS}CertificateValidationContext", "require_ocsp_staple"),
})  # fmt: skip


def successor_of(catalogue: Catalogue, message_type: str) -> str | None:
    """Return a v2 type's successor, or None."""
    return catalogue.once(_successors).get(message_type)


def similar_type(catalogue: Catalogue, message_type: str) -> str | None:
    """Return successor, else similar name."""
    return successor_of(catalogue, message_type) or catalogue.similar(message_type)


def _successors(catalogue: Catalogue) -> Mapping[str, str]:
    extension = catalogue.extension(_VERSIONING)
    if extension is None:
        return {}
    found: dict[str, str] = {}
    for descriptor in catalogue.descriptors():
        options: DynamicMessage = catalogue.options_of(descriptor)
        if options.HasExtension(extension):
            predecessor = str(options.Extensions[extension].previous_message_type)
            # A few name an unreleased version of their own; the v2 type was in the same package.
            for version in (".v3.", ".v2.", ".v2alpha.") if ".v3." in predecessor else (".v3.",):
                found[predecessor.replace(".v3.", version)] = descriptor.full_name
    return {before: after for before, after in found.items() if before and before != after}


def remedy_for(message_type: str, field: str, fields: frozenset[str]) -> str | None:
    """Return a v2 field's remedy; None if v2 lacked it or v3 has it.

    `fields` are the v3 message's names.
    """
    key = message_type, field
    if key in PATTERNS:
        return f"API v2 wrote it so; write {PATTERNS[key].replace(VALUE, '…')}"
    if key in _REMEDIES:
        return f"API v2 wrote it so; write {_REMEDIES[key]}"
    if key in _GONE:
        return "API v3 has no such field any more; remove it"
    if field == CONFIG and "typed_config" in fields:
        return 'API v2 wrote it so; write typed_config: {"@type": …, …}'
    return None
