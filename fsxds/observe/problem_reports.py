"""Reports of problems, once when found and when fixed, and of held files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import TypeAlias

from fsxds.events.event import Details, Level, LogLine, count_of, some_of
from fsxds.model.values import HeldFile, Problem, Severity

LEVELS = {Severity.ERROR: Level.ERROR, Severity.WARNING: Level.WARNING, Severity.NOTE: Level.DEBUG}

# More would hide the rest; `fsxds check` lists all.
MOST_LINES = 20

Identity: TypeAlias = tuple[PurePosixPath, str, str, str]

# They change when lines or resources are inserted before.
_INDEX = re.compile(r"\[\d+\]")
_LINE = re.compile(r"(?<=:)\d+\b")


class ProblemReports:
    """Remembers problems of at least `level`, and how long files are held."""

    def __init__(self, level: Level = Level.INFO) -> None:
        self._reported: dict[Severity, _Reported] = {}
        self.show_from(level)
        self._held: dict[PurePosixPath, HeldFile] = {}
        self._since: dict[PurePosixPath, datetime] = {}

    def show_from(self, level: Level) -> None:
        """Report from this level on; known problems stay."""
        before = self._reported
        self._reported = {
            severity: before.get(severity) or _Reported() for severity, own in LEVELS.items() if own >= level
        }

    def update(self, problems: Iterable[Problem], held: tuple[HeldFile, ...], moment: datetime) -> Iterator[LogLine]:
        """Yield lines about changed problems and held files."""
        present: dict[Severity, dict[Identity, list[Problem]]] = {severity: {} for severity in LEVELS}
        for problem in problems:
            present[problem.severity].setdefault(_identity(problem), []).append(problem)
        paths = frozenset(file.path for file in held)
        found: list[LogLine] = []
        for severity, reported in self._reported.items():
            new = reported.update(present[severity], paths)
            yield from _few([_fixed_line(one) for one in new.fixed], new.fixed_unreported, severity, "fixed")
            found += _few(
                [LogLine(LEVELS[one.severity], "problem_found", str(one), _details(one)) for one in new.found],
                new.found_unreported,
                severity,
                "found",
            )
        yield from found
        yield from self._state(held, moment)

    @property
    def held(self) -> tuple[PurePosixPath, ...]:
        """Files served with older content or not at all."""
        return tuple(self._held)

    def _state(self, held: tuple[HeldFile, ...], moment: datetime) -> Iterator[LogLine]:
        before, self._held = self._held, {file.path: file for file in held}
        if [_edition(file) for file in held] == [_edition(file) for file in before.values()]:
            return
        self._since = {file.path: self._since.get(file.path, moment) for file in held}
        if not held:
            yield LogLine(Level.INFO, "recovered", "recovered: no file is held", admitted_as=Level.WARNING)
            return
        since = min(self._since.values())
        details: Details = {"held": [str(file.path) for file in held], "since": since.isoformat()}
        text = f"not served: {_cause(held)}; {_served_instead(held, since)}"
        yield LogLine(Level.WARNING, "degraded", text, details)


@dataclass(frozen=True, slots=True)
class _Update:
    fixed: list[Problem]
    fixed_unreported: int
    found: list[Problem]
    found_unreported: int


class _Reported:
    """In a held file, a problem may hide another, fixed only once served."""

    def __init__(self) -> None:
        self._reported: dict[Identity, list[Problem]] = {}
        self._unreported: dict[Identity, int] = {}

    def update(self, present: dict[Identity, list[Problem]], held: frozenset[PurePosixPath]) -> _Update:
        gone = {identity: known[len(present.get(identity, ())) :] for identity, known in self._reported.items()}
        fixed = [one for identity, ones in gone.items() if identity[0] not in held for one in ones]
        still = {identity: group[: len(self._reported.get(identity, ()))] for identity, group in present.items()}
        fresh: list[Problem] = []
        older: list[Problem] = []
        for identity, group in present.items():
            rest = group[len(still[identity]) :]
            waited = self._unreported.get(identity, 0)
            older += rest[:waited]
            fresh += rest[waited:]
        # Others are reported as soon as some are gone.
        candidates = fresh + (older if any(gone.values()) else [])
        now = candidates[:MOST_LINES]
        for one in now:
            still[_identity(one)] = [*still[_identity(one)], one]
        unreported = {identity: len(group) - len(still[identity]) for identity, group in present.items()}
        hidden = {identity: count for identity, count in self._unreported.items() if identity[0] in held}
        fixed_unreported = sum(
            max(0, count - len(present.get(identity, ())))
            for identity, count in self._unreported.items()
            if identity not in hidden
        )
        carried = {identity: ones for identity, ones in gone.items() if identity[0] in held}
        self._reported = _merged(still, carried)
        self._unreported = {**{one: count for one, count in hidden.items() if one not in present}, **unreported}
        return _Update(fixed, fixed_unreported, now, len(candidates) - len(now))


def _merged(
    first: dict[Identity, list[Problem]], second: dict[Identity, list[Problem]]
) -> dict[Identity, list[Problem]]:
    both = {identity: [*first.get(identity, ()), *second.get(identity, ())] for identity in (*first, *second)}
    return {identity: ones for identity, ones in both.items() if ones}


def _identity(problem: Problem) -> Identity:
    return problem.path, _INDEX.sub("[]", problem.pointer), problem.rule, _LINE.sub("", problem.message)


def _edition(file: HeldFile) -> tuple[PurePosixPath, str, Identity | None, bool]:
    return file.path, file.digest, _identity(file.problem) if file.problem else None, file.has_last_good


def _cause(held: tuple[HeldFile, ...]) -> str:
    first = held[0]
    place = f"{first.path}:{first.problem.line}: {first.problem.message}" if first.problem else str(first.path)
    return place if len(held) == 1 else f"{count_of(len(held), 'file')}, {some_of([str(file.path) for file in held])}"


def _served_instead(held: tuple[HeldFile, ...], since: datetime) -> str:
    good = sum(file.has_last_good for file in held)
    if not good:
        return "it has no good version" if len(held) == 1 else "they have no good version"
    versions = "the last good version stays" if good == 1 else "the last good versions stay"
    some = "" if good == len(held) else f" of the {good} that had one"
    return f"{versions}{some}, since {since:%H:%M:%S}"


def _few(lines: list[LogLine], unreported: int, severity: Severity, verb: str) -> list[LogLine]:
    left = max(0, len(lines) - MOST_LINES) + unreported
    if not left:
        return lines
    text = f"{count_of(left, f'more {severity.value}')} {verb}; fsxds check lists the present ones"
    details: Details = {"severity": severity.value, "count": left}
    return [*lines[:MOST_LINES], LogLine(LEVELS[severity], f"more_problems_{verb}", text, details)]


def _fixed_line(problem: Problem) -> LogLine:
    text = f"fixed: {problem.path}:{problem.line}: {problem.message}"
    return LogLine(Level.INFO, "problem_fixed", text, _details(problem), LEVELS[problem.severity])


def _details(problem: Problem) -> Details:
    identity = "\0".join(map(str, _identity(problem)))
    return {
        # Equal when found and fixed, even if the line moved.
        "problem": hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:12],
        "path": str(problem.path),
        "line": problem.line,
        "column": problem.column,
        "rule": problem.rule,
        "severity": problem.severity.value,
    }
