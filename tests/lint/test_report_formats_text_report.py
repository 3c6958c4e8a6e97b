from __future__ import annotations

from io import StringIO

from rich.console import Console

from fsxds.lint.report_formats import as_styled_text, as_text
from fsxds.values import Severity
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
