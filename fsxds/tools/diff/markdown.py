"""A difference as a comment on a pull request, in GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsxds.observe.log_lines import escape
from fsxds.tools.diff.compare import ChangeAction, FieldChange, TypeDifference
from fsxds.tools.diff.difference import Compared, note_of, noun_of, rows_of, value_of, worded_counts

# GitHub takes no longer comments (https://github.com/orgs/community/discussions/27190).
LONGEST_COMMENT = 65_536
# Room for the line that says what was cut of a section, in each of them.
_ROOM_FOR_NOTE = 200
_LONGEST_NAME = 200
_MOST_UNREAD = 20

_BACKTICKS = re.compile("`+")
_WORDS = {"+": "added", "-": "removed", "~": "changed", "?": "unknown whether added or removed"}


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
        self._head = f"<details>\n<summary>{noun_of(difference)}: {worded_counts(difference)}</summary>\n\n"
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
