"""Everything that names a cluster.

Whether Envoy looks for the cluster when it takes the resource, or only when a request needs it, was tried out with
Envoy 1.40 for every row. A cluster that comes by CDS in the same moment is there in time: Envoy loads clusters first.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Leave, Path, Walk, field_path_of
from fsxds.resources import Reference
from fsxds.rules.mentions import ANY, CLUSTER
from fsxds.values import FieldPath, Severity

Hooks: TypeAlias = dict[str, tuple[Hook, ...]]

_ROUTES = "envoy.config.route.v3."
_NETWORK = "envoy.extensions.filters.network."
_HTTP = "envoy.extensions.filters.http."
_THRIFT = f"{_NETWORK}thrift_proxy.v3."
_REDIS = f"{_NETWORK}redis_proxy.v3.RedisProxy.PrefixRoutes.Route"
_SPECIFIERS = "envoy.extensions.router.cluster_specifiers."
_MODULES = "dynamic_modules.v3.DynamicModule"

# The message, its field, and whether Envoy refuses the message when there is no such cluster. Of routes, the
# configuration that they are in decides.
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

# The same where a name may come with the request instead, in `cluster_header`.
_ROUTED: tuple[tuple[str, str], ...] = (
    (f"{_ROUTES}RouteAction", "cluster"),
    (f"{_ROUTES}RouteAction.RequestMirrorPolicy", "cluster"),
    (f"{_ROUTES}WeightedCluster.ClusterWeight", "name"),
    (f"{_THRIFT}RouteAction", "cluster"),
)

# These must be in the bootstrap: Envoy refuses a cluster of CDS here.
_STATIC: tuple[tuple[str, str], ...] = (
    ("envoy.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfig", "cluster"),
)

# What may use any cluster, by a name that stands in its code or comes with the request.
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


def hooks(_: Catalogue) -> Hooks:
    """Return the hooks that collect the names of clusters; those of fields that this Envoy does not have are never called."""
    named: Hooks = {f"{message_type}.{field}": (_naming(severity),) for message_type, field, severity in _NAMED}
    named |= {f"{message_type}.{field}": (_name_static,) for message_type, field in _STATIC}
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
    """Make a hook that notes the name in a field."""

    def refer(name: Any, path: Path, walk: Walk) -> None:
        walk.refer(path, CLUSTER, name, severity)

    return refer


def _name_static(name: Any, path: Path, walk: Walk) -> None:
    walk.refer_to_static(path, CLUSTER, name, Severity.ERROR)


def _refer_all(cluster: Any, path: Path, walk: Walk) -> None:
    for index, name in enumerate(cluster.clusters):
        walk.refer(((path, "clusters"), index), CLUSTER, name, Severity.WARNING)


def _refer_any(_: Any, path: Path, walk: Walk) -> None:
    walk.refer(path, CLUSTER, ANY, Severity.NOTE)


def _refer_uri(cluster: Any, path: Path, walk: Walk) -> None:
    # Zipkin's collector is looked for at once, all others when they are called.
    is_collector = _ends(path, "collector_service", "http_uri", "cluster")
    walk.refer(path, CLUSTER, cluster, Severity.ERROR if is_collector else Severity.WARNING)


def _refer_grpc(cluster: Any, path: Path, walk: Walk) -> None:
    # That of a config source has to be static, and is noted with the source.
    if not _is_of_source(path):
        walk.refer(path, CLUSTER, cluster, Severity.WARNING)


def _is_of_source(path: Path) -> bool:
    return field_path_of(path)[-4:-3] == ("grpc_services",)  # before its index, envoy_grpc and cluster_name


def _ends(path: Path, *steps: str) -> bool:
    return field_path_of(path)[-len(steps) :] == steps


def _validate_routes(config: Any, path: Path, walk: Walk) -> Leave | None:
    """Let missing clusters be errors where Envoy looks for those of a route configuration when it takes it.

    It does by default where the configuration is within a listener; by RDS only where `validate_clusters` asks for it.
    """
    is_inline = path is not None
    if not (config.validate_clusters.value if config.HasField("validate_clusters") else is_inline):
        return None
    start, depth = len(walk.references), len(field_path_of(path))

    def weigh() -> None:
        for index in range(start, len(walk.references)):
            reference = walk.references[index]
            if reference.type_url == CLUSTER and _is_validated(config, reference.field_path[depth:]):
                walk.references[index] = _as_error(reference)

    return weigh


def _validate_thrift_routes(config: Any, _: Path, walk: Walk) -> Leave | None:
    if config.HasField("validate_clusters") and not config.validate_clusters.value:
        return None
    start = len(walk.references)

    def weigh() -> None:
        walk.references[start:] = map(_as_error, walk.references[start:])

    return weigh


def _as_error(reference: Reference) -> Reference:
    return reference if reference.name == ANY else reference._replace(severity=Severity.ERROR)


def _is_validated(config: Any, steps: FieldPath) -> bool:
    """Tell whether Envoy looks for the cluster that a place in a route configuration names.

    It does for the routes of virtual hosts, with the mirrors that they have or inherit; not for those of a matcher.
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


def _inherits_mirrors(host: Any) -> bool:
    return any(not route.route.request_mirror_policies for route in host.routes)
