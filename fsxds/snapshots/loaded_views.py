"""Loaded views, and the stages that make their served snapshots. Pure.

Without layers there is one view.

| stage | is needed |
| --- | --- |
| add the resources of upstreams below the files | while an upstream has any |
| follow redirects and locators | while there is one |
| make collections of folders, and find dangling entries | while one is written, or the settings have one |

A stage's module is imported when first needed. A stage that changed the snapshot is applied once more when no longer
needed, as a change like any other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import islice
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar, cast

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraints import FieldRules
from fsxds.model.name_table import Chunk
from fsxds.model.resource_names import is_structured
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Key, ParsedFile, Reference, Resource, Snapshot
from fsxds.model.values import WHOLE_TREE, HeldFile, Layers, Problem, SourceFile, SourceTree
from fsxds.settings.naming_rules import CollectionRule
from fsxds.snapshots.load import Loaded, unchecked
from fsxds.snapshots.parse import field_rules
from fsxds.snapshots.proposals import Check, NoCheck, Records
from fsxds.snapshots.upstream_content import UpstreamContent

T = TypeVar("T")
V = TypeVar("V")

# The maximum number of views named in one problem.
MOST_NAMED = 3


class LayersMemory(Protocol):
    """The memory for the next load of layers."""

    def unchecked(self) -> LayersMemory:
        """Return a copy for other checks."""

    @property
    def read(self) -> SourceTree:
        """The tree as read."""

    @property
    def kept(self) -> SourceTree:
        """With the kept files of lost layers."""

    def files(self) -> Iterable[SourceFile]:
        """Return the loaded layers' files."""

    def parsed_at(self, path: PurePosixPath) -> Iterator[ParsedFile]:
        """Yield its content in each layer."""

    def good(self, held: Iterable[HeldFile]) -> Mapping[PurePosixPath, ParsedFile | None]:
        """Return served contents or None, given held files."""


@dataclass(frozen=True, slots=True)
class LoadedViews:
    """The loaded views of a tree.

    Attributes:
        by_layers: an unchanged view is the same object.
        existing: the folders of the tree.
        problems: sorted by place; one names its views unless all with its layer have it.
        held: in some view.
        staged: each view's results of `STAGES`, None if not needed; empty if not yet staged.
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
        """Each view's last stage."""
        return {
            layers: next(
                (one.snapshot for one in reversed(self.staged.get(layers, ())) if one is not None), loaded.snapshot
            )
            for layers, loaded in self.by_layers.items()
        }

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

    `contents` are in order of precedence.
    """
    inputs = Inputs(rules, contents)
    staged = {layers: _staged(loaded, layers, inputs, before) for layers, loaded in views.by_layers.items()}
    found = {
        layers: filter(None, (rules.check.adjusted(one) for result in results if result for one in result.problems))
        for layers, results in staged.items()
    }
    named = {named_in(problem, shown) if shown else problem for problem, shown in by_views(found).items()}
    problems = tuple(sorted(named.union(views.problems))) if named else views.problems
    held = merged_held((views.held, *(one.held for results in staged.values() for one in results if one is not None)))
    return replace(views, staged=staged, contents=contents, problems=problems, held=held)


def _staged(loaded: Loaded, layers: Layers, inputs: Inputs, before: LoadedViews | None) -> tuple[Staged | None, ...]:
    snapshot, inputs = loaded.snapshot, inputs._replace(files=loaded.records, layers=layers)
    were = before.staged.get(layers) if before is not None else None
    earlier = before.by_layers[layers].snapshot if before is not None and were is not None else None
    results = []
    for stage, was in zip(STAGES, were or (None,) * len(STAGES), strict=True):
        result = stage.apply(snapshot, inputs, was, earlier)
        results.append(result)
        snapshot = snapshot if result is None else result.snapshot
        earlier = earlier if was is None else was.snapshot
    return tuple(results)


def folders_of(layers: Layers) -> Layers:
    """Return the layers that are folders, each once."""
    return tuple(dict.fromkeys(name for name in layers if not name.startswith("/")))


def whole_tree(loaded: Loaded) -> LoadedViews:
    """Make the tree the one view."""
    return LoadedViews({WHOLE_TREE: loaded}, problems=loaded.problems, held=loaded.held)


def only_view(views: LoadedViews) -> Loaded:
    """Return the only view, served, with all problems."""
    ((layers, loaded),) = views.by_layers.items()
    return replace(loaded, snapshot=views.served[layers], problems=views.problems)


def unchecked_views(views: LoadedViews) -> LoadedViews:
    """Return a copy for other checks."""
    memory = views.memory
    if memory is None:
        return replace(views, by_layers={layers: unchecked(loaded) for layers, loaded in views.by_layers.items()})
    return replace(views, memory=memory.unchecked())


def by_views(findings: Mapping[V, Iterable[T]]) -> dict[T, tuple[V, ...]]:
    """Return each finding once with its views, or with none if all have it."""
    found: defaultdict[T, list[V]] = defaultdict(list)
    for view, each in findings.items():
        for finding in each:
            found[finding].append(view)
    return {finding: () if len(shown) == len(findings) else tuple(shown) for finding, shown in found.items()}


def named_in(problem: Problem, views: Iterable[Layers]) -> Problem:
    """Add the first views to a problem's message."""
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


