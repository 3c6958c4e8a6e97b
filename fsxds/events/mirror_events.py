"""Events of mirrored files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from fsxds.events.event import Event, Measure


@dataclass(frozen=True, slots=True, order=True)
class Remark:
    """Something that was not done as asked: `subject` is a path or a resource, `reason` a sentence with the remedy."""

    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class FilesWritten(Event):
    """What one snapshot did to the directory of mirrored files.

    Attributes:
        generation: that of the snapshot.
        written: in order; a bundle that let clusters go is twice in it.
        removed: files of resources that were removed.
        unchanged: how many files were as they should be.
        kept: what stays although the snapshot does not have it.
        left_sources: config sources that were not pointed at a file.
        blocked: files of somebody else that stand in the way.
        restored: those of the written files that somebody had removed or changed.
        pause_s: for how long the next ones are left as somebody makes them, who goes on to change files; 0 at first.
        duration_s: how long it took.
    """

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
    """The directory could not be written; it is tried again in `retry_s` seconds, or with the next snapshot."""

    measures = (Measure("mirror_failures_total"),)

    error: OSError
    retry_s: float
