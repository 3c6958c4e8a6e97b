"""YAML files, read as by Envoy 1.40, and written to be read back the same.

Most files have one simple form, which `yaml_blocks` reads. Others, and any with a mistake, are read in one pass over
libyaml's events: two loops (`_mapping`, `_sequence`) take the common case, a scalar without tag or anchor, without a
call. Both readers agree.

No other module names libyaml's parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import yaml
from google.protobuf.message import Message
from yaml import YAMLError, __with_libyaml__
from yaml.error import Mark, MarkedYAMLError
from yaml.events import AliasEvent, MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, StreamEndEvent
from yaml.reader import ReaderError

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.formats.decoded import (
    MAX_DEPTH,
    MAX_FAULTS,
    Decoded,
    PlainDocument,
    UnreadableError,
    place_after,
    read_text,
    too_deep,
    unreadable,
)
from fsxds.formats.yaml_blocks import (
    AMBIGUOUS_WORDS,
    CONSTANTS,
    LARGEST_INTEGER,
    NULLS,
    is_ambiguous,
    may_lose_breaks,
    read_blocks,
    resolve_plain,
    without_lost_breaks,
)
from fsxds.model.errors import UsageError
from fsxds.model.values import Fault, FieldPath, PlainValue, Severity, SpelledFloat

if __with_libyaml__ or TYPE_CHECKING:
    from yaml import CSafeDumper
    from yaml.cyaml import CParser  # type: ignore[attr-defined]  # the stubs do not know it
else:
    from yaml import SafeDumper as CSafeDumper  # pragma: no cover - require_libyaml ends such a start

NextEvent = Callable[[], Any]
"""Returns the next event. Any, because each reader checks its exact class first."""

# libyaml's error, and the remedy; the first match counts.
_REMEDIES = (
    ("mapping values are not allowed", "indent the line like its neighbours, or quote a value that holds ': '"),
    ("could not find expected ':'", "add the colon, or indent the line as part of the value above"),
    ("did not find expected key", "indent the line like its neighbours, and close the brackets above"),
    ("did not find expected '-' indicator", "indent the line like the other items of the list"),
    ("did not find expected ',' or", "close the bracket, or separate its items with commas"),
    ("unexpected end of stream", "close the quote that is open here"),
    ("found unexpected document indicator", "close the quote that is open here"),
    ("block sequence entries are not allowed", "begin the list on a line of its own"),
    ("unknown escape character", "write \\\\ for a backslash, or use single quotes"),
    ("incompatible YAML document", "remove the %YAML line, or write %YAML 1.1"),
    ("undefined tag handle", "remove the tag"),
    ("that cannot start any token", "quote the value: it begins with a character that YAML keeps for itself"),
)


def require_libyaml() -> None:
    """Raise `UsageError` if PyYAML was built without libyaml."""
    if not __with_libyaml__:
        raise UsageError(
            "PyYAML was built without libyaml, which fsxds reads YAML with; "
            "install a wheel of it: pip install --force-reinstall --only-binary :all: pyyaml"
        )


def read_events(text: str) -> NextEvent:
    """Return a function that returns the next event, or raises `YAMLError`."""
    # PyYAML has no types for its parser; this is the only place that names it.
    next_event: NextEvent = CParser(text).get_event
    return next_event


def depth_limit(error: YAMLError) -> int | None:
    """Return the index at which libyaml, from 0.2.6, found more than 1000 levels, else None.

    It looks ahead in flow collections: the error may precede events of the levels above.
    """
    if isinstance(error, MarkedYAMLError) and error.problem_mark and "maximum nesting depth" in str(error.problem):
        return error.problem_mark.index
    return None


def syntax_fault(error: YAMLError, text: str) -> Fault:
    """Return libyaml's error, without quotations."""
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        return _marked_fault(error, error.problem_mark, text)
    if isinstance(error, ReaderError):
        before = text.encode(errors="replace")[: error.position].decode(errors="replace")
        remedy = 'write it as an escape in double quotes, such as "\\u0001"'
        return Fault("bad-syntax", "YAML does not allow this control character", remedy, (), *place_after(before))
    return Fault("bad-syntax", "the text is not YAML", "check it with a YAML editor")


def _within(text: str, mark: Mark) -> tuple[int, int]:
    """Libyaml puts a text's end on an extra line, which editors lack."""
    lines = text.splitlines()
    if 0 < len(lines) <= mark.line:
        return len(lines), len(lines[-1]) + 1
    return mark.line + 1, mark.column + 1


