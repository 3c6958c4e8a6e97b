from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from fsxds.lint.report_formats import (
    BY_NAME,
    PROBLEM_FORMATS,
    ProblemFormat,
    as_annotations,
    as_json,
    as_styled_text,
    as_text,
)
from fsxds.model.values import Problem, Severity
from fsxds.settings.options import OPTIONS
from tests.lint.findings import problem, report

SOURCES = {"cds.yaml": "- name: web\n  type: [1]\n"}


def test_a_problem_is_a_block() -> None:
    """A problem has its place and fact, the line that it is about, marks under its place, and the remedy."""
    assert as_text(report(problem(), sources=SOURCES)) == (
        "config/xds/cds.yaml:2:3: error[wrong-value]: [0].type: expected text, found a list\n"
        "2 |   type: [1]\n"
        "  |   ^^^^\n"
        "  = help: give one text\n"
    )


def test_blocks_stand_apart_and_notes_together() -> None:
    """An empty line stands around each block; notes take one line each; what is not known leaves no trace."""
    notes = [problem(line=line, rule="unused", pointer="", severity=Severity.NOTE) for line in (3, 4)]
    last = problem(line=5, pointer="", remedy="", severity=Severity.WARNING)

    assert as_text(report(problem(remedy=""), *notes, last)) == (
        "config/xds/cds.yaml:2:3: error[wrong-value]: [0].type: expected text, found a list\n"
        "\n"
        "config/xds/cds.yaml:3:3: note[unused]: expected text, found a list; give one text\n"
        "config/xds/cds.yaml:4:3: note[unused]: expected text, found a list; give one text\n"
        "\n"
        "config/xds/cds.yaml:5:3: warning[wrong-value]: expected text, found a list\n"
    )


def test_notes_that_differ_in_names_alone_are_counted() -> None:
    """Of one rule and message, text has the first ten and the number of the others; a whole report has each."""

    def note(line: int, message: str) -> Problem:
        return problem(line=line, rule="unused", pointer="", message=message, remedy="", severity=Severity.NOTE)

    alike = [note(line, f'nothing uses "c{line}"') for line in range(1, 5013)]
    found = report(*alike, note(6000, "another fact"), problem(line=7000, rule="unused", pointer="", remedy=""))
    lines = as_text(replace(found, lists_all=False)).splitlines()

    assert lines[:10] == [
        f'config/xds/cds.yaml:{line}:3: note[unused]: nothing uses "c{line}"' for line in range(1, 11)
    ]
    assert lines[10:] == [
        "config/xds/cds.yaml:6000:3: note[unused]: another fact",
        "",
        "config/xds/cds.yaml:7000:3: error[unused]: expected text, found a list",
        "and 5,002 more such as config/xds/cds.yaml:1:3: note[unused]; fsxds check --all prints each",
    ]
    assert len(as_text(found).splitlines()) == 5012 + len(lines[10:13])


def test_line_numbers_of_any_width_keep_the_marks_in_place() -> None:
    """The margin is as wide as the number of the line."""
    text = as_text(report(problem(line=100), sources={"cds.yaml": "\n" * 99 + "  type: [1]\n"}))

    assert ["100 |   type: [1]", "    |   ^^^^", "    = help: give one text"] == text.splitlines()[1:]


def test_nothing_is_said_of_a_clean_tree() -> None:
    """Where there is no problem, there is no text."""
    assert "" == as_text(report())


def test_colours_change_no_letter() -> None:
    """On a terminal the same text is coloured; the source line and brackets are taken for no markup."""
    found = report(problem(message="[red]odd[/red]"), sources=SOURCES)
    stream = StringIO()
    Console(file=stream, force_terminal=True, color_system="standard", highlight=False).print(
        as_styled_text(found), end="", soft_wrap=True
    )

    assert "\x1b[1;31merror[wrong-value]\x1b[0m" in stream.getvalue()
    assert as_text(found) == as_styled_text(found).plain
    assert "[red]odd[/red]\n" in as_text(found)


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


def test_a_clean_tree_has_no_annotations() -> None:
    """Where there is no problem, there is no command."""
    assert "" == as_annotations(report())


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
