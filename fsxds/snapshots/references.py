"""Collects the references of resources: clusters, discovered resources, and files.

They are judged by `lint` and in rollouts. Only faults in a TypedStruct are reported, as it is first read here.

For every row, Envoy 1.40 was tried without the named resource: whether it looks up a cluster when it takes the
resource, or only for a request; and its reaction to a discovered resource that never comes. A cluster that comes by CDS
at the same moment is in time: Envoy loads clusters first.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.converter import Converter
from fsxds.api.fields import FieldValue
from fsxds.api.printing import Printer
from fsxds.api.walk import Hook, Hooks, Leave, Path, Walk, field_path_of, merge_hooks
from fsxds.model.errors import ApiError
from fsxds.model.resource_names import is_structured
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Reference
from fsxds.model.values import FieldPath, Severity, TypeUrl

TYPED_STRUCTS = ("xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct")

CLUSTER = BY_SHORT_NAME["cds"].type_url
ENDPOINTS = BY_SHORT_NAME["eds"].type_url
ROUTES = BY_SHORT_NAME["rds"].type_url
SCOPED_ROUTE = BY_SHORT_NAME["srds"].type_url
SECRET = BY_SHORT_NAME["sds"].type_url
EXTENSION_CONFIG = BY_SHORT_NAME["ecds"].type_url
VIRTUAL_HOST = BY_SHORT_NAME["vhds"].type_url
LB_ENDPOINT = BY_SHORT_NAME["leds"].type_url

ANY = "*"
"""In place of a name: any resource of the type may be meant.

As with all references of severity NOTE, none has to exist: the resources may be in use.
"""

IN_FILE = "file:"
"""Prefix of the type of a reference to a resource in a file.

The reference's name is the path where Envoy looks, a line feed and the name.
"""


_ERROR = Severity.ERROR
# Rules of fields and values that Envoy does not know; any other fault is a wrong value.
_UNKNOWN = frozenset({"unknown-field", "unknown-enum-value"})


def hooks(catalogue: Catalogue) -> Hooks:
    """Return hooks by full names."""
    typed_structs = TypedStructs(catalogue)
    return merge_hooks(
        dict.fromkeys(TYPED_STRUCTS, (typed_structs.walk_into,)), _cluster_hooks(), _discovery_hooks(catalogue)
    )


class TypedStructs:
    """Walks into TypedStructs."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._strict, self._lenient = (Converter(catalogue, unknown_fields=one) for one in (_ERROR, Severity.WARNING))
        self._printer = Printer(catalogue)

    def walk_into(self, struct: DynamicMessage, path: Path, walk: Walk) -> None:
        """Walk the content; ignore foreign unknown types."""
        message_type = struct.type_url.rpartition("/")[2]
        if not self._catalogue.knows(message_type):
            if message_type.startswith("envoy."):
                for fault in self._strict.convert_any({"@type": struct.type_url}).faults:
                    walk.error((path, "type_url"), fault.rule, fault.message, fault.remedy)
            return
        if not struct.HasField("value"):
            return
        try:
            plain = self._printer.to_plain(struct.value)
        except ApiError:
            return  # reported by its reader
        place: Path = (path, "value")
        # Envoy silently ignores unknown fields.
        converted = self._lenient.convert(plain, message_type)
        for fault in self._strict.convert(plain, message_type).faults if converted.faults else ():
            if fault.severity is _ERROR:
                at = place
                for step in fault.field_path:
                    at = (at, step)
                rule = fault.rule if fault.rule in _UNKNOWN else "wrong-typed-struct"
                walk.error(at, rule, fault.message, fault.remedy)
        if converted.message is not None:
            walk.enter(converted.message, place)


_ROUTES = "envoy.config.route.v3."
_NETWORK = "envoy.extensions.filters.network."
_HTTP = "envoy.extensions.filters.http."
_THRIFT = f"{_NETWORK}thrift_proxy.v3."
_REDIS = f"{_NETWORK}redis_proxy.v3.RedisProxy.PrefixRoutes.Route"
_SPECIFIERS = "envoy.extensions.router.cluster_specifiers."
_MODULES = "dynamic_modules.v3.DynamicModule"

