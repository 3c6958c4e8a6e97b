"""JSON Schema (draft 2020-12) of messages and single values.

The schemas accept the input of Envoy's reader (see `fsxds.api.convert_lenient`); but unless both spellings are
requested, fields have one spelling, and enum values the declared or the lower case. A keyword applies to values of its
own type alone, so one schema may bound numbers, match text and name fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, OneofDescriptor

from fsxds.api.catalogue import Catalogue
from fsxds.api.comments import read_comments
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
from fsxds.tools.packed_places import ANYTHING, PackedTypes, Place

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


Spelling: TypeAlias = Literal["snake", "camel", "both"]
"""`connect_timeout`, `connectTimeout`, or either."""

_OBVIOUS = re.compile(r"^envoy\.(extensions\.)?|\.v3(?=\.)")
_PAIR = 2
_DEFINED_ONLY = ":defined"
_NOWHERE: Place = (ANYTHING,)
_EXTENSIONS = ("envoy.extensions.", "xds.type.")
# Packages of parsed CEL expressions, which only programs write.
_SYNTAX_TREES = ("google.api.expr.", "cel.expr")
_OPEN_OBJECT: Schema = {"type": "object"}
# Names of definitions: the common part of every Any, type URLs allowed everywhere, and all type URLs.
_PACKED, _OTHER_URL, _ANY_URL = "packed", "other-url", "any-url"
# Types of unusual hosts, and types in development, are left to `fsxds check`.
_OTHER_HOST = r"^(?!type\.googleapis\.com/).+/"


class MessageSchemas:
    """Creates each message type's definition once, with all that it needs.

    A message with an Any has a definition per place, named with it.

    Attributes:
        definitions: by full name for message types and enums.
    """

    def __init__(
        self, catalogue: Catalogue, packed: PackedTypes, spelling: Spelling = "snake", *, has_drafts: bool = True
    ) -> None:
        """Without `has_drafts`, extensions that are work in progress are open to any field."""
        self._open = frozenset() if has_drafts else catalogue.once(drafts)
        self._catalogue = catalogue
        self._rules = catalogue.once(ApiRules)
        self._comments = catalogue.once(read_comments)
        self._packed = packed
        self._spelling = spelling
        self._packed_messages: dict[str, Schema] = {}
        self.definitions: dict[str, Schema] = {name: dict(schema) for name, schema in SHARED.items()}

    def message(self, message_type: str, place: Place = _NOWHERE) -> Schema:
        """Define a message type, and return a reference; KeyError for an unknown type.

        `place` has the types of an Any in the message.
        """
        return self._message(self._catalogue.pool.FindMessageTypeByName(message_type), {}, place)

    def spellings(self, field: FieldDescriptor) -> tuple[str, ...]:
        """Return the spellings of a field."""
        names = {"snake": (field.name,), "camel": (field.json_name,), "both": (field.name, field.json_name)}
        return tuple(dict.fromkeys(names[self._spelling]))

    def _message(self, descriptor: Descriptor, rules: RuleGroups, place: Place) -> Schema:
        name = descriptor.full_name
        if name in WRAPPERS:
            return scalar_schema(
                descriptor.fields_by_name["value"], rules, "-value" if self._spelling == "both" else ""
            )
        special = well_known_type_schema(name, rules)
        if special is not None:
            return special
        if descriptor.file.package.startswith(_SYNTAX_TREES) or descriptor.file.name in self._open:
            return dict(_OPEN_OBJECT)
        if name == ANY or self._packed.is_holder(descriptor):
            name += f":{_short(place)}" if place != _NOWHERE else ""
        else:
            place = _NOWHERE
        if name not in self.definitions:
            # Entered before it is made, because messages are recursive.
            self.definitions[name] = {}
            made = self._any(place) if descriptor.full_name == ANY else self._object(descriptor, place)
            self.definitions[name] |= made
        return shared(name)

    def _object(self, descriptor: Descriptor, place: Place) -> Schema:
        properties: dict[str, Schema] = {"@type": {}} if self._packed.is_typed(descriptor.full_name) else {}
        demands: list[Schema] = []
        for field in descriptor.fields:
            schema = self._field(field, self._packed.place_of(field, place))
            properties |= dict.fromkeys(self.spellings(field), schema)
            if self._is_required(field):
                needed: list[Schema] = [{"required": [name]} for name in self.spellings(field)]
                demands.append(needed[0] if len(needed) == 1 else {"anyOf": needed})
        demands += [self._choice_of(oneof) for oneof in descriptor.oneofs if not _is_simple(oneof)]
        return {
            **self._described(descriptor.full_name, descriptor.GetOptions().deprecated, []),
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

    def _choice_of(self, oneof: OneofDescriptor) -> Schema:
        """At most one if none is required."""
        names = [name for field in oneof.fields for name in self.spellings(field)]
        holder = oneof.containing_type
        given: list[Schema] = [{"required": [name]} for name in names]
        is_required = self._rules.is_required(oneof)
        has_others = len(names) != len(holder.fields) or self._packed.is_typed(holder.full_name)
        if self._spelling != "both" and not has_others:
            return {**({"minProperties": 1} if is_required else {}), "maxProperties": 1}
        if is_required:
            return {"oneOf": given}
        if len(names) == _PAIR:
            return {"not": {"required": names}}
        return {"oneOf": [*given, {"properties": dict.fromkeys(names, False)}]}

    def _field(self, field: FieldDescriptor, place: Place) -> Schema:
        rules = self._rules.rules_of(field)
        checks = [*whole_checks(field, rules)] if field.is_repeated else [*element_checks(field, rules)]
        words = [check.demand for check in (*checks, *disallowed_checks(field, self._rules))]
        if is_map(field):
            schema = {"type": "object", "additionalProperties": self._one(map_parts(field)[1], {}, place)}
            schema |= _limits(rules.get("map", {}), min_pairs="minProperties", max_pairs="maxProperties")
        elif field.is_repeated:
            schema = self._list(field, rules.get("repeated", {}), place)
        else:
            schema = self._one(field, rules, place)
        return schema | self._described(field.full_name, field.GetOptions().deprecated, words)

    def _described(self, name: str, deprecated: object, words: list[str]) -> Schema:
        described: Schema = {"deprecated": True} if deprecated else {}
        said = [self._comments[name]] if name in self._comments else []
        # The names of an enum are listed already, and every demand has this prefix.
        shown = [word.removeprefix("must be ") for word in words if not word.startswith("must be a value of ")]
        text = " ".join([*said, "; ".join(shown)]).strip()
        return described | ({"description": text} if text else {})

    def _one(self, field: FieldDescriptor, rules: RuleGroups, place: Place) -> Schema:
        if field.message_type is not None:
            if is_unvisited(rules) and field.message_type.full_name not in {ANY, *WRAPPERS}:
                # Envoy does not check the constraints of nested messages here, so the schema does not have them.
                return dict(_OPEN_OBJECT)
            return self._message(field.message_type, rules, place)
        if field.enum_type is not None:
            return self._enum(enum_of(field), rules.get("enum", {}))
        return scalar_schema(field, rules)

    def _list(self, field: FieldDescriptor, rules: Rules, place: Place) -> Schema:
        """Envoy takes one item for a list of one."""
        element = self._one(field, rules.get("items", {}), place)
        schema: Schema = {"type": "array", "items": element}
        schema |= _limits(rules, min_items="minItems", max_items="maxItems", unique="uniqueItems")
        return schema if rules.get("min_items", 0) > 1 else {"anyOf": [schema, element]}

    def _enum(self, enum: EnumDescriptor, rules: Rules) -> Schema:
        """Accept names, in lower or any case, and numbers."""
        if enum.full_name == NULL_VALUE:
            return {"type": "null"}
        # With this constraint, Envoy rejects numbers that the enum does not define.
        is_closed = bool(rules.get("defined_only"))
        allowed = {rules["const"]} if "const" in rules else set(rules.get("in", enum.values_by_number))
        if {"in", "not_in", "const"} & rules.keys():
            return self._enum_schema(enum, allowed.difference(rules.get("not_in", ())), is_closed=is_closed)
        name = enum.full_name + (_DEFINED_ONLY if is_closed else "")
        if name not in self.definitions:
            self.definitions[name] = self._enum_schema(enum, allowed, is_closed=is_closed)
        return shared(name)

    def _enum_schema(self, enum: EnumDescriptor, allowed: Collection[int], *, is_closed: bool) -> Schema:
        disallowed = self._rules.disallowed_values(enum)
        values = [value for value in enum.values if value.number in allowed and value.number not in disallowed]
        names = [value.name for value in values]
        other: Schema = {"type": "integer"}
        if is_closed:
            # Editors do not propose a range beside the names.
            numbers = {value.number for value in values}
            gaps = sorted(set(range(min(numbers), max(numbers) + 1)) - numbers)
            other |= {"minimum": min(numbers), "maximum": max(numbers), **({"not": {"enum": gaps}} if gaps else {})}
        if self._spelling != "both":
            # People who know the type from code write lower case; all spellings together make a text four times as
            # long.
            return {**self._enum_described(enum), "anyOf": [{"enum": names}, {"enum": [*map(str.lower, names)]}, other]}
        text = "|".join(str(value.number) for value in values) if is_closed else "-?[0-9]+"
        other |= {"type": ["integer", "string"], "pattern": any_case(*names).replace(")$", f"|{text})$")}
        return {**self._enum_described(enum), "anyOf": [{"enum": names}, other]}

    def _enum_described(self, enum: EnumDescriptor) -> Schema:
        said = [self._comments[enum.full_name]] if enum.full_name in self._comments else []
        said.append(f"default {enum.values[0].name}")
        said += [
            f"{value.name}: {self._comments[name]}"
            for value in enum.values
            if (name := f"{enum.full_name}.{value.name}") in self._comments
        ]
        return {"description": "\n".join(said)}

    def _any(self, place: Place) -> Schema:
        """The types' schemas do not depend on the place."""
        if _PACKED not in self.definitions:
            types = self._packed.types_of_all_places()
            pattern = _OTHER_HOST if self._packed.is_chosen else rf"{_OTHER_HOST}|\.v3alpha\."
            self.definitions[_OTHER_URL] = {"anyOf": [{"enum": _urls(types)}, {"type": "string", "pattern": pattern}]}
            self.definitions[_ANY_URL] = {"type": "string", "pattern": "/"}
            self.definitions[_PACKED] = {"type": "object"}
            self._pack(types)
        lists = []
        for word in place:
            name, types = f"types:{_short((word,))}", self._packed.types(word)
            if types and name not in self.definitions:
                self.definitions[name] = {"enum": _urls(types)}
                self._pack(types)
            lists += [shared(name)] if types else []
        other = _ANY_URL if ANYTHING in place and not self._packed.is_chosen else _OTHER_URL
        return {**shared(_PACKED), "properties": {"@type": {"anyOf": [*lists, shared(other)]}}}

    def _pack(self, types: Iterable[str]) -> None:
        for name in types:
            if name not in self._packed_messages:
                self._packed_messages[name] = {}
                schema = self.message(name)
                if name == ANY or is_special(name):
                    schema = {"properties": {"@type": {}, "value": schema}, "additionalProperties": False}
                self._packed_messages[name] |= schema

    def finish(self) -> dict[str, Schema]:
        """Return all definitions, with the choice by "@type"."""
        if _PACKED in self.definitions:
            # An empty Any counts as absent.
            choice = {"if": {"required": ["@type"]}, "then": {"allOf": self._choices()}, "else": {"maxProperties": 0}}
            self.definitions[_PACKED] |= choice
        return self.definitions

    def _choices(self) -> list[Schema]:
        """Equal messages are one choice."""
        by_content: dict[str, list[str]] = {}
        for name, schema in sorted(self._packed_messages.items()):
            content = self.definitions[reference_of(schema) or ""] if "$ref" in schema else schema
            if schema != _OPEN_OBJECT:
                by_content.setdefault(json.dumps(content), []).append(name)
        choices: list[Schema] = []
        for names in by_content.values():
            ends = "|".join(self._packed.end_of(name) for name in names)
            pattern = rf"\b({ends})$" if len(names) > 1 else rf"\b{ends}$"
            condition = {"properties": {"@type": {"pattern": pattern}}}
            choices.append({"if": condition, "then": self._packed_messages[names[0]]})
        return choices


