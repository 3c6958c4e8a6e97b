"""What the shape of a field asks of a value: questions to descriptors that reading and printing share."""

from __future__ import annotations

from typing import cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

ANY = "google.protobuf.Any"
DURATION = "google.protobuf.Duration"
FIELD_MASK = "google.protobuf.FieldMask"
LIST_VALUE = "google.protobuf.ListValue"
STRUCT = "google.protobuf.Struct"
TIMESTAMP = "google.protobuf.Timestamp"
VALUE = "google.protobuf.Value"
NULL_VALUE = "google.protobuf.NullValue"

WRAPPERS = frozenset(
    f"google.protobuf.{scalar}Value"
    for scalar in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

# Messages whose JSON is not an object of their fields. Within an Any it stands under the key "value".
SPECIAL_JSON = WRAPPERS | {ANY, DURATION, FIELD_MASK, LIST_VALUE, STRUCT, TIMESTAMP, VALUE}

INTEGERS = frozenset({
    FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32,
    FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32,
    FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64,
    FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64,
})  # fmt: skip
LONG_INTEGERS = frozenset({
    FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64,
    FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64,
})  # fmt: skip
UNSIGNED_INTEGERS = frozenset({
    FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32,
    FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64,
})  # fmt: skip

LARGEST_FLOAT = 3.4028234663852886e38
"""The largest number of 32 bits."""

DEEPEST_MESSAGE = 95
"""How many messages may stand within one another.

Protobuf refuses to read 100 levels, in Envoy as here; the leaves of well-known types are not counted, hence the margin.
A level of a Struct is three messages: the Struct, its entry, and the entry's value.
"""
STRUCT_LEVELS = 3
LIST_LEVELS = 2


def is_map(field: FieldDescriptor) -> bool:
    """Tell whether a field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def map_parts(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    """Return the key field and the value field of a map."""
    map_row = cast("Descriptor", field.message_type)
    return map_row.fields_by_name["key"], map_row.fields_by_name["value"]


def enum_of(field: FieldDescriptor) -> EnumDescriptor:
    """Return the enum of a field of an enum type."""
    return cast("EnumDescriptor", field.enum_type)


def owner_of(field: FieldDescriptor) -> Descriptor:
    """Return the message that a field belongs to; extensions, which belong to none, are not asked."""
    return cast("Descriptor", field.containing_type)


def descriptor_of(message: Message | type[Message]) -> Descriptor:
    """Return the descriptor of a message or of its class."""
    return cast("Descriptor", message.DESCRIPTOR)


def takes_null(field: FieldDescriptor) -> bool:
    """Tell whether null is a value for this field, and not its absence."""
    if field.is_repeated:
        return False
    message_type: Descriptor | None = field.message_type
    enum_type: EnumDescriptor | None = field.enum_type
    return (message_type is not None and message_type.full_name == VALUE) or (
        enum_type is not None and enum_type.full_name == NULL_VALUE
    )


def fields_by_spelling(descriptor: Descriptor) -> dict[str, FieldDescriptor]:
    """Return the fields of a message by every name that JSON may use: snake_case and camelCase."""
    spellings = {field.name: field for field in descriptor.fields}
    return spellings | {field.json_name: field for field in descriptor.fields}


def exclusive_groups(descriptor: Descriptor) -> dict[str, int]:
    """Return, for the members of each oneof of two or more, the number of their oneof."""
    groups = (oneof for oneof in descriptor.oneofs if len(oneof.fields) > 1)
    return {field.name: number for number, oneof in enumerate(groups) for field in oneof.fields}


def type_of_url(type_url: str) -> str | None:
    """Return the message type that a type URL names; None without a host and a slash, which Envoy demands."""
    host, slash, message_type = type_url.rpartition("/")
    return message_type if host and slash else None
