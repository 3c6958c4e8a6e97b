"""The worker process that parses files, its rules, and its queue.

Over pipes: a process pool hangs for ever with Python 3.11.2 if its worker is killed while it receives a large file
(https://github.com/python/cpython/issues/94777). Results are bytes, decoded without running code.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path, PurePosixPath
from time import monotonic
from types import ModuleType
from typing import Self, TypeAlias

from fsxds.api.catalogue import Catalogue
from fsxds.disk_cache.parsed_files import code_digest
from fsxds.events.process_events import MOST_ATTEMPTS
from fsxds.model.errors import FsxdsError
from fsxds.model.resources import ParsedFile
from fsxds.model.values import Severity, SourceFile
from fsxds.runtime.supervisor import internal_problem
from fsxds.settings.naming_rules import NO_RULES, NamingRules
from fsxds.settings.view_rules import Variables
from fsxds.snapshots.encoding import decode, encode
from fsxds.snapshots.parse import FileParser
from fsxds.snapshots.proposals import Check, NoCheck

# Between runs of the collector, which cost some milliseconds.
COLLECT_AFTER_BYTES = 1_000_000


# Held while there is no main module.
_starting = threading.Lock()


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Hide the main module: multiprocessing would run it again.

    A script that calls `fsxds.load` may do anything.
    """
    with _starting:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


@dataclass(frozen=True, slots=True)
class ParseRules:
    """A parser's rules; `variables` are `texts` and `unset` of `Variables`, as rows."""

    catalogue: Catalogue
    unknown_fields: Severity = Severity.ERROR
    check: Check = field(default_factory=NoCheck)
    variables: tuple[tuple[tuple[str, str], ...], ...] = field(default=((), ()), repr=False)
    naming: NamingRules = NO_RULES

    def make_parser(self) -> FileParser:
        """Make a parser, which takes a moment."""
        parser = FileParser(self.catalogue, self.unknown_fields, self.check)
        parser.name_by(self.naming)
        parser.variables = Variables(*map(dict, self.variables))
        return parser

    def digest(self) -> bytes:
        """Return all inputs' digest but the file."""
        catalogue, features = self.catalogue, self.catalogue.features
        whole = hashlib.sha256(code_digest())
        for part in (
            catalogue.serialized,
            catalogue.description.encode("utf-8", "surrogateescape"),
            features.to_json().encode() if features else b"",
            repr((sorted(features.foreign), features.is_exact) if features else None).encode(),
            self.unknown_fields.value.encode(),
            self.check.identity.encode(),
            repr(self.variables).encode("utf-8", "surrogatepass"),
            repr(self.naming).encode("utf-8", "surrogatepass"),
        ):
            whole.update(hashlib.sha256(part).digest())
        return whole.digest()


def _not_started(fact: str) -> str:
    return f"no process that parses files can be started: {fact}; give fsxds more memory and processes"


class WorkerDiedError(Exception):
    """The worker and its result are lost."""


class WorkerStartError(FsxdsError):
    """A worker could not start or get ready; no file's fault."""


class OutOfTimeError(Exception):
    """The worker exceeded its processor time."""


class ParseWorker:
    """One worker process, for one caller at a time. Blocking."""

    def __init__(self, pid: int, process: multiprocessing.process.BaseProcess, connection: Connection) -> None:
        self.pid = pid
        self._process = process
        self._connection = connection

    @classmethod
    def start(cls, rules: ParseRules) -> Self:
        """Start a process, and wait until it can parse.

        Raises:
            WorkerStartError: resources are lacking, or it ended early.
        """
        # A fork of a process with threads may hang.
        context = multiprocessing.get_context("forkserver")
        # Once for all workers, which then start in a third of the time.
        context.set_forkserver_preload([__name__, type(rules.check).__module__])
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), daemon=True, name="fsxds parser")
        try:
            with without_main():
                process.start()
        except (EOFError, OSError) as error:
            # The fork server may have been killed: it starts again with the next worker.
            ours.close()
            raise WorkerStartError(_not_started("the process that starts them ended, or there is no room")) from error
        finally:
            theirs.close()
        worker = cls(process.pid or 0, process, ours)
        catalogue = rules.catalogue
        api = catalogue.serialized, catalogue.description, catalogue.features
        try:
            worker._send((api, rules.unknown_fields, rules.check, rules.variables, rules.naming))
            ours.recv()
        except (WorkerDiedError, EOFError, OSError) as error:
            process.join()
            raise WorkerStartError(_not_started(f"it ended with status {process.exitcode}")) from error
        return worker

    @property
    def is_alive(self) -> bool:
        """Whether the process is known to run."""
        return self._process.is_alive()

    def parse(
        self, files: tuple[SourceFile, ...], limit_s: float, known: tuple[tuple[SourceFile, bytes], ...] = ()
    ) -> tuple[bytes, ...]:
        """Parse within `limit_s` seconds of processor time; results are for `decode`.

        The worker first learns `known` results of others.

        Raises:
            OutOfTimeError: it exceeded the time, and has ended.
            WorkerDiedError: it was killed, or `end` was called.
        """
        self._send((files, limit_s, known))
        try:
            return tuple(self._connection.recv_bytes() for _ in files)
        except (EOFError, OSError) as error:
            self._process.join()
            if self._process.exitcode == -signal.SIGPROF:
                raise OutOfTimeError from error
            raise WorkerDiedError from error

    def end(self) -> None:
        """Kill the process; a waiting `parse` raises."""
        self._process.kill()
        self._process.join()

    def _send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except OSError as error:
            # Until the fork server reports the end, the worker would count as alive.
            self.end()
            raise WorkerDiedError from error


