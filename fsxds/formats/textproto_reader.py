"""Read text format into plain values, as a JSON file would hold them, guided by the message types.

Protobuf's own reader stops at the first mistake, quotes the whole line in it, secrets included, and takes a time that grows
with the square of the length of a line. This one reads on, and leaves it to the converter to judge values.
Source: https://protobuf.dev/reference/protobuf/textformat-spec/
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, SPECIAL_JSON, is_map, map_parts, owner_of
from fsxds.api.quotes import may_quote_type
from fsxds.api.spellings import Spellings
from fsxds.formats.documents import MAX_DEPTH, shown
from fsxds.formats.textproto_cursor import END, Cursor, StopError
from fsxds.formats.textproto_plain import BrokenAnyError, Fields, packed_plain, plain_of
from fsxds.formats.textproto_scalars import Value, scalar_reader
from fsxds.formats.textproto_tokens import is_name
from fsxds.values import Fault, PlainValue

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
        self._spellings = Spellings(catalogue)

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
            self._cursor.complain("unknown-field", *self._spellings.unknown(descriptor, name))
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