def _marked_fault(error: MarkedYAMLError, mark: Mark, text: str) -> Fault:
    problem = str(error.problem or "bad YAML")
    line, column = _within(text, mark)
    context = f"{error.context}: " if error.context else ""
    if error.context_mark is not None and error.context_mark.line != mark.line:
        context = f"{error.context} that begins on line {error.context_mark.line + 1}: "
    if text[mark.index : mark.index + 1] == "\t":
        return Fault("bad-syntax", "expected spaces, found a tab", "indent with spaces", (), line, column)
    remedy = next((remedy for words, remedy in _REMEDIES if words in problem), "correct the YAML here or just above")
    return Fault("bad-syntax", context + problem, remedy, (), line, column)


def decode(content: bytes, catalogue: Catalogue, message_type: str | None) -> Decoded:  # noqa: ARG001 - one signature for all
    """Read a YAML file."""
    try:
        text = read_text(content)
    except UnreadableError as error:
        return unreadable(error.fault)
    return read_blocks(text, _plain_flow) or read_yaml(text)


def _plain_flow(text: str) -> PlainValue:
    """None unless a faultless flow collection: `{a: [1]}`."""
    decoded = read_yaml(text)
    document = decoded.documents[0] if len(decoded.documents) == 1 and not decoded.faults else None
    return document.value if isinstance(document, PlainDocument) else None


def read_yaml(text: str) -> Decoded:
    """Read all documents; mistakes are in the faults."""
    reader = _YamlReader(text)
    try:
        reader.read_stream()
    except UnreadableError as error:
        return Decoded((), (*reader.faults, error.fault))
    except YAMLError as error:
        # The events of the text before are enough to find the level that is too deep here.
        if limit := depth_limit(error):
            return read_yaml(text[:limit])
        return Decoded((), (*reader.faults, syntax_fault(error, text)))
    return Decoded(tuple(reader.documents) or (PlainDocument(None, 1),), tuple(reader.faults))


_CORE = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset(_CORE + name for name in ("str", "int", "float", "bool", "null"))
_KEY_TAGS = frozenset((None, "!", *_SCALAR_TAGS))
_CONTAINER_TAGS = frozenset((None, "!", _CORE + "map", _CORE + "seq"))
_IGNORE: Final = "!ignore"


class _YamlReader:
    """`_path` leads to the current container; `_plain` is a cache."""

    def __init__(self, text: str) -> None:
        self.documents: list[PlainDocument] = []
        self.faults: list[Fault] = []
        self._warnings = 0
        self._text = text
        self._next_event = read_events(text)
        self._plain: dict[str, PlainValue] = dict(CONSTANTS)
        self._path: list[str | int] = []
        self._anchors = Anchors()
        self._item_lines: list[int] = []

    def read_stream(self) -> None:
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
                    members[key] = self._text_of(event) if event.value[-1:] == "\n" else event.value
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
                    items.append(self._text_of(event) if event.value[-1:] == "\n" else event.value)
                    continue
                if event.value in plain:
                    items.append(plain[event.value])
                    continue
            path.append(len(items))
            items.append(self._value(event, depth + 1))
            path.pop()

    def _scalar(self, event: Any) -> PlainValue:
        text = self._text_of(event)
        if event.tag == "!" or (event.tag is None and not event.implicit[0]):
            return text
        # With any other tag Envoy goes by the letters alone, except that no text is null any more.
        value = text if event.tag is not None and text in NULLS else resolve_plain(text)
        if event.tag is not None:
            if event.tag not in _SCALAR_TAGS:
                self._unknown_tag(event)
            elif event.tag == _CORE + "str" and not isinstance(value, (str, SpelledFloat)):
                message = "Envoy does not look at !!str: this is no text to it"
                self._warn(event, message, 'write it in quotes, or with a single "!"')
        elif is_ambiguous(text):
            self._warn_ambiguous(event, value)
        else:
            self._plain[text] = value
        return value

    def _text_of(self, event: Any) -> str:
        text: str = event.value
        if not may_lose_breaks(text):
            return text
        return without_lost_breaks(text, self._text[event.start_mark.index : event.end_mark.index], event.style)

    def _alias(self, event: Any, depth: int) -> PlainValue:
        value, wrong = self._anchors.use(event.anchor, depth)
        if wrong is None:
            return value
        line, column = _place(event)
        fault = replace(wrong, field_path=tuple(self._path), line=line, column=column)
        if fault.rule in _FINAL:
            raise UnreadableError(fault)
        self._report(fault)
        return None

    def _odd_key(self, event: Any, depth: int) -> str | None:
        """None drops key and value."""
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
        value = self._value(event, depth + 1)
        sources = value if isinstance(value, list) else [value]
        if all(isinstance(source, dict) for source in sources):
            return value
        fact = "only mappings can be merged with <<"
        remedy = 'give it an alias of a mapping or a list of such, or quote the key: "<<"'
        self._report(Fault("bad-merge", fact, remedy, tuple(self._path), *_place(event)))
        return None

    def _merge(self, members: dict[str, PlainValue], merged: PlainValue) -> dict[str, PlainValue]:
        """Explicit keys win, then earlier sources. Source: yaml.org/type/merge."""
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


