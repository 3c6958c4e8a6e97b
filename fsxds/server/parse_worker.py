"""The worker process that parses files, and its rules.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
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
        """Return a digest of all inputs but the file."""
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
    """A worker could not start or get ready; no file caused this."""


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
            WorkerStartError: resources are lacking, or it ended before that.
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

        The worker first learns `known` results of other parsers.

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
    """Parse files in order; an error of fsxds in one of them is a problem of that file."""
    parsed: list[ParsedFile] = []
    for file in files:
        parsed.append(parse_one(parser, file))
        progress(len(parsed), len(files))
    return tuple(parsed)


def parse_one(parser: FileParser, file: SourceFile) -> ParsedFile:
    """Parse a file; repeated errors of fsxds are a problem.

    Raises:
        MemoryError: this is no fault of the file.
    """
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


def _work(connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends its worker
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends a file over its time: a C parser would not run a handler
    # If memory runs out, this process should end, not the server.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    threading.Thread(target=_end_with_parent, daemon=True).start()
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


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
