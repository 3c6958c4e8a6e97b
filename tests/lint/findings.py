"""Problems and reports written down by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from fsxds.lint.report import Report, findings_of
from fsxds.model.values import Problem, Severity

TREE = PurePosixPath("config/xds")


def problem(
    path: str = "cds.yaml",
    line: int = 2,
    column: int = 3,
    *,
    pointer: str = "[0].type",
    rule: str = "wrong-value",
    message: str = "expected text, found a list",
    remedy: str = "give one text",
    severity: Severity = Severity.ERROR,
) -> Problem:
    """Return a problem; what does not matter has a value."""
    return Problem(PurePosixPath(path), line, column, pointer, rule, message, remedy, severity)


def report(
    *problems: Problem, threshold: Severity = Severity.ERROR, sources: Mapping[str, str] | None = None
) -> Report:
    """Return what a check reports of a tree with two files."""
    contents = {PurePosixPath(path): text.encode() for path, text in (sources or {}).items()}
    files = ("config/xds/cds.yaml", "config/xds/eds/web.yaml")
    return Report(str(TREE), findings_of(problems, TREE, contents), files, {"clusters": 2}, threshold)
