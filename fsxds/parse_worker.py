"""Parse files here, or in a worker process where they may take long, so that parsing never delays clients.

The worker gets values and returns values, by plain pipes instead of a process pool: of a pool whose worker was killed
while it was sent a large file, Python 3.11.2 never comes back (https://github.com/python/cpython/issues/94777).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path, PurePosixPath
from time import monotonic
from types import TracebackType
from typing import Never, Self

from fsxds.api.catalogue import Catalogue
from fsxds.resources import ParsedFile
from fsxds.snapshots.check_protocol import Check, NoCheck
from fsxds.snapshots.parse import FileParser
from fsxds.supervisor import MOST_ATTEMPTS, internal_problem
from fsxds.values import BackOff, Problem, Severity, SourceFile

MIB = 1024 * 1024

# Files above this many bytes in all are parsed apart: every parser holds the GIL, and YAML takes 0.13 s for a megabyte.
PARSE_APART_ABOVE_BYTES = 1_000_000

# A hostile file of this size takes half a second, and nothing here ends it.
FILE_APART_ABOVE_BYTES = 128 * 1024

# Processor time for a MiB of a file, and for a smaller one. A usual one takes 0.15 s, the worst that is known takes 8 s.
PARSE_TIME_S = 5.0

# When no file was done for so long, what is done goes on without the others.
PATIENCE_S = 2.0

# Before anything is served, there is more to lose by serving only half of it.
FIRST_PATIENCE_S = 10.0

# A worker takes a second to start.
WORTH_KILLING_AFTER_S = 2.0

# So many bytes of small files are handed to the worker at once: each exchange costs half a millisecond.
BATCH_BYTES = 256 * 1024

# A file that its parser died of is tried again at once, and then after 1, 2, 4, … 60 seconds.
BACK_OFF = BackOff(longest_s=60.0)

# After so many bytes of files the collector looks for what they left; each look costs some milliseconds.
COLLECT_AFTER_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class ParseRules:
    """What a parser must know: the API, the severity of an unknown field, and what judges resources."""

    catalogue: Catalogue
    unknown_fields: Severity = Severity.ERROR
    check: Check = field(default_factory=NoCheck)

    def make_parser(self) -> FileParser:
        """Return a parser; it compiles the API's rules, which takes a moment."""
        return FileParser(self.catalogue, self.unknown_fields, self.check)


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """What is parsed where, and for how long.

    Attributes:
        apart_above_bytes: changes of more bytes in all are parsed apart.
        file_apart_above_bytes: a file of more bytes is parsed apart.
        time_s: processor time for one MiB of a file, and for any smaller file.
        patience_s: how long what is done waits for the next file to be done.
        first_patience_s: the same for the first files of all.
        back_off: the pauses between attempts at a file that its parser dies of.
    """

    apart_above_bytes: int = PARSE_APART_ABOVE_BYTES
    file_apart_above_bytes: int = FILE_APART_ABOVE_BYTES
    time_s: float = PARSE_TIME_S
    patience_s: float = PATIENCE_S
    first_patience_s: float = FIRST_PATIENCE_S
    back_off: BackOff = BACK_OFF

    def time_of(self, size_bytes: int) -> float:
        """Return the processor time that so many bytes may take."""
        return self.time_s * max(1.0, size_bytes / MIB)

    def apart(self, files: tuple[SourceFile, ...]) -> list[SourceFile]:
        """Return those of the files that are parsed in the worker: the large ones, and all where the others are many."""
        small = sum(len(file.content) for file in files if len(file.content) <= self.file_apart_above_bytes)
        are_many = small > self.apart_above_bytes
        return [file for file in files if are_many or len(file.content) > self.file_apart_above_bytes]


@dataclass(slots=True, eq=False)
class _Job:
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


