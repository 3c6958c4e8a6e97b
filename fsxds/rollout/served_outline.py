"""A view's served snapshot without content, for planners of changes.

It suffices to compute a change's holds, as `holding` does in the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from fsxds.model.resource_types import BY_TYPE_URL, RESOURCE_TYPES
from fsxds.model.resources import CLAIMED, Key, Origin, Reference, Resource, Rows, Snapshot
from fsxds.model.values import Layers, PlainValue, Severity, TypeUrl, Version
from fsxds.rollout.holding import COLLECTIONS, Hold, HoldReason, Holds, body_with_entries, entry_count

# Holds that follow from other resources are computed anew.
_EXPLICIT = frozenset({HoldReason.REJECTED, HoldReason.PINNED})


@dataclass(frozen=True, slots=True)
class ServedOutline:
    """A view's served snapshot, with its rejections and rollbacks.

    Attributes:
        served: the last target reached or under way; without content if read.
        held: each hold's reason, while the tree has this version; None for a removed resource.
    """

    layers: Layers
    served: Snapshot
    held: Mapping[Key, tuple[HoldReason, Version | None]]
    has_upstreams: bool = False

    @classmethod
    def of(cls, layers: Layers, served: Snapshot, holds: Holds, *, has_upstreams: bool) -> ServedOutline:
        """Return a view's outline."""
        held = {key: (hold.reason, _version(hold.asked)) for key, hold in holds.items() if hold.reason in _EXPLICIT}
        return cls(layers, served, MappingProxyType(held), has_upstreams)

    def holds_of(self, tree: Snapshot) -> Holds:
        """Return rejections and rollbacks that apply to a tree."""
        found = {}
        for (type_url, name), (reason, version) in self.held.items():
            asked = tree.resources(type_url).get(name)
            if _version(asked) == version:
                found[type_url, name] = Hold(reason, self.served.resources(type_url).get(name), asked)
        return found

    def plain(self) -> PlainValue:
        """Return JSON values."""
        rows = {row.type_url: self.served.resources(row.type_url) for row in RESOURCE_TYPES}
        return {
            "layers": [*self.layers],
            "has_upstreams": self.has_upstreams,
            "resources": {type_url: [_plain(one) for one in each.values()] for type_url, each in rows.items() if each},
            "held": [[*key, reason.value, version] for key, (reason, version) in self.held.items()],
        }

    @classmethod
    def read(cls, plain: Any) -> ServedOutline:
        """Raises LookupError, TypeError or ValueError for invalid values."""
        by_type: dict[TypeUrl, Rows] = {}
        for row in RESOURCE_TYPES:
            found = (_resource(row.type_url, each) for each in plain["resources"].get(row.type_url, ()))
            by_type[row.type_url] = Rows(row.type_url, {one.name: one for one in found})
        held = {(TypeUrl(url), name): (HoldReason(why), version) for url, name, why, version in plain["held"]}
        return cls(tuple(plain["layers"]), Snapshot(0, by_type), held, plain["has_upstreams"])


def _version(resource: Resource | None) -> Version | None:
    return None if resource is None else resource.version


def _plain(resource: Resource) -> PlainValue:
    origin, mentions = (
        resource.origin,
        dict.fromkeys(
            (one.type_url, one.name, one.severity.value)
            for one in resource.references
            if (one.type_url in BY_TYPE_URL or one.type_url in CLAIMED) and not one.is_static
        ),
    )
    entries = entry_count(resource.body) if resource.type_url == COLLECTIONS else 0
    return [resource.name, resource.version, str(origin.path), origin.line, entries, [[*one] for one in mentions]]


def _resource(type_url: TypeUrl, plain: Any) -> Resource:
    name, version, path, line, entries, mentions = plain
    return Resource(
        type_url,
        name,
        body_with_entries(entries),
        Version(version),
        Origin(PurePosixPath(path), line),
        references=tuple(Reference(TypeUrl(url), other, (), Severity(severity)) for url, other, severity in mentions),
    )
