"""The setting `upstream_node`: the node that upstreams are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from fsxds.settings.structured import DEEPEST, SettingPart, object_schema, structured
from fsxds.values import PlainValue


@dataclass(frozen=True, slots=True)
class UpstreamNode:
    """The node that upstreams are told.

    Attributes:
        id: empty for the name of this machine.
        cluster: the fleet that it belongs to.
        region: of its locality, as the next two; each is empty where nothing is to be said.
        zone: see there.
        sub_zone: see there.
        metadata: as JSON.
    """

    id: str = ""
    cluster: str = ""
    region: str = ""
    zone: str = ""
    sub_zone: str = ""
    metadata: Mapping[str, PlainValue] = field(default_factory=lambda: MappingProxyType({}), repr=False)


_LOCALITY = ("region", "zone", "sub_zone")


def _read_node(part: SettingPart) -> UpstreamNode:
    members = part.members(("id", "cluster", "metadata", "locality"))
    locality = members["locality"].members(_LOCALITY) if "locality" in members else {}
    texts = {name: each.scalar() for name, each in (*members.items(), *locality.items()) if name in _TEXTS}
    metadata = members.get("metadata")
    return UpstreamNode(**texts, metadata=MappingProxyType({} if metadata is None else _read_metadata(metadata)))


_TEXTS = ("id", "cluster", *_LOCALITY)


def _read_metadata(part: SettingPart) -> dict[str, PlainValue]:
    return {key: _read_value(each) for key, each in part.any_members().items()}


def _read_value(part: SettingPart) -> PlainValue:
    if len(part.path) > DEEPEST:
        part.reject(f"is nested more than {DEEPEST} deep; write it flatter")
        return None
    if isinstance(part.written, dict):
        return _read_metadata(part)
    if isinstance(part.written, list):
        return [_read_value(each) for each in part.list_members()] if part.written else []
    if part.written is None or isinstance(part.written, str | int | float | bool):
        return part.written
    part.reject("is no value of JSON; write it in quotes")
    return None


_TEXT = {"type": ["string", "number", "boolean"]}

UPSTREAM_NODE = structured(
    _read_node,
    object_schema(
        {
            "id": {**_TEXT, "description": "By default the name of this machine."},
            "cluster": {**_TEXT, "description": "The fleet that it belongs to."},
            "metadata": {"type": "object", "description": "What else upstreams look at; any JSON."},
            "locality": {**object_schema(dict.fromkeys(_LOCALITY, _TEXT)), "description": "Where it runs."},
        }
    ),
)
