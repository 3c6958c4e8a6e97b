"""The tree's files: good, held or broken, since when, and their problems."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from fsxds.api.secrets import mask_text
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import ParsedFile
from fsxds.model.values import WHOLE_TREE, Problem, Severity, Tree
from fsxds.observe.source_lines import Source
from fsxds.publishing.held_resources import REJECTED as REJECTED_RULE
from fsxds.snapshots.loaded_views import LoadedViews
from fsxds.snapshots.upstream_content import origin_of
from fsxds.transports.admin.admin_reports import (
    MOST_PROBLEMS,
    FileCounts,
    FileList,
    FileReport,
    ProblemCounts,
    ProblemReport,
    RowQuery,
    SourceLine,
)

GOOD, HELD, BROKEN, IGNORED = "good", "held", "broken", "ignored"
# Of resources, in good files.
REJECTED, KEPT = "rejected", "kept"
UPSTREAM = "upstream"
_RANKS = {BROKEN: 0, HELD: 1, GOOD: 2}
_SEVERITIES = {severity: rank for rank, severity in enumerate(Severity)}

# Takes a tenth of a second, in a thread, after each load with a request.
MOST_READ_BYTES = 8_000_000
MOST_FILE_BYTES = 1_000_000

# Signs of a Secret, also in files that cannot be parsed.
_SIGN_OF_SECRETS = re.compile(
    rb"v3\.Secret\b|PRIVATE KEY|private_?key|session_?ticket_?keys|generic_?secret", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _Shown:
    problem: Problem
    state: str
    source: tuple[SourceLine, ...]


@dataclass(frozen=True, slots=True)
class _FileTable:
    """All files, worst first, and the first problems; `good` is each one's served content or None."""

    states: tuple[tuple[PurePosixPath, str], ...] = ()
    good: Mapping[PurePosixPath, ParsedFile | None] = field(default_factory=dict)
    counts: FileCounts = field(default_factory=lambda: FileCounts(0, 0, 0))
    problems: tuple[_Shown, ...] = ()
    problem_counts: Mapping[PurePosixPath, int] = field(default_factory=dict)
    severities: ProblemCounts = field(default_factory=ProblemCounts)


class LoadedFiles:
    """The last load's files; `is_word`: a name of the API."""

    def __init__(self, is_word: Callable[[str], bool]) -> None:
        self._is_word = is_word
        self._views: LoadedViews | None = None
        self._loaded_s = 0.0
        # When files got their state and content; others are unchanged since the first load.
        self._since_s: dict[PurePosixPath, float] = {}
        self._problems_since_s: dict[Problem, float] = {}
        self._holds: tuple[Problem, ...] = ()
        self._table = _FileTable()
        self._table_of: tuple[LoadedViews, tuple[Problem, ...]] | None = None
        self._one_at_a_time = asyncio.Lock()

    def receive(self, views: LoadedViews, now_s: float) -> None:
        """Receive a load, in time proportional to the change."""
        before, self._views = self._views, views
        if before is None:
            self._loaded_s = now_s
        else:
            changed = {path for path in _changed_files(views, before) if _has_file(views, path)}
            differing = {held.path for held in {*views.held} ^ {*before.held}}
            self._since_s |= dict.fromkeys(changed | differing, now_s)
            # Visits all files, so not each time; the rest is bounded by existing files.
            if len(self._since_s) > 2 * sum(len(loaded.records) for loaded in views.by_layers.values()):
                self._since_s = {path: at_s for path, at_s in self._since_s.items() if _has_file(views, path)}
        if before is None or views.problems is not before.problems:
            self._note_problems(now_s)

    def receive_holds(self, problems: tuple[Problem, ...], now_s: float) -> None:
        """Receive the tree's held and rejected resources."""
        self._holds = problems
        self._note_problems(now_s)

    def _note_problems(self, now_s: float) -> None:
        known, loaded = self._problems_since_s, () if self._views is None else self._views.problems
        self._problems_since_s = {problem: known.get(problem, now_s) for problem in (*loaded, *self._holds)}

    async def problems(self) -> tuple[FileCounts, tuple[ProblemReport, ...], ProblemCounts]:
        """Return file counts by state, the first problems, and all numbers."""
        table, now_s = await self._current(), asyncio.get_running_loop().time()
        reports = tuple(self._problem_report(each, now_s) for each in table.problems)
        return table.counts, reports, table.severities

    async def files(self, query: RowQuery) -> FileList:
        """Return matching files, worst first, then by path."""
        table, now_s = await self._current(), asyncio.get_running_loop().time()
        search = query.search.casefold()
        rows = [
            (path, state)
            for path, state in table.states
            if query.state in (None, state) and search in str(path).casefold()
        ]
        shown = rows[query.offset : query.offset + query.limit]
        return FileList(len(rows), tuple(self._file_report(table, path, state, now_s) for path, state in shown))

    async def _current(self) -> _FileTable:
        async with self._one_at_a_time:
            views, holds, made_of = self._views, self._holds, self._table_of
            if views is not None and (made_of is None or views is not made_of[0] or holds != made_of[1]):
                self._table = await asyncio.to_thread(_table_of, views, holds, self._is_word)
                self._table_of = views, holds
        return self._table

    def _file_report(self, table: _FileTable, path: PurePosixPath, state: str, now_s: float) -> FileReport:
        good = table.good.get(path)
        since_s = self._since_s.get(path, self._loaded_s)
        count = 0 if good is None else len(good.resources)
        return FileReport(str(path), state, max(0.0, now_s - since_s), count, table.problem_counts.get(path, 0))

    def _problem_report(self, shown: _Shown, now_s: float) -> ProblemReport:
        problem = shown.problem
        return ProblemReport(
            path=str(problem.path),
            line=problem.line,
            column=problem.column,
            severity=problem.severity.value,
            rule=problem.rule,
            message=mask_text(f"{problem.pointer}: {problem.message}" if problem.pointer else problem.message),
            remedy=mask_text(problem.remedy),
            state=shown.state,
            since_s=max(0.0, now_s - self._problems_since_s.get(problem, now_s)),
            source=shown.source,
        )


