"""The outer form of a document, its faults, and the types with rules beyond their message.

A module of such rules is imported with its type's first resource.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.fields import camel_case, may_quote_type
from fsxds.api.scalars import LONGEST_S
from fsxds.model.resource_types import BY_SHORT_NAME, PREFIX, RESOURCE_TYPES, ResourceType
from fsxds.model.resources import Reference
from fsxds.model.values import Fault, FieldPath, PlainValue, Severity, SpelledFloat

# A TTL is renewed when half of it is over; a delay by as much removes the resource.
SHORTEST_TTL_S = 0.5

DISCOVERY_RESPONSE = "envoy.service.discovery.v3.DiscoveryResponse"
RESOURCE_WRAPPER = "envoy.service.discovery.v3.Resource"

# No resource has these fields; a `Resource` without `resource` may be a redirect to its `resource_name`.
_WRAPPER_KEYS = frozenset({"resource", "resource_name", "resourceName"})

# No resource has these fields.
_BOOTSTRAP_FIELDS = frozenset(
    spelling for name in ("static_resources", "dynamic_resources") for spelling in (name, camel_case(name))
)

# Fields of a DiscoveryResponse by their two spellings.
ENVELOPE_FIELDS = {
    spelling: name
    for name in (
        "version_info",
        "resources",
        "type_url",
        "nonce",
        "canary",
        "control_plane",
        "resource_errors",
        "@type",
    )
    for spelling in (name, camel_case(name))
}
_SINGULAR = {
    "envoy.config.cluster.v3.ClusterCollection": "envoy.config.cluster.v3.Cluster",
    "envoy.config.endpoint.v3.LbEndpointCollection": "envoy.config.endpoint.v3.LbEndpoint",
}
"""Collections that no client reads, and the type of their entry."""


@dataclass(frozen=True, slots=True)
class TypeClaim:
    """An envelope's type, and the path of that field."""

    type_url: str
    field_path: FieldPath


class Piece(NamedTuple):
    """One resource as its author wrote it.

    `wrapper` has the other fields of its `Resource`; `claim` is the envelope's type; `position` the index in its list.
    """

    value: PlainValue
    field_path: FieldPath
    wrapper: dict[str, PlainValue] | None = None
    wrapper_path: FieldPath = ()
    claim: TypeClaim | None = None
    position: int | None = None


@dataclass(slots=True)
class Shape:
    """A document in pieces."""

    pieces: list[Piece] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    version_info: str | None = None
    claim: TypeClaim | None = None
    unknown_fields: Severity = Severity.ERROR

    @property
    def is_empty_on_purpose(self) -> bool:
        """Whether there are neither resources nor errors."""
        return not self.pieces and not any(fault.severity is Severity.ERROR for fault in self.faults)


def shape_of(value: PlainValue, unknown_fields: Severity = Severity.ERROR) -> Shape:
    """Take apart a DiscoveryResponse, a `Resource`, a resource, or a list of these.

    Any other shape is one piece.
    """
    shape = Shape(unknown_fields=unknown_fields)
    if isinstance(value, list):
        for index, element in enumerate(value):
            _take(shape, element, (index,), index)
    else:
        _take(shape, value, (), None)
    return shape


def _take(shape: Shape, value: PlainValue, field_path: FieldPath, index: int | None) -> None:
    if isinstance(value, dict) and is_envelope(value):
        _take_envelope(shape, value, field_path, index)
    else:
        shape.pieces.append(_piece(value, field_path, None, index))


def is_envelope(value: dict[str, PlainValue]) -> bool:
    """Whether it is a DiscoveryResponse."""
    named = _message_type(value)
    if named is not None:
        return named == DISCOVERY_RESPONSE
    return "resources" in value or (bool(value) and all(key in ENVELOPE_FIELDS for key in value))


