"""Problems as people read them: the place, the fact, the line with marks under the place, and the remedy."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from fsxds.reports.excerpts import Excerpt
from fsxds.reports.report import Finding, Report, line_of, place_of
from fsxds.values import Severity

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


def _block(finding: Finding) -> Text:
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
