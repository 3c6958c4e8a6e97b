"""What a route says to the filters: settings of a type that is made for routes."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Leave, Path, Walk
from fsxds.rules.extensions import ExtensionTypes

_HTTP = "envoy.extensions.filters.http."
_RULE = "wrong-extension"
_WRAPPER = "envoy.config.route.v3.FilterConfig"
_CATEGORIES = ("envoy.filters.http",)

# The filters that have one type for themselves and another for routes. Envoy finds the filter by either, and then reads
# what is there as the one that it needs, unless there is nothing in it.
FOR_ROUTES = {
    f"{_HTTP}{name}.v3.{own}": f"{_HTTP}{name}.v3.{of_routes}"
    for name, own, of_routes in (
        ("ai_protocol_manager", "AiProtocolManager", "AiProtocolManagerPerRoute"),
        ("api_key_auth", "ApiKeyAuth", "ApiKeyAuthPerRoute"),
        ("aws_lambda", "Config", "PerRouteConfig"),
        ("aws_request_signing", "AwsRequestSigning", "AwsRequestSigningPerRoute"),
        ("basic_auth", "BasicAuth", "BasicAuthPerRoute"),
        ("buffer", "Buffer", "BufferPerRoute"),
        ("composite", "Composite", "CompositePerRoute"),
        ("compressor", "Compressor", "CompressorPerRoute"),
        ("cors", "Cors", "CorsPolicy"),
        ("dynamic_forward_proxy", "FilterConfig", "PerRouteConfig"),
        ("ext_authz", "ExtAuthz", "ExtAuthzPerRoute"),
        ("ext_proc", "ExternalProcessor", "ExtProcPerRoute"),
        ("grpc_http1_reverse_bridge", "FilterConfig", "FilterConfigPerRoute"),
        ("header_mutation", "HeaderMutation", "HeaderMutationPerRoute"),
        ("jwt_authn", "JwtAuthentication", "PerRouteConfig"),
        ("lua", "Lua", "LuaPerRoute"),
        ("oauth2", "OAuth2", "OAuth2PerRoute"),
        ("on_demand", "OnDemand", "PerRouteConfig"),
        ("ratelimit", "RateLimit", "RateLimitPerRoute"),
        ("rbac", "RBAC", "RBACPerRoute"),
        ("stateful_session", "StatefulSession", "StatefulSessionPerRoute"),
    )
}
_FOR_FILTERS = {of_routes: own for own, of_routes in FOR_ROUTES.items()}

# Filters that a route has nothing to say to.
_NOT_FOR_ROUTES = frozenset(
    _HTTP + name
    for name in (
        "a2a.v3.A2a",
        "alternate_protocols_cache.v3.FilterConfig",
        "body_size_limit.v3.BodySizeLimit",
        "cache.v3.CacheConfig",
        "cache_v2.v3.CacheV2Config",
        "connect_grpc_bridge.v3.FilterConfig",
        "gcp_authn.v3.GcpAuthnFilterConfig",
        "grpc_http1_bridge.v3.Config",
        "grpc_stats.v3.FilterConfig",
        "grpc_web.v3.GrpcWeb",
        "health_check.v3.HealthCheck",
        "ip_tagging.v3.IPTagging",
        "original_src.v3.OriginalSrc",
        "router.v3.Router",
        "tap.v3.Tap",
        "wasm.v3.Wasm",
    )
)
_HOLDERS = (
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.config.route.v3.VirtualHost",
    "envoy.config.route.v3.Route",
    "envoy.config.route.v3.WeightedCluster.ClusterWeight",
)


def hooks(catalogue: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over what routes say to filters."""
    rules = RouteExtensions(catalogue)
    found: dict[str, tuple[Hook, ...]] = dict.fromkeys(
        (f"{holder}.typed_per_filter_config" for holder in _HOLDERS), (rules.check_all,)
    )
    found["envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter"] = (_check_filter,)
    found[_WRAPPER] = (rules.enter_wrapper,)
    return found


class RouteExtensions:
    """Checks settings for filters, also within a FilterConfig."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._types = ExtensionTypes(catalogue)
        self._wrapper: type[Message] | None = catalogue.message_class(_WRAPPER) if catalogue.knows(_WRAPPER) else None

    def check_all(self, settings: Any, path: Path, walk: Walk) -> None:
        """Check the settings of a route, of what holds it, or of a weighted cluster, by the names of the filters."""
        for name in sorted(settings):
            packed, place = settings[name], (path, name)
            if packed.type_url.rpartition("/")[2] == _WRAPPER and self._wrapper is not None:
                try:
                    wrapper: Any = self._wrapper.FromString(packed.value)
                except DecodeError:
                    continue
                self._check_wrapper(wrapper, place, walk)
            else:
                self._check_settings(packed, place, walk)

    def enter_wrapper(self, wrapper: Any, path: Path, walk: Walk) -> Leave | None:
        """Forget what was found in settings that Envoy does not read: optional ones of no filter that it has."""
        name = wrapper.config.type_url.rpartition("/")[2]
        if not wrapper.is_optional or self._types.is_of(name, _CATEGORIES[0]):
            return None
        count = len(walk.faults)

        def forget() -> None:
            del walk.faults[count:]

        return forget

    def _check_wrapper(self, wrapper: Any, path: Path, walk: Walk) -> None:
        if not wrapper.HasField("config"):
            if wrapper.is_optional and not wrapper.disabled:
                message = "says nothing to the filter"
                walk.tell(path, _RULE, message, "add config, or disabled: true")
        elif not wrapper.is_optional or wrapper.config.type_url.rpartition("/")[2] in FOR_ROUTES:
            self._check_settings(wrapper.config, (path, "config"), walk)

    def _check_settings(self, packed: Any, path: Path, walk: Walk) -> None:
        name = packed.type_url.rpartition("/")[2]
        if not name and path is not None and path[1] != "config":
            walk.tell(path, _RULE, "says nothing to the filter", 'add "@type" and the settings, or remove it')
        elif name in _NOT_FOR_ROUTES:
            walk.tell(
                path, _RULE, f"a route has nothing to say to {name}", "remove it, or write FilterConfig with disabled"
            )
        elif name in FOR_ROUTES:
            if packed.value:
                walk.tell(path, _RULE, f"{name} is for the filter, not for routes", f"write {FOR_ROUTES[name]}")
        elif name and not self._types.fits(name, _CATEGORIES):
            message = f"{name} is not for HTTP filters"
            walk.tell(path, _RULE, message, "write the type that a filter has for routes")


def _check_filter(http_filter: Any, path: Path, walk: Walk) -> None:
    packed = http_filter.typed_config
    name = packed.type_url.rpartition("/")[2]
    if packed.value and name in _FOR_FILTERS:
        message = f"{name} is for routes, not for the filter"
        walk.tell((path, "typed_config"), _RULE, message, f"write {_FOR_FILTERS[name]}")
