"""The messages whose JSON is no object of their fields, as the careful path reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from fsxds.api import dialect, times
from fsxds.api.fields import (
    DURATION,
    FIELD_MASK,
    LIST_LEVELS,
    LIST_VALUE,
    STRUCT,
    STRUCT_LEVELS,
    TIMESTAMP,
    VALUE,
)
from fsxds.api.places import DROPPED, Normal, Place
from fsxds.api.spelled import SpelledFloat
from fsxds.values import PlainValue


def read_struct(value: PlainValue, place: Place) -> Normal:
    """A JSON object of anything."""
    if place.is_too_deep():
        return DROPPED
    if not isinstance(value, dict):
        place.add_wrong(value, "an object", "write key: value pairs")
        return DROPPED
    normal: dict[str, PlainValue] = {}
    for key, element in value.items():
        here = place.at(key)
        name = here.attempt(dialect.read_text, key)
        read = read_value(element, here.within(STRUCT_LEVELS))
        if isinstance(name, str) and read is not DROPPED:
            normal[name] = read
    return normal


def read_list(value: PlainValue, place: Place) -> Normal:
    """A JSON list of anything."""
    if place.is_too_deep():
        return DROPPED
    if not isinstance(value, list):
        place.add_wrong(value, "a list", "write a list")
        return DROPPED
    items = [read_value(element, place.at(index).within(LIST_LEVELS)) for index, element in enumerate(value)]
    return [element for element in items if element is not DROPPED]


def read_value(value: PlainValue, place: Place) -> Normal:
    """Any JSON value. A plain decimal of YAML is text, as in Envoy 1.40 (ENVOY.md H)."""
    if isinstance(value, dict):
        return read_struct(value, place)
    if isinstance(value, list):
        return read_list(value, place)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, SpelledFloat):
        return value.text
    if isinstance(value, str):
        return place.attempt(dialect.read_text, value)
    return place.attempt(dialect.read_number, value)


READERS: Mapping[str, Callable[[PlainValue, Place], Normal]] = MappingProxyType(
    {
        DURATION: lambda value, place: place.attempt(times.read_duration, value),
        FIELD_MASK: lambda value, place: place.attempt(times.read_field_mask, value),
        LIST_VALUE: read_list,
        STRUCT: read_struct,
        TIMESTAMP: lambda value, place: place.attempt(times.read_timestamp, value),
        VALUE: read_value,
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
