"""Checks bootstraps, their static clusters, and messages that Envoy rejects at start."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.walk import messages_in
from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.model.resources import Resource, Snapshot
from fsxds.model.values import Fault, FieldPath, Severity
from fsxds.tools.doctor.facts import (
    DELTA_GRPC,
    GRPC,
    LOGICAL_DNS,
    REST,
    STRICT_DNS,
    ConfigSourceUse,
    EnvoyFacts,
    StaticCluster,
)
from fsxds.tools.doctor.source_checks import path_faults, seconds_of

_EVERYWHERE = ("0.0.0.0", "::", "::0")  # noqa: S104, not bound
_STREAMS = {GRPC, DELTA_GRPC}


def bootstrap_faults(bootstrap: DynamicMessage, envoy: EnvoyFacts, tree: Snapshot) -> Iterator[Fault]:
    """Check a bootstrap, config sources apart."""
    yield from _check_node(bootstrap)
    yield from _check_admin(bootstrap)
    yield from _check_streams(bootstrap.dynamic_resources)
    yield from _check_locators(bootstrap.dynamic_resources, envoy)
    yield from _check_subscriptions(bootstrap.dynamic_resources, tree)
    yield from _check_layers(bootstrap.layered_runtime, tree.resources(BY_SHORT_NAME["rtds"].type_url))


def _check_node(bootstrap: DynamicMessage) -> Iterator[Fault]:
    dynamic = bootstrap.dynamic_resources
    sources = [getattr(dynamic, name) for name in ("cds_config", "lds_config") if dynamic.HasField(name)]
    is_asked = any(source.WhichOneof("config_source_specifier") in {"ads", "api_config_source"} for source in sources)
    missing = [f"node.{name}" for name in ("id", "cluster") if not getattr(bootstrap.node, name)]
    if is_asked and missing:
        yield Fault(
            "no-node",
            f"{' and '.join(missing)} is missing; without both, Envoy does not start",
            "write node: {id: …, cluster: …}, unless Envoy is started with --service-node and --service-cluster",
            ("node",),
            severity=Severity.WARNING,
        )


def _check_admin(bootstrap: DynamicMessage) -> Iterator[Fault]:
    address = bootstrap.admin.address.socket_address.address
    if address in _EVERYWHERE:
        yield Fault(
            "open-admin",
            f"the admin page listens on {address}: any client that reaches it can read the configuration and stop Envoy",
            "listen on 127.0.0.1, unless a firewall protects the address",
            ("admin", "address", "socket_address", "address"),
            severity=Severity.WARNING,
        )


def _check_streams(dynamic: DynamicMessage) -> Iterator[Fault]:
    if dynamic.HasField("ads_config") and dynamic.ads_config.api_type not in _STREAMS:
        yield Fault(
            "impossible-transport",
            "ADS is a gRPC stream; Envoy rejects any other api_type here",
            "write api_type: GRPC or DELTA_GRPC, or give cds_config and lds_config REST sources of their own",
            ("dynamic_resources", "ads_config", "api_type"),
        )


def _check_locators(dynamic: DynamicMessage, envoy: EnvoyFacts) -> Iterator[Fault]:
    clusters: FieldPath = ("dynamic_resources", "cds_resources_locator")
    listeners: FieldPath = ("dynamic_resources", "lds_resources_locator")
    # ENVOY.md E29.
    if dynamic.cds_resources_locator.startswith("file:"):
        yield Fault(
            "cluster-collection-file",
            "Envoy 1.40 cannot read a collection of clusters from a file",
            "use cds_config with a path_config_source",
            clusters,
        )
    if dynamic.lds_resources_locator.startswith("file:///"):
        path = dynamic.lds_resources_locator.removeprefix("file://").partition("#")[0]
        yield from (f for f in path_faults(path, None, listeners, envoy) if f.rule != "unwatched-directory")


def _check_subscriptions(dynamic: DynamicMessage, tree: Snapshot) -> Iterator[Fault]:
    for name, row in ((name, BY_SHORT_NAME[name]) for name in ("cds", "lds")):
        is_asked = dynamic.HasField(f"{name}_config") or getattr(dynamic, f"{name}_resources_locator")
        if tree.resources(row.type_url) and not is_asked:
            yield Fault(
                "not-asked-for",
                f"the tree has {row.noun}, and without {name}_config Envoy never asks for them",
                f"add {name}_config to dynamic_resources, as `fsxds bootstrap DIR` writes it",
                ("dynamic_resources",),
                severity=Severity.WARNING,
            )


def _check_layers(runtime: DynamicMessage, names: Collection[str]) -> Iterator[Fault]:
    asked: set[str] = set()
    for index, layer in enumerate(runtime.layers):
        if not layer.HasField("rtds_layer"):
            continue
        asked.add(layer.rtds_layer.name)
        if layer.rtds_layer.name not in names:
            yield Fault(
                "missing-runtime-layer",
                f'the tree has no runtime layer "{layer.rtds_layer.name}"; the start waits for it until '
                "initial_fetch_timeout",
                "write such a layer into the tree, or remove this one",
                ("layered_runtime", "layers", index, "rtds_layer", "name"),
                severity=Severity.WARNING,
            )
    for name in names:
        if name not in asked:
            yield Fault(
                "unused-runtime-layer",
                f'the bootstrap does not use the runtime layer "{name}" of the tree',
                f"add {{name: {name}, rtds_layer: {{name: {name}, rtds_config: …}}}} to the layers",
                ("layered_runtime",),
                severity=Severity.WARNING,
            )


_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_DEFAULT_LIMIT = 1024
_LIMITS = ("max_connections", "max_pending_requests", "max_requests")
# gRPC's GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS.
_SHORTEST_PING_S = 300.0
# Of Cluster.DnsLookupFamily.
_AUTO, _V6_ONLY = 0, 2


def xds_cluster_faults(
    envoy: EnvoyFacts, subscriptions: Collection[ConfigSourceUse], grpc: Collection[str]
) -> Iterator[Fault]:
    """Check the static clusters of config sources.

    `subscriptions` have a private poll or stream; `grpc` are the clusters of ADS streams.
    """
    by_cluster: defaultdict[str, set[ConfigSourceUse]] = defaultdict(set)
    for subscription in subscriptions:
        by_cluster[subscription.cluster].add(subscription)
    for name, cluster in (envoy.clusters or {}).items():
        own = by_cluster[name]
        if not own and name not in grpc:
            continue
        yield from _check_addresses(cluster)
        yield from _check_limits(cluster, own)
        is_grpc = name in grpc or any(not one.is_rest for one in own)
        yield from _check_protocol(cluster, envoy.catalogue, is_grpc=is_grpc, is_rest=any(one.is_rest for one in own))


def _check_addresses(cluster: StaticCluster) -> Iterator[Fault]:
    message = cluster.message
    is_dns = message.WhichOneof("cluster_discovery_type") == "type" and message.type in {STRICT_DNS, LOGICAL_DNS}
    localities = message.load_assignment.endpoints
    hosts = {one.endpoint.address.socket_address.address for each in localities for one in each.lb_endpoints}
    if is_dns and message.dns_lookup_family in {_AUTO, _V6_ONLY} and "localhost" in hosts:
        yield Fault(
            "localhost-lookup",
            "Envoy takes localhost for ::1, where fsxds listens only on request",
            "add dns_lookup_family: V4_ONLY, or write 127.0.0.1 and type: STATIC",
            cluster.field_path,
            severity=Severity.WARNING,
        )


def _check_limits(cluster: StaticCluster, subscriptions: Collection[ConfigSourceUse]) -> Iterator[Fault]:
    """Each subscription holds a request, over HTTP/1.1 a connection (ENVOY.md E5)."""
    breakers = cluster.message.circuit_breakers
    index, thresholds = next(
        ((index, one) for index, one in enumerate(breakers.thresholds) if one.priority == 0), (None, None)
    )
    limits = {
        name: getattr(thresholds, name).value
        if thresholds is not None and thresholds.HasField(name)
        else _DEFAULT_LIMIT
        for name in _LIMITS
    }
    low = [name for name in _LIMITS if limits[name] < len(subscriptions)]
    if not low:
        return
    counts = Counter(subscription.asked[0] for subscription in subscriptions)
    listed = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    steps: FieldPath = () if index is None else ("circuit_breakers", "thresholds", index)
    yield Fault(
        "few-connections",
        f"{len(subscriptions)} subscriptions ({listed}) hold a poll each, but {low[0]} is {limits[low[0]]}; "
        "polls beyond the limit fail or wait",
        "set max_connections, max_pending_requests and max_requests in its circuit_breakers to 1000000",
        (*cluster.field_path, *steps),
        severity=Severity.WARNING,
    )


def _check_protocol(cluster: StaticCluster, catalogue: Catalogue, *, is_grpc: bool, is_rest: bool) -> Iterator[Fault]:
    field_path, options, has_other = _http2_options(cluster, catalogue)
    if is_grpc and options is None and not has_other:
        yield Fault(
            "grpc-protocol",
            "gRPC needs HTTP/2, and this cluster speaks HTTP/1.1",
            f"add typed_extension_protocol_options with {_HTTP_OPTIONS}: explicit_http_config.http2_protocol_options",
            cluster.field_path,
        )
    if is_rest and options is not None:
        yield Fault(
            "rest-protocol",
            "fsxds answers polls by HTTP/1.1 alone; by HTTP/2 they arrive only through a proxy that translates",
            "remove the protocol options, or let a proxy stand between",
            field_path,
            severity=Severity.WARNING,
        )
    if is_grpc and options is not None and options.HasField("connection_keepalive"):
        interval_s = seconds_of(options.connection_keepalive.interval)
        if 0 < interval_s < _SHORTEST_PING_S:
            yield Fault(
                "frequent-pings",
                f"a ping each {interval_s:g} s; gRPC servers close connections that ping more than once in five minutes",
                "write interval: 330s, and use upstream_connection_options.tcp_keepalive for shorter ones",
                (*field_path, "connection_keepalive", "interval"),
                severity=Severity.WARNING,
            )


def _http2_options(cluster: StaticCluster, catalogue: Catalogue) -> tuple[FieldPath, DynamicMessage, bool]:
    """The options and their path, and whether another protocol may be HTTP/2: a negotiated or the downstream's."""
    message = cluster.message
    if message.HasField("http2_protocol_options"):
        return (*cluster.field_path, "http2_protocol_options"), message.http2_protocol_options, False
    extensions = message.typed_extension_protocol_options
    options = catalogue.unpacked(extensions[_HTTP_OPTIONS]) if _HTTP_OPTIONS in extensions else None
    steps = ("explicit_http_config", "http2_protocol_options")
    field_path = (*cluster.field_path, "typed_extension_protocol_options", _HTTP_OPTIONS, *steps)
    if options is None:
        return field_path, None, False
    explicit = options.explicit_http_config
    if explicit.HasField("http2_protocol_options"):
        return field_path, explicit.http2_protocol_options, False
    is_explicit = options.WhichOneof("upstream_protocol_options") == "explicit_http_config"
    return field_path, None, not is_explicit or explicit.HasField("http3_protocol_options")


