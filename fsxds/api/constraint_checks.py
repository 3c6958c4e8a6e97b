"""The API's demands on one value, and their reports.

`element_checks` and `whole_checks` are for set values; a `Demand` reports a missing one. The C++ code of PGV counts, not
its documentation (`not_in` beside `in`, `strict`).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from fsxds.api.constraint_options import ApiRules, RuleGroups, Rules, compile_pattern
from fsxds.api.fields import ANY, DURATION, TIMESTAMP, WRAPPERS, FieldValue, enum_of, is_map, quoted
from fsxds.api.scalars import LONGEST_DURATION_S, NANOS_PER_S

Write: TypeAlias = Callable[[FieldValue], str]
"""Writes a value as a message shows it: `1`, `"a"`, `0.25s`."""

_Bound: TypeAlias = tuple[Callable[[FieldValue], object], FieldValue, str]  # test for a broken bound, limit, wording

# Names that `quoted` gives to values that it does not show.
_NOT_SHOWN = frozenset({"text", "a number", "true or false"})
_MOST_NAMES = 8

# Per rule: the comparison of the limit with a value that breaks it. The first rule that is set counts, as in Envoy.
_UPPER = (("lt", operator.le, "less than"), ("lte", operator.lt, "at most"))
_LOWER = (("gt", operator.ge, "more than"), ("gte", operator.gt, "at least"))

# The regular expressions of PGV for HTTP headers, the latter two as searches for forbidden characters. In the character
# class for names `+-.` is a range, so a comma is allowed. Without `strict`, names and values follow the same rule.
_HEADER_NAME = re.compile(r"\A:?[0-9a-zA-Z!#$%&'*+-.^_|~`]+\Z")
_NO_HEADER_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NO_HEADER_STRING = re.compile(r"[\x00\x0a\x0d]")
_HEADER_NAME_REGEX = 1  # the number of `well_known_regex` for a name; 2 is for a value

_FILL = {"wrong-length": "give it a value", "wrong-count": "add at least one"}


def show_value(value: FieldValue) -> str:
    """Quote a short value."""
    text = quoted(value, secret=False)
    return "" if text in _NOT_SHOWN else f", is {text}"


def show_nothing(_value: FieldValue) -> str:
    """Show nothing of the value."""
    return ""


def show_size(size_of: Callable[[FieldValue], int]) -> Write:
    """Show the value's length."""
    return lambda value: f", has {size_of(value)}"


def show_as(write: Write) -> Write:
    """Show the value as `write` does."""
    return lambda value: f", is {write(value)}"


@dataclass(frozen=True, slots=True)
class ValueCheck:
    """One demand: `must be at least 1`; `is_presence`: only an empty value breaks it."""

    is_broken: Callable[[FieldValue], object]
    rule: str
    demand: str
    remedy: str
    shown: Write = show_value
    is_presence: bool = False

    def message(self, value: FieldValue, *, secret: bool) -> str:
        """Report a broken demand."""
        return self.demand if secret else self.demand + self.shown(value)

    def over(self, read: Callable[[FieldValue], FieldValue]) -> ValueCheck:
        """Apply to the result of `read`."""
        is_broken, shown = self.is_broken, self.shown
        return replace(self, is_broken=lambda value: is_broken(read(value)), shown=lambda value: shown(read(value)))

    def unless_empty(self) -> ValueCheck:
        """Accept empty values."""
        is_broken = self.is_broken
        return replace(self, is_broken=lambda value: value and is_broken(value))


@dataclass(frozen=True, slots=True)
class Demand:
    """One of these must be set; reported at `step`, else at the message."""

    fields: frozenset[str]
    step: str | None
    rule: str
    message: str
    remedy: str


# Demands on a field


def element_checks(field: FieldDescriptor, rules: RuleGroups) -> list[ValueCheck]:
    """Return an element's demands."""
    message_type = field.message_type
    if message_type is None:
        return _scalar_checks(field, rules)
    if message_type.full_name in WRAPPERS:
        checks = _scalar_checks(message_type.fields_by_name["value"], rules)
        return [check.over(operator.attrgetter("value")) for check in checks]
    if message_type.full_name == ANY:
        checks = _membership_checks(rules.get("any", {}), str, show_value)
        return [check.over(operator.attrgetter("type_url")) for check in checks]
    if message_type.full_name == DURATION:
        checks = _moment_checks(rules.get("duration", {}), "duration")
        return [_VALID_DURATION, *checks] if checks else []
    if message_type.full_name == TIMESTAMP:
        return _moment_checks(rules.get("timestamp", {}), "time")
    return []


