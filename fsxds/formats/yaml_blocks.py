"""YAML of one simple form, read several times as fast as by libyaml's events.

The form is that of generators and most people: block mappings and lists, one key or item per line, scalars and flow
collections that end on their first line, literal blocks (`|`). Any text that could have another meaning (anchors,
aliases, tags, tabs, scalars over several lines, a second document), and every mistake, is left to libyaml: the result is
then None. Otherwise it is libyaml's. Meanings of lines, which repeat, are cached.

For plain (unquoted, untagged) scalars, Envoy asks yaml-cpp for a bool, then for a 64-bit integer with C's prefixes; all
else is text (ENVOY.md E51). Numbers with a fraction or an exponent
are text, too, but a number field takes them: they become `SpelledFloat`, which is both.

Rules: the meaning of a plain YAML scalar to Envoy (JSON: `json_format.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import chain
from math import isfinite
from sys import intern
from typing import Any, Final, TypeAlias

from fsxds.formats.decoded import MAX_DEPTH, Decoded, PlainDocument
from fsxds.model.values import PlainText, PlainValue, SpelledFloat

ReadFlow: TypeAlias = Callable[[str], PlainValue]
"""Returns the value of a faultless flow collection, else None.
"""

_Row: TypeAlias = tuple[int, tuple[int, ...], str | None, PlainValue, int]
"""A line's column, the columns after its dashes, its key, its value, and the value's form."""

_Line: TypeAlias = _Row | tuple[()]
"""Empty for a blank line or a comment."""

# Forms of values. For a flow collection, the value is its text, and the form is the number of its brackets.
_SCALAR: Final = 0
_BELOW, _LITERAL, _STRIPPED_LITERAL, _OPEN_QUOTE = -1, -2, -3, -4

# A key ends at a colon before a blank, a plain scalar before " #", too. Ours do not begin with a character that YAML
# reserves. libyaml takes keys of up to 1024 characters.
_KEY = r"""[\w/][\w./@+-]{0,200}+|'[^']{1,200}+'|"[^"\\]{1,200}+\""""
_PLAIN = r"(?:[\w./^~$<=()+;\\]|-[0-9]|::?\w)[^\s:#]*+(?:(?: ++|:++)[^\s:#]++)*+"
_QUOTED = r"""'(?:[^']|'')*+'|"(?:[^"\\]|\\["\\/nt])*+\""""
_UNCLOSED = r"'(?:[^']|'')*+(?!.)"
_FLOW = r"[{\[][^#]*[}\]]"
_LINE: Final = re.compile(
    rf"( *+)((?:- ++)*+)(?:({_KEY}):(?: ++|$))?+({_PLAIN}|{_QUOTED}|{_UNCLOSED}|{_FLOW}|\|-?)?+ *+(?:(?<![^ ])#.*+)?+"
)

_REST_OF_QUOTED: Final = re.compile(r"((?:[^']|'')*+)(?:(') *+(?:(?<= )#.*+)?+)?+")
_DASH: Final = re.compile(r"- +")
_AS_BLANKS: Final = str.maketrans("\n\t", "  ")  # within a literal block

# The top-level key of the list with item lines.
_LISTED: Final = "resources"

# Longer lines hardly repeat; this many take a few megabytes.
_LONGEST_REMEMBERED = 100
_MOST_REMEMBERED = 20_000

# A text is cut into lines in parts of this size, so that they are not all in memory at once.
_WINDOW = 1_000_000


class _OtherFormError(Exception):
    """It has not the simple form."""


def read_blocks(text: str, read_flow: ReadFlow) -> Decoded | None:
    """Return a simple document, or None. Never raises."""
    try:
        return Decoded((_BlockReader(text, read_flow).read(),))
    except _OtherFormError:
        return None


