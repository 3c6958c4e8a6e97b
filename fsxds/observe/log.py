"""The log: what becomes of events, line by line, on stderr.

Which problems the log has shown: each once when it is found, once when it is fixed, and what is not served for it.
"""

from __future__ import annotations

import hashlib
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import PurePosixPath
from typing import Never, TypeAlias

from rich.console import Console

from fsxds.events import (
    AckReceived,
    Event,
    FilesWritten,
    InternalError,
    Level,
    MirrorFailed,
    NackReceived,
    RequestRejected,
    ResponseSent,
    SnapshotPublished,
    StreamClosed,
    StreamOpened,
    TreeLoaded,
)
from fsxds.observe.change_reports import ChangeReports, MirrorReports
from fsxds.observe.internal_errors import InternalErrors, library_logs
from fsxds.observe.log_lines import (
    Details,
    LineSink,
    LogLine,
    Renderer,
    RepeatLimit,
    count_of,
    human_renderer,
    json_renderer,
    name_of,
    shortened,
    some_of,
)
from fsxds.observe.wording import line_of
from fsxds.values import HeldFile, PlainValue, Problem, Severity, TypeUrl

LEVELS = {Severity.ERROR: Level.ERROR, Severity.WARNING: Level.WARNING, Severity.NOTE: Level.DEBUG}

# More lines of one severity at once would push the rest out of sight; `fsxds check` lists them all.
MOST_LINES = 20

Identity: TypeAlias = tuple[PurePosixPath, str, str, str]

# What moves when others are put before: indices in pointers, and the lines of other places in messages.
_INDEX = re.compile(r"\[\d+\]")
_LINE = re.compile(r"(?<=:)\d+\b")


class ProblemLedger:
    """Remembers which problems were shown, and since when which files are held.

    Args:
        level: the minimum level that the log writes. What is below it is neither shown as found nor as fixed.
    """

    def __init__(self, level: Level = Level.INFO) -> None:
        self._shown: dict[Severity, _Shown] = {}
        self.show_from(level)
        self._held: dict[PurePosixPath, HeldFile] = {}
        self._since: dict[PurePosixPath, datetime] = {}

    def show_from(self, level: Level) -> None:
        """Show problems from this level on; those that were shown before are still known."""
        before = self._shown
        self._shown = {severity: before.get(severity) or _Shown() for severity, own in LEVELS.items() if own >= level}

    def update(self, problems: Iterable[Problem], held: tuple[HeldFile, ...], moment: datetime) -> Iterator[LogLine]:
        """Take in all problems of a tree at a moment and yield the lines about what is new: fixed, found, not served."""
        present: dict[Severity, dict[Identity, list[Problem]]] = {severity: {} for severity in LEVELS}
        for problem in problems:
            present[problem.severity].setdefault(_identity(problem), []).append(problem)
        paths = frozenset(file.path for file in held)
        found: list[LogLine] = []
        for severity, shown in self._shown.items():
            news = shown.update(present[severity], paths)
            yield from _few([_fixed_line(one) for one in news.fixed], news.fixed_unshown, severity, "fixed")
            found += _few([_found_line(one) for one in news.found], news.found_unshown, severity, "found")
        yield from found
        yield from self._state(held, moment)

    @property
    def held(self) -> tuple[PurePosixPath, ...]:
        """The files of which something older is served, or nothing."""
        return tuple(self._held)

    def _state(self, held: tuple[HeldFile, ...], moment: datetime) -> Iterator[LogLine]:
        """Yield the line about what is not served, whenever that, or an edit of it, is another than before."""
        before, self._held = self._held, {file.path: file for file in held}
        if [_edition(file) for file in held] == [_edition(file) for file in before.values()]:
            return
        self._since = {file.path: self._since.get(file.path, moment) for file in held}
        if not held:
            yield LogLine(Level.INFO, "recovered", "recovered: no file is held", admitted_as=Level.WARNING)
            return
        since = min(self._since.values())
        details: dict[str, PlainValue] = {"held": [str(file.path) for file in held], "since": since.isoformat()}
        text = f"not served: {_cause(held)}; {_served_instead(held, since)}"
        yield LogLine(Level.WARNING, "degraded", text, details)


@dataclass(frozen=True, slots=True)
class _News:
    """What is to be shown of one severity, and how many more there are that are not."""

    fixed: list[Problem]
    fixed_unshown: int
    found: list[Problem]
    found_unshown: int


