"""Loads trees by the settings, for the publisher.

Rules: a tree that is not trusted may be half an edit, and is passed over if another one comes soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePosixPath
from time import monotonic, time
from typing import TYPE_CHECKING, Never

from fsxds.events.event import Observer
from fsxds.events.file_events import TreeLoaded
from fsxds.model.resources import ParsedFile
from fsxds.model.tree_trust import TreeVerifier, nothing_of
from fsxds.model.values import (
    NO_MANIFEST,
    WHOLE_TREE,
    HeldFile,
    Layers,
    OfferedManifest,
    Problem,
    SourceFile,
    SourceTree,
)
from fsxds.publishing.membership import Targets
from fsxds.runtime.channels import Latest
from fsxds.runtime.supervisor import Attempts, internal_problem
from fsxds.runtime.views import Views
from fsxds.server.parsing import Parsing
from fsxds.snapshots.accept import MISSING_LAYER
from fsxds.snapshots.load import Acceptance, Loaded, changed_files, load
from fsxds.snapshots.loaded_views import LoadedViews, ResolutionRules, unchecked_views, whole_tree, with_served
from fsxds.snapshots.proposals import NOWHERE, Elsewhere

if TYPE_CHECKING:
    # Watchdog is not needed to load a tree once.
    from fsxds.source.watcher import Settled

# A tree may be saved before its manifest; a layer may be renamed in the settings first.
NEXT_SAVE_WITHIN_S = 1.0

NOTHING = SourceTree(())


@dataclass(frozen=True, slots=True)
class TrustDecision:
    """The tree that may be loaded.

    `faults` say why it is not the one read; `has_last_good`: there is a trusted one.
    """

    tree: SourceTree
    faults: tuple[Problem, ...] = ()
    has_last_good: bool = True


class TreeTrust:
    """Decides which trees of one server may be loaded."""

    def __init__(self) -> None:
        self._last: SourceTree | None = None

    @property
    def offered(self) -> tuple[OfferedManifest, ...]:
        """The last trusted tree's manifest and signature, if it has both."""
        return (NO_MANIFEST if self._last is None else self._last.signed).offered

    def decide(
        self, tree: SourceTree, verifier: TreeVerifier | None, now_s: float, *, has_layers: bool = False
    ) -> TrustDecision:
        """Return this tree, or the last trusted one.

        `verifier` is None if all are trusted. `now_s` is since 1970. `has_layers`: folders are views' layers.
        """
        faults = () if verifier is None else verifier.faults(tree, now_s)
        if faults:
            kept = nothing_of(tree, faults, has_layers=has_layers) if self._last is None else self._last
            return TrustDecision(kept, faults, has_last_good=self._last is not None)
        self._last = tree
        return TrustDecision(tree)


@dataclass(frozen=True, slots=True)
class LoadContext:
    """Loading's inputs besides files and acceptance; `verifier` if signatures are required."""

    resolution: ResolutionRules = field(default_factory=ResolutionRules)
    elsewhere: Callable[[], Elsewhere] = lambda: NOWHERE
    verifier: TreeVerifier | None = None


