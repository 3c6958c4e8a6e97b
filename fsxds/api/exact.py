"""Scalars in exactly the forms of proto3 JSON, converted fast; anything else is `Odd`."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from fsxds.api.fields import DEEPEST_MESSAGE, INTEGERS, LARGEST_FLOAT, LIST_LEVELS, NULL_VALUE, STRUCT_LEVELS, enum_of
from fsxds.api.spelled import SpelledFloat
from fsxds.values import PlainValue

Convert: TypeAlias = Callable[[PlainValue, int], Any]
"""Turns a value into what a message's constructor takes; the number says how many messages stand around it."""

KeyOf: TypeAlias = Callable[[str], object] | None
"""Turns a JSON key into a map's key; None where it is the key."""

_DURATION = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?s")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_LONGEST_DURATION_S = 315_576_000_000
_WORDS_FOR_FLOATS = frozenset(("NaN", "Infinity", "-Infinity"))


class Odd(Exception):  # noqa: N818 - it is no error: it sends a value down the careful path
    """A value is not in the one form that the fast path is sure of."""


def scalar(field: FieldDescriptor) -> tuple[type | None, Convert]:
    """Return the type whose values a scalar field takes as they are, and what converts all others."""
    if field.type in INTEGERS:
        return int, _integer
    if field.type == FieldDescriptor.TYPE_STRING:
        return str, _text
    if field.type == FieldDescriptor.TYPE_BOOL:
        return bool, _refuse
    if field.type == FieldDescriptor.TYPE_BYTES:
        return None, _bytes
    if field.type == FieldDescriptor.TYPE_ENUM:
        return None, _enum(enum_of(field))
    return None, _float if field.type == FieldDescriptor.TYPE_FLOAT else _double


def map_key(field: FieldDescriptor) -> KeyOf:
    """Return what turns a JSON key into a map's key, None where it is the key."""
    if field.type == FieldDescriptor.TYPE_STRING:
        return None
    return {"true": True, "false": False}.__getitem__ if field.type == FieldDescriptor.TYPE_BOOL else _integer_of_text


def duration(value: PlainValue, _depth: int) -> dict[str, int]:
    """`"1.5s"`, up to nine digits after the point."""
    match = _DURATION.fullmatch(value) if type(value) is str else None
    if match is None:
        raise Odd
    seconds, nanos = int(match[2]), int((match[3] or "").ljust(9, "0"))
    if seconds + (nanos > 0) > _LONGEST_DURATION_S:
        raise Odd
    return {"seconds": -seconds, "nanos": -nanos} if match[1] else {"seconds": seconds, "nanos": nanos}


def timestamp(value: PlainValue, _depth: int) -> dict[str, int]:
    """`"2026-01-02T03:04:05.678Z"`."""
    if type(value) is not str:
        raise Odd
    moment = Timestamp()
    moment.FromJsonString(value)
    return {"seconds": moment.seconds, "nanos": moment.nanos}


def field_mask(value: PlainValue, _depth: int) -> dict[str, list[str]]:
    """`"name,virtualHosts.name"`."""
    if type(value) is not str:
        raise Odd
    mask = FieldMask()
    mask.FromJsonString(value)
    return {"paths": list(mask.paths)}


def value_fields(value: PlainValue, depth: int) -> dict[str, object]:
    """Any JSON value, as the fields of a google.protobuf.Value."""
    python_type = type(value)
    if python_type is str or python_type is bool:
        return {"string_value" if python_type is str else "bool_value": value}
    if python_type is dict:
        return {"struct_value": struct_content(value, depth + 1)}
    if python_type is list:
        return {"list_value": list_fields(value, depth + 1)}
    if value is None:
        return {"null_value": 0}
    if python_type is SpelledFloat:
        return {"string_value": _spelling(value)}
    return {"number_value": _double(value, depth)}


def list_fields(value: PlainValue, depth: int) -> dict[str, object]:
    """A JSON list, as the fields of a google.protobuf.ListValue."""
    if type(value) is not list or depth > DEEPEST_MESSAGE:
        raise Odd
    return {"values": [value_fields(element, depth + 1) for element in value]}


def struct_fields(value: PlainValue, depth: int) -> dict[str, object]:
    """A JSON object, as the fields of a google.protobuf.Struct that stands in a list, in a map or at the top."""
    if type(value) is not dict or depth > DEEPEST_MESSAGE:
        raise Odd
    return {"fields": {key: value_fields(element, depth + 2) for key, element in value.items()}}


def struct_content(value: PlainValue, depth: int) -> dict[str, object]:
    """A JSON object, for a singular field of type google.protobuf.Struct.

    For such a field alone the constructor takes a dict as the struct's content; elsewhere as its fields.
    """
    if type(value) is not dict or depth > DEEPEST_MESSAGE:
        raise Odd
    return {key: element if type(element) is str else _content(element, depth) for key, element in value.items()}


def _content(value: PlainValue, depth: int) -> object:
    python_type = type(value)
    if python_type is str or python_type is bool or value is None:
        return value
    if python_type is dict:
        return struct_content(value, depth + STRUCT_LEVELS)
    if python_type is list:
        if depth > DEEPEST_MESSAGE:
            raise Odd
        return [_content(element, depth + LIST_LEVELS) for element in cast("list[PlainValue]", value)]
    return _spelling(value) if python_type is SpelledFloat else _double(value, depth)


def _spelling(value: PlainValue) -> str:
    if not isinstance(value, SpelledFloat):
        raise Odd
    return value.text


def _refuse(_value: PlainValue, _depth: int) -> object:
    raise Odd


def _text(value: PlainValue, _depth: int) -> str:
    return _spelling(value)


def _integer(value: PlainValue, _depth: int) -> int:
    if type(value) is str:
        return _integer_of_text(value)
    raise Odd


def _integer_of_text(text: str) -> int:
    if _INTEGER.fullmatch(text):
        return int(text)
    raise Odd


def _double(value: PlainValue, _depth: int) -> float:
    if type(value) is int:
        return value
    if isinstance(value, float):
        if value - value == 0.0:  # neither infinite nor "not a number"
            return float(value)
    elif type(value) is str and value in _WORDS_FOR_FLOATS:
        return float(value)
    raise Odd


def _float(value: PlainValue, depth: int) -> float:
    number = _double(value, depth)
    if type(value) is not str and not -LARGEST_FLOAT <= number <= LARGEST_FLOAT:
        raise Odd
    return number


def _bytes(value: PlainValue, _depth: int) -> bytes:
    if type(value) is not str:
        raise Odd
    return base64.b64decode(value, validate=True)


def _enum(enum: EnumDescriptor) -> Convert:
    if enum.full_name == NULL_VALUE:
        return _null
    numbers = {name: value.number for name, value in enum.values_by_name.items()}
    known = frozenset(numbers.values())
    is_open = not enum.is_closed

    def convert(value: PlainValue, _depth: int) -> int:
        if type(value) is str:
            return numbers[value]
        if type(value) is int and (is_open or value in known):
            return value
        raise Odd

    return convert


def _null(value: PlainValue, _depth: int) -> int:
    if value is None:
        return 0
    raise Odd