class _Shown:
    """The problems of one severity that were shown, and how many were not, for want of room.

    In a file that is held, a problem may be gone because another hides it. It counts as fixed when the file is served.
    """

    def __init__(self) -> None:
        self._shown: dict[Identity, list[Problem]] = {}
        self._unshown: dict[Identity, int] = {}

    def update(self, present: dict[Identity, list[Problem]], held: frozenset[PurePosixPath]) -> _News:
        """Take in the problems that there are, and return what to show."""
        gone = {identity: known[len(present.get(identity, ())) :] for identity, known in self._shown.items()}
        fixed = [one for identity, ones in gone.items() if identity[0] not in held for one in ones]
        still = {identity: group[: len(self._shown.get(identity, ()))] for identity, group in present.items()}
        fresh: list[Problem] = []
        older: list[Problem] = []
        for identity, group in present.items():
            rest = group[len(still[identity]) :]
            waited = self._unshown.get(identity, 0)
            older += rest[:waited]
            fresh += rest[waited:]
        # What there was no room for before is shown as soon as others are gone.
        candidates = fresh + (older if any(gone.values()) else [])
        now = candidates[:MOST_LINES]
        for one in now:
            still[_identity(one)] = [*still[_identity(one)], one]
        unshown = {identity: len(group) - len(still[identity]) for identity, group in present.items()}
        hidden = {identity: count for identity, count in self._unshown.items() if identity[0] in held}
        fixed_unshown = sum(
            max(0, count - len(present.get(identity, ())))
            for identity, count in self._unshown.items()
            if identity not in hidden
        )
        carried = {identity: ones for identity, ones in gone.items() if identity[0] in held}
        self._shown = _merged(still, carried)
        self._unshown = {**{one: count for one, count in hidden.items() if one not in present}, **unshown}
        return _News(fixed, fixed_unshown, now, len(candidates) - len(now))


def _merged(
    first: dict[Identity, list[Problem]], second: dict[Identity, list[Problem]]
) -> dict[Identity, list[Problem]]:
    both = {identity: [*first.get(identity, ()), *second.get(identity, ())] for identity in (*first, *second)}
    return {identity: ones for identity, ones in both.items() if ones}


def _identity(problem: Problem) -> Identity:
    """Return what stays the same when lines or resources are put before a problem."""
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
        return "nothing of it was served before" if len(held) == 1 else "nothing of them was served before"
    versions = "the last good version stays" if good == 1 else "the last good versions stay"
    some = "" if good == len(held) else f" of the {good} that had one"
    return f"{versions}{some}, since {since:%H:%M:%S}"


def _few(lines: list[LogLine], unshown: int, severity: Severity, verb: str) -> list[LogLine]:
    left = max(0, len(lines) - MOST_LINES) + unshown
    if not left:
        return lines
    text = f"{count_of(left, f'more {severity.value}')} {verb}; fsxds check lists those that are there"
    details: dict[str, PlainValue] = {"severity": severity.value, "count": left}
    return [*lines[:MOST_LINES], LogLine(LEVELS[severity], f"more_problems_{verb}", text, details)]


def _found_line(problem: Problem) -> LogLine:
    return LogLine(LEVELS[problem.severity], "problem_found", str(problem), _details(problem))


def _fixed_line(problem: Problem) -> LogLine:
    text = f"fixed: {problem.path}:{problem.line}: {problem.message}"
    return LogLine(Level.INFO, "problem_fixed", text, _details(problem), LEVELS[problem.severity])


def _details(problem: Problem) -> dict[str, PlainValue]:
    identity = "\0".join(map(str, _identity(problem)))
    return {
        # The same in the event that tells of it and in the one of its end, wherever its line has moved to.
        "problem": hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:12],
        "path": str(problem.path),
        "line": problem.line,
        "column": problem.column,
        "rule": problem.rule,
        "severity": problem.severity.value,
    }


LAST_FLUSH_S = 1.0

# Events that read like the success of an edit, of which a part may be held back.
ENDS_WELL = frozenset({"snapshot_published", "envoy_acked"})

# Of these there may be thousands at once; below their level they are not worded.
FREQUENT = (ResponseSent, AckReceived, StreamOpened, StreamClosed)


def _now() -> datetime:
    return datetime.now().astimezone()


@dataclass(frozen=True, slots=True)
class Clock:
    """The two clocks of the log: one that only counts seconds, and the time of day."""

    now_s: Callable[[], float] = time.monotonic
    moment: Callable[[], datetime] = _now


