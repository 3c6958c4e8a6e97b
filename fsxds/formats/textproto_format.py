"""Protobuf text format: the message is named by a header, by its fields, or by the file's name.

Read text format into plain values, as a JSON file would hold them, guided by the message types.

Protobuf's own reader stops at the first mistake, quotes the whole line in it, secrets included, and takes a time that grows
with the square of the length of a line. This one reads on, and leaves it to the converter to judge values.
Source: https://protobuf.dev/reference/protobuf/textformat-spec/

Messages of text format, read field by field, in the form that JSON gives them.

The outline of a text format file: its top-level fields and their lines, without knowing any message.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, cast

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
    is_map,
    map_parts,
    owner_of,
)
from fsxds.api.printing import Printer
from fsxds.api.quotes import may_quote_type
from fsxds.errors import ApiError
from fsxds.formats.decoded import (
    LONGEST_TYPE,
    MAX_DEPTH,
    Decoded,
    PlainDocument,
    UnreadableError,
    shown,
    too_deep,
    unreadable,
)
from fsxds.formats.text import Places, read_text
from fsxds.formats.textproto_tokens import END, Cursor, StopError, Value, is_name, scalar_reader
from fsxds.resource_types import PREFIX
from fsxds.values import Fault, PlainValue, TypeUrl

Fields = dict[str, PlainValue]
"""A message's fields by name, each in its own JSON form already."""


class BrokenAnyError(ValueError):
    """The bytes of an Any are no message of its type."""


def plain_of(descriptor: Descriptor) -> Callable[[Fields], PlainValue] | None:
    """Return what turns a message's fields into its JSON, None where the fields are its JSON."""
    if descriptor.full_name in WRAPPERS:
        default = empty_value(descriptor.full_name)
        return lambda fields: fields.get("value", default)
    return _FORMS.get(descriptor.full_name)


def packed_plain(fields: Fields, catalogue: Catalogue) -> Fields:
    """Return the JSON of an Any that is written as `type_url` and `value`.

    Raises:
        BrokenAnyError: the bytes are no message of the type.
    """
    type_url, packed = str(fields.get("type_url", "")), base64.b64decode(str(fields.get("value", "")))
    if not type_url or not catalogue.knows(type_url.rpartition("/")[2]):
        # Whoever reads on says that there is no such type.
        return {"@type": type_url} if type_url or packed else {}
    try:
        plain: Fields = json.loads(Printer(catalogue).any_json(TypeUrl(type_url), packed))
    except ApiError as error:
        raise BrokenAnyError from error
    return plain


def _duration(fields: Fields) -> PlainValue:
    seconds, nanos = fields.get("seconds", 0), fields.get("nanos", 0)
    if type(seconds) is int and type(nanos) is int and seconds >= 0 and 0 <= nanos < 10**9:
        return f"{seconds}.{nanos:09}s" if nanos else f"{seconds}s"
    return dict(fields)


def _field_mask(fields: Fields) -> PlainValue:
    paths = fields.get("paths", [])
    return ",".join(map(_camel_case, map(str, paths))) if isinstance(paths, list) else ""


def _camel_case(path: str) -> str:
    first, *others = path.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def _value(fields: Fields) -> PlainValue:
    return next(iter(fields.values()), None)


_FORMS: Mapping[str, Callable[[Fields], PlainValue]] = MappingProxyType(
    {
        DURATION: _duration,
        FIELD_MASK: _field_mask,
        LIST_VALUE: lambda fields: fields.get("values", []),
        STRUCT: lambda fields: fields.get("fields", {}),
        TIMESTAMP: dict,
        VALUE: _value,
    }
)

_CLOSERS = {"{": "}", "<": ">"}


@dataclass(frozen=True, slots=True)
class _Row:
    """How a field is read. A pair of a map is read as an object of one key."""

    field: FieldDescriptor
    read: Value
    is_map: bool


