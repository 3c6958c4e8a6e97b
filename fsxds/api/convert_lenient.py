"""Where the careful path stands in a value, and the faults it found so far.

The messages whose JSON is no object of their fields, as the careful path reads them.

The slow path: takes what Envoy's JSON reader takes, brings it to one form, and collects every fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
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
    Spellings,
    is_map,
    map_parts,
    owner_of,
    shortened,
    takes_null,
    type_of_url,
)
from fsxds.api.quotes import may_quote_field, may_quote_type, quoted
from fsxds.api.scalars import Read, WrongValueError
from fsxds.api.secrets import Secrecy
from fsxds.values import Fault, FieldPath, PlainValue, Severity


class _Dropped(Enum):
    """Stands for a value that has a fault and is left out."""

    DROPPED = "dropped"


DROPPED: Final = _Dropped.DROPPED
WELL_ADVISED: Final = 100
Normal: TypeAlias = "PlainValue | _Dropped"
"""A value in the one form of proto3 JSON that the fast path takes, or none because of a fault."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The faults of one resource, in the order in which they were met; `unknown_fields` weighs unknown names."""

    unknown_fields: Severity
    faults: list[Fault] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Place:
    """A place within a value, and the findings to add to.

    Attributes:
        findings: the faults found so far, shared by all places of a resource.
        path: keys and indexes that lead there, as the author spelled them.
        depth: how many messages stand around it.
        secret: what stands here must not be quoted.
    """

    findings: Findings
    path: FieldPath = ()
    depth: int = 0
    secret: bool = False

    def at(self, step: str | int, *, secret: bool = False) -> Place:
        """Return the place one step further, in the same message."""
        return Place(self.findings, (*self.path, step), self.depth, self.secret or secret)

    def within(self, levels: int = 1) -> Place:
        """Return this place, seen from that many more messages inside."""
        return Place(self.findings, self.path, self.depth + levels, self.secret)

    def is_worth_advice(self) -> bool:
        """Tell whether anybody will read so far: what a wrong name probably means takes long to find out."""
        return len(self.findings.faults) < WELL_ADVISED

    def add(self, rule: str, message: str, remedy: str) -> None:
        """Note an error."""
        self.findings.faults.append(Fault(rule, message, remedy, self.path))

    def warn(self, rule: str, message: str, remedy: str) -> None:
        """Note what Envoy takes, and its author hardly means."""
        self.findings.faults.append(Fault(rule, message, remedy, self.path, severity=Severity.WARNING))

    def add_unknown(self, rule: str, message: str, remedy: str) -> None:
        """Note a name that the API does not know; what it names is left out."""
        severity = self.findings.unknown_fields
        fact = message if severity is Severity.ERROR else f"{message}; it is left out"
        self.findings.faults.append(Fault(rule, fact, remedy, self.path, severity=severity))

    def add_wrong(self, value: PlainValue, expected: str, remedy: str) -> None:
        """Note a value that is not what its field asks for."""
        self.add("wrong-value", f"expected {expected}, found {quoted(value, secret=self.secret)}", remedy)

    def attempt(self, read: Read, value: PlainValue) -> object:
        """Return what a reader makes of a value; DROPPED, with a fault, where it raises."""
        try:
            return read(value)
        except WrongValueError as error:
            if error.is_unknown_name:
                name = f'"{value}"' if error.is_near and not self.secret else quoted(value, secret=self.secret)
                fact = f"{'this' if name == 'text' else name} is not {error.expected}"
                self.add_unknown("unknown-enum-value", fact, error.remedy)
            else:
                self.add_wrong(value, error.expected, error.remedy)
            return DROPPED

    def is_too_deep(self) -> bool:
        """Tell whether a message stands deeper here than protobuf reads, and note it if so."""
        if self.depth <= DEEPEST_MESSAGE:
            return False
        fact = f"nested too deeply: no more than {DEEPEST_MESSAGE} messages may stand within one another"
        self.add("too-deep", fact, "flatten it; Envoy does not read it either")
        return True


Check: TypeAlias = Callable[[PlainValue, Place], Normal]
"""Notes the faults of a value, and returns it, or DROPPED."""


def check_struct(value: PlainValue, place: Place) -> Normal:
    """A JSON object of anything."""
    if place.is_too_deep():
        return DROPPED
    if not isinstance(value, dict):
        place.add_wrong(value, "an object", "write key: value pairs")
        return DROPPED
    for key, element in value.items():
        here = place.at(key)
        here.attempt(scalars.read_text, key)
        check_value(element, here.within(STRUCT_LEVELS))
    return value


def check_list(value: PlainValue, place: Place) -> Normal:
    """A JSON list of anything."""
    if place.is_too_deep():
        return DROPPED
    if not isinstance(value, list):
        place.add_wrong(value, "a list", "write a list")
        return DROPPED
    for index, element in enumerate(value):
        check_value(element, place.at(index).within(LIST_LEVELS))
    return value