@dataclass(frozen=True, slots=True)
class ResolutionRules:
    """Settings of names that lead to other resources.

    Attributes:
        authority: completes names.
        passes_redirects: clients on streams follow redirects themselves, to other authorities too.
        root: the tree's absolute path for `file:///` locators, or empty.
        catalogue: None if no resource is to be made and no redirect followed.
        unasked: the authorities of upstreams that are not queried here, as by commands; None for all.
    """

    authority: str = ""
    authorities: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    passes_redirects: bool = False
    root: str = ""
    catalogue: Catalogue | None = field(default=None, compare=False, repr=False)
    check: Check = field(default_factory=NoCheck, repr=False)
    collections: tuple[CollectionRule, ...] = ()
    unasked: frozenset[str] | None = frozenset()
    _compiled: dict[Catalogue, FieldRules] = field(default_factory=dict, init=False, compare=False, repr=False)

    def collects_as(self, other: ResolutionRules) -> bool:
        """Whether folders' collections are made alike."""
        return (self.collections, self.authority, self.root) == (other.collections, other.authority, other.root)

    def collection_name(self, rule: CollectionRule) -> str:
        """Return a collection's canonical name."""
        return str(replace(rule.name, authority=rule.name.authority or self.authority))

    def collections_by_name(self) -> Mapping[str, CollectionRule]:
        """Return the collections of folders by canonical names."""
        return {self.collection_name(rule): rule for rule in self.collections}

    def field_rules(self, catalogue: Catalogue) -> FieldRules:
        """Return the rules that find references, compiled once."""
        if catalogue not in self._compiled:
            self._compiled[catalogue] = field_rules(catalogue, self.check)
        return self._compiled[catalogue]


class Inputs(NamedTuple):
    """`contents` are in order of precedence; `files` and `layers` are a view's."""

    rules: ResolutionRules
    contents: tuple[UpstreamContent, ...] = ()
    files: Records = MappingProxyType({})
    layers: Layers = WHOLE_TREE


class Staged(Protocol):
    """A view after a stage, with its memory."""

    @property
    def snapshot(self) -> Snapshot:
        """The result; `raw` itself if the stage changed nothing."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The stage's problems, sorted by place."""

    @property
    def raw(self) -> Snapshot:
        """The snapshot before the stage."""

    @property
    def held(self) -> tuple[HeldFile, ...]:
        """Files that the stage holds back."""


class StageModule(Protocol):
    """A stage's module."""

    def unchanged(self, raw: Snapshot, inputs: Inputs) -> Staged:
        """Return a view that did not need the stage."""

    def apply(self, raw: Snapshot, inputs: Inputs, before: Staged | None) -> Staged:
        """Apply the stage, sharing unchanged parts with `before`, its own last result."""


class Stage(NamedTuple):
    """A module, and when it is needed."""

    module: str
    is_needed: Callable[[Snapshot, Snapshot | None, Inputs], bool]

    def apply(self, raw: Snapshot, inputs: Inputs, before: Staged | None, earlier: Snapshot | None) -> Staged | None:
        """Return a view after this stage; None if not needed.

        `raw` is the result of the earlier stages, `earlier` their last one, None for a new view. `before` is this stage's last
        result, or None.
        """
        was_used = before is not None and before.snapshot is not before.raw
        # While a stage is not needed, only changes are examined.
        if not was_used and not self.is_needed(raw, None if before is not None else earlier, inputs):
            return None
        module = cast("StageModule", import_module(self.module))
        if before is None and earlier is not None:
            before = module.unchanged(earlier, inputs)
        return module.apply(raw, inputs, before)


def has_directives(reference: Reference) -> bool:
    """Whether it is a locator with directives."""
    return "#" in reference.name and is_structured(reference.name)


def locates(resource: Resource) -> bool:
    """Whether a reference has directives."""
    return any(map(has_directives, resource.references))


def is_redirect_elsewhere(resource: Resource) -> bool:
    """Whether the served form depends on other resources."""
    return bool(resource.redirect) or locates(resource)


def names_redirected_elsewhere(chunk: Chunk[Resource]) -> tuple[str, ...]:
    """Return a chunk's names that lead elsewhere."""
    return tuple(
        name for name, resource in zip(chunk.names, chunk.values, strict=True) if is_redirect_elsewhere(resource)
    )


def _has_redirects(raw: Snapshot, earlier: Snapshot | None, inputs: Inputs) -> bool:
    return inputs.rules.catalogue is not None and any(
        chunk.once(names_redirected_elsewhere)
        for type_url, rows in raw.by_type.items()
        if earlier is None or earlier.by_type.get(type_url) is not rows
        for chunk in rows.chunks
    )


STAGES = (
    Stage("fsxds.snapshots.upstream_rows", lambda _raw, _earlier, inputs: bool(inputs.contents)),
    Stage("fsxds.snapshots.resolution", _has_redirects),
    Stage(
        "fsxds.snapshots.folder_collections",
        lambda raw, _, inputs: bool(inputs.rules.collections or raw.by_type.get(BY_SHORT_NAME["lcds"].type_url)),
    ),
)
"""In order of application."""
