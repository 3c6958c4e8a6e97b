"""The order of filters: the one that answers stands last, and no other does."""

from __future__ import annotations

from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk

_RULE = "filter-order"
_NETWORK, _HTTP = "envoy.extensions.filters.network.", "envoy.extensions.filters.http."

_UPSTREAM = "envoy.filters.http.upstream"
_CODEC = _HTTP + "upstream_codec.v3.UpstreamCodec"

# An Envoy that is asked what it has tells this only of filters that it makes without settings; these need some. Of filters
# of which nothing is known, nothing is said.
_TERMINAL = (
    _HTTP + "router.v3.Router",
    *(
        _NETWORK + name
        for name in (
            "tcp_proxy.v3.TcpProxy",
            "http_connection_manager.v3.HttpConnectionManager",
            "echo.v3.Echo",
            "direct_response.v3.Config",
            "redis_proxy.v3.RedisProxy",
            "reverse_tunnel.v3.DrainAwareHttpConnectionManager",
            "reverse_tunnel.v3.ReverseTunnel",
            "thrift_proxy.v3.ThriftProxy",
            "dubbo_proxy.v3.DubboProxy",
            "generic_proxy.v3.GenericProxy",
        )
    ),
)
_OTHER = (
    *(
        _NETWORK + name
        for name in (
            "connection_limit.v3.ConnectionLimit",
            "ext_authz.v3.ExtAuthz",
            "ext_proc.v3.NetworkExternalProcessor",
            "geoip.v3.Geoip",
            "local_ratelimit.v3.LocalRateLimit",
            "mongo_proxy.v3.MongoProxy",
            "ratelimit.v3.RateLimit",
            "rbac.v3.RBAC",
            "set_filter_state.v3.Config",
            "sni_cluster.v3.SniCluster",
            "sni_dynamic_forward_proxy.v3.FilterConfig",
            "tcp_bandwidth_limit.v3.TcpBandwidthLimit",
            "zookeeper_proxy.v3.ZooKeeperProxy",
        )
    ),
    *(
        _HTTP + name
        for name in (
            "adaptive_concurrency.v3.AdaptiveConcurrency",
            "admission_control.v3.AdmissionControl",
            "api_key_auth.v3.ApiKeyAuth",
            "aws_eventstream_parser.v3.AwsEventstreamParser",
            "aws_lambda.v3.Config",
            "aws_request_signing.v3.AwsRequestSigning",
            "bandwidth_limit.v3.BandwidthLimit",
            "basic_auth.v3.BasicAuth",
            "buffer.v3.Buffer",
            "cache.v3.CacheConfig",
            "cache_v2.v3.CacheV2Config",
            "cdn_loop.v3.CdnLoopConfig",
            "compressor.v3.Compressor",
            "cors.v3.Cors",
            "credential_injector.v3.CredentialInjector",
            "csrf.v3.CsrfPolicy",
            "custom_response.v3.CustomResponse",
            "decompressor.v3.Decompressor",
            "dynamic_forward_proxy.v3.FilterConfig",
            "ext_authz.v3.ExtAuthz",
            "ext_proc.v3.ExternalProcessor",
            "fault.v3.HTTPFault",
            "geoip.v3.Geoip",
            "grpc_field_extraction.v3.GrpcFieldExtractionConfig",
            "grpc_http1_bridge.v3.Config",
            "grpc_http1_reverse_bridge.v3.FilterConfig",
            "grpc_json_reverse_transcoder.v3.GrpcJsonReverseTranscoder",
            "grpc_json_transcoder.v3.GrpcJsonTranscoder",
            "grpc_stats.v3.FilterConfig",
            "grpc_web.v3.GrpcWeb",
            "header_mutation.v3.HeaderMutation",
            "header_to_metadata.v3.Config",
            "health_check.v3.HealthCheck",
            "ip_tagging.v3.IPTagging",
            "json_to_metadata.v3.JsonToMetadata",
            "jwt_authn.v3.JwtAuthentication",
            "local_ratelimit.v3.LocalRateLimit",
            "lua.v3.Lua",
            "oauth2.v3.OAuth2",
            "on_demand.v3.OnDemand",
            "original_src.v3.OriginalSrc",
            "proto_message_extraction.v3.ProtoMessageExtractionConfig",
            "rate_limit_quota.v3.RateLimitQuotaFilterConfig",
            "ratelimit.v3.RateLimit",
            "rbac.v3.RBAC",
            "set_filter_state.v3.Config",
            "set_metadata.v3.Config",
            "sse_to_metadata.v3.SseToMetadata",
            "stateful_session.v3.StatefulSession",
            "tap.v3.Tap",
            "thrift_to_metadata.v3.ThriftToMetadata",
            "wasm.v3.Wasm",
        )
    ),
)
_NEEDS_SETTINGS = dict.fromkeys(_TERMINAL, True) | dict.fromkeys(_OTHER, False)


