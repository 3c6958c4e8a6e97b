"""Writes messages as JSON."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import (
    ANY,
    DURATION,
    FIELD_MASK,
    LIST_VALUE,
    LONG_INTEGERS,
    NULL_VALUE,
    SPECIAL_JSON,
    STRUCT,
    TIMESTAMP,
    VALUE,
    WRAPPERS,
    FieldValue,
    descriptor_of,
    enum_of,
    is_map,
    map_parts,
    type_of_url,
)
from fsxds.model.errors import ApiError
from fsxds.model.values import PlainValue, TypeUrl


def dump_plainly(plain: PlainValue) -> bytes:
    """Write compact JSON with the standard library."""
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()


dump: Callable[[PlainValue], bytes]
"""Writes plain values as compact JSON, with orjson if it is installed."""
try:
    import orjson

    dump = orjson.dumps
except ImportError:  # the extra "fast" is not installed
    dump = dump_plainly

_Print: TypeAlias = Callable[[FieldValue], PlainValue]


class Printer:
    """Writes messages as proto3 JSON with snake_case names.

    Like protobuf's `MessageToDict(..., preserving_proto_field_name=True)`, but with sorted map keys, so that equal messages
    give equal text, and NaN and infinity within a Struct as text. Thread-safe.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._printers: dict[str, _Print] = {
            ANY: self._any,
            DURATION: _special(Duration),
            FIELD_MASK: _special(FieldMask),
            LIST_VALUE: _list_value,
            STRUCT: _struct,
            TIMESTAMP: _special(Timestamp),
            VALUE: _value,
        }
        self._packed: dict[str, tuple[type[Message], _Print, bool]] = {}  # by type URL

    def to_plain(self, message: Message) -> dict[str, PlainValue]:
        """Return plain values; JSON that is no object is under "value".

        Raises:
            ApiError: an Any of unknown type or broken bytes, or a time out of bounds; never for messages from a Converter of
                the same catalogue.
        """
        try:
            plain = self._printer(descriptor_of(message))(message)
        except (ValueError, DecodeError) as error:
            raise ApiError(f"{message.DESCRIPTOR.full_name} cannot be written as JSON: {error}") from error
        return plain if isinstance(plain, dict) else {"value": plain}

    def any_json(self, type_url: TypeUrl, body: bytes) -> bytes:
        """Return compact JSON. ApiError as in `to_plain`."""
        return dump(self.any_plain(type_url, body))

    def any_plain(self, type_url: TypeUrl, body: bytes) -> dict[str, PlainValue]:
        """Return plain values with "@type". ApiError as in `to_plain`."""
        try:
            return self._unpacked(type_url, body)
        except (ValueError, DecodeError) as error:
            raise ApiError(f"{type_url} cannot be written as JSON: {error}") from error

    def resource_plain(self, type_url: TypeUrl, body: bytes) -> dict[str, PlainValue]:
        """Omit "@type". ApiError as in `to_plain`."""
        plain = self.any_plain(type_url, body)
        del plain["@type"]
        return plain

    def _printer(self, descriptor: Descriptor) -> _Print:
        known = self._printers.get(descriptor.full_name)
        if known is not None:
            return known
        unfinished: dict[str, _Print] = {}
        printer = self._compile(descriptor, unfinished)
        # Published only when all are finished, because other threads use them. If two threads compile one type, either
        # result will do.
        self._printers.update(unfinished)
        return printer

    def _compile(self, descriptor: Descriptor, unfinished: dict[str, _Print]) -> _Print:
        name = descriptor.full_name
        known = self._printers.get(name) or unfinished.get(name)
        if known is not None:
            return known
        if name in WRAPPERS:
            unfinished[name] = printer = _wrapper(_scalar(descriptor.fields_by_name["value"]))
            return printer
        table: dict[FieldDescriptor, tuple[str, _Print | None]] = {}
        # Registered before its fields: a message may hold messages of its own type.
        unfinished[name] = printer = _object(table)
        table.update((field, (field.name, self._field(field, unfinished))) for field in descriptor.fields)
        return printer

    def _field(self, field: FieldDescriptor, unfinished: dict[str, _Print]) -> _Print | None:
        if is_map(field):
            key, value = map_parts(field)
            return _map(_map_key(key), self._one(value, unfinished))
        one = self._one(field, unfinished)
        if field.is_repeated:
            return list if one is None else _list(one)
        return one

    def _one(self, field: FieldDescriptor, unfinished: dict[str, _Print]) -> _Print | None:
        return _scalar(field) if field.message_type is None else self._compile(field.message_type, unfinished)

    def _any(self, packed: AnyMessage) -> PlainValue:
        return self._unpacked(packed.type_url, packed.value) if packed.type_url or packed.value else {}

    def _unpacked(self, type_url: str, body: bytes) -> dict[str, PlainValue]:
        message_class, print_message, is_special = self._packed.get(type_url) or self._packing(type_url)
        plain = print_message(message_class.FromString(body))
        if is_special:
            return {"@type": type_url, "value": plain}
        return {"@type": type_url, **cast("dict[str, PlainValue]", plain)}

    def _packing(self, type_url: str) -> tuple[type[Message], _Print, bool]:
        message_type = type_of_url(type_url) or type_url
        descriptor = self._catalogue.descriptor(message_type)
        if descriptor is None:
            raise ApiError(f'there is no message type "{message_type}" in {self._catalogue.description}')
        message_class = self._catalogue.message_class(message_type)
        packing = (message_class, self._printer(descriptor), message_type in SPECIAL_JSON)
        self._packed[type_url] = packing
        return packing


