"""A difference as text for a terminal and as JSON, and what the formats share: sides, counts, values cut to a length."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from fsxds.api.secrets import mask_text
from fsxds.observe.log_lines import escape
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Resource
from fsxds.tools.diff.compare import ChangeAction, Difference, FieldChange, ResourceChange, TypeDifference
from fsxds.values import PlainValue

_PLAIN_WORD = re.compile(r"[\w.:/@*%+-]+")
_LONGEST_VALUE = 100
_MOST_PARTS = 6

SIGNS = {ChangeAction.ADDED: "+", ChangeAction.REMOVED: "-", ChangeAction.CHANGED: "~", ChangeAction.REORDERED: "~"}


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared.

    Attributes:
        label: what the user calls it.
        prefix: to be put before the paths of its files, so that they can be opened; None where it has no files.
    """

    label: str
    prefix: str | None = ""

    def place(self, resource: Resource) -> str:
        """Return where a resource of this side is written, empty where that is nowhere."""
        return "" if self.prefix is None else escape(f"{self.prefix}{resource.origin}")


@dataclass(frozen=True, slots=True)
class Unread:
    """Something of a side that could not be read: a file, or what a server withholds, and why."""

    place: str
    reason: str

    def __str__(self) -> str:
        return escape(f"{self.place}: {self.reason}")


@dataclass(frozen=True, slots=True)
class Compared:
    """A difference, the two sides that it is between, and what of these could not be read."""

    before: Side
    after: Side
    difference: Difference
    unread: tuple[Unread, ...] = ()

    @property
    def are_same(self) -> bool:
        """Whether what could be read of both sides is the same."""
        return not worded_counts(*self.difference.types)


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """One resource of a difference, for people to read.

    Attributes:
        sign: `+` added, `-` removed, `~` changed, `?` not known to be added or removed.
        resource: the resource, of a changed one the later.
        side: the side that has it.
        fields: what changed in it; None where the resource was not compared.
    """

    sign: str
    resource: Resource
    side: Side
    fields: tuple[FieldChange, ...] | None = None


def rows_of(difference: TypeDifference, compared: Compared) -> Iterator[DifferenceRow]:
    """Yield the resources of a type that are different, in the order in which they are shown."""
    yield from (DifferenceRow("+", resource, compared.after) for resource in difference.added)
    yield from (DifferenceRow("-", resource, compared.before) for resource in difference.removed)
    yield from (DifferenceRow("~", change.after, compared.after, change.fields) for change in difference.changed)
    yield from (DifferenceRow("?", resource, side) for resource, side in unknown_of(difference, compared))


def unknown_of(difference: TypeDifference, compared: Compared) -> Iterator[tuple[Resource, Side]]:
    """Yield the resources of a type that are not known to be added or removed, with the side that has them."""
    for resource in difference.maybe_added:
        yield resource, compared.after
    for resource in difference.maybe_removed:
        yield resource, compared.before


def noun_of(difference: TypeDifference) -> str:
    """Return what resources of a type are called: `clusters`."""
    return BY_TYPE_URL[difference.type_url].noun


def worded_counts(*rows: TypeDifference) -> str:
    """Return how many resources were added, changed and so on, without zeros: `1 added, 2 changed`; empty for none."""
    counts = {
        "added": sum(len(row.added) for row in rows),
        "changed": sum(len(row.changed) for row in rows),
        "removed": sum(len(row.removed) for row in rows),
        "unknown": sum(row.unknown for row in rows),
    }
    return ", ".join(f"{number} {word}" for word, number in counts.items() if number)


def summary(compared: Compared) -> str:
    """Return the result in one line."""
    counts = worded_counts(*compared.difference.types)
    same, unread = "no difference", ""
    if compared.unread:
        same, unread = (
            "no difference in what could be read",
            f"; not compared: {len(compared.unread)} that could not be read",
        )
    return escape(f"{compared.before.label} → {compared.after.label}: {counts or same}{unread}")


def value_of(change: FieldChange, value: PlainValue) -> str:
    """Return one of the values of a change as users write it, cut where it is long."""
    if change.is_hidden:
        return "<hidden>"
    return escape(_written(value))


