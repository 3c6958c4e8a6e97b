"""The formats in which problems are reported, and those that are short: text, JSON and GitHub annotations.

To add a format, write its module and add its row. JUnit XML and SARIF have modules of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.text import Text

from fsxds.lint.junit import as_junit
from fsxds.lint.report import Report, ReportedProblem, fact_of, line_of, place_of
from fsxds.lint.sarif import as_sarif
from fsxds.lint.source_lines import Excerpt
from fsxds.values import Problem, Severity

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "dim"}


def as_text(report: Report) -> str:
    """Write the problems without colours."""
    return as_styled_text(report).plain


def as_styled_text(report: Report) -> Text:
    """Write the problems for a terminal, a block for each; notes take one line."""
    text = Text()
    is_first, was_block = True, False
    for finding in report.findings:
        is_block = finding.problem.severity is not Severity.NOTE
        if not is_first and (is_block or was_block):
            text.append("\n")
        text.append_text(
            _block(finding) if is_block else Text(f"{line_of(finding.problem)}\n", style=_STYLES[Severity.NOTE])
        )
        is_first, was_block = False, is_block
    return text


def _block(finding: ReportedProblem) -> Text:
    problem = finding.problem
    style = _STYLES[problem.severity]
    text = Text.assemble(
        (place_of(problem), "bold"),
        ": ",
        (f"{problem.severity.value}[{problem.rule}]", style),
        ": ",
        (f"{problem.pointer}: " if problem.pointer else "", "cyan"),
        f"{problem.message}\n",
    )
    margin = 0
    if finding.excerpt is not None:
        margin = len(str(finding.excerpt.line))
        for part in _excerpt(finding.excerpt, margin, style):
            text.append_text(part)
    if problem.remedy:
        text.append_text(Text.assemble(f"{'':{margin}} ", ("= help: ", "bold cyan"), f"{problem.remedy}\n"))
    return text


def _excerpt(excerpt: Excerpt, margin: int, style: str) -> Iterator[Text]:
    yield Text.assemble((f"{excerpt.line} | ", "blue"), f"{excerpt.text}\n")
    yield Text.assemble((f"{'':{margin}} | ", "blue"), (f"{'':{excerpt.indent}}{'^' * excerpt.marked}\n", style))


def as_json(report: Report) -> str:
    """Write a list with one object for each problem."""
    rows = [
        {
            "file": str(problem.path),
            "line": problem.line,
            "column": problem.column,
            "pointer": problem.pointer,
            "rule": problem.rule,
            "severity": problem.severity.value,
            "message": problem.message,
            "remedy": problem.remedy,
        }
        for problem in report.problems
    ]
    return json.dumps(rows, indent=2) + "\n"


_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_DATA_ESCAPES = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY_ESCAPES = _DATA_ESCAPES | str.maketrans({":": "%3A", ",": "%2C"})


def as_annotations(report: Report) -> str:
    """Write one command for each problem."""
    return "".join(f"{_command(problem)}\n" for problem in report.problems)


def _command(problem: Problem) -> str:
    properties = {
        "file": str(problem.path),
        "line": str(problem.line),
        "col": str(problem.column),
        "title": problem.rule,
    }
    written = ",".join(f"{name}={value.translate(_PROPERTY_ESCAPES)}" for name, value in properties.items())
    text = f"{fact_of(problem)}\n{problem.remedy}".rstrip()
    return f"::{_COMMANDS[problem.severity]} {written}::{text.translate(_DATA_ESCAPES)}"


@dataclass(frozen=True, slots=True)
class ProblemFormat:
    """One format: its name, what writes it, and whether it shows lines of the files."""

    name: str
    write: Callable[[Report], str]
    shows_source: bool = False


PROBLEM_FORMATS: tuple[ProblemFormat, ...] = (
    ProblemFormat("text", as_text, shows_source=True),
    ProblemFormat("json", as_json),
    ProblemFormat("github", as_annotations),
    ProblemFormat("sarif", as_sarif),
    ProblemFormat("junit", as_junit),
)

BY_NAME = {row.name: row for row in PROBLEM_FORMATS}
