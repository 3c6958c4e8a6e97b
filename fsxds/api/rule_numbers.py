"""The demands of rules on numbers and durations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from fsxds.api.dialect import LONGEST_DURATION_S, NANOS_PER_S
from fsxds.api.rule_checks import Check, membership_checks, show_value

_Moment: TypeAlias = tuple[int, int]
_Bound: TypeAlias = "tuple[Callable[[Any], object], Any, str]"  # what breaks it, the limit, its words

# Of each, what the limit is to a value that breaks it. The first that is there counts, as in Envoy.
_UPPER = (("lt", operator.le, "less than"), ("lte", operator.lt, "at most"))
_LOWER = (("gt", operator.ge, "more than"), ("gte", operator.gt, "at least"))


def number_checks(rules: Mapping[str, Any]) -> list[Check]:
    """Return the demands on a number."""
    checks = [*membership_checks(rules, spell_number), *_range_checks(rules, _same, spell_number, "number")]
    checks = [replace(check, shown=_show_number) if check.shown is show_value else check for check in checks]
    return [check.unless_empty() for check in checks] if rules.get("ignore_empty") else checks


def moment_checks(rules: Mapping[str, Any], noun: str) -> list[Check]:
    """Return the demands on a Duration or a Timestamp, which are compared as Envoy does: seconds, then nanoseconds."""
    checks = [
        *_range_checks(rules, read_moment, spell_moment, noun),
        *membership_checks(rules, spell_moment, read_moment),
    ]
    checks = [replace(check.over(read_moment), shown=_show_moment) for check in checks]
    return [_VALID_DURATION, *checks] if checks and noun == "duration" else checks


def read_moment(value: Any) -> _Moment:
    """Return the seconds and nanoseconds of a Duration or Timestamp, in the order of comparison."""
    return value.seconds, value.nanos


def spell_number(value: float) -> str:
    """Write a number as a file has it: a whole one without a fraction."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else repr(value)


def spell_moment(value: Any) -> str:
    """Write a Duration as its JSON: `0.25s`."""
    nanos = value.seconds * NANOS_PER_S + value.nanos
    whole, part = divmod(abs(nanos), NANOS_PER_S)
    fraction = f".{part:09}".rstrip("0") if part else ""
    return f"{'-' if nanos < 0 else ''}{whole}{fraction}s"


def _show_number(value: Any, secret: bool) -> str:  # noqa: FBT001  # the shape of Shown
    return "" if secret else f", is {spell_number(value)}"


def _show_moment(value: Any, secret: bool) -> str:  # noqa: FBT001  # the shape of Shown
    return "" if secret else f", is {spell_moment(value)}"


def _is_no_duration(value: Any) -> bool:
    return bool(abs(value.nanos) >= NANOS_PER_S or abs(value.seconds) > LONGEST_DURATION_S)


_VALID_DURATION = Check(
    _is_no_duration,
    "out-of-range",
    "must be a valid duration",
    "write a duration of less than 10 000 years",
    _show_moment,
)


def _same(value: Any) -> Any:
    return value


def _range_checks(
    rules: Mapping[str, Any], read: Callable[[Any], Any], spelled: Callable[[Any], str], noun: str
) -> list[Check]:
    upper = _bound(rules, _UPPER, read, spelled)
    lower = _bound(rules, _LOWER, read, spelled)
    if upper is None or lower is None:
        return [_range_check(is_broken, words, noun) for is_broken, _, words in filter(None, (upper, lower))]
    is_too_high, high, high_words = upper
    is_too_low, low, low_words = lower
    if high > low:
        words = f"{low_words} and {high_words}"
        return [_range_check(lambda value: is_too_low(value) or is_too_high(value), words, noun)]
    # A range turned round allows what is outside of it.
    words = f"{high_words} or {low_words}"
    return [_range_check(lambda value: is_too_low(value) and is_too_high(value), words, noun)]


def _range_check(is_broken: Callable[[Any], object], words: str, noun: str) -> Check:
    return Check(is_broken, "out-of-range", f"must be {words}", f"write a {noun} that is {words}")


def _bound(
    rules: Mapping[str, Any],
    names: tuple[tuple[str, Callable[[Any, Any], bool], str], ...],
    read: Callable[[Any], Any],
    spelled: Callable[[Any], str],
) -> _Bound | None:
    for name, breaks, words in names:
        if name in rules:
            limit = rules[name]
            return partial(breaks, read(limit)), read(limit), f"{words} {spelled(limit)}"
    return None
