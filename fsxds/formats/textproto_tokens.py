"""The words of text format, and a cursor that reads scalars.

A word is a name, a number, a quoted text, a sign, or a type in brackets. The converter checks scalars. Source:
https://protobuf.dev/reference/protobuf/textformat-spec/
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import cached_property
from typing import Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor

from fsxds.api.fields import INTEGERS, NULL_VALUE, enum_of
from fsxds.formats.decoded import MAX_FAULTS, LineIndex
from fsxds.model.values import Fault, PlainValue

# A type in brackets is one word: `[type.googleapis.com/envoy.config.cluster.v3.Cluster]`.
_WORD: Final = re.compile(
    r"""
      \#[^\n]*+
    | "(?:[^"\\\n]|\\.)*+" | '(?:[^'\\\n]|\\.)*+'
    | [A-Za-z_]\w*+
    | (?:[0-9]|\.[0-9])(?:[eE][-+][0-9]|[\w.])*+
    | \[\s*+[A-Za-z_][\w.%~\s-]*+(?:/[\w.%~\s-]++)*+\]
    | \S
    """,
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\\'\"?])|([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL
)
_LETTERS: Final = dict(zip("abfnrtv\\'\"?", "\a\b\f\n\r\t\v\\'\"?", strict=True))
_INTEGER: Final = re.compile(r"0[xX][0-9A-Fa-f]+|[0-9]+")
_FLOAT: Final = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[fF]?")
# Python does not read longer integers, and no field holds them.
_LONGEST_INTEGER: Final = 100
_TRUE, _FALSE = frozenset(("true", "True", "t", "1")), frozenset(("false", "False", "f", "0"))

OPENERS, CLOSERS = frozenset("{<["), frozenset("}>]")

END: Final = ""
"""Follows the last word."""

ReadValue: TypeAlias = "Callable[[Cursor], PlainValue]"
"""Reads one value at the cursor."""


class StopError(Exception):
    """The rest is no text format."""


class BadEscapeError(ValueError):
    """An escape does not exist, or names no character."""


class Cursor:
    """Moves through words, up to `END`; `next` is a number."""

    def __init__(self, text: str) -> None:
        self.words: list[str] = [word for word in _WORD.findall(text) if word[0] != "#"]
        self.words.append(END)
        self.next = 0
        self._text = text
        self._faults: list[tuple[int, str, str, str]] = []  # number of the word, rule, message, remedy

    @property
    def word(self) -> str:
        """The next word."""
        return self.words[self.next]

    @cached_property
    def _starts(self) -> list[int]:
        text = self._text
        starts = [match.start() for match in _WORD.finditer(text)]
        return [*(starts if "#" not in text else [start for start in starts if text[start] != "#"]), len(text.rstrip())]

    @cached_property
    def _lines(self) -> LineIndex:
        return LineIndex(self._text)

    def place(self, number: int) -> tuple[int, int]:
        """Return a word's line and column, from 1."""
        return self._lines.place(self._starts[number])

    def skip(self, word: str) -> bool:
        """Skip this word; return whether it was next."""
        if self.words[self.next] != word:
            return False
        self.next += 1
        return True

    def skip_scalar(self) -> None:
        """Skip a scalar."""
        self.skip("-")
        self.next += self.word != END
        while is_text(self.word):
            self.next += 1

    def skip_brackets(self, level: int = 0) -> None:
        """Skip brackets, or `level` open ones."""
        while self.word != END:
            level += (self.word in OPENERS) - (self.word in CLOSERS)
            self.next += 1
            if level <= 0:
                break

    def report(self, rule: str, message: str, remedy: str, *, back: int = 0) -> None:
        """Record a fault, `back` words back. StopError: there are too many."""
        self._faults.append((self.next - back, rule, message, remedy))
        if len(self._faults) >= MAX_FAULTS:
            raise StopError

    def stop(self, message: str, remedy: str, rule: str = "bad-syntax") -> StopError:
        """Record a last fault; return the exception."""
        self._faults.append((self.next, rule, message, remedy))
        return StopError()

    def faults(self) -> tuple[Fault, ...]:
        """Return faults with places."""
        return tuple(
            Fault(rule, message, remedy, (), *self.place(number)) for number, rule, message, remedy in self._faults
        )


def is_name(word: str) -> bool:
    """Whether it may be a name."""
    return word[:1].isalpha() or word[:1] == "_"


def is_text(word: str) -> bool:
    """Whether it has both quotes."""
    return len(word) > 1 and word[0] in "\"'"


