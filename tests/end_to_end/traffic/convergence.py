"""Whether an Envoy has taken what a tree holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.end_to_end.traffic.kinds import TYPE, Plain, Tree
from tests.support.envoy import Envoy

# What tells two versions of a resource apart, in the form of a tree and in that of Envoy's dump.
VALUES = {"name", "cluster", "cluster_name", "route_config_name", "connect_timeout", "port_value", "weight", "value"}
PRESENCE = {"load_assignment", "eds_cluster_config"}
# Section of the dump, list in it, and where in its members the resource is.
SECTIONS = (
    ("ClustersConfigDump", "dynamic_active_clusters", ("cluster",)),
    ("ListenersConfigDump", "dynamic_listeners", ("active_state", "listener")),
    ("RoutesConfigDump", "dynamic_route_configs", ("route_config",)),
    ("EndpointsConfigDump", "dynamic_endpoint_configs", ("endpoint_config",)),
)

Marks = frozenset[tuple[str, str]]


def missing(envoy: Envoy, tree: Tree) -> list[str]:
    """Return the resources of a tree that Envoy does not have so, by name. More than the tree has is no matter."""
    held = {resource_marks(resource) for resource in _resources(envoy)}
    wanted = [resource for items in tree.values() for resource in items]
    return [_title(resource) for resource in wanted if resource_marks(resource) not in held]


def _title(resource: Plain) -> str:
    return f"{resource['@type'].rpartition('.')[2]} {resource.get('name') or resource['cluster_name']}"


def resource_marks(resource: Plain) -> tuple[str, Marks]:
    """Return the type of a resource with what tells it apart from others and from other versions of it."""
    return resource["@type"].removeprefix(TYPE), frozenset(_marks(resource))


def _marks(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for one in value:
            yield from _marks(one)
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in PRESENCE:
                yield key, ""
            if key in VALUES and isinstance(inner, str | int):
                yield key, str(inner)
            elif key not in {"access_log", "config_source", "eds_config"}:
                yield from _marks(inner)


def _resources(envoy: Envoy) -> Iterator[Plain]:
    sections = {one["@type"].rpartition(".")[2]: one for one in envoy.config_dump(eds=True)["configs"]}
    for section, members, path in SECTIONS:
        for member in sections.get(section, {}).get(members, []):
            found = member
            for key in path:
                found = found.get(key, {})
            if found:
                yield found
