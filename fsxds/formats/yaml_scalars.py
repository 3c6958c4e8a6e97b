"""The meaning of plain (unquoted, untagged) YAML scalars to Envoy.

Envoy asks yaml-cpp for a bool, then for a 64-bit integer with C's prefixes; all else is text (ENVOY.md E51; every row
of the tests was put to the real binary). Numbers with a fraction or an exponent are text, too, but a number field takes
them: they become `SpelledFloat`, which is both.
"""

from __future__ import annotations

import re
from math import isfinite

from fsxds.model.values import PlainText, PlainValue, SpelledFloat

NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE_WORDS = ("y", "yes", "on")
_FALSE_WORDS = ("n", "no", "off")

AMBIGUOUS_WORDS = {
    spelling: truth
    for words, truth in ((_TRUE_WORDS, True), (_FALSE_WORDS, False))
    for word in words
    for spelling in (word, word.capitalize(), word.upper())
}
"""Other YAML readers, and users, take these bools for text."""

CONSTANTS: dict[str, PlainValue] = {
    **dict.fromkeys(NULLS, None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
"""The same for every reader."""

_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|[0-9]+)\Z")
_OCTAL = re.compile(r"[-+]?0[0-7]+\Z")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_FIRST_LETTERS = frozenset("0123456789+-.")

LARGEST_INTEGER = 2**31 - 1
"""Larger integers are text to Envoy."""

_INT32 = range(-LARGEST_INTEGER - 1, LARGEST_INTEGER + 1)
_INT64 = range(-(2**63), 2**63)

# Longer runs of digits are text to Envoy in any case, and the time of int() grows with their square.
_LONGEST_NUMBER = 64


def resolve_plain(text: str) -> PlainValue:
    """Return Envoy's value of a plain scalar."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    if text in AMBIGUOUS_WORDS:
        return AMBIGUOUS_WORDS[text]
    if text[0] not in _FIRST_LETTERS or len(text) > _LONGEST_NUMBER:
        return PlainText(text) if text[0] == "$" else text
    if _INTEGER.match(text):
        return _integer(text)
    return _float(text) if _FLOAT.match(text) else text


def is_ambiguous(text: str) -> bool:
    """Whether many readers read a plain scalar differently from Envoy: `yes`, `off`, `0755`."""
    return text in AMBIGUOUS_WORDS or _LEADING_ZERO.match(text) is not None


def _integer(text: str) -> PlainValue:
    if _LEADING_ZERO.match(text) and not _OCTAL.match(text):
        return _float(text)
    number = int(text, 8 if _OCTAL.match(text) else 16 if "x" in text or "X" in text else 10)
    if number in _INT32:
        return number
    return str(number) if number in _INT64 else text


def _float(text: str) -> PlainValue:
    number = float(text)
    return SpelledFloat(text, number) if isfinite(number) else text
