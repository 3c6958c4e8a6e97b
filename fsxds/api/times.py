"""Durations, timestamps and field masks as Envoy's JSON reader takes them, brought to the form of proto3 JSON."""

from __future__ import annotations

import re

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from fsxds.api import exact
from fsxds.api.dialect import WrongValueError, read_integer, read_text
from fsxds.api.spelled import SpelledFloat
from fsxds.values import PlainValue

_DURATION_WITHOUT_UNIT = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]{1,9})?")
_BILLION = 10**9


def read_duration(value: PlainValue) -> str:
    """`"1.5s"` or `{"seconds": 1, "nanos": 500000000}`; raises WrongValueError."""
    text = _duration_of_parts(value) if isinstance(value, dict) else value
    try:
        exact.duration(text, 0)
    except exact.Odd:
        raise WrongValueError('a duration such as "1.5s"', _remedy_for_duration(value)) from None
    return str(text)


def read_timestamp(value: PlainValue) -> str:
    """`"2026-01-02T03:04:05Z"` or `{"seconds": 1767323045}`; raises WrongValueError."""
    moment = Timestamp()
    try:
        if isinstance(value, dict):
            moment.seconds, moment.nanos = _seconds_and_nanos(value)
            return moment.ToJsonString()
        if isinstance(value, str):
            moment.FromJsonString(value)
            return str(value)
    except (ValueError, OverflowError):
        pass  # Falls through to the one answer for all that is no timestamp.
    raise WrongValueError('a timestamp such as "2026-01-02T03:04:05Z"', "give date, T, time and zone, as RFC 3339 says")


def read_field_mask(value: PlainValue) -> str:
    """`"name,virtualHosts.name"`; raises WrongValueError."""
    if isinstance(value, str):
        try:
            FieldMask().FromJsonString(value)
        except ValueError:
            pass  # Falls through to the one answer for all that is no field mask.
        else:
            return read_text(value)
    raise WrongValueError('a field mask such as "name,virtualHosts.name"', "write camelCase paths, separated by commas")


def _duration_of_parts(value: dict[str, PlainValue]) -> str:
    seconds, nanos = _seconds_and_nanos(value)
    if abs(nanos) >= _BILLION or seconds * nanos < 0:
        raise WrongValueError("less than a second of nanos, with the sign of the seconds", "correct the nanos")
    sign = "-" if seconds < 0 or nanos < 0 else ""
    return f"{sign}{abs(seconds)}.{abs(nanos):09}s"


def _seconds_and_nanos(value: dict[str, PlainValue]) -> tuple[int, int]:
    if not value.keys() <= {"seconds", "nanos"}:
        raise WrongValueError('an object of "seconds" and "nanos"', "remove what else it holds")
    seconds = _part(value, "seconds", 1 << 63)
    return seconds, _part(value, "nanos", 1 << 31)


def _part(value: dict[str, PlainValue], name: str, limit: int) -> int:
    part = value.get(name)
    return 0 if part is None else read_integer(part, -limit, limit - 1)


def _remedy_for_duration(value: PlainValue) -> str:
    is_number = (
        isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e12
    )  # longer than allowed
    text = value.text if isinstance(value, SpelledFloat) else str(value) if is_number else value
    if isinstance(text, str) and _DURATION_WITHOUT_UNIT.fullmatch(text):
        return f'add the unit: "{text}s"'
    return "give seconds, up to 10000 years of them, with up to nine digits after the point, and the unit s"
