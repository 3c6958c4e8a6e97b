"""Keep the store in step with a source: the story of one change."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from time import monotonic
from typing import Never, Protocol

from fsxds.parsing import Parsing
from fsxds.snapshots.load import Acceptance, Loaded, changed_files, load, unjudged
from fsxds.snapshots.merge import same_content
from fsxds.snapshots.parsed import ParsedFile
from fsxds.store import SnapshotStore
from fsxds.supervisor import Attempts, fault_of
from fsxds.values import Problem, SourceFile, SourceTree

NOTHING = SourceTree(())


class SettledTree(Protocol):
    """A tree that nobody writes to any more; `noticed_s` is the monotonic clock at the first sign of its change."""

    @property
    def tree(self) -> SourceTree:
        """The files."""

    @property
    def noticed_s(self) -> float:
        """Seconds of the monotonic clock."""


class ReloadObserver(Protocol):
    """Who wants to hear of reloads."""

    def problems_found(self, loaded: Loaded) -> None:
        """A tree was loaded; its problems may have changed even where nothing is published."""

    def snapshot_published(self, loaded: Loaded, noticed_s: float) -> None:
        """A snapshot is served from now on."""


@dataclass(frozen=True, slots=True)
class _Again:
    """A tree of which more is known now than when it settled."""

    tree: SourceTree
    noticed_s: float


class NewestTree:
    """The tree as it settled last. One that nobody took before the next one came is not missed."""

    def __init__(self) -> None:
        self.current: SettledTree | None = None
        self._changed = asyncio.Event()

    def put(self, settled: SettledTree) -> None:
        """Take in a tree that settled."""
        self.current = settled
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def put_again(self) -> None:
        """Have the newest tree loaded again: more is known of its files."""
        if self.current is not None:
            self.put(_Again(self.current.tree, monotonic()))

    async def other_than(self, settled: SettledTree | None) -> SettledTree:
        """Wait for a tree that is not this one."""
        while self.current is None or self.current is settled:
            await self._changed.wait()
        return self.current


@dataclass(frozen=True, slots=True)
class _SetAside:
    """The content of a file, None where it was removed, on which loading failed."""

    file: SourceFile | None
    problem: Problem


class Reload:
    """Publishes a snapshot for every settled tree that changes what is served; a bad file keeps its last good content.

    What was loaded survives a failure. A tree on which loading failed three times in a row (errors of fsxds itself) is
    loaded without the changes that it fails on: they are set aside as problems, until their files change.
    """

    def __init__(
        self, store: SnapshotStore, parsing: Parsing, acceptance: Acceptance, observer: ReloadObserver
    ) -> None:
        self._store = store
        self._parsing = parsing
        self._acceptance = acceptance
        self._observer = observer
        self._loaded: Loaded | None = None
        # The tree that was loaded last.
        self._tree = NOTHING
        self._last: SettledTree | None = None
        self._attempts = Attempts()
        self._set_aside: dict[PurePosixPath, _SetAside] = {}

    def judge_by(self, parsing: Parsing, acceptance: Acceptance) -> None:
        """Load by other rules from now on. What is served stays; the next load parses and judges every file anew."""
        self._parsing, self._acceptance = parsing, acceptance
        if self._loaded is not None:
            self._loaded = unjudged(self._loaded)
        # To set aside what fails under these rules, each file counts as changed.
        self._tree, self._set_aside, self._attempts = NOTHING, {}, Attempts()

    async def keep_current(self, trees: NewestTree) -> Never:
        """Take in each newest tree; after a failure, the same one again."""
        while True:
            settled = await trees.other_than(self._last)
            await self.receive(settled)
            self._last = settled

    async def receive(self, settled: SettledTree) -> None:
        """Load a tree, and publish it where it changes what is served."""
        tree = settled.tree
        self._set_aside = {path: row for path, row in self._set_aside.items() if _holds(tree, path, row.file)}
        if self._attempts.are_over(tree):
            self._set_aside |= await self._failing(tree)
        with self._attempts.on(tree):
            chosen = _without(tree, self._set_aside)
            loaded = await self._load(chosen)
        self._loaded, self._tree = loaded, chosen
        is_new = self._store.current is None or not same_content(loaded.snapshot, self._store.current)
        try:
            self._observer.problems_found(loaded)
            if is_new:
                self._observer.snapshot_published(loaded, settled.noticed_s)
        finally:
            # Also where reporting it fails.
            if is_new:
                self._store.publish(loaded.snapshot)

    async def _load(self, tree: SourceTree) -> Loaded:
        parsed = await self._parsing.parse(changed_files(tree, self._loaded))
        # Merging looks at every name: some milliseconds for ten thousand, which polls need not wait for.
        return await asyncio.to_thread(_merge, tree, self._loaded, parsed, self._acceptance)

    async def _failing(self, tree: SourceTree) -> dict[PurePosixPath, _SetAside]:
        """Return the changes of a tree that loading fails on, each with its problem."""
        before = {file.path: file for file in self._tree.files}
        now = {file.path: file for file in tree.files}
        paths = sorted((before.keys() | now.keys()) - self._set_aside.keys())
        changed = [path for path in paths if before.get(path) != now.get(path)]
        failing: dict[PurePosixPath, _SetAside] = {}
        groups = [tuple(changed)]
        tried: set[PurePosixPath] = set()
        while groups:
            group = groups.pop()
            error = await self._error_of(_mixed(before, now, tried.union(group)))
            if error is None:
                tried.update(group)
            elif len(group) == 1:
                failing[group[0]] = _SetAside(now.get(group[0]), _problem(group[0], error))
            else:
                half = len(group) // 2
                groups += [group[half:], group[:half]]
        return failing

    async def _error_of(self, tree: SourceTree) -> Exception | None:
        try:
            await self._load(tree)
        # The edge of one file: which of them is it that all the others must not wait for?
        except Exception as error:  # noqa: BLE001
            return error
        return None


def _merge(tree: SourceTree, before: Loaded | None, parsed: tuple[ParsedFile, ...], acceptance: Acceptance) -> Loaded:
    return load(tree, before, lambda _: parsed, acceptance)


def _holds(tree: SourceTree, path: PurePosixPath, file: SourceFile | None) -> bool:
    """Tell whether a tree has this content at a path; None for no file."""
    return next((other for other in tree.files if other.path == path), None) == file


def _without(tree: SourceTree, set_aside: Mapping[PurePosixPath, _SetAside]) -> SourceTree:
    """Return the tree in which the content that was set aside cannot be read: what its files held last stays."""
    if not set_aside:
        return tree
    files = tuple(file for file in tree.files if file.path not in set_aside)
    return replace(tree, files=files, problems=(*tree.problems, *(row.problem for row in set_aside.values())))


def _mixed(
    before: Mapping[PurePosixPath, SourceFile],
    now: Mapping[PurePosixPath, SourceFile],
    changed: Collection[PurePosixPath],
) -> SourceTree:
    """Return the tree as it was, in which only these paths changed."""
    paths = sorted(before.keys() | now.keys(), key=lambda path: path.parts)
    chosen = ((now if path in changed else before).get(path) for path in paths)
    return SourceTree(tuple(file for file in chosen if file is not None))


def _problem(path: PurePosixPath, error: Exception) -> Problem:
    fact = f"fsxds itself fails on this file, with {fault_of(error)}"
    remedy = (
        "write it in another way; and send this line, the traceback of `internal_error` in the log and, if you may, the "
        "file to the authors of fsxds"
    )
    return Problem(path, 1, 1, "", "internal-error", fact, remedy)