def check_data_source(source: DynamicMessage, field_path: FieldPath, envoy: EnvoyFacts) -> Iterator[Fault]:
    """Check a DataSource's file."""
    if source.WhichOneof("specifier") == "filename" and not envoy.look_at(source.filename).exists:
        yield Fault(
            "missing-data-file",
            # The name is not repeated: it may be the secret itself, in the wrong field.
            "the file that this names does not exist here; Envoy rejects a reference to a missing file",
            "write it before Envoy reads this, or correct the path",
            (*field_path, "filename"),
            severity=Severity.WARNING,
        )


def check_scoped_routes(
    names_of_tree: Collection[str], routes: DynamicMessage, field_path: FieldPath, _: EnvoyFacts
) -> Iterator[Fault]:
    """Check a ScopedRoutes: Envoy takes one route table per file (ENVOY.md E28)."""
    is_file = routes.rds_config_source.WhichOneof("config_source_specifier") in {"path", "path_config_source"}
    if is_file and routes.HasField("scoped_rds") and len(names_of_tree) > 1:
        fact = f"{len(names_of_tree)} route tables are to come from one file"
        yield Fault(
            "one-file-for-routes",
            f"{fact}; Envoy takes one table a file, and rejects them all",
            "serve them by REST or gRPC, or use one route table",
            (*field_path, "rds_config_source"),
        )


