"""The formats in which problems are reported; adding a format means writing its module and adding a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fsxds.reports.github_annotations import as_annotations
from fsxds.reports.json_report import as_json
from fsxds.reports.junit_xml import as_junit
from fsxds.reports.report import Report
from fsxds.reports.sarif_log import as_sarif
from fsxds.reports.text_report import as_text


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