def whole_checks(field: FieldDescriptor, rules: RuleGroups) -> list[ValueCheck]:
    """Return a list's or map's demands, except uniqueness."""
    group, noun = ("map", "pair") if is_map(field) else ("repeated", "item")
    own = rules.get(group, {})
    checks = _size_checks(own.get(f"min_{noun}s"), own.get(f"max_{noun}s"), len, noun, "wrong-count")
    return _unless_empty(checks, own)


def disallowed_checks(field: FieldDescriptor, rules: ApiRules) -> list[ValueCheck]:
    """Return checks for deprecated fields and values."""
    if rules.is_disallowed(field):
        text = "was taken out of use, and Envoy rejects it"
        return [ValueCheck(_is_set, "disallowed-field", text, "remove it", show_nothing)]
    if field.enum_type is None or field.is_repeated:
        return []  # Envoy does not look for such values in lists.
    numbers = rules.disallowed_values(field.enum_type)
    if not numbers:
        return []
    text = f"must not be {_one_of(sorted(numbers), partial(_value_name, field.enum_type))}"
    remedy = f"write {_choice(field.enum_type, numbers)}"
    return [ValueCheck(lambda value: value in numbers, "disallowed-field", text, remedy, show_nothing)]


def beyond_presence(field: FieldDescriptor, checks: list[ValueCheck]) -> list[ValueCheck]:
    """Return the checks on a set field, not empty without presence."""
    return [check for check in checks if field.has_presence or not check.is_presence]


def is_unvisited(rules: RuleGroups) -> bool:
    """Whether validation stops: skipped, or rules for an Any."""
    return bool(rules.get("message", {}).get("skip")) or "any" in rules


def required_demand(field: FieldDescriptor, rules: RuleGroups) -> Demand | None:
    """Return a message field's demand, if in no oneof."""
    if field.is_repeated or field.containing_oneof is not None or field.message_type is None:
        return None
    # As in Envoy, only `required` of the type's group counts, but wrappers have no such group.
    group = next((name for name in rules if name in {"any", "duration", "timestamp"}), "message")
    if not rules.get(group, {}).get("required"):
        return None
    return Demand(frozenset({field.name}), field.name, "required-field", "is required", "set it")


def default_demand(field: FieldDescriptor, checks: list[ValueCheck]) -> Demand | None:
    """Demand a field with an invalid default."""
    if field.containing_oneof is not None or (field.message_type is not None and not field.is_repeated):
        return None
    default: FieldValue = () if field.is_repeated else field.default_value
    broken = next((check for check in checks if check.is_broken is not _is_set and check.is_broken(default)), None)
    if broken is None:
        return None
    message = broken.message(default, secret=False)
    return Demand(frozenset({field.name}), field.name, broken.rule, message, broken.remedy)


def choice_demand(oneof: OneofDescriptor) -> Demand:
    """Demand a member of a oneof."""
    names = [field.name for field in oneof.fields]
    *others, last = (f'"{name}"' for name in names)
    if not others:
        return Demand(frozenset(names), None, "required-choice", f"{last} is required", "set it")
    message = f"one of {', '.join(others)} and {last} is required"
    return Demand(frozenset(names), None, "required-choice", message, "set exactly one of them")


def _is_set(_value: FieldValue) -> bool:
    return True


# Demands on a scalar


def _scalar_checks(field: FieldDescriptor, rules: RuleGroups) -> list[ValueCheck]:
    group = next((name for name in rules if name != "message"), None)
    if group is None:
        return []
    own = rules[group]
    if group == "string":
        checks = [
            *_membership_checks(own, _write_text, show_value),
            *_length_checks(own, ("len", "min_len", "max_len"), len, "character"),
            *_length_checks(own, ("len_bytes", "min_bytes", "max_bytes"), _bytes_in, "byte"),
            *_part_checks(own, _write_text, show_value),
            *_pattern_checks(own),
        ]
        return _unless_empty(checks, own)
    if group == "bytes":
        checks = [
            *_membership_checks(own, _write_bytes, show_nothing),
            *_length_checks(own, ("len", "min_len", "max_len"), len, "byte"),
            *_part_checks(own, _write_bytes, show_nothing),
        ]
        return _unless_empty(checks, own)
    if group == "bool":
        return _membership_checks(own, lambda value: str(value).lower(), show_value)
    if group == "enum":
        return _enum_checks(enum_of(field), own)
    shown = show_as(_write_number)
    checks = [
        *_membership_checks(own, _write_number, shown),
        *_range_checks(own, _write_number, shown, "number"),
    ]
    return _unless_empty(checks, own)