class _BlockReader:
    """`_top` is the current container, `_column` that of its keys or dashes.

    `_around` are enclosing containers with columns, outermost first; `_opened` is a key of `_top` whose value may follow
    below.
    """

    def __init__(self, text: str, read_flow: ReadFlow) -> None:
        self._text = text
        self._read_flow = read_flow
        self._flows: dict[str, PlainValue] = {}
        # As if the document were the value of a key that is further to the left than any line.
        self._document: dict[str, PlainValue] = {}
        self._top: Any = self._document
        self._column = -1
        self._around: list[tuple[int, Any]] = []
        self._opened: str | None = ""
        self._first_line = 0
        self._listed: object = None
        self._item_lines: list[int] = []

    def read(self) -> PlainDocument:
        self._read_lines()
        if not self._document:
            raise _OtherFormError
        return PlainDocument(self._document[""], self._first_line, tuple(self._item_lines))

    def _read_lines(self) -> None:  # noqa: C901, PLR0912 - a call for every line would take as long again
        known, column, top = _known.get, self._column, self._top
        literal: _Literal | _SingleQuoted | None = None
        for number, line in enumerate(chain.from_iterable(window.split("\n") for window in _windows(self._text)), 1):
            if literal is not None:
                if literal.takes(line):
                    continue
                literal = None
            row = known(line)
            if row is None:
                row = _row_of(line)
            if not row:
                continue
            start, dashes, key, value, form = row
            if start != column or dashes or type(top) is list:  # another level than the previous line
                self._move(row, number)
                column, top = self._column, self._top
            if key is None:
                top.append(value)
            elif key in top:
                raise _OtherFormError
            else:
                top[key] = value
            self._opened = key if form == _BELOW else None
            if form > 0:
                self._read_flow_into(-1 if key is None else key, form)
            elif form == _OPEN_QUOTE:
                literal = _SingleQuoted(top, -1 if key is None else key, column, str(value))
            elif form < _BELOW:
                literal = _Literal(top, -1 if key is None else key, column, is_stripped=form == _STRIPPED_LITERAL)
        if literal is not None:
            literal.end_with(self._text)

    def _move(self, row: _Row, number: int) -> None:  # noqa: C901 - every second line comes here
        start, dashes, key, _, _ = row
        around, column, top, opened = self._around, self._column, self._top, self._opened
        if start < column:
            opened = None
            while start < column:
                column, top = around.pop()
        if start > column or (dashes and type(top) is dict):
            if opened is None:
                raise _OtherFormError
            around.append((column, top))
            inner: Any = [] if dashes else {}
            top[opened] = inner
            column, top = start, inner
            if len(around) <= 2:
                self._begin(number, opened, inner)
        elif not dashes and type(top) is list:
            # A list may be in the same column as its key.
            column, top = around.pop()
            if start != column or type(top) is list:
                raise _OtherFormError
        if dashes:
            if top is self._listed:
                self._item_lines.append(number)
            for place in dashes if key is not None else dashes[:-1]:
                inner = {} if place == dashes[-1] else []
                top.append(inner)
                around.append((column, top))
                column, top = place, inner
        if len(around) > MAX_DEPTH:
            raise _OtherFormError
        self._column, self._top = column, top

    def _begin(self, number: int, key: str, container: Any) -> None:
        if len(self._around) == 1:
            self._first_line = number
            self._listed = container
        elif key == _LISTED:
            self._listed = container

    def _read_flow_into(self, key: str | int, brackets: int) -> None:
        text: str = self._top[key]
        if text == "{}":
            self._top[key] = {}
        elif text == "[]":
            self._top[key] = []
        else:
            if text not in self._flows:
                self._flows[text] = self._read_flow(text)
            value = self._flows[text]
            is_listed = key == _LISTED and len(self._around) == 1
            if value is None or is_listed or len(self._around) + brackets > MAX_DEPTH:
                raise _OtherFormError
            self._top[key] = value


class _Literal:
    def __init__(self, holder: Any, key: str | int, column: int, *, is_stripped: bool) -> None:
        self._holder = holder
        self._key = key
        self._column = column
        self._end = "" if is_stripped else "\n"
        self._lines: list[str] = []
        self._indent = ""

    def takes(self, line: str) -> bool:
        if not line.strip(" "):
            if len(line) > len(self._indent):
                raise _OtherFormError  # blanks that may count
            self._lines.append("")
            return True
        if not self._indent:
            self._indent = line[: len(line) - len(line.lstrip(" "))]
            if len(self._indent) <= self._column or line[len(self._indent)] == "\t":
                raise _OtherFormError
        if not self._indent or not line.startswith(self._indent):
            self._end_block()
            return False
        self._lines.append(line[len(self._indent) :])
        return True

    def end_with(self, document: str) -> None:
        if not document.endswith("\n"):
            raise _OtherFormError
        self._end_block()

    def _end_block(self) -> None:
        text = "\n".join(self._lines).rstrip("\n") + self._end
        if not self._indent or not text.translate(_AS_BLANKS).isprintable():
            raise _OtherFormError
        self._holder[self._key] = text


