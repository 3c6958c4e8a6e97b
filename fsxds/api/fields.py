"""Properties of fields, and the names that faults may quote.

A fault quotes no other words of a file, because a secret may be in any wrong place, such as a key. Each rule has one
home:

* a value (`quoted`): numbers, times such as `100ms`, true, false and null; other text is called text;
* an enum value's name: if it is near to an existing one (`scalars`);
* a field's name (`may_quote_field`): if some message of the API has it, or if it is near to a field of its message, so
  that the remedy is "did you mean";
* a message type (`may_quote_type`): if it is written like one, `package.Name`;
* names of resources, and references to them, are not secret; the checks that know them quote them.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, Final, TypeAlias, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.v2_spellings import remedy_for
from fsxds.model.memo import Lru
from fsxds.model.values import FieldPath, SpelledFloat, pointer_of

FieldValue: TypeAlias = Any
"""The value of a message's field: a scalar, a message, a list or a map. Only the field's descriptor knows which."""

ANY = "google.protobuf.Any"
DURATION = "google.protobuf.Duration"
FIELD_MASK = "google.protobuf.FieldMask"
LIST_VALUE = "google.protobuf.ListValue"
STRUCT = "google.protobuf.Struct"
TIMESTAMP = "google.protobuf.Timestamp"
VALUE = "google.protobuf.Value"
NULL_VALUE = "google.protobuf.NullValue"

WRAPPERS = frozenset(
    f"google.protobuf.{scalar}Value"
    for scalar in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

# Messages whose JSON is not an object of their fields. Within an Any it is under the key "value".
SPECIAL_JSON = WRAPPERS | {ANY, DURATION, FIELD_MASK, LIST_VALUE, STRUCT, TIMESTAMP, VALUE}

LONG_INTEGERS = frozenset({
    FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64,
    FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64,
})  # fmt: skip
INTEGERS = LONG_INTEGERS | {
    FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32,
    FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32,
}  # fmt: skip
UNSIGNED_INTEGERS = frozenset({
    FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32,
    FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64,
})  # fmt: skip

LARGEST_FLOAT = 3.4028234663852886e38
"""The largest number of 32 bits."""

DEEPEST_MESSAGE = 95
"""The number of messages that may be nested.

Protobuf does not read 100 levels, in Envoy as here; the leaves of well-known types are not counted, hence the margin. A
level of a Struct is three messages: the Struct, its entry, and the entry's value.
"""
STRUCT_LEVELS = 3
LIST_LEVELS = 2


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def map_parts(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    """Return a map's key and value fields."""
    map_row = cast("Descriptor", field.message_type)
    return map_row.fields_by_name["key"], map_row.fields_by_name["value"]


def enum_of(field: FieldDescriptor) -> EnumDescriptor:
    """Return an enum field's type."""
    return cast("EnumDescriptor", field.enum_type)


def owner_of(field: FieldDescriptor) -> Descriptor:
    """Return the field's message; not for extensions."""
    return cast("Descriptor", field.containing_type)


def descriptor_of(message: Message | type[Message]) -> Descriptor:
    """Return a message's or class's descriptor."""
    return cast("Descriptor", message.DESCRIPTOR)


def takes_null(field: FieldDescriptor) -> bool:
    """Whether null is a value here, not absence."""
    if field.is_repeated:
        return False
    held: Descriptor | EnumDescriptor | None = field.message_type or field.enum_type
    return held is not None and held.full_name in (VALUE, NULL_VALUE)


def fields_by_name(descriptor: Descriptor) -> dict[str, FieldDescriptor]:
    """Return fields by snake_case and camelCase."""
    spellings = {field.name: field for field in descriptor.fields}
    return spellings | {field.json_name: field for field in descriptor.fields}


def camel_case(name: str) -> str:
    """Convert `connect_timeout` to `connectTimeout`."""
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def type_of_url(type_url: str) -> str | None:
    """Return its type, or None; Envoy demands host and slash."""
    host, slash, message_type = type_url.rpartition("/")
    return message_type if host and slash else None


_LONGEST_LIST_OF_FIELDS = 8
_LONGEST_NAME = 60
_MOST_ADVICE = 1000
_LIKENESS = 0.55  # low enough to find "connect_timeout" for "conect"


