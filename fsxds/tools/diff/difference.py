"""Formats differences as text, JSON, and GitHub Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

from rich.text import Text

from fsxds.api.secrets import mask_text
from fsxds.events.event import escape, noun_of, type_name
from fsxds.model.resources import Resource
from fsxds.model.values import PlainValue
from fsxds.snapshots.loaded_views import folders_of
from fsxds.tools.diff.compare import (
    ChangeAction,
    ComparedView,
    Difference,
    FieldChange,
    TypeDifference,
    ViewGroup,
)
from fsxds.tools.held_changes import HeldChange

_PLAIN_WORD = re.compile(r"[\w.:/@*%+-]+")
_LONGEST_VALUE = 100
_MOST_PARTS = 6

SIGNS = {ChangeAction.ADDED: "+", ChangeAction.REMOVED: "-", ChangeAction.CHANGED: "~", ChangeAction.REORDERED: "~"}


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison.

    Attributes:
        label: the user's name of it.
        prefix: of its files' paths; None without files.
    """

    label: str
    prefix: str | None = ""

    def place(self, resource: Resource) -> str:
        """Return a resource's origin, or empty."""
        return "" if self.prefix is None else escape(f"{self.prefix}{resource.origin}")


@dataclass(frozen=True, slots=True)
class Unread:
    """An unreadable file, or a withheld type."""

    place: str
    reason: str

    def __str__(self) -> str:
        return escape(f"{self.place}: {self.reason}")


@dataclass(frozen=True, slots=True)
class HeldInViews:
    """A held change; without `views`, in all."""

    change: HeldChange
    place: str
    views: tuple[ComparedView, ...] = ()

    @property
    def fact(self) -> str:
        """The consequence, and the views."""
        named = "; ".join(map(str, self.views))
        return f"{self.change.fact} (in {named})" if named else self.change.fact


@dataclass(frozen=True, slots=True)
class Compared:
    """Two compared sides; with views, `groups` has the difference by views.

    `held` would be held by the earlier side's server.
    """

    before: Side
    after: Side
    difference: Difference
    unread: tuple[Unread, ...] = ()
    groups: tuple[ViewGroup, ...] = ()
    view_count: int = 0
    held: tuple[HeldInViews, ...] = ()

    @classmethod
    def of_views(
        cls, sides: tuple[Side, Side], groups: tuple[ViewGroup, ...], unread: tuple[Unread, ...], count: int
    ) -> Self:
        """Return the comparison of `count` views."""
        types = tuple(row for group in groups for row in group.difference.types)
        return cls(*sides, Difference(types), unread, groups, count)

    @property
    def parts(self) -> tuple[tuple[str, Difference], ...]:
        """The parts with headings; a single view has none."""
        return tuple((group.heading, group.difference) for group in self.groups) or (("", self.difference),)

    @property
    def extent(self) -> str:
        """The number of differing views; empty without views."""
        if not self.groups:
            return f" in any of {self.view_count} views" if self.view_count else ""
        differing = {view for group in self.groups for view in group.views}
        return f" in {len(differing)} of {self.view_count} views"

    @property
    def are_same(self) -> bool:
        """Whether the readable parts are equal."""
        return not counts_text(*self.difference.types)


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """One resource of a difference.

    Attributes:
        sign: `+` added, `-` removed, `~` changed, `?` unknown.
        fields: None if not compared.
    """

    sign: str
    resource: Resource
    side: Side
    fields: tuple[FieldChange, ...] | None = None


def rows_of(difference: TypeDifference, compared: Compared) -> Iterator[DifferenceRow]:
    """Yield a type's differing resources, as displayed."""
    yield from (DifferenceRow("+", resource, compared.after) for resource in difference.added)
    yield from (DifferenceRow("-", resource, compared.before) for resource in difference.removed)
    yield from (DifferenceRow("~", change.after, compared.after, change.fields) for change in difference.changed)
    yield from (DifferenceRow("?", resource, compared.after) for resource in difference.maybe_added)
    yield from (DifferenceRow("?", resource, compared.before) for resource in difference.maybe_removed)


