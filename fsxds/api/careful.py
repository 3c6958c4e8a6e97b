"""The slow path: takes what Envoy's JSON reader takes, brings it to one form, and collects every fault."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fsxds.api import dialect, special
from fsxds.api.catalogue import Catalogue
from fsxds.api.dialect import Read
from fsxds.api.fields import (
    ANY,
    LIST_VALUE,
    SPECIAL_JSON,
    VALUE,
    WRAPPERS,
    is_map,
    map_parts,
    owner_of,
    takes_null,
    type_of_url,
)
from fsxds.api.places import DROPPED, Findings, Normal, Place
from fsxds.api.quotes import may_quote_field, may_quote_type
from fsxds.api.secrets import Secrecy
from fsxds.api.spellings import Spellings, shortened
from fsxds.values import Fault, PlainValue, Severity

_API_REMEDY = "give --envoy PATH of the Envoy in use, or --descriptors FILE with your own types"


class CarefulReader:
    """Brings values to the one form that the fast path takes, and says all that is wrong with them."""

    def __init__(self, catalogue: Catalogue, unknown_fields: Severity) -> None:
        self._catalogue = catalogue
        self._unknown_fields = unknown_fields
        self._secrecy = Secrecy(catalogue)
        self._spellings = Spellings(catalogue)
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
        if name in special.CHECKS:
            return special.CHECKS[name](value, place)
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
            read = self._readers[field.full_name] = dialect.reader(field)
        return read

    def _wrapper(self, value: PlainValue, field: FieldDescriptor, place: Place) -> Normal:
        """Read a number, a text or a bool that may be absent. Envoy also takes `{"value": …}`."""
        if not (isinstance(value, dict) and value.keys() <= {"value"}):
            return self._one(value, field, place)
        inner = value.get("value")
        if inner is None:
            return special.empty_value(owner_of(field).full_name)
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
            return special.empty_value(descriptor.full_name)
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
        return special.empty_value(field.message_type.full_name)
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return ""
    # The first value of an open enum is 0.
    return False if field.type == FieldDescriptor.TYPE_BOOL else 0


def _remedy_for_object(value: PlainValue) -> str:
    return "write its fields, not a list" if isinstance(value, list) else "write its fields, as key: value pairs"