# The message, its field, and whether Envoy rejects the message if there is no such cluster. For routes, the enclosing
# configuration decides.
_NAMED: tuple[tuple[str, str, Severity], ...] = (
    (f"{_NETWORK}tcp_proxy.v3.TcpProxy", "cluster", Severity.WARNING),
    (f"{_NETWORK}tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight", "name", Severity.WARNING),
    ("envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig", "cluster", Severity.WARNING),
    ("envoy.extensions.filters.udp.udp_proxy.v3.Route", "cluster", Severity.WARNING),
    (f"{_THRIFT}RouteAction.RequestMirrorPolicy", "cluster", Severity.WARNING),
    (f"{_THRIFT}WeightedCluster.ClusterWeight", "name", Severity.WARNING),
    (f"{_NETWORK}dubbo_proxy.v3.RouteAction", "cluster", Severity.WARNING),
    (f"{_NETWORK}generic_proxy.action.v3.RouteAction", "cluster", Severity.WARNING),
    (_REDIS, "cluster", Severity.WARNING),
    (f"{_REDIS}.RequestMirrorPolicy", "cluster", Severity.WARNING),
    (f"{_REDIS}.ReadCommandPolicy", "cluster", Severity.WARNING),
    (f"{_SPECIFIERS}matcher.v3.ClusterAction", "cluster", Severity.WARNING),
    (f"{_SPECIFIERS}lua.v3.LuaConfig", "default_cluster", Severity.WARNING),
    (f"{_SPECIFIERS}priority_group.v3.ClusterWeight", "cluster_name", Severity.WARNING),
    ("envoy.extensions.clusters.composite.v3.ClusterConfig.ClusterEntry", "name", Severity.WARNING),
    ("envoy.extensions.clusters.mcp_multicluster.v3.ClusterConfig.McpCluster", "cluster", Severity.WARNING),
    (f"{_HTTP}mcp_router.v3.McpRouter.McpCluster", "cluster", Severity.WARNING),
    (f"{_HTTP}gcp_authn.v3.GcpAuthnFilterConfig", "cluster", Severity.WARNING),
    (f"{_HTTP}cache_v2.v3.CacheV2Config", "override_upstream_cluster", Severity.WARNING),
    ("envoy.data.dns.v3.DnsTable.DnsEndpoint", "cluster_name", Severity.WARNING),
    ("envoy.data.dns.v3.DnsTable.DnsServiceTarget", "cluster_name", Severity.WARNING),
    ("envoy.extensions.tracers.fluentd.v3.FluentdConfig", "cluster", Severity.WARNING),
    ("envoy.config.trace.v3.ZipkinConfig", "collector_cluster", Severity.ERROR),
    ("envoy.config.trace.v3.DatadogConfig", "collector_cluster", Severity.ERROR),
)

# The same if a name may come with the request instead, in `cluster_header`.
_ROUTED: tuple[tuple[str, str], ...] = (
    (f"{_ROUTES}RouteAction", "cluster"),
    (f"{_ROUTES}RouteAction.RequestMirrorPolicy", "cluster"),
    (f"{_ROUTES}WeightedCluster.ClusterWeight", "name"),
    (f"{_THRIFT}RouteAction", "cluster"),
)

# These must be in the bootstrap: Envoy rejects a cluster of CDS here.
_STATIC: tuple[tuple[str, str], ...] = (
    ("envoy.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfig", "cluster"),
)

# These may use any cluster, by a name in their code or from the request.
_ANY = (
    f"{_HTTP}lua.v3.Lua",
    f"{_HTTP}lua.v3.LuaPerRoute",
    f"{_HTTP}golang.v3alpha.Config",
    f"{_HTTP}{_MODULES}Filter",
    f"{_NETWORK}{_MODULES}NetworkFilter",
    "envoy.extensions.wasm.v3.PluginConfig",
    f"{_SPECIFIERS}{_MODULES}ClusterSpecifier",
    f"{_SPECIFIERS}lua.v3.LuaConfig",
    "envoy.extensions.router.cluster_specifiers.golang.v3alpha.Config",
)


NAMING_FIELDS: Mapping[str, TypeUrl] = MappingProxyType({
    **{f"{message_type}.{field}": CLUSTER for message_type, field, _ in _NAMED},
    **{f"{message_type}.{field}": CLUSTER for message_type, field in _ROUTED},
    "envoy.extensions.clusters.aggregate.v3.ClusterConfig.clusters": CLUSTER,
    "envoy.config.core.v3.HttpUri.cluster": CLUSTER,
    "envoy.config.core.v3.GrpcService.EnvoyGrpc.cluster_name": CLUSTER,
    "envoy.config.core.v3.ApiConfigSource.cluster_names": CLUSTER,
    "envoy.config.cluster.v3.Cluster.EdsClusterConfig.service_name": ENDPOINTS,
    "envoy.extensions.filters.network.http_connection_manager.v3.Rds.route_config_name": ROUTES,
    "envoy.config.route.v3.ScopedRouteConfiguration.route_configuration_name": ROUTES,
    "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig.name": SECRET,
})  # fmt: skip
"""The full names of fields that only name resources, and the type that each names."""


