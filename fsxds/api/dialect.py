"""Scalars as Envoy's JSON reader takes them, brought to the form of proto3 JSON.

Each rule was tried on Envoy 1.40 (`--mode validate`), and ENVOY.md H lists most of them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import TypeAlias

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from fsxds.api.fields import INTEGERS, LARGEST_FLOAT, LONG_INTEGERS, NULL_VALUE, UNSIGNED_INTEGERS, enum_of
from fsxds.api.spelled import SpelledFloat
from fsxds.values import PlainValue

Read: TypeAlias = Callable[[PlainValue], PlainValue]

# Envoy reads text for a bool with absl::SimpleAtob.
_BOOL_WORDS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][-+]?[0-9]{1,3})?")
_HEXADECIMAL = re.compile(r"([-+]?)0[xX]([0-9A-Fa-f]{1,16})")
# Text for a number of 64 bits is read with absl::SimpleAtod: blanks around it, C's hexadecimal floats, words in any case.
_FLOAT_WORD = re.compile(r"([-+]?)(?:(inf(?:inity)?)|(nan))", re.IGNORECASE)
_HEXADECIMAL_FLOAT = re.compile(
    r"[-+]?0x(?:[0-9a-f]{1,40}(?:\.[0-9a-f]{0,40})?|\.[0-9a-f]{1,40})(?:p[-+]?[0-9]{1,4})?", re.IGNORECASE
)
_BLANKS = " \t\n\v\f\r"
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_LONGEST_LIST_OF_NAMES = 12
_TOO_LARGE_FLOAT = (
    3.4028235677973366e38  # from here on, the nearest number of 32 bits would be the one after the largest
)


class WrongValueError(Exception):
    """A value is not what its field asks for.

    Attributes:
        expected: what the field asks for, to follow "expected".
        remedy: what the author can do.
        is_unknown_name: the value is a name that the API does not know; Envoy treats it as it treats an unknown field.
        is_near: it is nearly a name that the API knows, which the remedy tells.
    """

    def __init__(self, expected: str, remedy: str, *, is_unknown_name: bool = False, is_near: bool = False) -> None:
        super().__init__(expected)
        self.expected = expected
        self.remedy = remedy
        self.is_unknown_name = is_unknown_name
        self.is_near = is_near


def reader(field: FieldDescriptor) -> Read:
    """Return what reads a scalar field's values; it raises WrongValueError."""
    if field.type in INTEGERS:
        lowest, highest = _range(field)
        return lambda value: read_integer(value, lowest, highest)
    if field.type == FieldDescriptor.TYPE_STRING:
        return read_text
    if field.type == FieldDescriptor.TYPE_BOOL:
        return _bool
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _bytes
    if field.type == FieldDescriptor.TYPE_ENUM:
        return _enum_reader(enum_of(field))
    return _float if field.type == FieldDescriptor.TYPE_FLOAT else read_number


def read_map_key(field: FieldDescriptor, key: str) -> str:
    """Bring a map's key to the form of proto3 JSON; raises WrongValueError."""
    if field.type == FieldDescriptor.TYPE_STRING:
        return read_text(key)
    return str(reader(field)(key)).lower()


def _range(field: FieldDescriptor) -> tuple[int, int]:
    bits = 64 if field.type in LONG_INTEGERS else 32
    return (0, (1 << bits) - 1) if field.type in UNSIGNED_INTEGERS else (-(1 << bits - 1), (1 << bits - 1) - 1)


def read_integer(value: PlainValue, lowest: int, highest: int) -> int:
    """A whole number within the bounds, also as text, in hexadecimal or with a zero fraction; raises WrongValueError."""
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
    return int(number)


def read_number(value: PlainValue) -> float | str:
    """A finite number, or one of proto3's words for the others; raises WrongValueError."""
    if isinstance(value, str):
        return _number_of_text(value.strip(_BLANKS))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongValueError("a number", "give a number")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if number - number != 0.0:
        raise _infinite()
    return number


def _number_of_text(text: str) -> float | str:
    if word := _FLOAT_WORD.fullmatch(text):
        return "NaN" if word[3] else "-Infinity" if word[1] == "-" else "Infinity"
    is_hexadecimal = _HEXADECIMAL_FLOAT.fullmatch(text)
    if not is_hexadecimal and not _NUMBER.fullmatch(text):
        raise WrongValueError("a number", "give a number")
    try:
        number = float.fromhex(text) if is_hexadecimal else float(text)
    except OverflowError:
        number = float("-inf" if text.startswith("-") else "inf")
    if number - number == 0.0:
        return number
    return "Infinity" if number > 0 else "-Infinity"


def _float(value: PlainValue) -> float | str:
    number = read_number(value)
    if isinstance(number, str):
        return number
    if abs(number) >= _TOO_LARGE_FLOAT:
        raise _infinite()
    return max(-LARGEST_FLOAT, min(LARGEST_FLOAT, number))


def _infinite() -> WrongValueError:
    return WrongValueError("a finite number", 'give a smaller one, or write "NaN", "Infinity" or "-Infinity" in quotes')


def read_text(value: PlainValue) -> str:
    """Text that UTF-8 can hold; a plain decimal of YAML is text too. Raises WrongValueError."""
    if isinstance(value, SpelledFloat):
        return value.text
    if not isinstance(value, str):
        raise WrongValueError("text", "quote it" if isinstance(value, (bool, int, float)) else "give one text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise WrongValueError("text of whole Unicode characters", "remove the lone half of a surrogate pair") from None
    return str(value)


def _bool(value: PlainValue) -> bool:
    if isinstance(value, bool):
        return value
    known = _BOOL_WORDS.get(value.lower()) if isinstance(value, str) else None
    if known is None:
        raise WrongValueError("true or false", "write true or false")
    return known


def _bytes(value: PlainValue) -> str:
    if isinstance(value, str) and _BASE64.fullmatch(value):
        digits = value.rstrip("=").replace("-", "+").replace("_", "/")
        if len(digits) % 4 != 1:
            return digits + "=" * (-len(digits) % 4)
    raise WrongValueError("bytes in base64", "encode the bytes, for example with `base64 -w0`")


def _enum_reader(enum: EnumDescriptor) -> Read:
    if enum.full_name == NULL_VALUE:
        return _null
    # Not asked of the descriptor itself, which raises for text that is no whole Unicode.
    spellings = {name.lower(): name for name in enum.values_by_name} | {name: name for name in enum.values_by_name}

    def read(value: PlainValue) -> PlainValue:
        if isinstance(value, str):
            name = spellings.get(value) or spellings.get(value.lower())
            if name is not None:
                return name
        if isinstance(value, SpelledFloat):
            # A decimal is text to Envoy, and no enum has such a name.
            raise _unknown_name(enum, value.text)
        try:
            number = read_integer(value, -(1 << 31), (1 << 31) - 1)
        except WrongValueError:
            raise _unknown_name(enum, value) from None
        if enum.is_closed and number not in enum.values_by_number:
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


def _null(value: PlainValue) -> None:
    if value is not None and value not in ("NULL_VALUE", 0):
        raise WrongValueError("null", "write null")