def _changed_files(views: LoadedViews, before: LoadedViews) -> Iterator[PurePosixPath]:
    for layers, loaded in views.by_layers.items():
        known = before.by_layers.get(layers)
        if known is not None and known is not loaded:
            for change in loaded.snapshot.changes.values():
                if change.generation == loaded.snapshot.generation:
                    yield from change.files


def _has_file(views: LoadedViews, path: PurePosixPath) -> bool:
    return any(path in loaded.records for loaded in views.by_layers.values())


def _table_of(views: LoadedViews, holds: tuple[Problem, ...], is_word: Callable[[str], bool]) -> _FileTable:
    good = _good_of(views)
    worse = {held.path: HELD if held.has_last_good else BROKEN for held in views.held}
    states = {**dict.fromkeys(good, GOOD), **worse}
    counts = Counter(states.values())
    problems = (
        *((each, REJECTED if each.rule == REJECTED_RULE else KEPT) for each in holds),
        *((each, "") for each in views.problems),
    )
    errors_first = sorted(problems, key=lambda each: _SEVERITIES[each[0].severity])[:MOST_PROBLEMS]
    sources = _Sources(views, is_word)
    shown_states = dict.fromkeys({origin_of(content.name).path for content in views.contents}, UPSTREAM) | states
    return _FileTable(
        tuple(sorted(states.items(), key=lambda each: (_RANKS[each[1]], each[0].parts))),
        good,
        FileCounts(counts[GOOD], counts[HELD], counts[BROKEN]),
        tuple(
            _Shown(each, state or shown_states.get(each.path, IGNORED), tuple(sources.lines_of(each)))
            for each, state in errors_first
        ),
        Counter(each.path for each, _ in problems),
        ProblemCounts(**Counter(each.severity.value for each, _ in problems)),
    )


def _good_of(views: LoadedViews) -> Mapping[PurePosixPath, ParsedFile | None]:
    if views.memory is None:
        loaded = views.by_layers.get(WHOLE_TREE)
        return {} if loaded is None else {path: record.good for path, record in loaded.records.items()}
    return views.memory.good(views.held)


class _Sources:
    def __init__(self, views: LoadedViews, is_word: Callable[[str], bool]) -> None:
        self._tree = _tree_of(views)
        self._parsed = dict(_parsed_of(views, {problem.path for problem in views.problems}))
        self._is_word = is_word
        self._sources: dict[PurePosixPath, Source | None] = {}
        self._left_bytes = MOST_READ_BYTES

    def lines_of(self, problem: Problem) -> Iterator[SourceLine]:
        """Yield the lines around a problem; none of a secret or large file."""
        if problem.path not in self._sources:
            self._sources[problem.path] = self._read(problem.path)
        source = self._sources[problem.path]
        for number, text in source.lines_around(problem) if source is not None else ():
            yield SourceLine(number, text)

    def _read(self, path: PurePosixPath) -> Source | None:
        file = None if self._tree is None else self._tree.file_at(path)
        if file is None or file.size_bytes > min(MOST_FILE_BYTES, self._left_bytes):
            return None
        self._left_bytes -= file.size_bytes
        content, parsed = file.content, self._parsed.get(path)
        if _SIGN_OF_SECRETS.search(content) or (parsed is not None and _has_secrets(parsed)):
            return None
        return Source(path, content, self._is_word)


def _tree_of(views: LoadedViews) -> Tree | None:
    if views.memory is not None:
        return views.memory.kept
    loaded = views.by_layers.get(WHOLE_TREE)
    return None if loaded is None or loaded.memory is None else loaded.memory.tree


def _parsed_of(views: LoadedViews, paths: Iterable[PurePosixPath]) -> Iterator[tuple[PurePosixPath, ParsedFile | None]]:
    for path in paths:
        if views.memory is None:
            for loaded in views.by_layers.values():
                record = loaded.records.get(path)
                yield path, None if record is None else record.parsed
        else:
            yield from ((path, parsed) for parsed in views.memory.parsed_at(path))


def _has_secrets(parsed: ParsedFile) -> bool:
    types = set(parsed.declared)
    for found in (parsed.resources, parsed.unread, parsed.edits):
        types.update(one.type_url for one in found)
    return any(row.is_secret for row in RESOURCE_TYPES if row.type_url in types)
