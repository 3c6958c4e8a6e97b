"""JSON Schemas of values that are no objects of their own: numbers, texts, enums, durations and their like.

They take what Envoy's reader takes (see `dialect`), not only what proto3 JSON prescribes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor

from fsxds.api.fields import (
    DURATION,
    FIELD_MASK,
    INTEGERS,
    LIST_VALUE,
    LONG_INTEGERS,
    STRUCT,
    TIMESTAMP,
    UNSIGNED_INTEGERS,
    VALUE,
    WRAPPERS,
)
from fsxds.api.rule_options import RuleGroups, Rules

Schema: TypeAlias = dict[str, Any]

_TRUE, _FALSE = ("true", "t", "yes", "y", "1", "on"), ("false", "f", "no", "n", "0", "off")
_INTEGER_TEXT = r"^[-+]?([0-9]+(\.0*)?([eE][-+]?[0-9]{1,3})?|0[xX][0-9A-Fa-f]{1,16})$"
_NUMBER_TEXT = r"^([-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?|NaN|-?Infinity)$"
_HEADER_NAME = r"^:?[0-9a-zA-Z!#$%&'*+-.^_|~`]+$"
_HEADER_VALUE = r"^[^\u0000-\u0008\u000a-\u001f\u007f]*$"
_HEADER_TEXT = r"^[^\u0000\u000a\u000d]*$"
# What RE2 and ECMAScript read differently, or only one of them.
_NOT_ECMA = re.compile(r"\(\?|\\[pPQCzAZ]|\[\[:|\[\^?\]")

_SECONDS_AND_NANOS: Schema = {
    "type": "object",
    "properties": {"seconds": {"type": ["integer", "string"]}, "nanos": {"type": ["integer", "string"]}},
    "additionalProperties": False,
}


def any_case(*words: str) -> str:
    """Return the regular expression of words in any case of letters, in the syntax that all know."""
    return f"^({'|'.join(''.join(_either(letter) for letter in word) for word in words)})$"


def _either(letter: str) -> str:
    return f"[{letter.lower()}{letter.upper()}]" if letter.isalpha() else re.escape(letter)


# The definitions that values refer to, by their names.
SHARED: Mapping[str, Schema] = MappingProxyType({
    "bool": {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": any_case(*_TRUE, *_FALSE)}]},
    "bytes": {"type": "string", "pattern": "^[A-Za-z0-9+/_-]*={0,2}$", "contentEncoding": "base64"},
    "integer-text": {"type": "string", "pattern": _INTEGER_TEXT},
    "number-text": {"type": "string", "pattern": _NUMBER_TEXT},
    **{
        f"{'u' if low == 0 else ''}int{bits}": {
            "anyOf": [
                {"type": "integer", "minimum": low, "maximum": high},
                {"$ref": "#/$defs/integer-text"},
            ]
        }
        for bits, low, high in (
            (32, -(1 << 31), (1 << 31) - 1), (32, 0, (1 << 32) - 1),
            (64, -(1 << 63), (1 << 63) - 1), (64, 0, (1 << 64) - 1),
        )
    },
    "number": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/number-text"}]},
    "seconds-and-nanos": _SECONDS_AND_NANOS,
    # As a pattern, it is not what editors propose.
    "wrapped": {"type": "object", "patternProperties": {"^value$": {}}, "additionalProperties": False},
    "duration": {
        "anyOf": [
            {"type": "string", "pattern": r"^-?[0-9]{1,12}(\.[0-9]{1,9})?s$"},
            {"$ref": "#/$defs/seconds-and-nanos"},
        ]
    },
    "timestamp": {
        "anyOf": [{"type": "string", "format": "date-time"}, {"$ref": "#/$defs/seconds-and-nanos"}],
    },
})  # fmt: skip

_OPEN: Mapping[str, Schema] = MappingProxyType(
    {
        FIELD_MASK: {"type": "string"},
        LIST_VALUE: {"type": "array"},
        STRUCT: {"type": "object"},
        VALUE: {},
    }
)


def shared(name: str) -> Schema:
    """Return a reference to a definition."""
    return {"$ref": f"#/$defs/{name}"}


def scalar_schema(field: FieldDescriptor, rules: RuleGroups) -> Schema:
    """Return the schema of one value of a field that is neither an enum nor a message."""
    own: Rules = next((group for name, group in rules.items() if name != "message"), {})
    if field.type == FieldDescriptor.TYPE_BOOL:
        return _bool(own)
    if field.type == FieldDescriptor.TYPE_STRING:
        return {"type": "string", **_text_keywords(own)}
    if field.type == FieldDescriptor.TYPE_BYTES:
        return shared("bytes")
    if field.type not in INTEGERS:
        bounds = _bounds(own)
        return {"anyOf": [{"type": "number", **bounds}, shared("number-text")]} if bounds else shared("number")
    bits = 64 if field.type in LONG_INTEGERS else 32
    is_unsigned = field.type in UNSIGNED_INTEGERS
    bounds = _bounds(own)
    if not bounds:
        return shared(f"{'u' if is_unsigned else ''}int{bits}")
    lowest = {} if "minimum" in bounds or "exclusiveMinimum" in bounds or not is_unsigned else {"minimum": 0}
    return {"anyOf": [{"type": "integer", **lowest, **bounds}, shared("integer-text")]}


def wrapper_schema(field: FieldDescriptor, rules: RuleGroups) -> Schema:
    """Return the schema of a value that may be absent, by the field of its message; Envoy also takes `{"value": …}`."""
    return {"anyOf": [scalar_schema(field, rules), shared("wrapped")]}


def special_schema(message_type: str, rules: RuleGroups) -> Schema | None:
    """Return the schema of a message whose JSON is no object of its fields; None for other messages, and for an Any."""
    if message_type == DURATION:
        return _duration(rules.get("duration", {}))
    if message_type == TIMESTAMP:
        return shared("timestamp")
    return dict(_OPEN[message_type]) if message_type in _OPEN else None


def is_special(message_type: str) -> bool:
    """Tell whether the JSON of a message is no object of its fields."""
    return message_type in {DURATION, TIMESTAMP} | WRAPPERS | _OPEN.keys()


def _bool(rules: Rules) -> Schema:
    if "const" not in rules:
        return shared("bool")
    word = any_case(*(_TRUE if rules["const"] else _FALSE))
    return {"anyOf": [{"const": bool(rules["const"])}, {"type": "string", "pattern": word}]}


def _text_keywords(rules: Rules) -> Schema:
    """Return the rules that JSON Schema can say in the same sense; lengths in bytes are said as what follows of them."""
    keywords: Schema = {}
    if not rules.get("ignore_empty"):
        least = rules.get("len") or rules.get("min_len") or min(1, rules.get("min_bytes", 0))
        keywords |= {"minLength": least} if least else {}
        keywords |= _patterns(rules)
    most = rules.get("len") or rules.get("max_len") or rules.get("len_bytes") or rules.get("max_bytes")
    keywords |= {"maxLength": most} if most else {}
    if "in" in rules:
        keywords["enum"] = sorted(rules["in"])
    if "const" in rules:
        keywords["const"] = rules["const"]
    if "not_in" in rules:
        keywords["not"] = {"enum": sorted(rules["not_in"])}
    return keywords


def _patterns(rules: Rules) -> Schema:
    patterns = []
    if "pattern" in rules and not _NOT_ECMA.search(rules["pattern"]):
        patterns.append(rules["pattern"])
    if "well_known_regex" in rules:
        strict = _HEADER_NAME if rules["well_known_regex"] == 1 else _HEADER_VALUE
        patterns.append(strict if rules.get("strict", True) else _HEADER_TEXT)
    if "prefix" in rules:
        patterns.append("^" + re.escape(rules["prefix"]))
    if "suffix" in rules:
        patterns.append(re.escape(rules["suffix"]) + "$")
    if "contains" in rules:
        patterns.append(re.escape(rules["contains"]))
    if len(patterns) > 1:
        return {"allOf": [{"pattern": pattern} for pattern in patterns]}
    return {"pattern": patterns[0]} if patterns else {}


def _bounds(rules: Rules) -> Schema:
    """Return the bounds of a number; none where zero means "not set", or where the rule is to be outside of a range."""
    low, high = rules.get("gt", rules.get("gte")), rules.get("lt", rules.get("lte"))
    if rules.get("ignore_empty") or (low is not None and high is not None and high < low):
        return {}
    names = {"gt": "exclusiveMinimum", "gte": "minimum", "lt": "exclusiveMaximum", "lte": "maximum"}
    return {names[rule]: rules[rule] for rule in names if rule in rules} | _members(rules)


def _members(rules: Rules) -> Schema:
    allowed = [rules["const"]] if "const" in rules else sorted(rules.get("in", ()))
    return {"enum": allowed} if allowed else {}


def _duration(rules: Rules) -> Schema:
    """Return the schema of a duration; of its bounds, zero alone can be said by a pattern."""
    low = rules.get("gt", rules.get("gte"))
    if low is None or "lte" in rules:
        return shared("duration")
    # Whatever the lower bound, it is not below zero in any API; more is said in words.
    zero = r"(?!0+(\.0+)?s$)" if "gt" in rules or _is_positive(low) else ""
    pattern = rf"^{zero}[0-9]{{1,12}}(\.[0-9]{{1,9}})?s$"
    return {"anyOf": [{"type": "string", "pattern": pattern}, shared("seconds-and-nanos")]}


def _is_positive(duration: Any) -> bool:
    return bool(duration.seconds > 0 or duration.nanos > 0)
