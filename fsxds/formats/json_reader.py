"""Read strict JSON into plain values: json's own scanner, called item by item so that the lines of items are known."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from math import isfinite
from typing import Final, NoReturn

from fsxds.formats.documents import (
    MAX_DEPTH,
    MAX_FAULTS,
    Decoded,
    PlainDocument,
    UnreadableError,
    too_deep,
)
from fsxds.formats.json_structure import find_level, structure_of
from fsxds.formats.json_text import JsonWalk, skip_blanks
from fsxds.formats.utf8 import place_after
from fsxds.formats.visiting import EnoughError
from fsxds.values import Fault, FieldPath, PlainValue

_NUMBERS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|(-?Infinity|NaN|-?[0-9][0-9.eE+-]*+)', re.DOTALL)
_HALF_PAIR: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
_AFTER_ITEM: Final = re.compile(r"[ \t\n\r]*+(?:,[ \t\n\r]*+|(\]))")
_MOST_DIGITS: Final = 1000


class _NumberError(ValueError):
    """A number that no message can hold."""


def read_json(text: str) -> Decoded:
    """Read the one value of a text; white space alone is no value.

    Raises:
        json.JSONDecodeError: for a text that is not strict JSON.
        UnreadableError: for strict JSON that no message can hold.
    """
    start = skip_blanks(text, 0)
    if start == len(text):
        return Decoded((PlainDocument(None, 1),))
    reader = _Reader(text)
    try:
        value = reader.read(start)
    except RecursionError:
        raise UnreadableError(_depth_fault(text)) from None
    except json.JSONDecodeError:
        raise
    except ValueError:
        raise UnreadableError(_number_fault(text)) from None
    structure = structure_of(text, MAX_DEPTH)
    if structure.too_deep_at is not None:
        raise UnreadableError(too_deep(*place_after(text[: structure.too_deep_at])))
    _check_pairs(text, value)
    faults = _duplicate_faults(text) if structure.members != reader.members else ()
    return Decoded((PlainDocument(value, place_after(text[:start])[0], tuple(reader.item_lines)),), faults)


class _Reader:
    """Reads the outermost object or list by hand, and what is inside by json's scanner."""

    def __init__(self, text: str) -> None:
        self.item_lines: list[int] = []
        self.members = 0
        self._text = text
        decoder = json.JSONDecoder(object_hook=self._count, parse_float=_number, parse_constant=_constant)
        self._scan = decoder.raw_decode

    def read(self, index: int) -> PlainValue:
        """Return the whole value, which begins at `index`."""
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
            index = self._after(":", end)
            is_list = key == "resources" and self._text[index : index + 1] == "["
            value, end = self._items(index) if is_list else self._scan(self._text, index)
            members[key] = value
            index = skip_blanks(self._text, end)
            if self._text[index : index + 1] == "}":
                return self._count(members), index + 1
            index = self._after(",", index)

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

    def _after(self, mark: str, index: int) -> int:
        index = skip_blanks(self._text, index)
        if self._text[index : index + 1] != mark:
            raise json.JSONDecodeError(f"Expecting '{mark}' delimiter", self._text, index)
        return skip_blanks(self._text, index + 1)


class _Duplicates:
    """Collects the keys that are met a second time; a `Visitor`."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._lines: dict[FieldPath, int] = {}

    def meet(self, path: FieldPath, line: int, column: int) -> None:
        """Note the first place of a path, and complain at the others."""
        if path in self._lines and isinstance(path[-1], str):
            message = f"this key is already set on line {self._lines[path]}"
            self.faults.append(Fault("duplicate-key", message, "keep one of them", path, line, column))
            if len(self.faults) == MAX_FAULTS:
                raise EnoughError
        self._lines.setdefault(path, line)

    def enter(self, path: FieldPath, opener: str) -> FieldPath:
        """Look everywhere."""
        return path


def _duplicate_faults(text: str) -> tuple[Fault, ...]:
    duplicates = _Duplicates()
    with suppress(EnoughError):
        JsonWalk(text, duplicates).walk()
    return tuple(duplicates.faults)


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise _NumberError
    return number


def _constant(_name: str) -> NoReturn:
    raise _NumberError


def _depth_fault(text: str) -> Fault:
    return too_deep(*place_after(text[: find_level(text, MAX_DEPTH)]))


def _number_fault(text: str) -> Fault:
    index = next((token.start() for token in _NUMBERS.finditer(text) if token[1] and _is_odd(token[1])), 0)
    fact = "this number is not finite, or far too long"
    return Fault("bad-number", fact, "write a finite number", (), *place_after(text[:index]))


def _is_odd(number: str) -> bool:
    if number[-1].isalpha() or len(number) > _MOST_DIGITS:
        return True
    try:
        return not isfinite(float(number))
    except ValueError:
        return False  # broken in another way, behind the odd one


def _check_pairs(text: str, value: PlainValue) -> None:
    """Refuse texts with half of a surrogate pair: they have no UTF-8, so no message can hold them."""
    half = _HALF_PAIR.search(text) if "\\" in text and "\\ud" in text.lower() else None
    if half is None:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        place = place_after(text[: half.start()])
        fact = "half of a surrogate pair is no character"
        raise UnreadableError(Fault("bad-encoding", fact, "write both halves", (), *place)) from None