def hooks(catalogue: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over the order of filters."""
    rules = FilterOrder(catalogue)
    manager = _NETWORK + "http_connection_manager.v3.HttpConnectionManager"
    return {
        "envoy.config.listener.v3.FilterChain": (rules.check_network_filters,),
        manager: (rules.check_http_filters,),
        manager + ".UpgradeConfig": (rules.check_upgrade_filters,),
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": (rules.upstream_filters("http_filters"),),
        _HTTP + "router.v3.Router": (rules.upstream_filters("upstream_http_filters"),),
    }


class FilterOrder:
    """Knows which filters end their chain."""

    def __init__(self, catalogue: Catalogue) -> None:
        features = catalogue.features
        self._terminal = _NEEDS_SETTINGS | dict(features.terminal if features is not None else {})
        self._upstream = features.types(_UPSTREAM) if features is not None else frozenset[str]()

    def check_network_filters(self, chain: Any, path: Path, walk: Walk) -> None:
        """Check the filters of connections."""
        self._check_order(chain.filters, (path, "filters"), walk, "tcp_proxy")

    def check_http_filters(self, manager: Any, path: Path, walk: Walk) -> None:
        """Check the filters of requests."""
        filters = manager.http_filters
        self._check_order(filters, (path, "http_filters"), walk, "envoy.filters.http.router")
        if filters and filters[-1].disabled:
            place = (((path, "http_filters"), len(filters) - 1), "disabled")
            walk.tell(place, _RULE, "the last filter cannot be disabled", "remove it")

    def check_upgrade_filters(self, config: Any, path: Path, walk: Walk) -> None:
        """Check the filters of requests that are upgraded."""
        self._check_order(config.filters, (path, "filters"), walk, "envoy.filters.http.router")

    def upstream_filters(self, field: str) -> Hook:
        """Make the rule over the filters of one side towards an upstream: the codec stands last, and only there."""

        def check_upstream_filters(message: Any, path: Path, walk: Walk) -> None:
            filters = getattr(message, field)
            last = len(filters) - 1
            for index, one in enumerate(filters):
                name = one.typed_config.type_url.rpartition("/")[2]
                place: Path = ((path, field), index)
                if index == last and name != _CODEC and name in self._upstream:
                    message_text = "the last filter towards an upstream must be the codec"
                    walk.tell(place, _RULE, message_text, f"add one of {_CODEC} behind it")
                elif index == last and one.disabled:
                    walk.tell((place, "disabled"), _RULE, "the last filter cannot be disabled", "remove it")
                elif index < last and name == _CODEC:
                    walk.tell(place, _RULE, "no filter may follow the codec", "move it to the end, and keep one of it")

        return check_upstream_filters

    def _check_order(self, filters: Any, path: Path, walk: Walk, example: str) -> None:
        last = len(filters) - 1
        for index, one in enumerate(filters):
            is_terminal = self._terminal.get(one.typed_config.type_url.rpartition("/")[2])
            if index < last and is_terminal:
                message = f'"{one.name}" answers by itself: no filter may follow it'
                walk.tell((path, index), _RULE, message, "move it to the end, and keep one such filter")
            elif index == last and is_terminal is False:
                message = f'"{one.name}" only passes on: it cannot be the last filter'
                walk.tell((path, index), _RULE, message, f"end with a filter that answers, such as {example}")
            elif index == last and self._terminal.get(_default_type(one)) is False:
                place: Path = (((path, index), "config_discovery"), "default_config")
                remedy = f"end with a filter that answers, such as {example}"
                walk.tell(place, _RULE, "only passes on: it cannot be the last filter", remedy)


def _default_type(http_filter: Any) -> str:
    """Return the type that a discovered HTTP filter has at first; "" for other filters."""
    if http_filter.DESCRIPTOR.name != "HttpFilter" or not http_filter.HasField("config_discovery"):
        return ""
    name: str = http_filter.config_discovery.default_config.type_url.rpartition("/")[2]
    return name
