"""A problem's source line, marked, with only quotable words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from rich.cells import cell_len

from fsxds.api.fields import may_quote_type
from fsxds.api.secrets import is_secret_field
from fsxds.events.event import escape
from fsxds.formats import format_of
from fsxds.formats.decoded import UnreadableError, read_text
from fsxds.model.resource_types import type_from_path
from fsxds.model.values import Problem

# On a terminal; a longer line is cut around its place.
LONGEST_LINE = 74
_BEFORE_PLACE = 30
# Characters read of a line beside the problem's.
LONGEST_READ = 400
_TAB = "    "
_CUT = "…"

_TEXT_FORMATS = ("yaml", "json", "textproto")
# Others know only the newline.
_YAML_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_WORD = re.compile(r"""-?(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s:,{}\[\]<>#"']+|.)""")
_PIECE = re.compile(
    r"""(?P<blank>\s+)|(?P<comment>(?:(?<=\s)|^)\#.*)|(?P<mark>[:,{}\[\]<>-](?!\w)|[:,{}\[\]<>])|(?P<word>"""
    + _WORD.pattern
    + ")"
)
_BEFORE_VALUE = re.compile(r"\s*(?::|[{<]|$)")
_KEY = re.compile(r"""\s*(?:-\s+)*["']?(?P<name>[\w@.]+)["']?\s*[:{<]""")
_IN_QUOTES = re.compile(r'"([^"]*)"')
_HARMLESS_VALUE = re.compile(
    r"-?[0-9]{1,20}(\.[0-9]{1,12})?(ns|us|ms|s|m|h|%)?|[0-9]{1,3}(\.[0-9]{1,3}){3}(:[0-9]{1,5}|/[0-9]{1,2})?"
    r"|true|false|null|[yYnN]|[Yy]es|[Nn]o|[Oo]n|[Oo]ff|~|[|>][+-]?|---"
)
_ITEM_MARK = re.compile(r"\s*(?:-\s+)*")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One line, with a problem at `marked` cells from `indent` on."""

    line: int
    text: str
    indent: int
    marked: int


def _nothing(_: str) -> bool:
    return False


class Source:
    """A file's text; `is_word`: a word is a name of the API."""

    def __init__(self, path: PurePosixPath, content: bytes, is_word: Callable[[str], bool] = _nothing) -> None:
        self._is_word = is_word
        file_format = format_of(path)
        self._lines: list[str] = []
        name = file_format.name if file_format else ""
        row = type_from_path(path)
        if name not in _TEXT_FORMATS or (row is not None and row.is_secret):
            return
        try:
            text = read_text(content)
        except UnreadableError:
            return
        self._lines = _YAML_BREAK.split(text) if name == "yaml" else text.split("\n")

    def excerpt(self, problem: Problem) -> Excerpt | None:
        """Return a problem's line, if it may be shown."""
        if problem.line > len(self._lines) or _is_of_whole_file(problem):
            return None
        if any(is_secret_field(step) for step in re.split(r"[.\[\]]", problem.pointer)):
            return None
        line = self._lines[problem.line - 1].rstrip("\r")
        start = _first_mark(line, problem.column - 1)
        word = _WORD.match(line, start)
        end = word.end() if word else start + 1
        parts = tuple(_hidden(_pieces(line, self._may_show(problem), is_name=self._may_quote), start, end))
        if not "".join(parts).replace(_CUT, "").strip():
            return None
        return _laid_out(problem.line, parts)

    def lines_around(self, problem: Problem, before: int = 2, after: int = 2) -> tuple[tuple[int, str], ...]:
        """Return numbered lines around a problem; none for a secret.

        They show names of the API, then harmless values such as numbers; its own line also quoted words.
        """
        if any(is_secret_field(step) for step in re.split(r"[.\[\]]", problem.pointer)):
            return ()
        first, last = max(1, problem.line - before), min(len(self._lines), problem.line + after)
        return tuple(
            (number, self._masked(line, self._may_show(problem) if number == problem.line else _nothing))
            for number, line in enumerate(self._lines[first - 1 : last], first)
        )

    def _masked(self, line: str, is_quoted: Callable[[str], bool]) -> str:
        line = line.rstrip("\r")[:LONGEST_READ]
        key = _KEY.match(line)
        has_key = key is not None and self._may_quote(key["name"]) and not is_secret_field(key["name"])
        pieces = _pieces(line, self._may_show_beside if has_key else is_quoted, with_values=False)
        parts = tuple(_hidden(pieces, len(line) + 1, len(line) + 1))
        return _first_cells(_shown("".join(parts)).rstrip(), LONGEST_LINE)

    def _may_show_beside(self, word: str) -> bool:
        return self._may_quote(word) or _HARMLESS_VALUE.fullmatch(word) is not None

    def _may_quote(self, word: str) -> bool:
        return word in ("", "@type") or self._is_word(word) or may_quote_type(word.rpartition("/")[2])

    def _may_show(self, problem: Problem) -> Callable[[str], bool]:
        quoted = f"{problem.message} {problem.remedy}"
        named = {*_IN_QUOTES.findall(quoted), *re.split(r"[.\[\]]", problem.pointer)}
        return lambda word: word in named or self._may_quote(word)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a line as shown; `is_cut`: partly hidden."""

    column: int
    text: str
    is_cut: bool = False


def _pieces(
    line: str, may_show: Callable[[str], bool], *, is_name: Callable[[str], bool] = _nothing, with_values: bool = True
) -> Iterator[_Piece]:
    """All after a secret's name is one hidden part.

    After a word that `is_name`, a value at the line's end is shown, with `with_values` such as numbers and durations.
    """
    is_behind_name = is_value = False
    for match in _PIECE.finditer(line):
        column, text = match.span()[0], match[0]
        if match.lastgroup != "word":
            is_value = is_behind_name and (text == ":" or (is_value and text.isspace()))
            is_comment = match["comment"] is not None
            yield _Piece(column, "# " + _CUT if is_comment and text.strip("# ") else text, is_comment)
            continue
        inner = text.strip("\"'")
        # The last word of a line may be a name, unless it follows one.
        is_key = not is_value and _BEFORE_VALUE.match(line, match.end()) is not None
        is_behind_name, is_value = is_key and is_name(inner), False
        if may_show(inner) or (with_values and not is_key and _HARMLESS_VALUE.fullmatch(inner)):
            yield _Piece(column, text)
        else:
            yield _Piece(column, _CUT, is_cut=True)
        if is_key and is_secret_field(inner) and line[match.end() :].strip(" :"):
            yield _Piece(match.end(), f": {_CUT}", is_cut=True)
            return


def _hidden(pieces: Iterable[_Piece], start: int, end: int) -> Iterator[str]:
    """Before, at and after the place; adjacent hidden parts become one."""
    shown: tuple[list[str], list[str], list[str]] = ([], [], [])
    is_cut = False
    for piece in pieces:
        part = shown[0 if piece.column < start else 1 if piece.column < end else 2]
        if piece.text == _CUT and is_cut and (part or part is not shown[1]):
            if part and part[-1].isspace():
                part.pop()
            continue
        part.append(piece.text)
        is_cut = piece.text == _CUT or (is_cut and piece.text.isspace())
    for part in shown:
        yield "".join(part)


def _is_of_whole_file(problem: Problem) -> bool:
    return (problem.line, problem.column, problem.pointer) == (1, 1, "") and problem.rule != "bad-syntax"


def _first_mark(line: str, index: int) -> int:
    start = min(index, len(line))
    mark = _ITEM_MARK.match(line, start)
    return mark.end() if mark and mark.end() < len(line) else start


def _laid_out(number: int, parts: tuple[str, ...]) -> Excerpt:
    before, marked, after = map(_shown, parts)
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
    if cell_len(text) <= room:
        return text
    while text and cell_len(text) > max(0, room - 1):
        text = text[: min(len(text) - 1, room)]
    return text + _CUT if room > 0 else ""


def _last_cells(text: str, room: int) -> str:
    text = text[-room:]
    while cell_len(text) > room:
        text = text[1:]
    return text
