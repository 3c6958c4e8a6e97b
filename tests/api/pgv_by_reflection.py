"""An oracle for field rules: reads every option anew for every message, and shares no code with the product.

Written from the README of protoc-gen-validate and its C++ templates. It yields every broken rule of every value, so it
says more than the product, which tells the first of each value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import re2
from google.protobuf import message_factory

Broken = tuple[tuple[str | int, ...], str]

WELL_KNOWN = {
    (1, True): r"^:?[0-9a-zA-Z!#$%&'*+-.^_|~`]+$",
    (2, True): "^[^\\x00-\\x08\\x0A-\\x1F\\x7F]*$",
    (1, False): "^[^\\x00\\x0A\\x0D]*$",
    (2, False): "^[^\\x00\\x0A\\x0D]*$",
}


class Oracle:
    """Says of a message which rules it breaks where."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        find = pool.FindMessageTypeByName
        self.field_options = message_factory.GetMessageClass(find("google.protobuf.FieldOptions"))
        self.oneof_options = message_factory.GetMessageClass(find("google.protobuf.OneofOptions"))
        self.value_options = message_factory.GetMessageClass(find("google.protobuf.EnumValueOptions"))
        self.rules = pool.FindExtensionByName("validate.rules")
        self.required = pool.FindExtensionByName("validate.required")
        self.disallowed = pool.FindExtensionByName("envoy.annotations.disallowed_by_default")
        self.disallowed_enum = pool.FindExtensionByName("envoy.annotations.disallowed_by_default_enum")

    def broken(self, message: Any) -> set[Broken]:
        """Return the path and the rule of all that is broken."""
        return set(self.message(message, (), pgv=True))

    def message(self, message: Any, path: tuple[str | int, ...], *, pgv: bool) -> Iterator[Broken]:
        """Yield what is broken in a message; without `pgv`, only what is disallowed, and all in Anys."""
        if message.DESCRIPTOR.full_name == "google.protobuf.Any":
            yield from self.content(message, path)
            return
        # Envoy holds nobody to these rules (ENVOY.md E79).
        pgv = pgv and message.DESCRIPTOR.full_name != "xds.core.v3.CollectionEntry"
        for oneof in message.DESCRIPTOR.oneofs:
            options = self.oneof_options.FromString(oneof.GetOptions().SerializeToString())
            if pgv and options.Extensions[self.required] and message.WhichOneof(oneof.name) is None:
                yield path, "required-choice"
        for field in message.DESCRIPTOR.fields:
            yield from self.field(message, field, (*path, field.name), pgv=pgv)

    def content(self, message: Any, path: tuple[str | int, ...]) -> Iterator[Broken]:
        """Yield what is broken in an Any."""
        try:
            descriptor = self.pool.FindMessageTypeByName(message.type_url.split("/")[-1])
            inner = message_factory.GetMessageClass(descriptor).FromString(message.value)
        except Exception:  # noqa: BLE001  # not to be read
            return
        yield from self.message(inner, path, pgv=True)

    def field(self, message: Any, field: Any, path: tuple[str | int, ...], *, pgv: bool) -> Iterator[Broken]:
        """Yield what is broken in one field, whether it is set or not."""
        options: Any = self.field_options.FromString(field.GetOptions().SerializeToString())
        value = getattr(message, field.name)
        is_set = any(field.name == present.name for present, _ in message.ListFields())
        if is_set and options.deprecated and options.Extensions[self.disallowed]:
            yield path, "disallowed-field"
        if field.enum_type is not None and not field.is_repeated:
            for known in field.enum_type.values:
                marks: Any = self.value_options.FromString(known.GetOptions().SerializeToString())
                if known.number == value and marks.deprecated and marks.Extensions[self.disallowed_enum]:
                    yield path, "disallowed-field"
        rules = options.Extensions[self.rules] if pgv and options.HasExtension(self.rules) else None
        is_chosen = field.containing_oneof is None or is_set
        if rules is not None and is_chosen:
            yield from self.value(field, rules, value, is_set, path)
        goes_on = pgv and not (rules is not None and (rules.message.skip or rules.HasField("any")))
        if field.full_name == "envoy.config.core.v3.Metadata.typed_filter_metadata":
            return  # Envoy keeps what is packed there as it is
        for step, inner in parts(field, value, is_set):
            yield from self.message(inner, (*path, *step), pgv=goes_on)

    def value(self, field: Any, rules: Any, value: Any, is_set: bool, path: tuple[str | int, ...]) -> Iterator[Broken]:
        """Yield the rules that a field's value breaks."""
        which = rules.WhichOneof("type")
        if which == "repeated":
            yield from self.repeated(field, rules.repeated, value, path)
        elif which == "map":
            yield from self.map(field, rules.map, value, path)
        elif which in {"any", "duration", "timestamp"}:
            own = getattr(rules, which)
            if own.required and not is_set:
                yield path, "required-field"
            elif is_set:
                yield from ((path, rule) for rule in element(field, rules, value))
        elif field.message_type is not None:
            if rules.message.required and not is_set and not field.is_repeated:
                yield path, "required-field"
            elif is_set and which:
                yield from ((path, rule) for rule in element(field, rules, value.value))
        elif which:
            yield from ((path, rule) for rule in element(field, rules, value))

    def repeated(self, field: Any, rules: Any, values: Any, path: tuple[str | int, ...]) -> Iterator[Broken]:
        """Yield the rules that a list breaks."""
        if rules.ignore_empty and not len(values):
            return
        if len(values) < rules.min_items or (rules.HasField("max_items") and len(values) > rules.max_items):
            yield path, "wrong-count"
        for index, value in enumerate(values):
            if rules.unique and value in list(values)[:index]:
                yield (*path, index), "not-unique"
            if rules.HasField("items") and rules.items.WhichOneof("type"):
                wrapped = field.message_type is not None and field.message_type.full_name.endswith("Value")
                inner = value.value if wrapped else value
                yield from (((*path, index), rule) for rule in element(field, rules.items, inner))

    def map(self, field: Any, rules: Any, values: Any, path: tuple[str | int, ...]) -> Iterator[Broken]:
        """Yield the rules that a map breaks."""
        if len(values) < rules.min_pairs or (rules.HasField("max_pairs") and len(values) > rules.max_pairs):
            yield path, "wrong-count"
        fields = field.message_type.fields_by_name
        for key in values:
            for part, name, value in ((rules.keys, "key", key), (rules.values, "value", values[key])):
                if part.WhichOneof("type"):
                    yield from (((*path, str(key)), rule) for rule in element(fields[name], part, value))


