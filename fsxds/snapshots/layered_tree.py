"""A tree by its layers: which folders are layers, and which file is in which of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from fsxds.snapshots.load import differing_files
from fsxds.values import Problem, SourceFile, SourceTree

NO_LAYER = ""
"""Stands for the layer of what is in none."""

LayerNames = Callable[[frozenset[str]], frozenset[str]]
"""Returns which of the folders of a tree are layers."""


@dataclass(frozen=True, slots=True)
class LayerSource:
    """What a layer holds: its files, sorted by path, and what could not be read of it."""

    files: tuple[SourceFile, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def has_variables(self) -> bool:
        """Whether variables are to be replaced in any of its files."""
        return any(file.has_variables for file in self.files)


@dataclass(frozen=True, slots=True)
class LayeredTree:
    """A tree by its layers.

    Attributes:
        tree: all of it.
        folders: all its folders, as posix paths.
        layer_names: says which folders are layers.
        names: those that are.
        by_layer: what each holds, `NO_LAYER` for what is in none; a layer that stays as it was is the same object.
    """

    tree: SourceTree
    folders: frozenset[str]
    layer_names: LayerNames
    names: frozenset[str]
    by_layer: Mapping[str, LayerSource] = field(repr=False)

    @classmethod
    def of(cls, tree: SourceTree, layer_names: LayerNames, before: LayeredTree | None) -> LayeredTree:
        """Divide a tree; `before` is the one before. The cost follows what differs, as long as no folder comes or goes."""
        if before is None or before.layer_names != layer_names:
            folders = _folders(tree)
            return cls._anew(tree, folders, layer_names, layer_names(folders))
        files, missing = differing_files(before.tree, tree)
        is_same_set = len(before.tree.files) == len(tree.files) and missing == {file.path for file in files}
        folders = before.folders if is_same_set and before.tree.problems == tree.problems else _folders(tree)
        names = before.names if folders == before.folders else layer_names(folders)
        if names != before.names:
            return cls._anew(tree, folders, layer_names, names)
        return cls(tree, folders, layer_names, names, before.updated(files, missing, tree.problems))

    @classmethod
    def _anew(
        cls, tree: SourceTree, folders: frozenset[str], layer_names: LayerNames, names: frozenset[str]
    ) -> LayeredTree:
        finder = LayerFinder(names)
        files: defaultdict[str, list[SourceFile]] = defaultdict(list)
        for file in tree.files:
            files[finder.layer_of(file.path)].append(file)
        problems = finder.by_layer(tree.problems)
        by_layer = {
            name: LayerSource(tuple(files.get(name, ())), problems.get(name, ())) for name in files.keys() | problems
        }
        return cls(tree, folders, layer_names, names, by_layer)

    def updated(
        self, changed: Iterable[SourceFile], missing: Collection[PurePosixPath], problems: tuple[Problem, ...]
    ) -> Mapping[str, LayerSource]:
        """Return what each layer holds when these files are others, and those at the missing paths are not as they were."""
        finder = self.finder()
        new: defaultdict[str, dict[PurePosixPath, SourceFile]] = defaultdict(dict)
        for path in missing:
            new[finder.layer_of(path)] = {}
        for file in changed:
            new[finder.layer_of(file.path)][file.path] = file
        of_problems = finder.by_layer(problems)
        by_layer = dict(self.by_layer)
        for name in by_layer.keys() | new.keys() | of_problems.keys():
            was, files = self.by_layer.get(name, LayerSource()), new.get(name)
            source = LayerSource(
                was.files if files is None else _replaced(was.files, files, missing), of_problems.get(name, ())
            )
            if source.files is not was.files or source.problems != was.problems:
                by_layer[name] = source
        return by_layer

    def finder(self) -> LayerFinder:
        """Return what finds the layers of paths."""
        return LayerFinder(self.names)

    def source(self, name: str) -> LayerSource:
        """Return what a layer holds."""
        return self.by_layer.get(name, LayerSource())


class LayerFinder:
    """Finds the innermost layer that a path is in; each folder is looked at once."""

    def __init__(self, names: frozenset[str]) -> None:
        self._known: dict[tuple[str, ...], str] = {(): NO_LAYER}
        self._names = names

    def layer_of(self, path: PurePosixPath) -> str:
        """Return the layer of a file, `NO_LAYER` where it is in none."""
        return self._of_folder(path.parts[:-1])

    def _of_folder(self, parts: tuple[str, ...]) -> str:
        known = self._known.get(parts)
        if known is None:
            name = "/".join(parts)
            known = self._known[parts] = name if name in self._names else self._of_folder(parts[:-1])
        return known

    def by_layer(self, problems: Iterable[Problem]) -> dict[str, tuple[Problem, ...]]:
        """Return problems by their layers; that of a folder belongs to the layer that it is."""
        found: defaultdict[str, list[Problem]] = defaultdict(list)
        for problem in problems:
            found[self._of_folder(problem.path.parts)].append(problem)
        return {name: tuple(of_layer) for name, of_layer in found.items()}


def _replaced(
    files: tuple[SourceFile, ...], new: Mapping[PurePosixPath, SourceFile], missing: Collection[PurePosixPath]
) -> tuple[SourceFile, ...]:
    kept = {file.path: file for file in files if file.path not in missing}
    return tuple(sorted({**kept, **new}.values(), key=lambda file: file.path.parts))


def _folders(tree: SourceTree) -> frozenset[str]:
    """Return all folders of a tree; what cannot be read may be one."""
    known: set[tuple[str, ...]] = {problem.path.parts for problem in tree.problems}
    new = {path.parts[:-1] for path in (*(file.path for file in tree.files), *(one.path for one in tree.problems))}
    while new:
        known |= new
        new = {parts[:-1] for parts in new} - known
    return frozenset("/".join(parts) for parts in known if parts)
