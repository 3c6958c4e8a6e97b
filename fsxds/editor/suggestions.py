"""Completions of fields, enum values, extension types and names.

The text is read with a mark in the word at the position, so it may be incomplete or wrong.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import PurePosixPath
from typing import TypeAlias

from google.protobuf.descriptor import FieldDescriptor

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, SPECIAL_JSON, camel_case, enum_of, fields_by_name, is_map
from fsxds.editor.api_places import ApiPlaces, Expectation, Role, named_type
from fsxds.editor.api_words import ApiWords, is_switch, siblings, type_words
from fsxds.editor.outline import Form, OutlineNode, Trail, read_outline
from fsxds.editor.text_positions import Span
from fsxds.model.resource_types import PREFIX, RESOURCE_TYPES
from fsxds.model.values import TypeUrl
from fsxds.snapshots.layer_documents import DELETE, PATCH
from fsxds.tools.packed_places import ANYTHING, PackedTypes, packable_types

MOST_SUGGESTIONS = 1000

# From a private use area: it is in no text, and counts as part of a word.
_MARK = "\ue0f5"

_WORD_BEFORE = re.compile(r"[^\s,\[\]{}\"'#]*\Z")
_WORD_AFTER = re.compile(r"[^\s,\[\]{}\"':#]*")
_NEXT_IS_COLON = re.compile(r"[\"']?[ \t]*:")
_CAMEL = re.compile(r"[a-z]+[A-Z]\w*")
_INDENT = "  "


class SuggestionSort(Enum):
    """The kind of suggestion."""

    FIELD = "field"
    VALUE = "value"
    TYPE = "type"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One suggestion.

    Attributes:
        label: shown and typed.
        text: replaces the word.
        snippet: with the protocol's placeholders, or empty.
        rank: lower ones come first.
        field: the field, or the value's.
    """

    label: str
    sort: SuggestionSort
    text: str
    snippet: str = ""
    detail: str = ""
    rank: int = 5
    is_deprecated: bool = False
    field: FieldDescriptor | None = None


@dataclass(frozen=True, slots=True)
class Suggestions:
    """Suggestions for a span."""

    span: Span
    found: tuple[Suggestion, ...]


Names: TypeAlias = Mapping[TypeUrl, list[str]]
"""The names that may be mentioned."""


@dataclass(frozen=True, slots=True)
class _WordPlace:
    """The context of the mark.

    `quote` is open before the word; `is_json`: all text must be quoted; `is_alone`: at most dashes precede it.
    """

    span: Span
    trail: Trail
    quote: str
    is_json: bool
    is_flow: bool
    indent: str
    has_colon: bool
    is_camel: bool
    is_alone: bool


