"""Walk through the documents of a YAML text, showing a visitor where things stand; no values are made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from yaml.events import (
    DocumentEndEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from fsxds.formats.documents import MAX_DEPTH, UnreadableError, too_deep
from fsxds.formats.libyaml import read_events
from fsxds.formats.visiting import EnoughError, Visitor
from fsxds.values import FieldPath

_STARTS = (MappingStartEvent, SequenceStartEvent)
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_ENDS = (MappingEndEvent, SequenceEndEvent)


class YamlWalk:
    """One walk. What an alias or a merge key brings in is not walked: it stands elsewhere."""

    def __init__(self, text: str, visitors: Mapping[int, Visitor]) -> None:
        """Show each visitor the document of its number, counted from 0."""
        self._next_event = read_events(text)
        self._visitors = visitors
        # Of an empty document at the end, libyaml says that it stands behind the text.
        self._last_line = len(_BREAK.findall(text)) + 1

    def walk(self) -> None:
        """Walk as far as anybody wants to see something, and there is something.

        Raises:
            yaml.YAMLError: where the text stops being YAML, after what stands before was shown.
            UnreadableError: where it nests too deep.
        """
        self._next_event()  # the stream's start
        for document in range(max(self._visitors, default=-1) + 1):
            if type(self._next_event()) is StreamEndEvent:
                return
            root = self._next_event()
            if document in self._visitors:
                self._visitor = self._visitors[document]
                with suppress(EnoughError):
                    self._meet((), root)
                    self._value(root, ())
            else:
                self._skip(root)
            while type(self._next_event()) is not DocumentEndEvent:
                pass  # what nobody wants to see

    def _value(self, event: Any, path: FieldPath) -> None:
        if type(event) not in _STARTS:
            return
        is_mapping = type(event) is MappingStartEvent
        inside = self._visitor.enter(path, "{" if is_mapping else "[")
        if inside is None:
            self._skip(event)
        elif is_mapping:
            self._mapping(inside)
        else:
            self._sequence(inside)

    def _mapping(self, path: FieldPath) -> None:
        while type(key := self._next_event()) is not MappingEndEvent:
            if type(key) is not ScalarEvent or key.tag == "!ignore":
                self._skip(key)
                self._skip(self._next_event())
                continue
            inner = (*path, str(key.value))
            self._meet(inner, key)
            self._value(self._next_event(), inner)

    def _sequence(self, path: FieldPath) -> None:
        position = 0
        while type(inner_event := self._next_event()) is not SequenceEndEvent:
            inner = (*path, position)
            self._meet(inner, inner_event)
            self._value(inner_event, inner)
            position += 1

    def _skip(self, event: Any) -> None:
        level = int(type(event) in _STARTS)
        while level:
            event_type = type(self._next_event())
            level += (event_type in _STARTS) - (event_type in _ENDS)
            # libyaml takes a time that grows with the square of the depth; no readable text is deeper.
            if level > MAX_DEPTH:
                raise UnreadableError(too_deep())

    def _meet(self, path: FieldPath, event: Any) -> None:
        self._visitor.meet(path, min(event.start_mark.line + 1, self._last_line), event.start_mark.column + 1)
