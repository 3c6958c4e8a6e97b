"""The log: turns events into lines on stderr, for people or programs.

Writing waits for no reader. Frequent lines are limited, each and in total.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Never, Protocol

from fsxds.api.secrets import mask_text
from fsxds.events.client_events import (
    HandshakeFailed,
    LimitReached,
    NackReceived,
    RequestRejected,
    ResponseSent,
)
from fsxds.events.event import (
    LONGEST_NAME,
    MOST_NAMES,
    Event,
    Level,
    LogLine,
    Observer,
    count_of,
    escape,
    name_of,
    noun_of,
    omitted,
    some_of,
    type_name,
)
from fsxds.events.file_events import SnapshotPublished, TreeLoaded
from fsxds.events.process_events import InternalError
from fsxds.events.rollout_events import HoldsChanged
from fsxds.model.resources import Snapshot, TypeChange
from fsxds.model.values import PlainValue, Problem, TypeUrl
from fsxds.observe.internal_errors import InternalErrors, RepeatLimit, library_logs
from fsxds.observe.problem_reports import ProblemReports

if TYPE_CHECKING:
    from rich.console import Console

LAST_FLUSH_S = 1.0

# Held polls are answered within milliseconds; then a change is reported ...
QUIET_S = 0.2

# ... or after this time at the latest.
MOST_GATHERING_S = 5.0

# They read like the success of an edit, of which a part may be held.
SUCCESS_EVENTS = frozenset({"snapshot_published", "envoy_acked"})


@dataclass(frozen=True, slots=True)
class Clock:
    """A monotonic clock, and the time of day."""

    now_s: Callable[[], float] = time.monotonic
    moment: Callable[[], datetime] = lambda: datetime.now().astimezone()


@dataclass(frozen=True, slots=True)
class LogOutput:
    """How to render and write lines, from a level on."""

    render: Renderer
    write: Callable[[str], None]
    level: Level = Level.INFO


class Reporter(Protocol):
    """Makes the lines of some events."""

    def lines(self, event: Event, now_s: float) -> Iterator[LogLine]:
        """Yield an event's lines, unless just logged."""


class Log:
    """Receives all events, and writes lines."""

    def __init__(self, output: LogOutput, clock: Clock | None = None) -> None:
        self._output = output
        self._clock = clock or Clock()
        self._reports = ChangeReports(self.write, self._clock.now_s)
        self._problems = ProblemReports(output.level)
        self._tree = TreeLoaded((), ())
        # Of held and rejected resources.
        self._held_resources: tuple[Problem, ...] = ()
        self._rejections = RepeatLimit()
        self._limits = RepeatLimit()
        self._nacks = RepeatLimit()
        self._reporters: dict[str, Reporter] = {}
        self.internal_errors = InternalErrors()

    @property
    def level(self) -> Level:
        """The minimum level."""
        return self._output.level

    def write_from(self, level: Level) -> None:
        """Change the minimum level."""
        self._output = replace(self._output, level=level)
        self._problems.show_from(level)

    async def report_changes(self) -> Never:
        """Report each change once clients were answered."""
        await self._reports.report()

    def receive(self, event: Event) -> None:
        """Log an event, at once or with others."""
        if isinstance(event, ResponseSent):
            self._reports.answer(event.subscription.type_url, name_of(event.node))
        elif isinstance(event, NackReceived):
            self.rejected(event.subscription.type_url, name_of(event.node))
        if event.is_frequent and self._output.level > Level.DEBUG:
            return
        for line in self._lines_of(event):
            self.write(line)

    def write(self, line: LogLine) -> None:
        """Write a line of sufficient level; a successful edit also names held files."""
        if (line.admitted_as or line.level) < self._output.level:
            return
        try:
            self._write(line)
        # Components must not fail by logging.
        except Exception:  # noqa: BLE001
            self.internal_errors.counts["log"] += 1

    def _write(self, line: LogLine) -> None:
        if line.event in SUCCESS_EVENTS and self._problems.held:
            held = [str(path) for path in self._problems.held]
            line = replace(
                line, text=f"{line.text}; not served: {some_of(held)}", details={**line.details, "held": [*held]}
            )
        self._output.write(self._output.render(line, self._clock.moment()))

    def _lines_of(self, event: Event) -> Iterator[LogLine]:
        match event:
            case SnapshotPublished():
                self._reports.publish(event.snapshot, event.detected_s)
            case TreeLoaded():
                self._tree = event
                yield from self._problems.update(self._tree_problems(), event.held, self._clock.moment())
            case HoldsChanged():
                self._held_resources = event.problems
                yield from self._problems.update(self._tree_problems(), self._tree.held, self._clock.moment())
            case InternalError():
                yield from self.internal_errors.lines(event, self._clock.now_s())
            case RequestRejected() | HandshakeFailed() | LimitReached() | NackReceived():
                yield from self._lines_about_peers(event)
            case _ if event.reporter:
                if event.reporter not in self._reporters:
                    module, _, name = event.reporter.rpartition(".")
                    self._reporters[event.reporter] = getattr(import_module(module), name)()
                yield from self._reporters[event.reporter].lines(event, self._clock.now_s())
            case _:
                yield event.line()

    def _tree_problems(self) -> tuple[Problem, ...]:
        return (*self._tree.problems, *self._held_resources)

    def rejected(self, type_url: TypeUrl, client: str) -> None:
        """Add a client's NACK to a type's newest change."""
        self._reports.reject(type_url, client)

    def _lines_about_peers(
        self, event: RequestRejected | HandshakeFailed | LimitReached | NackReceived
    ) -> Iterator[LogLine]:
        """Clients may repeat these at any rate."""
        match event:
            case RequestRejected():
                return self._limited(self._rejections, (event.peer, event.reason), event, "rejection")
            case HandshakeFailed():
                return self._limited(self._rejections, (event.peer, event.reason), event, "failure")
            case LimitReached():
                return self._limited(self._limits, event.limit, event, "time")
            case NackReceived():
                said = event.acknowledgement.version, event.acknowledgement.reason
                about = name_of(event.node), event.subscription.type_url, *said
                return self._limited(self._nacks, about, event, "NACK")

    def _limited(self, limit: RepeatLimit, said: Hashable, event: Event, noun: str) -> Iterator[LogLine]:
        repeats = limit.admit(said, self._clock.now_s())
        if repeats is not None:
            line = event.line()
            yield replace(line, text=line.text + omitted(repeats, noun), details={**line.details, "repeats": repeats})


