"""The queue of files to parse in workers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from time import monotonic

from fsxds.model.resources import ParsedFile
from fsxds.model.values import SourceFile

# Small files given to a worker at once: each exchange costs half a millisecond.
BATCH_BYTES = 256 * 1024

FileKey = tuple[PurePosixPath, str]
"""Path and digest."""


def file_key(file: SourceFile) -> FileKey:
    """Return the key of a file's content."""
    return file.path, file.digest


@dataclass(slots=True, eq=False)
class ParseJob:
    """A file to parse apart.

    `is_suspect`: the parser died on it, or on a file with it.
    """

    file: SourceFile
    parsed: ParsedFile | None = None
    deaths: int = 0
    is_suspect: bool = False
    due_s: float = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the result holds for this content."""
        return self.parsed is not None and self.parsed.digest == self.file.digest


class ParseQueue:
    """Files to parse apart, small ones first, suspect ones last; each with one worker."""

    def __init__(self) -> None:
        self.jobs: dict[FileKey, ParseJob] = {}
        self._waiting_bytes = 0
        self._taken: set[ParseJob] = set()
        # The next one last; None to sort again.
        self._order: list[ParseJob] | None = None

    def request(self, files: Iterable[SourceFile]) -> set[ParseJob]:
        """Request exactly these files; return new ones."""
        before, self.jobs = self.jobs, {}
        for file in files:
            self.jobs[file_key(file)] = before.get(file_key(file)) or ParseJob(file)
        self._order = None
        return {job for key, job in self.jobs.items() if key not in before}

    def has(self, job: ParseJob) -> bool:
        """Whether a file is still requested."""
        return self.jobs.get(file_key(job.file)) is job

    def take(self) -> list[ParseJob]:
        """Return a worker's next files: small ones together, large or suspect ones alone."""
        if not self._order:
            self._order = self._due()
        batch: list[ParseJob] = []
        size_bytes = 0
        while self._order:
            job = self._order[-1]
            size_bytes += job.file.size_bytes
            if batch and (batch[0].is_suspect or job.is_suspect or size_bytes > BATCH_BYTES):
                break
            batch.append(self._order.pop())
            self._waiting_bytes -= job.file.size_bytes
        self._taken.update(batch)
        return batch

    def give_back(self, batch: list[ParseJob]) -> None:
        """Return files from a worker; unfinished ones are taken again."""
        self._taken.difference_update(batch)
        if any(not job.is_over for job in batch):
            self._order = None

    def give_back_all(self) -> None:
        """Return all files: there is no worker."""
        self._taken.clear()
        self._order = None

    def due_s(self) -> float | None:
        """Return when the next file is due."""
        return min((job.due_s for job in self._left()), default=None)

    def waiting_bytes(self) -> int:
        """Return the untaken due bytes."""
        if self._order is None:
            self._order = self._due()
        return self._waiting_bytes

    def _due(self) -> list[ParseJob]:
        now_s = monotonic()
        due = [job for job in self._left() if job.due_s <= now_s]
        self._waiting_bytes = sum(job.file.size_bytes for job in due)
        return sorted(due, key=lambda job: (job.deaths, job.is_suspect, job.file.size_bytes), reverse=True)

    def _left(self) -> Iterable[ParseJob]:
        return (job for job in self.jobs.values() if not job.is_over and job not in self._taken)