class Loader:
    """Loads successive trees by one set of rules.

    `rules` make folders layers; None: one view.
    """

    def __init__(
        self,
        parsing: Parsing,
        acceptance: Acceptance,
        rules: Views | None = None,
        around: LoadContext | None = None,
    ) -> None:
        self._parsing = parsing
        self._acceptance = acceptance
        self.rules = rules
        self._context = around or LoadContext()
        # The loader knows upstreams' resources.
        self._resolution = replace(self._context.resolution, unasked=frozenset())
        # Of the last tree.
        self._changed: tuple[SourceFile, ...] = ()

    async def trusted(self, tree: SourceTree, trust: TreeTrust) -> TrustDecision:
        """Return a tree's trusted part, given the one before."""
        verifier = self._context.verifier
        if verifier is None:
            return trust.decide(tree, None, 0.0)
        decide = partial(trust.decide, has_layers=self.rules is not None)
        return await asyncio.to_thread(decide, tree, verifier, time())

    async def load(self, tree: SourceTree, before: LoadedViews | None, wanted: Collection[Layers]) -> LoadedViews:
        """Parse changed files; load valid ones into the wanted views."""
        self._parsing.forget_gone(tree)
        rules, elsewhere = self.rules, self._context.elsewhere()
        self._acceptance = replace(self._acceptance, elsewhere=elsewhere)
        if rules is None:
            last = before.by_layers.get(WHOLE_TREE) if before else None
            parsed = await self._parse(changed_files(tree, last))
            # It costs in proportion to the change; polls should not wait.
            views = whole_tree(await asyncio.to_thread(load, tree, last, lambda _: parsed, self._acceptance))
        else:
            from fsxds.snapshots.layers_load import ViewsLoad  # noqa: PLC0415 - a capability, loaded if it is used

            variables = {layers: rules.variables_of(layers) for layers in wanted}
            layered = await asyncio.to_thread(ViewsLoad, tree, variables, rules, before)
            parsed = await self._parse(layered.unparsed)
            views = await asyncio.to_thread(layered.load, parsed, self._acceptance)
        return await asyncio.to_thread(with_served, views, self._resolution, before, elsewhere.contents)

    async def _parse(self, files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
        self._changed = files
        return await self._parsing.parse(files)

    async def pack(self) -> None:
        """Compress served files' text."""
        await asyncio.to_thread(_pack, self._changed)
        self._changed = ()


def _pack(files: Iterable[SourceFile]) -> None:
    for file in files:
        file.pack()


@dataclass(frozen=True, slots=True)
class _SetAside:
    """Loading failed on it; `file` None: removed."""

    file: SourceFile | None
    problem: Problem


class Reload:
    """Loads every settled tree for the publisher; a bad file keeps its last good content.

    Views survive a failure. A tree that failed three times in a row (errors of fsxds) is loaded without the changes
    that it fails on: they are problems until their files change.

    `views` are None before the first load; `trust` decides about trees.
    """

    def __init__(
        self, targets: Targets, observer: Observer, on_loaded: Callable[[LoadedViews], object] = lambda _: None
    ) -> None:
        """Load for `targets` and `on_loaded`."""
        self.views: LoadedViews | None = None
        self.trust = TreeTrust()
        self._on_loaded = on_loaded
        self._targets = targets
        self._observer = observer
        self._wanted: dict[Layers, None] = {}
        self._trees: Latest[Settled | None] = Latest(None)
        # As loaded last, and its rules.
        self._tree = NOTHING
        self._rules: Views | None = None
        self._received: Settled | None = None
        self._attempts = Attempts()
        self._set_aside: dict[PurePosixPath, _SetAside] = {}
        # Not trusted, and not replaced soon.
        self._distrusted: SourceTree | None = None
        # Of the wait that skips possibly incomplete edits; None without one.
        self._waits_until_s: float | None = None

    @property
    def loaded(self) -> Loaded | None:
        """The last whole tree; None before, and with views."""
        return None if self.views is None else self.views.by_layers.get(WHOLE_TREE)

    @property
    def existing(self) -> frozenset[str]:
        """The last tree's folders: possible layers."""
        return frozenset() if self.views is None else self.views.existing

    def is_loaded_by(self, views: Views) -> bool:
        """Whether these rules loaded the last tree."""
        return views.made_of == (self._rules or Views(None)).made_of

    def want(self, layers: Layers) -> None:
        """Load a view from now on, on the event loop."""
        if layers not in self._wanted:
            self._wanted[layers] = None
            current = self._trees.current
            if current is not None:
                self._trees.replace(replace(current, detected_s=monotonic()))

    def drop(self, layers: Layers) -> None:
        """Load a view no more."""
        self._wanted.pop(layers, None)

    def change_rules(self) -> None:
        """Have every file parsed again. Served snapshots stay."""
        if self.views is not None:
            self.views = unchecked_views(self.views)
        # So that any file can be set aside under the new rules.
        self._tree, self._set_aside, self._attempts = NOTHING, {}, Attempts()

    async def keep_current(self, trees: Latest[Settled | None], loader: Loader) -> Never:
        """Load each tree; after a failure again."""
        self._trees = trees
        while True:
            settled = await trees.other_than(self._received)
            if settled is not None:
                await self.receive(settled, loader)
            self._received = settled

    async def receive(self, settled: Settled, loader: Loader) -> None:
        """Load a tree for the publisher.

        An untrusted tree, or one that lost a layer, is skipped if another follows soon: the edit may be incomplete.
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
            # Also if reporting fails.
            self._targets.receive(views.served, settled.detected_s)
        self._on_loaded(views)
        await loader.pack()

    def _may_be_replaced(self, tree: SourceTree, views: LoadedViews) -> bool:
        """A layer is missing; false if only the wanted views changed."""
        if self.views is None or self._trees.current is None or tree.files == self._tree.files:
            return False
        return not _missing_layers(views) <= _missing_layers(self.views)

    async def _is_replaced(self, settled: Settled) -> bool:
        if self._waits_until_s is None:
            self._waits_until_s = asyncio.get_running_loop().time() + NEXT_SAVE_WITHIN_S
        try:
            async with asyncio.timeout_at(self._waits_until_s):
                await self._trees.other_than(settled)
        except TimeoutError:
            return False
        return True

    async def _failing(self, tree: SourceTree, loader: Loader) -> dict[PurePosixPath, _SetAside]:
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
        if self.views is None or self.views.memory is None:
            return self._tree.files
        return self.views.memory.files()

    async def _error_of(self, tree: SourceTree, loader: Loader) -> Exception | None:
        try:
            await loader.load(tree, self.views, tuple(self._wanted))
        # It must not affect other files: found by bisection.
        except Exception as error:  # noqa: BLE001
            return error
        return None


def _missing_layers(views: LoadedViews) -> frozenset[PurePosixPath]:
    return frozenset(problem.path for problem in views.problems if problem.rule == MISSING_LAYER)


def _distrusted(views: LoadedViews, decision: TrustDecision) -> LoadedViews:
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
    """Unreadable, so that their last content stays."""
    if not set_aside:
        return tree
    files = tuple(file for file in tree.files if file.path not in set_aside)
    return replace(tree, files=files, problems=(*tree.problems, *(row.problem for row in set_aside.values())))


def _mixed(
    before: Mapping[PurePosixPath, SourceFile],
    now: Mapping[PurePosixPath, SourceFile],
    changed: Collection[PurePosixPath],
) -> SourceTree:
    paths = sorted(before.keys() | now.keys(), key=lambda path: path.parts)
    chosen = ((now if path in changed else before).get(path) for path in paths)
    return SourceTree(tuple(file for file in chosen if file is not None))