class TextprotoReader:
    """Reads one text, to its end where it can; what is wrong with it is in `faults`."""

    def __init__(self, text: str, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._cursor = Cursor(text)
        self._depth = 0
        self._rows: dict[str, dict[str, _Row]] = {}
        self._names = FieldNames(catalogue)

    def read(self, descriptor: Descriptor) -> Fields | None:
        """Return the fields of the one message of the text in JSON form, None where the text breaks off."""
        try:
            return self._fields(descriptor, END)
        except StopError:
            return None

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What is wrong, each with its place."""
        return self._cursor.faults()

    def _fields(self, descriptor: Descriptor | None, closer: str) -> Fields:
        """Read fields up to the closing sign; those of an unknown message to no purpose but to get behind them."""
        cursor = self._cursor
        fields: Fields = {}
        rows = None if descriptor is None else self._rows_of(descriptor)
        while not cursor.skip(closer):
            word = cursor.word
            if word[:1] == "[" and len(word) > 1:
                self._packed(fields, descriptor)
            elif word != END and is_name(word):
                row = rows.get(word) if rows else None
                if row is None:
                    self._unknown_field(word, descriptor)
                else:
                    cursor.next += 1
                    self._field(fields, row)
            elif word == END:
                raise cursor.stop(f"{shown(closer)} is due here", "add it, or close what is open above")
            else:
                raise cursor.stop("the name of a field is due here", "write a field name, or close what is open above")
            if cursor.word in (",", ";"):
                cursor.next += 1
        return fields

    def _rows_of(self, descriptor: Descriptor) -> dict[str, _Row]:
        rows = self._rows.get(descriptor.full_name)
        if rows is None:
            rows = self._rows[descriptor.full_name] = {}
            rows.update((field.name, _Row(field, self._value(field), is_map(field))) for field in descriptor.fields)
        return rows

    def _value(self, field: FieldDescriptor) -> Value:
        if field.message_type is None:
            return scalar_reader(field, self._cursor)
        return self._pair(field) if is_map(field) else self._message(field.message_type)

    def _field(self, fields: Fields, row: _Row) -> None:
        cursor, name = self._cursor, row.field.name
        has_colon = cursor.skip(":")
        if row.field.is_repeated and cursor.word[:1] == "[":
            values = self._list(row)
        elif has_colon or row.field.message_type is not None:
            values = [row.read()]
        else:
            raise cursor.stop('":" is due here', "add it, or close what is open above")
        if row.is_map:
            entries = cast("Fields", fields.setdefault(name, {}))
            for pair in cast("list[Fields]", values):
                entries.update(pair)
        elif row.field.is_repeated:
            cast("list[PlainValue]", fields.setdefault(name, [])).extend(values)
        elif name in fields:
            fact = f"{shown(name)} of {shown(owner_of(row.field).name)} is already set"
            cursor.complain("duplicate-field", fact, "keep one of them", back=1)
        else:
            fields[name] = values[0]

    def _list(self, row: _Row) -> list[PlainValue]:
        """Read `[value, value]`; the one word `[NAME]` is a list of one name."""
        cursor = self._cursor
        if len(cursor.word) > 1:
            cursor.words[cursor.next] = cursor.word[1:-1].strip()
            return [row.read()]
        cursor.next += 1
        values: list[PlainValue] = []
        while not cursor.skip("]"):
            values.append(row.read())
            if not cursor.skip(",") and cursor.word != "]":
                raise cursor.stop('"]" is due here', "add it, or separate the values by commas")
        return values

    def _message(self, descriptor: Descriptor) -> Value:
        def read() -> PlainValue:
            first = self._cursor.next
            return self._plain(self._braced(descriptor), descriptor, first)

        return read

    def _plain(self, fields: Fields, descriptor: Descriptor, first: int) -> PlainValue:
        """Return the JSON of a message that began at the word of the number `first`."""
        if descriptor.full_name == ANY:
            return self._any(fields, first)
        form = plain_of(descriptor)
        return fields if form is None else form(fields)

    def _pair(self, field: FieldDescriptor) -> Value:
        key_field, value_field = map_parts(field)
        pair = cast("Descriptor", field.message_type)
        default = _default(value_field)

        def read() -> PlainValue:
            fields = self._braced(pair)
            key = fields.get("key", _default(key_field))
            name = str(key).lower() if isinstance(key, bool) else str(key)
            return {name: fields.get("value", default)}

        return read

    def _braced(self, descriptor: Descriptor | None) -> Fields:
        cursor = self._cursor
        closer = _CLOSERS.get(cursor.word)
        if closer is None:
            raise cursor.stop('"{" is due here', "write the fields of a message in braces")
        if self._depth >= MAX_DEPTH:
            fact = f"values are nested more than {MAX_DEPTH} levels deep"
            raise cursor.stop(fact, "write fewer levels; no Envoy API needs as many", "too-deep")
        cursor.next += 1
        self._depth += 1
        fields = self._fields(descriptor, closer)
        self._depth -= 1
        return fields

    def _packed(self, fields: Fields, descriptor: Descriptor | None) -> None:
        """Read `[type.googleapis.com/the.Type] { … }`, which may stand in an Any only."""
        cursor = self._cursor
        type_url = "".join(cursor.word[1:-1].split())
        if descriptor is not None and descriptor.full_name != ANY:
            fact = f"{shown(descriptor.name)} has no extensions"
            cursor.complain("unknown-field", fact, "[type.googleapis.com/…] may stand in fields of type Any only")
        elif "/" not in type_url:
            cursor.complain("wrong-value", "this type URL has no slash", "write [type.googleapis.com/the.type.Name]")
        elif "@type" in fields:
            cursor.complain("duplicate-field", "this Any has a content already", "keep one of them")
        cursor.next += 1
        if cursor.skip(":") and cursor.word not in _CLOSERS:
            cursor.skip_scalar()
            return
        inner = self._catalogue.descriptor(type_url.rpartition("/")[2])
        first = cursor.next
        content = self._braced(inner)
        fields["@type"] = type_url
        if inner is not None and inner.full_name in SPECIAL_JSON:
            fields["value"] = self._plain(content, inner, first)
        else:
            fields.update(content)

    def _any(self, fields: Fields, first: int) -> Fields:
        if "@type" in fields or not fields:
            return fields
        try:
            return packed_plain(fields, self._catalogue)
        except BrokenAnyError:
            name = str(fields.get("type_url", "")).rpartition("/")[2]
            name = name if may_quote_type(name) else "such message"
            back = self._cursor.next - first
            self._cursor.complain("broken-message", f"the bytes are no {name}", "write the file again", back=back)
            return {}

    def _unknown_field(self, name: str, descriptor: Descriptor | None) -> None:
        if descriptor is not None:
            self._cursor.complain("unknown-field", *self._names.unknown(descriptor, name))
        self._cursor.next += 1
        self._cursor.skip(":")
        self._skip_value()

    def _skip_value(self) -> None:
        cursor = self._cursor
        if cursor.word in ("{", "<", "["):
            cursor.skip_brackets()
        elif cursor.word in ("}", ">", "]", END):
            raise cursor.stop("a value is due here", "write one, or remove the field")
        else:
            cursor.skip_scalar()


def _default(field: FieldDescriptor) -> PlainValue:
    """Return what stands for a map's key or value that is not written."""
    if field.message_type is not None:
        form: Callable[[Fields], PlainValue] | None = plain_of(field.message_type)
        return {} if form is None else form({})
    default: PlainValue | bytes = field.default_value
    return "" if isinstance(default, bytes) else default


_TOKENS: Final = re.compile(
    r"""
      "(?:[^"\\\n]|\\.)*+" | '(?:[^'\\\n]|\\.)*+' | \#[^\n]*+
    | (?P<open>[{<\[]) | (?P<close>[}>\]])
    | (?P<name>[A-Za-z_]\w*+)(?=(?:\s|\#[^\n]*+)*+[:{<])
    | [\w.+-]++
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Outline:
    """The top-level fields in their order, with the line of each; where nesting goes too deep, None if nowhere."""

    fields: tuple[tuple[str, int], ...]
    too_deep_at: tuple[int, int] | None = None

    @property
    def names(self) -> frozenset[str]:
        """The names of the fields."""
        return frozenset(name for name, _ in self.fields)

    @property
    def first_line(self) -> int:
        """The line of the first field, 1 where there is none."""
        return self.fields[0][1] if self.fields else 1

    def lines_of(self, name: str) -> tuple[int, ...]:
        """Return the lines of all fields of a name."""
        return tuple(line for field, line in self.fields if field == name)


def outline_of(text: str) -> Outline:
    """Return the outline of a text, however broken the text is."""
    places = Places(text)
    fields: list[tuple[str, int]] = []
    level = 0
    for token in _TOKENS.finditer(text):
        if token["open"]:
            level += 1
            if level > MAX_DEPTH:
                return Outline(tuple(fields), places.place(token.start()))
        elif token["close"]:
            level = max(level - 1, 0)
        elif token["name"] and level == 0:
            fields.append((token["name"], places.place(token.start())[0]))
    return Outline(tuple(fields))


RESPONSE: Final = "envoy.service.discovery.v3.DiscoveryResponse"
WRAPPER: Final = "envoy.service.discovery.v3.Resource"

_HEADER: Final = re.compile(r"^#\s*proto-message:\s*([\w.]+)\s*$", re.MULTILINE)
_CONTENT: Final = re.compile(r"^[ \t]*+[^#\s]", re.MULTILINE)
_RESPONSE_FIELDS: Final = frozenset(("resources", "version_info", "type_url"))
# What is in a wrapper and in no resource under this name.
_WRAPPER_FIELDS: Final = frozenset(("resource",))


def decode(content: bytes, catalogue: Catalogue, message_type: str | None) -> Decoded:
    """Read the one message of a text format file.

    Args:
        content: the bytes of the file.
        catalogue: the message types that may be named.
        message_type: what the file's name speaks of; asked last, after a `# proto-message:` header and the fields.
    """
    try:
        text = read_text(content)
        outline = outline_of(text)
        if outline.too_deep_at is not None:
            return unreadable(too_deep(*outline.too_deep_at))
        if not _CONTENT.search(text):
            return Decoded((PlainDocument(None, 1),))
        descriptor = _descriptor(text, outline, catalogue, message_type)
    except UnreadableError as error:
        return unreadable(error.fault)
    return _document(text, outline, descriptor, catalogue)


def encode(message: Message, printer: Printer) -> bytes:  # noqa: ARG001 - one signature for all
    """Write a message as text, the messages inside of Any too as far as the message's own pool knows them."""
    # The stubs give a descriptor's pool a wider type than the functions that take one.
    pool = cast("DescriptorPool", message.DESCRIPTOR.file.pool)
    return text_format.MessageToString(message, as_utf8=True, descriptor_pool=pool).encode()


def _descriptor(text: str, outline: Outline, catalogue: Catalogue, hint: str | None) -> Descriptor:
    header = _HEADER.search(text)
    if header:
        return _known(header[1], catalogue, text.count("\n", 0, header.start()) + 1)
    names = outline.names
    if names & _WRAPPER_FIELDS:
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


def _document(text: str, outline: Outline, descriptor: Descriptor, catalogue: Catalogue) -> Decoded:
    reader = TextprotoReader(text, catalogue)
    value = reader.read(descriptor)
    if value is None or reader.faults:
        return Decoded((), reader.faults)
    if descriptor.full_name == RESPONSE:
        # Here an author cannot say "none" but by saying nothing.
        value.setdefault("resources", [])
    elif descriptor.full_name != WRAPPER:
        value = {"@type": PREFIX + descriptor.full_name, **value}
    return Decoded((PlainDocument(value, outline.first_line, outline.lines_of("resources")),))
