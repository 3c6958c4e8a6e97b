"""Parse files here, or in a worker process when they are large, so that parsing never stalls those who are served."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from fsxds.api.catalogue import Catalogue
from fsxds.snapshots.document import FileParser
from fsxds.snapshots.parsed import ParsedFile
from fsxds.values import Problem, Severity, SourceFile

# Files above this many bytes in all are parsed apart: every parser holds the GIL, and YAML takes 0.13 s for a megabyte.
PARSE_APART_ABOVE_BYTES = 1_000_000

# A worker may die of a file that needs more memory than there is; it gets a second try, alone.
TRIES = 2


@dataclass(frozen=True, slots=True)
class ParseRules:
    """What a parser must know: the API, and how much an unknown field weighs."""

    catalogue: Catalogue
    unknown_fields: Severity = Severity.ERROR


class Parsing:
    """Parses files without stalling the event loop. Use as a context manager; the worker starts when it is first needed."""

    def __init__(self, rules: ParseRules, apart_above_bytes: int = PARSE_APART_ABOVE_BYTES) -> None:
        self._rules = rules
        self._apart_above_bytes = apart_above_bytes
        self._parser = FileParser(rules.catalogue, rules.unknown_fields)
        self._worker: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end_worker()

    async def parse(self, files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
        """Parse files, in their order. Every problem is in the results; a file that kills the worker is a problem too."""
        if sum(len(file.content) for file in files) <= self._apart_above_bytes:
            return await asyncio.to_thread(parse_all, self._parser, files)
        return await self._parse_apart(files)

    async def _parse_apart(self, files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
        for _ in range(TRIES):
            try:
                return await asyncio.get_running_loop().run_in_executor(self._running_worker(), _parse_in_worker, files)
            except BrokenProcessPool:
                self._end_worker()
        if len(files) == 1:
            return (_killed_the_worker(files[0]),)
        # One of them is the culprit; the others shall not pay for it.
        apart = [await self._parse_apart((file,)) for file in files]
        return tuple(parsed for (parsed,) in apart)

    def _running_worker(self) -> ProcessPoolExecutor:
        if self._worker is None:
            catalogue = self._rules.catalogue
            self._worker = ProcessPoolExecutor(
                max_workers=1,
                # A forked copy of a process with threads may hang; a spawned one starts as fast as a fork server's first.
                mp_context=multiprocessing.get_context("forkserver"),
                initializer=_start_worker,
                initargs=(catalogue.serialized, catalogue.description, self._rules.unknown_fields),
            )
        return self._worker

    def _end_worker(self) -> None:
        if self._worker is not None:
            # Nobody waits for a parse that nobody wants any more.
            for process in (self._worker._processes or {}).values():  # noqa: SLF001  # public as kill_workers() from 3.14
                process.kill()
            self._worker.shutdown(wait=True, cancel_futures=True)
            self._worker = None


def parse_all(parser: FileParser, files: Iterable[SourceFile]) -> tuple[ParsedFile, ...]:
    """Parse files one after another."""
    return tuple(parser.parse(file) for file in files)


class _Worker:
    """What the worker process keeps between calls."""

    parser: FileParser


def _start_worker(serialized: bytes, description: str, unknown_fields: Severity) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends its worker
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Two thirds of the time of building large trees of plain values is the collector looking at them (and finding nothing).
    gc.disable()
    _Worker.parser = FileParser(Catalogue.of(serialized, description), unknown_fields)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _parse_in_worker(files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
    try:
        return parse_all(_Worker.parser, files)
    finally:
        gc.collect()


def _killed_the_worker(file: SourceFile) -> ParsedFile:
    problem = Problem(
        file.path, 1, 1, "", "parser-died", "parsing this file took more than this machine has to give", "split the file"
    )  # fmt: skip
    return ParsedFile(file.path, file.digest, problems=(problem,))