def check_route_table(table: DynamicMessage, field_path: FieldPath, _: EnvoyFacts) -> Iterator[Fault]:
    """Find tables rejected while a cluster is missing (ENVOY.md E55)."""
    is_inline = field_path[-1:] == ("route_config",)
    is_eager = table.validate_clusters.value if table.HasField("validate_clusters") else is_inline
    names_clusters = any(
        route.route.WhichOneof("cluster_specifier") in {"cluster", "weighted_clusters"}
        for host in table.virtual_hosts
        for route in host.routes
        if route.HasField("route")
    )
    if is_eager and names_clusters:
        where = "is within a listener" if is_inline else "has validate_clusters: true"
        yield Fault(
            "eager-cluster-check",
            f"this route table {where}: Envoy rejects it while one of its clusters is missing, even for the moment in "
            "which both arrive",
            "let it come by RDS, or write validate_clusters: false",
            (*field_path, "validate_clusters"),
            severity=Severity.NOTE,
        )


_RULE = "stream-need"
_WITH_CONFIG_SOURCES = tuple(row.type_url for row in RESOURCE_TYPES if row.holds_config_sources)
_STREAMS_ALONE = tuple(row for row in RESOURCE_TYPES if row.rest_path is None)
_CONFIG_SOURCE = "envoy.config.core.v3.ConfigSource"


