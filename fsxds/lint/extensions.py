"""Extensions at the places where they are configured: whether one of this type can stand there.

Where messages configure extensions, and of which category.

What a route says to the filters: settings of a type that is made for routes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Hooks, Leave, Path, Walk
from fsxds.snapshots.references import TYPED_STRUCTS


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

# Of these packages nothing is an extension by itself, in whatever Envoy.
_PLAIN_PACKAGES = (
    "google.protobuf.",
    "envoy.config.core.",
    "envoy.config.route.",
    "envoy.config.cluster.",
    "envoy.config.listener.",
    "envoy.config.endpoint.",
    "envoy.config.rbac.",
    "envoy.data.",
    "envoy.service.",
    "envoy.type.",
    "envoy.extensions.matching.",
    "envoy.extensions.transport_sockets.tls.v3.",
    "envoy.extensions.filters.common.matcher.action.",
    "envoy.extensions.filters.http.composite.v3.ExecuteFilterAction",
)
_DNS_TYPES = (1, 2)  # STRICT_DNS, LOGICAL_DNS
_UDP = 1  # envoy.config.core.v3.SocketAddress.Protocol


def extensions_hooks(catalogue: Catalogue) -> Hooks:
    """Return the rules over extensions."""
    rules = ExtensionRules(catalogue)
    found: defaultdict[str, tuple[Hook, ...]] = defaultdict(tuple)
    for message_type, places in PLACES.items():
        for place in places:
            found[f"{message_type}.{place.field}"] += (rules.at(place),)
    for holder, category in PACKED.items():
        found[holder] += (rules.packed(category),)
    found["envoy.config.listener.v3.Listener"] += (rules.check_listener_filters,)
    found["envoy.config.cluster.v3.Cluster.TransportSocketMatch"] += (_check_socket,)
    found["envoy.config.route.v3.ClusterSpecifierPlugin"] += (rules.check_plugin,)
    found["envoy.config.cluster.v3.Cluster"] += (rules.check_dns_resolver,)
    found["envoy.config.cluster.v3.LoadBalancingPolicy"] += (rules.check_policies,)
    found["envoy.config.core.v3.TypedExtensionConfig"] += (rules.check_discovered,)
    return dict(found)


class ExtensionTypes:
    """Knows which message types are extensions of which categories, as far as that is known at all."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._features = catalogue.features

    def fits(self, name: str, categories: Iterable[str]) -> bool:
        """Tell whether a type may be an extension of these categories."""
        features = self._features
        if features is None or any(name in features.types(category) for category in categories):
            return True
        if name in features.known:
            return False
        is_open = name in TYPED_STRUCTS or name in features.foreign or ".v3alpha." in name
        if is_open or not self._catalogue.knows(name):
            return True
        # Another Envoy than the one that is known may have this one.
        return not features.is_exact and not name.startswith(_PLAIN_PACKAGES)

    def is_of(self, name: str, category: str) -> bool:
        """Tell whether a type is an extension of a category; True where nothing is known of that."""
        return self._features is None or name in self._features.types(category)

    def remedy(self, name: str, categories: Iterable[str]) -> str:
        """Say which type is probably meant where `name` does not fit."""
        last = name.rpartition(".")[2]
        near = _opposite(last)
        types = [one for category in categories for one in sorted(self._of(category))]
        for candidate in types:
            if candidate.rpartition(".")[2] in {last, near}:
                return f"perhaps {candidate} is meant"
        return f"write one of its types, such as {types[0]}" if types else "remove it: this Envoy has none"

    def name_fault(self, name: str, message_type: str, category: str) -> str | None:
        """Tell what is wrong with an extension that Envoy looks up by its name."""
        named = self._features.extensions.get(category, {}) if self._features is not None else {}
        if not named:
            return None
        if name not in named:
            return f'Envoy goes by the name here, and has no extension "{name}" among {", ".join(sorted(named))}'
        if message_type and message_type not in named[name]:
            return f'Envoy goes by the name here, and "{name}" is configured by {" or ".join(named[name])}'
        return None

    def _of(self, category: str) -> frozenset[str]:
        return self._features.types(category) if self._features is not None else frozenset()


