"""Which types each Any of an API may hold.

Envoy reports most (`fsxds.lint.extensions`); the rest is in `_CHECKED` and `_OPEN`. A place is the field that holds
the Any, or a message with the Any, such as a `TypedExtensionConfig`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, SPECIAL_JSON, is_map, map_parts
from fsxds.lint.extensions import extension_facts
from fsxds.lint.matchers import ACTIONS
from fsxds.model.resource_types import BY_MESSAGE_TYPE
from fsxds.snapshots.references import TYPED_STRUCTS
from fsxds.source.envoy_api import packaged_features

ANYTHING = "*"
"""In a place: unlisted types are allowed too."""

_FILTERS = "envoy.filters.http"
_EVERY_INPUT = (
    "envoy.matching.http.input envoy.matching.network.input envoy.matching.common_inputs "
    "envoy.matching.transport_socket.input envoy.matching.generic_proxy_request_input.input"
)
_EVERY_TEST = "envoy.matching.input_matchers envoy.matching.http.custom_matchers envoy.matching.network.custom_matchers"
_EVERY_ACTION = " ".join(("envoy.matching.action envoy.http.custom_response", *sorted(ACTIONS)))
_XDS_MATCHER, _OLD_MATCHER = "xds.type.matcher.v3.Matcher", "envoy.config.common.matcher.v3.Matcher"
_ROUTE, _CLUSTER = "envoy.config.route.v3", "envoy.config.cluster.v3.Cluster"

# Extension categories or message types; no others are allowed in these places.
_CHECKED: Mapping[str, str] = {
    "envoy.config.listener.v3.Listener.listener_filters": "envoy.filters.listener envoy.filters.udp_listener",
    **{
        f"{_ROUTE}.{holder}.typed_per_filter_config": f"{_FILTERS} {_ROUTE}.FilterConfig"
        for holder in ("RouteConfiguration", "VirtualHost", "Route", "WeightedCluster.ClusterWeight")
    },
    f"{_ROUTE}.FilterConfig.config": _FILTERS,
    f"{_ROUTE}.ClusterSpecifierPlugin.extension": "envoy.router.cluster_specifier_plugin",
    f"{_CLUSTER}.typed_extension_protocol_options": (
        "envoy.upstream_options envoy.extensions.filters.network.redis_proxy.v3.RedisProtocolOptions "
        "envoy.extensions.filters.network.thrift_proxy.v3.ThriftProtocolOptions"
    ),
    f"{_CLUSTER}.upstream_config": "envoy.upstreams",
}

# Others are allowed as well: Envoy skips unknown types, or no full list is known.
_OPEN: Mapping[str, str] = {
    **{f"{_ROUTE}.{holder}.route_specifiers": "envoy.router.route_specifiers"
       for holder in ("RouteConfiguration", "VirtualHost", "Route")},
    f"{_ROUTE}.VirtualHost.retry_policy_typed_config": f"{_ROUTE}.RetryPolicy",
    f"{_ROUTE}.RouteAction.retry_policy_typed_config": f"{_ROUTE}.RetryPolicy",
    f"{_CLUSTER}.typed_dns_resolver_config": "envoy.network.dns_resolver",
    f"{_CLUSTER}.QueuingPolicies.pending_rq_policy": "envoy.queue_policy",
    "envoy.config.cluster.v3.LoadBalancingPolicy.Policy.typed_extension_config": "envoy.load_balancing_policies",
    "envoy.config.core.v3.AlternateProtocolsCacheOptions.key_value_store_config":
        "envoy.common.key_value envoy.config.common.key_value.v3.KeyValueStoreConfig",
    "envoy.config.core.v3.ApiConfigSource.config_validators": "envoy.config.validators",
    # Envoy does not check it before it is needed.
    "envoy.config.core.v3.ExtensionConfigSource.default_config": "",
    "envoy.config.core.v3.HttpService.formatters": "envoy.formatter",
    "envoy.config.core.v3.QuicProtocolOptions.client_packet_writer": "envoy.quic.client_packet_writer",
    "envoy.config.core.v3.RetryPolicy.retry_host_predicate": "envoy.retry_host_predicates",
    "envoy.config.core.v3.RetryPolicy.retry_priority": "envoy.retry_priorities",
    "envoy.config.listener.v3.ApiListener.api_listener":
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "envoy.config.listener.v3.UdpListenerConfig.udp_packet_packet_writer_config": "envoy.udp_packet_writer",
    "envoy.extensions.filters.http.ai_protocol_manager.v3.AiProtocolManager.filters": "envoy.http.ai_filters",
    "envoy.extensions.filters.http.composite.v3.FilterChainConfiguration.typed_config": _FILTERS,
    "envoy.extensions.filters.http.compressor.v3.CompressorOverrides.compressor_library":
        "envoy.compression.compressor",
    "envoy.extensions.filters.http.ext_proc.v3.ExtProcOverrides.processing_request_modifier":
        "envoy.http.ext_proc.processing_request_modifiers",
    "envoy.extensions.filters.http.filter_chain.v3.FilterChain.filters": _FILTERS,
    "envoy.extensions.filters.http.header_mutation.v3.Mutations.formatters": "envoy.formatter",
    "envoy.extensions.filters.network.dubbo_proxy.v3.DubboProxy.dubbo_filters": "envoy.dubbo_proxy.filters",
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.TunnelingConfig.formatters": "envoy.formatter",
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.UdpTunnelingConfig.formatters": "envoy.formatter",
    "envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig.resource_detectors":
        "envoy.tracers.opentelemetry.resource_detectors",
    "envoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config.certificate_mapper":
        "envoy.tls.certificate_mappers envoy.tls.upstream_certificate_mappers",
    **{f"{matcher}.{field}": words
       for matcher in (_XDS_MATCHER, _OLD_MATCHER)
       for field, words in (
           ("MatcherTree.input", _EVERY_INPUT), ("MatcherTree.custom_match", _EVERY_TEST),
           ("MatcherList.Predicate.SinglePredicate.input", _EVERY_INPUT),
           ("MatcherList.Predicate.SinglePredicate.custom_match", _EVERY_TEST),
           ("OnMatch.action", _EVERY_ACTION))},
}  # fmt: skip

# Packages whose messages, `_PLAIN` ones apart, are never packed in a configuration: of services, and options.
_NEVER_PACKED = (
    "google.protobuf.", "envoy.admin.", "envoy.annotations.", "envoy.service.", "google.api.", "google.rpc.", "grpc.channelz.",
    "grpc.health.", "io.prometheus.", "opentelemetry.", "pb.", "skywalking.", "tcmalloc.", "udpa.annotations.",
    "validate.", "xds.annotations.", "xds.service.", "zipkin.",
)  # fmt: skip
_PLAIN = frozenset({*SPECIAL_JSON, "google.protobuf.Empty"})

DISCOVERED = (
    "envoy.filters.http envoy.filters.http.upstream envoy.filters.listener envoy.filters.network "
    "envoy.filters.udp.session envoy.filters.udp_listener"
)
"""The place of an extension served as a resource: only filters are."""

Place = tuple[str, ...]
"""Extension categories, message types, and ANYTHING; sorted."""


def packable_types(catalogue: Catalogue) -> tuple[str, ...]:
    """Return the packable types, sorted."""
    extensions = (catalogue.features or packaged_features()).known
    names = {one.full_name for one in catalogue.descriptors() if one.full_name in extensions}
    for name in (one.full_name for one in catalogue.descriptors() if one.containing_type is None):
        if name in _PLAIN or not name.startswith(_NEVER_PACKED):
            names.add(name)
    return tuple(sorted(names))


class PackedTypes:
    """Knows the types of each place, as far as known of this Envoy."""

    def __init__(self, catalogue: Catalogue, chosen: Collection[str] = ()) -> None:
        """If given, only the `chosen` types may be packed."""
        self._catalogue = catalogue
        self._features = catalogue.features or packaged_features()
        # Without facts about exactly this Envoy, it may have other extensions.
        self._is_sure = catalogue.features is not None and catalogue.features.is_exact
        self._chosen = frozenset(chosen)
        facts = extension_facts()
        checked = {**facts.extension_points, **facts.packed, **_CHECKED}
        self._places = {field: self._place(words) for field, words in checked.items()}
        self._places |= {field: self._place(f"{ANYTHING} {words}") for field, words in _OPEN.items()}

        words = {word for place in self._places.values() for word in place}
        self._typed = {
            *BY_MESSAGE_TYPE,
            *self.types_of_all_places(),
            *(name for word in words for name in self.types(word)),
        }

        self._ends = Counter(end for name in packable_types(catalogue) for end in ends_of(name))

    @property
    def is_chosen(self) -> bool:
        """Whether the types are restricted to `chosen`."""
        return bool(self._chosen)

    def _place(self, words: str) -> Place:
        return tuple(sorted({*words.split(), *(() if self._is_sure else (ANYTHING,))}))

    def place_of(self, field: FieldDescriptor, holder: Place) -> Place:
        """Return the field's place, else its holder's."""
        return self._places.get(field.full_name, holder)

    def end_of(self, message_type: str) -> str:
        """Return the shortest dot-separated suffix of this packable type alone."""
        return next((end for end in ends_of(message_type) if self._ends[end] == 1), message_type)

    def is_typed(self, message_type: str) -> bool:
        """Return whether a message may have an "@type"."""
        return message_type in self._typed

    def is_holder(self, descriptor: Descriptor) -> bool:
        """Return whether allowed types depend on the holder."""
        return any(is_packed(field) and field.full_name not in self._places for field in descriptor.fields)

    def place_of_discovered(self) -> Place:
        """Return the place of served extensions."""
        return self._place(DISCOVERED)

    def types(self, word: str) -> tuple[str, ...]:
        """Return a word's message types, sorted."""
        if word == ANYTHING:
            found: Iterable[str] = self._chosen or _PLAIN - {ANY}
        else:
            found = self._features.types(word) or {word}
        return self._kept(found)

    def types_of_all_places(self) -> tuple[str, ...]:
        """Return typed structs, and types that no known Envoy has."""
        return self._kept({*TYPED_STRUCTS, *self._features.foreign})

    def _kept(self, names: Iterable[str]) -> tuple[str, ...]:
        kept = self._chosen & set(names) if self._chosen else names
        return tuple(sorted(name for name in kept if self._catalogue.knows(name)))


def ends_of(name: str) -> Iterator[str]:
    """Yield dot-separated suffixes, the shortest first."""
    parts = name.split(".")
    return (".".join(parts[-count:]) for count in range(1, len(parts) + 1))


def is_packed(field: FieldDescriptor) -> bool:
    """Return whether a field holds Anys."""
    held = map_parts(field)[1].message_type if is_map(field) else field.message_type
    return held is not None and held.full_name == ANY
