from __future__ import annotations

import pytest

from fsxds.lint.report_formats import BY_NAME, PROBLEM_FORMATS, ProblemFormat
from fsxds.settings.options import OPTIONS
from tests.lint.findings import problem, report


def test_every_format_can_be_chosen() -> None:
    """The words of `--format` are the names of the table, in its order, and text is the first."""
    (row,) = (row for row in OPTIONS if row.name == "check_format")

    assert row.form.choices == tuple(BY_NAME)
    assert "text" == row.default == PROBLEM_FORMATS[0].name


@pytest.mark.parametrize("row", PROBLEM_FORMATS, ids=lambda row: row.name)
def test_equal_problems_give_equal_bytes(row: ProblemFormat) -> None:
    """What is written depends on the problems alone, not on the order in which they were found."""
    problems = [problem(line=line) for line in range(20)] + [problem("eds/web.yaml")]

    assert row.write(report(*problems)) == row.write(report(*reversed(problems)))
    assert row.write(report(*problems)).endswith("\n")
