"""Events of files: watched, read, parsed, published, and mirrored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fsxds.events.event import Event, Level, LogMessage, Measure, count_of, single_row, some_of
from fsxds.formats import FORMATS
from fsxds.model.resources import Snapshot
from fsxds.model.values import HeldFile, Problem

# Names in a line for programs.
MOST_FILES = 20


@dataclass(frozen=True, slots=True)
class WatchStarted(Event):
    """The tree is watched."""

    rows = single_row("watching", "info", "How changes are detected.", "mode reason")

    mode: str
    reason: str

    def _message(self) -> str:
        return f"watching by {self.mode}: {self.reason}"


@dataclass(frozen=True, slots=True)
class TreeDisappeared(Event):
    """The tree or its files disappeared; the last snapshot stays."""

    rows = single_row(
        "tree_lost",
        "error",
        "The directory, or all its files, disappeared; fsxds keeps serving the last content.",
        "error",
    )
    measures = (Measure("tree_present", 0),)

    reason: str

    def _message(self) -> LogMessage:
        return LogMessage(
            f"{self.reason}; fsxds serves the last content until the directory is back", {"error": self.reason}
        )


@dataclass(frozen=True, slots=True)
class TreeReturned(Event):
    """The tree is back."""

    rows = single_row("tree_found", "info", "The directory is back.")
    measures = (Measure("tree_present", 1),)

    def _message(self) -> LogMessage:
        return LogMessage("the tree is back", admitted_as=Level.ERROR)


@dataclass(frozen=True, slots=True)
class FilesIgnored(Event):
    """No format claims these files; sent once."""

    rows = single_row("files_ignored", "info", "No format has the suffix of these files.", "count files")

    paths: tuple[PurePosixPath, ...]

    def _message(self) -> LogMessage:
        names = [str(path) for path in self.paths]
        text = f"{some_of(names)}: ignored, no format has {'this suffix' if len(names) == 1 else 'these suffixes'}"
        return LogMessage(text, {"count": len(names), "files": [*names[:MOST_FILES]]})


@dataclass(frozen=True, slots=True)
class ConfigurationMissing(Event):
    """No file is configuration yet."""

    rows = single_row(
        "waiting_for_files", "warning", "The directory holds no configuration file yet.", "directory ignored excluded"
    )

    root: Path
    ignored: tuple[PurePosixPath, ...] = ()
    excluded: tuple[PurePosixPath, ...] = ()

    def _message(self) -> LogMessage:
        suffixes = ", ".join(suffix for row in FORMATS for suffix in row.suffixes)
        others = ((self.ignored, "ignored"), (self.excluded, "excluded"))
        there = "".join(f"; {word}: {some_of([str(path) for path in paths])}" for paths, word in others if paths)
        text = f"waiting for configuration: no file in {self.root} has one of the suffixes {suffixes}{there}"
        return LogMessage(text, {"directory": str(self.root), **{word: len(paths) for paths, word in others}})


@dataclass(frozen=True, slots=True)
class QueueOverflowed(Event):
    """The kernel dropped file events; all is read again."""

    rows = single_row("queue_overflowed", "warning", "The kernel dropped file events; the whole tree is read again.")
    measures = (Measure("file_event_overflows_total"),)

    def _message(self) -> str:
        return "too many file events at once: reading the whole tree again"


@dataclass(frozen=True, slots=True)
class CacheRead(Event):
    """`found` of `count` files were parsed before."""

    rows = single_row("cache_read", "info", "Parse results of an earlier start were used.", "found count")

    found: int
    count: int

    def _message(self) -> str:
        return f"cache: {self.found} of {count_of(self.count, 'file')} taken from an earlier start"


@dataclass(frozen=True, slots=True)
class CacheFailed(Event):
    """A cache directory is no longer used."""

    rows = single_row(
        "cache_failed", "warning", "The cache cannot be used: every start parses all files.", "directory error"
    )

    directory: Path
    reason: str

    def _message(self) -> LogMessage:
        text = (
            f"cache: {self.directory} cannot be used, so every start parses all files: {self.reason}; "
            "give another --cache-dir"
        )
        return LogMessage(text, {"error": self.reason})


@dataclass(frozen=True, slots=True)
class TreeLoaded(Event):
    """A tree was loaded."""

    problems: tuple[Problem, ...]
    held: tuple[HeldFile, ...]
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SnapshotPublished(Event):
    """A snapshot is served; `detected_s`: its change's first sign, monotonic."""

    snapshot: Snapshot
    detected_s: float


@dataclass(frozen=True, slots=True, order=True)
class Remark:
    """A deviation of a path or resource, and the remedy."""

    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class FilesWritten(Event):
    """A snapshot was written to a mirror.

    `written` is in order, a bundle that lost clusters twice; `unchanged` a number; `kept` although the snapshot lacks
    them; `left_sources` are config sources not pointed at a file; `blocked` by others' files; `restored` after others'
    changes, left for `pause_s`, 0 at first.
    """

    reporter = "fsxds.observe.mirror_lines.MirrorReports"
    measures = (
        Measure("mirror_writes_total"),
        Measure("mirror_files_written_total", "written"),
        Measure("mirror_files_removed_total", "removed"),
        Measure("mirror_files_restored_total", "restored"),
        Measure("mirror_write_duration_seconds", "duration_s"),
    )

    generation: int = 0
    written: tuple[PurePosixPath, ...] = ()
    removed: tuple[PurePosixPath, ...] = ()
    unchanged: int = 0
    kept: tuple[Remark, ...] = ()
    left_sources: tuple[Remark, ...] = ()
    blocked: tuple[Remark, ...] = ()
    restored: tuple[PurePosixPath, ...] = ()
    pause_s: float = 0.0
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MirrorFailed(Event):
    """Writing failed; again in `retry_s` seconds, or with the next snapshot."""

    reporter = "fsxds.observe.mirror_lines.MirrorReports"
    measures = (Measure("mirror_failures_total"),)

    error: OSError
    retry_s: float