@dataclass(frozen=True, slots=True)
class LogOutput:
    """How lines are rendered, where they are written, and the minimum level to log."""

    render: Renderer
    write: Callable[[str], None]
    level: Level = Level.INFO


class Log:
    """Receives the events of all components, and writes lines. `report_changes` has to run as a task.

    Attributes:
        internal_errors: counts errors of fsxds itself.
    """

    def __init__(self, output: LogOutput, clock: Clock | None = None) -> None:
        self._output = output
        self._clock = clock or Clock()
        self._reports = ChangeReports(self.write, self._clock.now_s)
        self._problems = ProblemLedger(output.level)
        self._mirror = MirrorReports()
        self._rejections = RepeatLimit()
        self.internal_errors = InternalErrors()

    @property
    def level(self) -> Level:
        """The minimum level to log."""
        return self._output.level

    def write_from(self, level: Level) -> None:
        """Log from another level on."""
        self._output = replace(self._output, level=level)
        self._problems.show_from(level)

    async def report_changes(self) -> Never:
        """Report each published change, once its clients were answered."""
        await self._reports.report()

    def receive(self, event: Event) -> None:
        """Log an event, at once or with others that belong to it."""
        if isinstance(event, ResponseSent):
            self._reports.answer(event.subscription.type_url, name_of(event.node))
        elif isinstance(event, NackReceived):
            self.rejected(event.subscription.type_url, name_of(event.node))
        if isinstance(event, FREQUENT) and self._output.level > Level.DEBUG:
            return
        for line in self._lines_of(event):
            self.write(line)

    def write(self, line: LogLine) -> None:
        """Write one line, if its level is logged; what was served or taken names what is not served beside it.

        A line that cannot be written is counted, and ends nobody's work.
        """
        if (line.admitted_as or line.level) < self._output.level:
            return
        try:
            self._write(line)
        # The edge of the log: everybody logs, in the midst of their own work.
        except Exception:  # noqa: BLE001
            self.internal_errors.counts["log"] += 1

    def _write(self, line: LogLine) -> None:
        if line.event in ENDS_WELL and self._problems.held:
            held = [str(path) for path in self._problems.held]
            line = replace(
                line, text=f"{line.text}; not served: {some_of(held)}", details={**line.details, "held": [*held]}
            )
        self._output.write(self._output.render(line, self._clock.moment()))

    def _lines_of(self, event: Event) -> Iterator[LogLine]:
        match event:
            case SnapshotPublished():
                self._reports.publish(event.snapshot, event.noticed_s)
            case TreeLoaded():
                yield from self._problems.update(event.problems, event.held, self._clock.moment())
            case FilesWritten():
                yield from self._mirror.written(event)
            case MirrorFailed():
                yield self._mirror.failed(event)
            case InternalError():
                yield from self.internal_errors.lines(event, self._clock.now_s())
            case RequestRejected():
                yield from self._rejection_lines(event)
            case _:
                yield line_of(event)

    def rejected(self, type_url: TypeUrl, client: str) -> None:
        """Have the report of a type's newest change say that a client NACKed it."""
        self._reports.reject(type_url, client)

    def _rejection_lines(self, event: RequestRejected) -> Iterator[LogLine]:
        """Yield the line about a request that was rejected; the same one at most every ten seconds."""
        repeats = self._rejections.admit((event.peer, event.reason), self._clock.now_s())
        if repeats is None:
            return
        before = f" ({count_of(repeats, 'rejection')} before it omitted)" if repeats else ""
        reason = shortened(event.reason)
        text = f"rejected a request of {event.peer or 'a local client'} with {event.status}: {reason}{before}"
        details: Details = {"peer": event.peer, "status": event.status, "reason": reason, "repeats": repeats}
        yield LogLine(Level.WARNING, "request_rejected", text, details)


@contextmanager
def open_log(log_format: str, log_level: str) -> Iterator[Log]:
    """Open the log on stderr, and flush it in the end.

    Args:
        log_format: `human`, `json`, or `auto` for human on a terminal and JSON elsewhere.
        log_level: `debug`, `info`, `warning` or `error`.
    """
    is_human = log_format == "human" or (log_format == "auto" and sys.stderr.isatty())
    render = human_renderer(Console(stderr=True)) if is_human else json_renderer
    sink = LineSink(sys.stderr.fileno())
    log = Log(LogOutput(render, sink.write, Level[log_level.upper()]))
    try:
        with library_logs(log.write):
            yield log
    finally:
        sink.flush(patience_s=LAST_FLUSH_S)