class Completion:
    """Suggests completions."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._words = catalogue.once(ApiWords)

    def suggest(self, text: str, index: int, path: PurePosixPath, names: Names) -> Suggestions:
        """Return suggestions at an index."""
        place = _place(text, index, is_json=path.suffix.lower() == ".json")
        if place is None:
            return Suggestions((index, index), ())
        places = ApiPlaces(self._catalogue, path)
        expected = places.along(place.trail)
        found = tuple(self._suggest(place, places, expected, names))
        return Suggestions(place.span, found[:MOST_SUGGESTIONS])

    def _suggest(
        self, place: _WordPlace, places: ApiPlaces, expected: tuple[Expectation, ...], names: Names
    ) -> Iterator[Suggestion]:
        last = place.trail.steps[-1] if place.trail.steps else None
        if last is not None and last.member is not None and _MARK in last.member.key:
            yield from self._keys(place, places, expected[-2], last.holder)
            return
        here = expected[-1]
        keyed = (Role.MESSAGE, Role.DOCUMENT, Role.ELEMENT, Role.ANY, Role.LAYER, Role.PATCHES)
        if here.role in keyed and not place.is_flow:
            # A word alone on its line, or after a dash, may become a key.
            if last is None or last.member is None or place.is_alone:
                yield from self._keys(place, places, here, None)
            return
        yield from self._values(place, places, here, names)

    # Keys

    def _keys(
        self, place: _WordPlace, places: ApiPlaces, holder: Expectation, node: OutlineNode | None
    ) -> Iterator[Suggestion]:
        present = {one.key for one in node.members if _MARK not in one.key} if node is not None else set()
        if holder.role in (Role.DOCUMENT, Role.ELEMENT) and not place.has_colon:
            if holder.role is Role.DOCUMENT and not present:
                snippet = _opened(place, "resources", "- ", "[$0]")
                yield Suggestion("resources", SuggestionSort.FIELD, self._key(place, "resources"), snippet, rank=0)
            if holder.row is not None and self._catalogue.knows(holder.row.message_type):
                descriptor = self._catalogue.descriptor(holder.row.message_type)
                yield from self._fields(place, replace(holder, role=Role.MESSAGE, descriptor=descriptor), present)
        words = {Role.LAYER: (DELETE, PATCH), Role.PATCHES: tuple(row.noun for row in RESOURCE_TYPES)}.get(
            holder.role, ()
        )
        for word in words:
            if word not in present:
                yield Suggestion(word, SuggestionSort.FIELD, self._key(place, word))
        if holder.role in (Role.DOCUMENT, Role.ELEMENT, Role.ANY) and "@type" not in present:
            yield self._type_key(place, rank=0 if holder.row is None else 6)
        if holder.role is Role.MESSAGE:
            if holder.is_packed and "@type" not in present:
                yield self._type_key(place, rank=0)
            yield from self._fields(place, holder, present)

    def _type_key(self, place: _WordPlace, rank: int) -> Suggestion:
        text = '"@type": ' if place.quote == "" else "@type"
        snippet = "" if place.has_colon else f'{text}"$0"' if place.is_json and not place.quote else ""
        return Suggestion("@type", SuggestionSort.FIELD, text, snippet, "the type of this message", rank)

    def _fields(self, place: _WordPlace, holder: Expectation, present: set[str]) -> Iterator[Suggestion]:
        message = holder.descriptor
        if message is None:
            return
        if message.full_name in SPECIAL_JSON:
            yield Suggestion("value", SuggestionSort.FIELD, self._key(place, "value"))
            return
        known = fields_by_name(message)
        taken = {known[name].name for name in present if name in known}
        for field in message.fields:
            is_out = field.name in taken or not taken.isdisjoint(siblings(field)) or self._words.is_disallowed(field)
            if is_out or field.name.startswith("hidden_envoy_deprecated"):
                continue
            is_deprecated = field.GetOptions().deprecated
            rank = 9 if is_deprecated else 1 if self._words.is_required(field) else 5
            label = camel_case(field.name) if place.is_camel else field.name
            yield Suggestion(
                label,
                SuggestionSort.FIELD,
                self._key(place, label),
                self._snippet(place, label, field),
                type_words(field),
                rank,
                is_deprecated,
                field,
            )

    def _key(self, place: _WordPlace, name: str) -> str:
        if place.has_colon or place.quote:
            return name
        return f"{json.dumps(name)}: " if place.is_json else f"{name}: "

    def _snippet(self, place: _WordPlace, label: str, field: FieldDescriptor) -> str:
        message = field.message_type
        is_object = is_map(field) or (message is not None and message.full_name not in SPECIAL_JSON - {ANY})
        if is_map(field):
            return _opened(place, label, "$0", "{$0}")
        if field.is_repeated:
            required = self._required(place, field) if is_object else []
            inner = f"\n{place.indent}{_INDENT}".join(required) or "$0"
            return _opened(place, label, f"- {inner}", "[{$0}]" if is_object else "[$0]")
        if not is_object:
            return ""
        required = self._required(place, field)
        lines = f"\n{place.indent}{_INDENT}".join(required) or "$0"
        return _opened(place, label, f"{_INDENT}{lines}", "{$0}")

    def _required(self, place: _WordPlace, field: FieldDescriptor) -> list[str]:
        message = field.message_type
        if message is None:
            return []
        if message.full_name == ANY:
            return ['"@type": $1']
        fields = [one for one in message.fields if self._words.is_required(one)]
        extension = message.fields_by_name.get("typed_config")
        if extension is not None and "name" in message.fields_by_name:
            fields = [message.fields_by_name["name"], extension]
        deeper = f"\n{place.indent}{_INDENT}{_INDENT}"
        return [
            f'{one.name}:{deeper}"@type": ${number}' if _is_any(one) else f"{one.name}: ${number}"
            for number, one in enumerate(fields, 1)
            if _is_any(one) or not _holds_more(one)
        ]

    # Values

    def _values(self, place: _WordPlace, places: ApiPlaces, here: Expectation, names: Names) -> Iterator[Suggestion]:
        if here.role is Role.TYPE_URL:
            for rank, name in enumerate(self._types(here, places)):
                url = PREFIX + name
                yield Suggestion(
                    url, SuggestionSort.TYPE, _quoted(place, url), detail=name.rpartition(".")[2], rank=rank
                )
            return
        field = here.field
        if field is None or here.role not in (Role.SCALAR, Role.LIST):
            return
        mentioned = named_type(here)
        if mentioned is not None:
            noun = mentioned.rpartition(".")[2]
            for name in names.get(mentioned, ()):
                yield Suggestion(name, SuggestionSort.NAME, _quoted(place, name), detail=noun, rank=1, field=field)
        elif field.enum_type is not None:
            yield from self._enum_values(place, field)
        elif is_switch(field):
            yield from (Suggestion(word, SuggestionSort.VALUE, word, field=field) for word in ("true", "false"))
        elif field.name == "name":
            yield from self._extension_names(place, places, field)

    def _enum_values(self, place: _WordPlace, field: FieldDescriptor) -> Iterator[Suggestion]:
        disallowed = self._words.disallowed_values(enum_of(field))
        for value in enum_of(field).values:
            if value.number not in disallowed:
                rank = 9 if value.GetOptions().deprecated else 5
                yield Suggestion(value.name, SuggestionSort.VALUE, _quoted(place, value.name), rank=rank, field=field)

    def _extension_names(self, place: _WordPlace, places: ApiPlaces, field: FieldDescriptor) -> Iterator[Suggestion]:
        features = self._catalogue.features
        holder = places.along(replace(place.trail, steps=place.trail.steps[:-1]))[-1]
        for category in holder.extension_place if features is not None else ():
            for name in sorted(features.names(category)) if features is not None else ():
                yield Suggestion(name, SuggestionSort.VALUE, _quoted(place, name), detail=category, field=field)

    def _types(self, here: Expectation, places: ApiPlaces) -> list[str]:
        if here.types:
            return list(here.types)
        if here.field is None:
            return list(places.resource_types())
        packed = self._catalogue.once(PackedTypes)
        fitting = {name for word in here.place if word != ANYTHING for name in packed.types(word)}
        return sorted(fitting) or list(packable_types(self._catalogue))


def _is_any(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.full_name == ANY and not field.is_repeated


def _holds_more(field: FieldDescriptor) -> bool:
    message = field.message_type
    return field.is_repeated or (message is not None and message.full_name not in SPECIAL_JSON)


def _quoted(place: _WordPlace, text: str) -> str:
    if place.quote:
        return text
    is_plain = re.fullmatch(r"[A-Za-z_][\w./-]*", text) and text.lower() not in _WORDS_OF_YAML
    return text if is_plain and not place.is_json else json.dumps(text, ensure_ascii=False)


_WORDS_OF_YAML = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


def _opened(place: _WordPlace, label: str, block: str, flow: str) -> str:
    if place.has_colon or place.quote:
        return ""
    if place.is_json or place.is_flow:
        return f"{json.dumps(label) if place.is_json else label}: {flow}"
    return f"{label}:\n{place.indent}{block}"


def _place(text: str, index: int, *, is_json: bool) -> _WordPlace | None:
    """Mark the word; None outside of values."""
    before = _WORD_BEFORE.search(text, max(0, index - 500), index)
    after = _WORD_AFTER.match(text, index)
    start, end = before.start() if before else index, after.end() if after else index
    quote = text[start - 1 : start] if text[start - 1 : start] in ("'", '"') else ""
    marked = f"{text[:index]}{_MARK}{text[index:]}"
    trail = read_outline(marked).trail_to(index)
    if trail is None:
        return None
    last = trail.steps[-1] if trail.steps else None
    is_key = trail.is_key and last is not None and last.member is not None and _MARK in last.member.key
    value = trail.value
    if not is_key and (value is None or value.form is not Form.SCALAR or _MARK not in value.text):
        return None
    if value is not None and not is_key and value.quote in ("|", ">"):
        return None
    holder = last.holder if last is not None else None
    is_flow = holder is not None and holder.column < 0
    column = holder.column if is_key and holder is not None else _column(text, start)
    return _WordPlace(
        (start, end),
        trail,
        quote,
        is_json,
        is_flow,
        " " * max(0, column),
        is_key and _NEXT_IS_COLON.match(text, end) is not None,
        _is_camel(text),
        not text[start - _column(text, start) : start].strip(" \t-"),
    )


def _column(text: str, index: int) -> int:
    return index - max(text.rfind("\n", 0, index), text.rfind("\r", 0, index)) - 1


def _is_camel(text: str) -> bool:
    counts: Counter[bool] = Counter()
    for key in re.findall(r"[\"']?(\w+)[\"']?[ \t]*:(?:\s|$)", text[:200_000]):
        if "_" in key:
            counts[False] += 1
        elif _CAMEL.fullmatch(key):
            counts[True] += 1
    return counts[True] > counts[False]