def _cluster_hooks() -> Hooks:
    named: dict[str, tuple[Hook, ...]] = {
        f"{message_type}.{field}": (_naming(severity),) for message_type, field, severity in _NAMED
    }
    for message_type, field in _STATIC:
        named[f"{message_type}.{field}"] = (lambda name, path, walk: walk.refer_to_static(path, CLUSTER, name, _ERROR),)
    named |= {f"{message_type}.{field}": (_naming(Severity.WARNING),) for message_type, field in _ROUTED}
    named |= {f"{message_type}.cluster_header": (_refer_any,) for message_type, _ in _ROUTED}
    return {
        **named,
        **dict.fromkeys(_ANY, (_refer_any,)),
        "envoy.extensions.clusters.aggregate.v3.ClusterConfig": (_refer_all,),
        "envoy.config.core.v3.HttpUri.cluster": (_refer_uri,),
        "envoy.config.core.v3.GrpcService.EnvoyGrpc.cluster_name": (_refer_grpc,),
        f"{_ROUTES}RouteConfiguration": (_validate_routes,),
        f"{_THRIFT}RouteConfiguration": (_validate_thrift_routes,),
    }


def _naming(severity: Severity) -> Hook:

    def refer(name: FieldValue, path: Path, walk: Walk) -> None:
        walk.refer(path, CLUSTER, name, severity)

    return refer


def _refer_all(cluster: DynamicMessage, path: Path, walk: Walk) -> None:
    for index, name in enumerate(cluster.clusters):
        walk.refer(((path, "clusters"), index), CLUSTER, name, Severity.WARNING)


def _refer_any(_: DynamicMessage, path: Path, walk: Walk) -> None:
    walk.refer(path, CLUSTER, ANY, Severity.NOTE)


def _refer_uri(cluster: DynamicMessage, path: Path, walk: Walk) -> None:
    walk.depend_on_place()
    # Envoy looks up Zipkin's collector at once, all other clusters when they are called.
    is_collector = field_path_of(path)[-3:] == ("collector_service", "http_uri", "cluster")
    walk.refer(path, CLUSTER, cluster, Severity.ERROR if is_collector else Severity.WARNING)


def _refer_grpc(cluster: DynamicMessage, path: Path, walk: Walk) -> None:
    # The cluster of a config source must be static (ENVOY.md E6), and is recorded with the source.
    walk.depend_on_place()
    if field_path_of(path)[-4:-3] != ("grpc_services",):  # before its index, envoy_grpc and cluster_name
        walk.refer(path, CLUSTER, cluster, Severity.WARNING)


def _validate_routes(config: DynamicMessage, path: Path, walk: Walk) -> Leave | None:
    """Make missing clusters errors if Envoy looks them up when it takes the route configuration.

    By default it does within a listener; by RDS only if `validate_clusters`.
    """
    walk.depend_on_place()
    is_inline = path is not None
    if not (config.validate_clusters.value if config.HasField("validate_clusters") else is_inline):
        return None
    start, depth = len(walk.references), len(field_path_of(path))

    def raise_severity() -> None:
        for index in range(start, len(walk.references)):
            reference = walk.references[index]
            if reference.type_url == CLUSTER and _is_validated(config, reference.field_path[depth:]):
                walk.references[index] = _as_error(reference)

    return raise_severity


def _validate_thrift_routes(config: DynamicMessage, _: Path, walk: Walk) -> Leave | None:
    if config.HasField("validate_clusters") and not config.validate_clusters.value:
        return None
    start = len(walk.references)

    def raise_severity() -> None:
        walk.references[start:] = map(_as_error, walk.references[start:])

    return raise_severity


def _as_error(reference: Reference) -> Reference:
    return reference if reference.name == ANY else reference._replace(severity=Severity.ERROR)