def check_value(value: PlainValue, place: Place) -> Normal:
    """Any JSON value. A plain decimal of YAML is text, as in Envoy 1.40 (ENVOY.md H)."""
    if isinstance(value, dict):
        return check_struct(value, place)
    if isinstance(value, list):
        return check_list(value, place)
    if isinstance(value, str):
        place.attempt(scalars.read_text, value)
    elif value is not None and not isinstance(value, bool):
        place.attempt(scalars.read_number, value)
    return value


def _check_with(read: Read) -> Check:
    return lambda value, place: DROPPED if place.attempt(read, value) is DROPPED else value


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        DURATION: _check_with(scalars.read_duration),
        FIELD_MASK: _check_with(scalars.read_field_mask),
        LIST_VALUE: check_list,
        STRUCT: check_struct,
        TIMESTAMP: _check_with(scalars.read_timestamp),
        VALUE: check_value,
    }
)

# Where a map or an Any has null for one of these, Envoy makes it an empty message.
_EMPTY: Mapping[str, PlainValue] = MappingProxyType(
    {
        DURATION: "0s",
        FIELD_MASK: "",
        LIST_VALUE: [],
        TIMESTAMP: "1970-01-01T00:00:00Z",
        VALUE: None,
        "google.protobuf.BoolValue": False,
        "google.protobuf.BytesValue": "",
        "google.protobuf.DoubleValue": 0,
        "google.protobuf.FloatValue": 0,
        "google.protobuf.Int32Value": 0,
        "google.protobuf.Int64Value": 0,
        "google.protobuf.StringValue": "",
        "google.protobuf.UInt32Value": 0,
        "google.protobuf.UInt64Value": 0,
    }
)


def empty_value(message_type: str) -> PlainValue:
    """Return the JSON of an empty message."""
    return _EMPTY.get(message_type, {})


_API_REMEDY = "give --envoy PATH of the Envoy in use, or --descriptors FILE with your own types"


