"""The words of text format: names, numbers, quoted texts and signs, and what the scalars among them mean.

A place among the words of a text format file, and what is wrong with the words so far.

Scalars of text format, in the form that JSON gives them; whether they fit their fields is for the converter to judge.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor

from fsxds.api.fields import INTEGERS, NULL_VALUE, enum_of
from fsxds.formats.decoded import MAX_FAULTS
from fsxds.formats.text import Places
from fsxds.values import Fault, PlainValue

# A type in brackets is one word: `[type.googleapis.com/envoy.config.cluster.v3.Cluster]`.
_TOKEN: Final = re.compile(
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
# Python refuses to read longer integers, and no field holds them.
_LONGEST_INTEGER: Final = 100


class BadEscapeError(ValueError):
    r"""A quoted text has a `\` before what is no escape, or one that names no character."""


def tokens_of(text: str) -> list[str]:
    """Return the words of a text, without white space and comments."""
    return [token for token in _TOKEN.findall(text) if token[0] != "#"]


def places_of(text: str, wanted: set[int]) -> dict[int, tuple[int, int]]:
    """Return line and column, from 1, of words by their numbers; a number behind the last word stands for the end."""
    places = Places(text)
    found: dict[int, tuple[int, int]] = {}
    number = 0
    for match in _TOKEN.finditer(text):
        if match[0][0] == "#":
            continue
        if number in wanted:
            found[number] = places.place(match.start())
        number += 1
    if len(found) < len(wanted):
        end = places.place(len(text.rstrip()))
        found.update((missing, end) for missing in wanted - found.keys())
    return found


def positions_of(text: str) -> Iterator[tuple[str, int]]:
    """Yield the words with the index at which each begins."""
    for match in _TOKEN.finditer(text):
        if match[0][0] != "#":
            yield match[0], match.start()


def is_name(token: str) -> bool:
    """Tell whether a word may be the name of a field or of an enum's value."""
    return token[0].isalpha() or token[0] == "_"


def is_text(token: str) -> bool:
    """Tell whether a word is a quoted text, with both its quotes."""
    return token[0] in "\"'" and len(token) > 1


def unquote(token: str) -> bytes:
    r"""Return the bytes of a quoted text; BadEscapeError for a `\\` that escapes nothing."""
    inner = token[1:-1]
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


def integer_of(token: str) -> int | None:
    """Return a whole number, decimal, octal or hexadecimal; None for anything else."""
    if not _INTEGER.fullmatch(token) or len(token) > _LONGEST_INTEGER:
        return None
    if token[:2] in ("0x", "0X"):
        return int(token, 16)
    if token[0] == "0" and len(token) > 1:
        return int(token, 8) if token.strip("01234567") == "" else None
    return int(token)


def float_of(token: str) -> float | str | None:
    """Return a number, infinite ones and "not a number" as JSON writes them; None for anything else."""
    if _FLOAT.fullmatch(token):
        return float(token.rstrip("fF"))
    integer = integer_of(token)
    if integer is not None:
        return float(integer)
    word = token.lower()
    return "Infinity" if word in ("inf", "infinity", "inff") else "NaN" if word in ("nan", "nanf") else None


_OPENING, _CLOSING = frozenset("{<["), frozenset("}>]")

END = ""
"""Stands behind the last word."""


class StopError(Exception):
    """The text is no text format from here on; why is among the faults."""


@dataclass(frozen=True, slots=True)
class _Complaint:
    """What is wrong at the word of this number."""

    number: int
    rule: str
    message: str
    remedy: str


class Cursor:
    """Goes through the words of a text. `words` ends with `END`; `next` is the number of the word to be read."""

    __slots__ = ("_complaints", "_text", "next", "words")

    def __init__(self, text: str) -> None:
        self._text = text
        self._complaints: list[_Complaint] = []
        self.words = [*tokens_of(text), END]
        self.next = 0

    @property
    def word(self) -> str:
        """The word to be read."""
        return self.words[self.next]

    def skip(self, word: str) -> bool:
        """Get behind a word if it stands here, and tell whether it did."""
        if self.words[self.next] != word:
            return False
        self.next += 1
        return True

    def complain(self, rule: str, message: str, remedy: str, *, back: int = 0) -> None:
        """Note what is wrong with the word to be read, or `back` words before it.

        Raises:
            StopError: it is enough.
        """
        self._complaints.append(_Complaint(self.next - back, rule, message, remedy))
        if len(self._complaints) >= MAX_FAULTS:
            raise StopError

    def stop(self, message: str, remedy: str, rule: str = "bad-syntax") -> StopError:
        """Note why reading ends here, and return what to raise."""
        self._complaints.append(_Complaint(self.next, rule, message, remedy))
        return StopError()

    def skip_scalar(self) -> None:
        """Get behind a value that is no message and no list, whatever it is."""
        self.skip("-")
        self.next += self.word != END
        while is_text(self.word or " "):
            self.next += 1

    def skip_brackets(self) -> None:
        """Get behind the bracket that closes the one to be read, whatever is in between."""
        words, number, level = self.words, self.next, 0
        while word := words[number]:
            number += 1
            level += (word in _OPENING) - (word in _CLOSING)
            if level <= 0:
                break
        self.next = number

    def faults(self) -> tuple[Fault, ...]:
        """Return what is wrong, each with its place."""
        if not self._complaints:
            return ()
        places = places_of(self._text, {complaint.number for complaint in self._complaints})
        return tuple(
            Fault(complaint.rule, complaint.message, complaint.remedy, (), *places[complaint.number])
            for complaint in self._complaints
        )


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