class ExtensionRules:
    """Knows what a type URL stands for at each kind of place."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._types = ExtensionTypes(catalogue)
        self._structs: dict[str, type[Message]] = {
            name: catalogue.message_class(name) for name in TYPED_STRUCTS if catalogue.knows(name)
        }

    def at(self, place: Place) -> Hook:
        """Return the rule over the field of a place."""

        def check_list(extensions: Any, path: Path, walk: Walk) -> None:
            for index, extension in enumerate(extensions):
                self._check(extension, place.category, (path, index), walk)

        def check_one(extension: Any, path: Path, walk: Walk) -> None:
            self._check(extension, place.category, path, walk)
            if not place.is_named:
                return
            content = self._content_type(extension.typed_config)
            fault = self._types.name_fault(extension.name, content, place.category)
            if fault is not None:
                walk.error((path, "name"), "wrong-extension", fault, "write one of these names")

        return check_list if place.is_repeated else check_one

    def packed(self, category: str) -> Hook:
        """Return the rule over a field that holds an extension without a name."""

        def check_packed(packed: Any, path: Path, walk: Walk) -> None:
            name = self._content_type(packed)
            if name and not self._types.fits(name, (category,)):
                message = f"{name} cannot stand here: it is no extension of {category}"
                walk.error(path, "wrong-extension", message, self._types.remedy(name, (category,)))

        return check_packed

    def check_listener_filters(self, listener: Any, path: Path, walk: Walk) -> None:
        """Check the filters of a listener: those of UDP are others than those of TCP."""
        if not listener.listener_filters:
            return
        category = "envoy.filters.listener"
        if listener.address.socket_address.protocol == _UDP:
            if listener.udp_listener_config.HasField("quic_options"):
                return
            category = "envoy.filters.udp_listener"
        for index, extension in enumerate(listener.listener_filters):
            self._check(extension, category, ((path, "listener_filters"), index), walk)

    def check_dns_resolver(self, cluster: Any, path: Path, walk: Walk) -> None:
        """Check the resolver of a cluster; one that looks up no names does not look at it."""
        if cluster.type in _DNS_TYPES and cluster.HasField("typed_dns_resolver_config"):
            place = (path, "typed_dns_resolver_config")
            self._check(cluster.typed_dns_resolver_config, "envoy.network.dns_resolver", place, walk)

    def check_plugin(self, plugin: Any, path: Path, walk: Walk) -> None:
        """Check a plugin that chooses clusters, unless it may be unknown."""
        if not plugin.is_optional:
            self._check(plugin.extension, "envoy.router.cluster_specifier_plugin", (path, "extension"), walk)

    def check_policies(self, policy: Any, path: Path, walk: Walk) -> None:
        """Check that Envoy will know one of the policies: it takes the first that it knows."""
        wrong = None
        for index, one in enumerate(policy.policies):
            if not one.HasField("typed_extension_config"):
                continue
            name = self._content_type(one.typed_extension_config.typed_config)
            if self._types.fits(name, ("envoy.load_balancing_policies",)):
                return
            wrong = index, name
        if wrong is not None and wrong[1]:
            place = ((((path, "policies"), wrong[0]), "typed_extension_config"), "typed_config")
            walk.error(place, "wrong-extension", f"{wrong[1]} is not a load balancing policy", "write a type that is")

    def check_discovered(self, extension: Any, path: Path, walk: Walk) -> None:
        """Check an extension that is served on its own: only filters are."""
        if path is None:
            categories = "envoy.filters.http envoy.filters.http.upstream envoy.filters.network envoy.filters.listener"
            more = "envoy.filters.udp.session envoy.filters.udp_listener"
            self._check(extension, f"{categories} {more}", None, walk)

    def _check(self, extension: Any, category: str, path: Path, walk: Walk) -> None:
        packed = extension.typed_config
        if packed.type_url:
            name = self._content_type(packed)
            if getattr(extension, "is_optional", False):
                return
            if not name:
                remedy = "write the type of the extension, with type.googleapis.com/ in front"
                walk.error(((path, "typed_config"), "type_url"), "wrong-extension", "says no type", remedy)
            elif not self._types.fits(name, category.split()):
                message = f"{name} cannot stand here: it is no extension of {' or '.join(category.split()[:2])}"
                walk.error(
                    (path, "typed_config"), "wrong-extension", message, self._types.remedy(name, category.split())
                )
        elif extension.DESCRIPTOR.name in {"TypedExtensionConfig", "RequestIDExtension"} or _is_discovered(extension):
            return  # told by the field rules, or nothing that Envoy needs
        elif not getattr(extension, "is_optional", False):
            remedy = 'add typed_config, with the "@type" of the extension; Envoy does not go by the name'
            walk.error((path, "typed_config"), "wrong-extension", "is missing", remedy)

    def _content_type(self, packed: Any) -> str:
        """Return the type of what is in an Any, that of its content for a TypedStruct; "" for one that is not known."""
        name: str = packed.type_url.rpartition("/")[2]
        struct = self._structs.get(name)
        if struct is None:
            return name
        try:
            content: Any = struct.FromString(packed.value)
        except DecodeError:
            return name  # told elsewhere
        inner: str = content.type_url.rpartition("/")[2]
        return inner


def _check_socket(match: Any, path: Path, walk: Walk) -> None:
    if not match.HasField("transport_socket"):
        walk.error(
            (path, "transport_socket"),
            "wrong-extension",
            "is missing",
            "say which transport socket a matching endpoint has",
        )


def _is_discovered(extension: Any) -> bool:
    return any(field.name == "config_discovery" for field, _ in extension.ListFields())


def _opposite(name: str) -> str:
    if "Downstream" in name:
        return name.replace("Downstream", "Upstream")
    return name.replace("Upstream", "Downstream")


_HTTP_OF_ROUTE_EXTENSIONS = "envoy.extensions.filters.http."
_WRAPPER = "envoy.config.route.v3.FilterConfig"
_CATEGORIES = ("envoy.filters.http",)

# The filters that have one type for themselves and another for routes. Envoy finds the filter by either, and then reads
# what is there as the one that it needs, unless there is nothing in it.
FOR_ROUTES = {
    f"{_HTTP_OF_ROUTE_EXTENSIONS}{name}.v3.{own}": f"{_HTTP_OF_ROUTE_EXTENSIONS}{name}.v3.{of_routes}"
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
    _HTTP_OF_ROUTE_EXTENSIONS + name
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


def route_extensions_hooks(catalogue: Catalogue) -> Hooks:
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
                walk.error(path, "wrong-extension", message, "add config, or disabled: true")
        elif not wrapper.is_optional or wrapper.config.type_url.rpartition("/")[2] in FOR_ROUTES:
            self._check_settings(wrapper.config, (path, "config"), walk)

    def _check_settings(self, packed: Any, path: Path, walk: Walk) -> None:
        name = packed.type_url.rpartition("/")[2]
        if not name and path is not None and path[1] != "config":
            walk.error(
                path, "wrong-extension", "says nothing to the filter", 'add "@type" and the settings, or remove it'
            )
        elif name in _NOT_FOR_ROUTES:
            walk.error(
                path,
                "wrong-extension",
                f"a route has nothing to say to {name}",
                "remove it, or write FilterConfig with disabled",
            )
        elif name in FOR_ROUTES:
            if packed.value:
                walk.error(
                    path, "wrong-extension", f"{name} is for the filter, not for routes", f"write {FOR_ROUTES[name]}"
                )
        elif name and not self._types.fits(name, _CATEGORIES):
            message = f"{name} is not for HTTP filters"
            walk.error(path, "wrong-extension", message, "write the type that a filter has for routes")


def _check_filter(http_filter: Any, path: Path, walk: Walk) -> None:
    packed = http_filter.typed_config
    name = packed.type_url.rpartition("/")[2]
    if packed.value and name in _FOR_FILTERS:
        message = f"{name} is for routes, not for the filter"
        walk.error((path, "typed_config"), "wrong-extension", message, f"write {_FOR_FILTERS[name]}")
