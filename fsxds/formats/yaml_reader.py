"""Read YAML into plain values in one pass over libyaml's events.

The two loops (`_mapping`, `_sequence`) take the common case, a plain or quoted scalar without tag or anchor, without a
call: the rest of the file costs less than libyaml's events do. Everything else goes through `_value`.
"""

from __future__ import annotations

from typing import Any, Final

from yaml import YAMLError
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

from fsxds.api.spelled import SpelledFloat
from fsxds.formats.documents import MAX_DEPTH, MAX_FAULTS, Decoded, PlainDocument, UnreadableError, too_deep
from fsxds.formats.libyaml import read_events, syntax_fault
from fsxds.formats.yaml_aliases import Anchors
from fsxds.formats.yaml_scalars import AMBIGUOUS_WORDS, CONSTANTS, NULLS, is_ambiguous, resolve_plain
from fsxds.values import Fault, FieldPath, PlainValue, Severity

_CORE = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset(_CORE + name for name in ("str", "int", "float", "bool", "null"))
_KEY_TAGS = frozenset((None, "!", *_SCALAR_TAGS))
_CONTAINER_TAGS = frozenset((None, "!", _CORE + "map", _CORE + "seq"))
_IGNORE: Final = "!ignore"


def read_yaml(text: str) -> Decoded:
    """Read all documents of a text. Never raises for a bad one: what is wrong is in the faults."""
    reader = _Reader(text)
    try:
        reader.read_stream()
    except UnreadableError as error:
        return Decoded((), (*reader.faults, error.fault))
    except YAMLError as error:
        return Decoded((), (*reader.faults, syntax_fault(error, text)))
    return Decoded(tuple(reader.documents) or (PlainDocument(None, 1),), tuple(reader.faults))


