"""Finds fields with mistakes in texts, without values."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from yaml import YAMLError
from yaml.events import (
    DocumentEndEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from fsxds.formats.decoded import MAX_DEPTH, AllFoundError, UnreadableError, Visitor, read_text, too_deep
from fsxds.formats.json_format import JsonWalk, make_strict
from fsxds.formats.textproto_tokens import CLOSERS, BadEscapeError, Cursor, is_name, is_text, unquote
from fsxds.formats.yaml_format import read_events
from fsxds.model.values import FieldPath

Wanted: TypeAlias = Collection[tuple[int, FieldPath]]
"""Keys as in the file, and indexes; each path with the number of its document, from 0."""

Found: TypeAlias = Mapping[tuple[int, FieldPath], tuple[int, int]]
"""Line and column, from 1, of the key or the list item of each path.

If a path does not exist, the place is that of its nearest existing ancestor, or 1:1.
"""

Locate: TypeAlias = Callable[[bytes, Wanted], Found]
"""Returns places in the content of a file, in one walk per document."""


def locate_all(content: bytes, wanted: Wanted) -> Found:
    """Find paths in YAML or JSON."""
    return _locate(content, wanted, _walk)


def locate_in_textproto(content: bytes, wanted: Wanted) -> Found:
    """Find paths in text format."""
    return _locate(content, wanted, _walk_textproto)


def _locate(
    content: bytes, wanted: Wanted, walk: Callable[[str, Mapping[int, Iterable[FieldPath]]], Mapping[int, _Locator]]
) -> Found:
    try:
        text = read_text(content)
    except UnreadableError:
        return dict.fromkeys(wanted, (1, 1))
    paths: defaultdict[int, list[FieldPath]] = defaultdict(list)
    for document, path in wanted:
        paths[document].append(path)
    locators = walk(text, paths)
    return {(document, path): locators[document].place_of(path) for document, path in wanted}


def _walk(text: str, paths: Mapping[int, Iterable[FieldPath]]) -> Mapping[int, _Locator]:
    if paths.keys() == {0} and text.lstrip(" \t\r\n")[:1] in ("{", "["):
        for strict in (str, lambda lenient: make_strict(lenient).text):  # the second is slow, and rarely needed
            locator = _Locator(paths[0])
            with suppress(RecursionError, ValueError):
                with suppress(AllFoundError):
                    JsonWalk(strict(text), locator).walk()
                return {0: locator}
    locators = {document: _Locator(wanted) for document, wanted in paths.items()}
    # Places before a syntax error were found, and paths after it have an ancestor there.
    with suppress(YAMLError, UnreadableError):
        YamlWalk(text, locators).walk()
    return locators


def _walk_textproto(text: str, paths: Mapping[int, Iterable[FieldPath]]) -> Mapping[int, _Locator]:
    locator = _Locator(paths[0])
    with suppress(AllFoundError):
        TextprotoWalk(text, locator).walk()
    return {0: locator}


class _Locator:
    """The first of duplicates counts."""

    def __init__(self, paths: Iterable[FieldPath]) -> None:
        self._wanted = {path[:length] for path in paths for length in range(len(path) + 1)}
        self._containers = {path[:-1] for path in self._wanted if path}
        self._places: dict[FieldPath, tuple[int, int]] = {}

    def note_place(self, path: FieldPath, line: int, column: int) -> None:
        if path in self._wanted:
            self._places.setdefault(path, (line, column))
            if len(self._places) == len(self._wanted):
                raise AllFoundError

    def enter(self, path: FieldPath, opener: str) -> FieldPath | None:
        only_item = (*path, 0)
        if opener == "{" and only_item in self._wanted:
            self._places.setdefault(only_item, self.place_of(path))
            return only_item
        return path if path in self._containers else None

    def place_of(self, path: FieldPath) -> tuple[int, int]:
        for length in range(len(path), -1, -1):
            if path[:length] in self._places:
                return self._places[path[:length]]
        return 1, 1


_STARTS = (MappingStartEvent, SequenceStartEvent)
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_ENDS = (MappingEndEvent, SequenceEndEvent)


class YamlWalk:
    """Does not walk aliases and merge keys."""

    def __init__(self, text: str, visitors: Mapping[int, Visitor]) -> None:
        """Each visitor receives its number's document, from 0."""
        self._next_event = read_events(text)
        self._visitors = visitors
        # For an empty document at the end, libyaml reports a place after the text.
        self._last_line = len(_BREAK.findall(text)) + 1

    def walk(self) -> None:
        """Walk as far as visitors need.

        yaml.YAMLError: it stops being YAML; UnreadableError: it is nested too deep. Earlier places were reported.
        """
        self._next_event()  # the stream's start
        for document in range(max(self._visitors, default=-1) + 1):
            if type(self._next_event()) is StreamEndEvent:
                return
            root = self._next_event()
            if document in self._visitors:
                self._visitor = self._visitors[document]
                with suppress(AllFoundError):
                    self._note_place((), root)
                    self._value(root, ())
            else:
                self._skip(root)
            while type(self._next_event()) is not DocumentEndEvent:
                pass  # not needed by any visitor

    def _value(self, event: Any, path: FieldPath) -> None:
        if type(event) not in _STARTS:
            return
        is_mapping = type(event) is MappingStartEvent
        inside = self._visitor.enter(path, "{" if is_mapping else "[")
        inner: FieldPath
        if inside is None:
            self._skip(event)
        elif is_mapping:
            while type(key := self._next_event()) is not MappingEndEvent:
                if type(key) is not ScalarEvent or key.tag == "!ignore":
                    self._skip(key)
                    self._skip(self._next_event())
                    continue
                inner = (*inside, str(key.value))
                self._note_place(inner, key)
                self._value(self._next_event(), inner)
        else:
            position = 0
            while type(member := self._next_event()) is not SequenceEndEvent:
                inner = (*inside, position)
                self._note_place(inner, member)
                self._value(member, inner)
                position += 1

    def _skip(self, event: Any) -> None:
        level = int(type(event) in _STARTS)
        while level:
            event_type = type(self._next_event())
            level += (event_type in _STARTS) - (event_type in _ENDS)
            # The time of libyaml grows with the square of the depth; no readable text is deeper.
            if level > MAX_DEPTH:
                raise UnreadableError(too_deep())

    def _note_place(self, path: FieldPath, event: Any) -> None:
        self._visitor.note_place(path, min(event.start_mark.line + 1, self._last_line), event.start_mark.column + 1)


