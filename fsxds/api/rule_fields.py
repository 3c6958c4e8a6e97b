"""The demands on the fields of a message, as the API states them."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor, OneofDescriptor

from fsxds.api.fields import ANY, DURATION, TIMESTAMP, WRAPPERS, enum_of, is_map
from fsxds.api.rule_checks import Check, membership_checks, one_of, show_nothing, show_value
from fsxds.api.rule_numbers import moment_checks, number_checks
from fsxds.api.rule_options import RuleGroups, Rules
from fsxds.api.rule_survey import RuleSurvey
from fsxds.api.rule_texts import bytes_checks, size_check, text_checks

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
