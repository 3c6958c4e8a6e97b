"""The demands on the fields of a message, as the API states them.

The rules that the options of fields, oneofs, messages and enums state; what is not known of them is refused.

One pass over a whole API: all its rules are read, and which message can hold which.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import re2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, EnumValueDescriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraint_checks import (
    Check,
    bytes_checks,
    compile_pattern,
    membership_checks,
    moment_checks,
    number_checks,
    one_of,
    show_nothing,
    show_value,
    size_check,
    text_checks,
)
from fsxds.api.fields import ANY, DURATION, TIMESTAMP, WRAPPERS, enum_of, is_map, map_parts
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


class RuleSurvey:
    """What an API demands, and where; made once for a catalogue, by `Catalogue.once`.

    Attributes:
        options: what reads the rules of the API.
        rules: the `validate.rules` of fields, by the full name of the field; no row where there are none.
        ruled: the messages of which some field has a rule, and Any.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        """Read all rules of a catalogue; ApiError for one that is not known here."""
        self.options = RuleOptions(catalogue)
        self.rules: dict[str, RuleGroups] = {}
        self.ruled = {ANY}
        self._held_in: defaultdict[str, set[str]] = defaultdict(set)
        for descriptor in catalogue.descriptors():
            if self._read_rules(descriptor):
                self.ruled.add(descriptor.full_name)

    def holders_of(self, names: Collection[str]) -> set[str]:
        """Return the messages of these names, and all that can hold one of them at any depth."""
        found = set(names)
        waiting = list(found)
        while waiting:
            holders = self._held_in.get(waiting.pop(), set()) - found
            found |= holders
            waiting.extend(holders)
        return found

    def _read_rules(self, descriptor: Descriptor) -> bool:
        """Read the rules of a message's own fields, and tell whether there are any."""
        has_rules = any(self.options.is_required(oneof) for oneof in descriptor.oneofs)
        for field in descriptor.fields:
            if field.message_type is not None:
                self._held_in[field.message_type.full_name].add(descriptor.full_name)
            if field.has_options:
                rules = self.options.rules_of(field)
                if rules:
                    self.rules[field.full_name] = rules
                has_rules = bool(rules) or has_rules or self.options.is_disallowed(field)
            if field.enum_type is not None:
                has_rules = has_rules or bool(self.options.disallowed_values(field.enum_type))
        return has_rules


_MOST_NAMES = 8


@dataclass(frozen=True, slots=True)
class Demand:
    """Something that must be there: one of these fields; `step` is the field to tell of, None for the message."""

    fields: frozenset[str]
    step: str | None
    rule: str
    message: str
    remedy: str


def element_checks(field: FieldDescriptor, rules: RuleGroups) -> list[Check]:
    """Return the demands on one value of a field: of a list, on one element of it."""
    message_type = field.message_type
    if message_type is None:
        return _scalar_checks(field, rules)
    if message_type.full_name in WRAPPERS:
        checks = _scalar_checks(message_type.fields_by_name["value"], rules)
        return [check.over(operator.attrgetter("value")) for check in checks]
    if message_type.full_name == ANY:
        checks = membership_checks(rules.get("any", {}), str)
        return [check.over(operator.attrgetter("type_url")) for check in checks]
    if message_type.full_name == DURATION:
        return moment_checks(rules.get("duration", {}), "duration")
    if message_type.full_name == TIMESTAMP:
        return moment_checks(rules.get("timestamp", {}), "time")
    return []


def whole_checks(field: FieldDescriptor, rules: RuleGroups) -> list[Check]:
    """Return the demands on a list or a map as a whole, but for that its elements differ."""
    group, noun = ("map", "pair") if is_map(field) else ("repeated", "item")
    own: Rules = rules.get(group, {})
    sizes = own.get(f"min_{noun}s"), own.get(f"max_{noun}s")
    check = size_check(sizes, len, noun, "wrong-count")
    if check is None:
        return []
    return [check.unless_empty() if own.get("ignore_empty") else check]