class _SingleQuoted:
    """Line breaks become blanks, empty lines become line breaks."""

    def __init__(self, holder: Any, key: str | int, column: int, first: str) -> None:
        self._holder = holder
        self._key = key
        self._column = column
        self._parts = [first.rstrip(" ")]
        self._empty_lines = 0
        self._is_closed = False

    def takes(self, line: str) -> bool:
        if self._is_closed:
            return False
        text = line.lstrip(" ")
        if not text:
            self._empty_lines += 1
            return True
        match = _REST_OF_QUOTED.fullmatch(text)
        if match is None or len(line) - len(text) <= self._column or not line.isprintable():
            raise _OtherFormError
        self._is_closed = match[2] is not None
        if self._is_closed and self._empty_lines and not match[1]:
            raise _OtherFormError  # Envoy reads fewer line breaks
        self._parts += ("\n" * self._empty_lines or " ", match[1] if self._is_closed else match[1].rstrip(" "))
        self._empty_lines = 0
        if self._is_closed:
            self._holder[self._key] = "".join(self._parts).replace("''", "'")
        return True

    def end_with(self, _: str) -> None:
        if not self._is_closed:
            raise _OtherFormError


def _windows(text: str) -> Iterator[str]:
    start = 0
    while (end := text.find("\n", start + _WINDOW)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


# The cached lines of all files.
_known: dict[str, _Line] = {}


def _row_of(line: str) -> _Line:
    match = _LINE.fullmatch(line)
    # Of characters that are not printable, libyaml accepts some and takes some for the end of a line.
    if match is None or not line.isprintable():
        raise _OtherFormError
    indent, dashes, key, text = match.groups()
    row: _Line = ()
    if key is not None or text is not None:
        value, form = (None, _BELOW) if text is None else _value_of(text)
        key = key and intern(key[1:-1] if key[0] in "'\"" else key)
        row = len(indent), _places(len(indent), dashes), key, value, form
    if dashes if key is None and text is None else key is None and not dashes:
        raise _OtherFormError  # the value of a lone dash, and the other lines of a lone scalar, are on other lines
    if len(line) <= _LONGEST_REMEMBERED:
        if len(_known) >= _MOST_REMEMBERED:
            _known.clear()
        _known[line] = row
    return row


def _places(start: int, dashes: str) -> tuple[int, ...]:
    if not dashes:
        return ()
    if dashes.count("-") > MAX_DEPTH:
        raise _OtherFormError
    return tuple(start + match.end() for match in _DASH.finditer(dashes))


def _value_of(text: str) -> tuple[PlainValue, int]:
    match text[0]:
        case "'" if text.count("'") % 2:
            return text[1:], _OPEN_QUOTE
        case "'":
            return text[1:-1].replace("''", "'"), _SCALAR
        case '"':
            return json.loads(text) if "\\" in text else text[1:-1], _SCALAR
        case "{" | "[":
            return text, text.count("{") + text.count("[")
        case "|":
            return None, _LITERAL if text == "|" else _STRIPPED_LITERAL
    if is_ambiguous(text):
        raise _OtherFormError  # which is worth a warning
    return resolve_plain(text), _SCALAR


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
        if _LEADING_ZERO.match(text) and not _OCTAL.match(text):
            return _float(text)
        number = int(text, 8 if _OCTAL.match(text) else 16 if "x" in text or "X" in text else 10)
        return number if number in _INT32 else str(number) if number in _INT64 else text
    return _float(text) if _FLOAT.match(text) else text


# An escape, or the backslash of one that is a blank or a line break, before blanks and line breaks.
_ESCAPE_AT_END = {"'": re.compile("''$"), '"': re.compile(r"(?<!\\)(?:\\\\)*\\(?:x..|u.{4}|U.{8}|[^xuU])?$")}

# Tag, anchor and comments before a scalar.
_PROPERTIES = re.compile(r"\A(?:[!&]\S*|#.*|\s)*")


def may_lose_breaks(text: str) -> bool:
    """Whether Envoy reads fewer breaks at this text's end, if quoted or folded."""
    return text == "\n" or text.endswith("\n\n")


def without_lost_breaks(text: str, source: str, style: str) -> str:
    """Return Envoy's text of a scalar, given that of YAML and the source (ENVOY.md E51).

    At the end of a quoted text yaml-cpp keeps one line break, two behind an escape, and none of a text of breaks alone; at
    the end of a folded block (`>+`) it loses one of several.
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
    """Whether many readers differ from Envoy: `yes`, `off`, `0755`."""
    return text in AMBIGUOUS_WORDS or _LEADING_ZERO.match(text) is not None


def _float(text: str) -> PlainValue:
    number = float(text)
    return SpelledFloat(text, number) if isfinite(number) else text
