"""The messages whose JSON is no object of their fields, as the careful path reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from fsxds.api import dialect
from fsxds.api.dialect import Read
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
from fsxds.values import PlainValue

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
        here.attempt(dialect.read_text, key)
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
        place.attempt(dialect.read_text, value)
    elif value is not None and not isinstance(value, bool):
        place.attempt(dialect.read_number, value)
    return value


def _check_with(read: Read) -> Check:
    return lambda value, place: DROPPED if place.attempt(read, value) is DROPPED else value


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        DURATION: _check_with(dialect.read_duration),
        FIELD_MASK: _check_with(dialect.read_field_mask),
        LIST_VALUE: check_list,
        STRUCT: check_struct,
        TIMESTAMP: _check_with(dialect.read_timestamp),
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
