"""A worker process that parses files: values go in, values come out.

Plain pipes instead of a process pool: of a pool whose worker was killed while it was sent a large file, Python 3.11.2
never comes back (https://github.com/python/cpython/issues/94777).
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection
from typing import Self

from fsxds.api.catalogue import Catalogue
from fsxds.rules.levels import RuleLevels
from fsxds.snapshots.document import FileParser
from fsxds.snapshots.parsed import ParsedFile
from fsxds.values import Severity, SourceFile


class WorkerDiedError(Exception):
    """The worker process is gone, and the answer with it."""


class ParseWorker:
    """One worker process, for one caller at a time. Blocking: call it outside of the event loop."""

    def __init__(self, pid: int, process: multiprocessing.process.BaseProcess, connection: Connection) -> None:
        self.pid = pid
        self._process = process
        self._connection = connection

    @classmethod
    def start(cls, catalogue: Catalogue, unknown_fields: Severity, levels: RuleLevels) -> Self:
        """Start a process that parses by this API, with these weights."""
        # A forked copy of a process with threads may hang.
        context = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), daemon=True, name="fsxds parser")
        process.start()
        theirs.close()
        worker = cls(process.pid or 0, process, ours)
        worker._send((catalogue.serialized, catalogue.description, unknown_fields, levels))
        return worker

    def parse(self, files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
        """Have files parsed.

        Raises:
            WorkerDiedError: it was killed, or `end` was called meanwhile.
        """
        self._send(files)
        try:
            answer: tuple[ParsedFile, ...] | Exception = self._connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerDiedError from error
        if isinstance(answer, Exception):
            raise answer
        return answer

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
    """Parse files one after another."""
    return tuple(parser.parse(file) for file in files)


def _work(connection: Connection) -> None:
    """Parse until the other end is closed; what goes wrong here goes wrong there."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends its worker
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Two thirds of the time of building large trees of plain values is the collector looking at them (and finding nothing).
    gc.disable()
    try:
        serialized, description, unknown_fields, levels = connection.recv()
        parser = FileParser(Catalogue.of(serialized, description), unknown_fields, levels)
        while True:
            connection.send(_outcome(parser, connection.recv()))
            gc.collect()
    except (EOFError, OSError):
        return


def _outcome(parser: FileParser, files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...] | Exception:
    try:
        return parse_all(parser, files)
    except Exception as error:  # noqa: BLE001, the edge of the process: it is raised in the other one
        return error


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
