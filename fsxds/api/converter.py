"""Converts plain values to messages, as Envoy does.

The fast path, `CompiledConverter`, stops at any odd value: in another form, or wrong. The lenient path
(`convert_lenient`) then reports every fault, and returns a form for the fast path.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from fsxds.api import scalars
from fsxds.api.catalogue import Catalogue
from fsxds.api.convert_lenient import LenientReader
from fsxds.api.fields import (
    ANY,
    DEEPEST_MESSAGE,
    DURATION,
    FIELD_MASK,
    INTEGERS,
    LIST_LEVELS,
    LIST_VALUE,
    SPECIAL_JSON,
    STRUCT,
    STRUCT_LEVELS,
    TIMESTAMP,
    VALUE,
    WRAPPERS,
    descriptor_of,
    fields_by_name,
    is_map,
    map_parts,
    takes_null,
    type_of_url,
)
from fsxds.api.scalars import Read, WrongValueError
from fsxds.model.memo import Lru
from fsxds.model.values import Fault, PlainValue, Severity, SpelledFloat


@dataclass(frozen=True, slots=True)
class Converted:
    """A result; no message exactly if a fault is an ERROR."""

    message: Message | None
    faults: tuple[Fault, ...] = ()


class Converter:
    """Turns plain values into messages, and reports all faults.

    Never raises for a plain value. Equal values give equal bytes.
    """

    def __init__(self, catalogue: Catalogue, *, unknown_fields: Severity = Severity.ERROR) -> None:
        """Below ERROR, `unknown_fields` are dropped with a fault."""
        self._catalogue = catalogue
        self._classes: dict[str, type[Message]] = {}
        self._compiled = CompiledConverter(catalogue)
        self._lenient = LenientReader(catalogue, unknown_fields)

    def convert(self, value: PlainValue, message_type: str) -> Converted:
        """Convert to this type; KeyError if it is unknown."""
        message_class = self._classes.get(message_type)
        if message_class is None:
            message_class = self._classes[message_type] = self._catalogue.message_class(message_type)
        message = self._compiled.build(value, message_class)
        if message is not None:
            return Converted(message)
        plain, faults = self._lenient.read(value, descriptor_of(message_class))
        return _converted(faults, lambda: self._compiled.build(plain, message_class))

    def convert_any(self, value: PlainValue) -> Converted:
        """Convert to the type in "@type"."""
        message = self._compiled.build_any(value)
        if message is not None:
            return Converted(message)
        plain, faults = self._lenient.read_any(value)
        return _converted(faults, lambda: self._compiled.build_any(plain))


def _converted(faults: tuple[Fault, ...], build: Callable[[], Message | None]) -> Converted:
    """Build a value that the lenient path has read.

    The fuzz test finds none that the fast path rejects then; one would be rejected rather than guessed at.
    """
    if any(fault.severity is Severity.ERROR for fault in faults):
        return Converted(None, faults)
    message = build()
    if message is None:
        unexplained = Fault(
            "wrong-value", "protobuf rejects a value in here", "compare it with the API's documentation"
        )
        faults = (*faults, unexplained)
    return Converted(message, faults)


Convert: TypeAlias = Callable[[PlainValue, int], object]
"""Turns a value into an argument of a message's constructor; the number counts the enclosing messages."""


class NeedsLenientReader(Exception):  # noqa: N818 - it is no error: it sends a value down the lenient path
    """The fast path does not take this form."""


# Signs of an odd value: our own checks, a name in no table, and the constructor's checks of range, text and depth. The
# lenient path then finds the exact fault.
_REFUSALS = (NeedsLenientReader, WrongValueError, KeyError, TypeError, ValueError, OverflowError, DecodeError)

# The types whose values scalar fields take unchanged; the constructor checks ranges and texts.
_AS_IS: Mapping[int, type] = {
    **dict.fromkeys(INTEGERS, int),
    FieldDescriptor.TYPE_STRING: str,
    FieldDescriptor.TYPE_BOOL: bool,
}

# Per field name in snake_case and camelCase: the field's name, the type that it takes unchanged, the conversion of
# other values, and the bit of its oneof (0 for none).
_Row: TypeAlias = tuple[str, type | None, Convert, int]


