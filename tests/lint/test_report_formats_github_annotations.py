from __future__ import annotations

import pytest

from fsxds.lint.report_formats import as_annotations
from fsxds.values import Severity
from tests.lint.findings import problem, report


@pytest.mark.parametrize(
    ("severity", "command"), [(Severity.ERROR, "error"), (Severity.WARNING, "warning"), (Severity.NOTE, "notice")]
)
def test_each_problem_is_a_command(severity: Severity, command: str) -> None:
    """A problem is one line; its weight decides the command, its rule is the title."""
    assert as_annotations(report(problem(severity=severity))) == (
        f"::{command} file=config/xds/cds.yaml,line=2,col=3,title=wrong-value::"
        "[0].type: expected text, found a list%0Agive one text\n"
    )


def test_what_would_end_a_property_is_escaped() -> None:
    """Percent signs, colons and commas in a file's name are escaped; in the message only percent signs are."""
    found = report(problem("a,b:c%.yaml", pointer="", message="100%: a, b\r\n::error::c", remedy=""))

    assert as_annotations(found) == (
        "::error file=config/xds/a%2Cb%3Ac%25.yaml,line=2,col=3,title=wrong-value::100%25: a, b\\r\\n::error::c\n"
    )


def test_nothing_is_said_of_a_clean_tree() -> None:
    """Where there is no problem, there is no command."""
    assert "" == as_annotations(report())
