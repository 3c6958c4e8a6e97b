"""Virtual hosts beside one another: whom a domain belongs to."""

from __future__ import annotations

from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.host_names import lowered
from fsxds.api.walk import Hook, Path, Walk

_REMEDY = "let one virtual host have the domain"


def hooks(_: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over the virtual hosts of a route configuration."""
    return {
        "envoy.config.route.v3.RouteConfiguration": (_check_domains, _check_vhds),
        "envoy.config.route.v3.VirtualHost": (_check_own_domains, _check_matcher),
        "envoy.config.route.v3.VirtualCluster": (_check_virtual_cluster,),
    }


def _check_domains(config: Any, path: Path, walk: Walk) -> None:
    owners: dict[str, str] = {}
    for number, host in enumerate(config.virtual_hosts):
        for index, domain in enumerate(host.domains):
            asked = lowered(domain)
            if asked in owners:
                place = ((((path, "virtual_hosts"), number), "domains"), index)
                _tell_duplicate(domain, owners[asked], place, walk)
            else:
                owners[asked] = host.name


def _check_own_domains(host: Any, path: Path, walk: Walk) -> None:
    """Check the domains of a virtual host that is served on its own."""
    if path is None and len(host.domains) > 1:
        seen: set[str] = set()
        for index, domain in enumerate(host.domains):
            if lowered(domain) in seen:
                _tell_duplicate(domain, host.name, ((path, "domains"), index), walk)
            seen.add(lowered(domain))


def _tell_duplicate(domain: str, owner: str, path: Path, walk: Walk) -> None:
    message = f'"{domain}" is already a domain of virtual host "{owner}"'
    walk.tell(path, "duplicate-domain", f"{message}; letter case does not count", _REMEDY)


def _check_vhds(config: Any, path: Path, walk: Walk) -> None:
    if not config.HasField("vhds"):
        return
    source = config.vhds.config_source
    if source.WhichOneof("config_source_specifier") in {"path", "path_config_source"} or (
        source.WhichOneof("config_source_specifier") == "api_config_source"
        and source.api_config_source.api_type not in _DELTA_TYPES
    ):
        message = "virtual hosts can be discovered only by delta gRPC or over the aggregated stream"
        walk.tell(((path, "vhds"), "config_source"), "wrong-config-source", message, "write ads: {} or DELTA_GRPC")


_DELTA_TYPES = frozenset({3, 6})  # DELTA_GRPC, AGGREGATED_DELTA_GRPC


def _check_matcher(host: Any, path: Path, walk: Walk) -> None:
    if host.HasField("matcher") and host.routes:
        message = "a virtual host has routes or a matcher, not both"
        walk.tell((path, "matcher"), "wrong-route", message, "move the routes into the matcher, or remove it")


def _check_virtual_cluster(cluster: Any, path: Path, walk: Walk) -> None:
    if not cluster.headers:
        message = "a virtual cluster needs headers to match"
        walk.tell((path, "headers"), "wrong-route", message, "say which requests belong to it")