class CarefulReader:
    """Brings values to the one form that the fast path takes, and says all that is wrong with them."""

    def __init__(self, catalogue: Catalogue, unknown_fields: Severity) -> None:
        self._catalogue = catalogue
        self._unknown_fields = unknown_fields
        self._secrecy = catalogue.once(Secrecy)
        self._spellings = catalogue.once(Spellings)
        self._readers: dict[str, Read] = {}

    def read(self, value: PlainValue, descriptor: Descriptor) -> tuple[PlainValue, tuple[Fault, ...]]:
        """Return the value in one form, and its faults; with an ERROR among them, the form means nothing."""
        findings = Findings(self._unknown_fields)
        normal = self._message(value, descriptor, Place(findings))
        return (None if normal is DROPPED else normal), tuple(findings.faults)

    def read_any(self, value: PlainValue) -> tuple[PlainValue, tuple[Fault, ...]]:
        """Do the same for a value whose type its "@type" names."""
        findings = Findings(self._unknown_fields)
        place = Place(findings)
        normal = DROPPED if self._packed_type(value, place) is None else self._any(value, place)
        return (None if normal is DROPPED else normal), tuple(findings.faults)

    def _message(self, value: PlainValue, descriptor: Descriptor, place: Place) -> Normal:
        name = descriptor.full_name
        if place.is_too_deep():
            return DROPPED
        if name == ANY:
            return self._any(value, place)
        if name in WRAPPERS:
            return self._wrapper(value, descriptor.fields_by_name["value"], place)
        if name in CHECKS:
            return CHECKS[name](value, place)
        if isinstance(value, dict):
            return self._fields(value, descriptor, place)
        place.add_wrong(value, f"an object with the fields of {name}", _remedy_for_object(value))
        return DROPPED

    def _fields(self, value: dict[str, PlainValue], descriptor: Descriptor, place: Place) -> Normal:
        normal: dict[str, PlainValue] = {}
        spelled: dict[str, str] = {}
        taken: dict[int, str] = {}
        for key, element in value.items():
            field = self._spellings.find(descriptor, key)
            if field is None:
                fault = self._spellings.unknown(descriptor, key, is_advised=place.is_worth_advice())
                place.at(key).add_unknown("unknown-field", *fault)
                continue
            here = place.at(key, secret=self._secrecy.covers(field))
            if field.name in spelled:
                fact = f'"{spelled[field.name]}" and "{key}" are the same field'
                here.add("duplicate-field", fact, "remove one of them")
                continue
            spelled[field.name] = key
            if element is None and not takes_null(field):
                continue
            self._check_oneof(taken, field, key, place)
            read = self._field(element, field, here.within())
            if read is not DROPPED:
                normal[field.name] = read
        return normal

    def _check_oneof(self, taken: dict[int, str], field: FieldDescriptor, key: str, place: Place) -> None:
        group = self._spellings.groups(owner_of(field)).get(field.name)
        other = key if group is None else taken.setdefault(group, key)
        if other != key:
            place.at(key).add("oneof-conflict", f'only one of "{other}" and "{key}" may be given', "remove one of them")

    def _field(self, value: PlainValue, field: FieldDescriptor, place: Place) -> Normal:
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

    def _items(self, value: PlainValue, field: FieldDescriptor, place: Place) -> Iterator[Normal]:
        """Read what one item of a list stands for: as in Envoy, null for an empty one, and a list for all in it."""
        if field.message_type is not None and field.message_type.full_name in (VALUE, LIST_VALUE):
            yield self._one(value, field, place)
        elif value is None:
            place.warn("null-item", "null stands for an empty item here", "remove it, or write the item")
            yield self._one(_default(field), field, place)
        elif isinstance(value, list):
            place.warn(
                "nested-list", "what is in this list counts as items of the list around it", "remove its brackets"
            )
            for index, element in enumerate(value):
                yield from self._items(element, field, place.at(index).within())
        else:
            yield self._one(value, field, place)

    def _map(self, value: PlainValue, field: FieldDescriptor, place: Place) -> Normal:
        if not isinstance(value, dict):
            place.add_wrong(value, "an object", "write key: value pairs")
            return DROPPED
        key_field, value_field = map_parts(field)
        read_key = self._reader(key_field)
        names: set[object] = set()
        entries: dict[str, PlainValue] = {}
        for key, element in value.items():
            here = place.at(key)
            name = here.attempt(read_key, key)
            if name in names:
                here.add("duplicate-field", "this key is duplicated", "remove one of them")
            names.add(name)
            read = self._one(_default(value_field) if element is None else element, value_field, here.within())
            if name is not DROPPED and read is not DROPPED:
                entries[key] = read
        return entries

    def _one(self, value: PlainValue, field: FieldDescriptor, place: Place) -> Normal:
        if field.message_type is not None:
            return self._message(value, field.message_type, place)
        return DROPPED if place.attempt(self._reader(field), value) is DROPPED else value

    def _reader(self, field: FieldDescriptor) -> Read:
        read = self._readers.get(field.full_name)
        if read is None:
            read = self._readers[field.full_name] = scalars.reader(field)
        return read

    def _wrapper(self, value: PlainValue, field: FieldDescriptor, place: Place) -> Normal:
        """Read a number, a text or a bool that may be absent. Envoy also takes `{"value": …}`."""
        if not (isinstance(value, dict) and value.keys() <= {"value"}):
            return self._one(value, field, place)
        inner = value.get("value")
        if inner is None:
            return empty_value(owner_of(field).full_name)
        return self._one(inner, field, place.at("value"))

    def _any(self, value: PlainValue, place: Place) -> Normal:
        if value == {}:
            return {}
        descriptor = self._packed_type(value, place)
        if descriptor is None or not isinstance(value, dict):
            return DROPPED
        content = {key: element for key, element in value.items() if key != "@type"}
        if descriptor.full_name in SPECIAL_JSON:
            read = self._special_content(content, descriptor, place.within())
            return DROPPED if read is DROPPED else {"@type": value["@type"], "value": read}
        read = self._message(content, descriptor, place.within())
        return {"@type": value["@type"], **read} if isinstance(read, dict) else DROPPED

    def _special_content(self, content: dict[str, PlainValue], descriptor: Descriptor, place: Place) -> Normal:
        """Read an Any of a type whose JSON is no object of fields: it stands under the key "value"."""
        for key in content:
            if key != "value":
                known = f' "{shortened(key)}"' if may_quote_field(key, self._catalogue) else ""
                fact = f"an Any of {descriptor.full_name} has no {'field' if known else 'such field'}{known}"
                place.at(key).add_unknown("unknown-field", fact, 'write its JSON under the key "value"')
        inner = content.get("value")
        if inner is None:
            return empty_value(descriptor.full_name)
        return self._message(inner, descriptor, place.at("value"))

    def _packed_type(self, value: PlainValue, place: Place) -> Descriptor | None:
        """Return the type that an Any's "@type" names, None with a fault when it is missing or unknown."""
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
        if descriptor is None:
            near = self._catalogue.similar(message_type)
            known = f' "{shortened(message_type)}"' if near or may_quote_type(message_type) else " of this name"
            fact = f"there is no message type{known} in {self._catalogue.description}"
            place.at("@type").add(
                "unknown-type", fact, f'did you mean "{near}"? Else {_API_REMEDY}' if near else _API_REMEDY
            )
        return descriptor


def _default(field: FieldDescriptor) -> PlainValue:
    """Return what null means as a map's value or a list's item: the default, as in Envoy."""
    if field.message_type is not None:
        return empty_value(field.message_type.full_name)
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return ""
    # The first value of an open enum is 0.
    return False if field.type == FieldDescriptor.TYPE_BOOL else 0


def _remedy_for_object(value: PlainValue) -> str:
    return "write its fields, not a list" if isinstance(value, list) else "write its fields, as key: value pairs"
