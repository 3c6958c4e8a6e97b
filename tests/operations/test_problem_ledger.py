from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath

from fsxds.operations.log_lines import Level
from fsxds.operations.problem_ledger import MOST_LINES, ProblemLedger
from fsxds.snapshots.load import HeldFile
from fsxds.values import Problem, Severity

NOON = datetime(2026, 5, 1, 12, 3, 11, tzinfo=UTC)
LATER = datetime(2026, 5, 1, 12, 9, 0, tzinfo=UTC)
EDGE = PurePosixPath("edge.yaml")
TYPO = Problem(EDGE, 17, 3, "resources[0].nme", "unknown-field", "there is no such field", "did you mean name?")


def told(ledger: ProblemLedger, *problems: Problem, held: tuple[HeldFile, ...] = (), at: datetime = NOON) -> list[str]:
    """Return the texts of the lines that an update yields."""
    return [line.text for line in ledger.update(problems, held, at)]


def test_a_problem_is_told_once() -> None:
    """A problem is told when it appears, not again while it stays, also when its line moves, and once when it is gone."""
    ledger = ProblemLedger()
    moved = replace(TYPO, line=19)

    assert told(ledger, TYPO) == ["edge.yaml:17:3: error: resources[0].nme: there is no such field; did you mean name?"]
    assert told(ledger, TYPO) == []
    assert told(ledger, moved) == []
    assert told(ledger) == ["mended: edge.yaml:19: there is no such field"]
    assert told(ledger) == []


def test_levels_follow_severities() -> None:
    """An error is told as an error, a warning as a warning, a note for those who look closely."""
    problems = [replace(TYPO, message=severity.value, severity=severity) for severity in Severity]

    levels = {line.text.split(": ")[1]: line.level for line in ProblemLedger().update(problems, (), NOON)}

    assert levels == {"error": Level.ERROR, "warning": Level.WARNING, "note": Level.DEBUG}


def test_the_state_is_told_when_it_changes() -> None:
    """Held files are told with the time since when, and when all are mended."""
    ledger = ProblemLedger()
    held = HeldFile(EDGE, TYPO, has_last_good=True)
    other = HeldFile(PurePosixPath("lds.yaml"), None, has_last_good=False)

    assert told(ledger, TYPO, held=(held,))[1:] == [
        "degraded: 1 file held since 12:03:11, edge.yaml:17: there is no such field"
    ]
    assert told(ledger, TYPO, held=(held,), at=LATER) == []
    assert told(ledger, TYPO, held=(held, other), at=LATER) == [
        "degraded: 2 files held since 12:03:11, edge.yaml:17: there is no such field"
    ]
    assert told(ledger, TYPO, held=(other,), at=LATER) == ["degraded: 1 file held since 12:09:00, lds.yaml"]
    assert told(ledger, TYPO, at=LATER) == ["whole again: no file is held"]


def test_many_problems_do_not_bury_the_log() -> None:
    """Of very many problems at once the first are told, and how many more there are."""
    problems = [replace(TYPO, message=f"problem {number}") for number in range(MOST_LINES + 5)]

    lines = told(ProblemLedger(), *problems)

    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == "5 more problems appeared; fsxds check lists those that are there"
