"""JSON Schema of single values.

The schemas accept the input of Envoy's reader (see `fsxds.api.convert_lenient`). A keyword applies to values of its own
type alone, so one schema may bound numbers, match text and name fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor

from fsxds.api.constraint_options import RuleGroups, Rules
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

Schema: TypeAlias = dict[str, Any]

_POINTER = "#/$defs/"
_TRUE, _FALSE = ("true", "t", "yes", "y", "1", "on"), ("false", "f", "no", "n", "0", "off")
_INTEGER_TEXT = r"^[-+]?([0-9]+(\.0*)?([eE][-+]?[0-9]{1,3})?|0[xX][0-9A-Fa-f]{1,16})$"
_NUMBER_TEXT = r"^([-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?|NaN|-?Infinity)$"
_HEADER_NAME = r"^:?[0-9a-zA-Z!#$%&'*+-.^_|~`]+$"
_HEADER_VALUE = r"^[^\u0000-\u0008\u000a-\u001f\u007f]*$"
_HEADER_TEXT = r"^[^\u0000\u000a\u000d]*$"
# Syntax that RE2 and ECMAScript read differently, or that only one of them has.
_NOT_ECMA = re.compile(r"\(\?|\\[pPQCzAZ]|\[\[:|\[\^?\]")
_DURATION_TEXT = r"[0-9]{1,12}(\.[0-9]{1,9})?s$"


def any_case(*words: str) -> str:
    """Return a portable regular expression for words in any case."""
    either = (
        "".join(f"[{one.lower()}{one.upper()}]" if one.isalpha() else re.escape(one) for one in word) for word in words
    )
    return f"^({'|'.join(either)})$"


def _integer(low: int, high: int) -> Schema:
    return {"type": ["integer", "string"], "minimum": low, "maximum": high, "pattern": _INTEGER_TEXT}


def _time(**text: str) -> Schema:
    whole = {"type": ["integer", "string"]}
    return {
        "type": ["string", "object"],
        **text,
        "properties": {"seconds": whole, "nanos": whole},
        "additionalProperties": False,
    }


_SCALARS: Mapping[str, Schema] = {
    "bool": {"type": ["boolean", "string"], "pattern": any_case(*_TRUE, *_FALSE)},
    "bytes": {"type": "string", "pattern": "^[A-Za-z0-9+/_-]*={0,2}$", "contentEncoding": "base64"},
    "string": {"type": "string"},
    "int32": _integer(-(1 << 31), (1 << 31) - 1),
    "uint32": _integer(0, (1 << 32) - 1),
    "int64": _integer(-(1 << 63), (1 << 63) - 1),
    "uint64": _integer(0, (1 << 64) - 1),
    "number": {"type": ["number", "string"], "pattern": _NUMBER_TEXT},
}


def _or_wrapped(schema: Schema) -> Schema:
    """The pattern keeps editors from proposing `{"value": ...}`, which is accepted."""
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return schema | {
        "type": [*types, "object"], "patternProperties": {"^value$": {}}, "additionalProperties": False
    }  # fmt: skip


# The definitions that values refer to, by name.
SHARED: Mapping[str, Schema] = MappingProxyType({
    **_SCALARS,
    **{f"{name}-value": _or_wrapped(schema) for name, schema in _SCALARS.items()},
    "duration": _time(pattern=f"^-?{_DURATION_TEXT}"),
    "duration-not-negative": _time(pattern=f"^{_DURATION_TEXT}"),
    "duration-positive": _time(pattern=rf"^(?!0+(\.0+)?s$){_DURATION_TEXT}"),
    "timestamp": _time(format="date-time"),
})  # fmt: skip

_OPEN: Mapping[str, Schema] = MappingProxyType(
    {FIELD_MASK: {"type": "string"}, LIST_VALUE: {"type": "array"}, STRUCT: {"type": "object"}, VALUE: {}}
)


def shared(name: str) -> Schema:
    """Return a reference to a definition."""
    return {"$ref": f"{_POINTER}{name}"}


def reference_of(schema: Schema) -> str | None:
    """Return the referenced definition's name, or None."""
    reference = schema.get("$ref")
    return reference.removeprefix(_POINTER) if isinstance(reference, str) else None


def scalar_schema(field: FieldDescriptor, rules: RuleGroups, suffix: str = "") -> Schema:
    """Return a scalar field's schema, enums excepted.

    `suffix` is `-value` if the value may be wrapped: Envoy also takes `{"value": ...}`.
    """
    own: Rules = next((group for name, group in rules.items() if name != "message"), {})
    if field.type == FieldDescriptor.TYPE_STRING:
        keywords = _text_keywords(own)
        if not suffix:
            return {"type": "string"} | keywords
        if keywords.keys() & {"enum", "const", "not"}:
            keywords = {"if": {"type": "string"}, "then": keywords}
        return shared(f"string{suffix}") | keywords
    if field.type == FieldDescriptor.TYPE_BOOL:
        schema = shared(f"bool{suffix}")
        if "const" in own:
            wanted = bool(own["const"])
            schema |= {"pattern": any_case(*(_TRUE if wanted else _FALSE)), "not": {"const": not wanted}}
        return schema
    if field.type == FieldDescriptor.TYPE_BYTES:
        return shared(f"bytes{suffix}")
    size = 64 if field.type in LONG_INTEGERS else 32
    integer = f"{'u' if field.type in UNSIGNED_INTEGERS else ''}int{size}"
    return shared(f"{integer if field.type in INTEGERS else 'number'}{suffix}") | _bounds(own)


def well_known_type_schema(message_type: str, rules: RuleGroups) -> Schema | None:
    """Return the schema of special JSON; None for other messages and an Any."""
    if message_type == DURATION:
        own = rules.get("duration", {})
        low = own.get("gt", own.get("gte"))
        # A pattern can express no bound but zero.
        if low is None or "lte" in own:
            return shared("duration")
        # No API has a negative lower bound; the description has the rest.
        is_positive = "gt" in own or low.seconds > 0 or low.nanos > 0
        return shared("duration-positive" if is_positive else "duration-not-negative")
    if message_type == TIMESTAMP:
        return shared("timestamp")
    return dict(_OPEN[message_type]) if message_type in _OPEN else None


def is_special(message_type: str) -> bool:
    """Return whether a message's JSON is no object of its fields."""
    return message_type in {DURATION, TIMESTAMP} | WRAPPERS | _OPEN.keys()


def _text_keywords(rules: Rules) -> Schema:
    """Bounds in bytes become the implied bounds in characters."""
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
    """None if zero means "not set", or if the rule excludes a range."""
    low, high = rules.get("gt", rules.get("gte")), rules.get("lt", rules.get("lte"))
    if rules.get("ignore_empty") or (low is not None and high is not None and high < low):
        return {}
    names = {"gt": "exclusiveMinimum", "gte": "minimum", "lt": "exclusiveMaximum", "lte": "maximum"}
    allowed = [rules["const"]] if "const" in rules else sorted(rules.get("in", ()))
    members = {"if": {"type": "number"}, "then": {"enum": allowed}} if allowed else {}
    return {names[rule]: rules[rule] for rule in names if rule in rules} | members
