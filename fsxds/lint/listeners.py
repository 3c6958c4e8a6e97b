"""Listeners: addresses, filter chains, and HTTP connection managers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Hashable, Iterable
from itertools import product
from math import prod

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.walk import Hooks, Leave, Path, Walk, ip_version
from fsxds.lint.field_values import packed_type, repeated

# With more combinations of chain matches, a listener is not checked for duplicates.
_MOST_COMBINATIONS = 20_000

_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_SCOPES = "envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes"
_QUIC = "envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport"
_UDP = 1  # envoy.config.core.v3.SocketAddress.Protocol
_HTTP3 = 3  # HttpConnectionManager.CodecType


def hooks(_: Catalogue) -> Hooks:
    """Return the checks of listeners and connection managers."""
    codecs = _Codecs()
    return {
        "envoy.config.listener.v3.Listener": (
            _check_addresses,
            _check_filter_chains,
            _check_chains,
            codecs.enter_listener,
        ),
        "envoy.config.listener.v3.FilterChainMatch": (_check_match,),
        _MANAGER: (codecs.check_manager,),
        _SCOPES: (_check_scopes,),
        f"{_SCOPES}.ScopeKeyBuilder.FragmentBuilder.HeaderValueExtractor": (_check_extractor,),
        "envoy.config.core.v3.ExtensionConfigSource": (_check_discovery,),
        "envoy.config.trace.v3.XRayConfig": (_check_xray,),
        "envoy.config.trace.v3.ZipkinConfig": (_check_zipkin,),
    }


def _check_addresses(listener: DynamicMessage, path: Path, walk: Walk) -> None:
    if listener.WhichOneof("listener_specifier") == "internal_listener":
        if listener.HasField("address"):
            message = "a listener has an address or is internal, not both"
            walk.error((path, "address"), "wrong-listener", message, "remove the address, or internal_listener")
        return
    if listener.address.WhichOneof("address") == "envoy_internal_address":
        message = "an internal listener has no address"
        walk.error((path, "address"), "wrong-listener", message, "write internal_listener: {} in its place")
    if path is None and not listener.HasField("address") and not listener.HasField("api_listener"):
        walk.error((path, "address"), "wrong-address", "is missing", "add an address, or internal_listener: {}")
    main = listener.address.socket_address
    _check_compatible(main, ((path, "address"), "socket_address"), walk)
    for index, more in enumerate(listener.additional_addresses):
        place: Path = ((path, "additional_addresses"), index)
        other = more.address.socket_address
        _check_compatible(other, ((place, "address"), "socket_address"), walk)
        chosen = more.address.WhichOneof("address")
        if chosen is None:
            walk.error(place, "wrong-address", "has no address", "write one, or remove it: Envoy crashes here")
        elif chosen == "socket_address" and _is_datagram(other) != _is_datagram(main):
            message = "all addresses of a listener are TCP, or all are UDP"
            remedy = "write a listener of its own for the other protocol"
            walk.error((place, "address"), "wrong-listener", message, remedy)


def _is_datagram(socket: DynamicMessage) -> bool:
    return bool(socket.protocol == _UDP)


def _check_compatible(socket: DynamicMessage, path: Path, walk: Walk) -> None:
    if not socket.ipv4_compat or ip_version(socket.address) is None:
        return
    address = ipaddress.ip_address(socket.address)
    if address.version == 4 or not (address.is_unspecified or address.ipv4_mapped):
        message = 'ipv4_compat is for the address "::" and for IPv4-mapped IPv6 addresses'
        walk.error((path, "ipv4_compat"), "wrong-address", message, "remove it, or listen on ::")


def _check_filter_chains(listener: DynamicMessage, path: Path, walk: Walk) -> None:
    chains = listener.filter_chains
    if not _is_datagram(listener.address.socket_address):
        is_open = listener.HasField("api_listener") or listener.HasField("fcds_config")
        if not chains and not listener.HasField("default_filter_chain") and not is_open:
            message = "a listener needs a filter chain"
            walk.error((path, "filter_chains"), "filter-chain", message, "add filter_chains, or default_filter_chain")
        elif not is_open and all(not chain.filters for chain in chains) and not listener.default_filter_chain.filters:
            message = "no filter chain has a filter, so that every connection is closed at once"
            walk.warning((path, "filter_chains"), "filter-chain", message, "add a filter")
    elif listener.udp_listener_config.HasField("quic_options"):
        if not chains and not listener.HasField("default_filter_chain"):
            message = "a QUIC listener needs a filter chain"
            walk.error((path, "filter_chains"), "filter-chain", message, "add filter_chains")
        for index, chain in enumerate(chains):
            if not chain.HasField("transport_socket"):
                message = "a filter chain of a QUIC listener needs a transport_socket"
                remedy = "add one of envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport"
                walk.error((((path, "filter_chains"), index)), "filter-chain", message, remedy)
    elif chains:
        message = "a UDP listener without QUIC has no filter chains"
        walk.error((path, "filter_chains"), "filter-chain", message, "write its filters under listener_filters")


class _Codecs:
    """Whether the walked listener uses QUIC, which allows only HTTP/3."""

    def __init__(self) -> None:
        self._is_quic: bool | None = None

    def enter_listener(self, listener: DynamicMessage, path: Path, walk: Walk) -> Leave | None:
        if path is not None:
            return None
        self._is_quic = listener.udp_listener_config.HasField("quic_options")
        if not self._is_quic:
            return self._leave_listener
        if not _is_datagram(listener.address.socket_address):
            message = "the listener has quic_options, and listens on TCP"
            walk.warning((path, "address"), "wrong-listener", message, "write protocol: UDP into its socket_address")
        else:
            for index, chain in enumerate(listener.filter_chains):
                _check_quic_chain(chain, ((path, "filter_chains"), index), walk)
            if listener.HasField("default_filter_chain"):
                _check_quic_chain(listener.default_filter_chain, (path, "default_filter_chain"), walk)
        return self._leave_listener

    def _leave_listener(self) -> None:
        self._is_quic = None

    def check_manager(self, manager: DynamicMessage, path: Path, walk: Walk) -> None:
        walk.depend_on_place()
        if self._is_quic is None or self._is_quic == (manager.codec_type == _HTTP3):
            return
        message = "a QUIC listener uses HTTP/3" if self._is_quic else "HTTP/3 needs a QUIC listener"
        remedy = "write codec_type: HTTP3" if self._is_quic else "choose another codec_type, or give it quic_options"
        walk.error((path, "codec_type"), "wrong-listener", message, remedy)


def _check_quic_chain(chain: DynamicMessage, path: Path, walk: Walk) -> None:
    socket = packed_type(chain.transport_socket.typed_config)
    if socket and socket != _QUIC and not socket.endswith(".TypedStruct"):
        message = f"a filter chain of a QUIC listener has no {socket}"
        walk.error((path, "transport_socket"), "filter-chain", message, f"write one of {_QUIC}")
    last = packed_type(chain.filters[-1].typed_config) if chain.filters else ""
    if last and last != _MANAGER and not last.endswith((".TypedStruct", "HttpConnectionManager")):
        message = "a filter chain of a QUIC listener ends with an HTTP connection manager"
        walk.error((path, "filters"), "filter-chain", message, "write one, with codec_type: HTTP3")


def _check_match(match: DynamicMessage, path: Path, walk: Walk) -> None:
    for field in ("address_suffix", "suffix_len"):
        if match.address_suffix if field == "address_suffix" else match.HasField(field):
            walk.error((path, field), "filter-chain", "Envoy does not implement it", "remove it, or use prefix_ranges")
    for index, name in enumerate(match.server_names):
        if "*" in name and "*" in name.removeprefix("*.") and not name.startswith("*."):
            place = ((path, "server_names"), index)
            remedy = 'write a whole name, or "*." and the rest of one'
            walk.error(place, "filter-chain", "is a partial wildcard", remedy)


def _check_chains(listener: DynamicMessage, path: Path, walk: Walk) -> None:
    chains = listener.filter_chains
    if listener.HasField("filter_chain_matcher"):
        _check_names(chains, (path, "filter_chains"), walk)
    elif len(chains) > 1 or (chains and chains[0].HasField("filter_chain_match")):
        _check_matches(chains, (path, "filter_chains"), walk)


def _check_names(chains: DynamicMessage, path: Path, walk: Walk) -> None:
    again = {*repeated(chain.name for chain in chains)}
    for index, chain in enumerate(chains):
        fact = None
        if not chain.name:
            fact = "a filter chain needs a name if filter_chain_matcher chooses by name"
        elif index in again:
            fact = f'"{chain.name}" is the name of two filter chains, and filter_chain_matcher chooses by it'
        if fact is not None:
            walk.error(((path, index), "name"), "filter-chain", fact, "give it a name of its own")


def _check_matches(chains: DynamicMessage, path: Path, walk: Walk) -> None:
    dimensions: list[tuple[list[Hashable], ...]] = [
        (
            [match.destination_port.value if match.HasField("destination_port") else None],
            _networks(match.prefix_ranges),
            [re.sub(r"^\*\.", ".", name.lower()) for name in match.server_names] or [""],
            [match.transport_protocol],
            list(match.application_protocols) or [""],
            _networks(match.direct_source_prefix_ranges),
            [match.source_type],
            _networks(match.source_prefix_ranges),
            list(match.source_ports) or [0],
        )
        for match in (chain.filter_chain_match for chain in chains)
    ]
    if sum(prod(map(len, one)) for one in dimensions) > _MOST_COMBINATIONS:
        return
    owners: dict[tuple[Hashable, ...], int] = {}
    for index, one in enumerate(dimensions):
        for combination in product(*one):
            if combination not in owners:
                owners[combination] = index
                continue
            fact = f"matches connections that filter_chains[{owners[combination]}] matches just so"
            if owners[combination] == index:
                fact = "matches the same connections twice"
            remedy = "give each chain a match of its own; letter case, and bits beyond prefix_len, do not count"
            walk.error(((path, index), "filter_chain_match"), "filter-chain", fact, remedy)
            return


def _networks(ranges: Iterable[DynamicMessage]) -> list[Hashable]:
    return [_network(cidr) for cidr in ranges] or [None]


def _network(cidr: DynamicMessage) -> Hashable:
    """An invalid one is itself, and reported elsewhere."""
    try:
        address = ipaddress.ip_address(cidr.address_prefix.partition("%")[0])
    except ValueError:
        return cidr.address_prefix, cidr.prefix_len.value
    length = min(cidr.prefix_len.value, address.max_prefixlen)
    return ipaddress.ip_network((address, length), strict=False)


def _check_scopes(scoped: DynamicMessage, path: Path, walk: Walk) -> None:
    locator = scoped.scoped_rds.srds_resources_locator
    if locator and not locator.startswith(("xdstp:", "http:", "file:")):
        at: Path = ((path, "scoped_rds"), "srds_resources_locator")
        walk.error(at, "wrong-filter", "is no locator", "begin it with xdstp:, http: or file:")
    if scoped.WhichOneof("config_specifier") != "scoped_route_configurations_list":
        return
    place = (path, "scoped_route_configurations_list")
    for index, scope in enumerate(scoped.scoped_route_configurations_list.scoped_route_configurations):
        if scope.route_configuration_name:
            at = (((place, "scoped_route_configurations"), index), "route_configuration_name")
            message = "a scope that is written in the listener cannot name a route configuration"
            remedy = "write the route_configuration itself, or discover scopes by scoped_rds"
            walk.error(at, "wrong-filter", message, remedy)


def _check_discovery(source: DynamicMessage, path: Path, walk: Walk) -> None:
    default = source.default_config if source.HasField("default_config") else None
    if source.apply_default_config_without_warming and default is None:
        message = "there is no default_config to apply"
        walk.error((path, "apply_default_config_without_warming"), "wrong-filter", message, "add default_config")
    if default is not None and default.type_url:
        name = packed_type(default)
        allowed = {type_url.rpartition("/")[2] for type_url in source.type_urls}
        if allowed and name not in allowed and not name.endswith(".TypedStruct"):
            message = f"{name} is not among type_urls"
            walk.error((path, "default_config"), "wrong-filter", message, "add it there, or correct the type")


def _check_extractor(extractor: DynamicMessage, path: Path, walk: Walk) -> None:
    if extractor.index and not extractor.element_separator:
        message = "without an element_separator the value of the header is one element"
        walk.error((path, "index"), "wrong-filter", message, "write 0, or an element_separator")


def _check_xray(config: DynamicMessage, path: Path, walk: Walk) -> None:
    daemon, place = config.daemon_endpoint, (path, "daemon_endpoint")
    if daemon.protocol != _UDP:
        walk.error(place, "wrong-filter", "the X-Ray daemon listens on UDP", "write protocol: UDP")
    elif daemon.named_port:
        walk.error((place, "named_port"), "wrong-filter", "ports cannot be named here", "write it as port_value")
    elif ip_version(daemon.address) != 4:
        walk.error((place, "address"), "wrong-filter", "is not an IPv4 address: Envoy crashes", "write such an address")


def _check_zipkin(config: DynamicMessage, path: Path, walk: Walk) -> None:
    if any(field.name == "collector_service" for field, _ in config.ListFields()):
        return
    for field in ("collector_cluster", "collector_endpoint"):
        if not getattr(config, field):
            walk.error((path, field), "wrong-filter", "is missing", "add it, or a collector_service")
