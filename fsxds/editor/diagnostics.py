"""Problems in an editor's form, and remedies as edits, if they replace a word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath

from fsxds.editor.outline import Form, OutlineNode, TextOutline, Trail
from fsxds.editor.text_positions import ProblemPositions, Span
from fsxds.formats import format_of
from fsxds.lint.report import presentable_text
from fsxds.lint.rules import PAGES, chapters
from fsxds.model.values import Problem, Severity

MOST_SHOWN = 1000
"""The most problems shown per file; more would only slow down an editor."""

_WORD = re.compile(r"""-?(?:"(?:[^"\\\r\n]|\\.)*"|'[^'\r\n]*'|[^\s,{}\[\]<>#"':]+(?::[^\s,{}\[\]<>#"':]+)*|[^\r\n])""")
_LIST_MARK = re.compile(r"(?:-[ \t]+)+(?=\S)")
_LINE = re.compile(r"[^\r\n]*")
# The form of other positions in messages: `already defined at clusters.yaml:3`.
_OTHER_PLACE = re.compile(r"\bat (?P<path>[^\s,;]+):(?P<line>\d+)\b")


@dataclass(frozen=True, slots=True)
class RelatedPlace:
    """A file and line, from 1, in a message."""

    path: PurePosixPath
    line: int


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A problem without secrets; `page` is its rule's URL, or empty."""

    span: Span
    severity: Severity
    rule: str
    message: str
    page: str
    related: tuple[RelatedPlace, ...] = ()

    @property
    def is_unused(self) -> bool:
        """Whether it is about an unused resource."""
        return self.rule.startswith("unused-")

    @property
    def is_deprecated(self) -> bool:
        """Whether it is about a deprecated part."""
        return self.rule.startswith("deprecated-")


def diagnostics_of(problems: Sequence[Problem], text: str, known: Mapping[PurePosixPath, object]) -> list[Diagnostic]:
    """Return a file's problems, or the worst of too many.

    `known` are the tree's files.
    """
    if not problems:
        return []
    if len(problems) > MOST_SHOWN:
        problems = sorted(problems, key=lambda problem: tuple(Severity).index(problem.severity))[:MOST_SHOWN]
    positions = problem_positions(problems[0].path, text)
    return [
        Diagnostic(
            span_of_problem(problem, positions),
            problem.severity,
            problem.rule,
            presentable_text(f"{problem.message}; {problem.remedy}" if problem.remedy else problem.message),
            page_address(problem.rule),
            tuple(_related(problem, known)),
        )
        for problem in problems
    ]


def problem_positions(path: PurePosixPath, text: str) -> ProblemPositions:
    """Return a file's finder of positions."""
    file_format = format_of(path)
    return ProblemPositions(text, is_yaml=file_format is not None and file_format.name == "yaml")


def span_of_problem(problem: Problem, positions: ProblemPositions) -> Span:
    """Return the span of a problem's word, or the first line."""
    text = positions.text
    if (problem.line, problem.column) == (1, 1) and not problem.pointer and problem.rule != "bad-syntax":
        first = _LINE.match(text)
        return 0, first.end() if first else 0
    start = positions.index(problem.line, problem.column)
    mark = _LIST_MARK.match(text, start)
    start = mark.end() if mark else start
    word = _WORD.match(text, start)
    return (start, word.end()) if word else (start, start)


def _related(problem: Problem, known: Mapping[PurePosixPath, object]) -> Iterator[RelatedPlace]:
    for match in _OTHER_PLACE.finditer(problem.message):
        path = PurePosixPath(match["path"])
        if path in known:
            yield RelatedPlace(path, int(match["line"]))


@cache
def page_address(rule: str) -> str:
    """Return a rule's URL in the installed package, or empty."""
    page = next((page for page in PAGES if any(one.name == rule for one in chapters()[page].rules)), None)
    if page is None:
        return ""
    path = Path(str(files("fsxds") / "lint" / "pages" / f"{page}.md"))
    return f"{path.absolute().as_uri()}#{rule}"


_MEANT = re.compile(r'did you mean "([^"\\]+)"\?')
_PERHAPS = re.compile(r"perhaps ([\w.]+) is meant")
_QUOTED = re.compile(r'"([^"\\]+)"')
_FIRST_WORD = re.compile(r"([\w.]+) ")


@dataclass(frozen=True, slots=True)
class Remedy:
    """A remedy as an edit."""

    title: str
    problem: Problem
    span: Span
    text: str


def remedy_of(problem: Problem, text: str, outline: TextOutline) -> Remedy | None:
    """Return the edit; None if it replaces no word, or is uncertain."""
    meant = _MEANT.search(problem.remedy) or _PERHAPS.search(problem.remedy)
    if meant is None:
        return None
    start, _ = span_of_problem(problem, problem_positions(problem.path, text))
    trail = outline.trail_to(start)
    quoted = (*_QUOTED.findall(problem.message), *_FIRST_WORD.findall(problem.message)[:1])
    for wrong in quoted if trail is not None else ():
        for span, written in _words_at(trail, start) if trail is not None else ():
            inner = _inner(text, span, written)
            # For a type, the problem names the part after the slash.
            if inner is not None and (written == wrong or written.endswith(f"/{wrong}")):
                place = (inner[1] - len(wrong), inner[1])
                return Remedy(f'Write "{meant[1]}"', problem, place, meant[1])
    return None


def _words_at(trail: Trail, index: int) -> Iterator[tuple[Span, str]]:
    last = trail.steps[-1] if trail.steps else None
    if last is not None and last.member is not None and last.member.span[0] <= index:
        yield last.member.span, last.member.key
    node = trail.value
    if node is not None:
        yield from _scalar(node)
        packed = node.member("@type")
        if packed is not None and packed.value is not None:
            yield from _scalar(packed.value)


def _scalar(node: OutlineNode) -> Iterator[tuple[Span, str]]:
    if node.form is Form.SCALAR and node.quote not in ("|", ">"):
        yield (node.start, node.end), node.text


def _inner(text: str, span: Span, written: str) -> Span | None:
    """None if the word has escapes."""
    start, end = span
    if text[start : start + 1] in ("'", '"'):
        start, end = start + 1, end - 1
    return (start, end) if text[start:end] == written else None