def drafts(catalogue: Catalogue) -> frozenset[str]:
    """Return the proto files of work in progress; `catalogue.once` keeps them."""
    status = catalogue.extension("xds.annotations.v3.file_status")
    if status is None:
        return frozenset()
    files = {descriptor.file for descriptor in catalogue.descriptors()}
    return frozenset(
        file.name
        for file in files
        if file.package.startswith(_EXTENSIONS) and catalogue.options_of(file).Extensions[status].work_in_progress
    )


def _urls(types: Iterable[str]) -> list[str]:
    return [f"type.googleapis.com/{name}" for name in types]


def _short(place: Place) -> str:
    return ",".join(_OBVIOUS.sub("", word.replace(ANYTHING, "any")) for word in place)


def _is_simple(oneof: OneofDescriptor) -> bool:
    return len(oneof.fields) == 1


def _joined(demands: list[Schema]) -> Schema:
    names = [name for demand in demands for name in demand.get("required", ())]
    others = [demand for demand in demands if "required" not in demand]
    more = others[0] if len(others) == 1 else {"allOf": others} if others else {}
    return {**({"required": names} if names else {}), **more}


def _limits(rules: Rules, **keywords: str) -> Schema:
    return {
        keyword: rules[rule]
        for rule, keyword in keywords.items()
        if rules.get(rule) and (rule == "unique" or not rules.get("ignore_empty"))
    }