def counts_text(*rows: TypeDifference) -> str:
    """Return `1 added, 2 changed`; empty for none."""
    counts = {
        "added": sum(len(row.added) for row in rows),
        "changed": sum(len(row.changed) for row in rows),
        "removed": sum(len(row.removed) for row in rows),
        "unknown": sum(row.unknown for row in rows),
    }
    return ", ".join(f"{number} {word}" for word, number in counts.items() if number)


def summary(compared: Compared) -> str:
    """Return the result in one line."""
    counts = counts_text(*compared.difference.types)
    same = "no difference in the readable resources" if compared.unread else "no difference"
    unread = f"; not compared: {len(compared.unread)} that could not be read" if compared.unread else ""
    held = f"; {len(compared.held)} would be held" if compared.held else ""
    return escape(f"{compared.before.label} → {compared.after.label}: {counts or same}{compared.extent}{held}{unread}")


def value_of(change: FieldChange, value: PlainValue) -> str:
    """Return a shown value, possibly cut."""
    if change.is_hidden:
        return "<hidden>"
    return escape(_written(value))


def note_of(change: FieldChange) -> str:
    """Return a remark, or empty."""
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
        shown = _cut(", ".join([*value][:_MOST_PARTS]))
        more = f" and {len(value) - _MOST_PARTS} more" if len(value) > _MOST_PARTS else ""
        return f"{{…}} with {shown}{more}"
    return f"[…] with {len(value)} items" if isinstance(value, list) else _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def json_text(compared: Compared) -> str:
    """Return JSON; equal differences give equal text."""
    groups: list[PlainValue] = [
        {"views": [_view(view) for view in group.views], "types": _types(group.difference, compared)}
        for group in compared.groups
    ]
    found: dict[str, PlainValue] = {"view_count": compared.view_count, "groups": groups}
    content = {
        "same": None if compared.unread and compared.are_same else compared.are_same,
        "unread": [{"place": unread.place, "reason": mask_text(unread.reason)} for unread in compared.unread],
        "before": compared.before.label,
        "after": compared.after.label,
        "held": [
            {
                "rule": held.change.rule,
                "from": held.place,
                "fact": held.change.fact,
                "remedy": held.change.remedy,
                "approval_id": held.change.approval_id or None,
                "views": [_view(view) for view in held.views],
            }
            for held in compared.held
        ],
        **(found if compared.view_count else {"types": _types(compared.difference, compared)}),
    }
    return json.dumps(content, indent=2)


_LISTS = {"+": "added", "-": "removed", "~": "changed", "?": "unknown"}


def _view(view: ComparedView) -> PlainValue:
    return {"names": [*view.names], "layers": [*folders_of(view.layers)]}


def _types(difference: Difference, compared: Compared) -> PlainValue:
    types: dict[str, PlainValue] = {}
    for row in difference.types:
        lists: dict[str, list[PlainValue]] = {"added": [], "removed": [], "changed": [], "unknown": []}
        for one in rows_of(row, compared):
            if one.sign != "~":
                lists[_LISTS[one.sign]].append({"name": one.resource.name, **_origin(one.resource, one.side)})
        lists["changed"] += (
            {
                "name": change.after.name,
                "before": _origin(change.before, compared.before),
                "after": _origin(change.after, compared.after),
                "fields": [field_content(field) for field in change.fields],
            }
            for change in row.changed
        )
        types[type_name(row.type_url)] = {**lists}
    return types


def _origin(resource: Resource, side: Side) -> dict[str, PlainValue]:
    return {"version": resource.version, "from": side.place(resource) or None}


def field_content(field: FieldChange) -> PlainValue:
    """Return a change as JSON, secrets hidden."""
    if field.is_hidden:
        return {"path": field.path, "act": field.act.value, "hidden": True}
    return {"path": field.path, "act": field.act.value, "before": field.before, "after": field.after}


