"""Listeners beside one another: no two of them may listen at one address."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from fsxds.api.walk import Path

_UDP = 1  # envoy.config.core.v3.SocketAddress.Protocol


def addresses_taken(listener: Any) -> Iterator[tuple[Path, str]]:
    """Yield the places of the addresses of a listener that no other one may have, and what makes them the same."""
    for place, address in _addresses(listener):
        key = _key(address)
        if key is not None:
            yield place, " ".join(filter(None, key))


def _addresses(listener: Any) -> Iterator[tuple[Path, Any]]:
    if listener.HasField("address"):
        yield (None, "address"), listener.address
    for index, more in enumerate(listener.additional_addresses):
        yield (((None, "additional_addresses"), index), "address"), more.address


def _key(address: Any) -> tuple[str, ...] | None:
    """Return what two equal addresses have in common; None for one that cannot be in conflict."""
    chosen = address.WhichOneof("address")
    if chosen == "pipe":
        return (address.pipe.path,)
    if chosen != "socket_address":
        return None
    socket = address.socket_address
    if not socket.port_value:
        return None
    try:
        ip = ipaddress.ip_address(socket.address)
    except ValueError:
        return None
    host = f"[{ip}]" if ip.version == 6 else str(ip)
    network = getattr(socket, "network_namespace_filepath", "")
    return f"{host}:{socket.port_value}", "udp" if socket.protocol == _UDP else "tcp", network
