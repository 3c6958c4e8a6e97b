"""The rules that the options of fields, oneofs, messages and enums state; what is not known of them is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import re2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, EnumValueDescriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, DURATION, TIMESTAMP, WRAPPERS, is_map, map_parts
from fsxds.api.rule_texts import compile_pattern
from fsxds.errors import ApiError

Rules: TypeAlias = Mapping[str, Any]
"""The rules of one group by their names, only those that are stated: `{"min_len": 1}`."""

RuleGroups: TypeAlias = Mapping[str, Rules]
"""The rules of a field by their group: that of its type, and `message`."""

_MEMBERS = {"const", "in", "not_in"}
_RANGE = {"lt", "lte", "gt", "gte"}
_NUMBER = frozenset(_MEMBERS | _RANGE | {"ignore_empty"})
_LENGTHS = {"len", "min_len", "max_len"}
_PARTS = {"prefix", "suffix", "contains"}

_NUMBERS = (
    "float", "double", "int32", "int64", "uint32", "uint64", "sint32", "sint64",
    "fixed32", "fixed64", "sfixed32", "sfixed64",
)  # fmt: skip

# What is understood of each group of rules. Envoy's own check of e-mail addresses, URIs and times of day throws; nobody
# uses the rest.
_KNOWN: dict[str, frozenset[str]] = {
    **dict.fromkeys(_NUMBERS, _NUMBER),
    "bool": frozenset({"const"}),
    "string": frozenset(
        _MEMBERS | _LENGTHS | _PARTS
        | {"len_bytes", "min_bytes", "max_bytes", "not_contains", "pattern", "well_known_regex", "strict", "ignore_empty"}
    ),
    "bytes": frozenset(_MEMBERS | _LENGTHS | _PARTS | {"ignore_empty"}),
    "enum": frozenset(_MEMBERS | {"defined_only"}),
    "message": frozenset({"skip", "required"}),
    "repeated": frozenset({"min_items", "max_items", "unique", "items", "ignore_empty"}),
    "map": frozenset({"min_pairs", "max_pairs", "keys", "values", "ignore_empty"}),
    "any": frozenset({"required", "in", "not_in"}),
    "duration": frozenset(_MEMBERS | _RANGE | {"required"}),
    "timestamp": frozenset(_RANGE | {"const", "required"}),
}  # fmt: skip

_LAST_KNOWN_REGEX = 2  # the value of an HTTP header

# The rules of the parts of lists and maps, within the rules of the whole.
_PARTS_OF_FIELDS = {"items", "keys", "values"}

_GROUPS = {
    FieldDescriptor.TYPE_FLOAT: "float", FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_INT32: "int32", FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT32: "uint32", FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_SINT32: "sint32", FieldDescriptor.TYPE_SINT64: "sint64",
    FieldDescriptor.TYPE_FIXED32: "fixed32", FieldDescriptor.TYPE_FIXED64: "fixed64",
    FieldDescriptor.TYPE_SFIXED32: "sfixed32", FieldDescriptor.TYPE_SFIXED64: "sfixed64",
    FieldDescriptor.TYPE_BOOL: "bool", FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes", FieldDescriptor.TYPE_ENUM: "enum",
}  # fmt: skip
_MESSAGE_GROUPS = {ANY: "any", DURATION: "duration", TIMESTAMP: "timestamp"}


class RuleOptions:
    """Reads the rules of a catalogue from its options."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._rules = catalogue.extension("validate.rules")
        self._required = catalogue.extension("validate.required")
        self._switches = tuple(
            extension
            for name in ("validate.disabled", "validate.ignored")
            if (extension := catalogue.extension(name)) is not None
        )
        self._disallowed = catalogue.extension("envoy.annotations.disallowed_by_default")
        self._disallowed_value = catalogue.extension("envoy.annotations.disallowed_by_default_enum")

    def rules_of(self, field: FieldDescriptor) -> RuleGroups:
        """Return the `validate.rules` of a field.

        Raises:
            ApiError: a rule is not known, or does not fit the type of the field.
        """
        if self._rules is None or not field.has_options:
            return {}
        rules = _extension(self._catalogue.field_options(field), self._rules)
        if rules is None:
            return {}
        try:
            return _read(rules, field, is_part=False)
        except (ValueError, re2.error) as error:
            text = f"{field.full_name}: its validate.rules are not known here: {error}; take an API of plain PGV rules"
            raise ApiError(text) from error

    def is_required(self, oneof: OneofDescriptor) -> bool:
        """Tell whether one of the members must be set."""
        if self._required is None or not oneof.has_options:
            return False
        return bool(_extension(self._catalogue.oneof_options(oneof), self._required))

    def is_unruled(self, descriptor: Descriptor) -> bool:
        """Tell whether the rules of a message, and of all in it, do not count."""
        if not self._switches or not descriptor.has_options:
            return False
        options = self._catalogue.message_options(descriptor)
        return any(_extension(options, switch) for switch in self._switches)

    def is_disallowed(self, field: FieldDescriptor) -> bool:
        """Tell whether Envoy refuses the mere presence of this field; deprecated ones alone it takes."""
        if self._disallowed is None or not field.has_options:
            return False
        options: Any = self._catalogue.field_options(field)
        return bool(options.deprecated and _extension(options, self._disallowed))

    def disallowed_values(self, enum: EnumDescriptor) -> frozenset[int]:
        """Return the numbers of the values that Envoy refuses."""
        return frozenset(
            value.number for value in enum.values if value.has_options and self._is_disallowed_value(value)
        )

    def _is_disallowed_value(self, value: EnumValueDescriptor) -> bool:
        options: Any = self._catalogue.enum_value_options(value)
        return bool(
            self._disallowed_value is not None and options.deprecated and _extension(options, self._disallowed_value)
        )


