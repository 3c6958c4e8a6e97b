"""What the API says of its fields, messages and values: their types, demands and comments, in Markdown.

Comments are there where the descriptors have them: `protoc --include_source_info` writes them, Envoy's own have none.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from fsxds.api.catalogue import Catalogue
from fsxds.api.comments import read_comments
from fsxds.api.constraint_checks import (
    default_demand,
    disallowed_checks,
    element_checks,
    required_demand,
    whole_checks,
)
from fsxds.api.constraint_options import ApiRules, RuleGroups
from fsxds.api.fields import WRAPPERS, enum_of, is_map, map_parts

MOST_VALUES = 20
"""Values of an enum that are listed."""

_SCALARS = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}


class ApiWords:
    """Describes the parts of one API; `catalogue.once(ApiWords)` makes one."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._rules = catalogue.once(ApiRules)

    def field(self, field: FieldDescriptor) -> str:
        """Describe a field."""
        heading = f"**{field.name}**: `{type_words(field)}`"
        parts = [heading, *self._facts(field), self._comment(field.full_name), self._values(field)]
        return "\n\n".join(part for part in (*parts, f"`{field.full_name}`") if part)

    def message(self, message: Descriptor) -> str:
        """Describe a message."""
        required = [f"`{field.name}`" for field in message.fields if self.is_required(field)]
        oneofs = [oneof for oneof in message.oneofs if len(oneof.fields) > 1 and self._rules.is_required(oneof)]
        choices = [" or ".join(f"`{field.name}`" for field in oneof.fields) for oneof in oneofs]
        demands = f"Required: {', '.join((*required, *choices))}." if required or choices else ""
        deprecated = "Deprecated." if message.GetOptions().deprecated else ""
        parts = (f"**{message.name}**", deprecated, demands, self._comment(message.full_name), f"`{message.full_name}`")
        return "\n\n".join(part for part in parts if part)

    def value(self, enum: EnumDescriptor, name: str) -> str:
        """Describe a value of an enum."""
        comment = self._comment(f"{enum.full_name}.{name}")
        return "\n\n".join(part for part in (f"**{name}** of `{enum.full_name}`", comment) if part)

    def is_required(self, field: FieldDescriptor) -> bool:
        """Return whether a message without this field is rejected."""
        oneof = field.containing_oneof
        if oneof is not None:
            return len(oneof.fields) == 1 and self._rules.is_required(oneof)
        rules = self._rules.rules_of(field)
        checks = whole_checks(field, rules) if field.is_repeated else element_checks(field, rules)
        return required_demand(field, rules) is not None or default_demand(field, checks) is not None

    def is_disallowed(self, field: FieldDescriptor) -> bool:
        """Return whether Envoy rejects a message with this field."""
        return self._rules.is_disallowed(field)

    def disallowed_values(self, enum: EnumDescriptor) -> frozenset[int]:
        """Return the numbers of the values that Envoy rejects."""
        return self._rules.disallowed_values(enum)

    def demands(self, field: FieldDescriptor) -> list[str]:
        """Return what is demanded of the value of a field, in words."""
        rules: RuleGroups = self._rules.rules_of(field)
        checks = whole_checks(field, rules) if field.is_repeated else element_checks(field, rules)
        return [check.demand for check in (*checks, *disallowed_checks(field, self._rules))]

    def _facts(self, field: FieldDescriptor) -> Iterator[str]:
        facts = ["required"] if self.is_required(field) else []
        oneof = field.containing_oneof
        if oneof is not None and len(oneof.fields) > 1:
            others = ", ".join(f"`{other.name}`" for other in oneof.fields if other is not field)
            facts.append(f"excludes {others}")
        facts += self.demands(field)
        if field.GetOptions().deprecated:
            facts.append("deprecated")
        default = _default(field)
        if default:
            facts.append(f"default `{default}`")
        if facts:
            yield "; ".join(facts)

    def _values(self, field: FieldDescriptor) -> str:
        if field.enum_type is None:
            return ""
        disallowed = self.disallowed_values(enum_of(field))
        names = [value.name for value in enum_of(field).values if value.number not in disallowed]
        more = f", … {len(names) - MOST_VALUES} more" if len(names) > MOST_VALUES else ""
        return f"One of {', '.join(f'`{name}`' for name in names[:MOST_VALUES])}{more}."

    def _comment(self, full_name: str) -> str:
        return self._catalogue.once(read_comments).get(full_name, "")


def type_words(field: FieldDescriptor) -> str:
    """Return the type of a field as its proto file has it."""
    if is_map(field):
        key, value = map_parts(field)
        return f"map<{_single(key)}, {_single(value)}>"
    return f"repeated {_single(field)}" if field.is_repeated else _single(field)


def _single(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        return str(field.message_type.full_name)
    if field.enum_type is not None:
        return enum_of(field).full_name
    return _SCALARS[field.type]


def _default(field: FieldDescriptor) -> str:
    """Return what an absent field means, where that is a value of an enum: the zero of all others goes without saying."""
    is_message = field.message_type is not None
    if field.is_repeated or field.enum_type is None or is_message or field.containing_oneof is not None:
        return ""
    first = enum_of(field).values_by_number.get(0)
    return first.name if first is not None else ""


def is_switch(field: FieldDescriptor) -> bool:
    """Return whether a field is true or false."""
    message: Descriptor | None = field.message_type
    if message is not None and message.full_name in WRAPPERS:
        return message.fields_by_name["value"].type == FieldDescriptor.TYPE_BOOL
    return field.type == FieldDescriptor.TYPE_BOOL


def siblings(field: FieldDescriptor) -> list[str]:
    """Return the names of the fields that cannot be set beside a field, in snake_case."""
    oneof = field.containing_oneof
    return [] if oneof is None else [one.name for one in oneof.fields if one.name != field.name]
