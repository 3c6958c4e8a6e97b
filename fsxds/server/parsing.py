"""Parses files here, or in workers if they may take long: clients never wait."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from time import monotonic
from types import TracebackType
from typing import Never, Self

from fsxds.disk_cache.parsed_files import ParseCache
from fsxds.model.memo import Lru
from fsxds.model.resources import ParsedFile
from fsxds.model.values import BackOff, Problem, SourceFile, Tree
from fsxds.server.parse_worker import (
    FileKey,
    OutOfTimeError,
    ParseJob,
    ParseQueue,
    ParseRules,
    ParseWorker,
    Progress,
    WorkerDiedError,
    WorkerStartError,
    file_key,
    no_progress,
    parse_all,
)
from fsxds.snapshots.encoding import DamagedBytesError, decode, encode
from fsxds.snapshots.parse import FileParser

MIB = 1024 * 1024

# More bytes are parsed apart: parsers hold the GIL, and YAML takes 0.13 s per megabyte.
PARSE_APART_ABOVE_BYTES = 1_000_000

# A hostile file of this size takes half a second, without interruption.
FILE_APART_ABOVE_BYTES = 128 * 1024

# Processor time per MiB of a file, at least for one. A usual one takes 0.15 s, the worst known one 8 s.
PARSE_TIME_S = 5.0

# Without a finished file for so long, the finished ones are used alone.
PATIENCE_S = 2.0

# A partial first snapshot does more harm.
FIRST_PATIENCE_S = 10.0

# A worker takes a second to start.
KILL_AFTER_S = 2.0

# Each takes 30 MB and more, depending on its files.
MOST_WORKERS = 4

# To start another worker: that costs a twentieth of a second, these bytes more than a tenth.
LEAST_WORKER_BYTES = MIB

# For workers of a command: the first one takes half a second.
PARSE_BY_WORKERS_ABOVE_BYTES = 8 * MIB

# They may be an earlier state of the tree, which the cache has.
MANY_FILES = 32

# Edits of large files with little new are parsed here: an exchange with a worker costs 20 ms per MiB, finding the new
# parts 5 ms, in steps that hold the GIL.
MOST_EDITED_BYTES = 8 * MIB
MOST_EDITED_FILES = 8

# Of large files whose results are kept for the next edit.
MOST_UNLEARNED_BYTES = 128 * MIB

# Together, and only the last result of a file that changes repeatedly.
WRITE_AFTER_S = 5.0

# A file that its parser died on is tried at once, then after 1, 2, 4, ... 60 seconds.
BACK_OFF = BackOff(longest_s=60.0)


def cores() -> int:
    """Return usable cores, by affinity and cgroup."""
    usable = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        usable = min(usable, max(1, round(int(quota) / int(period))))
    return usable


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """Limits of parsing.

    Attributes:
        apart_above_bytes: more changed bytes are parsed apart.
        file_apart_above_bytes: so is a larger file, unless few bytes are new.
        time_s: processor time per MiB, at least for one.
        patience_s: how long finished files await the next one.
        first_patience_s: the same at the first parse.
        back_off: after deaths of a parser.
        workers: at most.
    """

    apart_above_bytes: int = PARSE_APART_ABOVE_BYTES
    file_apart_above_bytes: int = FILE_APART_ABOVE_BYTES
    time_s: float = PARSE_TIME_S
    patience_s: float = PATIENCE_S
    first_patience_s: float = FIRST_PATIENCE_S
    back_off: BackOff = BACK_OFF
    workers: int = field(default_factory=lambda: min(MOST_WORKERS, cores()))

    def time_of(self, size_bytes: int) -> float:
        """Return the processor time for these bytes."""
        return self.time_s * max(1.0, size_bytes / MIB)

    def apart(self, files: tuple[SourceFile, ...]) -> list[SourceFile]:
        """Return files for workers: large ones, or all if many."""
        small = sum(file.size_bytes for file in files if file.size_bytes <= self.file_apart_above_bytes)
        are_many = small > self.apart_above_bytes
        return [file for file in files if are_many or file.size_bytes > self.file_apart_above_bytes]


_KnownFile = tuple[SourceFile, ParsedFile]


def _make_unlearned() -> Lru[PurePosixPath, _KnownFile]:
    return Lru(MOST_UNLEARNED_BYTES, lambda known: known[0].size_bytes, MOST_UNLEARNED_BYTES)


@dataclass(slots=True, eq=False)
class _Lane:
    worker: ParseWorker | None = None
    running: tuple[list[ParseJob], float] | None = None

    def end(self) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.end()


class Parsing:
    """Parses files beside the event loop; its workers' context manager.

    `keep_parsing` and `keep_written` are tasks. The first worker stays; others come and go with the load.
    """

    def __init__(
        self,
        rules: ParseRules,
        limits: ParseLimits | None = None,
        look_again: Callable[[], object] = lambda: None,
        cache: ParseCache | None = None,
    ) -> None:
        """Call `look_again` for results that `parse` did not await; `cache` is of earlier processes."""
        self._rules = rules
        self._limits = limits or ParseLimits()
        self._look_again = look_again
        self._cache = cache
        self._parser = rules.make_parser()
        self._lanes = [_Lane() for _ in range(self._limits.workers)]
        self._is_over = False
        self._is_first = True
        self._queue = ParseQueue()
        # Large files that the first worker did not parse itself: it learns of each before the next content, so that the
        # first edit costs no more than others.
        self._unlearned = _make_unlearned()
        # For the parser of this process.
        self._unlearned_here = _make_unlearned()
        # `look_again` reports new results of other files.
        self._awaited: set[ParseJob] = set()
        self._finished = asyncio.Event()
        # Receives the number of files parsed apart, and of all that `parse` waits for.
        self.progress: Progress = no_progress
        self._changed = asyncio.Event()
        self._added = asyncio.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over = True
        self._end_workers()

    async def parse(self, files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
        """Parse files, in order, with every problem.

        A file that takes long, or kills its parser, has a problem and no digest: parse it again at `look_again`. Others
        wait for it until none was finished for `patience_s`, once.
        """
        parsed = await self._known(files)
        parsed |= await self._edited(tuple(file for file in files if file_key(file) not in parsed))
        unknown = tuple(file for file in files if file_key(file) not in parsed)
        apart = {file_key(file) for file in self._limits.apart(unknown)}
        self._request(file for file in unknown if file_key(file) in apart)
        here = tuple(file for file in unknown if file_key(file) not in apart)
        for file, result in zip(here, await asyncio.to_thread(parse_all, self._parser, here), strict=True):
            parsed[file_key(file)] = result
            self._keep(file, result)
        await self._until_done()
        # Including results that arrived meanwhile.
        jobs = self._queue.jobs
        parsed |= {key: job.parsed or _unfinished(job.file) for key, job in jobs.items()}
        # The caller has the final results now.
        self._queue.jobs = {key: job for key, job in jobs.items() if not job.is_over}
        return tuple(parsed[file_key(file)] for file in files)

    def forget_gone(self, tree: Tree) -> None:
        """Forget gone files, as new names would accumulate; not while parsing."""
        for known in (self._unlearned, self._unlearned_here):
            for path in [path for path in known if tree.file_at(path) is None]:
                known.pop(path)
        self._parser.forget_gone(tree)

    async def keep_parsing(self) -> Never:
        """Parse queued files, and retry those that killed a parser. Raises WorkerStartError."""
        self._queue.requeue_all()
        try:
            async with asyncio.TaskGroup() as tasks:
                for lane in self._lanes:
                    tasks.create_task(self._keep_lane(lane))
            raise AssertionError("lanes never end")
        except* WorkerStartError as errors:
            raise errors.exceptions[0] from errors
        finally:
            # `to_thread` cannot be cancelled: its thread returns when the worker ends.
            self._end_workers()

    async def keep_written(self) -> None:
        """Write results to the cache after some time; return without a cache."""
        cache = self._cache
        if cache is None:
            return
        try:
            while True:
                await self._added.wait()
                self._added.clear()
                await asyncio.sleep(WRITE_AFTER_S)
                if not await asyncio.to_thread(cache.write):
                    self._added.set()
        finally:
            await asyncio.to_thread(cache.write)

    async def _known(self, files: tuple[SourceFile, ...]) -> dict[FileKey, ParsedFile]:
        """Only at a start, and when many files change."""
        if self._cache is None or not (self._is_first or len(files) >= MANY_FILES):
            return {}
        results = await asyncio.to_thread(self._cache.find, files)
        found = {file_key(file): (file, parsed) for file, parsed in zip(files, results, strict=True) if parsed}
        for file, parsed in found.values():
            self._note(file, parsed, self._unlearned, self._unlearned_here)
        return {key: parsed for key, (_, parsed) in found.items()}

    async def _edited(self, files: tuple[SourceFile, ...]) -> dict[FileKey, ParsedFile]:
        most_bytes = self._limits.file_apart_above_bytes
        large = [
            file
            for file in files
            if most_bytes < file.size_bytes <= MOST_EDITED_BYTES and file_key(file) not in self._queue.jobs
        ]
        if self._is_first or not large or len(large) > MOST_EDITED_FILES:
            return {}
        edits = [(file, self._unlearned_here.pop(file.path)) for file in large]
        results = await asyncio.to_thread(_parse_edits, self._parser, edits, most_bytes)
        for file, parsed in results:
            self._note(file, parsed, self._unlearned)
            self._keep(file, parsed)
        return {file_key(file): parsed for file, parsed in results}

    def _note(self, file: SourceFile, parsed: ParsedFile, *unlearned: Lru[PurePosixPath, _KnownFile]) -> None:
        if file.size_bytes > self._limits.file_apart_above_bytes and not parsed.problems:
            for each in unlearned:
                each.put(file.path, (file, parsed))

    def _keep(self, file: SourceFile, parsed: ParsedFile, encoded: bytes | None = None) -> None:
        if self._cache is not None and self._cache.add(file, parsed, encoded):
            self._added.set()

    def _request(self, files: Iterable[SourceFile]) -> None:
        self._awaited = self._queue.request(files)
        self._changed.set()
        for lane in self._lanes:
            if lane.running is not None:
                batch, since_s = lane.running
                is_wished = any(self._queue.has(job) for job in batch)
                if not is_wished and monotonic() - since_s > KILL_AFTER_S:
                    lane.end()

    async def _until_done(self) -> None:
        patience_s = self._limits.first_patience_s if self._is_first else self._limits.patience_s
        total = len(self._awaited)
        while self._awaited:
            self._finished.clear()
            try:
                async with asyncio.timeout(patience_s):
                    await self._finished.wait()
            except TimeoutError:
                break
            self.progress(total - len(self._awaited), total)
        self._awaited = set()
        self._is_first = False

    async def _keep_lane(self, lane: _Lane) -> Never:
        is_first = lane is self._lanes[0]
        while True:
            self._changed.clear()
            if not is_first:
                # It knows the large files, and edits of them cost it little.
                await asyncio.sleep(0)
            is_worth_it = is_first or lane.worker is not None or self._queue.waiting_bytes() > LEAST_WORKER_BYTES
            batch = self._queue.take() if is_worth_it else []
            if batch:
                known = [row for job in batch if (row := self._unlearned.pop(job.file.path)) is not None]
                await asyncio.to_thread(self._parse_apart, lane, batch, known, asyncio.get_running_loop())
                continue
            if not is_first:
                lane.end()
            # The first lane retries what is due later.
            await self._change_until(self._queue.due_s() if is_first else None)

    async def _change_until(self, time_s: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(None if time_s is None else time_s - monotonic()):
                await self._changed.wait()

    def _parse_apart(
        self, lane: _Lane, batch: list[ParseJob], known: list[_KnownFile], loop: asyncio.AbstractEventLoop
    ) -> None:
        """In a thread; the worker learns known results first."""
        limit_s = self._limits.time_of(sum(job.file.size_bytes for job in batch))
        worker = self._living_worker(lane)
        lane.running = batch, monotonic()
        results: list[_Result] | None = None
        try:
            learned = tuple((file, encode(parsed)) for file, parsed in known)
            encoded = worker.parse(tuple(job.file for job in batch), limit_s, learned)
            results = [
                (decode(job.file.path, job.file.digest, each), each) for job, each in zip(batch, encoded, strict=True)
            ]
        except OutOfTimeError:
            if len(batch) == 1:
                results = [(_out_of_time(batch[0].file, limit_s), None)]
        except (WorkerDiedError, DamagedBytesError):
            pass
        finally:
            lane.running = None
        loop.call_soon_threadsafe(self._receive_batch, lane, batch, results)

    def _living_worker(self, lane: _Lane) -> ParseWorker:
        worker = lane.worker
        if worker is None or not worker.is_alive:
            worker = lane.worker = ParseWorker.start(self._rules)
        if self._is_over:
            worker.end()
        return worker

    def _receive_batch(self, lane: _Lane, batch: list[ParseJob], results: list[_Result] | None) -> None:
        """After a death on several files, each is parsed alone next."""
        if results is None and len(batch) > 1:
            for job in batch:
                job.is_suspect = True
        else:
            for number, job in enumerate(batch):
                self._receive(job, None if results is None else results[number])
        self._queue.requeue(batch)
        if results is None:
            self._changed.set()
        else:
            others = (self._unlearned,) if lane is not self._lanes[0] else ()
            for job, (parsed, _) in zip(batch, results, strict=True):
                self._note(job.file, parsed, self._unlearned_here, *others)

    def _receive(self, job: ParseJob, result: _Result | None) -> None:
        """None: the worker died on it."""
        if not self._queue.has(job):
            return
        if result is not None:
            parsed, encoded = result
            self._keep(job.file, parsed, encoded)
        else:
            job.is_suspect = True
            job.deaths += 1
            if job.deaths == 1:
                return
            pause_s = self._limits.back_off.pause_s(job.deaths - 1)
            job.due_s = monotonic() + pause_s
            is_longest = pause_s == self._limits.back_off.longest_s
            parsed = _died(job.file, "again and again" if is_longest else f"{job.deaths} times", pause_s)
        before, job.parsed = job.parsed, parsed
        if job in self._awaited:
            self._awaited.discard(job)
            self._finished.set()
        elif before != parsed:
            self._look_again()

    def _end_workers(self) -> None:
        for lane in self._lanes:
            lane.end()


_Result = tuple[ParsedFile, bytes | None]


def _parse_edits(
    parser: FileParser, edits: list[tuple[SourceFile, _KnownFile | None]], most_bytes: int
) -> list[_KnownFile]:
    parsed: list[_KnownFile] = []
    for file, known in edits:
        try:
            if known is not None:
                parser.learn(*known)
            result = parser.parse_edit(file, most_bytes)
        # A worker parses it then, and reports the problem.
        except Exception:  # noqa: BLE001
            result = None
        if result is not None:
            parsed.append((file, result))
    return parsed


def _provisional(file: SourceFile, rule: str, message: str, remedy: str) -> ParsedFile:
    # Without a digest, the file is parsed again at every look.
    return ParsedFile(file.path, "", problems=(Problem.of_file(file.path, rule, message, remedy),))


def _unfinished(file: SourceFile) -> ParsedFile:
    fact = "parsing this file takes long; until then its last good content stays"
    return _provisional(file, "still-parsing", fact, "wait, or split the file")


def _died(file: SourceFile, often: str, pause_s: float) -> ParsedFile:
    fact = f"the process that parses this file was killed {often}; it is tried again {pause_s:g}s after that"
    return _provisional(file, "parser-died", fact, "give fsxds more memory, or split the file")


def _out_of_time(file: SourceFile, limit_s: float) -> ParsedFile:
    fact = f"parsing this file takes more than {limit_s:.3g}s of processor time"
    remedy = "split the file, or allow more by the setting parse_time"
    return ParsedFile(file.path, file.digest, problems=(Problem.of_file(file.path, "parse-time", fact, remedy),))


def parse_now(
    files: tuple[SourceFile, ...],
    rules: ParseRules,
    limits: ParseLimits,
    cache: ParseCache | None = None,
    progress: Progress = no_progress,
) -> tuple[ParsedFile, ...]:
    """Parse files while the caller waits: many by processes, few here."""
    parsed = _parse_by_workers(files, rules, limits, cache, progress)
    if parsed is None:
        found = [None] * len(files) if cache is None else cache.find(files)
        unknown = tuple(file for file, known in zip(files, found, strict=True) if known is None)
        results = parse_all(rules.make_parser(), unknown, progress)
        if cache is not None:
            for file, result in zip(unknown, results, strict=True):
                cache.add(file, result)
        fresh = iter(results)
        parsed = tuple(next(fresh) if known is None else known for known in found)
    progress(len(files), len(files))
    if cache is not None:
        cache.write()
    return parsed


def _parse_by_workers(
    files: tuple[SourceFile, ...], rules: ParseRules, limits: ParseLimits, cache: ParseCache | None, progress: Progress
) -> tuple[ParsedFile, ...] | None:
    """None: not worth it, or impossible."""
    size_bytes = sum(file.size_bytes for file in files)
    if limits.workers == 1 or size_bytes < PARSE_BY_WORKERS_ABOVE_BYTES or _is_in_event_loop():
        return None
    with suppress(WorkerStartError):
        return asyncio.run(_parse_patiently(files, rules, limits, cache, progress))
    return None


async def _parse_patiently(
    files: tuple[SourceFile, ...], rules: ParseRules, limits: ParseLimits, cache: ParseCache | None, progress: Progress
) -> tuple[ParsedFile, ...]:
    patient = replace(limits, first_patience_s=math.inf)
    parsed: tuple[ParsedFile, ...] = ()
    try:
        async with asyncio.TaskGroup() as tasks:
            with Parsing(rules, patient, cache=cache) as parsing:
                parsing.progress = progress
                keeping = tasks.create_task(parsing.keep_parsing())
                parsed = await parsing.parse(files)
                keeping.cancel()
    except* WorkerStartError as errors:
        raise errors.exceptions[0] from errors
    return parsed


def _is_in_event_loop() -> bool:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False