def _unless_empty(checks: list[ValueCheck], rules: Rules) -> list[ValueCheck]:
    return [check.unless_empty() for check in checks] if rules.get("ignore_empty") else checks


def _membership_checks(
    rules: Rules, write: Write, shown: Write, read: Callable[[FieldValue], FieldValue] = lambda value: value
) -> list[ValueCheck]:
    """As in Envoy, `not_in` counts only without `in`."""
    checks = []
    if "const" in rules:
        constant = read(rules["const"])
        text = write(rules["const"])
        checks.append(
            ValueCheck(lambda value: value != constant, "not-allowed", f"must be {text}", f"write {text}", shown)
        )
    allowed, banned = rules.get("in"), rules.get("not_in")
    if allowed:
        known = frozenset(map(read, allowed))
        listed = ", ".join(map(write, allowed))
        text = f"must be one of {listed}" if len(known) > 1 else f"must be {listed}"
        remedy = f"write {_one_of(allowed, write)}"
        checks.append(ValueCheck(lambda value: value not in known, "not-allowed", text, remedy, shown))
    elif banned:
        values = frozenset(map(read, banned))
        text = f"must not be {_one_of(banned, write)}"
        checks.append(
            ValueCheck(lambda value: value in values, "not-allowed", text, "choose another value", show_nothing)
        )
    return checks


def _one_of(values: Iterable[FieldValue], write: Write) -> str:
    *others, last = map(write, values)
    return f"{', '.join(others)} or {last}" if others else last


def _enum_checks(enum: EnumDescriptor, rules: Rules) -> list[ValueCheck]:
    write = partial(_value_name, enum)
    shown = show_as(write)
    checks = _membership_checks(rules, write, shown)
    if rules.get("defined_only"):
        known = frozenset(enum.values_by_number)
        text = f"must be a value of {enum.name}"
        remedy = f"write {_choice(enum, frozenset())}"
        checks.append(ValueCheck(lambda value: value not in known, "undefined-enum-value", text, remedy, shown))
    return checks


def _value_name(enum: EnumDescriptor, number: int) -> str:
    value = enum.values_by_number.get(number)
    return str(number) if value is None else value.name


def _choice(enum: EnumDescriptor, without: frozenset[int]) -> str:
    names = [value.name for value in enum.values if value.number not in without]
    return _one_of(names, str) if len(names) <= _MOST_NAMES else f"one of the {len(names)} values of {enum.name}"


# Demands on numbers and durations


def _write_number(value: float) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else repr(value)


def _range_checks(
    rules: Rules, write: Write, shown: Write, noun: str, read: Callable[[FieldValue], FieldValue] = lambda value: value
) -> list[ValueCheck]:
    def check(is_broken: Callable[[FieldValue], object], words: str) -> ValueCheck:
        return ValueCheck(is_broken, "out-of-range", f"must be {words}", f"write a {noun} that is {words}", shown)

    upper = _bound(rules, _UPPER, read, write)
    lower = _bound(rules, _LOWER, read, write)
    if upper is None or lower is None:
        return [check(is_broken, words) for is_broken, _, words in filter(None, (upper, lower))]
    is_too_high, high, high_words = upper
    is_too_low, low, low_words = lower
    if high > low:
        return [check(lambda value: is_too_low(value) or is_too_high(value), f"{low_words} and {high_words}")]
    # An inverted range allows the values outside of it.
    return [check(lambda value: is_too_low(value) and is_too_high(value), f"{high_words} or {low_words}")]


def _bound(
    rules: Rules,
    names: Iterable[tuple[str, Callable[[FieldValue, FieldValue], bool], str]],
    read: Callable[[FieldValue], FieldValue],
    write: Write,
) -> _Bound | None:
    for name, breaks, words in names:
        if name in rules:
            limit = read(rules[name])
            return partial(breaks, limit), limit, f"{words} {write(rules[name])}"
    return None


def _moment_checks(rules: Rules, noun: str) -> list[ValueCheck]:
    checks = [
        *_range_checks(rules, _write_moment, show_nothing, noun, _read_moment),
        *_membership_checks(rules, _write_moment, show_nothing, _read_moment),
    ]
    return [replace(check.over(_read_moment), shown=show_as(_write_moment)) for check in checks]


