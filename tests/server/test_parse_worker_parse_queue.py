from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from time import monotonic

from fsxds.model.resources import ParsedFile
from fsxds.server.parse_worker import BATCH_BYTES, ParseJob, ParseQueue
from tests.support.trees import tree_of


def queue_of(*sizes: int) -> ParseQueue:
    """Return a queue of files of these sizes, named by their numbers."""
    queue = ParseQueue()
    queue.request(tree_of({f"{number}.yaml": "x" * size for number, size in enumerate(sizes)}).files)
    return queue


def names(jobs: Iterable[ParseJob]) -> list[str]:
    """Return the numbers of the files of jobs."""
    return [job.file.path.stem for job in jobs]


def finish(queue: ParseQueue, batch: list[ParseJob]) -> None:
    """Give a batch back with its results."""
    for job in batch:
        job.parsed = ParsedFile(job.file.path, job.file.digest)
    queue.requeue(batch)


def test_small_files_go_together_and_first() -> None:
    """Small files are one batch, a large one is alone, and nothing is given to two workers."""
    queue = queue_of(BATCH_BYTES + 1, 20, 10)

    assert queue.waiting_bytes() == BATCH_BYTES + 31
    assert names(queue.take()) == ["2", "1"]
    assert queue.waiting_bytes() == BATCH_BYTES + 1
    assert names(queue.take()) == ["0"]
    assert queue.take() == []
    assert queue.waiting_bytes() == 0


def test_what_a_parser_died_of_comes_last_and_alone() -> None:
    """Files that are given back without a result come after those that were never tried, each by itself."""
    queue = queue_of(10, 20, BATCH_BYTES)
    batch = queue.take()
    for job in batch:
        job.is_suspect = True
    queue.requeue(batch)

    assert [names(queue.take()) for _ in range(4)] == [["2"], ["0"], ["1"], []]


def test_files_wait_until_they_are_due() -> None:
    """A file that is tried again later is not given out before that, and the queue knows when."""
    queue = queue_of(10, 20)
    later_s = monotonic() + 3600
    first, second = queue.jobs.values()
    first.due_s = later_s

    assert names(queue.take()) == ["1"]
    assert queue.take() == []
    assert queue.due_s() == later_s
    finish(queue, [second])
    first.due_s = 0.0
    assert names(queue.take()) == ["0"]


def test_what_is_not_wished_any_more_is_dropped() -> None:
    """A new request replaces the one before; what both have keeps its place with its worker."""
    queue = queue_of(10, 20)
    (old, kept) = queue.take()
    others = tree_of({"other.yaml": "x"}).files

    new = queue.request((kept.file, *others))

    assert names(new) == ["other"]
    assert queue.has(kept)
    assert not queue.has(old)
    assert names(queue.take()) == ["other"]


def test_workers_that_are_gone_have_taken_nothing() -> None:
    """When all workers ended, what they had is given out again."""
    queue = queue_of(10)
    taken = queue.take()
    queue.requeue_all()

    assert queue.take() == taken


def test_a_batch_costs_its_size() -> None:
    """Of many files, giving out one batch after the other looks at each file a few times, and not once for each batch."""
    looks = count()

    class CountingJob(ParseJob):
        @property
        def is_over(self) -> bool:
            next(looks)
            return self.parsed is not None

    queue = queue_of(*[BATCH_BYTES // 2] * 2000)
    queue.jobs = {key: CountingJob(job.file) for key, job in queue.jobs.items()}
    batches = 0
    while batch := queue.take():
        finish(queue, batch)
        batches += 1

    assert batches == 1000
    assert next(looks) < 10 * 2000


def test_a_job_is_over_by_its_content() -> None:
    """A stand-in for a result has no digest, and is no end."""
    (job,) = queue_of(10).jobs.values()
    job.parsed = ParsedFile(job.file.path, "")
    assert not job.is_over
    job.parsed = replace(job.parsed, digest=job.file.digest)
    assert job.is_over
