"""Tell the shapes of a document apart, and take it to pieces: envelope, wrappers, resources."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field

from fsxds.api.spelled import SpelledFloat
from fsxds.values import Fault, FieldPath, PlainValue, Severity

DISCOVERY_RESPONSE = "envoy.service.discovery.v3.DiscoveryResponse"
RESOURCE_WRAPPER = "envoy.service.discovery.v3.Resource"

ENVELOPE_FIELDS = {
    "version_info": "version_info",
    "versionInfo": "version_info",
    "resources": "resources",
    "type_url": "type_url",
    "typeUrl": "type_url",
    "nonce": "nonce",
    "canary": "canary",
    "control_plane": "control_plane",
    "controlPlane": "control_plane",
    "resource_errors": "resource_errors",
    "resourceErrors": "resource_errors",
    "@type": "@type",
}


@dataclass(frozen=True, slots=True)
class TypeClaim:
    """What an envelope says of the type of its resources, and where it says so."""

    type_url: str
    field_path: FieldPath


@dataclass(frozen=True, slots=True)
class Piece:
    """One resource as its author wrote it.

    `wrapper` is what stood around it in a `Resource`, None where nothing did. `claim` is what the envelope says of
    its type, None where it says nothing. `index` is its place in the list that it stands in, None in no list.
    """

    value: PlainValue
    field_path: FieldPath
    wrapper: dict[str, PlainValue] | None = None
    wrapper_path: FieldPath = ()
    claim: TypeClaim | None = None
    index: int | None = None


@dataclass(slots=True)
class Shape:
    """A document in pieces, and what is wrong with its outer form."""

    pieces: list[Piece] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    version_info: str | None = None
    claim: TypeClaim | None = None
    unknown_fields: Severity = Severity.ERROR

    @property
    def is_empty_on_purpose(self) -> bool:
        """Whether it holds nothing, and nothing is so wrong with it that this might be a mistake."""
        return not self.pieces and not any(fault.severity is Severity.ERROR for fault in self.faults)


def shape_of(value: PlainValue, unknown_fields: Severity = Severity.ERROR) -> Shape:
    """Take a document to pieces: a DiscoveryResponse, a `Resource`, a resource, or a list of any of these.

    What a piece is worth is not looked at here; a document of no known shape is one piece. `unknown_fields` is how much
    an unknown field of an envelope weighs.
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
    """Tell whether an object is a DiscoveryResponse."""
    named = _message_type(value)
    if named is not None:
        return named == DISCOVERY_RESPONSE
    return "resources" in value or (bool(value) and all(key in ENVELOPE_FIELDS for key in value))


def _take_envelope(shape: Shape, value: dict[str, PlainValue], field_path: FieldPath, index: int | None) -> None:
    shape.faults.extend(_unknown_keys(value, field_path, shape.unknown_fields))
    shape.version_info = _text(shape, value, "version_info", field_path) or shape.version_info
    type_url = _text(shape, value, "type_url", field_path)
    claim = TypeClaim(type_url, (*field_path, _spelled(value, "type_url"))) if type_url else None
    shape.claim = claim or shape.claim
    resources = value.get("resources")
    if resources is None:
        shape.faults.append(
            Fault(
                "no-resources",
                "`resources` has no value, which Envoy reads as: delete everything",
                "write the resources, or `resources: []` to serve none on purpose",
                (*field_path, "resources") if "resources" in value else field_path,
            )
        )
        return
    # Envoy's JSON reader takes a single object where a list is due.
    items = resources if isinstance(resources, list) else [resources]
    for number, element in enumerate(items):
        path = (*field_path, "resources", number) if isinstance(resources, list) else (*field_path, "resources")
        shape.pieces.append(_piece(element, path, claim, number if index is None else index))


def _piece(value: PlainValue, field_path: FieldPath, claim: TypeClaim | None, index: int | None) -> Piece:
    if not isinstance(value, dict) or not is_wrapper(value):
        return Piece(value, field_path, claim=claim, index=index)
    wrapper = {key: content for key, content in value.items() if key not in ("resource", "@type")}
    inner_path = (*field_path, "resource") if "resource" in value else field_path
    return Piece(value.get("resource"), inner_path, wrapper, field_path, claim, index)


def is_wrapper(value: dict[str, PlainValue]) -> bool:
    """Tell whether an object is a `Resource` around a resource."""
    named = _message_type(value)
    return named == RESOURCE_WRAPPER if named is not None else "resource" in value


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


def _spelled(value: dict[str, PlainValue], name: str) -> str:
    return next(key for key in value if ENVELOPE_FIELDS.get(key) == name)


def _unknown_keys(value: dict[str, PlainValue], field_path: FieldPath, severity: Severity) -> Iterator[Fault]:
    for key in value:
        if key not in ENVELOPE_FIELDS:
            near = difflib.get_close_matches(key, ENVELOPE_FIELDS, 1)
            remedy = f'did you mean "{near[0]}"?' if near else "remove it"
            fact = f'a DiscoveryResponse has no field "{key}"' if near else "a DiscoveryResponse has no such field"
            yield Fault("unknown-field", fact, remedy, (*field_path, key), severity=severity)
