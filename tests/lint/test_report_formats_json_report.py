from __future__ import annotations

import json

from fsxds.lint.report_formats import as_json
from fsxds.values import Severity
from tests.lint.findings import problem, report


def test_each_problem_is_an_object() -> None:
    """The list has the eight parts of every problem, in the order of their places."""
    found = report(problem(line=9, severity=Severity.WARNING, pointer="", remedy=""), problem(message="日本"))

    assert [
        {
            "file": "config/xds/cds.yaml",
            "line": 2,
            "column": 3,
            "pointer": "[0].type",
            "rule": "wrong-value",
            "severity": "error",
            "message": "日本",
            "remedy": "give one text",
        },
        {
            "file": "config/xds/cds.yaml",
            "line": 9,
            "column": 3,
            "pointer": "",
            "rule": "wrong-value",
            "severity": "warning",
            "message": "expected text, found a list",
            "remedy": "",
        },
    ] == json.loads(as_json(found))


def test_a_clean_tree_is_an_empty_list() -> None:
    """A program reads a list in any case."""
    assert "[]\n" == as_json(report())
