"""Where messages configure extensions, and of which category."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A field that holds an extension with its `typed_config`, or a list of them.

    `category` is one, or several of which any will do, with spaces between them; an extension that `is_named` is looked up
    by its name.
    """

    field: str
    category: str
    is_repeated: bool = False
    is_named: bool = False


_HTTP = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_SOCKETS = "envoy.extensions.transport_sockets."
_EITHER_SIDE = "envoy.transport_sockets.upstream envoy.transport_sockets.downstream"
_COMPRESSION = "envoy.extensions.filters.http."

_WITH_FORMATTERS = (
    "envoy.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfig",
    "envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig",
)
_WITH_RESOLVER = (
    "envoy.extensions.clusters.dns.v3.DnsCluster",
    "envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheConfig",
    "envoy.extensions.filters.udp.dns_filter.v3.DnsFilterConfig.ClientContextConfig",
)

PLACES: dict[str, tuple[Place, ...]] = {
    "envoy.config.listener.v3.Listener": (Place("access_log", "envoy.access_loggers", is_repeated=True),),
    "envoy.config.listener.v3.FilterChain": (
        Place("filters", "envoy.filters.network", is_repeated=True),
        Place("transport_socket", "envoy.transport_sockets.downstream"),
    ),
    _HTTP: (
        Place("http_filters", "envoy.filters.http", is_repeated=True),
        Place("access_log", "envoy.access_loggers", is_repeated=True),
        Place("request_id_extension", "envoy.request_id"),
        Place("typed_header_validation_config", "envoy.http.header_validators"),
        Place("original_ip_detection_extensions", "envoy.http.original_ip_detection", is_repeated=True),
        Place("early_header_mutation_extensions", "envoy.http.early_header_mutation", is_repeated=True),
    ),
    **dict.fromkeys(_WITH_FORMATTERS, (Place("formatters", "envoy.formatter", is_repeated=True),)),
    **dict.fromkeys(_WITH_RESOLVER, (Place("typed_dns_resolver_config", "envoy.network.dns_resolver"),)),
    "envoy.config.common.key_value.v3.KeyValueStoreConfig": (Place("config", "envoy.common.key_value"),),
    "envoy.config.core.v3.BindConfig": (Place("local_address_selector", "envoy.upstream.local_address_selector"),),
    "envoy.config.listener.v3.QuicProtocolOptions": (
        Place("connection_debug_visitor_config", "envoy.quic.connection_debug_visitor"),
        Place("connection_id_generator_config", "envoy.quic.connection_id_generator"),
        Place("crypto_stream_config", "envoy.quic.server.crypto_stream"),
        Place("proof_source_config", "envoy.quic.proof_source"),
        Place("server_preferred_address_config", "envoy.quic.server_preferred_address"),
    ),
    "envoy.config.listener.v3.Listener.ConnectionBalanceConfig": (
        Place("extend_balance", "envoy.network.connection_balance"),
    ),
    "envoy.config.rbac.v3.Principal": (Place("custom", "envoy.rbac.principals"),),
    "envoy.config.trace.v3.OpenTelemetryConfig": (
        Place("resource_detectors", "envoy.tracers.opentelemetry.resource_detectors", is_repeated=True),
        Place("sampler", "envoy.tracers.opentelemetry.samplers"),
    ),
    "envoy.extensions.tracers.opentelemetry.samplers.v3.ParentBasedSamplerConfig": (
        Place("wrapped_sampler", "envoy.tracers.opentelemetry.samplers"),
    ),
    "envoy.extensions.common.matching.v3.ExtensionWithMatcher": (
        Place("extension_config", "envoy.filters.http envoy.filters.http.upstream"),
    ),
    "envoy.extensions.filters.http.composite.v3.ExecuteFilterAction": (
        Place("typed_config", "envoy.filters.http envoy.filters.http.upstream"),
    ),
    "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor": (
        Place("on_processing_response", "envoy.http.ext_proc.response_processors"),
        Place("processing_request_modifier", "envoy.http.ext_proc.processing_request_modifiers"),
    ),
    "envoy.extensions.filters.http.geoip.v3.Geoip": (Place("provider", "envoy.geoip_providers"),),
    "envoy.extensions.filters.network.geoip.v3.Geoip": (Place("provider", "envoy.geoip_providers"),),
    "envoy.extensions.filters.network.generic_proxy.v3.GenericProxy": (
        Place("codec_config", "envoy.generic_proxy.codecs"),
        Place("filters", "envoy.generic_proxy.filters", is_repeated=True),
        Place("access_log", "envoy.access_loggers", is_repeated=True),
    ),
    "envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy": (
        Place("thrift_filters", "envoy.thrift_proxy.filters", is_repeated=True),
        Place("access_log", "envoy.access_loggers", is_repeated=True),
    ),
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.TunnelingConfig": (
        Place("request_id_extension", "envoy.request_id"),
    ),
    "envoy.extensions.filters.http.aws_eventstream_parser.v3.AwsEventstreamParser.ProcessingRules": (
        Place("content_parser", "envoy.content_parsers"),
    ),
    "envoy.extensions.filters.http.sse_to_metadata.v3.SseToMetadata.ProcessingRules": (
        Place("content_parser", "envoy.content_parsers"),
    ),
    f"{_SOCKETS}tls.v3.CertificateValidationContext": (
        Place("custom_validator_config", "envoy.tls.cert_validator", is_named=True),
    ),
    f"{_SOCKETS}tls.v3.CommonTlsContext": (
        Place(
            "custom_tls_certificate_selector",
            "envoy.tls.certificate_selectors envoy.tls.upstream_certificate_selectors",
        ),
        Place("custom_handshaker", "envoy.tls_handshakers"),
    ),
    f"{_SOCKETS}http_11_proxy.v3.Http11ProxyUpstreamTransport": (
        Place("transport_socket", "envoy.transport_sockets.upstream"),
    ),
    f"{_SOCKETS}internal_upstream.v3.InternalUpstreamTransport": (
        Place("transport_socket", "envoy.transport_sockets.upstream"),
    ),
    "envoy.type.matcher.v3.StringMatcher": (Place("custom", "envoy.string_matcher"),),
    "envoy.config.core.v3.Http1ProtocolOptions.HeaderKeyFormat": (
        Place("stateful_formatter", "envoy.http.stateful_header_formatters"),
    ),
    "envoy.config.rbac.v3.Permission": (
        Place("uri_template", "envoy.path.match"),
        Place("matcher", "envoy.rbac.matchers"),
    ),
    f"{_SOCKETS}tap.v3.Tap": (Place("transport_socket", _EITHER_SIDE),),
    f"{_SOCKETS}tcp_stats.v3.Config": (Place("transport_socket", _EITHER_SIDE),),
    f"{_SOCKETS}proxy_protocol.v3.ProxyProtocolUpstreamTransport": (Place("transport_socket", _EITHER_SIDE),),
    f"{_HTTP}.UpgradeConfig": (Place("filters", "envoy.filters.http", is_repeated=True),),
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy": (
        Place("access_log", "envoy.access_loggers", is_repeated=True),
    ),
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig": (
        Place("access_log", "envoy.access_loggers", is_repeated=True),
        Place("proxy_access_log", "envoy.access_loggers", is_repeated=True),
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
        Place("header_validation_config", "envoy.http.header_validators"),
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
        Place("retry_options_predicates", "envoy.retry_options_predicates", is_repeated=True),
    ),
    f"{_COMPRESSION}compressor.v3.Compressor": (Place("compressor_library", "envoy.compression.compressor"),),
    f"{_COMPRESSION}decompressor.v3.Decompressor": (Place("decompressor_library", "envoy.compression.decompressor"),),
    "envoy.extensions.filters.http.stateful_session.v3.StatefulSession": (
        Place("session_state", "envoy.http.stateful_session", is_named=True),
    ),
    "envoy.extensions.filters.http.credential_injector.v3.CredentialInjector": (
        Place("credential", "envoy.http.injected_credentials"),
    ),
}

PACKED = {
    "envoy.config.cluster.v3.Cluster.CustomClusterType.typed_config": "envoy.clusters",
    "envoy.extensions.filters.http.cache.v3.CacheConfig.typed_config": "envoy.http.cache",
    "envoy.extensions.filters.http.cache_v2.v3.CacheV2Config.typed_config": "envoy.http.cache_v2",
}
"""Fields that hold an extension without a name, with its category."""
