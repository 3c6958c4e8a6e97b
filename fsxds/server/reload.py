"""Load trees as the settings ask, once, or to keep the store current: what happens when a file changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from time import monotonic, time
from typing import TYPE_CHECKING, Never, Protocol

from fsxds.api.catalogue import Catalogue
from fsxds.disk_cache.parsed_files import ParseCache
from fsxds.formats import format_of
from fsxds.formats.libyaml import require_libyaml
from fsxds.model.resources import ParsedFile, Snapshot
from fsxds.model.tree_trust import (
    SeenInProcess,
    SeenManifests,
    TreeTrust,
    TreeVerifier,
    TrustDecision,
    TrustedSigners,
    nothing_of,
)
from fsxds.model.values import WHOLE_TREE, HeldFile, Layers, Problem, Severity, SourceFile, SourceTree
from fsxds.runtime.events import Observer, TreeLoaded
from fsxds.runtime.store import Latest
from fsxds.runtime.supervisor import Attempts, internal_problem
from fsxds.runtime.views import Views
from fsxds.server.parse_worker import ParseRules
from fsxds.server.parsing import ParseLimits, Parsing, parse_now
from fsxds.settings.naming_rules import NamingRules
from fsxds.settings.options import Settings
from fsxds.settings.upstream_rules import at_urls
from fsxds.settings.view_rules import Variables, ViewRule
from fsxds.snapshots.accept import MISSING_LAYER
from fsxds.snapshots.check_protocol import Check
from fsxds.snapshots.load import Acceptance, LayerPatching, Loaded, changed_files, load
from fsxds.snapshots.loaded_views import LoadedViews, only_view, unjudged_views, whole_tree, with_served
from fsxds.snapshots.stages import CollectionRules, ResolutionRules
from fsxds.snapshots.upstream_content import NOWHERE, Elsewhere
from fsxds.source.envoy_api import AskFeatures, find_api
from fsxds.source.listing import Exclusion, TreeBounds
from fsxds.source.scan import Scanner

if TYPE_CHECKING:
    # With watchdog, which commands that load a tree once do without.
    from fsxds.source.watcher import Settled
from typing import cast

from fsxds.source.targets import WatchMode, WatchOptions

# Finding the line of a field costs a walk over its file: 0.2 s for a megabyte, at every edit as long as the problem lasts.
LOCATE_UP_TO_BYTES = 1_000_000

# A tree may be saved first, and what vouches for it with the next file; a layer may be renamed in the settings first.
NEXT_SAVE_WITHIN_S = 1.0

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
    return Scanner(directory, is_read=is_read, exclusion=exclusion_of(settings), bounds=bounds_of(settings))


def bounds_of(settings: Settings) -> TreeBounds:
    """Return what of a tree is read."""
    return TreeBounds(settings.max_file_size_bytes, settings.max_files, settings.follow_outside)


def exclusion_of(settings: Settings) -> Exclusion:
    """Return what the settings exclude from every tree."""
    return Exclusion(settings.exclude)


def is_read(name: str) -> bool:
    """Whether a format claims a file of this name."""
    return format_of(PurePosixPath(name)) is not None


def scan_once(directory: Path, settings: Settings) -> SourceTree:
    """Read the files of a tree, once, whoever signed it."""
    return scanner_of(directory, settings).scan()


def scan_trusted(directory: Path, settings: Settings) -> SourceTree:
    """Read the files of a tree as serving would, once: of one that is not trusted, nothing but why.

    Raises:
        UsageError: the CAs of those who sign trees cannot be read.
    """
    tree = scan_once(directory, settings)
    faults = trust_faults(tree, settings)
    return nothing_of(tree, faults, has_layers=settings.views is not None) if faults else tree


def trust_faults(tree: SourceTree, settings: Settings) -> tuple[Problem, ...]:
    """Return why a tree is not trusted; nothing where it is, and where nobody has to sign it.

    Raises:
        UsageError: the CAs of those who sign trees cannot be read.
    """
    verifier = verifier_of(_anchors_of(settings), SeenInProcess())
    return () if verifier is None else verifier.faults(tree, time())


def verifier_of(anchors: TrustedSigners | None, seen: SeenManifests) -> TreeVerifier | None:
    """Return what finds whether a tree is signed; None if nobody has to sign it."""
    if anchors is None:
        return None
    from fsxds.signing.trusted_tree import ManifestVerifier  # noqa: PLC0415 - a capability, loaded if it is used

    return ManifestVerifier(anchors, seen)


def _anchors_of(settings: Settings) -> TrustedSigners | None:
    if settings.verify_with is None:
        return None
    from fsxds.signing.trusted_tree import read_anchors  # noqa: PLC0415 - a capability, loaded if it is used

    return read_anchors(settings.verify_with)


@dataclass(frozen=True, slots=True)
class LoadingRules:
    """By what files are parsed and accepted.

    `views` are the settings that say which folders are layers; None where the whole tree is the one view. `variables`
    hold where those of no view do. `anchors` are trusted to sign the tree; None where nobody has to.
    """

    parsing: ParseRules
    limits: ParseLimits
    acceptance: Acceptance
    views: tuple[ViewRule, ...] | None = None
    variables: Variables | None = field(default=None, repr=False)
    resolution: ResolutionRules = field(default_factory=ResolutionRules)
    anchors: TrustedSigners | None = None

    @classmethod
    def of(cls, settings: Settings, catalogue: Catalogue, check: Check, directory: Path | None = None) -> LoadingRules:
        """Return what the settings say about the tree in a directory; None for one in no place.

        Raises:
            UsageError: the CAs of those who sign trees cannot be read.
        """
        unknown_fields = Severity.WARNING if settings.unknown_fields == "warn" else Severity.ERROR
        naming = NamingRules(settings.authority, settings.context_params or ())
        limits = ParseLimits(settings.parse_apart_above_bytes, time_s=settings.parse_time_s)
        acceptance = Acceptance(
            whole_trees=settings.accept == "tree",
            authored_versions=settings.versions == "authored",
            check=check,
            locate_up_to_bytes=LOCATE_UP_TO_BYTES,
            max_resources=settings.max_resources,
            elsewhere=Elsewhere(is_unknown=has_upstreams(settings)),
            patching=None if settings.views is None else _patching(catalogue, unknown_fields, check, naming),
        )
        variables = settings.variables or Variables()
        rows = tuple(variables.texts.items()), tuple(variables.unset.items())
        rules = ParseRules(catalogue, unknown_fields, check, rows, naming)
        root = "" if directory is None else str(directory.absolute())
        resolution = ResolutionRules(
            authority=settings.authority,
            authorities=at_urls(settings.authorities),
            passes_redirects=settings.redirects == "client",
            root=root,
            catalogue=catalogue,
            check=check,
            collections=CollectionRules(settings.collections or (), settings.authority, root, catalogue),
            unasked=_unasked(settings),
        )
        views, anchors = settings.views, _anchors_of(settings)
        return cls(rules, limits, acceptance, views, settings.variables, resolution, anchors)

    @property
    def view_rules(self) -> Views | None:
        """What says which folders are layers; None where the whole tree is the one view."""
        if self.views is None:
            return None
        # Without a directory, no layer has a folder.
        adjusted = self.acceptance.check.adjusted if self.resolution.root else lambda _: None
        return Views(self.views, self.variables, adjusted)


def _patching(catalogue: Catalogue, unknown_fields: Severity, check: Check, naming: NamingRules) -> LayerPatching:
    from fsxds.snapshots.patches import Patching  # noqa: PLC0415 - a capability, loaded if it is used

    return Patching(catalogue, unknown_fields, check, naming)


def has_upstreams(settings: Settings) -> bool:
    """Whether other servers have resources, too."""
    return _unasked(settings) != frozenset()


def _unasked(settings: Settings) -> frozenset[str] | None:
    """Return the authorities of upstreams, as long as none is asked; None where they may have any name."""
    if settings.upstream:
        return None
    return frozenset(name for name, each in (settings.authorities or {}).items() if each.upstream)


def load_once(directory: Path, settings: Settings, catalogue: Catalogue, check: Check) -> Loaded:
    """Load a tree as serving would, once, and return what it holds and what is wrong with it."""
    (views,) = load_trees((scan_once(directory, settings),), settings, catalogue, check, directory)
    return only_view(views)


def load_trees(
    trees: Iterable[SourceTree], settings: Settings, catalogue: Catalogue, check: Check, directory: Path = Path()
) -> tuple[LoadedViews, ...]:
    """Load trees as serving would, each on its own, as one view; a file that is in several of them is parsed once.

    What files parse to is kept for the next time, as that of `directory`.
    """
    require_libyaml()
    rules = LoadingRules.of(settings, catalogue, check, directory)
    acceptance = replace(rules.acceptance, locate_up_to_bytes=None)
    trees = tuple(trees)
    files = {(file.path, file.digest): file for tree in trees for file in tree.files}
    cache = cache_of(directory, settings, rules.parsing)
    parsed = dict(zip(files, parse_now(tuple(files.values()), rules.parsing, rules.limits, cache), strict=True))

    def parse(files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
        return tuple(parsed[file.path, file.digest] for file in files)

    loaded = (with_ignored(load(tree, None, parse, acceptance), tree.ignored, check) for tree in trees)
    return tuple(with_served(whole_tree(one), rules.resolution, None) for one in loaded)


def cache_of(
    directory: Path, settings: Settings, rules: ParseRules, observer: Observer = lambda _: None
) -> ParseCache | None:
    """Return what the files of a tree parsed to in earlier processes; None where the settings have no place for it."""
    if settings.cache_dir is None:
        return None
    cache = ParseCache(settings.cache_dir, directory, rules.digest, observer)
    cache.naming = rules.naming
    return cache


def with_ignored(loaded: Loaded, paths: tuple[PurePosixPath, ...], check: Check) -> Loaded:
    """Return a tree with one note about all ignored files, at the first."""
    note = ignored_note(paths, check)
    return loaded if note is None else replace(loaded, problems=tuple(sorted((*loaded.problems, note))))


def ignored_note(paths: tuple[PurePosixPath, ...], check: Check) -> Problem | None:
    """Return one note about all ignored files, at the first; None where there are none, or nobody wants to know."""
    if not paths:
        return None
    first, *others = paths
    named = ", ".join(str(path) for path in others[:MOST_IGNORED])
    more = f", … {len(others) - MOST_IGNORED} more" if len(others) > MOST_IGNORED else ""
    fact = "ignored: no format has this suffix" + (f"; nor {named}{more}" if others else "")
    remedy = "rename what holds resources to .yaml, .json, .textproto or .pb"
    return check.adjusted(Problem(first, 1, 1, "", "ignored-file", fact, remedy, Severity.NOTE))


NOTHING = SourceTree(())


class Loader:
    """Loads trees by one set of rules, each on top of the one before.

    Args:
        parsing: parses files.
        acceptance: how trees are accepted.
        rules: say which folders are layers; None where the whole tree is the one view.
        resolution: how what is served is made of what was loaded.

    Attributes:
        rules: say which folders are layers; None where the whole tree is the one view.
        verifier: finds whether trees are signed; None if nobody has to sign them.
        elsewhere: returns what upstreams hold now, and may have.
    """

    def __init__(
        self,
        parsing: Parsing,
        acceptance: Acceptance,
        rules: Views | None = None,
        resolution: ResolutionRules | None = None,
    ) -> None:
        self.verifier: TreeVerifier | None = None
        self._parsing = parsing
        self._acceptance = acceptance
        self.rules = rules
        # What upstreams have is known here.
        self._resolution = replace(resolution or ResolutionRules(), unasked=frozenset())
        self.elsewhere: Callable[[], Elsewhere] = lambda: NOWHERE
        # What was parsed for the last tree.
        self._changed: tuple[SourceFile, ...] = ()

    async def trusted(self, tree: SourceTree, trust: TreeTrust) -> TrustDecision:
        """Return what of a tree may be loaded, given what was trusted before."""
        if self.verifier is None:
            return trust.decide(tree, None, 0.0)
        decide = partial(trust.decide, has_layers=self.rules is not None)
        return await asyncio.to_thread(decide, tree, self.verifier, time())

    async def load(self, tree: SourceTree, before: LoadedViews | None, wanted: Collection[Layers]) -> LoadedViews:
        """Parse what changed, and accept what can be served of it in the views that are wanted."""
        self._parsing.forget_gone(tree)
        rules, elsewhere = self.rules, self.elsewhere()
        self._acceptance = replace(self._acceptance, elsewhere=elsewhere)
        if rules is None:
            views = await self._load_whole(tree, before.by_layers.get(WHOLE_TREE) if before else None)
        else:
            views = await self._load_views(tree, before, wanted, rules)
        return await asyncio.to_thread(with_served, views, self._resolution, before, elsewhere.contents)

    async def _load_views(
        self, tree: SourceTree, before: LoadedViews | None, wanted: Collection[Layers], rules: Views
    ) -> LoadedViews:
        from fsxds.snapshots.layers_load import ViewsLoad  # noqa: PLC0415 - a capability, loaded if it is used

        variables = {layers: rules.variables_of(layers) for layers in wanted}
        views = await asyncio.to_thread(ViewsLoad, tree, variables, rules, before)
        parsed = await self._parse(views.unparsed)
        return await asyncio.to_thread(views.load, parsed, self._acceptance)

    async def _load_whole(self, tree: SourceTree, before: Loaded | None) -> LoadedViews:
        parsed = await self._parse(changed_files(tree, before))
        # Loading costs what changed, which may be all: polls need not wait for that.
        return whole_tree(await asyncio.to_thread(load, tree, before, lambda _: parsed, self._acceptance))

    async def _parse(self, files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
        self._changed = files
        return await self._parsing.parse(files)

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


class Targets(Protocol):
    """What publishes what was loaded."""

    def receive(self, targets: Mapping[Layers, Snapshot], detected_s: float) -> None:
        """Take what the tree asks for, by layers; `detected_s` is the monotonic clock at the first sign of the change."""


class Reload:
    """Loads every settled tree, and has what it asks for published; a bad file keeps its last good content.

    What was loaded survives a failure. A tree on which loading failed three times in a row (errors of fsxds itself) is
    loaded without the changes that it fails on: they are set aside as problems, until their files change.

    Attributes:
        views: what was loaded last; None before the first.
        trust: whose trees may be loaded.
        on_loaded: is called with what was loaded, when it is given to what publishes it.
    """

    def __init__(self, targets: Targets, observer: Observer) -> None:
        self.views: LoadedViews | None = None
        self.trust = TreeTrust()
        self.on_loaded: Callable[[LoadedViews], object] = lambda _: None
        self._targets = targets
        self._observer = observer
        self._wanted: dict[Layers, None] = {}
        self._trees: Latest[Settled | None] = Latest(None)
        # What of the tree was loaded last, and by which rules.
        self._tree = NOTHING
        self._rules: Views | None = None
        self._received: Settled | None = None
        self._attempts = Attempts()
        self._set_aside: dict[PurePosixPath, _SetAside] = {}
        # The last tree that was not trusted, and not replaced soon.
        self._distrusted: SourceTree | None = None
        # Until when trees are passed over that may be half an edit; None while there is none.
        self._waits_until_s: float | None = None

    @property
    def loaded(self) -> Loaded | None:
        """The whole tree as it was loaded last; None before the first, and where the settings have views."""
        return None if self.views is None else self.views.by_layers.get(WHOLE_TREE)

    @property
    def existing(self) -> frozenset[str]:
        """The folders of the tree that was loaded last, each of which may be a layer."""
        return frozenset() if self.views is None else self.views.existing

    def is_loaded_by(self, views: Views) -> bool:
        """Whether the tree that was loaded last was loaded by these rules."""
        return views.made_of == (self._rules or Views(None)).made_of

    def want(self, layers: Layers) -> None:
        """Have a view loaded, now and with each tree. To be called in the event loop."""
        if layers not in self._wanted:
            self._wanted[layers] = None
            current = self._trees.current
            if current is not None:
                self._trees.replace(replace(current, detected_s=monotonic()))

    def drop(self, layers: Layers) -> None:
        """Load a view no more, from the next load on."""
        self._wanted.pop(layers, None)

    def change_rules(self) -> None:
        """Have the next load, by other rules, parse and verifier every file again. What is served stays."""
        if self.views is not None:
            self.views = unjudged_views(self.views)
        # To set aside what fails under these rules, each file counts as changed.
        self._tree, self._set_aside, self._attempts = NOTHING, {}, Attempts()

    async def keep_current(self, trees: Latest[Settled | None], loader: Loader) -> Never:
        """Load each tree; after a failure, the same one again."""
        self._trees = trees
        while True:
            settled = await trees.other_than(self._received)
            if settled is not None:
                await self.receive(settled, loader)
            self._received = settled

    async def receive(self, settled: Settled, loader: Loader) -> None:
        """Load a tree, and have it published.

        A tree that is not trusted, or lacks a layer that the one before had, may be half an edit: it is passed over if another
        one comes soon.
        """
        decision = await loader.trusted(settled.tree, self.trust)
        if decision.faults and settled.tree is not self._distrusted and self._trees.current is not None:
            if await self._is_replaced(settled):
                return
            self._distrusted = settled.tree
        tree = decision.tree
        self._set_aside = {path: row for path, row in self._set_aside.items() if tree.file_at(path) == row.file}
        if self._attempts.are_over(tree):
            self._set_aside |= await self._failing(tree, loader)
        started_s = monotonic()
        with self._attempts.on(tree):
            chosen = _without(tree, self._set_aside)
            views = _distrusted(await loader.load(chosen, self.views, tuple(self._wanted)), decision)
        duration_s = monotonic() - started_s
        if self._may_be_replaced(tree, views) and await self._is_replaced(settled):
            return
        self._waits_until_s = None
        self._rules = loader.rules
        self.views, self._tree = views, chosen
        try:
            self._observer(TreeLoaded(views.problems, views.held, duration_s))
        finally:
            # Also where reporting it fails.
            self._targets.receive(views.served, settled.detected_s)
        self.on_loaded(views)
        await loader.pack()

    def _may_be_replaced(self, tree: SourceTree, views: LoadedViews) -> bool:
        """Whether a tree lacks a layer by half an edit; it is none where other views are wanted of the same tree."""
        if self.views is None or self._trees.current is None or tree.files == self._tree.files:
            return False
        return not _missing_layers(views) <= _missing_layers(self.views)

    async def _is_replaced(self, settled: Settled) -> bool:
        """Wait for a tree after this one, and return whether it came in time; for all of a row of trees there is one time."""
        if self._waits_until_s is None:
            self._waits_until_s = asyncio.get_running_loop().time() + NEXT_SAVE_WITHIN_S
        try:
            async with asyncio.timeout_at(self._waits_until_s):
                await self._trees.other_than(settled)
        except TimeoutError:
            return False
        return True

    async def _failing(self, tree: SourceTree, loader: Loader) -> dict[PurePosixPath, _SetAside]:
        """Return the changes of a tree that loading fails on, each with its problem."""
        before = {file.path: file for file in self._loaded_files()}
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

    def _loaded_files(self) -> Iterable[SourceFile]:
        """Return the files of the tree that were loaded last: of views, those of their layers."""
        if self.views is None or self.views.memory is None:
            return self._tree.files
        return self.views.memory.files()

    async def _error_of(self, tree: SourceTree, loader: Loader) -> Exception | None:
        try:
            await loader.load(tree, self.views, tuple(self._wanted))
        # The edge of one file: which of them is it that all the others must not wait for?
        except Exception as error:  # noqa: BLE001
            return error
        return None


def _missing_layers(views: LoadedViews) -> frozenset[PurePosixPath]:
    return frozenset(problem.path for problem in views.problems if problem.rule == MISSING_LAYER)


def _distrusted(views: LoadedViews, decision: TrustDecision) -> LoadedViews:
    """Return views of what was trusted before, with what is wrong with the tree that is there now."""
    if not decision.faults:
        return views
    held = {one.path for one in views.held}
    kept = {
        one.path: HeldFile(one.path, one, decision.has_last_good) for one in decision.faults if one.path not in held
    }
    return replace(
        views,
        problems=tuple(sorted({*views.problems, *decision.faults})),
        held=tuple(sorted((*views.held, *kept.values()), key=lambda one: one.path.parts)),
    )


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


@dataclass(frozen=True, slots=True)
class WatchRules:
    """What a watcher has to be restarted for when it changes."""

    options: WatchOptions
    exclude: tuple[str, ...]
    bounds: TreeBounds

    @classmethod
    def of(cls, settings: Settings) -> WatchRules:
        """Return what the settings say."""
        options = WatchOptions(
            mode=cast("WatchMode", settings.watch),  # its form has these words alone
            settle_s=settings.settle_s,
            settle_cap_s=settings.settle_cap_s,
            writer_patience_s=settings.writer_patience_s,
            rescan_s=settings.rescan_s,
            poll_s=settings.poll_s,
        )
        return cls(options, settings.exclude, bounds_of(settings))
