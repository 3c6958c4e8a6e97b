"""Problems in an editor's form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath

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
    """A file and line, from 1, in a problem's message."""

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
    """Return a file's problems; only the worst if there are too many.

    `known` are the files of the tree.
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
    """Return a file's finder of problem positions."""
    file_format = format_of(path)
    return ProblemPositions(text, is_yaml=file_format is not None and file_format.name == "yaml")


def span_of_problem(problem: Problem, positions: ProblemPositions) -> Span:
    """Return the span of a problem's word; the first line for a problem of the whole file."""
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