def _is_validated(config: DynamicMessage, steps: FieldPath) -> bool:
    """Whether Envoy looks up the cluster at a place.

    It does for routes of virtual hosts, with own or inherited mirrors; not for routes of a matcher.
    """
    match steps:
        case ("virtual_hosts", int(), "routes", int(), "route", "cluster"):
            return True
        case ("virtual_hosts", int(), "routes", int(), "route", "weighted_clusters", "clusters", int(), "name"):
            return True
        case ("virtual_hosts", int(), "routes", int(), "route", "request_mirror_policies", int(), "cluster"):
            return True
        case ("virtual_hosts", int(host), "request_mirror_policies", int(), "cluster"):
            return _inherits_mirrors(config.virtual_hosts[host])
        case ("request_mirror_policies", int(), "cluster"):
            hosts = [host for host in config.virtual_hosts if not host.request_mirror_policies]
            return any(map(_inherits_mirrors, hosts))
    return False


def _inherits_mirrors(host: DynamicMessage) -> bool:
    return any(not route.route.request_mirror_policies for route in host.routes)


_Target: TypeAlias = tuple[TypeUrl, str, Severity]

_EDS = 3
_REST = 1

_HCM = "envoy.extensions.filters.network.http_connection_manager.v3."

# Messages whose content may come by discovery instead of in place; the name to discover is their own.
_EXTENSIBLE = (
    f"{_HCM}HttpFilter",
    "envoy.config.listener.v3.Filter",
    "envoy.config.listener.v3.ListenerFilter",
    "envoy.config.cluster.v3.Filter",
    "envoy.extensions.filters.http.composite.v3.DynamicConfig",
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.SessionFilter",
)


def _discovery_hooks(catalogue: Catalogue) -> Hooks:
    found = ((name, catalogue.descriptor(name)) for name in _EXTENSIBLE)
    extensible = {name: (_refer_extension,) for name, one in found if one and "config_discovery" in one.fields_by_name}
    return {
        "envoy.config.cluster.v3.Cluster": (_refer_endpoints,),
        "envoy.config.endpoint.v3.LedsClusterLocalityConfig": (_refer_lb_endpoints,),
        f"{_HCM}Rds": (_refer_routes,),
        "envoy.config.route.v3.RouteConfiguration": (_refer_virtual_hosts,),
        f"{_HCM}ScopedRoutes": (_refer_scopes,),
        "envoy.config.route.v3.ScopedRouteConfiguration": (_refer_routes_of_scope,),
        "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig": (_refer_secret,),
        "envoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config": (
            lambda _, path, walk: walk.refer(path, SECRET, ANY, Severity.NOTE),
        ),
        **extensible,
    }


def _refer_endpoints(cluster: DynamicMessage, path: Path, walk: Walk) -> None:
    if cluster.WhichOneof("cluster_discovery_type") != "type" or cluster.type != _EDS:
        return
    eds = cluster.eds_cluster_config
    place = ((path, "eds_cluster_config"), "service_name") if eds.service_name else (path, "name")
    name = eds.service_name or cluster.name
    source_path: Path = ((path, "eds_cluster_config"), "eds_config")
    _refer(walk, place, (ENDPOINTS, name, Severity.WARNING), eds.eds_config, source_path)


def _refer_lb_endpoints(leds: DynamicMessage, path: Path, walk: Walk) -> None:
    if leds.leds_collection_name:
        walk.refer((path, "leds_collection_name"), LB_ENDPOINT, leds.leds_collection_name, Severity.NOTE)


def _refer_virtual_hosts(config: DynamicMessage, path: Path, walk: Walk) -> None:
    # Within a listener, Envoy ignores `vhds`.
    if path is None and config.HasField("vhds"):
        walk.refer((path, "vhds"), VIRTUAL_HOST, f"{config.name}/{ANY}", Severity.NOTE)
        # The only source, beside those of secrets, whose cluster may come by CDS.
        _refer_source(walk, config.vhds.config_source, ((path, "vhds"), "config_source"), is_static=False)


def _refer_routes(rds: DynamicMessage, path: Path, walk: Walk) -> None:
    target = (ROUTES, rds.route_config_name, Severity.WARNING)
    place = (path, "route_config_name")
    if not _refer(walk, place, target, rds.config_source, (path, "config_source")):
        # Routes from elsewhere may lead to any cluster.
        walk.refer(place, CLUSTER, ANY, Severity.NOTE)