# The number of Anys that are remembered, because many are alike, and the most bytes of one: some megabytes at most.
_MOST_REMEMBERED = 4096
_LARGEST_REMEMBERED = 2000


class _KnownAny(NamedTuple):
    fields: Mapping[str, object]
    depth: int


class CompiledConverter:
    """Builds messages from canonical JSON.

    A value is walked once, into arguments for one call of the constructor. That accepts values that JSON does not allow (an
    int for a bool, two members of a oneof), so the walk checks everything.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._converters: dict[str, Convert] = {
            ANY: self._any,
            DURATION: _leaf(scalars.read_duration),
            FIELD_MASK: _leaf(scalars.read_field_mask),
            LIST_VALUE: _list_fields,
            STRUCT: _struct_fields,
            TIMESTAMP: _leaf(scalars.read_timestamp),
            VALUE: _value_fields,
        }
        self._packed: dict[str, tuple[type[Message], Convert, bool]] = {}  # by type URL
        self._anys: Lru[bytes, _KnownAny] = Lru(_MOST_REMEMBERED)  # by their content

    def build(self, value: PlainValue, message_class: type[Message]) -> Message | None:
        """Return None for an odd value."""
        try:
            return _made(message_class, self._converter(descriptor_of(message_class))(value, 0))
        except _REFUSALS:
            return None

    def build_any(self, value: PlainValue) -> Message | None:
        """Build the type in "@type", or None."""
        try:
            return self._packed_message(value, 0)
        except _REFUSALS:
            return None

    def _converter(self, descriptor: Descriptor) -> Convert:
        known = self._converters.get(descriptor.full_name)
        if known is not None:
            return known
        if descriptor.full_name in WRAPPERS:
            converter = _wrapper(*_scalar(descriptor.fields_by_name["value"]))
        else:
            table: dict[str, _Row] = {}
            converter = _object(table, frozenset(field.name for field in descriptor.fields if takes_null(field)))
            # Registered before its fields: a message may hold messages of its own type.
            self._converters[descriptor.full_name] = converter
            for name, field in fields_by_name(descriptor).items():
                bit = 0 if field.containing_oneof is None else 1 << field.containing_oneof.index
                table[name] = (field.name, *self._conversion(field), bit)
        self._converters[descriptor.full_name] = converter
        return converter

    def _conversion(self, field: FieldDescriptor) -> tuple[type | None, Convert]:
        if is_map(field):
            key, value = map_parts(field)
            read_key = None if key.type == FieldDescriptor.TYPE_STRING else scalars.reader(key)
            return None, _map(read_key, *self._one(value))
        as_is, convert = self._one(field)
        if field.is_repeated:
            return None, _list(as_is, convert)
        return as_is, _struct_content if convert is _struct_fields else convert

    def _one(self, field: FieldDescriptor) -> tuple[type | None, Convert]:
        if field.message_type is None:
            return _scalar(field)
        return None, self._converter(field.message_type)

    def _any(self, value: PlainValue, depth: int) -> object:
        if type(value) is not dict:
            raise NeedsLenientReader
        if not value:
            return value
        key = _content_of(value)
        known = self._anys.get(key) if key is not None else None
        # A value that fits at some depth fits at any lesser depth.
        if known is not None and depth <= known.depth:
            return known.fields
        message = self._packed_message(value, depth)
        fields = {"type_url": value["@type"], "value": message.SerializeToString(deterministic=True)}
        if key is not None and len(key) <= _LARGEST_REMEMBERED:
            self._anys.put(key, _KnownAny(fields, depth))
        return fields

    def _packed_message(self, value: PlainValue, depth: int) -> Message:
        if type(value) is not dict or depth > DEEPEST_MESSAGE:
            raise NeedsLenientReader
        content: dict[str, PlainValue] = dict(value)
        message_class, convert, is_special = self._packing(content.pop("@type"))
        if not is_special:
            return _made(message_class, convert(content, depth + 1))
        inner = content.pop("value")
        if content:
            raise NeedsLenientReader
        return _made(message_class, convert(inner, depth + 1))

    def _packing(self, type_url: PlainValue) -> tuple[type[Message], Convert, bool]:
        if type(type_url) is not str:
            raise NeedsLenientReader
        packed = self._packed.get(type_url)
        if packed is None:
            message_type = type_of_url(type_url)
            if message_type is None:
                raise NeedsLenientReader
            message_class = self._catalogue.message_class(message_type)
            converter = self._converter(descriptor_of(message_class))
            packed = self._packed[type_url] = (message_class, converter, message_type in SPECIAL_JSON)
        return packed


def _content_of(value: PlainValue) -> bytes | None:
    """Equal for values equal in content, type and order; None if there is no key.

    `marshal` is quicker than a walk. In this version, its output depends on the values alone; it rejects `SpelledFloat`,
    which it could not distinguish from its number.
    """
    try:
        return marshal.dumps(value, 2)
    except ValueError:
        return None


def _made(message_class: type[Message], fields: object) -> Message:
    return message_class(**fields)  # type: ignore[arg-type]  # every converter of a message returns a dict


def _leaf(read: Read) -> Convert:
    return lambda value, _depth: read(value)


def _scalar(field: FieldDescriptor) -> tuple[type | None, Convert]:
    return _AS_IS.get(field.type), _leaf(scalars.reader(field))


def _object(table: Mapping[str, _Row], nulls: frozenset[str]) -> Convert:
    def convert(value: PlainValue, depth: int) -> object:
        if type(value) is not dict or depth > DEEPEST_MESSAGE:
            raise NeedsLenientReader
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
                    raise NeedsLenientReader
                taken |= oneof
        if len(fields) != len(value) and len({table[key][0] for key in value}) != len(value):
            raise NeedsLenientReader  # one field under both its names; a null alone would only be absent
        return fields

    return convert


def _wrapper(as_is: type | None, convert_scalar: Convert) -> Convert:
    def convert(value: PlainValue, depth: int) -> object:
        return {"value": value if type(value) is as_is else convert_scalar(value, depth)}

    return convert


def _list(as_is: type | None, convert_item: Convert) -> Convert:
    def convert(value: PlainValue, depth: int) -> object:
        if type(value) is not list:
            raise NeedsLenientReader
        return [element if type(element) is as_is else convert_item(element, depth) for element in value]

    return convert


def _map(read_key: Read | None, as_is: type | None, convert_item: Convert) -> Convert:
    def convert(value: PlainValue, depth: int) -> object:
        if type(value) is not dict:
            raise NeedsLenientReader
        depth += 1
        entries = {
            key if read_key is None else read_key(key): element
            if type(element) is as_is
            else convert_item(element, depth)
            for key, element in value.items()
        }
        if len(entries) != len(value):
            raise NeedsLenientReader
        return entries

    return convert


def _value_fields(value: PlainValue, depth: int) -> dict[str, object]:
    python_type = type(value)
    if python_type is str or python_type is bool:
        return {"string_value" if python_type is str else "bool_value": value}
    if python_type is dict:
        return {"struct_value": _struct_content(value, depth + 1)}
    if python_type is list:
        return {"list_value": _list_fields(value, depth + 1)}
    if value is None:
        return {"null_value": 0}
    if isinstance(value, SpelledFloat):
        return {"string_value": value.text}
    return {"number_value": scalars.read_number(value)}


def _list_fields(value: PlainValue, depth: int) -> dict[str, object]:
    if type(value) is not list or depth > DEEPEST_MESSAGE:
        raise NeedsLenientReader
    return {"values": [_value_fields(element, depth + 1) for element in value]}


def _struct_fields(value: PlainValue, depth: int) -> dict[str, object]:
    if type(value) is not dict or depth > DEEPEST_MESSAGE:
        raise NeedsLenientReader
    return {"fields": {key: _value_fields(element, depth + 2) for key, element in value.items()}}


def _struct_content(value: PlainValue, depth: int) -> dict[str, object]:
    if type(value) is not dict or depth > DEEPEST_MESSAGE:
        raise NeedsLenientReader
    return {key: element if type(element) is str else _content(element, depth) for key, element in value.items()}


def _content(value: PlainValue, depth: int) -> object:
    if type(value) is str or type(value) is bool or value is None:
        return value
    if type(value) is dict:
        return _struct_content(value, depth + STRUCT_LEVELS)
    if type(value) is list:
        if depth > DEEPEST_MESSAGE:
            raise NeedsLenientReader
        return [_content(element, depth + LIST_LEVELS) for element in value]
    return value.text if isinstance(value, SpelledFloat) else scalars.read_number(value)
