"""What the parts of a listener must be to one another."""

from __future__ import annotations

from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Leave, Path, Walk
from fsxds.rules.ip_addresses import ip_version

_UDP = 1  # envoy.config.core.v3.SocketAddress.Protocol
_HTTP3 = 3  # HttpConnectionManager.CodecType
_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_QUIC = "envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport"
_RULE = "wrong-listener"
_CHAIN_RULE = "filter-chain"


def hooks(_: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over listeners and their filter chains."""
    codecs = _Codecs()
    return {
        "envoy.config.listener.v3.Listener": (_check_addresses, _check_filter_chains, codecs.enter_listener),
        _MANAGER: (codecs.check_manager,),
        "envoy.config.listener.v3.FilterChainMatch": (_check_match,),
    }


def _check_addresses(listener: Any, path: Path, walk: Walk) -> None:
    if listener.WhichOneof("listener_specifier") == "internal_listener":
        if listener.HasField("address"):
            message = "a listener has an address or is internal, not both"
            walk.tell((path, "address"), _RULE, message, "remove the address, or internal_listener")
        return
    if listener.address.WhichOneof("address") == "envoy_internal_address":
        message = "an internal listener has no address"
        walk.tell((path, "address"), _RULE, message, "write internal_listener: {} in its place")
    if path is None and not listener.HasField("address") and not listener.HasField("api_listener"):
        walk.tell((path, "address"), "wrong-address", "is missing", "add an address, or internal_listener: {}")
    main = listener.address.socket_address
    if main.ipv4_compat:
        place: Path = (((path, "address"), "socket_address"), "ipv4_compat")
        _check_compatible(main.address, place, walk)
    for index, more in enumerate(listener.additional_addresses):
        place = ((path, "additional_addresses"), index)
        other = more.address.socket_address
        chosen = more.address.WhichOneof("address")
        if chosen is None:
            walk.tell(place, "wrong-address", "has no address", "write one, or remove it: Envoy crashes here")
        elif chosen == "socket_address" and _is_datagram(other) != _is_datagram(main):
            message = "all addresses of a listener are TCP, or all are UDP"
            walk.tell((place, "address"), _RULE, message, "write a listener of its own for the other protocol")


def _is_datagram(socket: Any) -> bool:
    return bool(socket.protocol == _UDP)


def _check_compatible(address: str, path: Path, walk: Walk) -> None:
    if ip_version(address) == 4:
        message = 'ipv4_compat is for the address "::" and for IPv4-mapped IPv6 addresses'
        walk.tell(path, "wrong-address", message, "remove it: this is an IPv4 address already")


def _check_filter_chains(listener: Any, path: Path, walk: Walk) -> None:
    chains = listener.filter_chains
    if not _is_datagram(listener.address.socket_address):
        is_open = listener.HasField("api_listener") or listener.HasField("fcds_config")
        if not chains and not listener.HasField("default_filter_chain") and not is_open:
            message = "a listener needs a filter chain"
            walk.tell((path, "filter_chains"), _CHAIN_RULE, message, "add filter_chains, or default_filter_chain")
        elif not is_open and all(not chain.filters for chain in chains) and not listener.default_filter_chain.filters:
            message = "no filter chain has a filter, so that every connection is closed at once"
            walk.warn((path, "filter_chains"), _CHAIN_RULE, message, "add a filter")
    elif listener.udp_listener_config.HasField("quic_options"):
        if not chains and not listener.HasField("default_filter_chain"):
            message = "a QUIC listener needs a filter chain"
            walk.tell((path, "filter_chains"), _CHAIN_RULE, message, "add filter_chains")
        for index, chain in enumerate(chains):
            if not chain.HasField("transport_socket"):
                message = "a filter chain of a QUIC listener needs a transport_socket"
                remedy = "add one of envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport"
                walk.tell((((path, "filter_chains"), index)), _CHAIN_RULE, message, remedy)
    elif chains:
        message = "a UDP listener without QUIC has no filter chains"
        walk.tell((path, "filter_chains"), _CHAIN_RULE, message, "write its filters under listener_filters")


class _Codecs:
    """Knows whether the listener that is walked speaks QUIC, whose connections are HTTP/3 and nothing else."""

    def __init__(self) -> None:
        self._is_quic: bool | None = None

    def enter_listener(self, listener: Any, path: Path, walk: Walk) -> Leave | None:
        """Look at a listener, and keep in mind what it speaks until all of it was seen."""
        if path is not None:
            return None
        is_udp = _is_datagram(listener.address.socket_address)
        self._is_quic = is_udp and listener.udp_listener_config.HasField("quic_options")
        if self._is_quic:
            for index, chain in enumerate(listener.filter_chains):
                _check_quic_chain(chain, ((path, "filter_chains"), index), walk)
            if listener.HasField("default_filter_chain"):
                _check_quic_chain(listener.default_filter_chain, (path, "default_filter_chain"), walk)
        return self._leave_listener

    def _leave_listener(self) -> None:
        self._is_quic = None

    def check_manager(self, manager: Any, path: Path, walk: Walk) -> None:
        """Check the codec of an HTTP connection manager."""
        if self._is_quic is None or self._is_quic == (manager.codec_type == _HTTP3):
            return
        message = "a QUIC listener speaks HTTP/3" if self._is_quic else "HTTP/3 needs a QUIC listener"
        remedy = "write codec_type: HTTP3" if self._is_quic else "choose another codec_type, or give it quic_options"
        walk.tell((path, "codec_type"), _RULE, message, remedy)


def _check_quic_chain(chain: Any, path: Path, walk: Walk) -> None:
    socket = chain.transport_socket.typed_config.type_url.rpartition("/")[2]
    if socket and socket != _QUIC and not socket.endswith(".TypedStruct"):
        message = f"a filter chain of a QUIC listener has no {socket}"
        walk.tell((path, "transport_socket"), _CHAIN_RULE, message, f"write one of {_QUIC}")
    last = chain.filters[-1].typed_config.type_url.rpartition("/")[2] if chain.filters else ""
    if last and last != _MANAGER and not last.endswith((".TypedStruct", "HttpConnectionManager")):
        message = "a filter chain of a QUIC listener ends with an HTTP connection manager"
        walk.tell((path, "filters"), _CHAIN_RULE, message, "write one, with codec_type: HTTP3")


def _check_match(match: Any, path: Path, walk: Walk) -> None:
    for field in ("address_suffix", "suffix_len"):
        if match.address_suffix if field == "address_suffix" else match.HasField(field):
            walk.tell((path, field), _CHAIN_RULE, "Envoy does not implement it", "remove it, or use prefix_ranges")
    for index, name in enumerate(match.server_names):
        if "*" in name and "*" in name.removeprefix("*.") and not name.startswith("*."):
            place = ((path, "server_names"), index)
            remedy = 'write a whole name, or "*." and the rest of one'
            walk.tell(place, _CHAIN_RULE, "is a partial wildcard", remedy)
