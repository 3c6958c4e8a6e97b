"""Protobuf's text format, read into the plain values of JSON.

Its message type comes from a `# proto-message:` header, the fields, or the file's name, in this order. Protobuf's own
reader stops at the first mistake, quotes whole lines, secrets included, and takes a time that grows with the square of a
line's length. This one goes on after mistakes; the converter checks values. Source:
https://protobuf.dev/reference/protobuf/textformat-spec/
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias, cast

from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.convert_lenient import empty_value
from fsxds.api.fields import (
    ANY,
    DURATION,
    FIELD_MASK,
    LIST_VALUE,
    SPECIAL_JSON,
    STRUCT,
    TIMESTAMP,
    VALUE,
    WRAPPERS,
    FieldNames,
    camel_case,
    is_map,
    map_parts,
    may_quote_type,
    owner_of,
)
from fsxds.api.printing import Printer
from fsxds.formats.decoded import (
    LONGEST_TYPE,
    MAX_DEPTH,
    Decoded,
    PlainDocument,
    UnreadableError,
    read_text,
    shown,
    too_deep,
    unreadable,
)
from fsxds.formats.textproto_tokens import (
    CLOSERS,
    END,
    OPENERS,
    Cursor,
    ReadValue,
    StopError,
    is_name,
    scalar_reader,
)
from fsxds.model.errors import ApiError
from fsxds.model.resource_types import PREFIX
from fsxds.model.values import Fault, PlainValue, TypeUrl

RESPONSE: Final = "envoy.service.discovery.v3.DiscoveryResponse"
WRAPPER: Final = "envoy.service.discovery.v3.Resource"

_HEADER: Final = re.compile(r"^#\s*proto-message:\s*([\w.]+)\s*$", re.MULTILINE)
_RESPONSE_FIELDS: Final = frozenset(("resources", "version_info", "type_url"))

_BRACES: Final = {"{": "}", "<": ">"}

Fields: TypeAlias = dict[str, PlainValue]
"""Fields by name, in their JSON form already."""


def decode(content: bytes, catalogue: Catalogue, message_type: str | None) -> Decoded:
    """Read a file; `message_type` counts after a header and the fields."""
    try:
        text = read_text(content)
        cursor = Cursor(text)
        outline = outline_of(cursor)
        if outline.too_deep_at is not None:
            return unreadable(too_deep(*outline.too_deep_at))
        if cursor.word == END:
            return Decoded((PlainDocument(None, 1),))
        descriptor = _descriptor(text, outline, catalogue, message_type)
    except UnreadableError as error:
        return unreadable(error.fault)
    value = TextprotoReader(cursor, catalogue).read(descriptor)
    faults = cursor.faults()
    if value is None or faults:
        return Decoded((), faults)
    if descriptor.full_name == RESPONSE:
        # In text format, an empty file is the only way to write "none".
        value.setdefault("resources", [])
    elif descriptor.full_name != WRAPPER:
        value = {"@type": PREFIX + descriptor.full_name, **value}
    return Decoded((PlainDocument(value, outline.first_line, outline.lines_of("resources")),))


def encode(message: Message, printer: Printer) -> bytes:  # noqa: ARG001 - one signature for all
    """Write text, and an Any's content if the message's pool knows it."""
    # The stubs give a descriptor's pool a wider type than the functions that take one.
    pool = cast("DescriptorPool", message.DESCRIPTOR.file.pool)
    return text_format.MessageToString(message, as_utf8=True, descriptor_pool=pool).encode()


# The message type


@dataclass(frozen=True, slots=True)
class Outline:
    """Top-level fields with lines; the place of too deep nesting, or None."""

    fields: tuple[tuple[str, int], ...]
    too_deep_at: tuple[int, int] | None = None

    @property
    def names(self) -> frozenset[str]:
        """The fields' names."""
        return frozenset(name for name, _ in self.fields)

    @property
    def first_line(self) -> int:
        """The first field's line, or 1."""
        return self.fields[0][1] if self.fields else 1

    def lines_of(self, name: str) -> tuple[int, ...]:
        """Return a field's lines."""
        return tuple(line for field, line in self.fields if field == name)


def outline_of(cursor: Cursor) -> Outline:
    """Ignore mistakes."""
    words = cursor.words
    fields: list[tuple[str, int]] = []
    level = 0
    for number, word in enumerate(words):
        if word in OPENERS:
            level += 1
            if level > MAX_DEPTH:
                return Outline(tuple(fields), cursor.place(number))
        elif word in CLOSERS:
            level = max(level - 1, 0)
        elif level == 0 and is_name(word) and words[number + 1] in (":", "{", "<"):
            fields.append((word, cursor.place(number)[0]))
    return Outline(tuple(fields))


