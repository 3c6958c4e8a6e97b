"""What Envoy takes as an IP address, a port or a path of a socket."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

# As inet_pton reads them: four numbers without leading zeros.
_NUMBER = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_HOST_OR_NUMBERS = re.compile(r"[0-9a-fA-F:./]{1,60}|localhost|[\w-]{1,60}(\.[\w-]{1,60}){1,8}")
_IPV4 = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{3}}")

# Linux has 108 bytes for the path of a socket, the last of them a zero.
LONGEST_SOCKET_PATH = 107

IP_REMEDY = 'write an IP address such as "192.0.2.1" or "2001:db8::1"'


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


def address_fault(address: Any) -> tuple[str, str, str] | None:
    """Tell what is wrong with an `envoy.config.core.v3.Address` that no resolver will look up.

    Returns:
        the field within the address ("" for itself), the fact and the remedy; None when nothing is wrong.
    """
    chosen = address.WhichOneof("address")
    if chosen == "socket_address":
        fault = socket_address_fault(address.socket_address)
        return fault and (f"socket_address.{fault[0]}", *fault[1:])
    if chosen == "pipe":
        return pipe_fault(address.pipe)
    if chosen is None:
        return "", "has no address", "give it a socket_address, a pipe or an envoy_internal_address"
    return None


def socket_address_fault(socket: Any) -> tuple[str, str, str] | None:
    """Tell what is wrong with an `envoy.config.core.v3.SocketAddress` that no resolver will look up."""
    if socket.resolver_name not in {"", "envoy.ip"}:
        return None  # a resolver of the user's own
    if ip_version(socket.address) is None:
        return "address", not_an_ip_address(socket.address), IP_REMEDY
    if socket.WhichOneof("port_specifier") == "named_port":
        return "named_port", "ports cannot be named here", "write the number, as port_value"
    return None


def not_an_ip_address(address: str) -> str:
    """Say that an address is none, and what it is where it looks like one, or like the name of a host."""
    return f'"{address}" is not an IP address' if _HOST_OR_NUMBERS.fullmatch(address) else "is not an IP address"


def pipe_fault(pipe: Any) -> tuple[str, str, str] | None:
    """Tell what is wrong with an `envoy.config.core.v3.Pipe`."""
    length = len(pipe.path.encode())
    if length > LONGEST_SOCKET_PATH:
        return "pipe.path", f"must be at most {LONGEST_SOCKET_PATH} bytes, is {length}", "choose a shorter path"
    if pipe.mode and pipe.path.startswith("@"):
        return "pipe.mode", "an abstract socket has no mode", "remove the mode, or the @ in front of the path"
    return None