def note_of(change: FieldChange) -> str:
    """Return what there is to say beside, or instead of, the values of a change; empty where there is nothing."""
    if change.is_hidden:
        return f"a secret, {change.act.value}"
    if change.act is ChangeAction.REORDERED:
        return "another order"
    return ""


def _written(value: PlainValue) -> str:
    if isinstance(value, str) and _PLAIN_WORD.fullmatch(value):
        return _cut(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= _LONGEST_VALUE:
        return text
    if isinstance(value, dict):
        return f"{{…}} with {_some(list(value))}"
    return f"[…] with {len(value)} items" if isinstance(value, list) else _cut(text)


def _some(names: list[str]) -> str:
    shown = _cut(", ".join(names[:_MOST_PARTS]))
    return f"{shown} and {len(names) - _MOST_PARTS} more" if len(names) > _MOST_PARTS else shown


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def json_text(compared: Compared) -> str:
    """Write a difference as one JSON object; equal differences are written alike."""
    types: dict[str, PlainValue] = {
        BY_TYPE_URL[row.type_url].short_name: _type(row, compared) for row in compared.difference.types
    }
    content = {
        "same": None if compared.unread and compared.are_same else compared.are_same,
        "unread": [{"place": unread.place, "reason": mask_text(unread.reason)} for unread in compared.unread],
        "before": compared.before.label,
        "after": compared.after.label,
        "types": types,
    }
    return json.dumps(content, indent=2)


def _type(difference: TypeDifference, compared: Compared) -> PlainValue:
    return {
        "added": [_resource(resource, compared.after) for resource in difference.added],
        "removed": [_resource(resource, compared.before) for resource in difference.removed],
        "changed": [_change(change, compared) for change in difference.changed],
        "unknown": [_resource(one, side) for one, side in unknown_of(difference, compared)],
    }


def _resource(resource: Resource, side: Side) -> PlainValue:
    return {"name": resource.name, "version": resource.version, "from": side.place(resource) or None}


def _change(change: ResourceChange, compared: Compared) -> PlainValue:
    return {
        "name": change.after.name,
        "before": {"version": change.before.version, "from": compared.before.place(change.before) or None},
        "after": {"version": change.after.version, "from": compared.after.place(change.after) or None},
        "fields": [field_content(field) for field in change.fields],
    }


def field_content(field: FieldChange) -> PlainValue:
    """Return what became of one field, secrets hidden."""
    if field.is_hidden:
        return {"path": field.path, "act": field.act.value, "hidden": True}
    return {
        "path": field.path,
        "act": field.act.value,
        "before": field.before,
        "after": field.after,
    }


STYLES = {"+": "green", "-": "red", "~": "yellow", "?": "magenta"}


def text_lines(compared: Compared) -> Iterator[Text]:
    """Yield the lines: what could not be read, then for each type a heading, its resources and their changed fields."""
    for unread in compared.unread:
        yield Text.assemble(("could not be read: ", "bold red"), str(unread))
    for difference in compared.difference.types:
        yield Text.assemble((noun_of(difference), "bold"), f": {worded_counts(difference)}")
        for row in rows_of(difference, compared):
            yield _resource_line(row)
            yield from _field_lines(row)


def _resource_line(row: DifferenceRow) -> Text:
    place = row.side.place(row.resource)
    head = (f"{row.sign} {escape(row.resource.name)}", STYLES[row.sign])
    return Text.assemble("  ", head, (f"  {place}" if place else "", "dim"))


def _field_lines(row: DifferenceRow) -> Iterator[Text]:
    if row.fields == ():
        yield Text("      the same fields in other bytes")
    for field in row.fields or ():
        sign = SIGNS[field.act]
        yield Text.assemble("      ", (sign, STYLES[sign]), f" {escape(field.path)}: ", *_values(field))


def _values(field: FieldChange) -> Iterator[str | tuple[str, str]]:
    note = note_of(field)
    if note:
        yield note
    if field.is_hidden or (field.act is ChangeAction.REORDERED and field.before is None):
        return
    if note:
        yield ": "
    if field.act is not ChangeAction.ADDED:
        yield value_of(field, field.before), STYLES["-"]
    if field.act in (ChangeAction.CHANGED, ChangeAction.REORDERED):
        yield " → "
    if field.act is not ChangeAction.REMOVED:
        yield value_of(field, field.after), STYLES["+"]