STYLES = {"+": "green", "-": "red", "~": "yellow", "?": "magenta"}


def text_lines(compared: Compared) -> Iterator[Text]:
    """Yield unreadable parts, changes by type, then held changes."""
    for unread in compared.unread:
        yield Text.assemble(("could not be read: ", "bold red"), str(unread))
    for heading, part in compared.parts:
        if heading:
            yield Text(escape(heading), "bold underline")
        for difference in part.types:
            yield Text.assemble((noun_of(difference.type_url), "bold"), f": {counts_text(difference)}")
            for row in rows_of(difference, compared):
                place = row.side.place(row.resource)
                head = (f"{row.sign} {escape(row.resource.name)}", STYLES[row.sign])
                yield Text.assemble("  ", head, (f"  {place}" if place else "", "dim"))
                if row.fields == ():
                    yield Text("      the same fields in other bytes")
                for field in row.fields or ():
                    sign = SIGNS[field.act]
                    yield Text.assemble("      ", (sign, STYLES[sign]), f" {escape(field.path)}: ", *_values(field))
    if compared.held:
        yield Text("would be held", "bold red")
    for held in compared.held:
        yield Text.assemble("  ", (f"! {escape(held.fact)}", "red"), (f"  {escape(held.place)}", "dim"))
        yield Text(f"      {escape(held.change.remedy)}")


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


# GitHub rejects longer comments (https://github.com/orgs/community/discussions/27190).
LONGEST_COMMENT = 65_536
# Reserved in each section for the line about omitted lines.
_NOTE_LENGTH = 200
_LONGEST_NAME = 200
_LONGEST_FACT = 400
_MOST_UNREAD = 20

_BACKTICKS = re.compile("`+")
_WORDS = {**_LISTS, "?": "unknown whether added or removed"}


