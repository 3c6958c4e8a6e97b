"""Bootstraps for an Envoy that gets everything from fsxds, by REST or from mirrored files (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from fsxds.resource_types import BY_SHORT_NAME
from fsxds.values import PlainValue, Snapshot

Section = dict[str, PlainValue]

# The name by which the resources of a tree point at fsxds: `cluster_names: [xds]`.
XDS_CLUSTER = "xds"

# The pause between two polls, up to twice as long by Envoy's jitter. Below one millisecond Envoy 1.40 dies of SIGFPE.
REFRESH_DELAY = "0.05s"
# How long one poll may be held. Envoy's own default of one second means sixty polls of 77 kB where one does.
REQUEST_TIMEOUT = "30s"
# How long the start waits for the first answer; an answer that cannot come yet should not keep a person waiting.
INITIAL_FETCH_TIMEOUT = "5s"
# Each subscription holds a poll and each poll a connection: Envoy's default limit of 1024 makes large starts slow.
NO_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an Envoy has to ask for by itself; all else it learns from what it gets.

    Attributes:
        clusters: the tree speaks of clusters.
        listeners: the tree speaks of listeners.
        runtime_names: the runtime layers, first to last; a later one goes before an earlier one.
    """

    clusters: bool
    listeners: bool
    runtime_names: tuple[str, ...] = ()

    @classmethod
    def by(cls, snapshot: Snapshot) -> Wanted:
        """Return what a snapshot calls for."""
        clusters, listeners, runtime = (BY_SHORT_NAME[name].type_url for name in ("cds", "lds", "rtds"))
        return cls(
            clusters=clusters not in snapshot.undeclared,
            listeners=listeners not in snapshot.undeclared,
            runtime_names=tuple(snapshot.resources(runtime)),
        )

    def covers(self, other: Wanted) -> bool:
        """Say whether an Envoy that was started for this asks for all of `other`."""
        return (
            self.clusters >= other.clusters
            and self.listeners >= other.listeners
            and set(self.runtime_names) >= set(other.runtime_names)
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """What an Envoy calls itself, and where its admin page listens on 127.0.0.1 (port 0: the kernel chooses)."""

    node_id: str = "fsxds-dev"
    node_cluster: str = "fsxds-dev"
    admin_port: int = 0


def rest_bootstrap(xds: str, wanted: Wanted, identity: Identity | None = None) -> Section:
    """Return the bootstrap of an Envoy that polls fsxds.

    Args:
        xds: where fsxds listens, as it was bound: `127.0.0.1:18001`, `[::1]:18001` or `unix:/run/fsxds.sock`; for an
            address that means all interfaces, the loopback address is used.
        wanted: what to ask for.
        identity: of this Envoy.
    """
    bootstrap = _bootstrap(wanted, lambda *_: _rest_source(), identity or Identity())
    bootstrap["static_resources"] = {"clusters": [_xds_cluster(xds)]}
    return bootstrap


def mirror_bootstrap(
    path_of: Callable[[str, str | None], PurePath],
    wanted: Wanted,
    identity: Identity | None = None,
    xds: str | None = None,
) -> Section:
    """Return the bootstrap of an Envoy that reads mirrored files; those it names must exist before it starts.

    Args:
        path_of: the file of a type (`cds`, `lds`: name None) or of one resource (`rtds` and its name). Its suffix tells
            Envoy the format.
        wanted: what to read.
        identity: of this Envoy.
        xds: where fsxds listens, for trees whose resources keep pointing there; see `rest_bootstrap`. None: nowhere.
    """

    def file_source(short_name: str, name: str | None) -> Section:
        return {"resource_api_version": "V3", "path_config_source": {"path": str(path_of(short_name, name))}}

    bootstrap = _bootstrap(wanted, file_source, identity or Identity())
    if xds is not None:
        bootstrap["static_resources"] = {"clusters": [_xds_cluster(xds)]}
    return bootstrap


def files_of(bootstrap: PlainValue) -> tuple[PurePath, ...]:
    """Return the files that a bootstrap names: Envoy refuses to start when one of them does not exist."""
    if isinstance(bootstrap, list):
        return tuple(path for value in bootstrap for path in files_of(value))
    if not isinstance(bootstrap, dict):
        return ()
    source = bootstrap.get("path_config_source")
    own = (PurePath(str(source["path"])),) if isinstance(source, dict) else ()
    return own + tuple(path for value in bootstrap.values() for path in files_of(value))


def _bootstrap(wanted: Wanted, source_of: Callable[[str, str | None], Section], identity: Identity) -> Section:
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
    return {
        "node": {"id": identity.node_id, "cluster": identity.node_cluster},
        "admin": {"address": _socket_address("127.0.0.1", identity.admin_port)},
        "dynamic_resources": dynamic,
        "layered_runtime": {"layers": layers},
    }


def _rest_source() -> Section:
    return {
        "resource_api_version": "V3",
        "initial_fetch_timeout": INITIAL_FETCH_TIMEOUT,
        "api_config_source": {
            "api_type": "REST",
            "transport_api_version": "V3",
            "cluster_names": [XDS_CLUSTER],
            "refresh_delay": REFRESH_DELAY,
            "request_timeout": REQUEST_TIMEOUT,
        },
    }


def _xds_cluster(xds: str) -> Section:
    limits: Section = {"max_connections": NO_LIMIT, "max_pending_requests": NO_LIMIT, "max_requests": NO_LIMIT}
    return {
        "name": XDS_CLUSTER,
        # Not STRICT_DNS: that would try ::1 first for `localhost`, where fsxds does not listen.
        "type": "STATIC",
        "connect_timeout": "1s",
        "circuit_breakers": {"thresholds": [limits]},
        "load_assignment": {
            "cluster_name": XDS_CLUSTER,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(xds)}}]}],
        },
    }


def _address(bound: str) -> Section:
    if bound.startswith("unix:"):
        return {"pipe": {"path": bound.removeprefix("unix:")}}
    host, _, port = bound.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    loopback = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}  # noqa: S104, not bound
    return _socket_address(loopback.get(host, host), int(port))


def _socket_address(host: str, port: int) -> Section:
    return {"socket_address": {"address": host, "port_value": port}}
