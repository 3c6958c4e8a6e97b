"""Bootstraps for an Envoy that gets everything from fsxds: by REST, by gRPC, or from mirrored files (pure).

A bootstrap is a plain value (`Section`): a node, the admin page, the static cluster `xds` by which Envoy reaches fsxds,
and the subscriptions that Envoy starts with (`BootstrapRequest`). All others follow from the resources that it gets.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from types import MappingProxyType

from fsxds.resource_types import BY_SHORT_NAME
from fsxds.resources import Snapshot
from fsxds.values import PlainValue

Section = dict[str, PlainValue]

# The name by which the resources of a tree point at fsxds: `cluster_names: [xds]`.
XDS_CLUSTER = "xds"

# Each subscription holds a poll and each poll a connection: Envoy's default limit of 1024 makes large starts slow.
NO_LIMIT = 1_000_000

# A gRPC server closes connections that ping more than twice within five minutes without data, as Envoy's do with a short
# interval (ENVOY.md E31). Envoy adds up to 15 % to the interval, never takes off.
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
        # Without V4_ONLY Envoy looks for an IPv6 address first (ENVOY.md E7), where fsxds mostly does not listen.
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


__all__ = ["BootstrapRequest", "Identity", "Section", "ads_bootstrap", "files_of", "mirror_bootstrap", "rest_bootstrap"]

# The pause between two polls, up to twice as long by Envoy's jitter. Below one millisecond Envoy crashes (ENVOY.md E4).
REFRESH_DELAY = "0.05s"
# How long one poll may be held. Envoy's own default of one second means sixty polls of 77 kB where one does.
REQUEST_TIMEOUT = "30s"


@dataclass(frozen=True, slots=True)
class BootstrapRequest:
    """What an Envoy has to ask for by itself; all else it learns from what it gets.

    Attributes:
        clusters: the tree speaks of clusters.
        listeners: the tree speaks of listeners.
        runtime_names: the runtime layers, first to last; a later one goes before an earlier one.
        streams: some of it comes by gRPC streams alone.
    """

    clusters: bool
    listeners: bool
    runtime_names: tuple[str, ...] = ()
    streams: bool = False

    @classmethod
    def by(cls, snapshot: Snapshot) -> BootstrapRequest:
        """Return what a snapshot calls for."""
        clusters, listeners, runtime = (BY_SHORT_NAME[name].type_url for name in ("cds", "lds", "rtds"))
        return cls(
            clusters=clusters not in snapshot.undeclared,
            listeners=listeners not in snapshot.undeclared,
            runtime_names=tuple(snapshot.resources(runtime)),
        )

    def covers(self, other: BootstrapRequest) -> bool:
        """Return whether an Envoy that was started for this asks for all of `other`."""
        return (
            self.clusters >= other.clusters
            and self.listeners >= other.listeners
            and set(self.runtime_names) >= set(other.runtime_names)
            and self.streams >= other.streams
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """What an Envoy calls itself, and how it behaves by itself.

    Attributes:
        node_id: its name, of which fsxds knows it.
        node_cluster: the name of the fleet that it belongs to.
        admin_port: where its admin page listens on 127.0.0.1; port 0: the kernel chooses.
        initial_fetch_timeout: how long its start waits for the first answer of each type (ENVOY.md E17). In `fsxds dev`, an answer that
            cannot come yet should not keep a person waiting.
        metadata: what else it says of itself.
    """

    node_id: str = "fsxds-dev"
    node_cluster: str = "fsxds-dev"
    admin_port: int = 0
    initial_fetch_timeout: str = "5s"
    metadata: Mapping[str, PlainValue] = field(default_factory=lambda: MappingProxyType({}))


def rest_bootstrap(xds: str, wanted: BootstrapRequest, identity: Identity | None = None) -> Section:
    """Return the bootstrap of an Envoy that polls fsxds.

    Args:
        xds: where fsxds listens, as it was bound: `127.0.0.1:18001`, `[::1]:18001` or `unix:/run/fsxds.sock`; for an
            address that means all interfaces, the loopback address is used.
        wanted: what to ask for.
        identity: of this Envoy.
    """
    identity = identity or Identity()
    source = _rest_source(identity.initial_fetch_timeout)
    dynamic, runtime = _subscriptions(wanted, lambda *_: source)
    return _bootstrap(identity, [rest_cluster(xds)], dynamic, runtime)


def ads_bootstrap(
    xds: str, wanted: BootstrapRequest, identity: Identity | None = None, *, delta: bool = False
) -> Section:
    """Return the bootstrap of an Envoy that keeps one gRPC stream for everything.

    Args:
        xds: see `rest_bootstrap`.
        wanted: what to ask for.
        identity: of this Envoy.
        delta: it asks for what changed, instead of for the state of the world.
    """
    identity = identity or Identity()
    source: Section = {
        "resource_api_version": "V3",
        "initial_fetch_timeout": identity.initial_fetch_timeout,
        "ads": {},
    }
    dynamic, runtime = _subscriptions(wanted, lambda *_: source)
    stream: Section = {
        "api_type": "DELTA_GRPC" if delta else "GRPC",
        "transport_api_version": "V3",
        "set_node_on_first_message_only": True,
        "grpc_services": [{"envoy_grpc": {"cluster_name": XDS_CLUSTER}}],
    }
    return _bootstrap(identity, [grpc_cluster(xds)], {"ads_config": stream, **dynamic}, runtime)


def mirror_bootstrap(
    path_of: Callable[[str, str | None], PurePath],
    wanted: BootstrapRequest,
    identity: Identity | None = None,
    xds: str | None = None,
) -> Section:
    """Return the bootstrap of an Envoy that reads mirrored files; those it names must exist before it starts (ENVOY.md E25).

    No source has a `watched_directory`: each file is moved over the one before, which Envoy notices by itself.

    Args:
        path_of: the file of a type (`cds`, `lds`: name None) or of one resource (`rtds` and its name). Its suffix tells
            Envoy the format.
        wanted: what to read.
        identity: of this Envoy.
        xds: where fsxds listens, for trees whose resources keep pointing there; see `rest_bootstrap`. None: nowhere.
    """

    def file_source(short_name: str, name: str | None) -> Section:
        return {"resource_api_version": "V3", "path_config_source": {"path": str(path_of(short_name, name))}}

    dynamic, runtime = _subscriptions(wanted, file_source)
    clusters: list[PlainValue] = [] if xds is None else [rest_cluster(xds)]
    return _bootstrap(identity or Identity(), clusters, dynamic, runtime)


def files_of(bootstrap: PlainValue) -> tuple[PurePath, ...]:
    """Return the files that a bootstrap names: Envoy rejects to start when one of them does not exist."""
    if isinstance(bootstrap, list):
        return tuple(path for value in bootstrap for path in files_of(value))
    if not isinstance(bootstrap, dict):
        return ()
    source = bootstrap.get("path_config_source")
    own = (PurePath(str(source["path"])),) if isinstance(source, dict) else ()
    return own + tuple(path for value in bootstrap.values() for path in files_of(value))


def _subscriptions(
    wanted: BootstrapRequest, source_of: Callable[[str, str | None], Section]
) -> tuple[Section, Section]:
    """Return the sections `dynamic_resources` and `layered_runtime`."""
    dynamic: Section = {}
    if wanted.clusters:
        dynamic["cds_config"] = source_of("cds", None)
    if wanted.listeners:
        dynamic["lds_config"] = source_of("lds", None)
    layers: list[PlainValue] = [
        {"name": name, "rtds_layer": {"name": name, "rtds_config": source_of("rtds", name)}}
        for name in wanted.runtime_names
    ]
    # As soon as one layer is given, Envoy no longer adds the one that its admin page writes to.
    layers.append({"name": "admin", "admin_layer": {}})
    return dynamic, {"layers": layers}


def _bootstrap(identity: Identity, clusters: list[PlainValue], dynamic: Section, runtime: Section) -> Section:
    return {
        "node": {
            "id": identity.node_id,
            "cluster": identity.node_cluster,
            **({"metadata": {**identity.metadata}} if identity.metadata else {}),
        },
        "admin": {"address": socket_address("127.0.0.1", identity.admin_port)},
        **({"static_resources": {"clusters": clusters}} if clusters else {}),
        "dynamic_resources": dynamic,
        "layered_runtime": runtime,
    }


def _rest_source(initial_fetch_timeout: str) -> Section:
    return {
        "resource_api_version": "V3",
        "initial_fetch_timeout": initial_fetch_timeout,
        "api_config_source": {
            "api_type": "REST",
            "transport_api_version": "V3",
            "cluster_names": [XDS_CLUSTER],
            "refresh_delay": REFRESH_DELAY,
            "request_timeout": REQUEST_TIMEOUT,
        },
    }
