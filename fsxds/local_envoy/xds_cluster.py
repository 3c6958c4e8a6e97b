"""The static cluster by which an Envoy reaches fsxds (pure)."""

from __future__ import annotations

import ipaddress

from fsxds.values import PlainValue

Section = dict[str, PlainValue]

# The name by which the resources of a tree point at fsxds: `cluster_names: [xds]`.
XDS_CLUSTER = "xds"

# Each subscription holds a poll and each poll a connection: Envoy's default limit of 1024 makes large starts slow.
NO_LIMIT = 1_000_000

# A gRPC server closes connections that ping more than twice within five minutes without data, as Envoy's do with a short
# interval (ENVOY.md D1). Envoy adds up to 15 % to the interval, never takes off.
PING_INTERVAL = "330s"
PING_TIMEOUT = "20s"

_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
# Addresses to listen at, and where to find who listens there.
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}  # noqa: S104, not bound


def rest_cluster(xds: str) -> Section:
    """Return the cluster of an Envoy that polls.

    Args:
        xds: where fsxds listens: `127.0.0.1:18001`, `[::1]:18001`, `xds.example.com:18001` or `unix:/run/fsxds.sock`;
            for an address that means all interfaces, the loopback address is used.
    """
    limits: Section = {"max_connections": NO_LIMIT, "max_pending_requests": NO_LIMIT, "max_requests": NO_LIMIT}
    address = _address(xds)
    cluster: Section = {"name": XDS_CLUSTER, "type": "STATIC"}
    if _is_to_be_resolved(address):
        # Without V4_ONLY Envoy looks for an IPv6 address first, where fsxds mostly does not listen.
        cluster |= {"type": "STRICT_DNS", "dns_lookup_family": "V4_ONLY"}
    return cluster | {
        "connect_timeout": "1s",
        "circuit_breakers": {"thresholds": [limits]},
        "load_assignment": {
            "cluster_name": XDS_CLUSTER,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }


def grpc_cluster(xds: str) -> Section:
    """Return the cluster of an Envoy that keeps a gRPC stream; see `rest_cluster`."""
    cluster = rest_cluster(xds)
    endpoints = cluster.pop("load_assignment")
    cluster["typed_extension_protocol_options"] = {
        _HTTP_OPTIONS: {
            "@type": f"type.googleapis.com/{_HTTP_OPTIONS}",
            "explicit_http_config": {
                "http2_protocol_options": {
                    "connection_keepalive": {"interval": PING_INTERVAL, "timeout": PING_TIMEOUT},
                },
            },
        },
    }
    if not xds.startswith("unix:"):
        cluster["upstream_connection_options"] = {
            "tcp_keepalive": {"keepalive_time": 30, "keepalive_interval": 10, "keepalive_probes": 3},
        }
    cluster["load_assignment"] = endpoints
    return cluster


def socket_address(host: str, port: int) -> Section:
    """Return a TCP address."""
    return {"socket_address": {"address": host, "port_value": port}}


def _address(bound: str) -> Section:
    if bound.startswith("unix:"):
        return {"pipe": {"path": bound.removeprefix("unix:")}}
    host, _, port = bound.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    return socket_address(_LOOPBACK.get(host, host), int(port))


def _is_to_be_resolved(address: Section) -> bool:
    address_of_socket = address.get("socket_address")
    if not isinstance(address_of_socket, dict):
        return False
    try:
        ipaddress.ip_address(str(address_of_socket["address"]))
    except ValueError:
        return True
    return False
