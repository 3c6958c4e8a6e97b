"""Checks bootstraps, their static clusters, config sources and their files, and messages that Envoy rejects at start."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import PurePosixPath

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
    FileFacts,
    StaticCluster,
)

_warning = partial(Fault, severity=Severity.WARNING)

# Envoy reads text format under these suffixes as JSON (ENVOY.md E22).
_TEXT_FORMAT = (".textproto", ".txtpb", ".pbtxt", ".prototxt")
_READ_AS_YAML = (".yaml", ".yml")
# No serialized DiscoveryResponse begins like this; read as binary, such a file is an empty response.
_TEXT_HEADS = (b"{", b"#", b"---", b"resources", b"version_info", b"versionInfo", b"type_url", b"typeUrl", b'"')


def path_faults(path: str, watched: str | None, field_path: FieldPath, envoy: EnvoyFacts) -> Iterator[Fault]:
    """Check a subscribed path and its `watched_directory`; `field_path` is the path's or its holder's."""
    facts = envoy.look_at(path)
    if not facts.exists:
        yield _missing_file(path, field_path)
    yield from _check_suffix(path, facts, field_path)
    if watched is not None and not envoy.look_at(watched).exists:
        yield _missing_file(watched, (*field_path, "watched_directory"))
    elif facts.swapped_in is not None and (
        watched is None or PurePosixPath(facts.swapped_in) != PurePosixPath(watched)
    ):
        fact = "a ConfigMap or Secret volume" if facts.is_config_map else "a directory that a link is swapped in"
        yield _warning(
            "unwatched-directory",
            f"{path} is in {fact}: Envoy does not notice its changes unless it watches {facts.swapped_in}",
            f"add watched_directory: {{path: {facts.swapped_in}}} beside the path",
            (*field_path, "watched_directory") if watched is not None else field_path,
        )


def _missing_file(path: str, field_path: FieldPath) -> Fault:
    return Fault(
        "missing-file",
        f"{path} does not exist here; Envoy rejects a reference to a missing file, and does not start if its bootstrap has one",
        "write it before Envoy starts (`fsxds mirror DIR OUT` writes them all), or correct the path",
        field_path,
    )


def _check_suffix(path: str, facts: FileFacts, field_path: FieldPath) -> Iterator[Fault]:
    name, begin, how = path.lower(), facts.head.lstrip(), ""
    if name.endswith(_TEXT_FORMAT):
        how = "JSON: text format is read under the suffix .pb_text alone"
    elif name.endswith(".pb"):
        if begin.startswith(_TEXT_HEADS):
            how = "binary, and reads text as an empty response, so it deletes every resource"
    elif not name.endswith((*_READ_AS_YAML, ".pb_text")) and begin and not begin.startswith(b"{"):
        how = "JSON, which it is not"
    if how:
        yield Fault(
            "misread-file",
            f"Envoy goes by the suffix, and reads {PurePosixPath(path).name} as {how}",
            "rename it to .yaml, .json, .pb or .pb_text, whichever it is",
            field_path,
        )


_LONGEST_DELAY_S = 5.0
_SHORTEST_TIMEOUT_S = 5.0
_DEFAULT_TIMEOUT_S = 1.0
# Less than half a millisecond means no time-out (ENVOY.md E3); field rules check zero.
_NO_TIMEOUT_S = 0.0005


def check_config_source(source: DynamicMessage, field_path: FieldPath, envoy: EnvoyFacts) -> Iterator[Fault]:
    """Check a ConfigSource."""
    chosen = source.WhichOneof("config_source_specifier")
    if envoy.is_rewritten and chosen in {"ads", "api_config_source"}:
        return
    if chosen == "path":
        yield from path_faults(source.path, None, (*field_path, "path"), envoy)
    if chosen == "path_config_source":
        watched = source.path_config_source
        directory = watched.watched_directory.path if watched.HasField("watched_directory") else None
        yield from path_faults(watched.path, directory, (*field_path, chosen), envoy)
    if chosen == "ads" and not envoy.has_ads:
        yield Fault(
            "no-ads",
            "ads is the stream of `ads_config`, which the bootstrap does not have",
            "add dynamic_resources.ads_config to the bootstrap, or mirror files with --mirror-config-sources",
            (*field_path, "ads"),
        )
    is_waiting = source.HasField("initial_fetch_timeout") and seconds_of(source.initial_fetch_timeout) == 0
    if chosen in {"ads", "api_config_source"} and is_waiting:
        yield _warning(
            "endless-start",
            "0 makes the start wait for the first answer for ever",
            "give a limit such as 15s, or leave it out: that is Envoy's default",
            (*field_path, "initial_fetch_timeout"),
        )
    if chosen == "api_config_source":
        yield from _check_api(source.api_config_source, (*field_path, chosen), envoy)


def _check_api(api: DynamicMessage, field_path: FieldPath, envoy: EnvoyFacts) -> Iterator[Fault]:
    if api.api_type == REST:
        delay_s = seconds_of(api.refresh_delay)
        if delay_s > _LONGEST_DELAY_S:
            yield _warning(
                "slow-refresh",
                f"a change takes up to {2 * delay_s:g} s to be seen: Envoy pauses {delay_s:g} to {2 * delay_s:g} s after each poll",
                "write 0.05s: fsxds holds polls, so that short pauses make no more of them",
                (*field_path, "refresh_delay"),
            )
        yield from _check_request_timeout(api, (*field_path, "request_timeout"))
        for index, name in enumerate(api.cluster_names):
            yield from _check_cluster(name, (*field_path, "cluster_names", index), envoy)
        return
    for index, service in enumerate(api.grpc_services):
        if service.HasField("envoy_grpc"):
            steps = ("grpc_services", index, "envoy_grpc", "cluster_name")
            yield from _check_cluster(service.envoy_grpc.cluster_name, (*field_path, *steps), envoy)


def _check_request_timeout(api: DynamicMessage, field_path: FieldPath) -> Iterator[Fault]:
    given = api.HasField("request_timeout")
    timeout_s = seconds_of(api.request_timeout) if given else _DEFAULT_TIMEOUT_S
    if _NO_TIMEOUT_S <= timeout_s < _SHORTEST_TIMEOUT_S:
        fact = (
            f"a poll is held for {timeout_s:g} s" if given else "without it a poll is held for Envoy's default of 1 s"
        )
        yield _warning(
            "short-request-timeout",
            f"{fact}, so that each subscription sends {60 / timeout_s:.0f} requests of 77 kB in a quiet minute",
            "write request_timeout: 30s",
            field_path if given else field_path[:-1],
        )


def _check_cluster(name: str, field_path: FieldPath, envoy: EnvoyFacts) -> Iterator[Fault]:
    if envoy.clusters is None:
        return
    cluster = envoy.clusters.get(name)
    if cluster is not None and not cluster.is_eds:
        return
    is_secret = "sds_config" in field_path
    if is_secret and name in envoy.clusters_of_tree:
        return
    fact = "is of type EDS" if cluster else "is no static cluster of the bootstrap"
    yield Fault(
        "no-xds-cluster",
        f'"{name}" {fact}; configuration can come from static clusters with fixed or DNS addresses alone',
        "add it to the bootstrap's static_resources.clusters, or mirror files with --mirror-config-sources",
        field_path,
        # Envoy subscribes to secrets later than to the rest, also at clusters that come by CDS.
        severity=Severity.WARNING if is_secret else Severity.ERROR,
    )


def seconds_of(duration: DynamicMessage) -> float:
    """Return a Duration in seconds."""
    return float(duration.seconds + duration.nanos / 1e9)


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
        yield _warning(
            "no-node",
            f"{' and '.join(missing)} is missing; without both, Envoy does not start",
            "write node: {id: …, cluster: …}, unless Envoy is started with --service-node and --service-cluster",
            ("node",),
        )


def _check_admin(bootstrap: DynamicMessage) -> Iterator[Fault]:
    address = bootstrap.admin.address.socket_address.address
    if address in _EVERYWHERE:
        yield _warning(
            "open-admin",
            f"the admin page listens on {address}: any client that reaches it can read the configuration and stop Envoy",
            "listen on 127.0.0.1, unless a firewall protects the address",
            ("admin", "address", "socket_address", "address"),
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
            yield _warning(
                "not-asked-for",
                f"the tree has {row.noun}, and without {name}_config Envoy never asks for them",
                f"add {name}_config to dynamic_resources, as `fsxds bootstrap DIR` writes it",
                ("dynamic_resources",),
            )


def _check_layers(runtime: DynamicMessage, names: Collection[str]) -> Iterator[Fault]:
    asked: set[str] = set()
    for index, layer in enumerate(runtime.layers):
        if not layer.HasField("rtds_layer"):
            continue
        asked.add(layer.rtds_layer.name)
        if layer.rtds_layer.name not in names:
            yield _warning(
                "missing-runtime-layer",
                f'the tree has no runtime layer "{layer.rtds_layer.name}"; the start waits for it until '
                "initial_fetch_timeout",
                "write such a layer into the tree, or remove this one",
                ("layered_runtime", "layers", index, "rtds_layer", "name"),
            )
    for name in names:
        if name not in asked:
            yield _warning(
                "unused-runtime-layer",
                f'the bootstrap does not use the runtime layer "{name}" of the tree',
                f"add {{name: {name}, rtds_layer: {{name: {name}, rtds_config: …}}}} to the layers",
                ("layered_runtime",),
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
        yield _warning(
            "localhost-lookup",
            "Envoy takes localhost for ::1, where fsxds listens only on request",
            "add dns_lookup_family: V4_ONLY, or write 127.0.0.1 and type: STATIC",
            cluster.field_path,
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
    yield _warning(
        "few-connections",
        f"{len(subscriptions)} subscriptions ({listed}) hold a poll each, but {low[0]} is {limits[low[0]]}; "
        "polls beyond the limit fail or wait",
        "set max_connections, max_pending_requests and max_requests in its circuit_breakers to 1000000",
        (*cluster.field_path, *steps),
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
        yield _warning(
            "rest-protocol",
            "fsxds answers polls by HTTP/1.1 alone; by HTTP/2 they arrive only through a proxy that translates",
            "remove the protocol options, or let a proxy stand between",
            field_path,
        )
    if is_grpc and options is not None and options.HasField("connection_keepalive"):
        interval_s = seconds_of(options.connection_keepalive.interval)
        if 0 < interval_s < _SHORTEST_PING_S:
            yield _warning(
                "frequent-pings",
                f"a ping each {interval_s:g} s; gRPC servers close connections that ping more than once in five minutes",
                "write interval: 330s, and use upstream_connection_options.tcp_keepalive for shorter ones",
                (*field_path, "connection_keepalive", "interval"),
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
        yield _warning(
            "missing-data-file",
            # The name is not repeated: it may be the secret itself, in the wrong field.
            "the file that this names does not exist here; Envoy rejects a reference to a missing file",
            "write it before Envoy reads this, or correct the path",
            (*field_path, "filename"),
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
