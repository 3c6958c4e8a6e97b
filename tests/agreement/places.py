"""Every place within a plain value, with what the API says about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fsxds.api.catalogue import Catalogue

Path = tuple[str | int, ...]
Form = Literal["message", "list", "map", "any", "struct", "string", "bytes", "number", "bool", "enum", "duration"]

WRAPPED: dict[str, Form] = {
    "google.protobuf.DoubleValue": "number",
    "google.protobuf.FloatValue": "number",
    "google.protobuf.Int64Value": "number",
    "google.protobuf.UInt64Value": "number",
    "google.protobuf.Int32Value": "number",
    "google.protobuf.UInt32Value": "number",
    "google.protobuf.BoolValue": "bool",
    "google.protobuf.StringValue": "string",
    "google.protobuf.BytesValue": "bytes",
    "google.protobuf.Duration": "duration",
    "google.protobuf.Timestamp": "string",
    "google.protobuf.Struct": "struct",
    "google.protobuf.Value": "struct",
    "google.protobuf.ListValue": "struct",
    "google.protobuf.Any": "any",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A value and where it stands.

    `message` is the type of the value, None where it is no message; `field` is the field that holds it, None at the
    top. `is_member` of a list or a map.
    """

    path: Path
    value: Any
    form: Form
    message: Descriptor | None
    field: FieldDescriptor | None
    is_member: bool = False

    @property
    def field_name(self) -> str:
        """The name of the field that holds it."""
        return self.field.name if self.field else ""


def places(catalogue: Catalogue, resource: dict[str, Any], message_type: str) -> Iterator[Place]:
    """Yield the places of a resource, outermost first."""
    descriptor = catalogue.descriptor(message_type)
    assert descriptor is not None
    yield Place((), resource, "message", descriptor, None)
    yield from _within(catalogue, resource, descriptor, ())


def _within(catalogue: Catalogue, value: dict[str, Any], descriptor: Descriptor, path: Path) -> Iterator[Place]:
    for key, member in value.items():
        field = descriptor.fields_by_name.get(key)
        if field is not None:
            yield from _of_field(catalogue, member, field, (*path, key))


def _of_field(catalogue: Catalogue, value: Any, field: FieldDescriptor, path: Path) -> Iterator[Place]:
    if is_map(field) and isinstance(value, dict):
        yield Place(path, value, "map", None, field)
        inner = value_field(field)
        for key, member in value.items():
            yield from _single(catalogue, member, (inner, field), (*path, key))
    elif field.is_repeated and isinstance(value, list):
        yield Place(path, value, "list", None, field)
        for index, member in enumerate(value):
            yield from _single(catalogue, member, (field, field), (*path, index))
    else:
        yield from _single(catalogue, value, (field, None), path)


def _single(
    catalogue: Catalogue, value: Any, fields: tuple[FieldDescriptor, FieldDescriptor | None], path: Path
) -> Iterator[Place]:
    field, holder = fields
    form = form_of(field)
    is_member = holder is not None
    message = field.message_type if form in {"message", "any"} else None
    if form == "any" and isinstance(value, dict):
        message = catalogue.descriptor(str(value.get("@type", "")).rpartition("/")[2])
    yield Place(path, value, form, message, holder or field, is_member)
    if message is not None and isinstance(value, dict):
        yield from _within(catalogue, value, message, path)


def is_map(field: FieldDescriptor) -> bool:
    """Tell whether a field is a map."""
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def value_field(field: FieldDescriptor) -> FieldDescriptor:
    """Return what the values of a map are."""
    assert field.message_type is not None
    return field.message_type.fields_by_name["value"]


def form_of(field: FieldDescriptor) -> Form:
    """Return what one value of a field looks like."""
    if field.message_type is not None:
        return WRAPPED.get(field.message_type.full_name, "message")
    if field.enum_type is not None:
        return "enum"
    if field.type == FieldDescriptor.TYPE_STRING:
        return "string"
    if field.type == FieldDescriptor.TYPE_BYTES:
        return "bytes"
    return "bool" if field.type == FieldDescriptor.TYPE_BOOL else "number"