def _descriptor(text: str, outline: Outline, catalogue: Catalogue, hint: str | None) -> Descriptor:
    header = _HEADER.search(text)
    if header:
        return _known(header[1], catalogue, text.count("\n", 0, header.start()) + 1)
    names = outline.names
    if "resource" in names:  # no resource has this field
        return _known(WRAPPER, catalogue, outline.first_line)
    if hint is None or "resources" in names or (names & _RESPONSE_FIELDS and not _fits(names, hint, catalogue)):
        if names & _RESPONSE_FIELDS:
            return _known(RESPONSE, catalogue, outline.first_line)
        fact = "nothing says which message this is"
        remedy = (
            'begin the file with "# proto-message: envoy.config.cluster.v3.Cluster", or name it such as clusters.txtpb'
        )
        raise UnreadableError(Fault("missing-type", fact, remedy, (), outline.first_line, 1))
    return _known(hint, catalogue, outline.first_line)


def _fits(names: frozenset[str], message_type: str, catalogue: Catalogue) -> bool:
    if not catalogue.knows(message_type):
        return False
    return names <= set(catalogue.message_class(message_type).DESCRIPTOR.fields_by_name)


def _known(message_type: str, catalogue: Catalogue, line: int) -> Descriptor:
    descriptor = catalogue.descriptor(message_type)
    if descriptor is not None:
        return descriptor
    similar = catalogue.similar(message_type)
    remedy = f"did you mean {similar}?" if similar else "use a type that this API has (--envoy, --descriptors)"
    is_shown = similar is not None or may_quote_type(message_type)
    fact = f"there is no message type {shown(message_type, LONGEST_TYPE) if is_shown else 'of this name'}"
    raise UnreadableError(Fault("unknown-type", fact, remedy, (), line, 1))


# The fields of messages


@dataclass(frozen=True, slots=True)
class _FieldReader:
    """A map's pair is an object of one key."""

    field: FieldDescriptor
    read: ReadValue
    is_map: bool