class Parsing:
    """Parses files without stalling the event loop.

    Use as a context manager; the worker starts when it is first needed, and ends with the context. What is parsed apart
    is parsed by `keep_parsing`, which has to run beside.
    """

    def __init__(
        self, rules: ParseRules, limits: ParseLimits | None = None, look_again: Callable[[], object] = lambda: None
    ) -> None:
        """Prepare to parse.

        Args:
            rules: what files are parsed by.
            limits: what is parsed where, and for how long.
            look_again: called when there is something new of a file that `parse` did not wait for.
        """
        self._rules = rules
        self._limits = limits or ParseLimits()
        self._look_again = look_again
        self._parser = rules.make_parser()
        self._worker: ParseWorker | None = None
        self._is_over = False
        self._is_first = True
        self._jobs: dict[_JobKey, _Job] = {}
        self._running: tuple[list[_Job], float] | None = None
        # Files that `parse` waits for; `look_again` reports what becomes of the others.
        self._awaited: set[_Job] = set()
        self._progress = asyncio.Event()
        self._changed = asyncio.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over = True
        self._end_worker()

    async def parse(self, files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
        """Parse files, in their order. Every problem is in the results.

        A file that takes long, or that its parser dies of, has a problem that says so, and no digest: it is to be parsed
        again when `look_again` is called. Others wait for it until none was done for `patience_s`, and only once.
        """
        apart = {_key_of(file) for file in self._limits.apart(files)}
        self._request(file for file in files if _key_of(file) in apart)
        here = tuple(file for file in files if _key_of(file) not in apart)
        parsed = dict(zip(map(_key_of, here), await asyncio.to_thread(parse_all, self._parser, here), strict=True))
        await self._until_done()
        # What was done in this moment is in, whoever waits for it.
        parsed |= {key: job.parsed or _unfinished(job.file) for key, job in self._jobs.items()}
        # The caller knows the content of what is over from now on.
        self._jobs = {key: job for key, job in self._jobs.items() if not job.is_over}
        return tuple(parsed[_key_of(file)] for file in files)

    async def keep_parsing(self) -> Never:
        """Parse what is to be parsed apart, small files first, and again what the parser died of."""
        try:
            while True:
                self._changed.clear()
                jobs = [job for job in self._jobs.values() if not job.is_over]
                due = [job for job in jobs if job.due_s <= monotonic()]
                if due:
                    await asyncio.to_thread(self._parse_apart, _batch(due), asyncio.get_running_loop())
                else:
                    await self._change_until(min((job.due_s for job in jobs), default=None))
        finally:
            # `to_thread` cannot be cancelled: its thread returns only when the worker ends.
            self._end_worker()

    def _request(self, files: Iterable[SourceFile]) -> None:
        """Queue these files for the worker, and drop all that were queued before."""
        before, self._jobs = self._jobs, {}
        for file in files:
            self._jobs[_key_of(file)] = before.get(_key_of(file)) or _Job(file)
        self._awaited = {job for key, job in self._jobs.items() if key not in before}
        self._changed.set()
        running = self._running
        if running is not None:
            batch, since_s = running
            is_wished = any(self._jobs.get(_key_of(job.file)) is job for job in batch)
            if not is_wished and monotonic() - since_s > WORTH_KILLING_AFTER_S:
                self._end_worker()

    async def _until_done(self) -> None:
        patience_s = self._limits.first_patience_s if self._is_first else self._limits.patience_s
        while self._awaited:
            self._progress.clear()
            try:
                async with asyncio.timeout(patience_s):
                    await self._progress.wait()
            except TimeoutError:
                break
        self._awaited = set()
        self._is_first = False

    async def _change_until(self, time_s: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(None if time_s is None else time_s - monotonic()):
                await self._changed.wait()

    def _parse_apart(self, batch: list[_Job], loop: asyncio.AbstractEventLoop) -> None:
        """Have files parsed by the worker; in a thread."""
        limit_s = self._limits.time_of(sum(len(job.file.content) for job in batch))
        worker = self._living_worker()
        self._running = batch, monotonic()
        parsed: tuple[ParsedFile, ...] | None = None
        try:
            parsed = worker.parse(tuple(job.file for job in batch), limit_s)
        except OutOfTimeError:
            if len(batch) == 1:
                parsed = (_out_of_time(batch[0].file, limit_s),)
        except WorkerDiedError:
            pass
        finally:
            self._running = None
        loop.call_soon_threadsafe(self._receive_batch, batch, parsed)

    def _living_worker(self) -> ParseWorker:
        """Return the worker, and start it before that where there is none."""
        worker = self._worker
        if worker is None or not worker.is_alive:
            worker = self._worker = ParseWorker.start(self._rules)
        if self._is_over:
            worker.end()
        return worker

    def _receive_batch(self, batch: list[_Job], parsed: tuple[ParsedFile, ...] | None) -> None:
        """Store the results of a batch. If the worker died on several files, any may be the cause: each is parsed alone next."""
        if parsed is None and len(batch) > 1:
            for job in batch:
                job.is_suspect = True
            return
        for number, job in enumerate(batch):
            self._receive(job, None if parsed is None else parsed[number])

    def _receive(self, job: _Job, parsed: ParsedFile | None) -> None:
        """Store the result of a file; None if the worker died on it."""
        if self._jobs.get(_key_of(job.file)) is not job:
            return
        if parsed is None:
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
            self._progress.set()
        elif before != parsed:
            self._look_again()

    def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()


_JobKey = tuple[PurePosixPath, str]


def _key_of(file: SourceFile) -> _JobKey:
    return file.path, file.digest


def _batch(jobs: list[_Job]) -> list[_Job]:
    """Return what is parsed next: small files together, a large one alone, and last what the parser died of, alone."""
    first, *others = sorted(jobs, key=lambda job: (job.deaths, job.is_suspect, len(job.file.content)))
    batch, size_bytes = [first], len(first.file.content)
    for job in others:
        size_bytes += len(job.file.content)
        if first.is_suspect or job.is_suspect or size_bytes > BATCH_BYTES:
            break
        batch.append(job)
    return batch


def _provisional(file: SourceFile, rule: str, message: str, remedy: str) -> ParsedFile:
    # Without a digest it is the content of no file: that is parsed again at every look.
    return ParsedFile(file.path, "", problems=(Problem.of_file(file.path, rule, message, remedy),))


def _unfinished(file: SourceFile) -> ParsedFile:
    fact = "parsing this file takes long; until it is done, what the file held last stays"
    return _provisional(file, "still-parsing", fact, "wait, or split the file")


def _died(file: SourceFile, often: str, pause_s: float) -> ParsedFile:
    fact = f"the process that parses this file was killed {often}; it is tried again {pause_s:g}s after that"
    return _provisional(file, "parser-died", fact, "give fsxds more memory, or split the file")


def _out_of_time(file: SourceFile, limit_s: float) -> ParsedFile:
    fact = f"parsing this file takes more than {limit_s:.3g}s of processor time"
    remedy = "split the file, or allow more by --parse-time"
    return ParsedFile(file.path, file.digest, problems=(Problem.of_file(file.path, "parse-time", fact, remedy),))


# The worker process


class WorkerDiedError(Exception):
    """The worker process ended, and its result is lost."""


class WorkerStartError(Exception):
    """The worker process ended before it could parse anything; no file is to blame."""


class OutOfTimeError(Exception):
    """The worker took more processor time than it may, and was ended."""


class ParseWorker:
    """One worker process, for one caller at a time. Blocking: call it outside of the event loop."""

    def __init__(self, pid: int, process: multiprocessing.process.BaseProcess, connection: Connection) -> None:
        self.pid = pid
        self._process = process
        self._connection = connection

    @classmethod
    def start(cls, rules: ParseRules) -> Self:
        """Start a process that parses by these rules, and wait until it can.

        Raises:
            WorkerStartError: it ended before that.
        """
        # A forked copy of a process with threads may hang.
        context = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), daemon=True, name="fsxds parser")
        process.start()
        theirs.close()
        worker = cls(process.pid or 0, process, ours)
        catalogue = rules.catalogue
        api = catalogue.serialized, catalogue.description, catalogue.features
        try:
            worker._send((api, rules.unknown_fields, rules.check))
            ours.recv()
        except (WorkerDiedError, EOFError, OSError) as error:
            process.join()
            raise WorkerStartError(f"the process that parses files ended at its start: {process.exitcode}") from error
        return worker

    @property
    def is_alive(self) -> bool:
        """Whether the process is there, as far as anybody knows."""
        return self._process.is_alive()

    def parse(self, files: tuple[SourceFile, ...], limit_s: float) -> tuple[ParsedFile, ...]:
        """Have files parsed, in so many seconds of processor time.

        Raises:
            OutOfTimeError: it took more; the worker has ended.
            WorkerDiedError: it was killed, or `end` was called meanwhile.
        """
        self._send((files, limit_s))
        try:
            parsed: tuple[ParsedFile, ...] = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join()
            if self._process.exitcode == -signal.SIGPROF:
                raise OutOfTimeError from error
            raise WorkerDiedError from error
        return parsed

    def end(self) -> None:
        """Kill the process, because its result is not wanted any more. A `parse` that waits for it raises."""
        self._process.kill()
        self._process.join()

    def _send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except OSError as error:
            # Until the fork server reports the end, the worker counts as alive, and would be given files again.
            self.end()
            raise WorkerDiedError from error