def _read_moment(value: Duration | Timestamp) -> tuple[int, int]:
    return value.seconds, value.nanos


def _write_moment(value: Duration | Timestamp) -> str:
    nanos = value.seconds * NANOS_PER_S + value.nanos
    whole, part = divmod(abs(nanos), NANOS_PER_S)
    fraction = f".{part:09}".rstrip("0") if part else ""
    return f"{'-' if nanos < 0 else ''}{whole}{fraction}s"


_VALID_DURATION = ValueCheck(
    lambda value: abs(value.nanos) >= NANOS_PER_S or abs(value.seconds) > LONGEST_DURATION_S,
    "out-of-range",
    "must be a valid duration",
    "write a duration of less than 10 000 years",
    show_as(_write_moment),
)


# Demands on texts and bytes


def _size_checks(
    least: int | None, most: int | None, size_of: Callable[[FieldValue], int], noun: str, rule: str
) -> list[ValueCheck]:
    if not least and most is None:
        return []
    if least == 1 and most is None:
        return [ValueCheck(operator.not_, rule, "must not be empty", _FILL[rule], show_nothing, is_presence=True)]
    if most is None:
        words, remedy = f"at least {_counted(least, noun)}", f"{_counted(least, noun)} or more"
    elif least == most:
        words, remedy = f"exactly {_counted(most, noun)}", _counted(most, noun)
    elif least:
        words, remedy = f"from {least} to {_counted(most, noun)}", f"{least} to {most} long"
    else:
        words, remedy = f"at most {_counted(most, noun)}", f"{_counted(most, noun)} or fewer"
    lowest, highest = least or 0, math.inf if most is None else most

    def is_broken(value: FieldValue) -> bool:
        return not lowest <= size_of(value) <= highest

    return [ValueCheck(is_broken, rule, f"must have {words}", f"make it {remedy}", show_size(size_of))]


def _counted(number: int | None, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _length_checks(
    rules: Rules, names: tuple[str, str, str], size_of: Callable[[FieldValue], int], noun: str
) -> list[ValueCheck]:
    exact, least, most = (rules.get(name) for name in names)
    if exact is not None:
        least = most = exact
    return _size_checks(least, most, size_of, noun, "wrong-length")


def _part_checks(rules: Rules, write: Write, shown: Write) -> list[ValueCheck]:
    checks = []

    def add(name: str, demand: str, remedy: str, breaks: Callable[[FieldValue, FieldValue], object]) -> None:
        if name in rules:
            part = rules[name]
            text, advice = demand.format(write(part)), remedy.format(write(part))
            checks.append(ValueCheck(lambda value: breaks(value, part), "wrong-pattern", text, advice, shown))

    add("prefix", "must begin with {}", "begin it with {}", lambda value, part: not value.startswith(part))
    add("suffix", "must end with {}", "end it with {}", lambda value, part: not value.endswith(part))
    add("contains", "must contain {}", "put {} into it", lambda value, part: part not in value)
    add("not_contains", "must not contain {}", "take {} out of it", lambda value, part: part in value)
    return checks


def _pattern_checks(rules: Rules) -> list[ValueCheck]:
    if rules.get("well_known_regex"):
        return [_header_check(rules)]
    if "pattern" not in rules:
        return []
    matches = compile_pattern(rules["pattern"]).fullmatch  # Envoy demands that the whole text matches
    text = f"must match the regular expression {rules['pattern']}"
    return [ValueCheck(lambda value: not matches(value), "wrong-pattern", text, "write it in that form")]


def _header_check(rules: Rules) -> ValueCheck:
    if not rules.get("strict", True):
        text = "must not contain a line break or a zero byte"
        return ValueCheck(_NO_HEADER_STRING.search, "wrong-pattern", text, "take it out", show_nothing)
    if rules["well_known_regex"] == _HEADER_NAME_REGEX:
        matches = _HEADER_NAME.match
        remedy = "use letters, digits and !#$%&'*+,-.^_|~` alone"
        return ValueCheck(lambda value: not matches(value), "wrong-pattern", "must be a name of an HTTP header", remedy)
    text = "must not contain control characters other than tabs"
    return ValueCheck(_NO_HEADER_VALUE.search, "wrong-pattern", text, "take them out", show_nothing)


def _bytes_in(value: str) -> int:
    return len(value) if value.isascii() else len(value.encode())


def _write_text(value: str) -> str:
    return f'"{value}"'


def _write_bytes(value: bytes) -> str:
    return f"the bytes {value.hex(' ')}"