def _refer_scopes(scoped: DynamicMessage, path: Path, walk: Walk) -> None:
    which = scoped.WhichOneof("config_specifier")
    source, source_path = scoped.rds_config_source, (path, "rds_config_source")
    if which == "scoped_rds":
        target = (SCOPED_ROUTE, ANY, Severity.WARNING)
        place: Path = (path, "scoped_rds")
        _refer(walk, place, target, scoped.scoped_rds.scoped_rds_config_source, (place, "scoped_rds_config_source"))
        if scoped.scoped_rds.srds_resources_locator:
            locator = scoped.scoped_rds.srds_resources_locator
            walk.refer((place, "srds_resources_locator"), SCOPED_ROUTE, locator, Severity.NOTE)
        _refer_source(walk, source, source_path, is_static=True)
    elif which == "scoped_route_configurations_list":
        rows: Path = ((path, which), "scoped_route_configurations")
        for index, scope in enumerate(scoped.scoped_route_configurations_list.scoped_route_configurations):
            if scope.route_configuration_name:
                target = (ROUTES, scope.route_configuration_name, Severity.WARNING)
                _refer(walk, ((rows, index), "route_configuration_name"), target, source, source_path)


def _refer_routes_of_scope(scope: DynamicMessage, path: Path, walk: Walk) -> None:
    # Within a listener, the list's own source counts.
    if path is None and scope.route_configuration_name:
        walk.refer((path, "route_configuration_name"), ROUTES, scope.route_configuration_name, Severity.WARNING)


def _refer_secret(config: DynamicMessage, path: Path, walk: Walk) -> None:
    if not config.name:
        return
    place = (path, "name")
    if not config.HasField("sds_config"):
        walk.refer_to_static(place, SECRET, config.name, Severity.ERROR)
        return
    source, source_path = config.sds_config, (path, "sds_config")
    _refer(walk, place, (SECRET, config.name, _severity_of_waiting(source)), source, source_path)


def _refer_extension(owner: DynamicMessage, path: Path, walk: Walk) -> None:
    if not owner.HasField("config_discovery"):
        return
    discovery = owner.config_discovery
    severity = _severity_of_waiting(discovery.config_source)
    if discovery.HasField("default_config"):
        # The listener waits all the same, unless it is set not to.
        severity = Severity.NOTE if discovery.apply_default_config_without_warming else Severity.WARNING
    source_path: Path = ((path, "config_discovery"), "config_source")
    _refer(walk, (path, "name"), (EXTENSION_CONFIG, owner.name, severity), discovery.config_source, source_path)


def _severity_of_waiting(source: DynamicMessage) -> Severity:
    """Return the severity of a resource that Envoy awaits in vain.

    A separate gRPC service is most often another server: an agent that hands out secrets.
    """
    is_api = source.WhichOneof("config_source_specifier") == "api_config_source"
    return Severity.WARNING if is_api and source.api_config_source.api_type != _REST else Severity.ERROR


def _refer(walk: Walk, place: Path, target: _Target, source: DynamicMessage, source_path: Path) -> bool:
    type_url, name, severity = target
    _refer_source(walk, source, source_path, is_static=type_url != SECRET)
    which = source.WhichOneof("config_source_specifier")
    if which in {"path", "path_config_source"}:
        path = source.path if which == "path" else source.path_config_source.path
        if path:
            step = ((source_path, which), "path") if which == "path_config_source" else (source_path, which)
            walk.refer(step, TypeUrl(IN_FILE + type_url), f"{path}\n{name}", Severity.ERROR)
        # If the tree contains that file, this reference uses it.
        walk.refer(place, type_url, name, Severity.NOTE)
        return False
    services = source.api_config_source.grpc_services
    # A source with a literal address is not the server of this resource.
    if services and all(service.HasField("google_grpc") for service in services):
        walk.refer(place, type_url, name, Severity.NOTE)
        return False
    if which is None or source.authorities:
        # The source of names of an authority may be us.
        if is_structured(name):
            walk.refer(place, type_url, name, Severity.NOTE)
        return False
    walk.refer(place, type_url, name, severity)
    return True


def _refer_source(walk: Walk, source: DynamicMessage, path: Path, *, is_static: bool) -> None:
    """Its clusters must be static, except for secrets and virtual hosts."""
    if source.WhichOneof("config_source_specifier") != "api_config_source":
        return
    api, place = source.api_config_source, (path, "api_config_source")
    refer, severity = (walk.refer_to_static, Severity.ERROR) if is_static else (walk.refer, Severity.NOTE)
    for index, name in enumerate(api.cluster_names):
        refer(((place, "cluster_names"), index), CLUSTER, name, severity)
    for index, service in enumerate(api.grpc_services):
        if service.envoy_grpc.cluster_name:
            step: Path = ((((place, "grpc_services"), index), "envoy_grpc"), "cluster_name")
            refer(step, CLUSTER, service.envoy_grpc.cluster_name, severity)
