"""What is at a place, in words: a field of the API, a type, the definition of a name, the rules that are broken there.

No value of a file is repeated but names of resources and words of the API, so that no secret can be among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import enum_of, fields_by_name
from fsxds.editor.api_places import ApiPlaces, Expectation, Role
from fsxds.editor.api_words import ApiWords
from fsxds.editor.mentions_of_names import scalar_text, span_of
from fsxds.editor.navigation import Navigator
from fsxds.editor.outline import Trail
from fsxds.editor.text_positions import Span
from fsxds.lint.rules import rules
from fsxds.lint.sarif import page_as_markdown
from fsxds.resource_types import BY_TYPE_URL
from fsxds.values import Problem

MOST_PLACES = 5


@dataclass(frozen=True, slots=True)
class HoverText:
    """What to show, in Markdown, and the part of the text that it is about."""

    markdown: str
    span: Span


def hover(navigator: Navigator, path: PurePosixPath, index: int) -> HoverText | None:
    """Return what there is to say about an index of the text of a file, None where that is nothing."""
    catalogue, broken = navigator.catalogue, navigator.problems_between(path, index, index)
    trail = navigator.outline(path).trail_to(index)
    parts = [_name_words(navigator, path, index)]
    span = (index, index)
    if trail is not None and trail.steps:
        expected = ApiPlaces(catalogue, path).along(trail)
        parts.append(_api_words(catalogue, trail, expected))
        member = trail.steps[-1].member
        span = member.span if trail.is_key and member is not None else span_of(trail)
    parts += _rule_words(broken)
    shown = [part for part in parts if part]
    return HoverText("\n\n---\n\n".join(shown), span) if shown else None


def _rule_words(broken: Iterable[Problem]) -> list[str]:
    names = dict.fromkeys(problem.rule for problem in broken)
    return [f"**{name}**\n\n{page_as_markdown(rules()[name])}" for name in names if name in rules()]


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
    """Return where the name at a place is defined, and how often it is mentioned."""
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
