"""Which files are parsed next in processes of their own, where many wait: a queue for any number of workers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from time import monotonic

from fsxds.model.resources import ParsedFile
from fsxds.model.values import SourceFile

# So many bytes of small files are handed to a worker at once: each exchange costs half a millisecond.
BATCH_BYTES = 256 * 1024

FileKey = tuple[PurePosixPath, str]
"""The path and the digest of a file."""


def file_key(file: SourceFile) -> FileKey:
    """Return what makes a file the same."""
    return file.path, file.digest


@dataclass(slots=True, eq=False)
class ParseJob:
    """A file to parse apart: what became of it, how often its parser died of it, and when it is tried (again).

    `is_suspect`: the parser died of it, or of another that was parsed with it.
    """

    file: SourceFile
    parsed: ParsedFile | None = None
    deaths: int = 0
    is_suspect: bool = False
    due_s: float = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the result holds for as long as the content is the same."""
        return self.parsed is not None and self.parsed.digest == self.file.digest


class ParseQueue:
    """The files to parse apart: small ones first, and last what a parser died of. Each is with one worker at a time.

    Attributes:
        jobs: all files that are wished, with what became of them.
    """

    def __init__(self) -> None:
        self.jobs: dict[FileKey, ParseJob] = {}
        self._waiting_bytes = 0
        self._taken: set[ParseJob] = set()
        # What is due, the next one last; None to be sorted anew.
        self._order: list[ParseJob] | None = None

    def request(self, files: Iterable[SourceFile]) -> set[ParseJob]:
        """Have these files parsed, and no others; return those that were not wished before."""
        before, self.jobs = self.jobs, {}
        for file in files:
            self.jobs[file_key(file)] = before.get(file_key(file)) or ParseJob(file)
        self._order = None
        return {job for key, job in self.jobs.items() if key not in before}

    def has(self, job: ParseJob) -> bool:
        """Whether a file is still wished."""
        return self.jobs.get(file_key(job.file)) is job

    def take(self) -> list[ParseJob]:
        """Return what one worker parses next: small files together, a large one alone, and alone what a parser died of."""
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
        """Have files that a worker is done with, or died of, taken again where they are not over."""
        self._taken.difference_update(batch)
        if any(not job.is_over for job in batch):
            self._order = None

    def give_back_all(self) -> None:
        """Have everything that a worker took taken again: there is no worker any more."""
        self._taken.clear()
        self._order = None

    def due_s(self) -> float | None:
        """Return when the next file is due; None where nothing waits for its time."""
        return min((job.due_s for job in self._left()), default=None)

    def waiting_bytes(self) -> int:
        """Return how many bytes are due that no worker has taken yet."""
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
