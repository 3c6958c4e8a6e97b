"""JSON files as Envoy reads them: strict JSON with leniencies.

json's own scanner is called item by item, so that lines of items are known. A text that is not strict JSON is tried
again with trailing commas, single quotes and bare keys rewritten, line for line.

json does not report duplicate keys or depth. Both follow from brackets and colons: whole-text operations cost a tenth of
reading a text, a hook that gets every object's pairs twice that.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from math import isfinite
from typing import Final, NamedTuple, NoReturn

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.formats.decoded import (
    MAX_DEPTH,
    MAX_FAULTS,
    AllFoundError,
    Decoded,
    LineIndex,
    PlainDocument,
    UnreadableError,
    Visitor,
    place_after,
    read_text,
    too_deep,
    unreadable,
)
from fsxds.model.values import Fault, FieldPath, PlainValue

# The beginning of json's own message, and the remedy.
_REMEDIES: Final = (
    ("Expecting ',' delimiter", "add the comma, or close the bracket above"),
    ("Expecting property name", "write a key in double quotes, or remove the comma before it"),
    ("Expecting ':' delimiter", "add the colon after the key"),
    ("Expecting value", "write a value: a text in double quotes, a number, true, false, null, an object or a list"),
    ("Unterminated string", "close the quote"),
    ("Invalid control character", "write it as an escape, such as \\n"),
    ("Invalid \\", "write \\\\ for a backslash"),
    ("Extra data", "a JSON file holds one value: put several into a list"),
    ("Illegal trailing comma", "remove the comma"),
)

_NUMBERS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|(-?Infinity|NaN|-?[0-9][0-9.eE+-]*+)', re.DOTALL)

_HALF_PAIR: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)

_MOST_DIGITS: Final = 1000


def decode(content: bytes, catalogue: Catalogue, message_type: str | None) -> Decoded:  # noqa: ARG001 - one signature for all
    """Read a JSON file."""
    try:
        return _read(read_text(content, allow_mark=False))
    except UnreadableError as error:
        return unreadable(error.fault)


def encode(message: Message, printer: Printer) -> bytes:
    """Write indented JSON."""
    return encode_plain(printer.to_plain(message))


def encode_plain(value: PlainValue) -> bytes:
    """Write indented JSON."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _read(text: str) -> Decoded:
    try:
        return read_json(text)
    except json.JSONDecodeError as error:
        strict = make_strict(text)
        try:
            return read_json(strict.text)
        except json.JSONDecodeError:
            raise UnreadableError(_syntax_fault(error, text, strict.comment_at)) from None


def _syntax_fault(error: json.JSONDecodeError, text: str, comment: int | None) -> Fault:
    if comment is not None:
        fact = "JSON has no comments, and Envoy rejects them"
        remedy = "remove it, or name the file .yaml and begin it with #"
        return Fault("bad-syntax", fact, remedy, (), *place_after(text[:comment]))
    remedy = next((remedy for words, remedy in _REMEDIES if error.msg.startswith(words)), "correct the JSON here")
    # json's messages are constants: they quote nothing of the file.
    return Fault("bad-syntax", error.msg, remedy, (), error.lineno, error.colno)


# Strict JSON to plain values


_AFTER_ITEM: Final = re.compile(r"[ \t\n\r]*+(?:,[ \t\n\r]*+|(\]))")


class _NumberError(ValueError):
    """No message can hold the number."""


def read_json(text: str) -> Decoded:
    """Read one value; white space alone is None.

    json.JSONDecodeError: it is not strict JSON; UnreadableError: no message can hold it.
    """
    start = skip_blanks(text, 0)
    if start == len(text):
        return Decoded((PlainDocument(None, 1),))
    reader = _JsonReader(text)
    try:
        value = reader.read(start)
    except RecursionError:
        raise UnreadableError(too_deep(*place_after(text[: find_level(text, MAX_DEPTH)]))) from None
    except json.JSONDecodeError:
        raise
    except ValueError:
        index = next((token.start() for token in _NUMBERS.finditer(text) if token[1] and _is_odd(token[1])), 0)
        fact = "this number is not finite, or far too long"
        fault = Fault("bad-number", fact, "write a finite number", (), *place_after(text[:index]))
        raise UnreadableError(fault) from None
    structure = structure_of(text, MAX_DEPTH)
    if structure.too_deep_at is not None:
        raise UnreadableError(too_deep(*place_after(text[: structure.too_deep_at])))
    _check_pairs(text, value)
    duplicates = _Duplicates()
    if structure.members != reader.members:
        with suppress(AllFoundError):
            JsonWalk(text, duplicates).walk()
    document = PlainDocument(value, place_after(text[:start])[0], tuple(reader.item_lines))
    return Decoded((document,), tuple(duplicates.faults))


