"""Addresses that Envoy reads without asking a resolver: of listeners, endpoints and sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk, field_path_of
from fsxds.rules.ip_addresses import IP_REMEDY, address_fault, ip_version, not_an_ip_address, socket_address_fault

_STATIC, _STRICT_DNS, _LOGICAL_DNS = 0, 1, 2
_NAMES_REMEDY = "write an IP address, or let the cluster's type be STRICT_DNS or LOGICAL_DNS"
_RESOLVERS = "envoy.resolvers"
_BITS = {4: 32, 6: 128}


def hooks(catalogue: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over addresses."""
    resolvers = catalogue.features.names(_RESOLVERS) if catalogue.features is not None else frozenset[str]()
    return {
        "envoy.config.core.v3.SocketAddress.resolver_name": (_resolver_names(resolvers),) if resolvers else (),
        "envoy.config.listener.v3.Listener": (_check_listener,),
        "envoy.config.core.v3.BindConfig": (_check_sources,),
        "envoy.config.core.v3.CidrRange": (_check_range,),
        "envoy.config.cluster.v3.Cluster": (_check_cluster,),
        "envoy.config.endpoint.v3.ClusterLoadAssignment": (_check_own_endpoints,),
        "envoy.config.core.v3.DnsResolutionConfig": (_check_resolvers,),
        "envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig": (_check_resolvers,),
    }


def _resolver_names(resolvers: frozenset[str]) -> Hook:
    def check_name(name: str, path: Path, walk: Walk) -> None:
        # Envoy does not look at named endpoints.
        if name not in resolvers and "named_endpoints" not in field_path_of(path):
            remedy = f"remove it, or write one of {', '.join(sorted(resolvers))}"
            walk.tell(path, "wrong-address", f'"{name}" is no resolver that Envoy has', remedy)

    return check_name


def _tell_address(address: Any, path: Path, walk: Walk, remedy: str | None = None) -> None:
    fault = address_fault(address)
    if fault is not None:
        where, message, usual_remedy = fault
        for step in where.split(".") if where else ():
            path = (path, step)
        is_name = remedy is not None and where == "socket_address.address"
        walk.tell(path, "wrong-address", message, remedy if is_name and remedy else usual_remedy)


def _check_listener(listener: Any, path: Path, walk: Walk) -> None:
    if listener.HasField("address"):
        _tell_address(listener.address, (path, "address"), walk)
    for index, more in enumerate(listener.additional_addresses):
        if more.HasField("address"):
            _tell_address(more.address, (((path, "additional_addresses"), index), "address"), walk)


def _check_range(cidr: Any, path: Path, walk: Walk) -> None:
    version = ip_version(cidr.address_prefix)
    if version is None and cidr.address_prefix:
        message = not_an_ip_address(cidr.address_prefix)
        walk.tell((path, "address_prefix"), "wrong-address", message, f"{IP_REMEDY}, and the length in prefix_len")


def _check_sources(bind: Any, path: Path, walk: Walk) -> None:
    sources: list[tuple[Path, Any]] = (
        [((path, "source_address"), bind.source_address)] if bind.HasField("source_address") else []
    )
    for name in ("additional_source_addresses", "extra_source_addresses"):
        for index, more in enumerate(getattr(bind, name)):
            place: Path = ((path, name), index)
            sources.append(((place, "address") if name == "extra_source_addresses" else place, _source_of(more)))
    for place, source in sources:
        fault = socket_address_fault(source)
        if fault is not None:
            walk.tell((place, fault[0]), "wrong-address", *fault[1:])


def _source_of(source: Any) -> Any:
    return source.address if source.DESCRIPTOR.name == "ExtraSourceAddress" else source


def _check_resolvers(config: Any, path: Path, walk: Walk) -> None:
    for index, address in enumerate(config.resolvers):
        place: Path = ((path, "resolvers"), index)
        if address.WhichOneof("address") in {"pipe", "envoy_internal_address"}:
            walk.tell(place, "wrong-address", "a DNS server has an IP address", IP_REMEDY)
        else:
            _tell_address(address, place, walk)


def _check_cluster(cluster: Any, path: Path, walk: Walk) -> None:
    if cluster.HasField("load_assignment") and not cluster.HasField("cluster_type"):
        place = (path, "load_assignment")
        if cluster.type == _STATIC:
            _check_endpoints(cluster.load_assignment, place, walk, _NAMES_REMEDY)
        elif cluster.type in {_STRICT_DNS, _LOGICAL_DNS}:
            _check_looked_up(cluster.load_assignment, place, walk)
    if cluster.dns_resolvers and cluster.type in {_STRICT_DNS, _LOGICAL_DNS}:
        for index, address in enumerate(cluster.dns_resolvers):
            _tell_address(address, ((path, "dns_resolvers"), index), walk)


def _check_own_endpoints(assignment: Any, path: Path, walk: Walk) -> None:
    """Check endpoints that are served on their own; those within a cluster go by its type."""
    if path is None:
        _check_endpoints(
            assignment, path, walk, "write an IP address: names are looked up only in clusters of DNS types"
        )


def _endpoints(assignment: Any, path: Path) -> Iterator[tuple[Any, Path]]:
    """Yield every LbEndpoint with its place."""
    for number, locality in enumerate(assignment.endpoints):
        place: Path = (((path, "endpoints"), number), "lb_endpoints")
        for index, endpoint in enumerate(locality.lb_endpoints):
            yield endpoint, (place, index)


def _is_plain(endpoint: Any) -> bool:
    """Tell whether an endpoint is what nearly all are, an IP address and a port, at the least cost."""
    socket = endpoint.address.socket_address
    return not (
        ip_version(socket.address) is None
        or socket.resolver_name
        or socket.named_port
        or endpoint.additional_addresses
        or endpoint.HasField("health_check_config")
    )


def _check_endpoints(assignment: Any, path: Path, walk: Walk, remedy: str) -> None:
    if all(_is_plain(one.endpoint) for locality in assignment.endpoints for one in locality.lb_endpoints):
        return
    for lb_endpoint, place in _endpoints(assignment, path):
        if lb_endpoint.WhichOneof("host_identifier") != "endpoint":
            walk.tell(place, "wrong-address", "has no address", "give it an endpoint with an address")
            continue
        _check_endpoint(lb_endpoint.endpoint, (place, "endpoint"), walk, remedy)


def _check_endpoint(endpoint: Any, path: Path, walk: Walk, remedy: str) -> None:
    _tell_address(endpoint.address, (path, "address"), walk, remedy)
    for index, more in enumerate(endpoint.additional_addresses):
        at: Path = (((path, "additional_addresses"), index), "address")
        _tell_address(more.address, at, walk, remedy)
    if endpoint.HasField("health_check_config") and endpoint.health_check_config.HasField("address"):
        at = ((path, "health_check_config"), "address")
        _tell_address(endpoint.health_check_config.address, at, walk, remedy)


def _check_looked_up(assignment: Any, path: Path, walk: Walk) -> None:
    for lb_endpoint, place in _endpoints(assignment, path):
        socket = lb_endpoint.endpoint.address.socket_address
        if socket.resolver_name:
            at = ((((place, "endpoint"), "address"), "socket_address"), "resolver_name")
            remedy = "remove it: clusters of DNS types look names up themselves"
            walk.tell(at, "wrong-address", "a cluster of this type has no other resolver", remedy)
