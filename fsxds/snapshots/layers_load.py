"""Divides a tree by its layers, and loads the wanted views layer by layer; shared layers are loaded once.

A layer of no wanted view is not even parsed. The cost of problems is by those that a layer adds or removes. A layer in
the settings without a folder is lost, an error unless its rule has another severity:

| a lost layer | rule |
| --- | --- |
| that the tree before had | keeps its files, until its folder is back or the settings no longer name it |
| that it did not have | is like an unreadable file: no resource may be reported as removed |

Rules: a file belongs to the innermost layer; a layer without a folder keeps its content; in which views a problem
shows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Protocol

from fsxds.model.resources import ParsedFile
from fsxds.model.values import HeldFile, Layers, LostLayer, Problem, Severity, SourceFile, SourceTree, VariedFile
from fsxds.settings.view_rules import Variables
from fsxds.snapshots.layers import LayerFiles, LoadedLayer, load_layer
from fsxds.snapshots.load import Acceptance, differing_files, unchecked
from fsxds.snapshots.loaded_views import LoadedViews, folders_of, merged_held, named_in

# The maximum number of files in no layer named in their note; further files are counted.
MOST_NAMED = 5

LayerKey = tuple[str, str]
"""A layer, and the mark of the view whose variables apply, or an empty text."""


@dataclass(frozen=True, slots=True)
class ViewsMemory:
    """One load's memory for the next; `loaded` by layers from the lowest."""

    tree: LayeredTree
    layers: Mapping[LayerKey, LayerFiles]
    loaded: Mapping[Layers, LoadedLayer]

    @property
    def read(self) -> SourceTree:
        """The tree as read."""
        return self.tree.read

    @property
    def kept(self) -> SourceTree:
        """With the kept files of lost layers."""
        return self.tree.tree

    def files(self) -> Iterable[SourceFile]:
        """Return the loaded layers' files."""
        return (file for layer in self.layers.values() for file in layer.files)

    def parsed_at(self, path: PurePosixPath) -> Iterator[ParsedFile]:
        """Yield its content in each layer."""
        return (layer.parsed[path] for layer in self.layers.values() if path in layer.parsed)

    def good(self, held: Iterable[HeldFile]) -> Mapping[PurePosixPath, ParsedFile | None]:
        """Return served contents or None, given held files."""
        good: dict[PurePosixPath, ParsedFile | None] = {}
        for layer in self.layers.values():
            good |= layer.parsed
        for one in held:
            records = (each.bare.records.get(one.path) for each in self.loaded.values())
            good[one.path] = next((record.good for record in records if record is not None), None)
        return good

    def unchecked(self) -> ViewsMemory:
        """Return a copy for other checks: all is parsed again."""
        loaded = {key: replace(each, bare=unchecked(each.bare)) for key, each in self.loaded.items()}
        return replace(self, layers={}, loaded=loaded)


