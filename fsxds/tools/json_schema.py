"""JSON Schema (draft 2020-12) of messages, made of their descriptors and constraints.

The schemas accept what Envoy's reader accepts (see `fsxds.api.convert_lenient`), not only what proto3 JSON prescribes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, OneofDescriptor

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.constraint_checks import (
    default_demand,
    disallowed_checks,
    element_checks,
    is_unvisited,
    required_demand,
    whole_checks,
)
from fsxds.api.constraint_options import ApiRules, RuleGroups, Rules
from fsxds.api.fields import (
    ANY,
    DURATION,
    FIELD_MASK,
    INTEGERS,
    LIST_VALUE,
    LONG_INTEGERS,
    NULL_VALUE,
    STRUCT,
    TIMESTAMP,
    UNSIGNED_INTEGERS,
    VALUE,
    WRAPPERS,
    enum_of,
    is_map,
    map_parts,
)

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


def well_known_type_schema(message_type: str, rules: RuleGroups) -> Schema | None:
    """Return the schema of a message whose JSON is no object of its fields; None for other messages, and for an Any."""
    if message_type == DURATION:
        return _duration(rules.get("duration", {}))
    if message_type == TIMESTAMP:
        return shared("timestamp")
    return dict(_OPEN[message_type]) if message_type in _OPEN else None


def is_special(message_type: str) -> bool:
    """Return whether the JSON of a message is no object of its fields."""
    return message_type in {DURATION, TIMESTAMP} | WRAPPERS | _OPEN.keys()


def _bool(rules: Rules) -> Schema:
    if "const" not in rules:
        return shared("bool")
    word = any_case(*(_TRUE if rules["const"] else _FALSE))
    return {"anyOf": [{"const": bool(rules["const"])}, {"type": "string", "pattern": word}]}


def _text_keywords(rules: Rules) -> Schema:
    """Return the rules that JSON Schema can express; of lengths in bytes, what follows for lengths in characters."""
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
    """Return the schema of a duration; of its bounds, a pattern can express zero alone."""
    low = rules.get("gt", rules.get("gte"))
    if low is None or "lte" in rules:
        return shared("duration")
    # Whatever the lower bound, it is not below zero in any API; the description has the rest.
    zero = r"(?!0+(\.0+)?s$)" if "gt" in rules or _is_positive(low) else ""
    pattern = rf"^{zero}[0-9]{{1,12}}(\.[0-9]{{1,9}})?s$"
    return {"anyOf": [{"type": "string", "pattern": pattern}, shared("seconds-and-nanos")]}


def _is_positive(duration: DynamicMessage) -> bool:
    return bool(duration.seconds > 0 or duration.nanos > 0)


_ENUM_NUMBER = r"-?[0-9]+"
_DEFINED_ONLY = ":defined"

# Packages whose messages are never packed in a configuration: what servers are asked and answer, and options.
_NEVER_PACKED = (
    "envoy.admin.", "envoy.annotations.", "envoy.service.", "google.api.", "google.rpc.", "grpc.channelz.",
    "grpc.health.", "io.prometheus.", "opentelemetry.", "pb.", "skywalking.", "tcmalloc.", "udpa.annotations.",
    "validate.", "xds.annotations.", "xds.service.", "zipkin.",
)  # fmt: skip
_GOOGLE = "google.protobuf."


def packable_types(catalogue: Catalogue) -> tuple[str, ...]:
    """Return the message types that may stand in an Any of a configuration, sorted."""
    return tuple(
        sorted(
            descriptor.full_name
            for descriptor in catalogue.descriptors()
            if descriptor.containing_type is None and _is_packable(descriptor.full_name)
        )
    )


def _is_packable(name: str) -> bool:
    if name.startswith(_GOOGLE):
        return is_special(name) or name in {ANY, f"{_GOOGLE}Empty"}
    return not name.startswith(_NEVER_PACKED)


class MessageSchemas:
    """Makes definitions of message types, each once, with all that they need.

    Attributes:
        definitions: what was made so far, by name; message types and enums have their full names.
    """

    def __init__(self, catalogue: Catalogue, packed: Iterable[str]) -> None:
        """Make schemas of a catalogue.

        Args:
            catalogue: the message types that exist.
            packed: the message types that an Any may hold.
        """
        self._catalogue = catalogue
        self._rules = catalogue.once(ApiRules)
        self._packed = tuple(sorted(packed))
        self.definitions: dict[str, Schema] = {name: dict(schema) for name, schema in SHARED.items()}

    def message(self, message_type: str) -> Schema:
        """Return a reference to a message type, which gets its definition; KeyError where it does not exist."""
        return self._message(self._catalogue.pool.FindMessageTypeByName(message_type), {})

    def _message(self, descriptor: Descriptor, rules: RuleGroups) -> Schema:
        name = descriptor.full_name
        if name in WRAPPERS:
            return wrapper_schema(descriptor.fields_by_name["value"], rules)
        special = well_known_type_schema(name, rules)
        if special is not None:
            return special
        if name not in self.definitions:
            # Known before it is made: messages hold themselves.
            self.definitions[name] = {}
            self.definitions[name] |= self._any() if name == ANY else self._object(descriptor)
        return shared(name)

    def _object(self, descriptor: Descriptor) -> Schema:
        properties: dict[str, Schema] = {}
        demands: list[Schema] = []
        if descriptor.full_name in self._packed:
            properties["@type"] = {"type": "string", "pattern": _type_pattern(descriptor.full_name)}
        for field in descriptor.fields:
            schema = self._field(field)
            properties |= dict.fromkeys(_spellings(field), schema)
            if self._is_required(field):
                demands.append(_one_of_spellings(field))
        demands += [
            _choice_of(oneof, is_required=self._rules.is_required(oneof))
            for oneof in descriptor.oneofs
            if not _is_simple(oneof)
        ]
        return {
            "title": descriptor.name,
            **_described(descriptor.GetOptions().deprecated, []),
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            **_joined(demands),
        }

    def _is_required(self, field: FieldDescriptor) -> bool:
        oneof = field.containing_oneof
        if oneof is not None:
            return _is_simple(oneof) and self._rules.is_required(oneof)
        rules = self._rules.rules_of(field)
        checks = whole_checks(field, rules) if field.is_repeated else element_checks(field, rules)
        return required_demand(field, rules) is not None or default_demand(field, checks) is not None

    def _field(self, field: FieldDescriptor) -> Schema:
        rules = self._rules.rules_of(field)
        checks = [*whole_checks(field, rules)] if field.is_repeated else [*element_checks(field, rules)]
        words = [check.demand for check in (*checks, *disallowed_checks(field, self._rules))]
        if is_map(field):
            schema = self._map(field, rules.get("map", {}))
        elif field.is_repeated:
            schema = self._list(field, rules.get("repeated", {}))
        else:
            schema = self._one(field, rules)
        return schema | _described(field.GetOptions().deprecated, words)

    def _one(self, field: FieldDescriptor, rules: RuleGroups) -> Schema:
        if field.message_type is not None:
            if is_unvisited(rules) and field.message_type.full_name not in {ANY, *WRAPPERS}:
                # Envoy does not check the constraints within, so they are not in the schema.
                return {"type": "object"}
            return self._message(field.message_type, rules)
        if field.enum_type is not None:
            return self._enum(enum_of(field), rules.get("enum", {}))
        return scalar_schema(field, rules)

    def _list(self, field: FieldDescriptor, rules: Rules) -> Schema:
        """Return the schema of a list; Envoy takes one item for a list of one."""
        element = self._one(field, rules.get("items", {}))
        schema: Schema = {"type": "array", "items": element}
        for rule, keyword in (("min_items", "minItems"), ("max_items", "maxItems")):
            if rules.get(rule) and not rules.get("ignore_empty"):
                schema[keyword] = rules[rule]
        if rules.get("unique"):
            schema["uniqueItems"] = True
        return schema if rules.get("min_items", 0) > 1 else {"anyOf": [schema, element]}

    def _map(self, field: FieldDescriptor, rules: Rules) -> Schema:
        schema: Schema = {"type": "object", "additionalProperties": self._one(map_parts(field)[1], {})}
        for rule, keyword in (("min_pairs", "minProperties"), ("max_pairs", "maxProperties")):
            if rules.get(rule) and not rules.get("ignore_empty"):
                schema[keyword] = rules[rule]
        return schema

    def _enum(self, enum: EnumDescriptor, rules: Rules) -> Schema:
        """Return the schema of an enum: its names as they are written, then the same in any case, then numbers."""
        if enum.full_name == NULL_VALUE:
            return {"type": "null"}
        if {"in", "not_in", "const"} & rules.keys():
            return self._enum_schema(enum, _allowed(enum, rules), is_closed=bool(rules.get("defined_only")))
        # By this constraint, Envoy rejects numbers that the enum does not define.
        is_closed = bool(rules.get("defined_only"))
        name = enum.full_name + (_DEFINED_ONLY if is_closed else "")
        if name not in self.definitions:
            self.definitions[name] = self._enum_schema(enum, None, is_closed=is_closed)
        return shared(name)

    def _enum_schema(
        self, enum: EnumDescriptor, is_allowed: Callable[[int], bool] | None, *, is_closed: bool
    ) -> Schema:
        disallowed = self._rules.disallowed_values(enum)
        values = [value for value in enum.values if value.number not in disallowed]
        if is_allowed is not None:
            values = [value for value in values if is_allowed(value.number)]
        names, numbers = [value.name for value in values], sorted({value.number for value in values})
        text = "|".join(map(str, numbers)) if is_closed else _ENUM_NUMBER
        pattern = any_case(*names).replace(")$", f"|{text})$")
        number = _range_of(numbers) if is_closed else {"type": "integer"}
        return {"title": enum.name, "anyOf": [{"enum": names}, {"type": "string", "pattern": pattern}, number]}

    def _any(self) -> Schema:
        """Return the schema of an Any: its "@type" names one of the packed types, and leads to its schema."""
        names = [f"type.googleapis.com/{name}" for name in self._packed]
        url = {
            "anyOf": [{"enum": names}, {"type": "string", "pattern": f"/({'|'.join(map(_escaped, self._packed))})$"}]
        }
        return {
            "title": "Any",
            "type": "object",
            "properties": {"@type": url},
            # An Any with nothing in it counts as absent.
            "if": {"minProperties": 1},
            "then": {"required": ["@type"]},
            "allOf": [self._choice(name) for name in self._packed],
        }

    def _choice(self, name: str) -> Schema:
        condition = {"properties": {"@type": {"type": "string", "pattern": _type_pattern(name)}}, "required": ["@type"]}
        if name != ANY and not is_special(name):
            return {"if": condition, "then": self.message(name)}
        properties = {"@type": {"type": "string"}, "value": self.message(name)}
        return {
            "if": condition,
            "then": {"type": "object", "properties": properties, "additionalProperties": False},
        }


def _spellings(field: FieldDescriptor) -> tuple[str, ...]:
    return (field.name,) if field.name == field.json_name else (field.name, field.json_name)


def _one_of_spellings(field: FieldDescriptor) -> Schema:
    names = _spellings(field)
    return {"required": [field.name]} if len(names) == 1 else {"anyOf": [{"required": [name]} for name in names]}


def _choice_of(oneof: OneofDescriptor, *, is_required: bool) -> Schema:
    """Return the demand that exactly one member of a oneof be given, or, where none is required, at most one."""
    given: list[Schema] = [{"required": [name]} for field in oneof.fields for name in _spellings(field)]
    return {"oneOf": given if is_required else [*given, {"not": {"anyOf": given}}]}


def _is_simple(oneof: OneofDescriptor) -> bool:
    return len(oneof.fields) == 1


def _joined(demands: list[Schema]) -> Schema:
    """Return demands as keywords of one schema."""
    names = [name for demand in demands for name in demand.get("required", ())]
    others = [demand for demand in demands if "required" not in demand]
    return {**({"required": names} if names else {}), **({"allOf": others} if others else {})}


def _described(deprecated: object, words: list[str]) -> Schema:
    described: Schema = {"deprecated": True} if deprecated else {}
    return described | ({"description": "; ".join(words)} if words else {})


def _range_of(numbers: list[int]) -> Schema:
    """Return the schema of these numbers alone; as a range, editors do not propose them beside the names."""
    gaps = sorted(set(range(numbers[0], numbers[-1] + 1)) - set(numbers))
    schema: Schema = {"type": "integer", "minimum": numbers[0], "maximum": numbers[-1]}
    return schema | ({"not": {"enum": gaps}} if gaps else {})


def _allowed(enum: EnumDescriptor, rules: Rules) -> Callable[[int], bool]:
    allowed = {rules["const"]} if "const" in rules else set(rules.get("in", enum.values_by_number))
    return lambda number: number in allowed and number not in rules.get("not_in", ())


def _type_pattern(name: str) -> str:
    return f"/{_escaped(name)}$"


def _escaped(name: str) -> str:
    return name.replace(".", r"\.")