class FieldNames:
    """Finds fields by either name; advises on unknown ones."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._fields: dict[str, dict[str, FieldDescriptor]] = {}  # {message: {name: field}}
        self._advice: Lru[tuple[str, str], str] = Lru(_MOST_ADVICE)

    def find(self, descriptor: Descriptor, name: str) -> FieldDescriptor | None:
        """Return the field of this name, or None."""
        fields = self._fields.get(descriptor.full_name)
        if fields is None:
            fields = self._fields[descriptor.full_name] = fields_by_name(descriptor)
        return fields.get(name)

    def unknown(self, descriptor: Descriptor, name: str, *, is_advised: bool = True) -> tuple[str, str]:
        """Return fault and remedy; slow."""
        names = frozenset(field.name for field in descriptor.fields)
        if (remedy := remedy_for(descriptor.full_name, name, names)) is not None:
            return f'{descriptor.full_name} has no field "{name}"', remedy
        short = name[:_LONGEST_NAME]
        key = descriptor.full_name, short
        advice = self._advice.find(key, lambda: _advice(descriptor, short)) if is_advised else "remove it"
        if may_quote_field(name, self._catalogue, advice):
            return f'{descriptor.full_name} has no field "{shortened(name)}"', advice
        return f"{descriptor.full_name} has no such field", advice


def _advice(descriptor: Descriptor, wanted: str) -> str:
    is_camel_case = "_" not in wanted and wanted.lower() != wanted
    known = [field.json_name if is_camel_case else field.name for field in descriptor.fields]
    near = difflib.get_close_matches(wanted, known, n=1, cutoff=_LIKENESS) or difflib.get_close_matches(
        wanted.lower().replace("-", "_"), [field.name for field in descriptor.fields], n=1, cutoff=_LIKENESS
    )
    if near:
        return f'did you mean "{near[0]}"?'
    names = [field.name for field in descriptor.fields]
    if names and len(names) <= _LONGEST_LIST_OF_FIELDS:
        return f"remove it; the fields are {', '.join(names)}"
    return "remove it" if names else f"remove it; {descriptor.full_name} has no fields"


def shortened(name: str) -> str:
    """Cut a name, and escape unencodable characters."""
    short = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…"
    return short.encode(errors="backslashreplace").decode()


DID_YOU_MEAN: Final = "did you mean"
UNSHOWN: Final = "[…]"

_LONGEST_NUMBER = 40
_TYPE_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*(\.[A-Z][A-Za-z0-9]{0,60}){1,4}")
_DESCRIBED: Final = (
    (dict, "an object"), (list, "a list"), (str, "text"), (bool, "true or false"), (type(None), "null"),
)  # fmt: skip
_HOST = "type.googleapis.com/"
_LONGEST_TYPE = 120
_EXTENSION = re.compile(r"(envoy|xds)(\.[a-z][a-z0-9_]*)+")
_TIME = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})? ?(ns|us|ms|s|m|h|d|sec|min|hours?|minutes?|seconds?)")
_IN_QUOTES = re.compile(r'"([^"]*)"')


def quoted(value: object, *, secret: bool) -> str:
    """Quote short numbers, and times unless secret; call all else by kind."""
    described = next((words for value_type, words in _DESCRIBED if isinstance(value, value_type)), "a number")
    if isinstance(value, str):
        return f'"{value}"' if not secret and _TIME.fullmatch(value) else described
    if secret or value is None or isinstance(value, (dict, list)):
        return described
    if isinstance(value, bool):
        return str(value).lower()
    # Python does not write integers of more than some thousand digits.
    is_long = isinstance(value, int) and value.bit_length() > 4 * _LONGEST_NUMBER
    text = value.text if isinstance(value, SpelledFloat) else "" if is_long else repr(value)
    return text if 0 < len(text) <= _LONGEST_NUMBER else described


def may_quote_field(name: str, catalogue: Catalogue, advice: str = "") -> bool:
    """Whether a name may be repeated; `advice` is the remedy."""
    return advice.startswith(DID_YOU_MEAN) or name == "@type" or catalogue.knows_word(name)


def may_quote_type(name: str) -> bool:
    """Whether a type may be repeated."""
    return len(name) <= _LONGEST_TYPE and _TYPE_NAME.fullmatch(name) is not None


def quoted_type_url(type_url: str) -> str:
    """Quote a type URL if it looks like one."""
    return type_url if may_quote_type(type_url.removeprefix(_HOST)) else "no type URL"


def shown_pointer(field_path: FieldPath, message: str, catalogue: Catalogue) -> str:
    """Write a path, with `[...]` for unquotable keys."""
    quoted_names = frozenset(_IN_QUOTES.findall(message))
    text = ""
    for step in field_path:
        if (
            isinstance(step, int)
            or step in quoted_names
            or may_quote_field(step, catalogue)
            or _EXTENSION.fullmatch(step)
        ):
            text = pointer_of((text, step) if text else (step,))
        else:
            text += UNSHOWN
    return text
