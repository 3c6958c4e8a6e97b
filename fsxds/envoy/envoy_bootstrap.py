"""Bootstraps for an Envoy that gets everything from fsxds (pure).

A bootstrap (`Section`) has a node, the admin page, the static cluster `xds`, and the initial subscriptions
(`BootstrapRequest`). Collections are locators in place of requests for all clusters or listeners.

| collection | from | source |
| --- | --- | --- |
| a list of listeners | a mirrored file alone | ENVOY.md E77, E79 |
| a glob of clusters or listeners | an aggregated stream | ENVOY.md E77 |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from types import MappingProxyType
from urllib.parse import quote

from fsxds.api.walk import ip_version
from fsxds.events.event import escape
from fsxds.model.errors import UsageError
from fsxds.model.resource_names import MalformedName, ResourceName, is_structured
from fsxds.model.resource_types import BY_SHORT_NAME, ResourceType
from fsxds.model.resources import Snapshot
from fsxds.model.values import PlainValue

Section = dict[str, PlainValue]

# The name by which the resources of a tree point at fsxds: `cluster_names: [xds]`.
XDS_CLUSTER = "xds"

# Each subscription holds a poll and each poll a connection: Envoy's default limit of 1024 makes large starts slow.
NO_LIMIT = 1_000_000

# A gRPC server closes connections that ping more than twice within five minutes without data, as Envoy's do with a
# short interval (ENVOY.md E31). Envoy adds up to 15 % to the interval, never less.
PING_INTERVAL = "330s"
PING_TIMEOUT = "20s"

_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
# Addresses to listen at, and the addresses to reach them.
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}  # noqa: S104, not bound


def rest_cluster(xds: str) -> Section:
    """Return a polling Envoy's cluster.

    `xds` is where fsxds listens: `127.0.0.1:18001`, `xds.example.com:18001` or `unix:/run/fsxds.sock`. An address for all
    interfaces becomes the loopback address.
    """
    limits: Section = {"max_connections": NO_LIMIT, "max_pending_requests": NO_LIMIT, "max_requests": NO_LIMIT}
    address = _address(xds)
    cluster: Section = {"name": XDS_CLUSTER, "type": "STATIC"}
    if (host := _host_of(address)) is not None and ip_version(host) is None:
        # Without V4_ONLY Envoy tries an IPv6 address first (ENVOY.md E7), at which fsxds mostly does not listen.
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
    """Return the cluster for gRPC; see `rest_cluster`."""
    cluster = rest_cluster(xds)
    endpoints = cluster.pop("load_assignment")
    cluster["typed_extension_protocol_options"] = {
        _HTTP_OPTIONS: {
            "@type": f"type.googleapis.com/{_HTTP_OPTIONS}",
            "explicit_http_config": {
                "http2_protocol_options": {"connection_keepalive": {"interval": PING_INTERVAL, "timeout": PING_TIMEOUT}}
            },
        }
    }
    if not xds.startswith("unix:"):
        cluster["upstream_connection_options"] = {
            "tcp_keepalive": {"keepalive_time": 30, "keepalive_interval": 10, "keepalive_probes": 3}
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


# The pause between two polls, up to twice as long by Envoy's jitter. Below one millisecond Envoy crashes (ENVOY.md E4).
REFRESH_DELAY = "0.05s"
# How long one poll may be held. Envoy's own default of one second means sixty polls of 77 kB instead of one.
REQUEST_TIMEOUT = "30s"


@dataclass(frozen=True, slots=True)
class BootstrapRequest:
    """The initial subscriptions of an Envoy.

    Attributes:
        runtime_names: later layers take precedence.
        streams: some resources need gRPC streams.
    """

    clusters: bool
    listeners: bool
    runtime_names: tuple[str, ...] = ()
    streams: bool = False

    @classmethod
    def by(cls, snapshot: Snapshot) -> BootstrapRequest:
        """Return a snapshot's subscriptions."""
        clusters, listeners, runtime = (BY_SHORT_NAME[name].type_url for name in ("cds", "lds", "rtds"))
        return cls(
            clusters=clusters not in snapshot.undeclared,
            listeners=listeners not in snapshot.undeclared,
            runtime_names=tuple(snapshot.resources(runtime)),
        )

    def covers(self, other: BootstrapRequest) -> bool:
        """Return whether these include `other`."""
        return (
            self.clusters >= other.clusters
            and self.listeners >= other.listeners
            and set(self.runtime_names) >= set(other.runtime_names)
            and self.streams >= other.streams
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """An Envoy's name and behavior.

    Attributes:
        admin_port: on 127.0.0.1; 0: the kernel chooses.
        initial_fetch_timeout: of each type at the start (ENVOY.md E17).
    """

    node_id: str = "fsxds-dev"
    node_cluster: str = "fsxds-dev"
    admin_port: int = 0
    initial_fetch_timeout: str = "5s"
    metadata: Mapping[str, PlainValue] = field(default_factory=lambda: MappingProxyType({}))


def rest_bootstrap(xds: str, wanted: BootstrapRequest, identity: Identity | None = None) -> Section:
    """Return a polling Envoy's bootstrap; `xds` as in `rest_cluster`."""
    identity = identity or Identity()
    source: Section = {
        "resource_api_version": "V3",
        "initial_fetch_timeout": identity.initial_fetch_timeout,
        "api_config_source": {
            "api_type": "REST",
            "transport_api_version": "V3",
            "cluster_names": [XDS_CLUSTER],
            "refresh_delay": REFRESH_DELAY,
            "request_timeout": REQUEST_TIMEOUT,
        },
    }
    dynamic, runtime = _subscriptions(wanted, lambda *_: source)
    return _bootstrap(identity, [rest_cluster(xds)], dynamic, runtime)


def ads_bootstrap(
    xds: str, wanted: BootstrapRequest, identity: Identity | None = None, *, delta: bool = False
) -> Section:
    """Return the bootstrap for gRPC; `xds` as in `rest_cluster`."""
    identity = identity or Identity()
    source: Section = {"resource_api_version": "V3", "initial_fetch_timeout": identity.initial_fetch_timeout, "ads": {}}
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
    """Return the bootstrap for mirrored files, which must exist before Envoy starts (ENVOY.md E25).

    No source has a `watched_directory`: each file is replaced by a move, which Envoy detects. `path_of` returns the file
    of a type (`cds`, `lds`: name None) or of a resource (`rtds` and its name). `xds` is for resources that keep pointing
    there; None: nowhere.
    """

    def file_source(short_name: str, name: str | None) -> Section:
        return {"resource_api_version": "V3", "path_config_source": {"path": str(path_of(short_name, name))}}

    dynamic, runtime = _subscriptions(wanted, file_source)
    clusters: list[PlainValue] = [] if xds is None else [rest_cluster(xds)]
    return _bootstrap(identity or Identity(), clusters, dynamic, runtime)


def files_of(bootstrap: PlainValue) -> tuple[PurePath, ...]:
    """Return the files without which Envoy does not start."""
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
    dynamic: Section = {}
    if wanted.clusters:
        dynamic["cds_config"] = source_of("cds", None)
    if wanted.listeners:
        dynamic["lds_config"] = source_of("lds", None)
    layers: list[PlainValue] = [
        {"name": name, "rtds_layer": {"name": name, "rtds_config": source_of("rtds", name)}}
        for name in wanted.runtime_names
    ]
    # If any layer is given, Envoy no longer adds the one that its admin page writes to.
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


# This includes the handshake. One takes fsxds milliseconds, and after its restart all Envoys connect at once.
CONNECT_TIMEOUT = "5s"

_UPSTREAM = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"


@dataclass(frozen=True, slots=True)
class EnvoyTls:
    """`ca` verifies fsxds; `cert` may be None."""

    ca: PurePath
    cert: PurePath | None = None
    key: PurePath | None = None


def with_tls(bootstrap: Section, tls: EnvoyTls) -> Section:
    """Use TLS to fsxds, unix sockets excepted."""
    static = bootstrap.get("static_resources")
    clusters = static.get("clusters") if isinstance(static, dict) else None
    if not isinstance(clusters, list):
        return bootstrap
    secured: list[PlainValue] = [
        _secured(each, tls) if isinstance(each, dict) and each.get("name") == XDS_CLUSTER else each for each in clusters
    ]
    return {**bootstrap, "static_resources": {"clusters": secured}}


def _secured(cluster: Section, tls: EnvoyTls) -> Section:
    host = _host_of(cluster)
    if host is None:
        return cluster
    is_address = ip_version(host) is not None
    common: Section = {
        "validation_context": {
            "trusted_ca": {"filename": str(tls.ca)},
            "match_typed_subject_alt_names": [
                {"san_type": "IP_ADDRESS" if is_address else "DNS", "matcher": {"exact": host}}
            ],
        }
    }
    if tls.cert is not None and tls.key is not None:
        pair: Section = {"certificate_chain": {"filename": str(tls.cert)}, "private_key": {"filename": str(tls.key)}}
        common["tls_certificates"] = [pair]
    # An address is no server name (RFC 6066, 3).
    context: Section = {"@type": _UPSTREAM, **({} if is_address else {"sni": host}), "common_tls_context": common}
    transport_socket: Section = {"name": "envoy.transport_sockets.tls", "typed_config": context}
    return {**cluster, "connect_timeout": CONNECT_TIMEOUT, "transport_socket": transport_socket}


def _host_of(cluster: PlainValue) -> str | None:
    if isinstance(cluster, list):
        return next((host for each in cluster if (host := _host_of(each)) is not None), None)
    if not isinstance(cluster, dict):
        return None
    socket = cluster.get("socket_address")
    return str(socket["address"]) if isinstance(socket, dict) else _host_of([*cluster.values()])


LIST = BY_SHORT_NAME["lcds"]
_GLOBS: dict[str, ResourceType] = {BY_SHORT_NAME[name].message_type: BY_SHORT_NAME[name] for name in ("cds", "lds")}


def read_collection(text: str, authority: str) -> ResourceName:
    """Read a list, by path or name, or a glob. Raises UsageError."""
    try:
        name = ResourceName.parse(
            text if is_structured(text) else f"xdstp:///{LIST.message_type}/{quote(text)}", authority
        )
    except MalformedName as error:
        raise UsageError(f"--collection {escape(text)}: {error.fact}; {error.remedy}") from error
    if not name.is_glob if name.message_type == LIST.message_type else name.is_glob and name.message_type in _GLOBS:
        return name
    remedy = "give a list of listeners, or a glob of clusters or listeners: xdstp://<authority>/<type>/<path>/*"
    raise UsageError(f"--collection {escape(text)} is no collection that Envoy asks for; {remedy}")


def with_lists(section: Section, names: Iterable[ResourceName], path_of: Callable[[str], PurePath]) -> Section:
    """Read a list in place of all listeners, for mirrored files.

    `path_of` returns a list's absolute path.

    Raises:
        UsageError: there are several, or globs.
    """
    wanted = tuple(names)
    if not wanted:
        return section
    if len(wanted) > 1 or wanted[0].is_glob:
        fact = "from mirrored files, Envoy reads one list of listeners, and no globs"
        raise UsageError(f"{fact}; give one --collection of them, or --transport delta for globs")
    dynamic = _dynamic_of(section)
    dynamic.pop("lds_config", None)
    path = path_of(str(wanted[0]))
    return {**section, "dynamic_resources": {**dynamic, "lds_resources_locator": f"file://{quote(str(path))}"}}


def with_globs(section: Section, names: Iterable[ResourceName]) -> Section:
    """Request globs in place of whole types, for an aggregated stream.

    Raises:
        UsageError: there are several of a type, or lists.
    """
    dynamic = _dynamic_of(section)
    for name in names:
        row = _GLOBS.get(name.message_type)
        if row is None:
            fact = "Envoy reads lists of listeners from files alone"
            raise UsageError(f"{fact}; give --transport files, or a glob: xdstp://<authority>/<type>/<path>/*")
        key = f"{row.short_name}_resources_locator"
        if key in dynamic:
            raise UsageError(f"Envoy asks for one collection of {row.noun}; give one --collection of them")
        dynamic[key] = str(name)
        source = f"{row.short_name}_config"
        dynamic.setdefault(source, {"resource_api_version": "V3", "ads": {}})
    return {**section, "dynamic_resources": dynamic}


def _dynamic_of(section: Section) -> Section:
    dynamic = section["dynamic_resources"]
    return dict(dynamic) if isinstance(dynamic, dict) else {}
