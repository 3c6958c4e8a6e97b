"""The line that a problem is about, with marks under its place; no line that may hold a secret."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from rich.cells import cell_len

from fsxds.formats import format_of
from fsxds.formats.documents import UnreadableError
from fsxds.formats.utf8 import read_text
from fsxds.operations.log_lines import escape
from fsxds.reports.quiet_lines import QuietLines, may_be_shown
from fsxds.values import Problem

# Columns of a terminal that a line may take; what is longer is cut around its place.
LONGEST_LINE = 74
_BEFORE_PLACE = 30
_TAB = "    "
_CUT = "…"

_TEXT_FORMATS = ("yaml", "json", "textproto")
# What YAML takes for the end of a line; the others know the newline alone.
_YAML_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_WORD = re.compile(r"""-?(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s:,{}\[\]<>#"']+|.)""")
_ITEM_MARK = re.compile(r"\s*(?:-\s+)*")
# A field that the API does not know may be a secret of one that does: its value is not repeated.
_VALUE_UNSEEN = ("unknown-field",)
_VALUE = re.compile(r"\s*[:{<\[]")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One line of a file; `marked` cells from `indent` on are what the problem is about."""

    line: int
    text: str
    indent: int
    marked: int


class Source:
    """The text of one file, from which lines may be shown."""

    def __init__(self, path: PurePosixPath, content: bytes) -> None:
        file_format = format_of(path)
        self._lines: list[str] = []
        name = file_format.name if file_format else ""
        if name not in _TEXT_FORMATS:
            return
        try:
            text = read_text(content)
        except UnreadableError:
            return
        self._lines = _YAML_BREAK.split(text) if name == "yaml" else text.split("\n")
        self._quiet = QuietLines(path, text, is_plain=name != "textproto")

    def excerpt(self, problem: Problem) -> Excerpt | None:
        """Return the line that a problem is about, None where there is none, or none that may be shown."""
        if problem.line > len(self._lines) or _is_of_whole_file(problem):
            return None
        whole = self._lines[problem.line - 1].rstrip("\r")
        line = self._quiet.shown_part(problem, whole)
        if not line.strip() or not may_be_shown(line):
            return None
        start = _first_mark(line, problem.column - 1)
        word = _WORD.match(line, start)
        end = word.end() if word else start + 1
        if problem.rule in _VALUE_UNSEEN:
            return _laid_out(problem.line, _without_value(line, end), start, end)
        return _laid_out(problem.line, line + (_CUT if len(line) < len(whole) else ""), start, end)


def _is_of_whole_file(problem: Problem) -> bool:
    return (problem.line, problem.column, problem.pointer) == (1, 1, "") and problem.rule != "bad-syntax"


def _first_mark(line: str, index: int) -> int:
    """Return where the marks begin: at the place, behind the dash of a list item."""
    start = min(index, len(line))
    mark = _ITEM_MARK.match(line, start)
    return mark.end() if mark and mark.end() < len(line) else start


def _without_value(line: str, end: int) -> str:
    value = _VALUE.match(line, end)
    if value is None:
        return line[:end]
    return line[: value.end()] + (f" {_CUT}" if line[value.end() :].strip() else "")


def _laid_out(number: int, line: str, start: int, end: int) -> Excerpt:
    before, marked, after = (_shown(part) for part in (line[:start], line[start:end], line[end:]))
    if cell_len(before) + cell_len(marked) + cell_len(after) > LONGEST_LINE:
        if cell_len(before) > _BEFORE_PLACE:
            before = _CUT + _last_cells(before, _BEFORE_PLACE - 1)
        marked = _first_cells(marked, LONGEST_LINE - cell_len(before))
        after = _first_cells(after, LONGEST_LINE - cell_len(before) - cell_len(marked))
    text = f"{before}{marked}{after}".rstrip()
    return Excerpt(number, text, cell_len(before), max(1, cell_len(marked)))


def _shown(part: str) -> str:
    return escape(part.replace("\t", _TAB))


def _first_cells(text: str, room: int) -> str:
    """Cut a text at its end to a width in cells."""
    if cell_len(text) <= room:
        return text
    while text and cell_len(text) > max(0, room - 1):
        text = text[: min(len(text) - 1, room)]
    return text + _CUT if room > 0 else ""


def _last_cells(text: str, room: int) -> str:
    """Cut a text at its beginning to a width in cells."""
    text = text[-room:]
    while cell_len(text) > room:
        text = text[1:]
    return text