class _JsonReader:
    """Reads the outermost container by hand."""

    def __init__(self, text: str) -> None:
        self.item_lines: list[int] = []
        self.members = 0
        self._text = text
        decoder = json.JSONDecoder(object_hook=self._count, parse_float=_number, parse_constant=_constant)
        self._scan = decoder.raw_decode

    def read(self, index: int) -> PlainValue:
        opener = self._text[index]
        value: PlainValue
        if opener == "[":
            value, end = self._items(index)
        elif opener == "{":
            value, end = self._members(index)
        else:
            value, end = self._scan(self._text, index)
        end = skip_blanks(self._text, end)
        if end != len(self._text):
            raise json.JSONDecodeError("Extra data", self._text, end)
        return value

    def _count(self, members: dict[str, PlainValue]) -> dict[str, PlainValue]:
        self.members += len(members)
        return members

    def _members(self, index: int) -> tuple[dict[str, PlainValue], int]:
        members: dict[str, PlainValue] = {}
        index = skip_blanks(self._text, index + 1)
        if self._text[index : index + 1] == "}":
            return {}, index + 1
        while True:
            if self._text[index : index + 1] != '"':
                raise json.JSONDecodeError("Expecting property name enclosed in double quotes", self._text, index)
            key, end = self._scan(self._text, index)
            index = _behind(self._text, ":", end)
            is_list = key == "resources" and self._text[index : index + 1] == "["
            value, end = self._items(index) if is_list else self._scan(self._text, index)
            members[key] = value
            index = skip_blanks(self._text, end)
            if self._text[index : index + 1] == "}":
                return self._count(members), index + 1
            index = _behind(self._text, ",", index)

    def _items(self, index: int) -> tuple[list[PlainValue], int]:
        text, lines, scan, after = self._text, self.item_lines, self._scan, _AFTER_ITEM.match
        items: list[PlainValue] = []
        line, counted = 1, 0
        index = skip_blanks(text, index + 1)
        if text[index : index + 1] == "]":
            return items, index + 1
        while True:
            line += text.count("\n", counted, index)
            lines.append(line)
            counted = index
            value, end = scan(text, index)
            items.append(value)
            found = after(text, end)
            if found is None:
                raise json.JSONDecodeError("Expecting ',' delimiter", text, skip_blanks(text, end))
            index = found.end()
            if found[1]:
                return items, index


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise _NumberError
    return number


def _constant(_name: str) -> NoReturn:
    raise _NumberError


def _is_odd(number: str) -> bool:
    if number[-1].isalpha() or len(number) > _MOST_DIGITS:
        return True
    try:
        return not isfinite(float(number))
    except ValueError:
        return False  # broken in another way, after the odd one


def _check_pairs(text: str, value: PlainValue) -> None:
    """Half of a surrogate pair has no UTF-8."""
    half = _HALF_PAIR.search(text) if "\\" in text and "\\ud" in text.lower() else None
    if half is None:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        place = place_after(text[: half.start()])
        fact = "half of a surrogate pair is no character"
        raise UnreadableError(Fault("bad-encoding", fact, "write both halves", (), *place)) from None


class _Duplicates:
    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._lines: dict[FieldPath, int] = {}

    def note_place(self, path: FieldPath, line: int, column: int) -> None:
        if path in self._lines and isinstance(path[-1], str):
            message = f"this key is already set on line {self._lines[path]}"
            self.faults.append(Fault("duplicate-key", message, "keep one of them", path, line, column))
            if len(self.faults) == MAX_FAULTS:
                raise AllFoundError
        self._lines.setdefault(path, line)

    def enter(self, path: FieldPath, opener: str) -> FieldPath:
        return path


# Depth of nesting, and number of keys


_OTHERS: Final = bytes(sorted(set(range(256)) - set(b'"[]{}:')))
_STRING: Final = re.compile(rb'"[^"]*+"')
_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|([\[{])|([\]}])', re.DOTALL)


class Structure(NamedTuple):
    """Brackets: `members` counts keys; `too_deep_at` is the first one beyond a depth."""

    members: int
    too_deep_at: int | None


