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


# An escape, or the backslash of one that is a blank or a line break, before blanks and line breaks.
_ESCAPE_AT_END = {"'": re.compile("''$"), '"': re.compile(r"(?<!\\)(?:\\\\)*\\(?:x..|u.{4}|U.{8}|[^xuU])?$")}

# Tag, anchor and comments before a scalar.
_PROPERTIES = re.compile(r"\A(?:[!&]\S*|#.*|\s)*")


def may_lose_breaks(text: str) -> bool:
    """Whether Envoy reads fewer line breaks at the end of this text, if it is quoted or folded."""
    return text == "\n" or text.endswith("\n\n")


def without_lost_breaks(text: str, source: str, style: str) -> str:
    """Return Envoy's text of a scalar with its style, given that of YAML and the scalar in the file (ENVOY.md E51).

    At the end of a quoted text yaml-cpp keeps one line break, two behind an escape, and none of a text of breaks alone;
    at the end of a folded block (`>+`) it loses one of several.
    """
    if style == ">":
        last = text.rstrip("\n").rpartition("\n")[2]
        return text[:-1] if last and last[0] not in " \t" else text
    if style not in _ESCAPE_AT_END:
        return text
    inner = _PROPERTIES.sub("", source, count=1)[1:-1]
    stem = inner.rstrip(" \t\r\n")
    if not stem:
        return ""
    if _ESCAPE_AT_END[style].search(stem) is None:
        return text.rstrip("\n") + "\n"
    folded = len(inner[len(stem) :].replace("\r\n", "\n").replace("\r", "\n").split("\n")) - 2
    return text[: len(text) - max(0, folded - 2)]


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