def parts(field: Any, value: Any, is_set: bool) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the messages in a field with the step to each."""
    if field.message_type is None or not is_set:
        return
    if not field.is_repeated:
        yield (), value
    elif not field.message_type.GetOptions().map_entry:
        yield from (((index,), inner) for index, inner in enumerate(value))
    elif field.message_type.fields_by_name["value"].message_type is not None:
        yield from (((str(key),), value[key]) for key in value)


def element(field: Any, rules: Any, value: Any) -> Iterator[str]:
    """Yield the rules that one value breaks: a scalar, a Duration or an Any."""
    which = rules.WhichOneof("type")
    own = getattr(rules, which)
    if getattr(own, "ignore_empty", False) and not value:
        return
    if which == "any":
        return
    if which == "string":
        yield from text(own, value)
    if which in {"string", "bytes"}:
        yield from sizes(own, value)
    if which == "enum" and own.defined_only and value not in [known.number for known in field.enum_type.values]:
        yield "undefined-enum-value"
    if which not in {"string", "bytes", "bool", "enum"}:
        yield from bounds(own, value, as_pair if which == "duration" else lambda number: number)
    if which == "duration":
        return
    if own.HasField("const") and value != own.const:
        yield "not-allowed"
    allowed, refused = getattr(own, "in", ()), getattr(own, "not_in", ())
    if (allowed and value not in list(allowed)) or (not allowed and value in list(refused)):
        yield "not-allowed"


def as_pair(duration: Any) -> tuple[int, int]:
    """Return what durations are compared by."""
    return duration.seconds, duration.nanos


def bounds(rules: Any, value: Any, convert: Any) -> Iterator[str]:
    """Yield the rule of the range: where the lower bound is above the upper, what is between them is refused."""
    value = convert(value)
    limits = {name: convert(getattr(rules, name)) for name in ("lt", "lte", "gt", "gte") if rules.HasField(name)}
    if isinstance(value, tuple) and limits and (abs(value[1]) > 999_999_999 or abs(value[0]) > 315_576_000_000):
        yield "out-of-range"
        return
    high, low = limits.get("lt", limits.get("lte")), limits.get("gt", limits.get("gte"))
    too_high = high is not None and (value >= high if "lt" in limits else value > high)
    too_low = low is not None and (value <= low if "gt" in limits else value < low)
    is_turned_round = high is not None and low is not None and high <= low
    if (too_high and too_low) if is_turned_round else (too_high or too_low):
        yield "out-of-range"


def sizes(rules: Any, value: Any) -> Iterator[str]:
    """Yield the rules of length."""
    counts = [("", len(value))]
    if isinstance(value, str):
        counts = [("len", len(value)), ("bytes", len(value.encode("utf-8")))]
    for unit, count in counts:
        least, most = ("min_bytes", "max_bytes") if unit == "bytes" else ("min_len", "max_len")
        exact = "len_bytes" if unit == "bytes" else "len"
        if rules.HasField(exact) and count != getattr(rules, exact):
            yield "wrong-length"
        if rules.HasField(least) and count < getattr(rules, least):
            yield "wrong-length"
        if rules.HasField(most) and count > getattr(rules, most):
            yield "wrong-length"


def text(rules: Any, value: str) -> Iterator[str]:
    """Yield the rules of form."""
    options = re2.Options()
    options.log_errors = False
    patterns = [rules.pattern] if rules.HasField("pattern") else []
    if rules.well_known_regex:
        strict = rules.strict if rules.HasField("strict") else True
        patterns.append(WELL_KNOWN[rules.well_known_regex, strict])
    if any(re2.compile(pattern, options).fullmatch(value) is None for pattern in patterns):
        yield "wrong-pattern"
    if not value.startswith(rules.prefix) or not value.endswith(rules.suffix) or rules.contains not in value:
        yield "wrong-pattern"
    if rules.not_contains and re.search(re.escape(rules.not_contains), value):
        yield "wrong-pattern"
