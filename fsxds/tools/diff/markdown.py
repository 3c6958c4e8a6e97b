"""A difference as a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsxds.observe.log_lines import escape
from fsxds.resources import Resource
from fsxds.tools.diff.compare import Act, FieldChange, ResourceChange, TypeDifference
from fsxds.tools.diff.output import Compared, Side, note_of, noun_of, unknown_of, value_of, worded_counts

# GitHub takes no longer comments (https://github.com/orgs/community/discussions/27190).
LONGEST_COMMENT = 65_536
# Room for the line that says what was cut of a section, in each of them.
_ROOM_FOR_NOTE = 200
_LONGEST_NAME = 200
_MOST_UNREAD = 20

_BACKTICKS = re.compile("`+")


def markdown(compared: Compared, longest: int = LONGEST_COMMENT) -> str:
    """Write a difference in at most `longest` characters: a table of counts, and the details of each type folded away."""
    lines = [f"### xDS resources: {code(compared.before.label)} → {code(compared.after.label)}", ""]
    lines += _banner(compared)
    if compared.are_same:
        fact = "No difference in what could be read." if compared.unread else "No difference."
        return "\n".join((*lines, fact)) + "\n"
    lines += _table(compared.difference.types)
    head = "\n".join(lines) + "\n"
    sections = [_Section(difference, compared) for difference in compared.difference.types]
    budgets = _shares([section.size for section in sections], longest - len(head))
    return head + "".join(section.text(budget) for section, budget in zip(sections, budgets, strict=True))


def code(text: str, *, in_table: bool = False) -> str:
    """Write a text of any content as code, on one line."""
    text = escape(text)
    if in_table:
        text = text.replace("|", "\\|")
    fence = "`" * (max((len(run) for run in _BACKTICKS.findall(text)), default=0) + 1)
    padding = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return f"{fence}{padding}{text}{padding}{fence}"


def _banner(compared: Compared) -> Iterator[str]:
    """Yield what could not be read, as an alert of GitHub's."""
    if not compared.unread:
        return
    yield "> [!WARNING]"
    yield "> **This comparison is not complete.** Whether resources that may stand in these were added or removed is unknown:"
    yield ">"
    for unread in compared.unread[:_MOST_UNREAD]:
        yield f"> - {code(unread.place)}: {code(unread.reason[:_LONGEST_NAME])}"
    if len(compared.unread) > _MOST_UNREAD:
        yield f"> - and {len(compared.unread) - _MOST_UNREAD} more"
    yield ""


def _table(differences: tuple[TypeDifference, ...]) -> Iterator[str]:
    has_unknown = any(row.unknown for row in differences)
    yield f"| type | added | changed | removed |{' unknown |' if has_unknown else ''}"
    yield f"| --- | ---: | ---: | ---: |{' ---: |' if has_unknown else ''}"
    for row in differences:
        unknown = f" {row.unknown} |" if has_unknown else ""
        yield f"| {noun_of(row)} | {len(row.added)} | {len(row.changed)} | {len(row.removed)} |{unknown}"
    yield ""


class _Section:
    """The details of one type."""

    def __init__(self, difference: TypeDifference, compared: Compared) -> None:
        counts = worded_counts(
            len(difference.added), len(difference.changed), len(difference.removed), difference.unknown
        )
        self._head = f"<details>\n<summary>{noun_of(difference)}: {counts}</summary>\n\n"
        self._lines = tuple(_lines(difference, compared))
        self._tail = "\n</details>\n\n"

    @property
    def size(self) -> int:
        """How many characters it takes in full."""
        return len(self._head) + sum(len(line) + 1 for line in self._lines) + len(self._tail)

    def text(self, longest: int) -> str:
        """Write it in at most `longest` characters, as far as its head and tail fit."""
        if self.size <= longest:
            return self._head + "".join(f"{line}\n" for line in self._lines) + self._tail
        room = longest - len(self._head) - len(self._tail) - _ROOM_FOR_NOTE
        kept: list[str] = []
        for line in self._lines:
            room -= len(line) + 1
            if room < 0:
                break
            kept.append(line)
        left_out = len(self._lines) - len(kept)
        note = f"\n{left_out} more lines do not fit into a comment; `fsxds diff` prints them all.\n"
        return self._head + "".join(f"{line}\n" for line in kept) + note + self._tail


def _shares(sizes: list[int], room: int) -> list[int]:
    """Divide the room: small sections get what they need, the large ones equal parts of the rest."""
    shares = [0] * len(sizes)
    waiting = sorted(range(len(sizes)), key=sizes.__getitem__)
    while waiting:
        number = waiting.pop(0)
        shares[number] = min(sizes[number], room // (len(waiting) + 1))
        room -= shares[number]
    return shares


def _lines(difference: TypeDifference, compared: Compared) -> Iterator[str]:
    for resource in difference.added:
        yield _resource_line("added", resource, compared.after)
    for resource in difference.removed:
        yield _resource_line("removed", resource, compared.before)
    for change in difference.changed:
        yield _resource_line("changed", change.after, compared.after)
        yield from _field_lines(change)
    for resource, side in unknown_of(difference, compared):
        yield _resource_line("unknown whether added or removed", resource, side)


def _resource_line(word: str, resource: Resource, side: Side) -> str:
    place = side.place(resource)
    return f"- {word} {code(resource.name[:_LONGEST_NAME])}{f' ({code(place)})' if place else ''}"


def _field_lines(change: ResourceChange) -> Iterator[str]:
    if not change.fields:
        yield "  - the same fields in other bytes"
    for field in change.fields:
        yield f"  - {_field_line(field)}"


def _field_line(field: FieldChange) -> str:
    path, note = code(field.path[:_LONGEST_NAME]), note_of(field)
    if field.is_hidden or (field.act is Act.REORDERED and field.before is None):
        return f"{path}: {note}"
    before, after = code(value_of(field, field.before)), code(value_of(field, field.after))
    if field.act in (Act.ADDED, Act.REMOVED):
        return f"{path}: {field.act.value} {after if field.act is Act.ADDED else before}"
    return f"{path}: {note}{': ' if note else ''}{before} → {after}"