class TextprotoWalk:
    """A walk through text format, whatever the types.

    A repeated field's first occurrence is the field and its first item. As in JSON, an Any's content is at its path, and a
    map's value under its key.
    """

    def __init__(self, text: str, visitor: Visitor) -> None:
        self._cursor = Cursor(text)
        self._visitor = visitor

    def walk(self) -> None:
        """Walk to the end."""
        self._visitor.note_place((), *self._place())
        inside = self._visitor.enter((), "{")
        if inside is not None:
            self._fields(inside)

    def _fields(self, path: FieldPath) -> None:
        counts: Counter[str] = Counter()
        while (word := self._cursor.word) and word not in CLOSERS:
            if word[0] == "[" and len(word) > 1:
                self._visitor.note_place((*path, "@type"), *self._place())
                self._cursor.next += 1
                self._cursor.skip(":")
                self._message(path)
            elif is_name(word):
                self._field((*path, word), counts[word])
                counts[word] += 1
            else:
                self._cursor.next += 1

    def _field(self, path: FieldPath, count: int) -> None:
        self._note_place(path, count)
        self._cursor.next += 1
        self._cursor.skip(":")
        if self._cursor.word != "[":
            self._value(path, count)
            return
        self._cursor.next += 1
        while self._cursor.word not in ("]", ""):
            self._note_place(path, count)
            self._value(path, count)
            self._cursor.skip(",")
            count += 1
        self._cursor.skip("]")

    def _note_place(self, path: FieldPath, count: int) -> None:
        place = self._place()
        if count == 0:
            self._visitor.note_place(path, *place)
        self._visitor.note_place((*path, count), *place)

    def _value(self, path: FieldPath, count: int) -> None:
        if self._cursor.word not in ("{", "<"):
            self._cursor.next += bool(self._cursor.word)
            while is_text(self._cursor.word or " "):
                self._cursor.next += 1
            return
        key = self._key()
        if key is not None and self._visitor.enter((*path, key), "{") is not None:
            self._visitor.note_place((*path, key), *self._place())
            self._cursor.next += 4
            self._cursor.skip(",")
            self._cursor.skip("value")
            self._cursor.skip(":")
            self._message((*path, key))
            self._cursor.skip_brackets(1)
            return
        inside = self._visitor.enter((*path, count), "{")
        if inside is None and count == 0:
            inside = self._visitor.enter(path, "{")
        self._message(inside)

    def _key(self) -> str | None:
        """A map entry's key, as in `{ key: "a"`, or None."""
        words = self._cursor.words[self._cursor.next + 1 : self._cursor.next + 4]
        if words[:2] != ["key", ":"] or len(words) < 3 or not is_text(words[2]):
            return None
        try:
            return unquote(words[2]).decode(errors="replace")
        except BadEscapeError:
            return None

    def _message(self, path: FieldPath | None) -> None:
        if self._cursor.word not in ("{", "<"):
            return
        self._cursor.next += 1
        if path is not None:
            self._fields(path)
        self._cursor.skip_brackets(1)

    def _place(self) -> tuple[int, int]:
        return self._cursor.place(self._cursor.next)