def markdown(compared: Compared, longest: int = LONGEST_COMMENT) -> str:
    """Return at most `longest` characters: counts, and folded details by type.

    Each group of views has its own, while half of the characters are left.
    """
    lines = [f"### xDS resources: {code(compared.before.label)} → {code(compared.after.label)}", ""]
    fact = "**This comparison is not complete.** Whether resources that may stand in these were added or removed is unknown:"
    unread = [f"{code(one.place)}: {code(one.reason[:_LONGEST_NAME])}" for one in compared.unread]
    lines += _alert("WARNING", fact, unread)
    held = [
        f"{code(one.place)}: {code(one.fact[:_LONGEST_FACT])}; {code(one.change.remedy[:_LONGEST_FACT])}"
        for one in compared.held
    ]
    lines += _alert("CAUTION", "**A server would hold these, and serve the rest:**", held)
    if compared.are_same:
        fact = "No difference in the readable resources." if compared.unread else "No difference."
        return _text((*lines, fact))
    text, parts = _text(lines), [_Part(heading, part, compared) for heading, part in compared.parts]
    needed = accumulate(part.least for part in parts)
    shown = parts[: max(1, sum(size <= longest // 2 for size in needed))]
    note = f"{len(parts) - len(shown)} more groups of views do not fit into a comment; `fsxds diff` prints them all.\n"
    end = note if len(shown) < len(parts) else ""
    sections = [section for part in shown for section in part.sections]
    room = longest - len(text) - len(end) - sum(len(part.head) for part in shown)
    budgets = iter(_shares([section.size for section in sections], room))
    for part in shown:
        text += part.head + "".join(section.text(next(budgets)) for section in part.sections)
    return text + end


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def code(text: str, *, in_table: bool = False) -> str:
    """Return code on one line."""
    text = escape(text)
    if in_table:
        text = text.replace("|", "\\|")
    fence = "`" * (max((len(run) for run in _BACKTICKS.findall(text)), default=0) + 1)
    padding = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return f"{fence}{padding}{text}{padding}{fence}"


def _alert(level: str, fact: str, rows: Sequence[str]) -> Iterator[str]:
    if rows:
        more = [f"and {len(rows) - _MOST_UNREAD} more"] if len(rows) > _MOST_UNREAD else []
        yield from (f"> [!{level}]", f"> {fact}", ">", *(f"> - {row}" for row in (*rows[:_MOST_UNREAD], *more)), "")


def _table(differences: tuple[TypeDifference, ...]) -> Iterator[str]:
    has_unknown = any(row.unknown for row in differences)
    yield f"| type | added | changed | removed |{' unknown |' if has_unknown else ''}"
    yield f"| --- | ---: | ---: | ---: |{' ---: |' if has_unknown else ''}"
    for row in differences:
        unknown = f" {row.unknown} |" if has_unknown else ""
        yield f"| {noun_of(row.type_url)} | {len(row.added)} | {len(row.changed)} | {len(row.removed)} |{unknown}"
    yield ""


class _Part:
    def __init__(self, heading: str, difference: Difference, compared: Compared) -> None:
        place, colon, views = heading.partition(": ")
        title = f"{place}{colon}{code(views[:_LONGEST_NAME])}" if colon else place
        above = [f"#### {title}", ""] if heading else []
        self.head = _text((*above, *_table(difference.types)))
        self.sections = tuple(_Section(row, compared) for row in difference.types)

    @property
    def least(self) -> int:
        return len(self.head) + len(self.sections) * _NOTE_LENGTH


class _Section:
    _tail = "\n</details>\n\n"

    def __init__(self, difference: TypeDifference, compared: Compared) -> None:
        self._head = f"<details>\n<summary>{noun_of(difference.type_url)}: {counts_text(difference)}</summary>\n\n"
        self._lines = tuple(_lines(difference, compared))

    @property
    def size(self) -> int:
        return len(self._head) + sum(len(line) + 1 for line in self._lines) + len(self._tail)

    def text(self, longest: int) -> str:
        if self.size <= longest:
            return self._head + _text(self._lines) + self._tail
        room = longest - len(self._head) - len(self._tail) - _NOTE_LENGTH
        kept = sum(size <= room for size in accumulate(len(line) + 1 for line in self._lines))
        note = f"\n{len(self._lines) - kept} more lines do not fit into a comment; `fsxds diff` prints them all.\n"
        return self._head + _text(self._lines[:kept]) + note + self._tail


def _shares(sizes: list[int], room: int) -> list[int]:
    """Small sections get their size, large ones equal parts."""
    shares = [0] * len(sizes)
    waiting = sorted(range(len(sizes)), key=sizes.__getitem__)
    while waiting:
        number = waiting.pop(0)
        shares[number] = min(sizes[number], room // (len(waiting) + 1))
        room -= shares[number]
    return shares


def _lines(difference: TypeDifference, compared: Compared) -> Iterator[str]:
    for row in rows_of(difference, compared):
        place = row.side.place(row.resource)
        yield f"- {_WORDS[row.sign]} {code(row.resource.name[:_LONGEST_NAME])}{f' ({code(place)})' if place else ''}"
        if row.fields == ():
            yield "  - the same fields in other bytes"
        yield from (f"  - {_field_line(field)}" for field in row.fields or ())


def _field_line(field: FieldChange) -> str:
    path, note = code(field.path[:_LONGEST_NAME]), note_of(field)
    if field.is_hidden or (field.act is ChangeAction.REORDERED and field.before is None):
        return f"{path}: {note}"
    before, after = code(value_of(field, field.before)), code(value_of(field, field.after))
    if field.act in (ChangeAction.ADDED, ChangeAction.REMOVED):
        return f"{path}: {field.act.value} {after if field.act is ChangeAction.ADDED else before}"
    return f"{path}: {note}{': ' if note else ''}{before} → {after}"
