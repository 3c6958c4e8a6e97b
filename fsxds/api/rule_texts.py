"""The demands of rules on texts and bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import re2

from fsxds.api.rule_checks import Check, membership_checks, show_nothing, show_size, show_value

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
