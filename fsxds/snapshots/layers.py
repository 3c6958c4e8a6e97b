"""Loads a layer on top of the layers below it, which views share.

The layers below are a `Loaded`, and the layer is one change of it: its files appear, and the files below lose the
resources that it replaces. So the rules of acceptance apply as in a tree, and the cost is that of the layer.

Only if the layer is held back by that, it is loaded on top of its previous result. A held file then replaces the
resources of its last good content.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import is_
from pathlib import PurePosixPath

from fsxds.model.resources import Key, ParsedFile
from fsxds.model.values import OverlaidTree, Problem, ProjectedFile, Severity, SourceFile, SourceTree
from fsxds.snapshots.check_protocol import FieldLocator
from fsxds.snapshots.load import Acceptance, Loaded, following, load
from fsxds.snapshots.patches import digest_of_done
from fsxds.snapshots.projections import (
    Carried,
    Projection,
    keys_of,
    may_exist_below,
    project,
    resources_below,
    with_carried,
)
from fsxds.snapshots.proposals import differing


@dataclass(frozen=True, slots=True)
class LayerFiles:
    """The files of one layer, sorted by path."""

    files: tuple[SourceFile, ...] = ()
    problems: tuple[Problem, ...] = ()
    parsed: Mapping[PurePosixPath, ParsedFile] = field(default_factory=dict)

    def is_same(self, other: LayerFiles) -> bool:
        """Compare layers, at an object comparison per file."""
        return (
            (self.files, self.problems) == (other.files, other.problems)
            and self.parsed.keys() == other.parsed.keys()
            and all(map(is_, self.parsed.values(), other.parsed.values()))
        )

    @property
    def is_good(self) -> bool:
        """Whether each file alone could be served."""
        are_readable = not any(problem.severity is Severity.ERROR for problem in self.problems)
        return are_readable and all(parsed.is_good for parsed in self.parsed.values())


@dataclass(frozen=True, slots=True)
class LoadedLayer:
    """A layer loaded on top of others.

    `bare` is `loaded` without `carried`: files below with problems that `bare` does not have. `added` and `removed` are
    the differences from the problems below.
    """

    loaded: Loaded
    bare: Loaded
    below: LoadedLayer | None
    layer: LayerFiles
    carried: Mapping[PurePosixPath, Carried]
    added: tuple[Problem, ...]
    removed: tuple[Problem, ...]


def load_layer(
    below: LoadedLayer | None, layer: LayerFiles, before: LoadedLayer | None, acceptance: Acceptance
) -> LoadedLayer:
    """`below` is None for the lowest layer; `before` is the previous result on any layers, or None."""
    if below is None:
        tree = SourceTree(layer.files, layer.problems)
        bare = load(
            tree, before.bare if before else None, lambda files: [layer.parsed[file.path] for file in files], acceptance
        )
        return LoadedLayer(bare, bare, None, layer, {}, bare.problems, ())
    done = _with_edits_done(below.bare, layer, before, acceptance)
    bare, projection = _LayerLoad(below, done, before, acceptance).load()
    carried = {**below.carried, **projection.carried}
    loaded = with_carried(bare, carried)
    removed, added = differing(below.loaded.problems, loaded.problems)
    return LoadedLayer(loaded, bare, below, layer, carried, added, removed)


def _with_edits_done(
    below: Loaded, layer: LayerFiles, before: LoadedLayer | None, acceptance: Acceptance
) -> LayerFiles:
    patching, edited = acceptance.patching, [parsed for parsed in layer.parsed.values() if parsed.edits]
    if patching is None or not edited or below.memory is None:
        return layer
    bases = resources_below(below, (edit.key for parsed in edited for edit in parsed.edits))
    may_exist = may_exist_below(below)
    digests = {parsed.path: digest_of_done(parsed, bases, may_exist) for parsed in edited}
    files = {
        file.path: ProjectedFile(file, digests[file.path]) if file.path in digests else file for file in layer.files
    }
    locator = FieldLocator(OverlaidTree(below.memory.tree, files), acceptance.locate_up_to_bytes)
    parsed = dict(layer.parsed)
    for each in edited:
        known = before.bare.records.get(each.path) if before else None
        if known is None or known.parsed is None or known.parsed.digest != digests[each.path]:
            parsed[each.path] = patching.done(each, bases, may_exist, locator)
        else:
            parsed[each.path] = known.parsed
    return LayerFiles(tuple(files.values()), layer.problems, parsed)


@dataclass(slots=True)
class _Assumed:
    """Corrections of the assumption that every good file of the layer is served.

    Attributes:
        own: the served content of the layer's files.
        below: the files below with held content, so that only served content can be projected.
    """

    own: dict[PurePosixPath, ParsedFile | None] = field(default_factory=dict)
    below: set[PurePosixPath] = field(default_factory=set)


class _LayerLoad:
    def __init__(
        self, below: LoadedLayer, layer: LayerFiles, before: LoadedLayer | None, acceptance: Acceptance
    ) -> None:
        self._below = below
        self._layer = layer
        self._before = before
        self._acceptance = acceptance
        earlier = before.layer.files if before else ()
        self._paths = {file.path for file in (*layer.files, *earlier)}
        self._below_held = {file.path for file in below.bare.held}

    def load(self) -> tuple[Loaded, Projection]:
        # With authored versions, the layer below would be the same version with other content.
        shared = None if self._acceptance.authored_versions else self._below.bare
        if self._before is None:
            return self._settled(shared)
        if shared is not None and self._layer.is_good:
            loaded, projection = self._attempt(shared, _Assumed())
            if self._below_held.issuperset(file.path for file in loaded.held):
                old_below = self._before.below.bare if self._before.below else self._before.bare
                below = self._below.bare.snapshot, old_below.snapshot
                return following(loaded, self._before.bare, below), projection
        return self._settled(self._before.bare)

    def _settled(self, start: Loaded | None) -> tuple[Loaded, Projection]:
        """Load on top of `start` until the layer replaces exactly the names it is served with."""
        assumed = _Assumed()
        while True:
            loaded, projection = self._attempt(start, assumed)
            if not self._learn(assumed, loaded, projection, start):
                return loaded, projection

    def _attempt(self, start: Loaded | None, assumed: _Assumed) -> tuple[Loaded, Projection]:
        below = self._below.bare
        keys: set[Key] = set()
        for path in self._paths:
            counted = self._counted(path, assumed, start)
            keys |= keys_of(counted) if counted is not None else frozenset()
        projection = project(below, keys, assumed.below)
        tree_below = below.memory.tree if below.memory else SourceTree(())
        files = {**projection.files, **{file.path: file for file in self._layer.files}}
        problems = tuple(one for one in tree_below.problems if one.path not in projection.files)
        tree = OverlaidTree(tree_below, files, (*problems, *self._layer.problems))

        def parse(changed: tuple[SourceFile, ...]) -> list[ParsedFile]:
            return [self._parsed(file.path, projection) for file in changed]

        return load(tree, start, parse, self._acceptance), projection

    def _parsed(self, path: PurePosixPath, projection: Projection) -> ParsedFile:
        """Files below were parsed when they were loaded."""
        found = projection.parsed.get(path) or self._layer.parsed.get(path)
        if found is None and path in self._below.bare.records:
            found = self._below.bare.records[path].parsed
        if found is None:
            raise LookupError(path)
        return found

    def _counted(self, path: PurePosixPath, assumed: _Assumed, start: Loaded | None) -> ParsedFile | None:
        if path in assumed.own:
            return assumed.own[path]
        parsed = self._layer.parsed.get(path)
        if parsed is not None and parsed.is_good:
            return parsed
        # Applies to a vanished file, too: it may be kept.
        record = start.records.get(path) if start else None
        return None if record is None else record.good

    def _learn(self, assumed: _Assumed, loaded: Loaded, projection: Projection, start: Loaded | None) -> bool:
        below = {path for path in projection.parsed.keys() - assumed.below if loaded.records[path].is_held}
        if below:
            # Their held content may be served beside their last good content.
            assumed.below |= below
            return True
        own: dict[PurePosixPath, ParsedFile | None] = {}
        for path in self._paths - assumed.own.keys():
            record, counted = loaded.records.get(path), self._counted(path, assumed, start)
            served = None if record is None else record.good
            if (served.digest if served else None) != (counted.digest if counted else None):
                own[path] = served
        assumed.own.update(own)
        return bool(own)
