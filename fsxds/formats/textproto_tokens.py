"""The words of text format: names, numbers, quoted texts and signs, and what the scalars among them mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fsxds.formats.json_text import Places

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
