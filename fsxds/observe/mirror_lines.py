"""The log lines of mirrored files, remarks once."""

from __future__ import annotations

from collections.abc import Iterator

from fsxds.events.event import Event, Level, LogLine, count_of, some_of
from fsxds.events.file_events import FilesWritten, MirrorFailed
from fsxds.model.values import PlainValue


class MirrorReports:
    """Makes the lines of mirrors' events."""

    def __init__(self) -> None:
        self._reported: frozenset[str] = frozenset()
        self._contested: frozenset[str] = frozenset()
        self._has_failed = False

    def lines(self, event: Event, now_s: float) -> Iterator[LogLine]:
        """Yield an event's lines."""
        match event:
            case FilesWritten():
                yield from self._written(event)
            case MirrorFailed():
                yield self._failed(event)

    def _written(self, report: FilesWritten) -> Iterator[LogLine]:
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

    def _failed(self, failure: MirrorFailed) -> LogLine:
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
