"""The loaded views of a tree, and their served snapshots.

Without layers there is one view.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePosixPath
from typing import Protocol, TypeVar

from fsxds.model.resources import Key, ParsedFile, Snapshot
from fsxds.model.values import WHOLE_TREE, HeldFile, Layers, Problem, SourceFile, SourceTree
from fsxds.snapshots import stages
from fsxds.snapshots.load import Loaded, unchecked
from fsxds.snapshots.stages import Inputs, ResolutionRules, Staged
from fsxds.snapshots.upstream_content import UpstreamContent

T = TypeVar("T")

# The maximum number of views named in one problem.
MOST_NAMED = 3


class LayersMemory(Protocol):
    """The memory for the next load of layers."""

    def unchecked(self) -> LayersMemory:
        """Return a copy for other checks; good content stays."""

    @property
    def read(self) -> SourceTree:
        """The tree as read."""

    @property
    def kept(self) -> SourceTree:
        """The tree, with the kept files of lost layers."""

    def files(self) -> Iterable[SourceFile]:
        """Return the files of the loaded layers."""

    def parsed_at(self, path: PurePosixPath) -> Iterator[ParsedFile]:
        """Yield a file's content in each loaded layer."""

    def good(self, held: Iterable[HeldFile]) -> Mapping[PurePosixPath, ParsedFile | None]:
        """Return served contents, given the held files; None if there is none."""


@dataclass(frozen=True, slots=True)
class LoadedViews:
    """The loaded views of a tree.

    Attributes:
        by_layers: an unchanged view is the same object.
        existing: the folders of the tree.
        problems: sorted by place; one names its views unless it shows in all with its layer.
        held: in some view.
        staged: the result of each of `stages.STAGES` per view, None if not needed; empty if not yet staged.
        contents: in order of precedence.
    """

    by_layers: Mapping[Layers, Loaded]
    existing: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()
    held: tuple[HeldFile, ...] = ()
    memory: LayersMemory | None = field(default=None, compare=False, repr=False)
    staged: Mapping[Layers, tuple[Staged | None, ...]] = field(default_factory=dict, compare=False, repr=False)
    contents: tuple[UpstreamContent, ...] = field(default=(), compare=False, repr=False)

    @property
    def wanted(self) -> frozenset[Key]:
        """Undefined names in any view, if they may be elsewhere."""
        return frozenset[Key]().union(*(loaded.wanted for loaded in self.by_layers.values()))

    @property
    def served(self) -> Mapping[Layers, Snapshot]:
        """The result of each view's last stage."""
        return {layers: self._served(layers, loaded.snapshot) for layers, loaded in self.by_layers.items()}

    def _served(self, layers: Layers, snapshot: Snapshot) -> Snapshot:
        return next((one.snapshot for one in reversed(self.staged.get(layers, ())) if one is not None), snapshot)

    def results_of(self, stage_result: type[T]) -> list[T]:
        """Return a stage's results for all views."""
        return [one for results in self.staged.values() for one in results if isinstance(one, stage_result)]


def with_served(
    views: LoadedViews,
    rules: ResolutionRules,
    before: LoadedViews | None,
    contents: tuple[UpstreamContent, ...] = (),
) -> LoadedViews:
    """Add served snapshots, and their problems.

    `contents` is in order of precedence.
    """
    inputs = Inputs(rules, contents)
    staged = {layers: _staged(loaded, layers, inputs, before) for layers, loaded in views.by_layers.items()}
    found = defaultdict[Problem, list[Layers]](list)
    for layers, results in staged.items():
        for problem in (problem for one in results if one is not None for problem in one.problems):
            adjusted = rules.check.adjusted(problem)
            if adjusted is not None:
                found[adjusted].append(layers)
    named = {problem if len(shown) == len(staged) else named_in(problem, shown) for problem, shown in found.items()}
    problems = tuple(sorted(named.union(views.problems))) if named else views.problems
    held = merged_held((views.held, *(one.held for results in staged.values() for one in results if one is not None)))
    return replace(views, staged=staged, contents=contents, problems=problems, held=held)


def _staged(loaded: Loaded, layers: Layers, inputs: Inputs, before: LoadedViews | None) -> tuple[Staged | None, ...]:
    snapshot, inputs = loaded.snapshot, inputs._replace(files=loaded.records, layers=layers)
    were = before.staged.get(layers) if before is not None else None
    earlier = before.by_layers[layers].snapshot if before is not None and were is not None else None
    results = []
    for stage, was in zip(stages.STAGES, were or (None,) * len(stages.STAGES), strict=True):
        result = stage.apply(snapshot, inputs, was, earlier)
        results.append(result)
        snapshot = snapshot if result is None else result.snapshot
        earlier = earlier if was is None else was.snapshot
    return tuple(results)


def folders_of(layers: Layers) -> Layers:
    """Return the layers that are folders, each once."""
    return tuple(dict.fromkeys(name for name in layers if not name.startswith("/")))


def whole_tree(loaded: Loaded) -> LoadedViews:
    """Return the whole tree as the one view."""
    return LoadedViews({WHOLE_TREE: loaded}, problems=loaded.problems, held=loaded.held)


def only_view(views: LoadedViews) -> Loaded:
    """Return the only view, with served snapshot and all problems."""
    ((layers, loaded),) = views.by_layers.items()
    return replace(loaded, snapshot=views.served[layers], problems=views.problems)


def unchecked_views(views: LoadedViews) -> LoadedViews:
    """Return a copy for other checks; good content stays."""
    memory = views.memory
    if memory is None:
        return replace(views, by_layers={layers: unchecked(loaded) for layers, loaded in views.by_layers.items()})
    return replace(views, memory=memory.unchecked())


def named_in(problem: Problem, views: Iterable[Layers]) -> Problem:
    """Add the first few views to a problem's message."""
    # Neither sorted nor counted, so that views requested later do not change a problem that was logged already.
    names = tuple(map(view_text, islice(views, MOST_NAMED + 1)))
    more = " and others" if len(names) > MOST_NAMED else ""
    message = f"{problem.message} (in {', '.join(names[:MOST_NAMED])}{more})"
    elsewhere = None if problem.elsewhere is None else replace(problem.elsewhere, message=message)
    return replace(problem, message=message, elsewhere=elsewhere)


def view_text(layers: Layers) -> str:
    """Format layers: `common + nodes/a`."""
    names = [name for name in layers if not name.startswith("/")]
    marked = f" with the variables of {layers[-1][1:]}" if len(names) < len(layers) and names else ""
    return (" + ".join(names) or "no layer") + marked


def merged_held(of_views: Iterable[Iterable[HeldFile]]) -> tuple[HeldFile, ...]:
    """A file has last good content if all views have it."""
    held: dict[PurePosixPath, HeldFile] = {}
    for files in of_views:
        for file in files:
            known = held.setdefault(file.path, file)
            if known.has_last_good and not file.has_last_good:
                held[file.path] = file
    return tuple(sorted(held.values(), key=lambda file: file.path.parts))
