"""How much of the lines of a text may be shown: no secret, and in doubt nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from yaml import YAMLError
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from fsxds.api.secrecy import INLINE_FIELDS, SECRET_FIELDS
from fsxds.formats.documents import MAX_DEPTH
from fsxds.formats.libyaml import read_events
from fsxds.operations.secrets import mask_text
from fsxds.resource_types import type_from_path
from fsxds.values import Problem

# Finding out costs as much as reading; of a longer text that mentions secrets nothing is shown.
LONGEST_WALKED_TEXT = 1_000_000

_QUIET_FIELDS = SECRET_FIELDS | INLINE_FIELDS | {"generic_secret", "tls_certificate", "tls_certificates"}
_QUIET_TYPES = (".Secret", ".TlsCertificate", ".TlsSessionTicketKeys", ".GenericSecret")
_TYPE_KEYS = ("@type", "type_url", "typeUrl")

# What names a secret as a part of a field's name, but for those that say where secrets come from (`sds_secret_config`).
_TELLING_PART = re.compile("apikey|credential|passphrase|password|privatekey|secret|token")
_FROM_ELSEWHERE = "sds"

# A misspelled field is recognised from so many letters on; shorter words are too much like harmless ones.
_SHORTEST_LIKENESS = 5

# A word that names a secret in any spelling, or an escape that may spell one.
_MENTION = re.compile(
    r"-----BEGIN|\\[uUx]|(?<![A-Za-z])(?:"
    + "|".join(sorted(name.replace("_", "_?") for name in _QUIET_FIELDS))
    + r")(?![a-z])|Secret|TlsCertificate|SessionTicketKeys",
    re.IGNORECASE,
)
# What keys and certificates look like inside.
_CIPHER = re.compile(r"[A-Za-z0-9+/_-]{40,}={0,2}(?![\w.])")

_STARTS = (MappingStartEvent, SequenceStartEvent)
_ENDS = (MappingEndEvent, SequenceEndEvent)


class QuietLines:
    """How much of each line of one text may be shown."""

    def __init__(self, path: PurePosixPath, text: str, *, is_plain: bool) -> None:
        row = type_from_path(path)
        self._text = text
        self._is_plain = is_plain
        self._is_wholly_quiet = row is not None and row.short_name == "sds"
        self._columns: dict[int, int] | None = None

    def shown_part(self, problem: Problem, line: str) -> str:
        """Return what may be shown of the line of a problem, from its start on; nothing where its place is a secret."""
        if self._is_wholly_quiet or any(is_quiet_field(step) for step in re.split(r"[.\[\]]", problem.pointer)):
            return ""
        if self._columns is None:
            self._columns = self._find()
        end = self._columns.get(problem.line, len(line))
        is_past_end = end < len(line) and problem.column > end
        return "" if self._is_wholly_quiet or is_past_end else line[:end]

    def _find(self) -> dict[int, int]:
        """Return where secrets begin in the lines that have some; a text that cannot be told apart is wholly quiet."""
        try:
            if self._is_plain and len(self._text) <= LONGEST_WALKED_TEXT:
                return _Walk(self._text).first_columns()
        except YAMLError:
            pass
        self._is_wholly_quiet = _MENTION.search(self._text) is not None
        return {}


def may_be_shown(line: str) -> bool:
    """Tell whether nothing in a line looks like a secret by itself."""
    return mask_text(line) == line and not _CIPHER.search(line)


@lru_cache(maxsize=4096)
def is_quiet_field(key: str) -> bool:
    """Tell whether what stands under a key is a secret, also where one letter of the key is wrong."""
    name = _letters(key)
    if name in _QUIET_NAMES:
        return True
    if len(name) > _LONGEST_FIELD or _FROM_ELSEWHERE in name:
        return False
    return _TELLING_PART.search(name) is not None or not _NEAR_QUIET_NAMES.isdisjoint(_nearly(name))


def _letters(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


def _nearly(name: str) -> set[str]:
    """Return a name and what is left of it without one of its letters: names one edit apart have one of these in common."""
    return {name, *(name[:index] + name[index + 1 :] for index in range(len(name)))}


_QUIET_NAMES = frozenset(map(_letters, _QUIET_FIELDS))
_NEAR_QUIET_NAMES = frozenset(
    near for name in _QUIET_NAMES if len(name) >= _SHORTEST_LIKENESS for near in _nearly(name)
)
_LONGEST_FIELD = max(map(len, _QUIET_NAMES)) + 20


@dataclass(frozen=True, slots=True)
class _Span:
    """Where a value stands: its first line, the column from 0 in it, and its last line."""

    line: int
    column: int
    last_line: int


@dataclass(slots=True)
class _Frame:
    """A container that is open: where it began, the key that waits for its value, and whether it is a secret."""

    line: int
    column: int
    is_mapping: bool
    is_quiet: bool
    anchor: str | None
    key: str | None = None


class _Walk:
    """One walk over libyaml's events, noting where secrets stand."""

    def __init__(self, text: str) -> None:
        self._next_event = read_events(text)
        self._open: list[_Frame] = []
        self._anchors: dict[str, _Span] = {}
        self._last_line = 1
        self._quiet: list[_Span] = []

    def first_columns(self) -> dict[int, int]:
        """Return where the first secret of a line begins, by line; YAMLError where the text stops being YAML."""
        while type(event := self._next_event()) is not StreamEndEvent:
            event_type = type(event)
            if event_type is ScalarEvent:
                self._take_scalar(event)
            elif event_type is AliasEvent:
                self._take_value(self._anchors.get(event.anchor))
            elif event_type in _STARTS:
                self._take_start(event)
            elif event_type in _ENDS:
                self._take_end(event)
        columns: dict[int, int] = {}
        for span in self._quiet:
            for line in range(span.line, span.last_line + 1):
                column = span.column if line == span.line else 0
                columns[line] = min(columns.get(line, column), column)
        return columns

    def _take_scalar(self, event: Any) -> None:
        span = _span_of(event)
        self._last_line = span.last_line
        if event.anchor is not None:
            self._anchors[event.anchor] = span
        frame = self._open[-1] if self._open else None
        if frame is not None and frame.is_mapping and frame.key is None:
            frame.key = str(event.value)
            return
        if frame is not None and frame.key in _TYPE_KEYS and str(event.value).endswith(_QUIET_TYPES):
            frame.is_quiet = True
        self._take_value(span)

    def _take_value(self, span: _Span | None) -> None:
        if span is not None and self._is_quiet_here():
            self._quiet.append(span)
        self._value_is_over()

    def _is_quiet_here(self) -> bool:
        if not self._open:
            return False
        frame = self._open[-1]
        return frame.is_quiet or (frame.key is not None and is_quiet_field(frame.key))

    def _value_is_over(self) -> None:
        if self._open:
            # A container that stands for a key is rare, and does no harm when it is taken for one more value.
            self._open[-1].key = None

    def _take_start(self, event: Any) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise YAMLError
        mark = event.start_mark
        is_mapping = type(event) is MappingStartEvent
        self._open.append(_Frame(mark.line + 1, mark.column, is_mapping, self._is_quiet_here(), event.anchor))

    def _take_end(self, event: Any) -> None:
        frame = self._open.pop()
        # A block ends where the next thing begins, which is none of its own lines.
        is_flow = event.end_mark.index > event.start_mark.index
        self._last_line = max(self._last_line, event.end_mark.line + 1) if is_flow else self._last_line
        span = _Span(frame.line, frame.column, self._last_line)
        if frame.is_quiet:
            self._quiet.append(span)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = span
        self._value_is_over()


def _span_of(event: Any) -> _Span:
    """Return where an event stands; one that ends at the very start of a line does not reach into it."""
    start, end = event.start_mark, event.end_mark
    last_line = end.line if end.column == 0 and end.line > start.line else end.line + 1
    return _Span(start.line + 1, start.column, last_line)
