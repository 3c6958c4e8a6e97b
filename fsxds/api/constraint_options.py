"""Reads an API's demands from its options: `validate.rules` of PGV, and disallowed fields.

All rules are read at once: an unknown one fails the start, not some check.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TypeAlias

import re2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, DURATION, TIMESTAMP, WRAPPERS, FieldValue, is_map, map_parts
from fsxds.model.errors import ApiError

Rules: TypeAlias = Mapping[str, FieldValue]
"""The rules of one group that are set, by name: `{"min_len": 1}`."""

RuleGroups: TypeAlias = Mapping[str, Rules]
"""The rules of a field by group: that of its type, and `message`."""

_MEMBERS = {"const", "in", "not_in"}
_RANGE = {"lt", "lte", "gt", "gte"}
_NUMBER = frozenset(_MEMBERS | _RANGE | {"ignore_empty"})
_LENGTHS = {"len", "min_len", "max_len"}
_PARTS = {"prefix", "suffix", "contains"}

# A scalar's group is named like its type.
_GROUPS: Mapping[int, str] = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}
_MESSAGE_GROUPS = {ANY: "any", DURATION: "duration", TIMESTAMP: "timestamp"}

# The rules of each group that are implemented. Envoy's own check of e-mail addresses, URIs and times of day throws; the
# rest is unused.
_KNOWN: dict[str, frozenset[str]] = {
    **dict.fromkeys(_GROUPS.values(), _NUMBER),
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

# The rules for parts of lists and maps, within the rules of the whole.
_PARTS_OF_FIELDS = {"items", "keys", "values"}


class ApiRules:
    """An API's rules; use `catalogue.once(ApiRules)`.

    Attributes:
        ruled: messages with a ruled field, and Any.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        """ApiError: a rule is unknown or unfit."""
        self._catalogue = catalogue
        self._field_rules = catalogue.extension("validate.rules")
        self._required = catalogue.extension("validate.required")
        self._switches = (catalogue.extension("validate.disabled"), catalogue.extension("validate.ignored"))
        self._disallowed = catalogue.extension("envoy.annotations.disallowed_by_default")
        self._disallowed_value = catalogue.extension("envoy.annotations.disallowed_by_default_enum")
        self._rules: dict[str, RuleGroups] = {}  # by the full name of the field
        self._held_in: defaultdict[str, set[str]] = defaultdict(set)  # {message: the messages with a field of its type}
        self.ruled = {ANY}
        for descriptor in catalogue.descriptors():
            if self._read_rules(descriptor):
                self.ruled.add(descriptor.full_name)

    def rules_of(self, field: FieldDescriptor) -> RuleGroups:
        """Return a field's `validate.rules`."""
        return self._rules.get(field.full_name, {})

    def is_required(self, oneof: OneofDescriptor) -> bool:
        """Whether a member must be set."""
        return oneof.has_options and bool(_extension(self._catalogue.options_of(oneof), self._required))

    def is_unruled(self, descriptor: Descriptor) -> bool:
        """Whether validation is disabled."""
        if not descriptor.has_options:
            return False
        options = self._catalogue.options_of(descriptor)
        return any(_extension(options, switch) for switch in self._switches)

    def is_disallowed(self, field: FieldDescriptor) -> bool:
        """Whether Envoy rejects this field."""
        if not field.has_options:
            return False
        options = self._catalogue.options_of(field)
        return bool(options.deprecated and _extension(options, self._disallowed))

    def disallowed_values(self, enum: EnumDescriptor) -> frozenset[int]:
        """Return the numbers that Envoy rejects."""
        return frozenset(
            value.number
            for value in enum.values
            if value.has_options
            and (options := self._catalogue.options_of(value)).deprecated
            and _extension(options, self._disallowed_value)
        )

    def holders_of(self, names: Collection[str]) -> set[str]:
        """Add the messages that hold one at any depth."""
        found = set(names)
        waiting = list(found)
        while waiting:
            holders = self._held_in.get(waiting.pop(), set()) - found
            found |= holders
            waiting.extend(holders)
        return found

    def _read_rules(self, descriptor: Descriptor) -> bool:
        has_rules = any(self.is_required(oneof) for oneof in descriptor.oneofs)
        for field in descriptor.fields:
            if field.message_type is not None:
                self._held_in[field.message_type.full_name].add(descriptor.full_name)
            if field.has_options:
                rules = self._read_field(field)
                if rules:
                    self._rules[field.full_name] = rules
                has_rules = bool(rules) or has_rules or self.is_disallowed(field)
            if field.enum_type is not None:
                has_rules = has_rules or bool(self.disallowed_values(field.enum_type))
        return has_rules

    def _read_field(self, field: FieldDescriptor) -> RuleGroups:
        rules = _extension(self._catalogue.options_of(field), self._field_rules)
        if rules is None:
            return {}
        try:
            return _read(rules, field, is_part=False)
        except (ValueError, re2.error) as error:
            text = f"{field.full_name}: its validate.rules are not known here: {error}; take an API of plain PGV rules"
            raise ApiError(text) from error


def compile_pattern(pattern: str) -> re2._Regexp:
    """Compile as Envoy does. Raises re2.error."""
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def _extension(options: FieldValue, extension: FieldDescriptor | None) -> FieldValue | None:
    return options.Extensions[extension] if extension is not None and options.HasExtension(extension) else None


def _read(rules: Message, field: FieldDescriptor, *, is_part: bool) -> RuleGroups:
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
    if field.is_repeated and not is_part:
        return "message", "map" if is_map(field) else "repeated"
    if field.message_type is None:
        return (_GROUPS[field.type],)
    name = field.message_type.full_name
    if name in WRAPPERS:
        return "message", _GROUPS[field.message_type.fields_by_name["value"].type]
    # One Envoy field has `any.required` on a message of another type.
    return "message", _MESSAGE_GROUPS.get(name, "any")
