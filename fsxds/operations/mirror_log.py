"""What became of the mirrored files, worded for the log and for `fsxds mirror`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Protocol

from fsxds.operations.change_reports import count_of, some_of
from fsxds.operations.internal_errors import set_aside_line
from fsxds.operations.log_lines import Level, LogLine
from fsxds.values import PlainValue


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
            self._write(LogLine(Level.INFO, "files_written", f"mirror: {summary(report)}", _details(report)))
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


def _details(report: WrittenFiles) -> dict[str, PlainValue]:
    return {
        "written": len(report.written),
        "removed": len(report.removed),
        "unchanged": report.unchanged,
        "took_ms": round(report.duration_s * 1000),
    }
