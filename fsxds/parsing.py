"""Parse files here, or in a worker process when they are large, so that parsing never stalls those who are served."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from fsxds.api.catalogue import Catalogue
from fsxds.parse_worker import ParseWorker, WorkerDiedError, parse_all
from fsxds.rules.levels import RuleLevels
from fsxds.snapshots.document import FileParser
from fsxds.snapshots.parsed import ParsedFile
from fsxds.values import Problem, Severity, SourceFile

# Files above this many bytes in all are parsed apart: every parser holds the GIL, and YAML takes 0.13 s for a megabyte.
PARSE_APART_ABOVE_BYTES = 1_000_000

# A worker may die of a file that needs more memory than there is; it gets a second try, alone.
TRIES = 2


@dataclass(frozen=True, slots=True)
class ParseRules:
    """What a parser must know: the API, and how much an unknown field and the breaches of other rules weigh."""

    catalogue: Catalogue
    unknown_fields: Severity = Severity.ERROR
    levels: RuleLevels = field(default_factory=RuleLevels)


class Parsing:
    """Parses files without stalling the event loop, for one caller at a time.

    Use as a context manager; the worker starts when it is first needed, and ends with the context.
    """

    def __init__(self, rules: ParseRules, apart_above_bytes: int = PARSE_APART_ABOVE_BYTES) -> None:
        self._rules = rules
        self._apart_above_bytes = apart_above_bytes
        self._parser = FileParser(rules.catalogue, rules.unknown_fields, rules.levels)
        self._worker: ParseWorker | None = None
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over = True
        self._end_worker()

    async def parse(self, files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
        """Parse files, in their order. Every problem is in the results; a file that kills the worker is a problem too."""
        if sum(len(file.content) for file in files) <= self._apart_above_bytes:
            return await asyncio.to_thread(parse_all, self._parser, files)
        return await self._parse_apart(files)

    async def _parse_apart(self, files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
        for _ in range(TRIES):
            try:
                return await asyncio.to_thread(self._ask_worker, files)
            except WorkerDiedError:
                self._end_worker()
            except asyncio.CancelledError:
                # The thread that waits for the answer is only free when there is nobody to answer.
                self._end_worker()
                raise
        if len(files) == 1:
            return (_killed_the_worker(files[0]),)
        # One of them is the culprit; the others shall not pay for it.
        apart = [await self._parse_apart((file,)) for file in files]
        return tuple(parsed for (parsed,) in apart)

    def _ask_worker(self, files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
        """Ask the worker, and start it before that where there is none; in a thread."""
        worker = self._worker
        if worker is None:
            rules = self._rules
            worker = self._worker = ParseWorker.start(rules.catalogue, rules.unknown_fields, rules.levels)
        if self._is_over:
            worker.end()
        return worker.parse(files)

    def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()


def _killed_the_worker(file: SourceFile) -> ParsedFile:
    problem = Problem(
        file.path, 1, 1, "", "parser-died", "parsing this file took more than this machine has to give", "split the file"
    )  # fmt: skip
    return ParsedFile(file.path, file.digest, problems=(problem,))
