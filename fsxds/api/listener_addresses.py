"""The addresses of listeners as Envoy compares them, and what an IP address is. Pure. Source: ENVOY.md E56."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from fsxds.api.catalogue import DynamicMessage
from fsxds.api.walk import Path

_UDP = 1  # envoy.config.core.v3.SocketAddress.Protocol
# As inet_pton reads them: four numbers without leading zeros.
_NUMBER = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{3}}")


def addresses_taken(listener: DynamicMessage) -> Iterator[tuple[Path, str]]:
    """Yield the places of the addresses of a listener that no other one may have, and what makes them the same."""
    for place, address in _addresses(listener):
        key = _key(address)
        if key is not None:
            yield place, " ".join(filter(None, key))


def _addresses(listener: DynamicMessage) -> Iterator[tuple[Path, DynamicMessage]]:
    if listener.HasField("address"):
        yield (None, "address"), listener.address
    for index, more in enumerate(listener.additional_addresses):
        yield (((None, "additional_addresses"), index), "address"), more.address


def _key(address: DynamicMessage) -> tuple[str, ...] | None:
    """Return what two equal addresses have in common; None for one that cannot be in conflict."""
    chosen = address.WhichOneof("address")
    if chosen == "pipe":
        return (address.pipe.path,)
    if chosen != "socket_address":
        return None
    socket = address.socket_address
    if not socket.port_value:
        return None
    host = _host(socket.address)
    if host is None:
        return None
    network = getattr(socket, "network_namespace_filepath", "")
    return f"{host}:{socket.port_value}", "udp" if socket.protocol == _UDP else "tcp", network


def _host(address: str) -> str | None:
    """Return an IP address in the one spelling that equal ones have; None for what is none."""
    if ip_version(address) == 4:
        return address  # of which there is one spelling, and `ipaddress` takes its time
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return None
    return f"[{ip}]"


def ip_version(text: str) -> int | None:
    """Return 4 or 6 for an IP address, None for other text.

    An address with a scope, such as "fe80::1%eth0", is 6: whether the scope exists is the business of Envoy's machine.
    """
    if _IPV4.fullmatch(text) is not None:
        return 4
    if ":" not in text:
        return None
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return None
    return 6
