"""The order of filters: the one that answers stands last, and no other does."""

from __future__ import annotations

from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk
from fsxds.rules.extension_types import TYPES

_RULE = "filter-order"
_NETWORK, _HTTP = "envoy.extensions.filters.network.", "envoy.extensions.filters.http."

# Found by asking Envoy 1.40. Of filters that stand in neither list, nothing is said.
TERMINAL_NETWORK_FILTERS = frozenset(
    _NETWORK + name
    for name in (
        "tcp_proxy.v3.TcpProxy",
        "http_connection_manager.v3.HttpConnectionManager",
        "echo.v3.Echo",
        "direct_response.v3.Config",
        "redis_proxy.v3.RedisProxy",
        "thrift_proxy.v3.ThriftProxy",
        "dubbo_proxy.v3.DubboProxy",
        "generic_proxy.v3.GenericProxy",
    )
)
OTHER_NETWORK_FILTERS = frozenset(
    _NETWORK + name
    for name in (
        "connection_limit.v3.ConnectionLimit",
        "ext_authz.v3.ExtAuthz",
        "local_ratelimit.v3.LocalRateLimit",
        "mongo_proxy.v3.MongoProxy",
        "ratelimit.v3.RateLimit",
        "rbac.v3.RBAC",
        "set_filter_state.v3.Config",
        "sni_cluster.v3.SniCluster",
        "sni_dynamic_forward_proxy.v3.FilterConfig",
        "zookeeper_proxy.v3.ZooKeeperProxy",
    )
)
_CODEC = _HTTP + "upstream_codec.v3.UpstreamCodec"
TERMINAL_HTTP_FILTERS = frozenset({_HTTP + "router.v3.Router"})
OTHER_HTTP_FILTERS = frozenset(
    _HTTP + name
    for name in (
        "adaptive_concurrency.v3.AdaptiveConcurrency",
        "admission_control.v3.AdmissionControl",
        "api_key_auth.v3.ApiKeyAuth",
        "bandwidth_limit.v3.BandwidthLimit",
        "basic_auth.v3.BasicAuth",
        "buffer.v3.Buffer",
        "cache.v3.CacheConfig",
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
        "grpc_http1_bridge.v3.Config",
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
        "rate_limit_quota.v3.RateLimitQuotaFilterConfig",
        "ratelimit.v3.RateLimit",
        "rbac.v3.RBAC",
        "set_filter_state.v3.Config",
        "set_metadata.v3.Config",
        "stateful_session.v3.StatefulSession",
        "tap.v3.Tap",
    )
)


def hooks(_: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over the order of filters."""
    manager = _NETWORK + "http_connection_manager.v3.HttpConnectionManager"
    return {
        "envoy.config.listener.v3.FilterChain": (_check_network_filters,),
        manager: (_check_http_filters,),
        manager + ".UpgradeConfig": (_check_upgrade_filters,),
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": (_check_upstream_filters("http_filters"),),
        _HTTP + "router.v3.Router": (_check_upstream_filters("upstream_http_filters"),),
    }


def _check_network_filters(chain: Any, path: Path, walk: Walk) -> None:
    _check_order(chain.filters, (path, "filters"), walk, TERMINAL_NETWORK_FILTERS, OTHER_NETWORK_FILTERS)


def _check_http_filters(manager: Any, path: Path, walk: Walk) -> None:
    filters = manager.http_filters
    _check_order(filters, (path, "http_filters"), walk, TERMINAL_HTTP_FILTERS, OTHER_HTTP_FILTERS)
    if filters and filters[-1].disabled:
        place = (((path, "http_filters"), len(filters) - 1), "disabled")
        walk.tell(place, _RULE, "the last filter cannot be disabled", "remove it")


def _check_upgrade_filters(config: Any, path: Path, walk: Walk) -> None:
    _check_order(config.filters, (path, "filters"), walk, TERMINAL_HTTP_FILTERS, OTHER_HTTP_FILTERS)


def _check_upstream_filters(field: str) -> Hook:
    """Make the rule over the filters of one side towards an upstream: the codec stands last, and only there."""

    def check_upstream_filters(message: Any, path: Path, walk: Walk) -> None:
        filters = getattr(message, field)
        last = len(filters) - 1
        for index, one in enumerate(filters):
            name = one.typed_config.type_url.rpartition("/")[2]
            place: Path = ((path, field), index)
            if index == last and name != _CODEC and name in TYPES["envoy.filters.http.upstream"]:
                message_text = "the last filter towards an upstream must be the codec"
                walk.tell(place, _RULE, message_text, f"add one of {_CODEC} behind it")
            elif index == last and one.disabled:
                walk.tell((place, "disabled"), _RULE, "the last filter cannot be disabled", "remove it")
            elif index < last and name == _CODEC:
                walk.tell(place, _RULE, "no filter may follow the codec", "move it to the end, and keep one of it")

    return check_upstream_filters


def _check_order(filters: Any, path: Path, walk: Walk, terminal: frozenset[str], other: frozenset[str]) -> None:
    last = len(filters) - 1
    for index, one in enumerate(filters):
        name = one.typed_config.type_url.rpartition("/")[2]
        if index < last:
            if name in terminal:
                message = f'"{one.name}" answers by itself: no filter may follow it'
                walk.tell((path, index), _RULE, message, "move it to the end, and keep one such filter")
        elif name in other:
            example = "envoy.filters.http.router" if terminal is TERMINAL_HTTP_FILTERS else "tcp_proxy"
            message = f'"{one.name}" only passes on: it cannot be the last filter'
            walk.tell((path, index), _RULE, message, f"end with a filter that answers, such as {example}")
