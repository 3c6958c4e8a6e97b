from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath

from fsxds.events.event import Level
from fsxds.model.values import HeldFile, Problem, Severity
from fsxds.observe.problem_reports import MOST_LINES, ProblemReports

NOON = datetime(2026, 5, 1, 12, 3, 11, tzinfo=UTC)
LATER = datetime(2026, 5, 1, 12, 9, 0, tzinfo=UTC)
EDGE = PurePosixPath("edge.yaml")
TYPO = Problem(EDGE, 17, 3, "resources[0].nme", "unknown-field", "there is no such field", "did you mean name?")


def reported(
    reports: ProblemReports, *problems: Problem, held: tuple[HeldFile, ...] = (), at: datetime = NOON
) -> list[str]:
    """Return the texts of the lines that an update yields."""
    return [line.text for line in reports.update(problems, held, at)]


def test_a_problem_is_told_once() -> None:
    """A problem is reported when it is found, not again while it stays, and once when it is fixed."""
    reports = ProblemReports()

    assert reported(reports, TYPO) == [
        "edge.yaml:17:3: error: resources[0].nme: there is no such field; did you mean name?"
    ]
    assert reported(reports, TYPO) == []
    assert reported(reports) == ["fixed: edge.yaml:17: there is no such field"]
    assert reported(reports) == []


def test_what_moves_is_the_same_problem() -> None:
    """A problem that other lines or resources are put before is neither new nor fixed; one more of its kind is new."""
    reports = ProblemReports()
    taken = replace(TYPO, message="the name is taken at lds.yaml:3")
    reported(reports, taken)
    moved = replace(taken, line=19, pointer="resources[1].nme", message="the name is taken at lds.yaml:30")

    assert reported(reports, moved) == []
    assert len(reported(reports, moved, replace(moved, line=40, pointer="resources[2].nme"))) == 1
    assert [line.partition(":")[0] for line in reported(reports, moved)] == ["fixed"]


def test_events_are_symmetrical() -> None:
    """The event of a problem that is fixed has the facts of the one in which it was found, and goes into the same logs."""
    reports = ProblemReports()
    (found,) = reports.update([TYPO], (), NOON)
    tuple(reports.update([moved := replace(TYPO, line=40)], (), NOON))
    (fixed,) = reports.update([], (), LATER)

    assert (found.event, fixed.event) == ("problem_found", "problem_fixed")
    assert (found.details["problem"], found.details["rule"]) == (fixed.details["problem"], fixed.details["rule"])
    assert fixed.details["line"] == moved.line
    assert fixed.admitted_as == found.level


def test_levels_follow_severities() -> None:
    """An error is reported as an error, a warning as a warning, a note for those who look closely."""
    problems = [replace(TYPO, message=severity.value, severity=severity) for severity in Severity]

    levels = {line.text.split(": ")[1]: line.level for line in ProblemReports(Level.DEBUG).update(problems, (), NOON)}

    assert levels == {"error": Level.ERROR, "warning": Level.WARNING, "note": Level.DEBUG}


def test_what_the_log_does_not_show_is_not_told_as_fixed() -> None:
    """Notes are for logs at level debug: elsewhere they are neither found nor fixed."""
    reports = ProblemReports(Level.INFO)
    note = replace(TYPO, severity=Severity.NOTE)

    assert reported(reports, note) == []
    assert reported(reports) == []


def test_the_state_is_told_when_it_changes() -> None:
    """Files that are not served are reported with the time since when, again at each edit that does not mend them, and their end."""
    reports = ProblemReports()
    held = HeldFile(EDGE, TYPO, has_last_good=True, digest="1")
    other = HeldFile(PurePosixPath("lds.yaml"), None, has_last_good=False)
    one = "not served: edge.yaml:17: there is no such field; the last good version stays, since 12:03:11"

    assert reported(reports, TYPO, held=(held,))[1:] == [one]
    assert reported(reports, TYPO, held=(held,), at=LATER) == []
    assert reported(reports, TYPO, held=(replace(held, digest="2"),), at=LATER) == [one]
    assert reported(reports, TYPO, held=(held, other), at=LATER) == [
        "not served: 2 files, edge.yaml, lds.yaml; the last good version stays of the 1 that had one, since 12:03:11"
    ]
    assert reported(reports, TYPO, held=(other,), at=LATER) == ["not served: lds.yaml; it has no good version"]
    assert reported(reports, TYPO, at=LATER) == ["recovered: no file is held"]


def test_a_refused_edit_ends_with_what_is_not_served() -> None:
    """A file that breaks in another way ends on the line that it is not served, whatever else was fixed and found."""
    reports = ProblemReports()
    warning = replace(TYPO, severity=Severity.WARNING, message="slow")
    reported(reports, TYPO, held=(HeldFile(EDGE, TYPO, has_last_good=True, digest="1"),))
    other = replace(TYPO, message="a colon is missing", line=3)
    lines = reported(reports, other, warning, held=(HeldFile(EDGE, other, has_last_good=True, digest="2"),))

    assert [line.split(": ")[0] for line in lines] == ["edge.yaml:3:3", "edge.yaml:17:3", "not served"]


def test_what_another_problem_may_hide_is_not_told_as_fixed() -> None:
    """While a file is held nothing in it counts as fixed; when it is served, all that was shown is, once."""
    reports = ProblemReports()
    syntax = replace(TYPO, message="a colon is missing")
    reported(reports, TYPO, held=(HeldFile(EDGE, TYPO, has_last_good=True, digest="1"),))
    reported(reports, syntax, held=(HeldFile(EDGE, syntax, has_last_good=True, digest="2"),))
    back = reported(reports, TYPO, held=(HeldFile(EDGE, TYPO, has_last_good=True, digest="3"),))

    assert [line.split(": ")[0] for line in back] == ["not served"]
    assert sorted(reported(reports)) == [
        "fixed: edge.yaml:17: a colon is missing",
        "fixed: edge.yaml:17: there is no such field",
        "recovered: no file is held",
    ]


def test_many_problems_leave_room_for_others() -> None:
    """Of many problems at once the first of each severity are reported, errors first, and how many more there are of each."""
    problems = [
        replace(TYPO, message=f"problem {number}", severity=severity)
        for severity in (Severity.WARNING, Severity.ERROR)
        for number in range(MOST_LINES + 5)
    ]

    lines = reported(ProblemReports(), *problems)

    assert len(lines) == 2 * (MOST_LINES + 1)
    assert lines[MOST_LINES] == "5 more errors found; fsxds check lists the present ones"
    assert lines[-1] == "5 more warnings found; fsxds check lists the present ones"


def test_what_was_not_shown_is_shown_when_others_are_fixed() -> None:
    """What were too many is reported as soon as there is, and is never reported as fixed before."""
    reports = ProblemReports()
    problems = [replace(TYPO, message=f"problem {chr(97 + number)}") for number in range(MOST_LINES + 2)]
    reported(reports, *problems)

    assert reported(reports, *problems) == []
    fixed, more, found = reported(reports, *problems[1:-1])
    assert fixed == "fixed: edge.yaml:17: problem a"
    assert more == "1 more error fixed; fsxds check lists the present ones"
    assert "problem u" in found
    assert reported(reports) == [*(f"fixed: edge.yaml:17: {problem.message}" for problem in problems[1:-1])]