def parse_all(parser: FileParser, files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
    """Parse files one after another; an error of fsxds in one of them is a problem of that file."""
    return tuple(parse_one(parser, file) for file in files)


def parse_one(parser: FileParser, file: SourceFile) -> ParsedFile:
    """Parse a file; one on which fsxds fails several times in a row is set aside as a problem, until its content changes.

    Raises:
        MemoryError: there is not enough; which is no fault of the file.
    """
    attempts = MOST_ATTEMPTS
    while True:
        try:
            return parser.parse(file)
        except MemoryError:
            raise
        # The edge of one file: no other file waits for it, or fails with it.
        except Exception as error:  # noqa: BLE001
            attempts -= 1
            if not attempts:
                return ParsedFile(file.path, file.digest, problems=(internal_problem(file.path, error),))


def _work(connection: Connection) -> None:
    """Parse until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends its worker
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the end of a file's time: no parser in C would look at a handler
    # Where memory runs out, this process shall end, and not the one that serves.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Two thirds of the time of building large trees of plain values is the collector looking at them (and finding nothing).
    gc.disable()
    with contextlib.suppress(EOFError, OSError):
        api, unknown_fields, check = connection.recv()
        parser = ParseRules(Catalogue.of(*api), unknown_fields, check).make_parser()
        gc.freeze()
        connection.send(None)
        _answer(connection, parser)


def _answer(connection: Connection, parser: FileParser) -> None:
    parsed_bytes = 0
    while True:
        files, limit_s = connection.recv()
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        try:
            parsed = parse_all(parser, files)
        except MemoryError:
            os._exit(1)
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send(parsed)
        parsed_bytes += sum(len(file.content) for file in files)
        del files, parsed
        if parsed_bytes > COLLECT_AFTER_BYTES:
            parsed_bytes = 0
            gc.collect()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
