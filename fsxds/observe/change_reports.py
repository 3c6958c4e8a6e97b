"""What became of each change: gathered for a moment after it was published, then told in one line.

What became of the mirrored files, worded for the log and for `fsxds mirror`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Never, Protocol

from fsxds.observe.internal_errors import set_aside_line
from fsxds.observe.log_lines import LONGEST_NAME, MOST_NAMES, Level, LogLine, count_of, some_of, type_name
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Snapshot, TypeChange
from fsxds.values import PlainValue, TypeUrl

# Held polls are answered within milliseconds; a change is reported when so long nobody more was answered …
QUIET_S = 0.2

# … or after this time at the latest, however many clients there are.
MOST_GATHERING_S = 5.0


@dataclass(slots=True)
class PublishedChange:
    """One snapshot that was published, and who was told of it.

    Attributes:
        types: what changed, by type; types without a change are not in it.
        noticed_s: clock reading at the first sign of the change.
        last_s: clock reading at publication, later at the last answer.
        clients: the node ids that were answered, in order; an ordered set.
        rejected_by: the node ids that rejected something of it, likewise.
    """

    types: Mapping[TypeUrl, TypeChange]
    noticed_s: float
    last_s: float
    clients: dict[str, None] = field(default_factory=dict)
    rejected_by: dict[str, None] = field(default_factory=dict)

    def line(self) -> LogLine:
        """Word the report: what changed, from which files, for whom it was news, and how long it took."""
        counts = [_counts(type_url, change) for type_url, change in self.types.items()]
        files = sorted({str(path) for change in self.types.values() for path in change.files})
        took_ms = round((self.last_s - self.noticed_s) * 1000)
        source = f" from {some_of(files)}" if files else ""
        clients = tuple(self.clients)
        audience = _audience(clients, took_ms)
        if self.rejected_by:
            audience += f"; rejected by {some_of(tuple(self.rejected_by))}"
        details: dict[str, PlainValue] = {
            "changes": {type_name(type_url): _details(change) for type_url, change in self.types.items()},
            "files": [*files],
            "client_count": len(clients),
            "clients": [*clients[:MOST_NAMES]],
            "took_ms": took_ms,
            **({"rejected_by": [*tuple(self.rejected_by)[:MOST_NAMES]]} if self.rejected_by else {}),
        }
        return LogLine(Level.INFO, "snapshot_published", ", ".join(counts) + source + audience, details)


class ChangeReports:
    """Gathers answers for the changes that were published last, and reports each change when it is quiet."""

    def __init__(self, write: Callable[[LogLine], None], now_s: Callable[[], float]) -> None:
        self._write = write
        self._now_s = now_s
        self._inbox: asyncio.Queue[PublishedChange] = asyncio.Queue()
        self._gathering: list[PublishedChange] = []

    def publish(self, snapshot: Snapshot, noticed_s: float) -> None:
        """Begin to gather for a snapshot that became current just now."""
        types = {
            type_url: change
            for type_url, change in snapshot.changes.items()
            if change.generation == snapshot.generation and (change.added or change.changed or change.removed)
        }
        if not types:
            self._write(LogLine(Level.DEBUG, "snapshot_published", "files changed, what is served did not"))
            return
        change = PublishedChange(types, noticed_s, self._now_s())
        self._gathering.append(change)
        self._inbox.put_nowait(change)

    def answer(self, type_url: TypeUrl, client: str) -> None:
        """Count an answer to a client as news of the newest change of its type that was not reported yet."""
        if change := self._newest_of(type_url):
            change.clients[client[:LONGEST_NAME]] = None
            change.last_s = self._now_s()

    def reject(self, type_url: TypeUrl, client: str) -> None:
        """Note that a client rejected the newest change of a type, as long as that was not reported yet."""
        if change := self._newest_of(type_url):
            change.rejected_by[client[:LONGEST_NAME]] = None

    def _newest_of(self, type_url: TypeUrl) -> PublishedChange | None:
        return next((change for change in reversed(self._gathering) if type_url in change.types), None)

    async def report(self) -> Never:
        """Report every change when its answers are in; what is open when it is cancelled is reported as it stands."""
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


def _counts(type_url: TypeUrl, change: TypeChange) -> str:
    row = BY_TYPE_URL.get(type_url)
    return f"+{len(change.added)} ~{len(change.changed)} -{len(change.removed)} {row.noun if row else type_url}"


def _details(change: TypeChange) -> PlainValue:
    return {"added": len(change.added), "changed": len(change.changed), "removed": len(change.removed)}


def _audience(clients: tuple[str, ...], took_ms: int) -> str:
    if not clients:
        return f", published in {took_ms} ms, no client waited"
    return f" for {count_of(len(clients), 'client')}: {some_of(clients)} in {took_ms} ms"


class MirrorRemark(Protocol):
    """Something that was not done as asked."""

    @property
    def subject(self) -> str:
        """A path or a resource."""

    @property
    def reason(self) -> str:
        """A sentence with the remedy."""


class WrittenFiles(Protocol):
    """What one snapshot did to the directory."""

    @property
    def written(self) -> tuple[PurePosixPath, ...]:
        """In order."""

    @property
    def removed(self) -> tuple[PurePosixPath, ...]:
        """Files of resources that are gone."""

    @property
    def unchanged(self) -> int:
        """How many files were as they should be."""

    @property
    def kept(self) -> Sequence[MirrorRemark]:
        """What stays although the snapshot does not have it."""

    @property
    def left_sources(self) -> Sequence[MirrorRemark]:
        """Config sources that were not pointed at a file."""

    @property
    def refused(self) -> Sequence[MirrorRemark]:
        """Files of somebody else that stood in the way."""

    @property
    def restored(self) -> tuple[PurePosixPath, ...]:
        """Written files that somebody had removed or changed."""

    @property
    def duration_s(self) -> float:
        """How long it took."""


class MirrorLog:
    """Listens to `transports.file_mirror` under the names of its `MirrorObserver`, and writes lines."""

    def __init__(self, write: Callable[[LogLine], None]) -> None:
        self._write = write
        self._told: frozenset[str] = frozenset()
        self._has_failed = False

    def files_written(self, report: WrittenFiles) -> None:
        """Tell what was written; a remark is told when it is new."""
        if report.restored:
            names = some_of([str(path) for path in report.restored])
            text = f"mirror: somebody else removed or changed {names}; written again"
            details: dict[str, PlainValue] = {"files": [str(path) for path in report.restored]}
            self._write(LogLine(Level.WARNING, "files_restored", text, details))
        if report.written or report.removed or self._has_failed:
            self._write(
                LogLine(Level.INFO, "files_written", f"mirror: {summary(report)}", _details_of_mirror_log(report))
            )
        self._has_failed = False
        remarks = list(remark_lines(report))
        for line in remarks:
            if line.text not in self._told:
                self._write(line)
        self._told = frozenset(line.text for line in remarks)

    def mirror_failed(self, error: OSError, retry_s: float) -> None:
        """Tell that the directory could not be written."""
        self._has_failed = True
        text = f"mirror: {error}; trying again in {retry_s:g} s, serving goes on"
        self._write(LogLine(Level.ERROR, "mirror_failed", text, {"error": str(error), "retry_s": retry_s}))

    def snapshot_set_aside(self, error: BaseException) -> None:
        """Report that writing a snapshot failed too often by an error of fsxds."""
        self._write(set_aside_line("mirror", error))


def summary(report: WrittenFiles) -> str:
    """Word a report in one line: `2 files written (cds.pb, eds/web.pb), 1 removed, 7 unchanged, in 12 ms`."""
    names = [str(path) for path in dict.fromkeys(report.written)]
    written = f"{count_of(len(names), 'file')} written{f' ({some_of(names)})' if names else ''}"
    took_ms = round(report.duration_s * 1000)
    return f"{written}, {len(report.removed)} removed, {report.unchanged} unchanged, in {took_ms} ms"


def remark_lines(report: WrittenFiles) -> Iterator[LogLine]:
    """Yield a line for everything that was not done as asked."""
    for event, level, remarks in (
        ("file_refused", Level.ERROR, report.refused),
        ("resource_kept", Level.INFO, report.kept),
        ("config_source_left", Level.WARNING, report.left_sources),
    ):
        for remark in remarks:
            details: dict[str, PlainValue] = {"subject": remark.subject, "reason": remark.reason}
            yield LogLine(level, event, f"mirror: {remark.subject}: {remark.reason}", details)


def _details_of_mirror_log(report: WrittenFiles) -> dict[str, PlainValue]:
    return {
        "written": len(report.written),
        "removed": len(report.removed),
        "unchanged": report.unchanged,
        "took_ms": round(report.duration_s * 1000),
    }
