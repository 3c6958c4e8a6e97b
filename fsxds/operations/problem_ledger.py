"""Which problems were told already: each is told once when it appears, and once when it is gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import PurePosixPath
from typing import TypeAlias

from fsxds.operations.change_reports import count_of
from fsxds.operations.log_lines import Level, LogLine
from fsxds.snapshots.load import HeldFile
from fsxds.values import PlainValue, Problem, Severity

LEVELS = {Severity.ERROR: Level.ERROR, Severity.WARNING: Level.WARNING, Severity.NOTE: Level.DEBUG}

# More lines at once would bury the rest of the log; `fsxds check` lists them all.
MOST_LINES = 20

Identity: TypeAlias = tuple[PurePosixPath, str, str, str]


class ProblemLedger:
    """Remembers the problems that are known, and since when which files are held."""

    def __init__(self) -> None:
        self._known: dict[Identity, Problem] = {}
        self._held: tuple[HeldFile, ...] = ()
        self._since: dict[PurePosixPath, datetime] = {}

    def update(self, problems: Iterable[Problem], held: tuple[HeldFile, ...], moment: datetime) -> Iterator[LogLine]:
        """Take in all problems of a tree at a moment and yield the lines that tell what is new about them."""
        present = {_identity(problem): problem for problem in problems}
        appeared = [problem for identity, problem in present.items() if identity not in self._known]
        gone = [problem for identity, problem in self._known.items() if identity not in present]
        self._known = present
        yield from _few([_problem_line(problem) for problem in appeared], "problems appeared")
        yield from _few([_mended_line(problem) for problem in gone], "problems are gone")
        yield from self._state(held, moment)

    def _state(self, held: tuple[HeldFile, ...], moment: datetime) -> Iterator[LogLine]:
        """Yield the line of the state, degraded or whole, where it is another than before."""
        if held == self._held:
            return
        self._held = held
        self._since = {file.path: self._since.get(file.path, moment) for file in held}
        if not held:
            yield LogLine(Level.INFO, "whole", "whole again: no file is held")
            return
        since = min(self._since.values())
        first = next((file.problem for file in held if file.problem), None)
        cause = f"{first.path}:{first.line}: {first.message}" if first else str(held[0].path)
        details: dict[str, PlainValue] = {"held": [str(file.path) for file in held], "since": since.isoformat()}
        text = f"degraded: {count_of(len(held), 'file')} held since {since:%H:%M:%S}, {cause}"
        yield LogLine(Level.WARNING, "degraded", text, details)


def _identity(problem: Problem) -> Identity:
    """Return what stays the same when lines are added above a problem."""
    return problem.path, problem.pointer, problem.rule, problem.message


def _few(lines: list[LogLine], what: str) -> Iterator[LogLine]:
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        text = f"{len(lines) - MOST_LINES} more {what}; fsxds check lists those that are there"
        yield LogLine(Level.WARNING, "more_problems", text)


def _problem_line(problem: Problem) -> LogLine:
    return LogLine(LEVELS[problem.severity], "problem_found", str(problem), _details(problem))


def _mended_line(problem: Problem) -> LogLine:
    text = f"mended: {problem.path}:{problem.line}: {problem.message}"
    return LogLine(Level.INFO, "problem_mended", text, _details(problem))


def _details(problem: Problem) -> dict[str, PlainValue]:
    return {"path": str(problem.path), "line": problem.line, "column": problem.column, "rule": problem.rule}
