"""Reads scalars, durations, timestamps and field masks as Envoy does.

Each rule was tried on Envoy 1.40 (`--mode validate`); ENVOY.md E51, E52 lists most. A rejected value raises
`WrongValueError`.
"""

from __future__ import annotations

import base64
import difflib
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from fsxds.api.fields import INTEGERS, LARGEST_FLOAT, LONG_INTEGERS, NULL_VALUE, UNSIGNED_INTEGERS, enum_of
from fsxds.model.values import PlainValue, SpelledFloat

# Envoy counts nanoseconds in 63 bits; found by trying: 9223372035s is taken, 9223372036s is not.
LONGEST_S = 9_223_372_035

Read: TypeAlias = Callable[[PlainValue], object]
"""Converts a value to an argument of a message's constructor; raises WrongValueError."""

LONGEST_DURATION_S: Final = 315_576_000_000
"""The longest duration that protobuf reads, in seconds: 10 000 years."""

NANOS_PER_S: Final = 10**9

# Envoy reads text for a bool with absl::SimpleAtob.
_BOOL_WORDS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][-+]?[0-9]{1,3})?")
_HEXADECIMAL = re.compile(r"([-+]?)0[xX]([0-9A-Fa-f]{1,16})")
# Text for a number of 64 bits is read with absl::SimpleAtod: surrounding blanks, C's hexadecimal floats, words in any
# case.
_FLOAT_WORD = re.compile(r"[-+]?(?:inf(?:inity)?|nan)", re.IGNORECASE)
_HEXADECIMAL_FLOAT = re.compile(
    r"[-+]?0x(?:[0-9a-f]{1,40}(?:\.[0-9a-f]{0,40})?|\.[0-9a-f]{1,40})(?:p[-+]?[0-9]{1,4})?", re.IGNORECASE
)
_BLANKS = " \t\n\v\f\r"
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_DURATION = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?s")
_DURATION_WITHOUT_UNIT = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]{1,9})?")
_LONGEST_LIST_OF_NAMES = 12
# From here on, the nearest number of 32 bits would exceed the largest.
_TOO_LARGE_FLOAT = 3.4028235677973366e38


class WrongValueError(Exception):
    """A field does not accept a value.

    Attributes:
        expected: follows "expected".
        is_unknown_name: Envoy treats it like an unknown field.
        is_near: the remedy has a similar name.
    """

    def __init__(self, expected: str, remedy: str, *, is_unknown_name: bool = False, is_near: bool = False) -> None:
        super().__init__(expected)
        self.expected = expected
        self.remedy = remedy
        self.is_unknown_name = is_unknown_name
        self.is_near = is_near


def reader(field: FieldDescriptor) -> Read:
    """Return the reader for a scalar field or a map's keys."""
    if field.type in INTEGERS:
        bits = 64 if field.type in LONG_INTEGERS else 32
        is_unsigned = field.type in UNSIGNED_INTEGERS
        lowest, highest = (0, 2**bits - 1) if is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return lambda value: read_integer(value, lowest, highest)
    if field.type == FieldDescriptor.TYPE_STRING:
        return read_text
    if field.type == FieldDescriptor.TYPE_BOOL:
        return _read_bool
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _read_bytes
    if field.type == FieldDescriptor.TYPE_ENUM:
        return _enum_reader(enum_of(field))
    return _read_float if field.type == FieldDescriptor.TYPE_FLOAT else read_number


def read_integer(value: PlainValue, lowest: int, highest: int) -> int:
    """Also accepts text, hexadecimal, and a zero fraction."""
    number = value
    if isinstance(value, str) and (hexadecimal := _HEXADECIMAL.fullmatch(value)):
        number = int(hexadecimal[1] + hexadecimal[2], 16)
    elif isinstance(value, str) and _NUMBER.fullmatch(value):
        number = int(value) if value.lstrip("+-").isdigit() else float(value)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int):
        raise WrongValueError("a whole number", f"give a whole number from {lowest} to {highest}")
    if not lowest <= number <= highest:
        raise WrongValueError(f"a whole number from {lowest} to {highest}", "give a number within these bounds")
    return number


def read_number(value: PlainValue) -> float:
    """Read a number; as text also infinity and "not a number"."""
    if isinstance(value, str):
        text = value.strip(_BLANKS)
        is_hexadecimal = _HEXADECIMAL_FLOAT.fullmatch(text)
        if not is_hexadecimal and not _NUMBER.fullmatch(text) and not _FLOAT_WORD.fullmatch(text):
            raise WrongValueError("a number", "give a number")
        try:
            return float.fromhex(text) if is_hexadecimal else float(text)
        except OverflowError:
            return float("-inf" if text.startswith("-") else "inf")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongValueError("a number", "give a number")
    try:
        number = float(value)
    except OverflowError:
        raise _infinite() from None
    if number - number != 0.0:
        raise _infinite()
    return number


def _read_float(value: PlainValue) -> float:
    number = read_number(value)
    if isinstance(value, str) and number - number != 0.0:
        return number
    if abs(number) >= _TOO_LARGE_FLOAT:
        raise _infinite()
    return max(-LARGEST_FLOAT, min(LARGEST_FLOAT, number))


def _infinite() -> WrongValueError:
    return WrongValueError("a finite number", 'give a smaller one, or write "NaN", "Infinity" or "-Infinity" in quotes')


