"""Describes the API in Markdown.

Comments need descriptors made with `protoc --include_source_info`; Envoy's have none. Only names of resources and words
of the API are repeated, so that no secret is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

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
from fsxds.api.fields import WRAPPERS, enum_of, fields_by_name, is_map, map_parts
from fsxds.editor.api_places import ApiPlaces, Expectation, Role
from fsxds.editor.mentions_of_names import scalar_text, span_of
from fsxds.editor.navigation import Navigator
from fsxds.editor.outline import Trail
from fsxds.editor.text_positions import Span
from fsxds.lint.rules import page_as_markdown, rules
from fsxds.model.resource_types import BY_TYPE_URL

MOST_VALUES = 20
"""The most values listed for an enum."""

_SCALARS = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}


class ApiWords:
    """Describes one API; `catalogue.once(ApiWords)` makes one."""

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
        """Describe an enum value."""
        comment = self._comment(f"{enum.full_name}.{name}")
        return "\n\n".join(part for part in (f"**{name}** of `{enum.full_name}`", comment) if part)

    def is_required(self, field: FieldDescriptor) -> bool:
        """Return whether the field is required."""
        oneof = field.containing_oneof
        if oneof is not None:
            return len(oneof.fields) == 1 and self._rules.is_required(oneof)
        rules = self._rules.rules_of(field)
        checks = whole_checks(field, rules) if field.is_repeated else element_checks(field, rules)
        return required_demand(field, rules) is not None or default_demand(field, checks) is not None

    def is_disallowed(self, field: FieldDescriptor) -> bool:
        """Return whether Envoy rejects the field."""
        return self._rules.is_disallowed(field)

    def disallowed_values(self, enum: EnumDescriptor) -> frozenset[int]:
        """Return the numbers that Envoy rejects."""
        return self._rules.disallowed_values(enum)

    def demands(self, field: FieldDescriptor) -> list[str]:
        """Return a field's constraints in words."""
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
    """Return a field's type as in proto files."""
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
    is_message = field.message_type is not None
    if field.is_repeated or field.enum_type is None or is_message or field.containing_oneof is not None:
        return ""
    first = enum_of(field).values_by_number.get(0)
    return first.name if first is not None else ""


def is_switch(field: FieldDescriptor) -> bool:
    """Whether a field is boolean."""
    message: Descriptor | None = field.message_type
    if message is not None and message.full_name in WRAPPERS:
        return message.fields_by_name["value"].type == FieldDescriptor.TYPE_BOOL
    return field.type == FieldDescriptor.TYPE_BOOL


def siblings(field: FieldDescriptor) -> list[str]:
    """Return the fields that exclude this one, in snake_case."""
    oneof = field.containing_oneof
    return [] if oneof is None else [one.name for one in oneof.fields if one.name != field.name]


MOST_PLACES = 5


@dataclass(frozen=True, slots=True)
class HoverText:
    """A description in Markdown, and its span."""

    markdown: str
    span: Span


def hover(navigator: Navigator, path: PurePosixPath, index: int) -> HoverText | None:
    """Return an index's description, or None."""
    catalogue, broken = navigator.catalogue, navigator.problems_between(path, index, index)
    trail = navigator.outline(path).trail_to(index)
    parts = [_name_words(navigator, path, index)]
    span = (index, index)
    if trail is not None and trail.steps:
        expected = ApiPlaces(catalogue, path).along(trail)
        parts.append(_api_words(catalogue, trail, expected))
        member = trail.steps[-1].member
        span = member.span if trail.is_key and member is not None else span_of(trail)
    names = dict.fromkeys(problem.rule for problem in broken)
    parts += [f"**{name}**\n\n{page_as_markdown(rules()[name])}" for name in names if name in rules()]
    shown = [part for part in parts if part]
    return HoverText("\n\n---\n\n".join(shown), span) if shown else None


def _api_words(catalogue: Catalogue, trail: Trail, expected: tuple[Expectation, ...]) -> str:
    words = catalogue.once(ApiWords)
    holder, here, last = expected[-2], expected[-1], trail.steps[-1]
    if trail.is_key and isinstance(last.key, str):
        if last.key == "@type":
            return words.message(holder.descriptor) if holder.descriptor is not None else ""
        is_message = holder.role is Role.MESSAGE and holder.descriptor is not None
        field = fields_by_name(holder.descriptor).get(last.key) if is_message and holder.descriptor else None
        return words.field(field) if field is not None else ""
    value = scalar_text(trail)
    if here.role is Role.TYPE_URL and value:
        message = catalogue.descriptor(value.rpartition("/")[2])
        return words.message(message) if message is not None else ""
    if here.role is Role.SCALAR and here.field is not None:
        if value is not None and here.field.enum_type is not None and value in enum_of(here.field).values_by_name:
            return words.value(enum_of(here.field), value)
        return words.field(here.field)
    return ""


def _name_words(navigator: Navigator, path: PurePosixPath, index: int) -> str:
    found = navigator.name_at(path, index)
    if found is None:
        return ""
    lines = []
    for key in found.keys:
        noun = BY_TYPE_URL[key[0]].noun
        places = navigator.view.names.definitions.get(key, ())
        mentions = len(navigator.view.names.mentions.get(key, ()))
        shown = ", ".join(f"`{place.path}`" for place in places[:MOST_PLACES])
        where = f"defined in {shown}" if places else "not defined in this tree"
        lines.append(f"**{_code(key[1])}** ({noun}): {where}; mentioned {mentions} times")
    return "\n\n".join(lines)


def _code(name: str) -> str:
    return "`" + "".join(letter if letter.isprintable() and letter != "`" else "?" for letter in name[:200]) + "`"
