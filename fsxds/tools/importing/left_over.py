"""The remaining bootstrap, which subscribes to its former resources (pure)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from fsxds.api.fields import camel_case
from fsxds.envoy.bootstrap_text import comments_of
from fsxds.envoy.envoy_bootstrap import XDS_CLUSTER, Section
from fsxds.model.values import PlainValue
from fsxds.tools.importing.pieces import FIELDS

# Fields that an Envoy has once, and that fsxds replaces.
_REPLACED = {
    "cds_config": "clusters",
    "cds_resources_locator": "clusters",
    "lds_config": "listeners",
    "lds_resources_locator": "listeners",
    "ads_config": "all sources with `ads: {}`",
}


@dataclass(frozen=True, slots=True)
class XdsConnection:
    """The connection, as `fsxds bootstrap` writes it.

    Attributes:
        transport: `rest`, `ads`, `delta` or `files`.
        clusters: none if Envoy reads files.
        node: id and cluster, for a node without.
    """

    transport: str
    clusters: list[PlainValue]
    dynamic: Section
    node: Section

    @classmethod
    def of(cls, transport: str, bootstrap: Section, names: Collection[str]) -> XdsConnection:
        """Extract a bootstrap's connection; its cluster gets a name not in `names`."""
        name = next(one for one in _cluster_names() if one not in names)
        static, dynamic, node = (bootstrap.get(key, {}) for key in ("static_resources", "dynamic_resources", "node"))
        clusters = static.get("clusters", []) if isinstance(static, dict) else []
        clusters, dynamic = _renamed(clusters, name), _renamed(dynamic, name)
        return cls(
            transport,
            clusters if isinstance(clusters, list) else [],
            dynamic if isinstance(dynamic, dict) else {},
            node if isinstance(node, dict) else {},
        )

    @property
    def source(self) -> PlainValue:
        """The resources' config source; with files, `--mirror-config-sources` makes it a path."""
        if self.transport == "files":
            return {"resource_api_version": "V3", "ads": {}}
        return self.dynamic["cds_config"]


def _cluster_names() -> Iterator[str]:
    yield XDS_CLUSTER
    number = 1
    while True:
        yield f"fsxds-{number}"
        number += 1


def _renamed(value: PlainValue, name: str) -> PlainValue:
    """Shared parts stay one object."""
    seen: dict[int, PlainValue] = {}

    def renamed(part: PlainValue) -> PlainValue:
        if isinstance(part, list):
            return [renamed(member) for member in part]
        if not isinstance(part, dict):
            return part
        if id(part) not in seen:
            seen[id(part)] = {key: _name(key, inner, name, renamed) for key, inner in part.items()}
        return seen[id(part)]

    return renamed(value)


def _name(key: str, value: PlainValue, name: str, renamed: Callable[[PlainValue], PlainValue]) -> PlainValue:
    if key in {"name", "cluster_name"} and value == XDS_CLUSTER:
        return name
    return [name] if key == "cluster_names" else renamed(value)


@dataclass(frozen=True, slots=True)
class LeftOver:
    """The remaining bootstrap.

    Attributes:
        kept: indexes by field of `static_resources`.
        replaced: sections that are written anew.
        comments: reasons of new values, by the keys below them.
    """

    value: dict[str, PlainValue]
    kept: Mapping[str, tuple[int, ...]]
    replaced: Mapping[str, PlainValue]
    clusters: list[PlainValue]
    comments: Mapping[str, str]
    notes: tuple[str, ...] = field(default=())


def left_over(
    value: Mapping[str, PlainValue], kept: Mapping[str, tuple[int, ...]], connection: XdsConnection
) -> LeftOver:
    """Return the remaining bootstrap."""
    static = _section(value, "static_resources")
    own = {name: _members(static, name) for name in FIELDS}
    left: Section = {name: [own[name][index] for index in kept[name]] for name in FIELDS}
    left["clusters"] = [*connection.clusters, *(own["clusters"][index] for index in kept["clusters"])]
    replaced: dict[str, PlainValue] = {"static_resources": {name: part for name, part in left.items() if part}}
    before = _section(value, "dynamic_resources")
    gone = {key for key in before if _snake(key) in _REPLACED and (_snake(key) != "ads_config" or _has_ads(connection))}
    others = {key: part for key, part in before.items() if key not in gone}
    replaced["dynamic_resources"] = {**others, **connection.dynamic}
    node = _section(value, "node")
    missing = {key: part for key, part in connection.node.items() if not node.get(key)}
    if missing:
        replaced["node"] = {**node, **missing}
    kept_names = {key: part for key, part in value.items() if _snake(key) not in replaced}
    notes = (*_dynamic_notes(gone, others), *_node_notes(missing))
    return LeftOver(
        {**kept_names, **{key: part for key, part in replaced.items() if part}},
        kept,
        replaced,
        connection.clusters,
        comments_of(connection.transport),
        notes,
    )


def _has_ads(connection: XdsConnection) -> bool:
    return "ads_config" in connection.dynamic


def _dynamic_notes(gone: Collection[str], others: Collection[str]) -> Iterator[str]:
    for key in gone:
        came = _REPLACED[_snake(key)]
        yield f"dynamic_resources.{key} is replaced: {came} came from elsewhere so far, and come from fsxds alone now"
    for key in others:
        yield f"dynamic_resources.{key} stays as it was"


def _node_notes(missing: Mapping[str, PlainValue]) -> Iterator[str]:
    for key, part in missing.items():
        remedy = ": give each Envoy its own" if key == "id" else ""
        yield f"node.{key} was missing, and is {json.dumps(part)} now{remedy}"


def _snake(key: str) -> str:
    names = {camel_case(name): name for name in (*_REPLACED, "static_resources", "dynamic_resources")}
    return names.get(key, key)


def _section(value: Mapping[str, PlainValue], name: str) -> Mapping[str, PlainValue]:
    found = value.get(name, value.get(camel_case(name)))
    return found if isinstance(found, dict) else {}


def members_of(value: Mapping[str, PlainValue], name: str) -> list[PlainValue]:
    """Return a field of `static_resources`; Envoy takes one for a list of one."""
    return _members(_section(value, "static_resources"), name)


def _members(static: Mapping[str, PlainValue], name: str) -> list[PlainValue]:
    found = static.get(name)
    return found if isinstance(found, list) else [] if found is None else [found]
