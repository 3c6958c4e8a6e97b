"""Problems as a JSON list, for programs."""

from __future__ import annotations

import json

from fsxds.reports.report import Report


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