def disallowed_checks(field: FieldDescriptor, survey: RuleSurvey) -> list[Check]:
    """Return the checks for what Envoy refuses though the API still has it."""
    if survey.options.is_disallowed(field):
        text = "was taken out of use, and Envoy refuses it"
        return [Check(_is_set, "disallowed-field", text, "remove it", show_nothing)]
    if field.enum_type is None or field.is_repeated:
        return []  # Envoy does not look for such values in lists.
    numbers = survey.options.disallowed_values(field.enum_type)
    if not numbers:
        return []
    text = f"must not be {one_of(sorted(numbers), lambda number: _value_name(enum_of(field), number))}"
    remedy = f"write {_choice(field.enum_type, numbers)}"
    return [Check(lambda value: value in numbers, "disallowed-field", text, remedy, show_nothing)]


def is_unvisited(rules: RuleGroups) -> bool:
    """Tell whether Envoy's rules stop at this field: it says so, or has rules for an Any and is none."""
    return bool(rules.get("message", {}).get("skip")) or "any" in rules


def presence_demand(field: FieldDescriptor, rules: RuleGroups) -> Demand | None:
    """Return the demand that a message be there; on a member of a oneof it says nothing, for then it is there."""
    if field.is_repeated or field.containing_oneof is not None or field.message_type is None:
        return None
    # As in Envoy, the `required` of the group of the type counts alone, but wrappers have none of their own.
    group = next((name for name in rules if name in {"any", "duration", "timestamp"}), "message")
    if not rules.get(group, {}).get("required"):
        return None
    return Demand(frozenset({field.name}), field.name, "required-field", "is required", "set it")


def default_demand(field: FieldDescriptor, checks: list[Check]) -> Demand | None:
    """Return the demand that a field be set because its default breaks one of its checks."""
    if field.containing_oneof is not None or (field.message_type is not None and not field.is_repeated):
        return None
    default: Any = () if field.is_repeated else field.default_value
    broken = next((check for check in checks if check.is_broken is not _is_set and check.is_broken(default)), None)
    if broken is None:
        return None
    message = broken.message(default, secret=False)
    return Demand(frozenset({field.name}), field.name, broken.rule, message, broken.remedy)


def beyond_presence(field: FieldDescriptor, checks: list[Check]) -> list[Check]:
    """Return the checks that a field which is set may still break: one that has no presence is not empty then."""
    return [check for check in checks if field.has_presence or not check.is_presence]


def choice_demand(oneof: OneofDescriptor) -> Demand:
    """Return the demand that one member of a oneof be set."""
    names = [field.name for field in oneof.fields]
    *others, last = (f'"{name}"' for name in names)
    if not others:
        return Demand(frozenset(names), None, "required-choice", f"{last} is required", "set it")
    message = f"one of {', '.join(others)} and {last} is required"
    return Demand(frozenset(names), None, "required-choice", message, "set exactly one of them")


def _is_set(_value: Any) -> bool:
    """Tell of a value that is there that it is."""
    return True


def _scalar_checks(field: FieldDescriptor, rules: RuleGroups) -> list[Check]:
    group = next((name for name in rules if name != "message"), None)
    if group is None:
        return []
    if group == "string":
        return text_checks(rules[group])
    if group == "bytes":
        return bytes_checks(rules[group])
    if group == "bool":
        return membership_checks(rules[group], lambda value: str(value).lower())
    if group == "enum":
        return _enum_checks(enum_of(field), rules[group])
    return number_checks(rules[group])


def _enum_checks(enum: EnumDescriptor, rules: Rules) -> list[Check]:
    checks = membership_checks(rules, lambda number: _value_name(enum, number))
    if rules.get("defined_only"):
        known = frozenset(enum.values_by_number)
        text = f"must be a value of {enum.name}"
        remedy = f"write {_choice(enum, frozenset())}"
        checks.append(Check(lambda value: value not in known, "undefined-enum-value", text, remedy))

    def show_name(value: Any, secret: bool) -> str:  # noqa: FBT001  # the shape of Shown
        return "" if secret else f", is {_value_name(enum, value)}"

    return [replace(check, shown=show_name) if check.shown is show_value else check for check in checks]


def _value_name(enum: EnumDescriptor, number: int) -> str:
    value = enum.values_by_number.get(number)
    return str(number) if value is None else value.name


def _choice(enum: EnumDescriptor, without: frozenset[int]) -> str:
    names = [value.name for value in enum.values if value.number not in without]
    return one_of(names, str) if len(names) <= _MOST_NAMES else f"one of the {len(names)} values of {enum.name}"