def _extension(options: Message, extension: FieldDescriptor) -> Any | None:
    found: Any = options
    return found.Extensions[extension] if found.HasExtension(extension) else None


def _read(rules: Message, field: FieldDescriptor, *, is_part: bool) -> RuleGroups:
    """Return the rules for a field or, as a part, for one element of it; ValueError says what is wrong with them."""
    groups: dict[str, Rules] = {}
    for group, detail in rules.ListFields():
        known = _KNOWN.get(group.name, frozenset())
        found = {rule.name: value for rule, value in detail.ListFields()}
        unknown = sorted(found.keys() - known)
        if group.name not in _KNOWN or unknown:
            raise ValueError(".".join((group.name, *unknown[:1])))
        if group.name not in _fitting(field, is_part=is_part):
            raise ValueError(f"{group.name}, on a field of another type")
        for part in _PARTS_OF_FIELDS & found.keys():
            found[part] = _read(found[part], _part(field, part), is_part=True)
        if found.get("unique") and field.message_type is not None:
            raise ValueError("repeated.unique, of messages")
        if found.get("well_known_regex", 0) > _LAST_KNOWN_REGEX:
            raise ValueError(f"string.well_known_regex of {found['well_known_regex']}")
        if "pattern" in found:
            compile_pattern(found["pattern"])
        groups[group.name] = found
    return groups


def _part(field: FieldDescriptor, part: str) -> FieldDescriptor:
    if part == "items":
        return field
    key, value = map_parts(field)
    return key if part == "keys" else value


def _fitting(field: FieldDescriptor, *, is_part: bool) -> tuple[str, ...]:
    """Return the groups of rules that a field, or an element of it, can have."""
    if field.is_repeated and not is_part:
        return "message", "map" if is_map(field) else "repeated"
    if field.message_type is None:
        return (_GROUPS.get(field.type, ""),)
    name = field.message_type.full_name
    if name in WRAPPERS:
        return "message", _GROUPS[field.message_type.fields_by_name["value"].type]
    # One field of Envoy's says `any.required` of a message of another type.
    return "message", _MESSAGE_GROUPS.get(name, "any")
