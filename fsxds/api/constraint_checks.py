"""One demand of a rule on one value: what breaks it, and how that is told.

The demands of rules on numbers and durations.

The demands of rules on texts and bytes.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import re2

from fsxds.api.quotes import quoted
from fsxds.api.scalars import LONGEST_DURATION_S, NANOS_PER_S

Shown: TypeAlias = "Callable[[Any, bool], str]"
"""Says at the end of a message what the value is; the flag tells that it is a secret."""

# What `quoted` calls a value that it does not show.
_UNSHOWN = frozenset({"text", "a number", "true or false"})


def show_value(value: Any, secret: bool) -> str:  # noqa: FBT001  # the shape of Shown
    """Quote the value itself, if it is short and no secret."""
    text = quoted(value, secret=secret)
    return "" if text in _UNSHOWN else f", is {text}"


def show_nothing(_value: Any, _secret: bool) -> str:  # noqa: FBT001  # the shape of Shown
    """Leave the value unsaid: the demand says enough."""
    return ""


def show_size(size_of: Callable[[Any], int]) -> Shown:
    """Tell how long the value is, which of a secret would tell too much."""

    def show(value: Any, secret: bool) -> str:  # noqa: FBT001  # the shape of Shown
        return "" if secret else f", has {size_of(value)}"

    return show


@dataclass(frozen=True, slots=True)
class Check:
    """One demand.

    Attributes:
        is_broken: tells, of a value, whether it breaks the demand.
        rule: the name of the rule in the book.
        demand: `must be at least 1`.
        remedy: what to do about it.
        shown: what is told of the value.
        is_presence: only what is empty breaks it.
    """

    is_broken: Callable[[Any], object]
    rule: str
    demand: str
    remedy: str
    shown: Shown = show_value
    is_presence: bool = False

    def message(self, value: Any, *, secret: bool) -> str:
        """Return what to tell of a value that breaks the demand."""
        return self.demand + self.shown(value, secret)

    def over(self, read: Callable[[Any], Any]) -> Check:
        """Return the same demand on what can be read from a value."""
        is_broken, shown = self.is_broken, self.shown
        return replace(
            self,
            is_broken=lambda value: is_broken(read(value)),
            shown=lambda value, secret: shown(read(value), secret),
        )

    def unless_empty(self) -> Check:
        """Return the same demand on values that are not empty, false or zero."""
        is_broken = self.is_broken
        return replace(self, is_broken=lambda value: value and is_broken(value))


def membership_checks(
    rules: Mapping[str, Any], spelled: Callable[[Any], str], read: Callable[[Any], Any] | None = None
) -> list[Check]:
    """Return the demands of `const`, `in` and `not_in`; `read` makes the rules' values comparable.

    As Envoy has it, `not_in` counts only where there is no `in`.
    """
    checks = []
    if "const" in rules:
        constant = rules["const"] if read is None else read(rules["const"])
        text = spelled(rules["const"])
        checks.append(Check(lambda value: value != constant, "not-allowed", f"must be {text}", f"write {text}"))
    allowed, refused = rules.get("in"), rules.get("not_in")
    if allowed:
        known = frozenset(allowed if read is None else map(read, allowed))
        listed = ", ".join(map(spelled, allowed))
        text = f"must be one of {listed}" if len(known) > 1 else f"must be {listed}"
        checks.append(Check(lambda value: value not in known, "not-allowed", text, f"write {one_of(allowed, spelled)}"))
    elif refused:
        banned = frozenset(refused if read is None else map(read, refused))
        text = f"must not be {one_of(refused, spelled)}"
        checks.append(Check(lambda value: value in banned, "not-allowed", text, "choose another value", show_nothing))
    return checks


def one_of(values: Iterable[Any], spelled: Callable[[Any], str]) -> str:
    """List values as a choice: `1`, `1 or 2`, `1, 2 or 3`."""
    *others, last = map(spelled, values)
    return f"{', '.join(others)} or {last}" if others else last


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


# The regular expressions of PGV for HTTP headers, as searches for what they refuse. In its class of characters for names
# `+-.` is a range, so a comma is among them. Without `strict` names and values obey the same.
_HEADER_NAME = re.compile(r"\A:?[0-9a-zA-Z!#$%&'*+-.^_|~`]+\Z")
_NO_HEADER_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NO_HEADER_STRING = re.compile(r"[\x00\x0a\x0d]")
_NAME, _VALUE = 1, 2


def text_checks(rules: Mapping[str, Any]) -> list[Check]:
    """Return the demands on a string."""
    checks = [
        *membership_checks(rules, _spelled),
        *_length_checks(rules, ("len", "min_len", "max_len"), len, "character"),
        *_length_checks(rules, ("len_bytes", "min_bytes", "max_bytes"), _bytes_in, "byte"),
        *_part_checks(rules, _spelled),
        *_pattern_checks(rules),
    ]
    return [check.unless_empty() for check in checks] if rules.get("ignore_empty") else checks


def bytes_checks(rules: Mapping[str, Any]) -> list[Check]:
    """Return the demands on bytes; those are never shown."""
    checks = [
        *membership_checks(rules, _spelled_bytes),
        *_length_checks(rules, ("len", "min_len", "max_len"), len, "byte"),
        *_part_checks(rules, _spelled_bytes),
    ]
    checks = [replace(check, shown=show_nothing) if check.shown is show_value else check for check in checks]
    return [check.unless_empty() for check in checks] if rules.get("ignore_empty") else checks


def compile_pattern(pattern: str) -> Any:
    """Compile a regular expression as Envoy does; re2.error when it is none."""
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def size_check(
    sizes: tuple[int | None, int | None], size_of: Callable[[Any], int], noun: str, rule: str
) -> Check | None:
    """Return the demand that there are at least and at most so many of something."""
    least, most = sizes
    shown = show_size(size_of)
    if least is not None and least == most:
        text = f"must have exactly {_counted(least, noun)}"
        return Check(lambda value: size_of(value) != least, rule, text, f"make it {_counted(least, noun)}", shown)
    if least == 1 and most is None:
        return Check(lambda value: not value, rule, "must not be empty", _FILL[rule], show_nothing, is_presence=True)
    if least and most is not None:
        text = f"must have from {least} to {_counted(most, noun)}"
        return Check(
            lambda value: not least <= size_of(value) <= most, rule, text, f"make it {least} to {most} long", shown
        )
    if least:
        text = f"must have at least {_counted(least, noun)}"
        return Check(
            lambda value: size_of(value) < least, rule, text, f"make it {_counted(least, noun)} or more", shown
        )
    if most is not None:
        text = f"must have at most {_counted(most, noun)}"
        return Check(lambda value: size_of(value) > most, rule, text, f"make it {_counted(most, noun)} or fewer", shown)
    return None


_FILL = {"wrong-length": "give it a value", "wrong-count": "add at least one"}


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _length_checks(
    rules: Mapping[str, Any], names: tuple[str, str, str], size_of: Callable[[Any], int], noun: str
) -> list[Check]:
    exact, least, most = (rules.get(name) for name in names)
    check = size_check((least, most) if exact is None else (exact, exact), size_of, noun, "wrong-length")
    return [] if check is None else [check]


def _part_checks(rules: Mapping[str, Any], spelled: Callable[[Any], str]) -> list[Check]:
    checks = []
    if "prefix" in rules:
        prefix = rules["prefix"]
        text = f"must begin with {spelled(prefix)}"
        checks.append(
            Check(lambda value: not value.startswith(prefix), "wrong-pattern", text, f"begin it with {spelled(prefix)}")
        )
    if "suffix" in rules:
        suffix = rules["suffix"]
        text = f"must end with {spelled(suffix)}"
        checks.append(
            Check(lambda value: not value.endswith(suffix), "wrong-pattern", text, f"end it with {spelled(suffix)}")
        )
    if "contains" in rules:
        part = rules["contains"]
        text = f"must contain {spelled(part)}"
        checks.append(Check(lambda value: part not in value, "wrong-pattern", text, f"put {spelled(part)} into it"))
    if "not_contains" in rules:
        banned = rules["not_contains"]
        text = f"must not contain {spelled(banned)}"
        checks.append(Check(lambda value: banned in value, "wrong-pattern", text, f"take {spelled(banned)} out of it"))
    return checks


def _pattern_checks(rules: Mapping[str, Any]) -> list[Check]:
    if rules.get("well_known_regex"):
        return [_header_check(rules)]
    if "pattern" not in rules:
        return []
    matches = compile_pattern(rules["pattern"]).fullmatch  # Envoy demands that the whole text matches
    text = f"must match the regular expression {rules['pattern']}"
    return [Check(lambda value: not matches(value), "wrong-pattern", text, "write it in that form")]


def _header_check(rules: Mapping[str, Any]) -> Check:
    if not rules.get("strict", True):
        text = "must not contain a line break or a zero byte"
        return Check(_NO_HEADER_STRING.search, "wrong-pattern", text, "take it out", show_nothing)
    if rules["well_known_regex"] == _NAME:
        matches = _HEADER_NAME.match
        remedy = "use letters, digits and !#$%&'*+,-.^_|~` alone"
        return Check(lambda value: not matches(value), "wrong-pattern", "must be a name of an HTTP header", remedy)
    text = "must not contain control characters other than tabs"
    return Check(_NO_HEADER_VALUE.search, "wrong-pattern", text, "take them out", show_nothing)


def _bytes_in(value: str) -> int:
    return len(value) if value.isascii() else len(value.encode())


def _spelled(value: str) -> str:
    return f'"{value}"'


def _spelled_bytes(value: bytes) -> str:
    return f"the bytes {value.hex(' ')}"