def find_stream_need(snapshot: Snapshot, catalogue: Catalogue, xds_cluster: str) -> tuple[Resource, Fault] | None:
    """Return the first resource that REST from `xds_cluster` cannot give, and why."""
    for row in _STREAMS_ALONE:
        for resource in snapshot.resources(row.type_url).values():
            return resource, Fault(_RULE, f"is one of the {row.noun}, which have no REST form", "")
    for type_url in _WITH_CONFIG_SOURCES:
        message_class = catalogue.message_class(type_url.rpartition("/")[2])
        for resource in snapshot.resources(type_url).values():
            for field_path, message in messages_in(message_class.FromString(resource.body), catalogue):
                if message.DESCRIPTOR.full_name == _CONFIG_SOURCE and (found := _need_of(message, xds_cluster)):
                    fact, inner = found
                    return resource, Fault(_RULE, fact, "", (*field_path, *inner))
    return None


def _need_of(source: DynamicMessage, xds_cluster: str) -> tuple[str, FieldPath] | None:
    chosen = source.WhichOneof("config_source_specifier")
    if chosen == "ads":
        return "asks for ADS", ("ads",)
    if chosen != "api_config_source":
        return None
    api = source.api_config_source
    if api.api_type != REST:
        return "asks for a gRPC stream", (chosen, "api_type")
    others = [index for index, name in enumerate(api.cluster_names) if name != xds_cluster]
    if others:
        fact = f'asks the cluster "{api.cluster_names[others[0]]}", which is fsxds on streams alone'
        return fact, (chosen, "cluster_names", others[0])
    return None
