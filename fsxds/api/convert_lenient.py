"""The lenient conversion: normalizes odd values for the fast path of `converter`, and reports every fault.

Envoy, unlike proto3 JSON, accepts:

* one item for a list of one, a list within a list for its items, null for an empty item or entry;
* `{"value": 1}` for a wrapper; `{"seconds": 1}` for a duration;
* unknown names, if they are dropped;
* the forms of scalars in `scalars`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fsxds.api import scalars
from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import (
    ANY,
    DEEPEST_MESSAGE,
    DURATION,
    FIELD_MASK,
    LIST_LEVELS,
    LIST_VALUE,
    SPECIAL_JSON,
    STRUCT,
    STRUCT_LEVELS,
    TIMESTAMP,
    VALUE,
    WRAPPERS,
    FieldNames,
    is_map,
    map_parts,
    may_quote_field,
    may_quote_type,
    owner_of,
    quoted,
    shortened,
    takes_null,
    type_of_url,
)
from fsxds.api.scalars import Read, WrongValueError
from fsxds.api.secrets import Secrecy
from fsxds.api.v2_spellings import successor_of
from fsxds.model.values import Fault, FieldPath, PlainValue, Severity

_API_REMEDY = "give --envoy PATH of the Envoy in use, or --descriptors FILE with your own types"

_MOST_ADVICE: Final = 100
"""The number of faults per value that get advice: guessing the meaning of a wrong name is slow."""


class _Dropped(Enum):
    DROPPED = "dropped"


DROPPED: Final = _Dropped.DROPPED


@dataclass(frozen=True, slots=True)
class ValuePlace:
    """A place within a value.

    Attributes:
        faults: shared by all places of a value.
        unknown_fields: the severity of unknown names.
        path: as the file spells it.
        depth: the number of enclosing messages.
        is_secret: the value must not be quoted.
    """

    faults: list[Fault]
    unknown_fields: Severity
    path: FieldPath = ()
    depth: int = 0
    is_secret: bool = False

    def at(self, step: str | int, *, secret: bool = False) -> ValuePlace:
        """Return the place one step further."""
        return ValuePlace(self.faults, self.unknown_fields, (*self.path, step), self.depth, self.is_secret or secret)

    def within(self, levels: int = 1) -> ValuePlace:
        """Return this place, `levels` messages deeper."""
        return ValuePlace(self.faults, self.unknown_fields, self.path, self.depth + levels, self.is_secret)

    def add(self, rule: str, message: str, remedy: str, severity: Severity = Severity.ERROR) -> None:
        """Report a fault."""
        self.faults.append(Fault(rule, message, remedy, self.path, severity=severity))

    def add_unknown(self, rule: str, message: str, remedy: str) -> None:
        """Report an unknown name; drop its value."""
        fact = message if self.unknown_fields is Severity.ERROR else f"{message}; it is left out"
        self.add(rule, fact, remedy, self.unknown_fields)

    def add_wrong(self, value: PlainValue, expected: str, remedy: str) -> None:
        """Report a wrong value."""
        self.add("wrong-value", f"expected {expected}, found {quoted(value, secret=self.is_secret)}", remedy)

    def read(self, read: Read, value: PlainValue) -> object:
        """Return `read(value)`; DROPPED, with a fault, on error."""
        try:
            return read(value)
        except WrongValueError as error:
            if error.is_unknown_name:
                name = f'"{value}"' if error.is_near and not self.is_secret else quoted(value, secret=self.is_secret)
                fact = f"{'this' if name == 'text' else name} is not {error.expected}"
                self.add_unknown("unknown-enum-value", fact, error.remedy)
            else:
                self.add_wrong(value, error.expected, error.remedy)
            return DROPPED

    def is_too_deep(self) -> bool:
        """Report messages too deep for protobuf."""
        if self.depth <= DEEPEST_MESSAGE:
            return False
        fact = f"nested too deeply: no more than {DEEPEST_MESSAGE} messages may be nested"
        self.add("too-deep", fact, "flatten it; Envoy does not read it either")
        return True


class LenientReader:
    """Normalizes odd values and reports their faults."""

    def __init__(self, catalogue: Catalogue, unknown_fields: Severity) -> None:
        self._catalogue = catalogue
        self._unknown_fields = unknown_fields
        self._secrecy = catalogue.once(Secrecy)
        self._names = FieldNames(catalogue)
        self._readers: dict[str, Read] = {}

    def read(self, value: PlainValue, descriptor: Descriptor) -> tuple[PlainValue, tuple[Fault, ...]]:
        """Return the normalized value, meaningless after an ERROR, and faults."""
        faults: list[Fault] = []
        return self._message(value, descriptor, ValuePlace(faults, self._unknown_fields)), tuple(faults)

    def read_any(self, value: PlainValue) -> tuple[PlainValue, tuple[Fault, ...]]:
        """Read the type in "@type"."""
        faults: list[Fault] = []
        return self._packed(value, ValuePlace(faults, self._unknown_fields)), tuple(faults)

    def _message(self, value: PlainValue, descriptor: Descriptor, place: ValuePlace) -> PlainValue:
        name = descriptor.full_name
        if place.is_too_deep():
            return None
        if name == ANY:
            return {} if value == {} else self._packed(value, place)
        if name in WRAPPERS:
            return self._wrapper(value, descriptor.fields_by_name["value"], place)
        if name in _CHECKS:
            _CHECKS[name](value, place)
            return value
        if isinstance(value, dict):
            return self._fields(value, descriptor, place)
        place.add_wrong(value, f"an object with the fields of {name}", _remedy_for_object(value))
        return None

    def _fields(self, value: dict[str, PlainValue], descriptor: Descriptor, place: ValuePlace) -> dict[str, PlainValue]:
        fields: dict[str, PlainValue] = {}
        keys: dict[str, str] = {}  # {field or oneof: the key that set it}
        for key, element in value.items():
            field = self._names.find(descriptor, key)
            if field is None:
                fault = self._names.unknown(descriptor, key, is_advised=len(place.faults) < _MOST_ADVICE)
                place.at(key).add_unknown("unknown-field", *fault)
                continue
            here = place.at(key, secret=self._secrecy.covers(field))
            if field.full_name in keys:
                fact = f'"{keys[field.full_name]}" and "{key}" are the same field'
                here.add("duplicate-field", fact, "remove one of them")
                continue
            keys[field.full_name] = key
            if element is None and not takes_null(field):
                continue
            if field.containing_oneof is not None:
                other = keys.setdefault(field.containing_oneof.full_name, key)
                if other != key:
                    fact = f'only one of "{other}" and "{key}" may be given'
                    place.at(key).add("oneof-conflict", fact, "remove one of them")
            read = self._field(element, field, here.within())
            if read is not DROPPED:
                fields[field.name] = read
        return fields

    def _field(self, value: PlainValue, field: FieldDescriptor, place: ValuePlace) -> PlainValue | _Dropped:
        if is_map(field):
            return self._map(value, field, place)
        if not field.is_repeated:
            return self._one(value, field, place)
        if not isinstance(value, list):
            # Envoy takes one item for a list of one.
            element = self._one(value, field, place)
            return DROPPED if element is DROPPED else [element]
        items = [
            normal for index, element in enumerate(value) for normal in self._items(element, field, place.at(index))
        ]
        return [element for element in items if element is not DROPPED]

    def _items(self, value: PlainValue, field: FieldDescriptor, place: ValuePlace) -> Iterator[PlainValue | _Dropped]:
        """In Envoy null is an empty item, and a nested list its items."""
        if field.message_type is not None and field.message_type.full_name in (VALUE, LIST_VALUE):
            yield self._one(value, field, place)
        elif value is None:
            fact = "null means an empty item here"
            place.add("null-item", fact, "remove it, or write the item", Severity.WARNING)
            yield self._one(_default(field), field, place)
        elif isinstance(value, list):
            fact = "the items of this list count as items of the list around it"
            place.add("nested-list", fact, "remove its brackets", Severity.WARNING)
            for index, element in enumerate(value):
                yield from self._items(element, field, place.at(index).within())
        else:
            yield self._one(value, field, place)

    def _map(self, value: PlainValue, field: FieldDescriptor, place: ValuePlace) -> PlainValue:
        if not isinstance(value, dict):
            place.add_wrong(value, "an object", "write key: value pairs")
            return None
        key_field, value_field = map_parts(field)
        read_key = self._reader(key_field)
        names: set[object] = set()
        entries: dict[str, PlainValue] = {}
        for key, element in value.items():
            here = place.at(key)
            name = here.read(read_key, key)
            if name in names and name is not DROPPED:
                here.add("duplicate-field", "this key is duplicated", "remove one of them")
            names.add(name)
            read = self._one(_default(value_field) if element is None else element, value_field, here.within())
            if read is not DROPPED:
                entries[key] = read
        return entries

    def _one(self, value: PlainValue, field: FieldDescriptor, place: ValuePlace) -> PlainValue | _Dropped:
        if field.message_type is not None:
            return self._message(value, field.message_type, place)
        return DROPPED if place.read(self._reader(field), value) is DROPPED else value

    def _reader(self, field: FieldDescriptor) -> Read:
        read = self._readers.get(field.full_name)
        if read is None:
            read = self._readers[field.full_name] = scalars.reader(field)
        return read

    def _wrapper(self, value: PlainValue, field: FieldDescriptor, place: ValuePlace) -> PlainValue:
        """Envoy also takes `{"value": ...}`."""
        if isinstance(value, dict) and value.keys() <= {"value"}:
            value = value.get("value")
            if value is None:
                return empty_value(owner_of(field).full_name)
            place = place.at("value")
        place.read(self._reader(field), value)
        return value

    def _packed(self, value: PlainValue, place: ValuePlace) -> PlainValue:
        descriptor = self._packed_type(value, place)
        if descriptor is None or not isinstance(value, dict):
            return None
        content = {key: element for key, element in value.items() if key != "@type"}
        if descriptor.full_name in SPECIAL_JSON:
            return {"@type": value["@type"], "value": self._special_content(content, descriptor, place.within())}
        read = self._message(content, descriptor, place.within())
        return {"@type": value["@type"], **read} if isinstance(read, dict) else None

    def _special_content(self, content: dict[str, PlainValue], descriptor: Descriptor, place: ValuePlace) -> PlainValue:
        for key in content:
            if key != "value":
                known = f' "{shortened(key)}"' if may_quote_field(key, self._catalogue) else ""
                fact = f"an Any of {descriptor.full_name} has no {'field' if known else 'such field'}{known}"
                place.at(key).add_unknown("unknown-field", fact, 'write its JSON under the key "value"')
        inner = content.get("value")
        if inner is None:
            return empty_value(descriptor.full_name)
        return self._message(inner, descriptor, place.at("value"))

    def _packed_type(self, value: PlainValue, place: ValuePlace) -> Descriptor | None:
        if not isinstance(value, dict):
            place.add_wrong(value, 'an object with "@type"', _remedy_for_object(value))
            return None
        type_url = value.get("@type")
        if type_url is None:
            remedy = 'add "@type": type.googleapis.com/ and the full name of the message'
            place.add("missing-type", 'this needs an "@type"', remedy)
            return None
        message_type = type_of_url(type_url) if isinstance(type_url, str) else None
        if message_type is None:
            remedy = "write type.googleapis.com/ and the full name of the message"
            place.at("@type").add_wrong(type_url, "a type URL: a host, a slash, and a message type", remedy)
            return None
        descriptor = self._catalogue.descriptor(message_type)
        if descriptor is None and (successor := successor_of(self._catalogue, message_type)) is not None:
            fact = f'there is no message type "{message_type}" any more: it is of API v2'
            place.at("@type").add("unknown-type", fact, f'write "type.googleapis.com/{successor}"')
        elif descriptor is None:
            near = self._catalogue.similar(message_type) if len(place.faults) < _MOST_ADVICE else None
            known = f' "{shortened(message_type)}"' if near or may_quote_type(message_type) else " of this name"
            fact = f"there is no message type{known} in {self._catalogue.description}"
            place.at("@type").add(
                "unknown-type", fact, f'did you mean "{near}"? Else {_API_REMEDY}' if near else _API_REMEDY
            )
        return descriptor


def _default(field: FieldDescriptor) -> PlainValue:
    """Null in a map or list, as in Envoy."""
    if field.message_type is not None:
        return empty_value(field.message_type.full_name)
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return ""
    # The first value of an open enum is 0.
    return False if field.type == FieldDescriptor.TYPE_BOOL else 0


def _remedy_for_object(value: PlainValue) -> str:
    return "write its fields, not a list" if isinstance(value, list) else "write its fields, as key: value pairs"


# Messages whose JSON is not an object of their fields; their values stay unchanged.


def _check_struct(value: PlainValue, place: ValuePlace) -> None:
    if place.is_too_deep():
        return
    if not isinstance(value, dict):
        place.add_wrong(value, "an object", "write key: value pairs")
        return
    for key, element in value.items():
        here = place.at(key)
        here.read(scalars.read_text, key)
        _check_value(element, here.within(STRUCT_LEVELS))


def _check_list(value: PlainValue, place: ValuePlace) -> None:
    if place.is_too_deep():
        return
    if not isinstance(value, list):
        place.add_wrong(value, "a list", "write a list")
        return
    for index, element in enumerate(value):
        _check_value(element, place.at(index).within(LIST_LEVELS))


def _check_value(value: PlainValue, place: ValuePlace) -> None:
    """A decimal of YAML is text, as in Envoy 1.40 (ENVOY.md E51)."""
    if isinstance(value, dict):
        _check_struct(value, place)
    elif isinstance(value, list):
        _check_list(value, place)
    elif isinstance(value, str):
        place.read(scalars.read_text, value)
    elif value is not None and not isinstance(value, bool):
        place.read(scalars.read_number, value)


_Check: TypeAlias = Callable[[PlainValue, ValuePlace], object]

_CHECKS: Mapping[str, _Check] = MappingProxyType(
    {
        DURATION: lambda value, place: place.read(scalars.read_duration, value),
        FIELD_MASK: lambda value, place: place.read(scalars.read_field_mask, value),
        LIST_VALUE: _check_list,
        STRUCT: _check_struct,
        TIMESTAMP: lambda value, place: place.read(scalars.read_timestamp, value),
        VALUE: _check_value,
    }
)

# If a map or an Any has null for one of these, Envoy makes it an empty message.
_EMPTY: Mapping[str, PlainValue] = MappingProxyType(
    {
        DURATION: "0s",
        FIELD_MASK: "",
        LIST_VALUE: [],
        TIMESTAMP: "1970-01-01T00:00:00Z",
        VALUE: None,
        **dict.fromkeys(WRAPPERS, 0),
        "google.protobuf.BoolValue": False,
        "google.protobuf.BytesValue": "",
        "google.protobuf.StringValue": "",
    }
)


def empty_value(message_type: str) -> PlainValue:
    """Return the JSON of an empty message."""
    return _EMPTY.get(message_type, {})