def _take_envelope(shape: Shape, value: dict[str, PlainValue], field_path: FieldPath, index: int | None) -> None:
    shape.faults.extend(_unknown_keys(value, field_path, shape.unknown_fields))
    shape.version_info = _text(shape, value, "version_info", field_path) or shape.version_info
    type_url = _text(shape, value, "type_url", field_path)
    spelled = (key for key in value if ENVELOPE_FIELDS.get(key) == "type_url")
    claim = TypeClaim(type_url, (*field_path, next(spelled))) if type_url else None
    shape.claim = claim or shape.claim
    resources = value.get("resources")
    if resources is None:
        fact = "`resources` has no value, and Envoy would delete every resource"
        remedy = "write the resources, or `resources: []` to serve an empty list"
        place = (*field_path, "resources") if "resources" in value else field_path
        shape.faults.append(Fault("no-resources", fact, remedy, place))
        return
    # Envoy's JSON reader takes a single object where it expects a list.
    items = resources if isinstance(resources, list) else [resources]
    for number, element in enumerate(items):
        path = (*field_path, "resources", number) if isinstance(resources, list) else (*field_path, "resources")
        shape.pieces.append(_piece(element, path, claim, number if index is None else index))


def _piece(value: PlainValue, field_path: FieldPath, claim: TypeClaim | None, index: int | None) -> Piece:
    if not isinstance(value, dict) or not is_wrapper(value):
        return Piece(value, field_path, claim=claim, position=index)
    wrapper = {key: content for key, content in value.items() if key not in ("resource", "@type")}
    inner_path = (*field_path, "resource") if "resource" in value else field_path
    return Piece(value.get("resource"), inner_path, wrapper, field_path, claim, index)


def is_wrapper(value: dict[str, PlainValue]) -> bool:
    """Whether it is a `Resource`."""
    named = _message_type(value)
    return named == RESOURCE_WRAPPER if named is not None else not _WRAPPER_KEYS.isdisjoint(value)


def _message_type(value: dict[str, PlainValue]) -> str | None:
    named = value.get("@type")
    return named.rpartition("/")[2] if isinstance(named, str) else None


def _text(shape: Shape, value: dict[str, PlainValue], name: str, field_path: FieldPath) -> str | None:
    for key, content in value.items():
        if ENVELOPE_FIELDS.get(key) != name or content is None:
            continue
        if isinstance(content, str):
            return content
        if isinstance(content, SpelledFloat):
            return content.text
        shape.faults.append(Fault("wrong-value", f"{name} must be text", "quote it", (*field_path, key)))
    return None


def _unknown_keys(value: dict[str, PlainValue], field_path: FieldPath, severity: Severity) -> Iterator[Fault]:
    for key in value:
        if key not in ENVELOPE_FIELDS:
            near = difflib.get_close_matches(key, ENVELOPE_FIELDS, 1)
            remedy = f'did you mean "{near[0]}"?' if near else "remove it"
            fact = f'a DiscoveryResponse has no field "{key}"' if near else "a DiscoveryResponse has no such field"
            yield Fault("unknown-field", fact, remedy, (*field_path, key), severity=severity)


def no_type(field_path: FieldPath, fields: Collection[str] = ()) -> Fault:
    """Report an unknown type; the fields may reveal a bootstrap."""
    if not _BOOTSTRAP_FIELDS.isdisjoint(fields):
        fact = "this is an Envoy bootstrap, not a resource"
        remedy = "make a tree of its resources by `fsxds import`, examine it by `fsxds doctor`, and keep it outside of the tree"
        return Fault("missing-type", fact, remedy, field_path)
    remedy = (
        f'add "@type": "{PREFIX}…", or name the file after its type (cds.yaml, edge.clusters.yaml, clusters/edge.yaml)'
    )
    return Fault("missing-type", "this resource has no type", remedy, field_path)


def not_an_object(field_path: FieldPath) -> Fault:
    """Report a non-object."""
    return Fault("wrong-value", "a resource must be an object", "write its fields, or remove it", field_path)


def heartbeat(field_path: FieldPath) -> Fault:
    """Report an empty wrapper. Source: ENVOY.md E18."""
    fact = "a Resource without `resource` makes a nameless cluster in Envoy"
    return Fault("no-resource", fact, "add `resource:` with its content, or remove it", field_path)


def singular_collection(message_type: str, field_path: FieldPath) -> Fault | None:
    """Report an unservable collection; None for other types."""
    member = _SINGULAR.get(message_type)
    if member is None:
        return None
    fact = f"{message_type.rpartition('.')[2]} holds one entry at most in Envoy's API, and no Envoy reads it"
    remedy = f"name the resources xdstp://<authority>/{member}/<name>/…, which a client asks for by the glob …/<name>/*"
    return Fault("singular-collection", fact, remedy, field_path)


