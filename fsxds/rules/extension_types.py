"""Which message configures which category of extension, as Envoy 1.40 announces it to its servers."""

from __future__ import annotations

# A line is a package and what is in it; `envoy.extensions.` in front of it goes without saying.
_BY_CATEGORY = {
    "envoy.access_loggers": (
        "access_loggers.",
        """
        dynamic_modules.v3.DynamicModuleAccessLog file.v3.FileAccessLog fluentd.v3.FluentdAccessLogConfig
        grpc.v3.HttpGrpcAccessLogConfig grpc.v3.TcpGrpcAccessLogConfig open_telemetry.v3.OpenTelemetryAccessLogConfig
        stats.v3.Config stream.v3.StderrAccessLog stream.v3.StdoutAccessLog wasm.v3.WasmAccessLog
        """,
    ),
    "envoy.access_loggers.extension_filters": (
        "access_loggers.filters.",
        """
        cel.v3.ExpressionFilter process_ratelimit.v3.ProcessRateLimitFilter
        """,
    ),
    "envoy.clusters": (
        "clusters.",
        """
        aggregate.v3.ClusterConfig composite.v3.ClusterConfig dns.v3.DnsCluster dynamic_forward_proxy.v3.ClusterConfig
        dynamic_modules.v3.ClusterConfig mcp_multicluster.v3.ClusterConfig original_dst.v3.OriginalDstCluster
        redis.v3.RedisClusterConfig reverse_connection.v3.ReverseConnectionClusterConfig
        """,
    ),
    "envoy.compression.compressor": (
        "compression.",
        """
        brotli.compressor.v3.Brotli gzip.compressor.v3.Gzip zstd.compressor.v3.Zstd
        """,
    ),
    "envoy.compression.decompressor": (
        "compression.",
        """
        brotli.decompressor.v3.Brotli gzip.decompressor.v3.Gzip zstd.decompressor.v3.Zstd
        """,
    ),
    "envoy.filters.http": (
        "",
        """
        common.matching.v3.ExtensionWithMatcher common.matching.v3.ExtensionWithMatcherPerRoute filters.http.a2a.v3.A2a
        filters.http.adaptive_concurrency.v3.AdaptiveConcurrency filters.http.admission_control.v3.AdmissionControl
        filters.http.ai_protocol_manager.v3.AiProtocolManager
        filters.http.ai_protocol_manager.v3.AiProtocolManagerPerRoute
        filters.http.alternate_protocols_cache.v3.FilterConfig filters.http.api_key_auth.v3.ApiKeyAuth
        filters.http.api_key_auth.v3.ApiKeyAuthPerRoute filters.http.aws_eventstream_parser.v3.AwsEventstreamParser
        filters.http.aws_lambda.v3.Config filters.http.aws_lambda.v3.PerRouteConfig
        filters.http.aws_request_signing.v3.AwsRequestSigning
        filters.http.aws_request_signing.v3.AwsRequestSigningPerRoute filters.http.bandwidth_limit.v3.BandwidthLimit
        filters.http.bandwidth_share.v3.BandwidthShare filters.http.basic_auth.v3.BasicAuth
        filters.http.basic_auth.v3.BasicAuthPerRoute filters.http.body_size_limit.v3.BodySizeLimit
        filters.http.buffer.v3.Buffer filters.http.buffer.v3.BufferPerRoute filters.http.cache.v3.CacheConfig
        filters.http.cache_v2.v3.CacheV2Config filters.http.cdn_loop.v3.CdnLoopConfig
        filters.http.composite.v3.Composite filters.http.composite.v3.CompositePerRoute
        filters.http.compressor.v3.Compressor filters.http.compressor.v3.CompressorPerRoute
        filters.http.connect_grpc_bridge.v3.FilterConfig filters.http.cors.v3.Cors filters.http.cors.v3.CorsPolicy
        filters.http.credential_injector.v3.CredentialInjector filters.http.csrf.v3.CsrfPolicy
        filters.http.custom_response.v3.CustomResponse filters.http.decompressor.v3.Decompressor
        filters.http.dynamic_forward_proxy.v3.FilterConfig filters.http.dynamic_forward_proxy.v3.PerRouteConfig
        filters.http.dynamic_modules.v3.DynamicModuleFilter filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute
        filters.http.ext_authz.v3.ExtAuthz filters.http.ext_authz.v3.ExtAuthzPerRoute
        filters.http.ext_proc.v3.ExtProcPerRoute filters.http.ext_proc.v3.ExternalProcessor
        filters.http.fault.v3.HTTPFault filters.http.file_server.v3.FileServerConfig
        filters.http.file_system_buffer.v3.FileSystemBufferFilterConfig filters.http.filter_chain.v3.FilterChainConfig
        filters.http.filter_chain.v3.FilterChainConfigPerRoute filters.http.gcp_authn.v3.GcpAuthnFilterConfig
        filters.http.geoip.v3.Geoip filters.http.grpc_field_extraction.v3.GrpcFieldExtractionConfig
        filters.http.grpc_http1_bridge.v3.Config filters.http.grpc_http1_reverse_bridge.v3.FilterConfig
        filters.http.grpc_http1_reverse_bridge.v3.FilterConfigPerRoute
        filters.http.grpc_json_reverse_transcoder.v3.GrpcJsonReverseTranscoder
        filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder filters.http.grpc_stats.v3.FilterConfig
        filters.http.grpc_web.v3.GrpcWeb filters.http.header_mutation.v3.HeaderMutation
        filters.http.header_mutation.v3.HeaderMutationPerRoute filters.http.header_to_metadata.v3.Config
        filters.http.health_check.v3.HealthCheck filters.http.ip_tagging.v3.IPTagging
        filters.http.json_to_metadata.v3.JsonToMetadata filters.http.jwt_authn.v3.JwtAuthentication
        filters.http.jwt_authn.v3.PerRouteConfig filters.http.local_ratelimit.v3.LocalRateLimit filters.http.lua.v3.Lua
        filters.http.lua.v3.LuaPerRoute filters.http.mcp.v3.Mcp filters.http.mcp.v3.McpOverride
        filters.http.mcp_json_rest_bridge.v3.McpJsonRestBridge
        filters.http.mcp_json_rest_bridge.v3.McpJsonRestBridgePerRoute filters.http.mcp_router.v3.McpRouter
        filters.http.oauth2.v3.OAuth2 filters.http.oauth2.v3.OAuth2PerRoute filters.http.on_demand.v3.OnDemand
        filters.http.on_demand.v3.PerRouteConfig filters.http.original_src.v3.OriginalSrc
        filters.http.proto_api_scrubber.v3.ProtoApiScrubberConfig
        filters.http.proto_message_extraction.v3.ProtoMessageExtractionConfig
        filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig
        filters.http.rate_limit_quota.v3.RateLimitQuotaOverride filters.http.ratelimit.v3.RateLimit
        filters.http.ratelimit.v3.RateLimitPerRoute filters.http.rbac.v3.RBAC filters.http.rbac.v3.RBACPerRoute
        filters.http.router.v3.Router filters.http.set_filter_state.v3.Config filters.http.set_metadata.v3.Config
        filters.http.sse_to_metadata.v3.SseToMetadata filters.http.stateful_session.v3.StatefulSession
        filters.http.stateful_session.v3.StatefulSessionPerRoute filters.http.tap.v3.Tap
        filters.http.thrift_to_metadata.v3.ThriftToMetadata filters.http.transform.v3.TransformConfig
        filters.http.wasm.v3.Wasm
        """,
    ),
    "envoy.filters.http.upstream": (
        "",
        """
        common.matching.v3.ExtensionWithMatcher common.matching.v3.ExtensionWithMatcherPerRoute
        filters.http.admission_control.v3.AdmissionControl filters.http.ai_protocol_manager.v3.AiProtocolManager
        filters.http.ai_protocol_manager.v3.AiProtocolManagerPerRoute filters.http.aws_lambda.v3.Config
        filters.http.aws_lambda.v3.PerRouteConfig filters.http.aws_request_signing.v3.AwsRequestSigning
        filters.http.aws_request_signing.v3.AwsRequestSigningPerRoute filters.http.body_size_limit.v3.BodySizeLimit
        filters.http.buffer.v3.Buffer filters.http.buffer.v3.BufferPerRoute filters.http.composite.v3.Composite
        filters.http.composite.v3.CompositePerRoute filters.http.compressor.v3.Compressor
        filters.http.compressor.v3.CompressorPerRoute filters.http.credential_injector.v3.CredentialInjector
        filters.http.dynamic_modules.v3.DynamicModuleFilter filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute
        filters.http.ext_proc.v3.ExtProcPerRoute filters.http.ext_proc.v3.ExternalProcessor
        filters.http.header_mutation.v3.HeaderMutation filters.http.header_mutation.v3.HeaderMutationPerRoute
        filters.http.lua.v3.Lua filters.http.lua.v3.LuaPerRoute filters.http.rbac.v3.RBAC
        filters.http.upstream_codec.v3.UpstreamCodec filters.http.wasm.v3.Wasm
        """,
    ),
    "envoy.filters.listener": (
        "filters.listener.",
        """
        dynamic_modules.v3.DynamicModuleListenerFilter http_inspector.v3.HttpInspector local_ratelimit.v3.LocalRateLimit
        original_dst.v3.OriginalDst original_src.v3.OriginalSrc proxy_protocol.v3.ProxyProtocol
        set_filter_state.v3.Config tls_inspector.v3.TlsInspector
        """,
    ),
    "envoy.filters.network": (
        "filters.network.",
        """
        connection_limit.v3.ConnectionLimit direct_response.v3.Config dubbo_proxy.v3.DubboProxy
        dynamic_modules.v3.DynamicModuleNetworkFilter echo.v3.Echo ext_authz.v3.ExtAuthz
        ext_proc.v3.NetworkExternalProcessor generic_proxy.v3.GenericProxy geoip.v3.Geoip
        http_connection_manager.v3.HttpConnectionManager local_ratelimit.v3.LocalRateLimit mongo_proxy.v3.MongoProxy
        ratelimit.v3.RateLimit rbac.v3.RBAC redis_proxy.v3.RedisProxy reverse_tunnel.v3.DrainAwareHttpConnectionManager
        reverse_tunnel.v3.ReverseTunnel set_filter_state.v3.Config sni_cluster.v3.SniCluster
        sni_dynamic_forward_proxy.v3.FilterConfig tcp_bandwidth_limit.v3.TcpBandwidthLimit tcp_proxy.v3.TcpProxy
        thrift_proxy.v3.ThriftProxy wasm.v3.Wasm zookeeper_proxy.v3.ZooKeeperProxy
        """,
    ),
    "envoy.filters.udp.session": (
        "filters.udp.udp_proxy.session.",
        """
        dynamic_forward_proxy.v3.FilterConfig ext_authz.v3.FilterConfig http_capsule.v3.FilterConfig
        """,
    ),
    "envoy.filters.udp_listener": (
        "filters.udp.",
        """
        dns_filter.v3.DnsFilterConfig dynamic_modules.v3.DynamicModuleUdpListenerFilter udp_proxy.v3.UdpProxyConfig
        """,
    ),
    "envoy.filters.upstream_network": ("", ".google.protobuf.Empty"),
    "envoy.formatter": (
        "formatter.",
        """
        cel.v3.Cel dynamic_modules.v3.DynamicModuleFormatter file_content.v3.FileContent generic_secret.v3.GenericSecret
        metadata.v3.Metadata req_without_query.v3.ReqWithoutQuery
        """,
    ),
    "envoy.health_check.event_sinks": ("", "health_check.event_sinks.file.v3.HealthCheckEventFileSink"),
    "envoy.health_checkers": (
        "",
        """
        .envoy.config.core.v3.HealthCheck.GrpcHealthCheck .envoy.config.core.v3.HealthCheck.HttpHealthCheck
        .envoy.config.core.v3.HealthCheck.TcpHealthCheck health_checkers.dynamic_modules.v3.DynamicModuleHealthCheck
        health_checkers.redis.v3.Redis health_checkers.thrift.v3.Thrift health_checkers.udp.v3.UdpHealthCheck
        """,
    ),
    "envoy.http.custom_response": (
        "http.custom_response.",
        """
        local_response_policy.v3.LocalResponsePolicy redirect_policy.v3.RedirectPolicy
        """,
    ),
    "envoy.http.early_header_mutation": (
        "http.early_header_mutation.",
        """
        dynamic_modules.v3.DynamicModuleEarlyHeaderMutation header_mutation.v3.HeaderMutation
        """,
    ),
    "envoy.http.injected_credentials": ("http.injected_credentials.", "generic.v3.Generic oauth2.v3.OAuth2"),
    "envoy.http.original_ip_detection": (
        "http.original_ip_detection.",
        """
        custom_header.v3.CustomHeaderConfig xff.v3.XffConfig
        """,
    ),
    "envoy.http.stateful_header_formatters": (
        "http.header_formatters.",
        """
        dynamic_modules.v3.DynamicModuleHeaderFormatter preserve_case.v3.PreserveCaseFormatterConfig
        """,
    ),
    "envoy.http.stateful_session": (
        "http.stateful_session.",
        """
        cookie.v3.CookieBasedSessionState envelope.v3.EnvelopeSessionState header.v3.HeaderBasedSessionState
        """,
    ),
    "envoy.internal_redirect_predicates": (
        "internal_redirect.",
        """
        allow_listed_routes.v3.AllowListedRoutesConfig filter_state.v3.FilterStateConfig
        previous_routes.v3.PreviousRoutesConfig safe_cross_scheme.v3.SafeCrossSchemeConfig
        """,
    ),
    "envoy.load_balancing_policies": (
        "load_balancing_policies.",
        """
        client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin cluster_provided.v3.ClusterProvided
        dynamic_modules.v3.DynamicModulesLoadBalancerConfig least_request.v3.LeastRequest
        load_aware_locality.v3.LoadAwareLocality maglev.v3.Maglev override_host.v3.OverrideHost random.v3.Random
        ring_hash.v3.RingHash round_robin.v3.RoundRobin subset.v3.Subset wrr_locality.v3.WrrLocality
        """,
    ),
    "envoy.matching.http.custom_matchers": (
        "",
        """
        .xds.type.matcher.v3.IPMatcher .xds.type.matcher.v3.ServerNameMatcher
        """,
    ),
    "envoy.matching.http.input": (
        "",
        """
        matching.common_inputs.network.v3.DestinationIPInput matching.common_inputs.network.v3.DestinationPortInput
        matching.common_inputs.network.v3.DirectSourceIPInput matching.common_inputs.network.v3.DynamicMetadataInput
        matching.common_inputs.network.v3.FilterStateInput matching.common_inputs.network.v3.NetworkNamespaceInput
        matching.common_inputs.network.v3.ServerNameInput matching.common_inputs.network.v3.SourceIPInput
        matching.common_inputs.network.v3.SourcePortInput matching.common_inputs.network.v3.SourceTypeInput
        matching.common_inputs.ssl.v3.DnsSanInput matching.common_inputs.ssl.v3.SubjectInput
        matching.common_inputs.ssl.v3.UriSanInput matching.http.dynamic_modules.v3.DynamicModuleDataInput
        matching.http.dynamic_modules.v3.HttpDynamicModuleMatchInput .envoy.type.matcher.v3.HttpRequestHeaderMatchInput
        .envoy.type.matcher.v3.HttpRequestQueryParamMatchInput .envoy.type.matcher.v3.HttpRequestTrailerMatchInput
        .envoy.type.matcher.v3.HttpResponseHeaderMatchInput .envoy.type.matcher.v3.HttpResponseLocalReplyMatchInput
        .envoy.type.matcher.v3.HttpResponseStatusCodeClassMatchInput
        .envoy.type.matcher.v3.HttpResponseStatusCodeMatchInput .envoy.type.matcher.v3.HttpResponseTrailerMatchInput
        .xds.type.matcher.v3.HttpAttributesCelMatchInput
        """,
    ),
    "envoy.matching.input_matchers": (
        "",
        """
        filters.network.generic_proxy.matcher.v3.RequestMatcher
        matching.input_matchers.consistent_hashing.v3.ConsistentHashing
        matching.input_matchers.dynamic_modules.v3.DynamicModuleMatcher matching.input_matchers.ip.v3.Ip
        matching.input_matchers.metadata.v3.Metadata matching.input_matchers.runtime_fraction.v3.RuntimeFraction
        .xds.type.matcher.v3.CelMatcher
        """,
    ),
    "envoy.matching.network.input": (
        "matching.common_inputs.",
        """
        network.v3.ApplicationProtocolInput network.v3.DestinationIPInput network.v3.DestinationPortInput
        network.v3.DirectSourceIPInput network.v3.FilterStateInput network.v3.NetworkNamespaceInput
        network.v3.ServerNameInput network.v3.SourceIPInput network.v3.SourcePortInput network.v3.SourceTypeInput
        network.v3.TransportProtocolInput ssl.v3.DnsSanInput ssl.v3.SubjectInput ssl.v3.UriSanInput
        """,
    ),
    "envoy.network.dns_resolver": (
        "network.dns_resolver.",
        """
        cares.v3.CaresDnsResolverConfig getaddrinfo.v3.GetAddrInfoDnsResolverConfig hickory.v3.HickoryDnsResolverConfig
        """,
    ),
    "envoy.path.match": ("", "path.match.uri_template.v3.UriTemplateMatchConfig"),
    "envoy.path.rewrite": ("", "path.rewrite.uri_template.v3.UriTemplateRewriteConfig"),
    "envoy.rate_limit_descriptors": ("rate_limit_descriptors.", "expr.v3.Descriptor jwt_claim.v3.Descriptor"),
    "envoy.request_id": ("", "request_id.uuid.v3.UuidRequestIdConfig"),
    "envoy.retry_host_predicates": (
        "retry.host.",
        """
        omit_canary_hosts.v3.OmitCanaryHostsPredicate omit_host_metadata.v3.OmitHostMetadataConfig
        previous_hosts.v3.PreviousHostsPredicate
        """,
    ),
    "envoy.retry_priorities": ("", "retry.priority.previous_priorities.v3.PreviousPrioritiesConfig"),
    "envoy.route.early_data_policy": ("", "early_data.v3.DefaultEarlyDataPolicy"),
    "envoy.router.cluster_specifier_plugin": (
        "router.cluster_specifiers.",
        """
        dynamic_modules.v3.DynamicModuleClusterSpecifier lua.v3.LuaConfig matcher.v3.MatcherClusterSpecifier
        priority_group.v3.PriorityGroupClusterSpecifier
        """,
    ),
    "envoy.stats_sinks": (
        "",
        """
        .envoy.config.metrics.v3.DogStatsdSink .envoy.config.metrics.v3.HystrixSink
        .envoy.config.metrics.v3.MetricsServiceConfig .envoy.config.metrics.v3.StatsdSink
        stat_sinks.dynamic_modules.v3.DynamicModuleStatsSink stat_sinks.graphite_statsd.v3.GraphiteStatsdSink
        stat_sinks.open_telemetry.v3.SinkConfig stat_sinks.wasm.v3.Wasm
        """,
    ),
    "envoy.tracers": (
        "",
        """
        .envoy.config.trace.v3.DatadogConfig .envoy.config.trace.v3.OpenTelemetryConfig
        .envoy.config.trace.v3.SkyWalkingConfig .envoy.config.trace.v3.XRayConfig .envoy.config.trace.v3.ZipkinConfig
        tracers.dynamic_modules.v3.DynamicModuleTracer tracers.fluentd.v3.FluentdConfig
        """,
    ),
    "envoy.tracers.opentelemetry.resource_detectors": (
        "tracers.opentelemetry.resource_detectors.v3.",
        """
        DynatraceResourceDetectorConfig EnvironmentResourceDetectorConfig StaticConfigResourceDetectorConfig
        """,
    ),
    "envoy.tracers.opentelemetry.samplers": (
        "tracers.opentelemetry.samplers.v3.",
        """
        AlwaysOnSamplerConfig CELSamplerConfig DynatraceSamplerConfig ParentBasedSamplerConfig
        TraceIdRatioBasedSamplerConfig
        """,
    ),
    "envoy.transport_sockets.downstream": (
        "transport_sockets.",
        """
        alts.v3.Alts dynamic_modules.v3.DynamicModuleTransportSocket quic.v3.QuicDownstreamTransport
        raw_buffer.v3.RawBuffer starttls.v3.StartTlsConfig tap.v3.Tap tcp_stats.v3.Config tls.v3.DownstreamTlsContext
        """,
    ),
    "envoy.transport_sockets.upstream": (
        "transport_sockets.",
        """
        alts.v3.Alts dynamic_modules.v3.DynamicModuleTransportSocket http_11_proxy.v3.Http11ProxyUpstreamTransport
        internal_upstream.v3.InternalUpstreamTransport proxy_protocol.v3.ProxyProtocolUpstreamTransport
        quic.v3.QuicUpstreamTransport raw_buffer.v3.RawBuffer starttls.v3.UpstreamStartTlsConfig tap.v3.Tap
        tcp_stats.v3.Config tls.v3.UpstreamTlsContext
        """,
    ),
    "envoy.upstreams": ("", "upstreams.tcp.generic.v3.GenericConnectionPoolProto"),
    "envoy.upstream_options": (
        "upstreams.",
        """
        http.reverse_tunnel.v3.ReverseTunnelUpstreamCodecOptions http.v3.HttpProtocolOptions tcp.v3.TcpProtocolOptions
        """,
    ),
    "envoy.string_matcher": ("", "string_matcher.lua.v3.Lua"),
    "envoy.bootstrap": (
        "",
        """
        bootstrap.dynamic_modules.v3.DynamicModuleBootstrapExtension bootstrap.internal_listener.v3.InternalListener
        bootstrap.reverse_tunnel.downstream_socket_interface.v3.DownstreamReverseConnectionSocketInterface
        bootstrap.reverse_tunnel.upstream_socket_interface.v3.UpstreamReverseConnectionSocketInterface
        network.socket_interface.sockmap.v3.Sockmap network.socket_interface.v3.DefaultSocketInterface
        wasm.v3.WasmService
        """,
    ),
    "envoy.resource_monitors": (
        "resource_monitors.",
        """
        cgroup_memory.v3.CgroupMemoryConfig cpu_utilization.v3.CpuUtilizationConfig fixed_heap.v3.FixedHeapConfig
        injected_resource.v3.InjectedResourceConfig
        """,
    ),
}


def _types(prefix: str, names: str) -> frozenset[str]:
    return frozenset(
        name.removeprefix(".") if name.startswith(".") else f"envoy.extensions.{prefix}{name}" for name in names.split()
    )


TYPES = {category: _types(*listed) for category, listed in _BY_CATEGORY.items()}
"""The full names of the messages of each category."""

KNOWN = frozenset().union(*TYPES.values())
"""The messages of all categories."""