# Aliases


MAX_COPIED_VALUES = 1_000_000
"""The most values that all aliases of a file stand for together; conversion copies them."""


# The faults of aliases after which reading ends.
_FINAL = frozenset(("alias-bomb", "too-deep"))


class Anchors:
    """A document's anchors, and the number of values copied by aliases.

    Values are shared, as they are only read. The budget is for code that expands them.
    """

    def __init__(self) -> None:
        self._values: dict[str, PlainValue] = {}
        self._open: set[str] = set()
        self._extents: dict[str, tuple[int, int]] = {}  # {anchor: (number of values, levels)}
        self._copied = 0

    def forget(self) -> None:
        """Begin a new document."""
        self._values.clear()
        self._open.clear()
        self._extents.clear()

    def begin(self, anchor: str) -> None:
        """Begin a value, in which aliases are recursive."""
        self._open.add(anchor)

    def define(self, anchor: str, value: PlainValue) -> None:
        """Record a value; the last of a name counts, as in YAML."""
        self._open.discard(anchor)
        self._extents.pop(anchor, None)
        self._values[anchor] = value

    def use(self, anchor: str, depth: int) -> tuple[PlainValue, Fault | None]:
        """Return an alias's value, or its fault, without a place."""
        if anchor in self._open:
            return None, Fault("recursive-alias", "this alias contains itself", "break the loop")
        if anchor not in self._values:
            remedy = "define its anchor before it, or quote the text"
            return None, Fault("undefined-alias", "this alias is not defined above", remedy)
        value = self._values[anchor]
        if not isinstance(value, (dict, list)):
            return value, None
        if anchor not in self._extents:
            self._extents[anchor] = _measure(value)
        size, height = self._extents[anchor]
        self._copied += size
        if self._copied > MAX_COPIED_VALUES:
            message = f"the aliases of this file stand for more than {MAX_COPIED_VALUES} values"
            return None, Fault("alias-bomb", message, "write less by aliases")
        if depth - 1 + height > MAX_DEPTH:
            return None, too_deep()
        return value, None


def _measure(value: PlainValue) -> tuple[int, int]:
    size, levels, level = 0, 0, [value]
    while level:
        size += len(level)
        containers = [container for container in level if isinstance(container, (dict, list))]
        levels += bool(containers)
        level = [
            child
            for container in containers
            for child in (container.values() if isinstance(container, dict) else container)
        ]
    return size, levels


# Writing


# Line breaks in YAML 1.1, which libyaml writes, and not in YAML 1.2, which Envoy reads: only an escape is safe.
_BREAKS: Final = re.compile("[\x85\u2028\u2029]")

# Lines, such as those of a certificate, that have the same form in every style; a block is the easiest to read.
_PLAIN_LINES: Final = re.compile("(?:[!-~](?:[ -~]*[!-~])?\\n)+(?:[!-~](?:[ -~]*[!-~])?)?")


def encode(message: Message, printer: Printer) -> bytes:
    """Write YAML.

    A number in a Struct keeps its value only if whole and of 32 bits: Envoy 1.40 takes others as text (ENVOY.md E51), and so
    does fsxds.
    """
    return encode_plain((printer.to_plain(message),))


def encode_plain(documents: Sequence[PlainValue]) -> bytes:
    """Write documents; for numbers see `encode`."""
    text: str = yaml.dump_all(
        documents,
        Dumper=_Dumper,
        explicit_start=len(documents) > 1,
        sort_keys=False,
        allow_unicode=True,
        width=10_000,
    )
    return text.encode()


class _Dumper(CSafeDumper):
    """Quotes what Envoy would misread."""

    def ignore_aliases(self, data: object) -> bool:
        """Write equal parts without anchors."""
        return True


def _text_node(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    if _PLAIN_LINES.fullmatch(text):
        style: str | None = "|"
    else:
        style = (
            '"' if may_lose_breaks(text) or _BREAKS.search(text) else None if type(resolve_plain(text)) is str else "'"
        )
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _number_node(dumper: _Dumper, number: float) -> yaml.ScalarNode:
    # Within a Struct Envoy would read 5.0 as a text; a number field takes either. No whole number has the sign of -0.0.
    if number.is_integer() and -LARGEST_INTEGER - 1 <= number <= LARGEST_INTEGER and str(number) != "-0.0":
        return dumper.represent_int(int(number))
    return dumper.represent_float(number)


_Dumper.add_representer(str, _text_node)
_Dumper.add_representer(float, _number_node)
