"""Scalars of text format, in the form that JSON gives them; whether they fit their fields is for the converter to judge."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from google.protobuf.descriptor import FieldDescriptor

from fsxds.api.fields import INTEGERS, NULL_VALUE, enum_of
from fsxds.formats.textproto_cursor import END, Cursor
from fsxds.formats.textproto_tokens import BadEscapeError, float_of, integer_of, is_name, is_text, unquote
from fsxds.values import PlainValue

Value: TypeAlias = Callable[[], PlainValue]
"""Reads one value where the cursor stands."""

_TRUE, _FALSE = frozenset(("true", "True", "t", "1")), frozenset(("false", "False", "f", "0"))


def scalar_reader(field: FieldDescriptor, cursor: Cursor) -> Value:
    """Return what reads a value of a scalar field."""
    if field.type in INTEGERS:
        return partial(_number, cursor, integer_of, "a whole number is due here")
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return partial(_number, cursor, float_of, "a number is due here")
    if field.type == FieldDescriptor.TYPE_BOOL:
        return partial(_bool, cursor)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return partial(_null if enum_of(field).full_name == NULL_VALUE else _enum, cursor)
    return partial(_base64 if field.type == FieldDescriptor.TYPE_BYTES else _string, cursor)


def _number(cursor: Cursor, read: Callable[[str], float | str | None], demand: str) -> PlainValue:
    is_negative = cursor.skip("-")
    value = read(cursor.word)
    if value is None:
        _wrong(cursor, demand, "correct the number")
        return 0
    cursor.next += 1
    if not is_negative:
        return value
    return value if value == "NaN" else f"-{value}" if isinstance(value, str) else -value


def _bool(cursor: Cursor) -> PlainValue:
    word = cursor.word
    if word in _TRUE or word in _FALSE:
        cursor.next += 1
        return word in _TRUE
    _wrong(cursor, "a bool is due here", "write true or false")
    return False


def _enum(cursor: Cursor) -> PlainValue:
    word = cursor.word
    if word != END and is_name(word):
        cursor.next += 1
        return word
    return _number(cursor, integer_of, "a name of the enum is due here")


def _null(cursor: Cursor) -> PlainValue:
    if not cursor.skip("NULL_VALUE"):
        _number(cursor, integer_of, "NULL_VALUE is due here")
    return None


def _base64(cursor: Cursor) -> PlainValue:
    return base64.b64encode(_quoted(cursor)).decode()


def _string(cursor: Cursor) -> PlainValue:
    first = cursor.next
    try:
        return _quoted(cursor).decode()
    except UnicodeDecodeError:
        cursor.complain("wrong-value", "this text is not UTF-8", "write it in UTF-8", back=cursor.next - first)
        return ""


def _quoted(cursor: Cursor) -> bytes:
    """Read one quoted text, or several that stand side by side."""
    parts: list[bytes] = []
    while (word := cursor.word) != END and is_text(word):
        try:
            parts.append(unquote(word))
        except BadEscapeError:
            cursor.complain("bad-syntax", "a \\ in here escapes nothing", "write \\\\ for one \\")
            parts.append(b"")
        cursor.next += 1
    if not parts:
        if word[:1] in ('"', "'"):
            raise cursor.stop("this text has no closing quote", "close it on its line")
        _wrong(cursor, "a text is due here", "put it in quotes")
    return b"".join(parts)


def _wrong(cursor: Cursor, message: str, remedy: str) -> None:
    """Note a value that is none of its field, and get behind it."""
    if cursor.word in ("{", "<", "[", "}", ">", "]", END):
        raise cursor.stop(message, remedy, "wrong-value")
    cursor.complain("wrong-value", message, remedy)
    cursor.skip_scalar()
