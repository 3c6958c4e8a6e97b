"""Divides a tree by its layers.

A layer that the settings name without a folder is lost, which is an error unless its rule has another severity:

| a lost layer | rule |
| --- | --- |
| that the tree before had | keeps its files, until its folder is back or the settings no longer name it |
| that it did not have | may hold anything: it is an unreadable file, so that no resource may be reported as removed |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Protocol

from fsxds.model.values import LostLayer, Problem, SourceFile, SourceTree
from fsxds.snapshots.load import differing_files

NO_LAYER = ""
"""The layer of files outside all layers."""


class LayerRules(Protocol):
    """The settings of layers."""

    def layer_names(self, folders: Collection[str]) -> frozenset[str]:
        """Return the folders that are layers."""

    def lost_layers(self, folders: Collection[str], known: Collection[str]) -> tuple[LostLayer, ...]:
        """Return the lost layers; `known` ones had files before."""


@dataclass(frozen=True, slots=True)
class LayerSource:
    """Files are sorted by path; problems are of reading."""

    files: tuple[SourceFile, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def has_variables(self) -> bool:
        """Whether any file has variables to replace."""
        return any(file.has_variables for file in self.files)


@dataclass(frozen=True, slots=True)
class LayeredTree:
    """A tree divided by its layers.

    Attributes:
        read: without the kept files of lost layers.
        folders: all, as posix paths, including held lost layers.
        by_layer: includes `NO_LAYER`; an unchanged layer is the same object.
    """

    read: SourceTree
    tree: SourceTree
    folders: frozenset[str]
    rules: LayerRules
    names: frozenset[str]
    by_layer: Mapping[str, LayerSource] = field(repr=False)
    lost: tuple[LostLayer, ...] = ()

    @classmethod
    def of(cls, read: SourceTree, rules: LayerRules, before: LayeredTree | None) -> LayeredTree:
        """Divide a tree; while no folder comes or goes, only differences cost."""
        last = before if before is not None and before.rules is rules else None
        if last is not None and last.has_paths_of(read):
            return replace(last, read=read, tree=read, by_layer=last.updated(read))
        tree, lost = _with_lost(read, rules, before)
        folders = _folders(tree)
        names = rules.layer_names(folders) if last is None or last.folders != folders else last.names
        by_layer = _divided(tree, names) if last is None or last.names != names else last.updated(tree)
        return cls(read, tree, folders, rules, names, by_layer, lost)

    def has_paths_of(self, read: SourceTree) -> bool:
        """Whether a tree certainly has the same folders."""
        files, missing = differing_files(self.tree, read)
        is_same_set = len(self.tree.files) == len(read.files) and missing == {file.path for file in files}
        return is_same_set and not self.lost and self.tree.problems == read.problems

    def updated(self, tree: SourceTree) -> Mapping[str, LayerSource]:
        """Return the layers of a tree that has the same ones."""
        changed, missing = differing_files(self.tree, tree)
        finder = self.finder()
        new: defaultdict[str, dict[PurePosixPath, SourceFile]] = defaultdict(dict)
        for path in missing:
            new[finder.layer_of(path)] = {}
        for file in changed:
            new[finder.layer_of(file.path)][file.path] = file
        of_problems = finder.by_layer(tree.problems)
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
        """Return a finder of layers."""
        return LayerFinder(self.names)

    def source(self, name: str) -> LayerSource:
        """Return the content of a layer."""
        return self.by_layer.get(name, LayerSource())

    @property
    def known(self) -> Mapping[str, LayerSource]:
        """The content of existing and kept layers."""
        unknown = frozenset[str]().union(*(one.folders for one in self.lost if not one.is_kept))
        return {name: source for name, source in self.by_layer.items() if name not in unknown | {NO_LAYER}}


class LayerFinder:
    """Finds the innermost layer of a path."""

    def __init__(self, names: frozenset[str]) -> None:
        self._known: dict[tuple[str, ...], str] = {(): NO_LAYER}
        self._names = names

    def layer_of(self, path: PurePosixPath) -> str:
        """Return the layer of a file."""
        return self._of_folder(path.parts[:-1])

    def _of_folder(self, parts: tuple[str, ...]) -> str:
        known = self._known.get(parts)
        if known is None:
            name = "/".join(parts)
            known = self._known[parts] = name if name in self._names else self._of_folder(parts[:-1])
        return known

    def by_layer(self, problems: Iterable[Problem]) -> dict[str, tuple[Problem, ...]]:
        """A folder's problem belongs to the layer in it."""
        found: defaultdict[str, list[Problem]] = defaultdict(list)
        for problem in problems:
            found[self._of_folder(problem.path.parts)].append(problem)
        return {name: tuple(of_layer) for name, of_layer in found.items()}


def _with_lost(
    read: SourceTree, rules: LayerRules, before: LayeredTree | None
) -> tuple[SourceTree, tuple[LostLayer, ...]]:
    known = before.known if before else {}
    lost = rules.lost_layers(_folders(read), known.keys())
    held = [one for one in lost if one.held]
    if not held:
        return read, lost
    kept = [known[name] for name in frozenset[str]().union(*(one.folders for one in held)) if name in known]
    files = (*read.files, *(file for source in kept for file in source.files))
    problems = {*read.problems, *(one for source in kept for one in source.problems)}
    problems |= {one.problem for one in held if not one.is_kept}
    ordered = tuple(sorted(files, key=lambda file: file.path.parts))
    return replace(read, files=ordered, problems=tuple(sorted(problems))), lost


def _divided(tree: SourceTree, names: frozenset[str]) -> Mapping[str, LayerSource]:
    finder = LayerFinder(names)
    files: defaultdict[str, list[SourceFile]] = defaultdict(list)
    for file in tree.files:
        files[finder.layer_of(file.path)].append(file)
    problems = finder.by_layer(tree.problems)
    return {name: LayerSource(tuple(files.get(name, ())), problems.get(name, ())) for name in files.keys() | problems}


def _replaced(
    files: tuple[SourceFile, ...], new: Mapping[PurePosixPath, SourceFile], missing: Collection[PurePosixPath]
) -> tuple[SourceFile, ...]:
    kept = {file.path: file for file in files if file.path not in missing}
    return tuple(sorted({**kept, **new}.values(), key=lambda file: file.path.parts))


def _folders(tree: SourceTree) -> frozenset[str]:
    """An unreadable path may be a folder."""
    known: set[tuple[str, ...]] = {problem.path.parts for problem in tree.problems}
    new = {path.parts[:-1] for path in (*(file.path for file in tree.files), *(one.path for one in tree.problems))}
    while new:
        known |= new
        new = {parts[:-1] for parts in new} - known
    return frozenset("/".join(parts) for parts in known if parts)
