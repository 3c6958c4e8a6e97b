"""A worker process that parses files: values go in, values come out.

Plain pipes instead of a process pool: of a pool whose worker was killed while it was sent a large file, Python 3.11.2
never comes back (https://github.com/python/cpython/issues/94777).
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from fsxds.api.catalogue import Catalogue
from fsxds.rules.levels import RuleLevels
from fsxds.snapshots.document import FileParser
from fsxds.snapshots.parsed import ParsedFile
from fsxds.supervisor import MOST_ATTEMPTS, fault_of
from fsxds.values import Problem, Severity, SourceFile

# After so many bytes of files the collector looks for what they left; each look costs some milliseconds.
COLLECT_AFTER_BYTES = 1_000_000


class WorkerDiedError(Exception):
    """The worker process is gone, and the answer with it."""


class WorkerStartError(Exception):
    """The worker process ended before it could parse anything; no file is to blame."""


class OutOfTimeError(Exception):
    """The worker took more processor time than it may, and is gone."""


class ParseWorker:
    """One worker process, for one caller at a time. Blocking: call it outside of the event loop."""

    def __init__(self, pid: int, process: multiprocessing.process.BaseProcess, connection: Connection) -> None:
        self.pid = pid
        self._process = process
        self._connection = connection

    @classmethod
    def start(cls, catalogue: Catalogue, unknown_fields: Severity, levels: RuleLevels) -> Self:
        """Start a process that parses by this API, with these weights, and wait until it can.

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
        api = catalogue.serialized, catalogue.description, catalogue.features
        try:
            worker._send((api, unknown_fields, levels))
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
            OutOfTimeError: it took more; the worker is gone.
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
        """Kill the process: nobody waits for a parse that nobody wants any more. Whoever waits in `parse` is told."""
        self._process.kill()
        self._process.join()

    def _send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except OSError as error:
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
                return ParsedFile(file.path, file.digest, problems=(_failed(file, error),))


def _failed(file: SourceFile, error: Exception) -> Problem:
    fact = f"fsxds itself fails on this file, with {fault_of(error)}"
    remedy = "write it in another way; and send this line and, if you may, the file to the authors of fsxds"
    return Problem(file.path, 1, 1, "", "internal-error", fact, remedy)


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
        api, unknown_fields, levels = connection.recv()
        parser = FileParser(Catalogue.of(*api), unknown_fields, levels)
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
