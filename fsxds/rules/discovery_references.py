"""Everything that is told to look for a resource by discovery: endpoints, routes, scopes, secrets, extensions.

What Envoy 1.40 does when nothing has the name was tried out against fsxds over REST.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk
from fsxds.rules.mentions import (
    ANY,
    CLUSTER,
    ENDPOINTS,
    EXTENSION_CONFIG,
    IN_FILE,
    LB_ENDPOINT,
    ROUTES,
    SCOPED_ROUTE,
    SECRET,
    VIRTUAL_HOST,
)
from fsxds.values import Severity, TypeUrl

Hooks: TypeAlias = dict[str, tuple[Hook, ...]]

_Target: TypeAlias = tuple[TypeUrl, str, Severity]

_EDS = 3
_REST = 1

_HCM = "envoy.extensions.filters.network.http_connection_manager.v3."

# Whatever may have its content by discovery instead of in place; the name to look for is its own.
_EXTENSIBLE = (
    f"{_HCM}HttpFilter",
    "envoy.config.listener.v3.Filter",
    "envoy.config.listener.v3.ListenerFilter",
    "envoy.config.cluster.v3.Filter",
    "envoy.extensions.filters.http.composite.v3.DynamicConfig",
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.SessionFilter",
)


def hooks(catalogue: Catalogue) -> Hooks:
    """Return the hooks that collect the names of what is discovered."""
    extensible = {name: (_refer_extension,) for name in _EXTENSIBLE if _is_extensible(catalogue, name)}
    return {
        "envoy.config.cluster.v3.Cluster": (_refer_endpoints,),
        "envoy.config.endpoint.v3.LedsClusterLocalityConfig": (_refer_lb_endpoints,),
        f"{_HCM}Rds": (_refer_routes,),
        "envoy.config.route.v3.RouteConfiguration": (_refer_virtual_hosts,),
        f"{_HCM}ScopedRoutes": (_refer_scopes,),
        "envoy.config.route.v3.ScopedRouteConfiguration": (_refer_routes_of_scope,),
        "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig": (_refer_secret,),
        "envoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config": (_refer_any_secret,),
        **extensible,
    }


def _is_extensible(catalogue: Catalogue, message_type: str) -> bool:
    descriptor = catalogue.descriptor(message_type)
    return descriptor is not None and "config_discovery" in descriptor.fields_by_name


def _refer_endpoints(cluster: Any, path: Path, walk: Walk) -> None:
    if cluster.WhichOneof("cluster_discovery_type") != "type" or cluster.type != _EDS:
        return
    eds = cluster.eds_cluster_config
    place = ((path, "eds_cluster_config"), "service_name") if eds.service_name else (path, "name")
    name = eds.service_name or cluster.name
    source_path: Path = ((path, "eds_cluster_config"), "eds_config")
    _refer(walk, place, (ENDPOINTS, name, Severity.WARNING), eds.eds_config, source_path)


def _refer_lb_endpoints(leds: Any, path: Path, walk: Walk) -> None:
    if leds.leds_collection_name:
        walk.refer((path, "leds_collection_name"), LB_ENDPOINT, leds.leds_collection_name, Severity.NOTE)


def _refer_virtual_hosts(config: Any, path: Path, walk: Walk) -> None:
    # Within a listener, Envoy does not look at `vhds`.
    if path is None and config.HasField("vhds"):
        walk.refer((path, "vhds"), VIRTUAL_HOST, f"{config.name}/{ANY}", Severity.NOTE)
        # The one source, beside those of secrets, whose cluster may come by CDS.
        _refer_source(walk, config.vhds.config_source, ((path, "vhds"), "config_source"), is_static=False)


def _refer_routes(rds: Any, path: Path, walk: Walk) -> None:
    target = (ROUTES, rds.route_config_name, Severity.WARNING)
    place = (path, "route_config_name")
    if not _refer(walk, place, target, rds.config_source, (path, "config_source")):
        # Routes of elsewhere may lead to any cluster.
        walk.refer(place, CLUSTER, ANY, Severity.NOTE)


def _refer_scopes(scoped: Any, path: Path, walk: Walk) -> None:
    which = scoped.WhichOneof("config_specifier")
    source, source_path = scoped.rds_config_source, (path, "rds_config_source")
    if which == "scoped_rds":
        target = (SCOPED_ROUTE, ANY, Severity.WARNING)
        place: Path = (path, "scoped_rds")
        _refer(walk, place, target, scoped.scoped_rds.scoped_rds_config_source, (place, "scoped_rds_config_source"))
        _refer_source(walk, source, source_path, is_static=True)
    elif which == "scoped_route_configurations_list":
        rows: Path = ((path, which), "scoped_route_configurations")
        for index, scope in enumerate(scoped.scoped_route_configurations_list.scoped_route_configurations):
            if scope.route_configuration_name:
                target = (ROUTES, scope.route_configuration_name, Severity.WARNING)
                _refer(walk, ((rows, index), "route_configuration_name"), target, source, source_path)


def _refer_routes_of_scope(scope: Any, path: Path, walk: Walk) -> None:
    # Within a listener, the list's own source counts.
    if path is None and scope.route_configuration_name:
        walk.refer((path, "route_configuration_name"), ROUTES, scope.route_configuration_name, Severity.WARNING)


def _refer_secret(config: Any, path: Path, walk: Walk) -> None:
    if not config.name:
        return
    place = (path, "name")
    if not config.HasField("sds_config"):
        walk.refer_to_static(place, SECRET, config.name, Severity.ERROR)
        return
    source, source_path = config.sds_config, (path, "sds_config")
    _refer(walk, place, (SECRET, config.name, _weight_of_waiting(source)), source, source_path)


def _refer_any_secret(_: Any, path: Path, walk: Walk) -> None:
    walk.refer(path, SECRET, ANY, Severity.NOTE)


def _refer_extension(owner: Any, path: Path, walk: Walk) -> None:
    if not owner.HasField("config_discovery"):
        return
    discovery = owner.config_discovery
    severity = _weight_of_waiting(discovery.config_source)
    if discovery.HasField("default_config"):
        # The listener waits all the same, unless it is told not to.
        severity = Severity.NOTE if discovery.apply_default_config_without_warming else Severity.WARNING
    source_path: Path = ((path, "config_discovery"), "config_source")
    _refer(walk, (path, "name"), (EXTENSION_CONFIG, owner.name, severity), discovery.config_source, source_path)


def _weight_of_waiting(source: Any) -> Severity:
    """Return how much it weighs that Envoy waits for a resource that never comes.

    A gRPC service of its own is most often another server: an agent that hands out secrets.
    """
    is_api = source.WhichOneof("config_source_specifier") == "api_config_source"
    return Severity.WARNING if is_api and source.api_config_source.api_type != _REST else Severity.ERROR


def _refer(walk: Walk, place: Path, target: _Target, source: Any, source_path: Path) -> bool:
    """Note a resource that is asked of a source, if that may be us; return whether it may be."""
    type_url, name, severity = target
    _refer_source(walk, source, source_path, is_static=type_url != SECRET)
    which = source.WhichOneof("config_source_specifier")
    if which in {"path", "path_config_source"}:
        path = source.path if which == "path" else source.path_config_source.path
        if path:
            step = ((source_path, which), "path") if which == "path_config_source" else (source_path, which)
            walk.refer(step, TypeUrl(IN_FILE + type_url), f"{path}\n{name}", Severity.ERROR)
        # Should the tree hold that file, this is what uses it.
        walk.refer(place, type_url, name, Severity.NOTE)
        return False
    if which is None or source.authorities or name.startswith("xdstp:"):
        return False
    walk.refer(place, type_url, name, severity)
    return True


def _refer_source(walk: Walk, source: Any, path: Path, *, is_static: bool) -> None:
    """Note the clusters through which a source is asked.

    They have to be in the bootstrap; not so for secrets and virtual hosts, whose cluster may come by CDS as well.
    """
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
