"""Where messages configure extensions, and of which category."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A field that holds an extension with its `typed_config`, or a list of them.

    `category` is one, or several of which any will do, with spaces between them.
    """

    field: str
    category: str
    is_repeated: bool = False


_HTTP = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_SOCKETS = "envoy.extensions.transport_sockets."
_EITHER_SIDE = "envoy.transport_sockets.upstream envoy.transport_sockets.downstream"
_COMPRESSION = "envoy.extensions.filters.http."

PLACES: dict[str, tuple[Place, ...]] = {
    "envoy.config.listener.v3.Listener": (Place("access_log", "envoy.access_loggers", is_repeated=True),),
    "envoy.config.listener.v3.FilterChain": (
        Place("filters", "envoy.filters.network", is_repeated=True),
        Place("transport_socket", "envoy.transport_sockets.downstream"),
    ),
    _HTTP: (
        Place("http_filters", "envoy.filters.http", is_repeated=True),
        Place("access_log", "envoy.access_loggers", is_repeated=True),
        Place("original_ip_detection_extensions", "envoy.http.original_ip_detection", is_repeated=True),
        Place("early_header_mutation_extensions", "envoy.http.early_header_mutation", is_repeated=True),
    ),
    "envoy.type.matcher.v3.StringMatcher": (Place("custom", "envoy.string_matcher"),),
    "envoy.config.core.v3.Http1ProtocolOptions.HeaderKeyFormat": (
        Place("stateful_formatter", "envoy.http.stateful_header_formatters"),
    ),
    "envoy.config.rbac.v3.Permission": (Place("uri_template", "envoy.path.match"),),
    f"{_SOCKETS}tap.v3.Tap": (Place("transport_socket", _EITHER_SIDE),),
    f"{_SOCKETS}tcp_stats.v3.Config": (Place("transport_socket", _EITHER_SIDE),),
    f"{_SOCKETS}proxy_protocol.v3.ProxyProtocolUpstreamTransport": (Place("transport_socket", _EITHER_SIDE),),
    f"{_HTTP}.UpgradeConfig": (Place("filters", "envoy.filters.http", is_repeated=True),),
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy": (
        Place("access_log", "envoy.access_loggers", is_repeated=True),
    ),
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig": (
        Place("access_log", "envoy.access_loggers", is_repeated=True),
        Place("session_filters", "envoy.filters.udp.session", is_repeated=True),
    ),
    "envoy.extensions.filters.http.router.v3.Router": (
        Place("upstream_log", "envoy.access_loggers", is_repeated=True),
        Place("upstream_http_filters", "envoy.filters.http.upstream", is_repeated=True),
    ),
    "envoy.config.accesslog.v3.AccessLogFilter": (Place("extension_filter", "envoy.access_loggers.extension_filters"),),
    "envoy.config.core.v3.SubstitutionFormatString": (Place("formatters", "envoy.formatter", is_repeated=True),),
    "envoy.config.trace.v3.Tracing": (Place("http", "envoy.tracers"),),
    f"{_HTTP}.Tracing": (Place("provider", "envoy.tracers"),),
    "envoy.config.cluster.v3.Cluster": (
        Place("transport_socket", "envoy.transport_sockets.upstream"),
        Place("filters", "envoy.filters.upstream_network", is_repeated=True),
    ),
    "envoy.config.cluster.v3.Cluster.TransportSocketMatch": (
        Place("transport_socket", "envoy.transport_sockets.upstream"),
    ),
    "envoy.config.core.v3.HealthCheck": (
        Place("custom_health_check", "envoy.health_checkers"),
        Place("event_logger", "envoy.health_check.event_sinks", is_repeated=True),
    ),
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": (
        Place("http_filters", "envoy.filters.http.upstream", is_repeated=True),
    ),
    "envoy.config.route.v3.RateLimit.Action": (Place("extension", "envoy.rate_limit_descriptors"),),
    "envoy.config.route.v3.RouteMatch": (Place("path_match_policy", "envoy.path.match"),),
    "envoy.config.route.v3.RouteAction": (
        Place("path_rewrite_policy", "envoy.path.rewrite"),
        Place("early_data_policy", "envoy.route.early_data_policy"),
    ),
    "envoy.config.route.v3.InternalRedirectPolicy": (
        Place("predicates", "envoy.internal_redirect_predicates", is_repeated=True),
    ),
    "envoy.config.route.v3.RetryPolicy": (
        Place("retry_priority", "envoy.retry_priorities"),
        Place("retry_host_predicate", "envoy.retry_host_predicates", is_repeated=True),
    ),
    f"{_COMPRESSION}compressor.v3.Compressor": (Place("compressor_library", "envoy.compression.compressor"),),
    f"{_COMPRESSION}decompressor.v3.Decompressor": (Place("decompressor_library", "envoy.compression.decompressor"),),
    "envoy.extensions.filters.http.stateful_session.v3.StatefulSession": (
        Place("session_state", "envoy.http.stateful_session"),
    ),
    "envoy.extensions.filters.http.credential_injector.v3.CredentialInjector": (
        Place("credential", "envoy.http.injected_credentials"),
    ),
}
