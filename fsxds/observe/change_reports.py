"""Reports of changes: when clients were answered, and of mirrored files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Never

from fsxds.events.event import Level, LogLine
from fsxds.events.file_events import FilesWritten, MirrorFailed
from fsxds.events.phrases import LONGEST_NAME, MOST_NAMES, count_of, noun_of, some_of, type_name
from fsxds.model.resources import Snapshot, TypeChange
from fsxds.model.values import PlainValue, TypeUrl

# Held polls are answered within milliseconds; then a change is reported ...
QUIET_S = 0.2

# ... or after this time at the latest.
MOST_GATHERING_S = 5.0


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


class MirrorReports:
    """Makes lines about mirrored files, remarks once."""

    def __init__(self) -> None:
        self._reported: frozenset[str] = frozenset()
        self._contested: frozenset[str] = frozenset()
        self._has_failed = False

    def written(self, report: FilesWritten) -> Iterator[LogLine]:
        """Yield the lines about a written snapshot."""
        if report.restored:
            names = [str(path) for path in report.restored]
            text = f"mirror: another program removed or changed {some_of(names)}; fsxds wrote them again"
            if report.pause_s > 0.0:
                goes_on = f"mirror: another program keeps removing or changing {some_of(names)}; let only one program"
                text = f"{goes_on} write there; fsxds writes them again after longer and longer pauses"
            if report.pause_s == 0.0 or text not in self._contested:
                yield LogLine(Level.WARNING, "files_restored", text, {"files": [*names]})
            self._contested = self._contested | {text} if report.pause_s > 0.0 else frozenset()
        if report.written or report.removed or self._has_failed:
            yield LogLine(
                Level.INFO,
                "files_written",
                f"mirror: {summary(report)}",
                {
                    "written": len(report.written),
                    "removed": len(report.removed),
                    "unchanged": report.unchanged,
                    "took_ms": round(report.duration_s * 1000),
                },
            )
        self._has_failed = False
        remarks = list(remark_lines(report))
        yield from (line for line in remarks if line.text not in self._reported)
        self._reported = frozenset(line.text for line in remarks)

    def failed(self, failure: MirrorFailed) -> LogLine:
        """Return the line about a failed write."""
        self._has_failed = True
        error, retry_s = failure.error, failure.retry_s
        text = f"mirror: {error}; trying again in {retry_s:g} s, serving goes on"
        return LogLine(Level.ERROR, "mirror_failed", text, {"error": str(error), "retry_s": retry_s})


def summary(report: FilesWritten) -> str:
    """Word a report: `2 files written (cds.pb, eds/web.pb), 1 removed, 7 unchanged, in 12 ms`."""
    names = [str(path) for path in dict.fromkeys(report.written)]
    written = f"{count_of(len(names), 'file')} written{f' ({some_of(names)})' if names else ''}"
    took_ms = round(report.duration_s * 1000)
    return f"{written}, {len(report.removed)} removed, {report.unchanged} unchanged, in {took_ms} ms"


def remark_lines(report: FilesWritten) -> Iterator[LogLine]:
    """Yield a line for each deviation."""
    for event, level, remarks in (
        ("file_blocked", Level.ERROR, report.blocked),
        ("resource_kept", Level.INFO, report.kept),
        ("config_source_left", Level.WARNING, report.left_sources),
    ):
        for remark in remarks:
            details: dict[str, PlainValue] = {"subject": remark.subject, "reason": remark.reason}
            yield LogLine(level, event, f"mirror: {remark.subject}: {remark.reason}", details)
