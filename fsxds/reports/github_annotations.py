"""Problems as workflow commands of GitHub Actions, which shows them beside the changed lines of a pull request.

Source: docs.github.com, "Workflow commands for GitHub Actions"; the escapes are those of actions/toolkit, `command.ts`.
"""

from __future__ import annotations

from fsxds.reports.report import Report, fact_of
from fsxds.values import Problem, Severity

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
