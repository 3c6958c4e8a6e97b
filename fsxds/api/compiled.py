"""The fast path: plain values to messages by functions compiled once per message type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from fsxds.api import exact
from fsxds.api.catalogue import Catalogue
from fsxds.api.exact import Convert, Odd
from fsxds.api.fields import (
    ANY,
    DEEPEST_MESSAGE,
    DURATION,
    FIELD_MASK,
    LIST_VALUE,
    SPECIAL_JSON,
    STRUCT,
    TIMESTAMP,
    VALUE,
    WRAPPERS,
    descriptor_of,
    exclusive_groups,
    fields_by_spelling,
    is_map,
    map_parts,
    takes_null,
    type_of_url,
)
from fsxds.values import PlainValue

# What says that a value is odd: our own checks, a name that no table has, and the constructor's checks of range, of text
# and of depth. The careful path then finds out what exactly is wrong.
_REFUSALS = (Odd, KeyError, TypeError, ValueError, OverflowError, DecodeError)

# Per spelling of a field: its name, the type whose values it takes as they are, what converts all others, and the bit
# that stands for its oneof (0 for none).
_Row: TypeAlias = tuple[str, type | None, Convert, int]


class CompiledConverter:
    """Builds messages of a catalogue from values that are in the one form of which it is sure.

    A value is walked once, into keyword arguments for one call of the message's constructor. The constructor takes much
    that JSON must not say (an int for a bool, two members of a oneof), so everything is checked on the way.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._converters: dict[str, Convert] = {
            ANY: self._any,
            DURATION: exact.duration,
            FIELD_MASK: exact.field_mask,
            LIST_VALUE: exact.list_fields,
            STRUCT: exact.struct_fields,
            TIMESTAMP: exact.timestamp,
            VALUE: exact.value_fields,
        }
        self._packed: dict[str, tuple[type[Message], Convert, bool]] = {}  # by type URL

    def build(self, value: PlainValue, message_class: type[Message]) -> Message | None:
        """Return the message that the value stands for, or None when the value is odd in any way."""
        try:
            return message_class(**self._converter(descriptor_of(message_class))(value, 0))
        except _REFUSALS:
            return None

    def build_any(self, value: PlainValue) -> Message | None:
        """Return the message that the value stands for, of the type that its "@type" names, or None when it is odd."""
        try:
            return self._packed_message(value, 0)
        except _REFUSALS:
            return None

    def _converter(self, descriptor: Descriptor) -> Convert:
        known = self._converters.get(descriptor.full_name)
        if known is not None:
            return known
        if descriptor.full_name in WRAPPERS:
            converter = _wrapper(*exact.scalar(descriptor.fields_by_name["value"]))
        else:
            table: dict[str, _Row] = {}
            converter = _object(table, frozenset(field.name for field in descriptor.fields if takes_null(field)))
            # Known before its fields are looked at: a message may hold messages of its own type.
            self._converters[descriptor.full_name] = converter
            oneofs = exclusive_groups(descriptor)
            for name, field in fields_by_spelling(descriptor).items():
                bit = 1 << oneofs[field.name] if field.name in oneofs else 0
                table[name] = (field.name, *self._conversion(field), bit)
        self._converters[descriptor.full_name] = converter
        return converter

    def _conversion(self, field: FieldDescriptor) -> tuple[type | None, Convert]:
        if is_map(field):
            key, value = map_parts(field)
            return None, _map(exact.map_key(key), *self._one(value))
        as_is, convert = self._one(field)
        if field.is_repeated:
            return None, _list(as_is, convert)
        return as_is, exact.struct_content if convert is exact.struct_fields else convert

    def _one(self, field: FieldDescriptor) -> tuple[type | None, Convert]:
        if field.message_type is None:
            return exact.scalar(field)
        return None, self._converter(field.message_type)

    def _any(self, value: PlainValue, depth: int) -> object:
        if value == {}:
            return value
        message = self._packed_message(value, depth)
        type_url = cast("dict[str, PlainValue]", value)["@type"]
        return {"type_url": type_url, "value": message.SerializeToString(deterministic=True)}

    def _packed_message(self, value: PlainValue, depth: int) -> Message:
        if type(value) is not dict or depth > DEEPEST_MESSAGE:
            raise Odd
        content: dict[str, PlainValue] = dict(value)
        message_class, convert, is_special = self._packing(content.pop("@type"))
        if not is_special:
            return message_class(**convert(content, depth + 1))
        inner = content.pop("value")
        if content:
            raise Odd
        return message_class(**convert(inner, depth + 1))

    def _packing(self, type_url: PlainValue) -> tuple[type[Message], Convert, bool]:
        if type(type_url) is not str:
            raise Odd
        packed = self._packed.get(type_url)
        if packed is None:
            message_type = type_of_url(type_url)
            if message_type is None:
                raise Odd
            message_class = self._catalogue.message_class(message_type)
            converter = self._converter(descriptor_of(message_class))
            packed = self._packed[type_url] = (message_class, converter, message_type in SPECIAL_JSON)
        return packed


def _object(table: Mapping[str, _Row], nulls: frozenset[str]) -> Convert:
    def convert(value: PlainValue, depth: int) -> object:
        if type(value) is not dict or depth > DEEPEST_MESSAGE:
            raise Odd
        depth += 1
        taken = 0
        fields: dict[str, object] = {}
        for key, element in value.items():
            name, as_is, convert_item, oneof = table[key]
            if type(element) is as_is:
                fields[name] = element
            elif element is not None or name in nulls:
                fields[name] = convert_item(element, depth)
            else:
                continue
            if oneof:
                if taken & oneof:
                    raise Odd
                taken |= oneof
        if len(fields) != len(value) and len({table[key][0] for key in value}) != len(value):
            raise Odd  # one field in both spellings; a null alone would only be absent
        return fields

    return convert


def _wrapper(as_is: type | None, convert_scalar: Convert) -> Convert:
    def convert(value: PlainValue, depth: int) -> object:
        return {"value": value if type(value) is as_is else convert_scalar(value, depth)}

    return convert


def _list(as_is: type | None, convert_item: Convert) -> Convert:
    def convert(value: PlainValue, depth: int) -> object:
        if type(value) is not list:
            raise Odd
        return [element if type(element) is as_is else convert_item(element, depth) for element in value]

    return convert


def _map(key_of: exact.KeyOf, as_is: type | None, convert_item: Convert) -> Convert:
    def convert(value: PlainValue, depth: int) -> object:
        if type(value) is not dict:
            raise Odd
        depth += 1
        entries = {
            key if key_of is None else key_of(key): element if type(element) is as_is else convert_item(element, depth)
            for key, element in value.items()
        }
        if len(entries) != len(value):
            raise Odd
        return entries

    return convert
