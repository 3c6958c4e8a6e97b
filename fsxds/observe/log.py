"""The log: what the rooms tell, worded line by line, on stderr.

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
from pathlib import Path, PurePosixPath
from typing import Never, TypeAlias

from rich.console import Console

from fsxds.api.secrets import mask_reason
from fsxds.formats import FORMATS
from fsxds.observe.change_reports import ChangeReports
from fsxds.observe.internal_errors import InternalErrors, library_logs, set_aside_line
from fsxds.observe.log_lines import (
    Level,
    LineSink,
    LogLine,
    RefusalLimit,
    Renderer,
    count_of,
    human_renderer,
    json_renderer,
    shortened,
    some_of,
    type_name,
)
from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.subscription import Subscription
from fsxds.snapshots.load import Loaded
from fsxds.values import HeldFile, PlainValue, Problem, Severity, SourceTree, TypeUrl, Version

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


# Names of files in one line for machines.
MOST_FILES = 20

LAST_FLUSH_S = 1.0

# Events that read like the success of an edit, of which a part may be held back.
ENDS_WELL = frozenset({"snapshot_published", "envoy_took"})


def _now() -> datetime:
    return datetime.now().astimezone()


@dataclass(frozen=True, slots=True)
class Clock:
    """The two clocks of the log: one that only counts seconds, and the time of day."""

    now_s: Callable[[], float] = time.monotonic
    moment: Callable[[], datetime] = _now


@dataclass(frozen=True, slots=True)
class Paper:
    """What the log is written on: how lines are worded, where they go, and from which level on."""

    render: Renderer
    write: Callable[[str], None]
    level: Level = Level.INFO


class Log:
    """Listens to all rooms; `app.py` passes it to each of them as its observer.

    It has the methods of their `…Observer` protocols, under the same names; `MirrorLog` and `LocalEnvoyLog` have those of
    the file mirror and of a local Envoy, and write through `write`. `report_changes` has to run as a task.
    """

    def __init__(self, paper: Paper, clock: Clock | None = None) -> None:
        self._paper = paper
        self._clock = clock or Clock()
        self._reports = ChangeReports(self.write, self._clock.now_s)
        self._ledger = ProblemLedger(paper.level)
        self._refusals = RefusalLimit()
        self.internal_errors = InternalErrors(self._clock.now_s)

    def write(self, line: LogLine) -> None:
        """Write one line, if it is weighty enough; what was served or taken says what is not served beside it.

        A line that cannot be written is counted, and ends nobody's work.
        """
        if (line.admitted_as or line.level) < self._paper.level:
            return
        try:
            self._write(line)
        # The edge of the log: everybody logs, in the midst of their own work.
        except Exception:  # noqa: BLE001
            self.internal_errors.counts["log"] += 1

    def _write(self, line: LogLine) -> None:
        if line.event in ENDS_WELL and self._ledger.held:
            held = [str(path) for path in self._ledger.held]
            line = replace(
                line, text=f"{line.text}; not served: {some_of(held)}", details={**line.details, "held": [*held]}
            )
        self._paper.write(self._paper.render(line, self._clock.moment()))

    def say(self, level: Level, event: str, text: str, **details: PlainValue) -> None:
        """Make one line and write it."""
        self.write(LogLine(level, event, text, details))

    async def report_changes(self) -> Never:
        """Report each published change, once its clients were answered."""
        await self._reports.report()

    # What app.py tells.

    def api_found(self, description: str) -> None:
        """Tell which API catalogue was chosen: `Envoy 1.40.0 from …, 557 files`."""
        self.say(Level.INFO, "api_found", f"API: {description}", api=description)

    def transport_chosen(self, transport: str, reason: str) -> None:
        """Tell how the Envoy of `fsxds dev` gets its resources, and why so."""
        self.say(
            Level.INFO, "transport_chosen", f"transport: {transport}, {reason}", transport=transport, reason=reason
        )

    @property
    def level(self) -> Level:
        """The minimum level to write."""
        return self._paper.level

    def write_from(self, level: Level) -> None:
        """Write from another level on."""
        self._paper = replace(self._paper, level=level)
        self._ledger.show_from(level)

    def listening(self, name: str, address: str) -> None:
        """Tell an address that was really bound, or a directory that is written to."""
        self.say(Level.INFO, "listening", f"{name}: {address}", name=name, address=address)

    def stopping(self, reason: str) -> None:
        """Tell that the process ends, and why."""
        self.say(Level.INFO, "stopping", f"stopping: {reason}", reason=reason)

    def settings_reloaded(self, changed: tuple[str, ...], needs_restart: tuple[str, ...]) -> None:
        """Report which settings changed after SIGHUP, and which of those that are others cannot while it runs."""
        text = f"settings reloaded: {', '.join(changed) or 'nothing'} changed"
        if needs_restart:
            text += f"; restart to change {', '.join(needs_restart)}"
        details: dict[str, PlainValue] = {"changed": [*changed], "needs_restart": [*needs_restart]}
        self.say(Level.WARNING if needs_restart else Level.INFO, "settings_reloaded", text, **details)

    def settings_kept(self, reason: str) -> None:
        """Report that the settings were read again in vain: those in use stay."""
        text = f"settings not reloaded, those in use stay: {shortened(reason)}; correct them, and send SIGHUP again"
        self.say(Level.ERROR, "settings_kept", text, reason=reason)

    def waiting(self, what: str, elapsed_s: float) -> None:
        """Report what the start waits for."""
        text = f"waiting for {what}, {elapsed_s:g} s so far"
        self.say(Level.WARNING, "waiting", text, waits_for=what, elapsed_s=elapsed_s)

    # supervisor.SupervisorObserver

    def internal_error(self, where: str, error: BaseException) -> None:
        """Report an error of fsxds itself with its traceback; the same one at most once a minute."""
        if (line := self.internal_errors.line(where, error)) is not None:
            self.write(line)

    def component_degraded(self, component: str, reason: str, retry_s: float) -> None:
        """Report that a component failed, and when it starts again."""
        text = f"degraded: {component} restarts in {retry_s:g} s ({shortened(reason)}); what is served stays"
        self.say(Level.ERROR, "component_degraded", text, component=component, reason=reason, retry_s=retry_s)

    def component_recovered(self, component: str) -> None:
        """Report that a component runs well again."""
        self.say(Level.INFO, "component_recovered", f"recovered: {component} runs again", component=component)

    def snapshot_set_aside(self, component: str, error: BaseException) -> None:
        """Report that a component gave up on a snapshot, until the next one."""
        self.write(set_aside_line(component, error))

    # sources.watch.WatchObserver

    def watching(self, mode: str, reason: str) -> None:
        """Tell how changes are noticed."""
        self.say(Level.INFO, "watching", f"watching by {mode}: {reason}", mode=mode, reason=reason)

    def tree_lost(self, error: Exception) -> None:
        """Tell that the tree is not there any more; what was served stays."""
        text = f"{error}; what was served last stays until it is back"
        self.say(Level.ERROR, "tree_lost", text, error=str(error))

    def tree_found(self) -> None:
        """Tell that the tree is back."""
        self.write(LogLine(Level.INFO, "tree_found", "the tree is back", admitted_as=Level.ERROR))

    def files_ignored(self, paths: tuple[PurePosixPath, ...]) -> None:
        """Report files whose suffix no format has."""
        names = [str(path) for path in paths]
        text = f"{some_of(names)}: ignored, no format has {'this suffix' if len(names) == 1 else 'these suffixes'}"
        self.say(Level.INFO, "files_ignored", text, count=len(names), files=[*names[:MOST_FILES]])

    def waiting_for_files(self, root: Path, tree: SourceTree) -> None:
        """Report that nothing in the directory is configuration yet."""
        suffixes = ", ".join(suffix for row in FORMATS for suffix in row.suffixes)
        others = ((tree.ignored, "ignored"), (tree.excluded, "excluded"))
        there = "".join(f"; {word}: {some_of([str(path) for path in paths])}" for paths, word in others if paths)
        text = f"waiting for configuration: no file in {root} has one of the suffixes {suffixes}{there}"
        counts: dict[str, PlainValue] = {word: len(paths) for paths, word in others}
        self.say(Level.WARNING, "waiting_for_files", text, directory=str(root), **counts)

    def queue_overflowed(self) -> None:
        """Tell that the kernel dropped events, which a rescan makes up for."""
        self.say(Level.WARNING, "queue_overflowed", "too many file events at once: reading the whole tree again")

    # reload.ReloadObserver

    def snapshot_published(self, loaded: Loaded, noticed_s: float) -> None:
        """Take in a snapshot that became current; `report_changes` tells it when its clients were answered.

        Args:
            loaded: what was loaded.
            noticed_s: reading of `time.monotonic()` at the first sign of the change.
        """
        self._reports.publish(loaded.snapshot, noticed_s)

    def problems_found(self, loaded: Loaded) -> None:
        """Tell what is new about the problems of a tree: those that appeared, those that are gone, and what is held."""
        for line in self._ledger.update(loaded.problems, loaded.held, self._clock.moment()):
            self.write(line)

    # transports.rest_json.PollObserver

    def response_sent(self, node: Node, subscription: Subscription, version: Version) -> None:
        """Count an answer as news of the change it belongs to."""
        self._reports.answer(subscription.type_url, name_of(node))
        self._tell_client(Level.DEBUG, "response_sent", "was sent", (node, subscription, version))

    def ack_received(self, node: Node, subscription: Subscription, version: Version) -> None:
        """Tell that a client took a version."""
        self._tell_client(Level.DEBUG, "ack_received", "took", (node, subscription, version))

    def nack_received(
        self, node: Node, subscription: Subscription, verdict: Acknowledgement, files: tuple[PurePosixPath, ...]
    ) -> None:
        """Tell that a client refused a version, why, and which files that version came from."""
        self.rejected(subscription.type_url, name_of(node))
        names = [str(path) for path in files]
        reason = mask_reason(verdict.reason or "it asked again with the version before; its own log says why")
        text = (
            f"NACK: {name_of(node)} refused {type_name(subscription.type_url)} {verdict.version[:12]}"
            f"{f' from {some_of(names)}' if names else ''}: {shortened(reason)}"
        )
        self.say(
            Level.WARNING,
            "nack_received",
            text,
            **_client(node, subscription, verdict.version),
            reason=shortened(reason),
            is_inferred=verdict.reason is None,
            files=[*names],
        )

    def rejected(self, type_url: TypeUrl, client: str) -> None:
        """Take in that a client rejected what is served of a type: the report of the change says so too."""
        self._reports.reject(type_url, client)

    def request_refused(self, peer: str, status: int | str, message: str) -> None:
        """Tell that a request was answered with an error; the same one at most every ten seconds."""
        untold = self._refusals.admit(peer, message, self._clock.now_s())
        if untold is None:
            return
        before = f" ({count_of(untold, 'refusal')} before it went untold)" if untold else ""
        text = f"refused a request of {peer or 'a local client'} with {status}: {shortened(message)}{before}"
        details: dict[str, PlainValue] = {"peer": peer, "status": status, "reason": shortened(message)}
        self.say(Level.WARNING, "request_refused", text, **details, untold=untold)

    # transports.grpc_streams.StreamObserver, which has the methods of PollObserver too.

    def stream_opened(self, node: Node, service: str, peer: str) -> None:
        """Tell that a client began a stream; `service` is the method that it called."""
        self._tell_stream("stream_opened", "opened", (node, service, peer))

    def stream_closed(self, node: Node, service: str, peer: str) -> None:
        """Tell that a stream is over, whoever ended it."""
        self._tell_stream("stream_closed", "left", (node, service, peer))

    def _tell_stream(self, event: str, verb: str, whom: tuple[Node, str, str]) -> None:
        node, service, peer = whom
        if self._paper.level <= Level.DEBUG:
            text = f"{name_of(node)} {verb} {service}"
            self.say(Level.DEBUG, event, text, node=node.id, cluster=node.cluster, service=service, peer=peer)

    def _tell_client(self, level: Level, event: str, verb: str, whom: tuple[Node, Subscription, Version]) -> None:
        if level < self._paper.level:
            return  # Thousands of polls may be answered at once; what nobody reads is not worded.
        node, subscription, version = whom
        text = f"{name_of(node)} {verb} {type_name(subscription.type_url)} {version[:12]}"
        self.say(level, event, text, **_client(node, subscription, version))


def _client(node: Node, subscription: Subscription, version: Version) -> dict[str, PlainValue]:
    return {"node": node.id, "cluster": node.cluster, "type": type_name(subscription.type_url), "version": version}


def name_of(node: Node) -> str:
    """Return what a client is called in the log: its node id, else its address."""
    return node.id or node.peer or "a client without an id"


@contextmanager
def open_log(log_format: str, log_level: str) -> Iterator[Log]:
    """Open the log on stderr, and see to it that its last lines get out.

    Args:
        log_format: `human`, `json`, or `auto` for human on a terminal and JSON elsewhere.
        log_level: `debug`, `info`, `warning` or `error`.
    """
    is_human = log_format == "human" or (log_format == "auto" and sys.stderr.isatty())
    render = human_renderer(Console(stderr=True)) if is_human else json_renderer
    sink = LineSink(sys.stderr.fileno())
    log = Log(Paper(render, sink.write, Level[log_level.upper()]))
    try:
        with library_logs(log.write):
            yield log
    finally:
        sink.flush(patience_s=LAST_FLUSH_S)
