"""Identifies the sender of a request, by connection and headers."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from fsxds.runtime.access import Peer, is_uri

__all__ = ["Peer", "is_loopback", "peer_of_call", "peer_of_request"]

_BEARER = "bearer"
_NAMES_OF_GRPC = ("peer_uri", "peer_dns")


def peer_of_request(request: web.Request) -> Peer:
    """Return the sender of an HTTP request."""
    address = request.remote or ""
    is_tls = request.get_extra_info("ssl_object") is not None
    # A path for a unix socket; None if the client is gone.
    is_unix = isinstance(request.get_extra_info("sockname"), str | bytes)
    certificate = request.get_extra_info("peercert") or {}
    named = tuple(certificate.get("subjectAltName", ()))
    token = _token_in(request.headers.getall("Authorization", ()))
    names = _names([name for form, name in named if form == "URI"], [name for form, name in named if form == "DNS"])
    return Peer(address, is_tls or is_unix or is_loopback(address), names, token)


def peer_of_call(context: Any) -> Peer:
    """Return the caller of a gRPC call."""
    scheme, _, rest = context.peer().partition(":")
    is_tcp = scheme in {"ipv4", "ipv6"}
    # `ipv4:192.0.2.1:4711` or `ipv6:%5B::1%5D:4711`.
    address = unquote(rest).rpartition(":")[0].strip("[]") if is_tcp else ""
    properties = context.auth_context()
    is_tls = properties.get("transport_security_type") == [b"ssl"]
    # The key of all alternative names includes e-mail addresses, indistinguishable from URIs.
    uris, dns_names = ([name.decode(errors="replace") for name in properties.get(key, ())] for key in _NAMES_OF_GRPC)
    token = _token_in(value for key, value in context.invocation_metadata() or () if key == "authorization")
    return Peer(address, is_tls or scheme == "unix" or is_loopback(address), _names(uris, dns_names), token)


def _names(uris: Iterable[str], dns_names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that access rules match.

    Neither DNS names that look like URIs, nor the common name, which may be anything.
    """
    return (*(name for name in uris if is_uri(name)), *(name for name in dns_names if not is_uri(name)))


def is_loopback(address: str) -> bool:
    """Whether an IP address is loopback, usable by this machine alone."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    # An IPv4 client of an IPv6 socket.
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


def _token_in(values: Iterable[str | bytes]) -> str:
    """Return the bearer token; empty if there is no header, or more than one."""
    headers = [value.decode("latin-1") if isinstance(value, bytes) else value for value in values]
    if len(headers) != 1:
        return ""
    scheme, _, token = headers[0].strip().partition(" ")
    return token.strip() if scheme.lower() == _BEARER else ""