def _object(table: Mapping[FieldDescriptor, tuple[str, _Print | None]]) -> _Print:
    def print_message(message: Message) -> PlainValue:
        plain: dict[str, PlainValue] = {}
        for field, value in message.ListFields():
            name, print_value = table[field]
            plain[name] = value if print_value is None else print_value(value)
        return plain

    return print_message


def _list(print_item: _Print) -> _Print:
    return lambda items: [print_item(element) for element in items]


def _map(print_key: Callable[[FieldValue], str] | None, print_value: _Print | None) -> _Print:
    def print_map(entries: Mapping[FieldValue, FieldValue]) -> PlainValue:
        return {
            key if print_key is None else print_key(key): entries[key]
            if print_value is None
            else print_value(entries[key])
            for key in sorted(entries)
        }

    return print_map


def _map_key(field: FieldDescriptor) -> Callable[[FieldValue], str] | None:
    if field.type == FieldDescriptor.TYPE_STRING:
        return None
    return (lambda key: str(key).lower()) if field.type == FieldDescriptor.TYPE_BOOL else str


def _wrapper(print_value: _Print | None) -> _Print:
    if print_value is None:
        return lambda message: cast("PlainValue", message.value)
    return lambda message: print_value(message.value)


def _scalar(field: FieldDescriptor) -> _Print | None:
    if field.type in LONG_INTEGERS:
        return str
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda value: base64.b64encode(value).decode()
    if field.type == FieldDescriptor.TYPE_FLOAT:
        return _float
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return _double
    if field.type == FieldDescriptor.TYPE_ENUM:
        return _enum(enum_of(field))
    return None


def _enum(enum: EnumDescriptor) -> _Print:
    if enum.full_name == NULL_VALUE:
        return lambda _: None
    names = {number: value.name for number, value in enum.values_by_number.items()}
    return lambda number: names.get(number, number)


def _double(value: float) -> PlainValue:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _float(value: float) -> PlainValue:
    """The shortest decimal of the same 32 bits."""
    if not math.isfinite(value):
        return _double(value)
    for digits in range(6, 9):
        rounded = float(f"{value:.{digits}g}")
        if struct.unpack("<f", struct.pack("<f", rounded))[0] == value:
            return rounded
    return float(f"{value:.9g}")


def _special(message_class: type[Duration | FieldMask | Timestamp]) -> _Print:
    # The methods of protobuf's own classes; the pool's classes also have them, which the type checker does not know.
    return cast("_Print", message_class.ToJsonString)


def _struct(message: Struct) -> PlainValue:
    fields = message.fields
    return {key: _value(fields[key]) for key in sorted(fields)}


def _list_value(message: ListValue) -> PlainValue:
    return [_value(element) for element in message.values]


def _value(message: Value) -> PlainValue:
    chosen = message.WhichOneof("kind")
    if chosen == "string_value":
        return message.string_value
    if chosen == "number_value":
        return _double(message.number_value)
    if chosen == "bool_value":
        return message.bool_value
    if chosen == "struct_value":
        return _struct(message.struct_value)
    return _list_value(message.list_value) if chosen == "list_value" else None