@dataclass(slots=True)
class PublishedChange:
    """A published snapshot, and its clients.

    `last_s`: of the publication or last answer, monotonic. `clients` and `rejected_by` are ordered sets of node ids.
    """

    types: Mapping[TypeUrl, TypeChange]
    detected_s: float
    last_s: float
    clients: dict[str, None] = field(default_factory=dict)
    rejected_by: dict[str, None] = field(default_factory=dict)

    def line(self) -> LogLine:
        """Return the report."""
        counts = [
            f"+{len(change.added)} ~{len(change.changed)} -{len(change.removed)} {noun_of(type_url)}"
            for type_url, change in self.types.items()
        ]
        files = sorted({str(path) for change in self.types.values() for path in change.files})
        took_ms = round((self.last_s - self.detected_s) * 1000)
        source = f" from {some_of(files)}" if files else ""
        clients = tuple(self.clients)
        audience = f", published in {took_ms} ms, no client waited"
        if clients:
            audience = f" for {count_of(len(clients), 'client')}: {some_of(clients)} in {took_ms} ms"
        if self.rejected_by:
            audience += f"; rejected by {some_of(tuple(self.rejected_by))}"
        details: dict[str, PlainValue] = {
            "changes": {
                type_name(type_url): {
                    "added": len(change.added),
                    "changed": len(change.changed),
                    "removed": len(change.removed),
                }
                for type_url, change in self.types.items()
            },
            "files": [*files],
            "client_count": len(clients),
            "clients": [*clients[:MOST_NAMES]],
            "took_ms": took_ms,
            **({"rejected_by": [*tuple(self.rejected_by)[:MOST_NAMES]]} if self.rejected_by else {}),
        }
        return LogLine(Level.INFO, "snapshot_published", ", ".join(counts) + source + audience, details)


class ChangeReports:
    """Collects answers to changes; reports when no more come."""

    def __init__(self, write: Callable[[LogLine], None], now_s: Callable[[], float]) -> None:
        self._write = write
        self._now_s = now_s
        self._inbox: asyncio.Queue[PublishedChange] = asyncio.Queue()
        self._gathering: list[PublishedChange] = []

    def publish(self, snapshot: Snapshot, detected_s: float) -> None:
        """Start a snapshot's report."""
        types = {
            type_url: change
            for type_url, change in snapshot.changes.items()
            if change.generation == snapshot.generation and (change.added or change.changed or change.removed)
        }
        if not types:
            self._write(LogLine(Level.DEBUG, "snapshot_published", "files changed, served resources did not"))
            return
        change = PublishedChange(types, detected_s, self._now_s())
        self._gathering.append(change)
        self._inbox.put_nowait(change)

    def answer(self, type_url: TypeUrl, client: str) -> None:
        """Count a response for its type's newest unreported change."""
        if change := self._newest_of(type_url):
            change.clients[client[:LONGEST_NAME]] = None
            change.last_s = self._now_s()

    def reject(self, type_url: TypeUrl, client: str) -> None:
        """Record a rejection of its type's newest unreported change."""
        if change := self._newest_of(type_url):
            change.rejected_by[client[:LONGEST_NAME]] = None

    def _newest_of(self, type_url: TypeUrl) -> PublishedChange | None:
        return next((change for change in reversed(self._gathering) if type_url in change.types), None)

    async def report(self) -> Never:
        """Report changes when answered; on cancellation, at once."""
        try:
            while True:
                await self._inbox.get()
                await self._wait_until_quiet(self._gathering[0])
                self._write(self._gathering.pop(0).line())
        except asyncio.CancelledError:
            for change in self._gathering:
                self._write(change.line())
            self._gathering.clear()
            raise

    async def _wait_until_quiet(self, change: PublishedChange) -> None:
        published_s = change.last_s
        while True:
            quiet_at_s = min(change.last_s + QUIET_S, published_s + MOST_GATHERING_S)
            if (rest_s := quiet_at_s - self._now_s()) <= 0:
                return
            await asyncio.sleep(rest_s)