class TextprotoReader:
    """Reads one text to its end."""

    def __init__(self, cursor: Cursor, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._cursor = cursor
        self._readers: dict[str, dict[str, _FieldReader]] = {}
        self._names = FieldNames(catalogue)

    def read(self, descriptor: Descriptor) -> Fields | None:
        """Return fields in JSON form, or None if broken off."""
        try:
            return self._fields(descriptor, END)
        except StopError:
            return None

    def _fields(self, descriptor: Descriptor | None, closer: str) -> Fields:
        cursor = self._cursor
        fields: Fields = {}
        readers = {} if descriptor is None else self._readers_of(descriptor)
        while not cursor.skip(closer):
            word = cursor.word
            if word[:1] == "[" and len(word) > 1:
                self._packed(fields, descriptor)
            elif is_name(word):
                reader = readers.get(word)
                if reader is None:
                    self._unknown_field(word, descriptor)
                else:
                    cursor.next += 1
                    self._field(fields, reader)
            elif word == END:
                raise cursor.stop(f"expected {shown(closer)}", "add it, or close the bracket above")
            else:
                raise cursor.stop("expected the name of a field", "write a field name, or close the bracket above")
            if cursor.word in (",", ";"):
                cursor.next += 1
        return fields

    def _readers_of(self, descriptor: Descriptor) -> dict[str, _FieldReader]:
        readers = self._readers.get(descriptor.full_name)
        if readers is None:
            readers = self._readers[descriptor.full_name] = {}
            for field in descriptor.fields:
                readers[field.name] = _FieldReader(field, self._value_reader(field), is_map(field))
        return readers

    def _value_reader(self, field: FieldDescriptor) -> ReadValue:
        if field.message_type is None:
            return scalar_reader(field)
        if is_map(field):
            return lambda _: self._pair(field)
        descriptor = field.message_type
        return lambda cursor: self._plain(cursor.next, self._braced(descriptor), descriptor)

    def _field(self, fields: Fields, reader: _FieldReader) -> None:
        cursor, name = self._cursor, reader.field.name
        has_colon = cursor.skip(":")
        if reader.field.is_repeated and cursor.word[:1] == "[":
            values = self._list(reader)
        elif has_colon or reader.field.message_type is not None:
            values = [reader.read(cursor)]
        else:
            raise cursor.stop('expected ":"', "add it, or close the bracket above")
        if reader.is_map:
            entries = cast("Fields", fields.setdefault(name, {}))
            for pair in cast("list[Fields]", values):
                entries.update(pair)
        elif reader.field.is_repeated:
            cast("list[PlainValue]", fields.setdefault(name, [])).extend(values)
        elif name in fields:
            fact = f"{shown(name)} of {shown(owner_of(reader.field).name)} is already set"
            cursor.report("duplicate-field", fact, "keep one of them", back=1)
        else:
            fields[name] = values[0]

    def _list(self, reader: _FieldReader) -> list[PlainValue]:
        """`[NAME]` is a list of one."""
        cursor = self._cursor
        if len(cursor.word) > 1:
            cursor.words[cursor.next] = cursor.word[1:-1].strip()
            return [reader.read(cursor)]
        cursor.next += 1
        values: list[PlainValue] = []
        while not cursor.skip("]"):
            values.append(reader.read(cursor))
            if not cursor.skip(",") and cursor.word != "]":
                raise cursor.stop('expected "]"', "add it, or separate the values by commas")
        return values

    def _plain(self, first: int, fields: Fields, descriptor: Descriptor) -> PlainValue:
        if descriptor.full_name == ANY:
            return self._any(fields, first)
        form = plain_of(descriptor)
        return fields if form is None else form(fields)

    def _pair(self, field: FieldDescriptor) -> PlainValue:
        key_field, value_field = map_parts(field)
        fields = self._braced(field.message_type)
        key = fields.get("key", _default(key_field))
        name = str(key).lower() if isinstance(key, bool) else str(key)
        return {name: fields["value"] if "value" in fields else _default(value_field)}

    def _braced(self, descriptor: Descriptor | None) -> Fields:
        cursor = self._cursor
        closer = _BRACES.get(cursor.word)
        if closer is None:
            raise cursor.stop('expected "{"', "write the fields of a message in braces")
        cursor.next += 1
        return self._fields(descriptor, closer)

    def _packed(self, fields: Fields, descriptor: Descriptor | None) -> None:
        """`[type.googleapis.com/the.Type] { ... }`, in an Any only."""
        cursor = self._cursor
        type_url = "".join(cursor.word[1:-1].split())
        if descriptor is not None and descriptor.full_name != ANY:
            fact = f"{shown(descriptor.name)} has no extensions"
            cursor.report("unknown-field", fact, "[type.googleapis.com/…] is allowed in fields of type Any only")
        elif "/" not in type_url:
            cursor.report("wrong-value", "this type URL has no slash", "write [type.googleapis.com/the.type.Name]")
        elif "@type" in fields:
            cursor.report("duplicate-field", "this Any has a content already", "keep one of them")
        cursor.next += 1
        if cursor.skip(":") and cursor.word not in _BRACES:
            cursor.skip_scalar()
            return
        inner = self._catalogue.descriptor(type_url.rpartition("/")[2])
        first = cursor.next
        content = self._braced(inner)
        fields["@type"] = type_url
        if inner is not None and inner.full_name in SPECIAL_JSON:
            fields["value"] = self._plain(first, content, inner)
        else:
            fields.update(content)

    def _any(self, fields: Fields, first: int) -> Fields:
        """An Any may be written as `type_url` and `value`."""
        if "@type" in fields or not fields:
            return fields
        type_url, packed = str(fields.get("type_url", "")), base64.b64decode(str(fields.get("value", "")))
        name = type_url.rpartition("/")[2]
        if not type_url or not self._catalogue.knows(name):
            # The converter reports the unknown type.
            return {"@type": type_url} if type_url or packed else {}
        try:
            plain: Fields = json.loads(Printer(self._catalogue).any_json(TypeUrl(type_url), packed))
        except ApiError:
            name = name if may_quote_type(name) else "such message"
            back = self._cursor.next - first
            self._cursor.report("broken-message", f"the bytes are no {name}", "write the file again", back=back)
            return {}
        return plain

    def _unknown_field(self, name: str, descriptor: Descriptor | None) -> None:
        if descriptor is not None:
            self._cursor.report("unknown-field", *self._names.unknown(descriptor, name))
        self._cursor.next += 1
        self._cursor.skip(":")
        cursor = self._cursor
        if cursor.word in ("{", "<", "["):
            cursor.skip_brackets()
        elif cursor.word in ("}", ">", "]", END):
            raise cursor.stop("expected a value", "write one, or remove the field")
        else:
            cursor.skip_scalar()


def _default(field: FieldDescriptor) -> PlainValue:
    if field.message_type is not None:
        form: Callable[[Fields], PlainValue] | None = plain_of(field.message_type)
        return {} if form is None else form({})
    default: PlainValue | bytes = field.default_value
    return "" if isinstance(default, bytes) else default


# The JSON forms of messages


def plain_of(descriptor: Descriptor) -> Callable[[Fields], PlainValue] | None:
    """Return the conversion to JSON; None if fields are its JSON."""
    if descriptor.full_name in WRAPPERS:
        default = empty_value(descriptor.full_name)
        return lambda fields: fields.get("value", default)
    return _FORMS.get(descriptor.full_name)


def _duration(fields: Fields) -> PlainValue:
    seconds, nanos = fields.get("seconds", 0), fields.get("nanos", 0)
    if type(seconds) is int and type(nanos) is int and seconds >= 0 and 0 <= nanos < 10**9:
        return f"{seconds}.{nanos:09}s" if nanos else f"{seconds}s"
    return dict(fields)


def _field_mask(fields: Fields) -> PlainValue:
    paths = fields.get("paths", [])
    return ",".join(map(camel_case, map(str, paths))) if isinstance(paths, list) else ""


_FORMS: Mapping[str, Callable[[Fields], PlainValue]] = MappingProxyType(
    {
        DURATION: _duration,
        FIELD_MASK: _field_mask,
        LIST_VALUE: lambda fields: fields.get("values", []),
        STRUCT: lambda fields: fields.get("fields", {}),
        TIMESTAMP: dict,
        VALUE: lambda fields: next(iter(fields.values()), None),
    }
)