def structure_of(text: str, depth: int) -> Structure:
    """Return a strict JSON text's structure."""
    content = text.encode(errors="replace")
    if b"\\" in content:
        content = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes in a row are an empty text, or join two texts: inside and outside stay the same.
    marks = content.translate(None, _OTHERS).replace(b'""', b"")
    if b'"' in marks:
        marks = _STRING.sub(b"", marks)
    members = marks.count(b":")
    brackets = marks.replace(b":", b"")
    for _ in range(depth // 2):  # each round removes one level or two
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if not brackets:
            return Structure(members, None)
    return Structure(members, find_level(text, depth))


def find_level(text: str, depth: int) -> int | None:
    """Return the first bracket beyond `depth`, or None."""
    level = 0
    for token in _BRACKETS.finditer(text):
        if token[1]:
            level += 1
            if level > depth:
                return token.start()
        elif token[2]:
            level -= 1
    return None


# Envoy's leniencies beyond strict JSON


# Matches whole words and numbers, so that no character is scanned twice.
_TOKENS: Final = re.compile(
    r"""
      (?P<text>"(?:[^"\\\n]|\\.)*+")
    | '(?P<single>(?:[^'\\\n]|\\.)*+)'
    | (?P<comment>//|/\*|\#)
    | (?P<word>[^\W\d][\w$]*+) (?P<colon>[ \t\r\n]*+:)?
    | (?P<number>[-+.\d][\w.+-]*+)
    | (?P<comma>,) (?=[ \t\r\n]*+[\]}])
    | (?P<mark>[\[\]{},:])
    """,
    re.VERBOSE,
)

_IN_SINGLE_QUOTES: Final = re.compile(r"\\.|\"")
_IN_DOUBLE_QUOTES: Final = {"\\'": "'", '"': '\\"'}


class StrictText(NamedTuple):
    """`comment_at` is the first comment's index, or None."""

    text: str
    comment_at: int | None


def make_strict(text: str) -> StrictText:
    """Rewrite Envoy's leniencies to strict JSON.

    Text that Envoy rejects, too, stays, for json to reject. Lines stay, columns may move.
    """
    rewriter = _Rewriter()
    return StrictText(_TOKENS.sub(rewriter.rewrite, text), rewriter.comment_at)


class _Rewriter:
    """Only a comma after a value can be a trailing one."""

    def __init__(self) -> None:
        self.comment_at: int | None = None
        self._follows_value = False

    def rewrite(self, token: re.Match[str]) -> str:
        group = token.lastgroup
        followed_value = self._follows_value
        self._follows_value = group not in ("colon", "comma") and (group != "mark" or token[0] in "]}")
        if group == "comma" and followed_value:
            return " "
        if group == "colon":
            return f'"{token["word"]}"{token["colon"]}'
        if group == "single":
            return (
                '"' + _IN_SINGLE_QUOTES.sub(lambda part: _IN_DOUBLE_QUOTES.get(part[0], part[0]), token["single"]) + '"'
            )
        if group == "comment" and self.comment_at is None:
            self.comment_at = token.start()
        return token[0]


# Places of members and items


_BLANKS: Final = re.compile(r"[ \t\n\r]*+")


def skip_blanks(text: str, index: int) -> int:
    """Skip white space."""
    found = _BLANKS.match(text, index)
    return found.end() if found else index


def _behind(text: str, mark: str, index: int) -> int:
    """JSONDecodeError if the mark is missing."""
    index = skip_blanks(text, index)
    if text[index : index + 1] != mark:
        raise json.JSONDecodeError(f"Expecting '{mark}' delimiter", text, index)
    return skip_blanks(text, index + 1)


class JsonWalk:
    """A walk that calls a visitor."""

    def __init__(self, text: str, visitor: Visitor) -> None:
        self._text = text
        self._visitor = visitor
        self._lines = LineIndex(text)
        self._skip = json.JSONDecoder().raw_decode

    def walk(self) -> None:
        """Walk from the top. json.JSONDecodeError: it stops being JSON; earlier places were reported."""
        start = skip_blanks(self._text, 0)
        self._visitor.note_place((), *self._lines.place(start))
        self._value(start, ())

    def _value(self, index: int, path: FieldPath) -> int:
        opener = self._text[index : index + 1]
        inside = self._visitor.enter(path, opener) if opener in ("{", "[") else None
        if inside is not None:
            return self._members(index, inside) if opener == "{" else self._items(index, inside)
        return self._skip(self._text, index)[1]

    def _members(self, index: int, path: FieldPath) -> int:
        index = skip_blanks(self._text, index + 1)
        if self._text[index : index + 1] == "}":
            return index + 1
        while True:
            key, end = self._skip(self._text, index)
            inner = (*path, str(key))
            self._visitor.note_place(inner, *self._lines.place(index))
            end = self._value(_behind(self._text, ":", end), inner)
            index = skip_blanks(self._text, end)
            if self._text[index : index + 1] == "}":
                return index + 1
            index = _behind(self._text, ",", index)

    def _items(self, index: int, path: FieldPath) -> int:
        index = skip_blanks(self._text, index + 1)
        if self._text[index : index + 1] == "]":
            return index + 1
        position = 0
        while True:
            inner = (*path, position)
            self._visitor.note_place(inner, *self._lines.place(index))
            index = skip_blanks(self._text, self._value(index, inner))
            if self._text[index : index + 1] == "]":
                return index + 1
            index = _behind(self._text, ",", index)
            position += 1