Progress: TypeAlias = Callable[[int, int], None]
"""Receives the numbers of parsed files and of all files."""


def no_progress(_parsed: int, _all: int) -> None:
    """Ignore the progress."""


def parse_all(
    parser: FileParser, files: tuple[SourceFile, ...], progress: Progress = no_progress
) -> tuple[ParsedFile, ...]:
    """Parse files in order; an error of fsxds is a problem of its file."""
    parsed: list[ParsedFile] = []
    for file in files:
        parsed.append(parse_one(parser, file))
        progress(len(parsed), len(files))
    return tuple(parsed)


def parse_one(parser: FileParser, file: SourceFile) -> ParsedFile:
    """Parse a file; repeated errors of fsxds are a problem. Raises MemoryError, no fault of the file."""
    attempts = MOST_ATTEMPTS
    while True:
        try:
            return parser.parse(file)
        except MemoryError:
            raise
        # It must not affect other files.
        except Exception as error:  # noqa: BLE001
            attempts -= 1
            if not attempts:
                return ParsedFile(file.path, file.digest, problems=(internal_problem(file.path, error),))


def follow_parent(end: Callable[[], object]) -> None:
    """Call `end` in a thread when the process that started this one has ended."""

    def wait() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            end()

    threading.Thread(target=wait, daemon=True).start()


def _work(connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends its worker
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends a file over its time: a C parser would not run a handler
    # If memory runs out, this process should end, not the server.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    follow_parent(lambda: os._exit(1))
    # The collector would take two thirds of the time for large trees of values, and find nothing.
    gc.disable()
    with contextlib.suppress(EOFError, OSError):
        api, *others = connection.recv()
        parser = ParseRules(Catalogue.of(*api), *others).make_parser()
        gc.freeze()
        connection.send(None)
        _answer(connection, parser)


def _answer(connection: Connection, parser: FileParser) -> None:
    parsed_bytes = 0
    while True:
        files, limit_s, known = connection.recv()
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        try:
            for file, encoded in known:
                parser.learn(file, decode(file.path, file.digest, encoded))
            results = [encode(parse_one(parser, file)) for file in files]
        except MemoryError:
            os._exit(1)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for result in results:
            connection.send_bytes(result)
        parsed_bytes += sum(file.size_bytes for file in files)
        del files, results, known
        if parsed_bytes > COLLECT_AFTER_BYTES:
            parsed_bytes = 0
            gc.collect()


# Small files given to a worker at once: each exchange costs half a millisecond.
BATCH_BYTES = 256 * 1024

FileKey = tuple[PurePosixPath, str]
"""Path and digest."""


def file_key(file: SourceFile) -> FileKey:
    """Return a file content's key."""
    return file.path, file.digest


@dataclass(slots=True, eq=False)
class ParseJob:
    """A file to parse apart.

    `is_suspect`: a parser died with it.
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
        """Return a worker's next files: small ones together, others alone."""
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

    def requeue(self, batch: list[ParseJob]) -> None:
        """Return files from a worker; unfinished ones are taken again."""
        self._taken.difference_update(batch)
        if any(not job.is_over for job in batch):
            self._order = None

    def requeue_all(self) -> None:
        """Return all files: there is no worker."""
        self._taken.clear()
        self._order = None

    def due_s(self) -> float | None:
        """Return the next file's due time."""
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
