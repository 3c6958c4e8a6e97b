"""Check the collections that a bootstrap asks for by `xdstp://` locators, and what of a tree is in them.

Source: ENVOY.md E72, E73, E77.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.printing import Printer
from fsxds.resource_names import MalformedName, ResourceName, is_structured, parse_or_none
from fsxds.resource_types import BY_SHORT_NAME, ResourceType
from fsxds.resources import Snapshot
from fsxds.tools.doctor.facts import GRPC, REST
from fsxds.values import Fault, FieldPath, Severity

_NODE = "xds.node."
_METADATA = "metadata"
# What Envoy itself puts there, whatever the bootstrap says.
_OF_ENVOY = frozenset({"user_agent_name", "user_agent_version"})


@dataclass(frozen=True, slots=True)
class AskedCollection:
    """A collection as Envoy asks for it: the glob without parameters, and these; None for a value that is not known here."""

    glob: ResourceName
    params: dict[str, str | None]

    def holds(self, member: ResourceName) -> bool:
        """Whether Envoy takes a resource of this name for a member."""
        context = dict(member.context)
        return (
            self.is_beside(member)
            and context.keys() == self.params.keys()
            and all(value is None or value == context[key] for key, value in self.params.items())
        )

    def is_beside(self, member: ResourceName) -> bool:
        """Whether a name is in the directory, with whatever parameters."""
        return replace(member.glob, context=()) == self.glob


def glob_faults(bootstrap: DynamicMessage, snapshot: Snapshot, catalogue: Catalogue) -> Iterator[Fault]:
    """Check the locators of clusters and listeners."""
    node = _node_params(bootstrap, Printer(catalogue))
    for row in (BY_SHORT_NAME["cds"], BY_SHORT_NAME["lds"]):
        text = getattr(bootstrap.dynamic_resources, f"{row.short_name}_resources_locator")
        if is_structured(text):
            place: FieldPath = ("dynamic_resources", f"{row.short_name}_resources_locator")
            fault = _locator_fault(text, row, place, bootstrap.dynamic_resources)
            if fault is not None:
                yield fault
            elif (name := ResourceName.parse(text)).is_glob:
                asked = AskedCollection(replace(name, context=()), {**node, **dict(name.context)})
                yield from _check_members(asked, row, place, snapshot)


def _locator_fault(text: str, row: ResourceType, place: FieldPath, dynamic: DynamicMessage) -> Fault | None:
    example = f"write xdstp://<authority>/{row.message_type}/<directory>/*"
    try:
        name = ResourceName.parse(text)
    except MalformedName as error:
        return Fault("impossible-locator", f"{error.fact}; Envoy does not start, or finds nothing", error.remedy, place)
    if text.startswith("udpa:"):
        return Fault("impossible-locator", "Envoy does not start with the scheme udpa", example, place)
    if name.message_type != row.message_type:
        fact = f"Envoy does not start: it asks for resources of {row.message_type} here"
        return Fault("impossible-locator", fact, example, place)
    if _has_no_collections(dynamic, row):
        fact = "Envoy does not start: by REST, and by GRPC but for Delta and ADS, it has no collections"
        return Fault("impossible-locator", fact, f"write {row.short_name}_config: {{ads: {{}}}}, or DELTA_GRPC", place)
    return None


def _has_no_collections(dynamic: DynamicMessage, row: ResourceType) -> bool:
    source = getattr(dynamic, f"{row.short_name}_config")
    is_own = source.WhichOneof("config_source_specifier") == "api_config_source"
    return is_own and source.api_config_source.api_type in {REST, GRPC}


def _node_params(bootstrap: DynamicMessage, printer: Printer) -> dict[str, str | None]:
    """Return the parameters that Envoy adds, with the values that the bootstrap says."""
    params: dict[str, str | None] = {}
    for field in bootstrap.node_context_params:
        if field == _METADATA:
            # Numbers of a Struct are written as JSON writes them; a text is in quotes.
            metadata = printer.to_plain(bootstrap.node.metadata)
            params |= {f"{_NODE}{_METADATA}.{key}": _json(value) for key, value in metadata.items()}
        else:
            params[_NODE + field] = None if field in _OF_ENVOY else _value_of(bootstrap.node, field)
    return params


def _value_of(node: DynamicMessage, field: str) -> str | None:
    """Return what the bootstrap says of the node; None where it says nothing, which a flag of Envoy may do."""
    owner, _, part = field.rpartition(".")
    found = getattr(node.locality, part, "") if owner == "locality" else getattr(node, field, "")
    return found if isinstance(found, str) and found else None


def _json(value: object) -> str | None:
    # How Envoy writes what is within a list or an object is not relied on.
    return None if isinstance(value, float | dict | list) else json.dumps(value, ensure_ascii=False)


def _check_members(asked: AskedCollection, row: ResourceType, place: FieldPath, snapshot: Snapshot) -> Iterator[Fault]:
    names = [name for text in snapshot.resources(row.type_url) if (name := parse_or_none(text)) is not None]
    if any(map(asked.holds, names)):
        return
    others = sorted({", ".join(key for key, _ in name.context) or "none" for name in names if asked.is_beside(name)})
    fact = f"the tree has no {row.noun} in this collection; Envoy starts without any"
    if others:
        wanted = ", ".join(sorted(asked.params)) or "none"
        fact = f"{fact}: it asks with the parameters {wanted}, and those in the directory have {' or '.join(others)}"
        yield _empty(
            fact, "give them the same parameters and values; node_context_params adds those of the node", place
        )
    else:
        yield _empty(fact, f'name {row.noun} "{replace(asked.glob, path=asked.glob.path[:-1] + "NAME")}"', place)


def _empty(fact: str, remedy: str, place: FieldPath) -> Fault:
    return Fault("no-members", fact, remedy, place, severity=Severity.WARNING)