class ViewsLoad:
    """Loads views on top of the previous load.

    A file with several variants occurs several times in `unparsed`.
    """

    def __init__(
        self,
        tree: SourceTree,
        wanted: Collection[Layers] | Mapping[Layers, Variables],
        rules: LayerRules,
        before: LoadedViews | None,
    ) -> None:
        """`wanted` may map views to variables; `rules` is a new object if layers changed."""
        memory = before.memory if before and isinstance(before.memory, ViewsMemory) else None
        self._tree = LayeredTree.of(tree, rules, memory.tree if memory else None)
        self._layers_before = memory.layers if memory else {}
        self._loaded_before = memory.loaded if memory else {}
        self._marks_before = {_mark(view) for view in before.by_layers} - {""} if before else set[str]()
        self._loaded: dict[Layers, LoadedLayer] = {}
        self._wanted = tuple(wanted)
        # A view stays as last loaded if the settings no longer name one of its layers.
        unnamed = self._tree.folders - self._tree.names
        old = before.by_layers if before else {}
        self._left = {view: one for view, one in old.items() if not unnamed.isdisjoint(folders_of(view))}
        self._chains = {view: tuple(self._chain(view)) for view in wanted if view not in self._left}
        variables = {_mark(view): of_view for view, of_view in wanted.items()} if isinstance(wanted, Mapping) else {}
        keys = {key: variables.get(_mark(key)) for chain in self._chains.values() for key in chain if folders_of(key)}
        self._sources = {_layer_key(key): self._source(key, of_view) for key, of_view in keys.items()}
        self._unparsed = tuple(
            (key, file)
            for key, source in self._sources.items()
            for file in source.files
            if self._known(key, file) is None
        )
        self.unparsed = tuple(file for _, file in self._unparsed)

    def load(self, parsed: Iterable[ParsedFile], acceptance: Acceptance) -> LoadedViews:
        """`parsed` are the results for `unparsed`."""
        fresh = {(key, file.path): one for (key, file), one in zip(self._unparsed, parsed, strict=True)}
        layers = {}
        for of_layer, source in self._sources.items():
            known = ((file.path, self._known(of_layer, file) or fresh[of_layer, file.path]) for file in source.files)
            now, was = LayerFiles(source.files, source.problems, dict(known)), self._layers_before.get(of_layer)
            layers[of_layer] = was if was is not None and was.is_same(now) else now
        loaded = self._loaded
        for chain in self._chains.values():
            for below, key in zip((None, *chain), chain, strict=False):
                if key not in loaded:
                    layer = layers.get(_layer_key(key)) or LayerFiles()
                    loaded[key] = self._loaded_layer(key, None if below is None else loaded[below], layer, acceptance)
        views = {view: loaded[chain[-1]] for view, chain in self._chains.items()}
        outside = self._outside()
        note = acceptance.check.adjusted(outside) if outside else None
        lost = self._tree.lost
        noted = {*(one.problem for one in lost), *filter(None, (note,))}
        problems = merged_problems(views, LayerFinder(self._tree.names).layer_of)
        return LoadedViews(
            {view: views[view].loaded if view in views else self._left[view] for view in self._wanted},
            self._tree.folders,
            tuple(sorted(noted.union(problems))) if noted else problems,
            merged_held((*(view.loaded.held for view in views.values()), filter(None, (one.held for one in lost)))),
            ViewsMemory(self._tree, layers, loaded),
        )

    def _chain(self, view: Layers) -> Iterator[Layers]:
        """Yield the keys of a view's layers, the lowest first.

        From the first layer with variables on, the view's are part of the key.
        """
        names, mark = folders_of(view), _mark(view)
        varied: Layers = ()
        for end in range(min(len(names), 1), len(names) + 1):
            # Also if it once did: a file that is broken now may have used some when it was good.
            was_varied = (*names[:end], mark) in self._loaded_before
            if mark and end and (was_varied or self._tree.source(names[end - 1]).has_variables):
                varied = (mark,)
            yield names[:end] + varied

    def _loaded_layer(
        self, key: Layers, below: LoadedLayer | None, layer: LayerFiles, acceptance: Acceptance
    ) -> LoadedLayer:
        before = self._loaded_before.get(key)
        if before is None and _mark(key) in self._marks_before:
            # The view's first file with variables appeared: continue from its content without them.
            before = self._loaded_before.get(folders_of(key))
        is_same = before is not None and before.below is below and before.layer is layer
        if before is not None and is_same and not before.loaded.depends_on(acceptance.elsewhere):
            return before
        if before is None and below is None and _mark(key):
            # On top of one with other variables, to share equal content.
            others = (each for other, each in self._loaded.items() if each.below is None and other[:1] == key[:1])
            variant = next((load_layer(None, layer, other, acceptance) for other in others), None)
            # A file held back beside the content of another view might be good by itself.
            return load_layer(None, layer, None, acceptance) if variant is None or variant.bare.held else variant
        return load_layer(below, layer, before, acceptance)

    def _source(self, key: Layers, variables: Variables | None) -> LayerSource:
        source = self._tree.source(folders_of(key)[-1])
        if not _mark(key) or variables is None:
            return source
        files = tuple(
            VariedFile(file, variables.texts, variables.unset) if file.has_variables else file for file in source.files
        )
        before = self._layers_before.get(_layer_key(key))
        # Previous objects are recognized at once.
        same = {file: file for file in before.files} if before else {}
        return LayerSource(tuple(same.get(file, file) for file in files), source.problems)

    def _known(self, key: LayerKey, file: SourceFile) -> ParsedFile | None:
        before = self._layers_before.get(key)
        parsed = before.parsed.get(file.path) if before else None
        return parsed if parsed is not None and parsed.digest == file.digest else None

    def _outside(self) -> Problem | None:
        files = self._tree.source(NO_LAYER).files
        if not files:
            return None
        first, *others = (file.path for file in files)
        named = "".join(f", {path}" for path in others[:MOST_NAMED])
        more = f", … {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
        fact = "is in no layer of any view" + (f"; nor are{named.removeprefix(',')}{more}" if others else "")
        remedy = "move it into the folder of a layer, or add its folder to the layers of a view"
        return Problem(first, 1, 1, "", "no-layer", fact, remedy, Severity.NOTE)


