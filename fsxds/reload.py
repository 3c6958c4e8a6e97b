"""Load trees as the settings ask, once, or to keep the store current: what happens when a file changes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Never

from fsxds.api.catalogue import Catalogue
from fsxds.disk_cache.parsed_files import ParseCache
from fsxds.events import Observer, SnapshotPublished, TreeLoaded
from fsxds.formats import format_of
from fsxds.formats.libyaml import require_libyaml
from fsxds.parse_worker import ParseRules
from fsxds.parsing import ParseLimits, Parsing, parse_now
from fsxds.resources import ParsedFile
from fsxds.settings.options import Settings
from fsxds.snapshots.check_protocol import Check
from fsxds.snapshots.load import Acceptance, Loaded, changed_files, load, same_content, unjudged
from fsxds.source.envoy_api import AskFeatures, find_api
from fsxds.source.listing import Exclusion
from fsxds.source.scan import Scanner
from fsxds.store import Latest, SnapshotStore
from fsxds.supervisor import Attempts, internal_problem
from fsxds.values import Problem, Severity, SourceFile, SourceTree

if TYPE_CHECKING:
    # With watchdog, which commands that load a tree once do without.
    from fsxds.source.watcher import Settled

# Finding the line of a field costs a walk over its file: 0.2 s for a megabyte, at every edit as long as the problem lasts.
LOCATE_UP_TO_BYTES = 1_000_000

# Ignored files that are named in one note; the others are counted.
MOST_IGNORED = 5


def find_catalogue(settings: Settings, ask: AskFeatures | None = None) -> Catalogue:
    """Find the message types of the Envoy in use; ApiError when they cannot be had.

    Args:
        settings: where they are looked for.
        ask: runs an Envoy of which nothing but its message types is known; None to run none.
    """
    return find_api(envoy=settings.envoy, descriptors=settings.descriptors, cache_dir=settings.cache_dir, ask=ask)


def scanner_of(directory: Path, settings: Settings) -> Scanner:
    """Return what reads the files of a tree."""
    limit = settings.max_file_size_bytes
    return Scanner(directory, is_read=is_read, exclusion=exclusion_of(settings), max_file_size_bytes=limit)


def exclusion_of(settings: Settings) -> Exclusion:
    """Return what the settings exclude from every tree."""
    return Exclusion(settings.exclude)


def is_read(name: str) -> bool:
    """Whether a format claims a file of this name."""
    return format_of(PurePosixPath(name)) is not None


def scan_once(directory: Path, settings: Settings) -> SourceTree:
    """Read the files of a tree as serving would, once."""
    return scanner_of(directory, settings).scan()


@dataclass(frozen=True, slots=True)
class LoadingRules:
    """By what files are parsed and accepted."""

    parsing: ParseRules
    limits: ParseLimits
    acceptance: Acceptance

    @classmethod
    def of(cls, settings: Settings, catalogue: Catalogue, check: Check) -> LoadingRules:
        """Return what the settings say."""
        unknown_fields = Severity.WARNING if settings.unknown_fields == "warn" else Severity.ERROR
        limits = ParseLimits(settings.parse_apart_above_bytes, time_s=settings.parse_time_s)
        acceptance = Acceptance(
            whole_trees=settings.accept == "tree",
            authored_versions=settings.versions == "authored",
            check=check,
            locate_up_to_bytes=LOCATE_UP_TO_BYTES,
        )
        return cls(ParseRules(catalogue, unknown_fields, check), limits, acceptance)


def load_once(directory: Path, settings: Settings, catalogue: Catalogue, check: Check) -> Loaded:
    """Load a tree as serving would, once, and return what it holds and what is wrong with it."""
    (loaded,) = load_trees((scan_once(directory, settings),), settings, catalogue, check, directory)
    return loaded


def load_trees(
    trees: Iterable[SourceTree], settings: Settings, catalogue: Catalogue, check: Check, directory: Path = Path()
) -> tuple[Loaded, ...]:
    """Load trees as serving would, each on its own; a file that is in several of them is parsed once.

    What files parse to is kept for the next time, as that of `directory`.
    """
    require_libyaml()
    rules = LoadingRules.of(settings, catalogue, check)
    acceptance = replace(rules.acceptance, locate_up_to_bytes=None)
    trees = tuple(trees)
    files = {(file.path, file.digest): file for tree in trees for file in tree.files}
    cache = cache_of(directory, settings, rules.parsing)
    parsed = dict(zip(files, parse_now(tuple(files.values()), rules.parsing, rules.limits, cache), strict=True))

    def parse(files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
        return tuple(parsed[file.path, file.digest] for file in files)

    return tuple(with_ignored(load(tree, None, parse, acceptance), tree.ignored, check) for tree in trees)


def cache_of(
    directory: Path, settings: Settings, rules: ParseRules, observer: Observer = lambda _: None
) -> ParseCache | None:
    """Return what the files of a tree parsed to in earlier processes; None where the settings have no place for it."""
    if settings.cache_dir is None:
        return None
    return ParseCache(settings.cache_dir, directory, rules.digest, observer)


def with_ignored(loaded: Loaded, paths: tuple[PurePosixPath, ...], check: Check) -> Loaded:
    """Return a tree with one note about all ignored files, at the first."""
    if not paths:
        return loaded
    first, *others = paths
    named = ", ".join(str(path) for path in others[:MOST_IGNORED])
    more = f", … {len(others) - MOST_IGNORED} more" if len(others) > MOST_IGNORED else ""
    fact = "ignored: no format has this suffix" + (f"; nor {named}{more}" if others else "")
    remedy = "rename what holds resources to .yaml, .json, .textproto or .pb"
    note = check.adjusted(Problem(first, 1, 1, "", "ignored-file", fact, remedy, Severity.NOTE))
    return loaded if note is None else replace(loaded, problems=tuple(sorted((*loaded.problems, note))))


NOTHING = SourceTree(())


class Loader:
    """Loads trees by one set of rules, each on top of the one before."""

    def __init__(self, parsing: Parsing, acceptance: Acceptance) -> None:
        self._parsing = parsing
        self._acceptance = acceptance
        # What was parsed for the last tree.
        self._changed: tuple[SourceFile, ...] = ()

    async def load(self, tree: SourceTree, before: Loaded | None) -> Loaded:
        """Parse what changed, and accept what can be served of it."""
        self._changed = changed_files(tree, before)
        parsed = await self._parsing.parse(self._changed)
        # Loading costs what changed, which may be all: polls need not wait for that.
        return await asyncio.to_thread(load, tree, before, lambda _: parsed, self._acceptance)

    async def pack(self) -> None:
        """Let the text of what was loaded last take less memory, when it is served."""
        await asyncio.to_thread(_pack, self._changed)
        self._changed = ()


def _pack(files: Iterable[SourceFile]) -> None:
    for file in files:
        file.pack()


@dataclass(frozen=True, slots=True)
class _SetAside:
    """The content of a file, None where it was removed, on which loading failed."""

    file: SourceFile | None
    problem: Problem


class Reload:
    """Publishes a snapshot for every settled tree that changes what is served; a bad file keeps its last good content.

    What was loaded survives a failure. A tree on which loading failed three times in a row (errors of fsxds itself) is
    loaded without the changes that it fails on: they are set aside as problems, until their files change.

    Attributes:
        loaded: the tree as it was loaded last; None before the first.
    """

    def __init__(self, store: SnapshotStore, observer: Observer) -> None:
        self.loaded: Loaded | None = None
        self._store = store
        self._observer = observer
        # What of the tree was loaded last.
        self._tree = NOTHING
        self._received: Settled | None = None
        self._attempts = Attempts()
        self._set_aside: dict[PurePosixPath, _SetAside] = {}

    def change_rules(self) -> None:
        """Have the next load, by other rules, parse and judge every file again. What is served stays."""
        if self.loaded is not None:
            self.loaded = unjudged(self.loaded)
        # To set aside what fails under these rules, each file counts as changed.
        self._tree, self._set_aside, self._attempts = NOTHING, {}, Attempts()

    async def keep_current(self, trees: Latest[Settled | None], loader: Loader) -> Never:
        """Load each tree; after a failure, the same one again."""
        while True:
            settled = await trees.other_than(self._received)
            if settled is not None:
                await self.receive(settled, loader)
            self._received = settled

    async def receive(self, settled: Settled, loader: Loader) -> None:
        """Load a tree, and publish it where it changes what is served."""
        tree = settled.tree
        self._set_aside = {path: row for path, row in self._set_aside.items() if tree.file_at(path) == row.file}
        if self._attempts.are_over(tree):
            self._set_aside |= await self._failing(tree, loader)
        with self._attempts.on(tree):
            chosen = _without(tree, self._set_aside)
            loaded = await loader.load(chosen, self.loaded)
        self.loaded, self._tree = loaded, chosen
        is_new = self._store.current is None or not same_content(loaded.snapshot, self._store.current)
        try:
            self._observer(TreeLoaded(loaded.problems, loaded.held))
            if is_new:
                self._observer(SnapshotPublished(loaded.snapshot, settled.detected_s))
        finally:
            # Also where reporting it fails.
            if is_new:
                self._store.publish(loaded.snapshot)
        await loader.pack()

    async def _failing(self, tree: SourceTree, loader: Loader) -> dict[PurePosixPath, _SetAside]:
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
            error = await self._error_of(_mixed(before, now, tried.union(group)), loader)
            if error is None:
                tried.update(group)
            elif len(group) == 1:
                failing[group[0]] = _SetAside(now.get(group[0]), internal_problem(group[0], error))
            else:
                half = len(group) // 2
                groups += [group[half:], group[:half]]
        return failing

    async def _error_of(self, tree: SourceTree, loader: Loader) -> Exception | None:
        try:
            await loader.load(tree, self.loaded)
        # The edge of one file: which of them is it that all the others must not wait for?
        except Exception as error:  # noqa: BLE001
            return error
        return None


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