def unquote(word: str) -> bytes:
    """BadEscapeError if a backslash escapes nothing."""
    inner = word[1:-1]
    if "\\" not in inner:
        return inner.encode()
    parts: list[bytes] = []
    end = 0
    for match in _ESCAPE.finditer(inner):
        parts += (inner[end : match.start()].encode(), _unescape(match))
        end = match.end()
    return b"".join((*parts, inner[end:].encode()))


def _unescape(match: re.Match[str]) -> bytes:
    letter, octal, byte, short, long, _ = match.groups()
    if letter:
        return _LETTERS[letter].encode()
    if octal and int(octal, 8) < 256:
        return bytes((int(octal, 8),))
    if byte:
        return bytes((int(byte, 16),))
    if short or long:
        try:
            return chr(int(short or long, 16)).encode()
        except (ValueError, OverflowError, UnicodeEncodeError):
            raise BadEscapeError from None
    raise BadEscapeError


# Scalars


def scalar_reader(field: FieldDescriptor) -> ReadValue:
    """Return a scalar field's reader."""
    if field.type in INTEGERS:
        return lambda cursor: _read_number(cursor, _integer_of, "expected a whole number")
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return lambda cursor: _read_number(cursor, _float_of, "expected a number")
    if field.type == FieldDescriptor.TYPE_BOOL:
        return _read_bool
    if field.type == FieldDescriptor.TYPE_ENUM:
        return _read_null if enum_of(field).full_name == NULL_VALUE else _read_enum
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda cursor: base64.b64encode(_read_quoted(cursor)).decode()
    return _read_text


def _read_number(cursor: Cursor, number_of: Callable[[str], float | str | None], expected: str) -> PlainValue:
    is_negative = cursor.skip("-")
    value = number_of(cursor.word)
    if value is None:
        _report_wrong(cursor, expected, "correct the number")
        return 0
    cursor.next += 1
    if not is_negative:
        return value
    return value if value == "NaN" else f"-{value}" if isinstance(value, str) else -value


def _integer_of(word: str) -> int | None:
    if not _INTEGER.fullmatch(word) or len(word) > _LONGEST_INTEGER:
        return None
    if word[:2] in ("0x", "0X"):
        return int(word, 16)
    if word[0] == "0" and len(word) > 1:
        return int(word, 8) if word.strip("01234567") == "" else None
    return int(word)


def _float_of(word: str) -> float | str | None:
    if _FLOAT.fullmatch(word):
        return float(word.rstrip("fF"))
    integer = _integer_of(word)
    if integer is not None:
        return float(integer)
    lower = word.lower()
    return "Infinity" if lower in ("inf", "infinity", "inff") else "NaN" if lower in ("nan", "nanf") else None


def _read_bool(cursor: Cursor) -> PlainValue:
    word = cursor.word
    if word in _TRUE or word in _FALSE:
        cursor.next += 1
        return word in _TRUE
    _report_wrong(cursor, "expected true or false", "write true or false")
    return False


def _read_enum(cursor: Cursor) -> PlainValue:
    word = cursor.word
    if is_name(word):
        cursor.next += 1
        return word
    return _read_number(cursor, _integer_of, "expected a name of the enum")


def _read_null(cursor: Cursor) -> PlainValue:
    if not cursor.skip("NULL_VALUE"):
        _read_number(cursor, _integer_of, "expected NULL_VALUE")
    return None


def _read_text(cursor: Cursor) -> PlainValue:
    first = cursor.next
    try:
        return _read_quoted(cursor).decode()
    except UnicodeDecodeError:
        cursor.report("wrong-value", "this text is not UTF-8", "write it in UTF-8", back=cursor.next - first)
        return ""


def _read_quoted(cursor: Cursor) -> bytes:
    parts: list[bytes] = []
    while is_text(word := cursor.word):
        try:
            parts.append(unquote(word))
        except BadEscapeError:
            cursor.report("bad-syntax", "a \\ in here escapes nothing", "write \\\\ for one \\")
            parts.append(b"")
        cursor.next += 1
    if not parts:
        if word[:1] in ('"', "'"):
            raise cursor.stop("this text has no closing quote", "close it on its line")
        _report_wrong(cursor, "expected a text", "put it in quotes")
    return b"".join(parts)


def _report_wrong(cursor: Cursor, message: str, remedy: str) -> None:
    if cursor.word in OPENERS or cursor.word in CLOSERS or cursor.word == END:
        raise cursor.stop(message, remedy, "wrong-value")
    cursor.report("wrong-value", message, remedy)
    cursor.skip_scalar()