def _mark(layers: Layers) -> str:
    return layers[-1] if len(layers) > 1 and layers[-1].startswith("/") else ""


def _layer_key(key: Layers) -> LayerKey:
    return (folders_of(key) or ("",))[-1], _mark(key)


_Found = tuple[Problem, Severity]
"""The severity of a problem may differ between views."""


def merged_problems(
    views: Mapping[Layers, LoadedLayer], layer_of: Callable[[PurePosixPath], str]
) -> tuple[Problem, ...]:
    """Return all problems, sorted by place.

    One missing in a view with its layer names its views.
    """
    above: defaultdict[int, list[Layers]] = defaultdict(list)
    loaded: dict[int, LoadedLayer] = {}
    for layers, last in views.items():
        each: LoadedLayer | None = last
        while each is not None:
            loaded[id(each)] = each
            above[id(each)].append(layers)
            each = each.below
    counts: Counter[_Found] = Counter()
    for number, each in loaded.items():
        counts.update(dict.fromkeys(map(_found, each.added), len(above[number])))
        counts.subtract(dict.fromkeys(map(_found, each.removed), len(above[number])))
    with_layer = Counter(name for layers in views for name in layers)
    partial = {found for found, count in counts.items() if 0 < count < with_layer[layer_of(found[0].path)]}
    shown: defaultdict[_Found, Counter[Layers]] = defaultdict(Counter)
    for number, each in loaded.items() if partial else ():
        for found in partial.intersection(map(_found, each.added)):
            shown[found].update(above[number])
        for found in partial.intersection(map(_found, each.removed)):
            shown[found].subtract(above[number])
    problems = [
        problem for problem, severity in counts if counts[problem, severity] and (problem, severity) not in partial
    ]
    for problem, severity in partial:
        counted = shown[problem, severity]
        problems.append(named_in(problem, (layers for layers in views if counted[layers] > 0)))
    return tuple(sorted({problem.elsewhere or problem for problem in problems}))


def _found(problem: Problem) -> _Found:
    return problem, problem.severity


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
        folders: all, as posix paths, with held lost layers.
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
        """Return the same layers of another tree."""
        changed, missing = differing_files(self.tree, tree)
        finder = LayerFinder(self.names)
        new: defaultdict[str, dict[PurePosixPath, SourceFile]] = defaultdict(dict)
        for path in missing:
            new[finder.layer_of(path)] = {}
        for file in changed:
            new[finder.layer_of(file.path)][file.path] = file
        of_problems = finder.by_layer(tree.problems)
        by_layer = dict(self.by_layer)
        for name in by_layer.keys() | new.keys() | of_problems.keys():
            was = self.by_layer.get(name, LayerSource())
            files = was.files
            if name in new:
                kept = {file.path: file for file in files if file.path not in missing}
                files = tuple(sorted({**kept, **new[name]}.values(), key=lambda file: file.path.parts))
            source = LayerSource(files, of_problems.get(name, ()))
            if source.files is not was.files or source.problems != was.problems:
                by_layer[name] = source
        return by_layer

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


def _folders(tree: SourceTree) -> frozenset[str]:
    known: set[tuple[str, ...]] = {problem.path.parts for problem in tree.problems}
    new = {path.parts[:-1] for path in (*(file.path for file in tree.files), *(one.path for one in tree.problems))}
    while new:
        known |= new
        new = {parts[:-1] for parts in new} - known
    return frozenset("/".join(parts) for parts in known if parts)
