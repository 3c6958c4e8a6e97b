"""Events of mirrored files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from fsxds.events.event import Event, Measure


@dataclass(frozen=True, slots=True, order=True)
class Remark:
    """A deviation of a path or resource, and the remedy."""

    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class FilesWritten(Event):
    """A snapshot was written to a mirror.

    Attributes:
        written: in order; a bundle that lost clusters is twice in it.
        unchanged: the number of files.
        kept: although the snapshot lacks them.
        left_sources: config sources not pointed at a file.
        blocked: by others' files.
        restored: after others' changes.
        pause_s: for how long such changes are left; 0 at first.
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
    """Writing failed; again in `retry_s` seconds, or with the next snapshot."""

    measures = (Measure("mirror_failures_total"),)

    error: OSError
    retry_s: float
