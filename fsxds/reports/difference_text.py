"""A difference for people at a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from fsxds.comparison.changes import Act, FieldChange, ResourceChange, TypeDifference
from fsxds.operations.log_lines import escape
from fsxds.reports.difference_words import (
    SIGNS,
    Compared,
    Side,
    note_of,
    noun_of,
    unknown_of,
    value_of,
    worded_counts,
)
from fsxds.resources import Resource

STYLES = {"+": "green", "-": "red", "~": "yellow", "?": "magenta"}


def text_lines(compared: Compared) -> Iterator[Text]:
    """Yield the lines: what could not be read, then for each type a heading, its resources and their changed fields."""
    for unread in compared.unread:
        yield Text.assemble(("could not be read: ", "bold red"), str(unread))
    for difference in compared.difference.types:
        yield Text.assemble((noun_of(difference), "bold"), f": {_counts(difference)}")
        for resource in difference.added:
            yield _resource_line("+", resource, compared.after)
        for resource in difference.removed:
            yield _resource_line("-", resource, compared.before)
        for change in difference.changed:
            yield _resource_line("~", change.after, compared.after)
            yield from _field_lines(change)
        for resource, side in unknown_of(difference, compared):
            yield _resource_line("?", resource, side)


def _counts(difference: TypeDifference) -> str:
    return worded_counts(len(difference.added), len(difference.changed), len(difference.removed), difference.unknown)


def _resource_line(sign: str, resource: Resource, side: Side) -> Text:
    place = side.place(resource)
    return Text.assemble(
        "  ", (f"{sign} {escape(resource.name)}", STYLES[sign]), (f"  {place}" if place else "", "dim")
    )


def _field_lines(change: ResourceChange) -> Iterator[Text]:
    if not change.fields:
        yield Text("      the same fields in other bytes")
    for field in change.fields:
        sign = SIGNS[field.act]
        yield Text.assemble("      ", (sign, STYLES[sign]), f" {escape(field.path)}: ", *_values(field))


def _values(field: FieldChange) -> Iterator[str | tuple[str, str]]:
    note = note_of(field)
    if note:
        yield note
    if field.is_hidden or (field.act is Act.REORDERED and field.before is None):
        return
    if note:
        yield ": "
    if field.act is not Act.ADDED:
        yield value_of(field, field.before), STYLES["-"]
    if field.act in (Act.CHANGED, Act.REORDERED):
        yield " → "
    if field.act is not Act.REMOVED:
        yield value_of(field, field.after), STYLES["+"]