class _Reader:
    """The state of one reading.

    `_path` leads to the container that is being read; `_plain` remembers what plain scalars of this text mean.
    """

    def __init__(self, text: str) -> None:
        self.documents: list[PlainDocument] = []
        self.faults: list[Fault] = []
        self._warnings = 0
        self._next_event = read_events(text)
        self._plain: dict[str, PlainValue] = dict(CONSTANTS)
        self._path: list[str | int] = []
        self._anchors = Anchors()
        self._item_lines: list[int] = []

    def read_stream(self) -> None:
        """Read every document into `documents`."""
        self._next_event()  # the stream's start
        while type(self._next_event()) is not StreamEndEvent:
            root = self._next_event()
            self._anchors.forget()
            self._item_lines = []
            value = self._value(root, 1)
            self.documents.append(PlainDocument(value, root.start_mark.line + 1, tuple(self._item_lines)))
            self._next_event()  # the document's end

    def _value(self, event: Any, depth: int) -> PlainValue:
        event_type = type(event)
        if event_type is AliasEvent:
            return self._alias(event, depth)
        if event_type is ScalarEvent:
            value = self._scalar(event)
        else:
            if depth > MAX_DEPTH:
                raise UnreadableError(too_deep(*_place(event), tuple(self._path)))
            if event.tag not in _CONTAINER_TAGS:
                self._unknown_tag(event)
            if event.anchor is not None:
                self._anchors.begin(event.anchor)
            value = self._mapping(depth) if event_type is MappingStartEvent else self._sequence(depth)
        if event.anchor is not None:
            self._anchors.define(event.anchor, value)
        return value

    def _mapping(self, depth: int) -> dict[str, PlainValue]:
        next_event, plain, path = self._next_event, self._plain, self._path
        members: dict[str, PlainValue] = {}
        marks: dict[str, Any] = {}
        merged: PlainValue = None
        while True:
            key_event = next_event()
            if type(key_event) is not ScalarEvent or key_event.tag is not None or key_event.anchor is not None:
                if type(key_event) is MappingEndEvent:
                    return members if merged is None else self._merge(members, merged)
                key = self._odd_key(key_event, depth)
                if key is None:
                    self._value(next_event(), depth + 1)
                    continue
            else:
                key = key_event.value
            if key in marks:
                self._duplicate(key, key_event, marks[key])
            marks[key] = key_event.start_mark
            event = next_event()
            if type(event) is ScalarEvent and event.tag is None and event.anchor is None:
                if not event.implicit[0]:
                    members[key] = event.value
                    continue
                if event.value in plain:
                    members[key] = plain[event.value]
                    continue
            path.append(key)
            if key == "<<" and type(key_event) is ScalarEvent and key_event.implicit[0]:
                merged = self._merge_value(event, depth)
            else:
                members[key] = self._value(event, depth + 1)
            path.pop()

    def _sequence(self, depth: int) -> list[PlainValue]:
        next_event, plain, path = self._next_event, self._plain, self._path
        lines = self._item_lines if depth == 1 or (depth == 2 and path == ["resources"]) else None
        items: list[PlainValue] = []
        while True:
            event = next_event()
            if type(event) is SequenceEndEvent:
                return items
            if lines is not None:
                lines.append(event.start_mark.line + 1)
            if type(event) is ScalarEvent and event.tag is None and event.anchor is None:
                if not event.implicit[0]:
                    items.append(event.value)
                    continue
                if event.value in plain:
                    items.append(plain[event.value])
                    continue
            path.append(len(items))
            items.append(self._value(event, depth + 1))
            path.pop()

    def _scalar(self, event: Any) -> PlainValue:
        text: str = event.value
        if event.tag == "!" or (event.tag is None and not event.implicit[0]):
            return text
        # With any other tag Envoy goes by the letters alone, except that nothing is null any more.
        value = text if event.tag is not None and text in NULLS else resolve_plain(text)
        if event.tag is not None:
            self._check_scalar_tag(event, value)
        elif is_ambiguous(text):
            self._warn_ambiguous(event, value)
        else:
            self._plain[text] = value
        return value

    def _alias(self, event: Any, depth: int) -> PlainValue:
        value, complaint = self._anchors.use(event.anchor, depth)
        if complaint is None:
            return value
        fault = Fault(complaint.rule, complaint.message, complaint.remedy, tuple(self._path), *_place(event))
        if complaint.is_final:
            raise UnreadableError(fault)
        self._report(fault)
        return None

    def _odd_key(self, event: Any, depth: int) -> str | None:
        """Return the key of an event that is no mere scalar, None where key and value are to be dropped."""
        if type(event) is ScalarEvent:
            if event.anchor is not None:
                self._anchors.define(event.anchor, event.value)
            if event.tag == _IGNORE:
                return None
            if event.tag not in _KEY_TAGS:
                self._unknown_tag(event)
            return str(event.value)
        key = self._value(event, depth + 1)
        if type(event) is AliasEvent and isinstance(key, (str, SpelledFloat)):
            return key if isinstance(key, str) else key.text
        fact = "a key must be a single word or a text"
        self._report(Fault("bad-key", fact, "write it as a text in quotes", tuple(self._path), *_place(event)))
        return None

    def _merge_value(self, event: Any, depth: int) -> PlainValue:
        value = self._value(event, depth)
        sources = value if isinstance(value, list) else [value]
        if all(isinstance(source, dict) for source in sources):
            return value
        fact = "only mappings can be merged with <<"
        remedy = 'give it an alias of a mapping or a list of such, or quote the key: "<<"'
        self._report(Fault("bad-merge", fact, remedy, tuple(self._path), *_place(event)))
        return None

    def _merge(self, members: dict[str, PlainValue], merged: PlainValue) -> dict[str, PlainValue]:
        """Explicit keys win over merged ones, and earlier sources over later ones. Source: yaml.org/type/merge."""
        for source in merged if isinstance(merged, list) else [merged]:
            if isinstance(source, dict):
                for key, value in source.items():
                    members.setdefault(key, value)
        return members

    def _duplicate(self, key: str, event: Any, first: Any) -> None:
        message = f"this key is already set on line {first.line + 1}"
        path = (*self._path, key)
        self._report(Fault("duplicate-key", message, "keep one of them", path, *_place(event)))

    def _unknown_tag(self, event: Any) -> None:
        remedy = "remove it" if event.tag != _IGNORE else "put it before the key: only keys can be ignored"
        message = "this tag has no meaning here"
        self._report(Fault("unknown-tag", message, remedy, tuple(self._path), *_place(event)))

    def _check_scalar_tag(self, event: Any, value: PlainValue) -> None:
        if event.tag not in _SCALAR_TAGS:
            self._unknown_tag(event)
        elif event.tag == _CORE + "str" and not isinstance(value, (str, SpelledFloat)):
            message = "Envoy does not look at !!str: this is no text to it"
            self._warn(event, message, 'write it in quotes, or with a single "!"')

    def _warn_ambiguous(self, event: Any, value: PlainValue) -> None:
        text: str = event.value
        if text in AMBIGUOUS_WORDS:
            truth = "true" if value else "false"
            self._warn(event, f"Envoy reads {text} as {truth}", f'write {truth}, or "{text}" in quotes for a text')
        else:
            meaning = "an octal number" if isinstance(value, int) else "a text"
            self._warn(event, f"Envoy reads a number that begins with 0 as {meaning}", "remove the zero, or quote it")

    def _warn(self, event: Any, message: str, remedy: str) -> None:
        if self._warnings < MAX_FAULTS:
            self._warnings += 1
            path: FieldPath = tuple(self._path)
            self.faults.append(Fault("ambiguous-scalar", message, remedy, path, *_place(event), Severity.WARNING))

    def _report(self, fault: Fault) -> None:
        if len(self.faults) - self._warnings >= MAX_FAULTS:
            message = f"there are more than {MAX_FAULTS} faults; the rest was not read"
            remedy = "correct the others first"
            raise UnreadableError(Fault("too-many-faults", message, remedy, (), fault.line, fault.column))
        self.faults.append(fault)


def _place(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1