def observed_by(log: Observer, **others: Observer) -> Callable[[Event], None]:
    """Return an observer for all; errors of `others` go to `log`."""

    def receive(event: Event) -> None:
        for name, other in others.items():
            try:
                other(event)
            # They must not reach the event's sender.
            except Exception as error:  # noqa: BLE001
                log(InternalError(name, error))
        log(event)

    return receive


@contextmanager
def open_log(log_format: str, log_level: str, worker: int = 0) -> Iterator[Log]:
    """Open the log on stderr; flush it in the end.

    `log_format` is `human`, `json`, or `auto`: human on a terminal. `worker` is this process's number in lines, or 0.
    """
    is_human = log_format == "human" or (log_format == "auto" and sys.stderr.isatty())
    render = _for_terminal() if is_human else json_renderer
    if worker:
        render = _numbered(render, worker)
    sink = LineSink(sys.stderr.fileno())
    log = Log(LogOutput(render, sink.write, Level[log_level.upper()]))
    try:
        with library_logs(log.write):
            yield log
    finally:
        sink.flush(patience_s=LAST_FLUSH_S)


# poll() guarantees so much space in a pipe (PIPE_BUF).
CHUNK_BYTES = 4096
# About what a reader misses in a minute.
MOST_WAITING_LINES = 1000
RETRY_S = 0.2
STYLES = {Level.DEBUG: "dim", Level.INFO: "none", Level.WARNING: "yellow", Level.ERROR: "bold red"}
Renderer = Callable[[LogLine, datetime], str]
"""Renders a line without its newline."""


def _for_terminal() -> Renderer:
    from rich.console import Console  # noqa: PLC0415 - JSON does without

    return human_renderer(Console(stderr=True))


def human_renderer(console: Console) -> Renderer:
    """Return a renderer for people: `12:03:11 text`."""
    from rich.text import Text  # noqa: PLC0415 - JSON does without

    def render(line: LogLine, moment: datetime) -> str:
        text = Text.assemble((f"{moment:%H:%M:%S} ", "dim"), (escape(mask_text(line.text)), STYLES[line.level]))
        with console.capture() as capture:
            console.print(text, soft_wrap=True, highlight=False, end="")
        return capture.get()

    return render


def _numbered(render: Renderer, worker: int) -> Renderer:

    def numbered(line: LogLine, moment: datetime) -> str:
        named = replace(line, text=f"worker {worker}: {line.text}", details={**line.details, "worker": worker})
        return render(named, moment)

    return numbered


def json_renderer(line: LogLine, moment: datetime) -> str:
    """Render JSON with `ts`, `level`, `event`, `message` and details."""
    facts = {
        "ts": moment.isoformat(timespec="milliseconds"),
        "level": line.level.name.lower(),
        "event": line.event,
        "message": line.text,
        **line.details,
    }
    return json.dumps({name: _masked(fact) for name, fact in facts.items()})


def _masked(fact: PlainValue) -> PlainValue:
    if isinstance(fact, str):
        # JSON cannot have half a surrogate pair of a file name.
        return mask_text(fact).encode(errors="replace").decode()
    return [_masked(member) for member in fact] if isinstance(fact, list) else fact


class LineSink:
    """Writes whole lines without waiting, queued for a slow reader, too many dropped and counted. Thread-safe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.RLock()
        self._waiting: deque[bytes] = deque()
        self._dropped = 0
        self._retry: asyncio.TimerHandle | None = None

    def write(self, line: str) -> None:
        """Write a line, when there is space."""
        with self._lock:
            if len(self._waiting) >= MOST_WAITING_LINES:
                self._dropped += 1
            else:
                note = f"({self._dropped} lines were dropped: the log was not read)\n" if self._dropped else ""
                self._dropped = 0
                self._waiting.append(f"{note}{line}\n".encode(errors="backslashreplace"))
            self.flush(patience_s=0)

    def flush(self, *, patience_s: float) -> None:
        """Write queued lines, waiting up to `patience_s` seconds for each space."""
        with self._lock:
            try:
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                while self._waiting and poll.poll(patience_s * 1000):
                    line = self._waiting.popleft()
                    written = os.write(self._descriptor, line[:CHUNK_BYTES])
                    if line[written:]:
                        self._waiting.appendleft(line[written:])
            except OSError:
                # No reader (a closed pipe, a full disk): serving continues.
                self._waiting.clear()
            if self._waiting and self._retry is None:
                self._retry = self._retry_later()

    def _retry_later(self) -> asyncio.TimerHandle | None:
        try:
            return asyncio.get_running_loop().call_later(RETRY_S, self._try_again)
        except RuntimeError:
            return None  # Without a loop the next line, or the last flush, writes these too.

    def _try_again(self) -> None:
        self._retry = None
        self.flush(patience_s=0)