def not_served(message_type: str, field_path: FieldPath) -> Fault:
    """Report a message that is no resource."""
    singular = singular_collection(message_type, field_path)
    if singular is not None:
        return singular
    known = ", ".join(row.message_name for row in RESOURCE_TYPES)
    return Fault("not-a-resource", f"{message_type} is not a type that xDS serves", f"write one of {known}", field_path)


def unknown_type(message_type: str, similar: str | None, field_path: FieldPath) -> Fault:
    """Report a message outside the catalogue."""
    hint = f'did you mean "{similar}"? else ' if similar else ""
    is_shown = similar is not None or may_quote_type(message_type)
    fact = f'the message type "{message_type}" is not known' if is_shown else "this message type is not known"
    remedy = f"{hint}give the Envoy in use by --envoy PATH, or its descriptors by --descriptors FILE"
    return Fault("unknown-type", fact, remedy, field_path)


def broken_message(message_type: str, field_path: FieldPath) -> Fault:
    """Report bytes not of their type."""
    return Fault("broken-message", f"the bytes are no {message_type}", "write the file again", field_path)


def wrong_ttl(ttl_s: float, field_path: FieldPath) -> Fault | None:
    """Report a TTL out of range, or too short for renewal."""
    place = (*wrapper_path(field_path), "ttl")
    if 0 < ttl_s < SHORTEST_TTL_S:
        fact = f"must be renewed every {ttl_s / 2:g}s, or Envoy drops the resource"
        return Fault("short-ttl", fact, f"write {SHORTEST_TTL_S:g}s or more", place, severity=Severity.WARNING)
    if 0 < ttl_s <= LONGEST_S:
        return None
    bound = "more than 0s, or the resource is removed at once" if ttl_s <= 0 else f"at most {LONGEST_S}s (292 years)"
    return Fault("wrong-duration", f"must be {bound}", "write another ttl, or remove it", place)


def dropped_ttl(row: ResourceType, field_path: FieldPath) -> Fault | None:
    """Note an unsent TTL. Source: ENVOY.md E40."""
    if row.survives_expiry:
        return None
    fact = f"the ttl of {row.noun} is not sent to clients: Envoy handles expiry well only for clusters, listeners and runtime"
    remedy = "remove it; or set `ttl: spec` to serve other clients than Envoy"
    return Fault("ttl-dropped", fact, remedy, (*wrapper_path(field_path), "ttl"), severity=Severity.NOTE)


def wrapper_path(field_path: FieldPath) -> FieldPath:
    """Return the path of the `Resource`, else of the resource."""
    return field_path[:-1] if field_path[-1:] == ("resource",) else field_path


class TypeRules(Protocol):
    """The rules of one type beyond its message."""

    def read(self, written: dict[str, PlainValue], authority: str) -> tuple[dict[str, PlainValue], tuple[Fault, ...]]:
        """Return the form of the message, and faults of the authored form."""

    def complete(
        self, message: DynamicMessage, written: PlainValue, catalogue: Catalogue, authority: str
    ) -> list[Fault]:
        """Fill in fields that clients need; return faults, placed within the message."""

    def name_fault(self, name: str) -> Fault | None:
        """Judge a wrapper's name, at a place within the wrapper."""

    def references_of(self, message: DynamicMessage) -> Iterator[Reference]:
        """Yield references beyond reference fields.

        MalformedName: one has no valid name; KeyError: xDS does not serve its type.
        """


class TypeRow(NamedTuple):
    """A type, and the module of its rules."""

    row: ResourceType
    module: str


TYPE_RULES = (TypeRow(BY_SHORT_NAME["lcds"], "fsxds.snapshots.list_collections"),)


def rules_of(row: ResourceType | None) -> TypeRules | None:
    """Return a type's rules, or None."""
    # Called per resource: a generator would cost more than the few rows.
    for each in TYPE_RULES:
        if each.row is row:
            return cast("TypeRules", import_module(each.module))
    return None