def read_text(value: PlainValue) -> str:
    """Read UTF-8 text; a plain decimal of YAML is text too."""
    if isinstance(value, SpelledFloat):
        return value.text
    if not isinstance(value, str):
        raise WrongValueError("text", "quote it" if isinstance(value, (bool, int, float)) else "give one text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise WrongValueError("text of whole Unicode characters", "remove the lone half of a surrogate pair") from None
    return value


def _read_bool(value: PlainValue) -> bool:
    if isinstance(value, bool):
        return value
    known = _BOOL_WORDS.get(value.lower()) if isinstance(value, str) else None
    if known is None:
        raise WrongValueError("true or false", "write true or false")
    return known


def _read_bytes(value: PlainValue) -> bytes:
    value = value.text if isinstance(value, SpelledFloat) else value
    if isinstance(value, str) and _BASE64.fullmatch(value):
        digits = value.rstrip("=").replace("-", "+").replace("_", "/")
        if len(digits) % 4 != 1:
            return base64.b64decode(digits + "=" * (-len(digits) % 4))
    raise WrongValueError("bytes in base64", "encode the bytes, for example with `base64 -w0`")


def _enum_reader(enum: EnumDescriptor) -> Read:
    if enum.full_name == NULL_VALUE:
        return _read_null
    # The descriptor itself raises for text that is not valid Unicode.
    exact = {name: value.number for name, value in enum.values_by_name.items()}
    numbers = {name.lower(): number for name, number in exact.items()} | exact
    known = None if not enum.is_closed else frozenset(exact.values())

    def read(value: PlainValue) -> int:
        if isinstance(value, str):
            number = numbers.get(value)
            if number is None:
                number = numbers.get(value.lower())
            if number is not None:
                return number
        if isinstance(value, SpelledFloat):
            # A decimal is text to Envoy, and no enum has such a name.
            raise _unknown_name(enum, value.text)
        try:
            number = read_integer(value, -(2**31), 2**31 - 1)
        except WrongValueError:
            raise _unknown_name(enum, value) from None
        if known is not None and number not in known:
            raise _unknown_name(enum, value)
        return number

    return read


def _unknown_name(enum: EnumDescriptor, value: PlainValue) -> WrongValueError:
    names = list(enum.values_by_name)
    near = difflib.get_close_matches(value.upper(), names, n=1) if isinstance(value, str) else []
    if near:
        remedy = f'did you mean "{near[0]}"?'
    elif len(names) <= _LONGEST_LIST_OF_NAMES:
        remedy = f"give one of {', '.join(names)}"
    else:
        remedy = f"give a name of {enum.full_name}"
    return WrongValueError(
        f"a value of {enum.name}", remedy, is_unknown_name=isinstance(value, str), is_near=bool(near)
    )


def _read_null(value: PlainValue) -> int:
    if value is not None and value not in ("NULL_VALUE", 0):
        raise WrongValueError("null", "write null")
    return 0


def read_duration(value: PlainValue) -> dict[str, int]:
    """Read `"1.5s"` or `{"seconds": 1, "nanos": 500000000}`."""
    if isinstance(value, dict):
        seconds, nanos = _seconds_and_nanos(value)
        if abs(nanos) >= NANOS_PER_S or seconds * nanos < 0:
            raise WrongValueError("less than a second of nanos, with the sign of the seconds", "correct the nanos")
    else:
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise _no_duration(value)
        sign = -1 if match[1] else 1
        seconds, nanos = sign * int(match[2]), sign * int((match[3] or "").ljust(9, "0"))
    if abs(seconds) + (nanos != 0) > LONGEST_DURATION_S:
        raise _no_duration(value)
    return {"seconds": seconds, "nanos": nanos}


def _no_duration(value: PlainValue) -> WrongValueError:
    remedy = "give seconds, up to 10000 years of them, with up to nine digits after the point, and the unit s"
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LONGEST_DURATION_S
    text = value.text if isinstance(value, SpelledFloat) else str(value) if is_number else value
    if isinstance(text, str) and _DURATION_WITHOUT_UNIT.fullmatch(text):
        remedy = f'add the unit: "{text}s"'
    return WrongValueError('a duration such as "1.5s"', remedy)


def read_timestamp(value: PlainValue) -> dict[str, int]:
    """Read `"2026-01-02T03:04:05.678Z"` or `{"seconds": 1767323045}`."""
    moment = Timestamp()
    try:
        if isinstance(value, dict):
            moment.seconds, moment.nanos = _seconds_and_nanos(value)
            moment.ToJsonString()  # raises for times out of bounds
        else:
            moment.FromJsonString(value if isinstance(value, str) else "")
    except (ValueError, OverflowError):
        remedy = "give date, T, time and zone, as RFC 3339 says"
        raise WrongValueError('a timestamp such as "2026-01-02T03:04:05Z"', remedy) from None
    return {"seconds": moment.seconds, "nanos": moment.nanos}


def _seconds_and_nanos(value: dict[str, PlainValue]) -> tuple[int, int]:
    if not value.keys() <= {"seconds", "nanos"}:
        raise WrongValueError('an object of "seconds" and "nanos"', "remove its other keys")
    seconds, nanos = value.get("seconds"), value.get("nanos")
    return (
        0 if seconds is None else read_integer(seconds, -(2**63), 2**63 - 1),
        0 if nanos is None else read_integer(nanos, -(2**31), 2**31 - 1),
    )


def read_field_mask(value: PlainValue) -> dict[str, list[str]]:
    """Read `"name,virtualHosts.name"`."""
    mask = FieldMask()
    if isinstance(value, str):
        try:
            mask.FromJsonString(value)
        except ValueError:
            pass  # falls through to the one error for all invalid masks
        else:
            return {"paths": list(mask.paths)}
    raise WrongValueError('a field mask such as "name,virtualHosts.name"', "write camelCase paths, separated by commas")
