"""A tree in an editor: files, replaced by unsaved texts.

Its problems are those of `fsxds check`, whatever the history of edits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from fsxds.api.catalogue import Catalogue
from fsxds.editor.mentions_of_names import ResourceNames
from fsxds.lint.linter import Linter
from fsxds.lint.reference_findings import with_undefined_names
from fsxds.model.errors import TreeLost
from fsxds.model.resources import ParsedFile
from fsxds.model.values import Problem, Severity, SourceFile, SourceTree
from fsxds.runtime.views import Views
from fsxds.server.loading_rules import LoadingRules, exclusion_of, ignored_note, is_read, scanner_of, with_ignored
from fsxds.server.parse_worker import parse_one
from fsxds.settings.naming_rules import NO_RULES, NamingRules
from fsxds.settings.options import Settings
from fsxds.snapshots.layers_load import LayeredTree, ViewsLoad, ViewsMemory
from fsxds.snapshots.load import Loaded, load
from fsxds.snapshots.loaded_views import LoadedViews, whole_tree, with_served

Buffers = Mapping[PurePosixPath, str]
"""The texts open in the editor."""


@dataclass(frozen=True)
class TreeView:
    """A tree at one moment.

    Attributes:
        files: saved or not.
        readable: each file's last readable state.
        static_clusters: of the bootstrap.
    """

    files: Mapping[PurePosixPath, SourceFile]
    problems: tuple[Problem, ...]
    parsed: Mapping[PurePosixPath, ParsedFile]
    readable: Mapping[PurePosixPath, ParsedFile]
    static_clusters: frozenset[str] = frozenset()
    naming: NamingRules = NO_RULES

    @cached_property
    def names(self) -> ResourceNames:
        """The defined and mentioned names."""
        return ResourceNames.of(self.readable.values())

    def text(self, path: PurePosixPath) -> str:
        """Return a file's text, or empty."""
        file = self.files.get(path)
        return "" if file is None else file.content.decode(errors="replace")


NOTHING_READ = TreeView({}, (), {}, {})


_Problems = tuple[Problem, ...]
_Parsed = Mapping[PurePosixPath, ParsedFile]


def _is_clean(loaded: Loaded | LoadedViews) -> bool:
    return not loaded.held and all(problem.severity is not Severity.ERROR for problem in loaded.problems)


class EditedTree:
    """Reads a tree repeatedly, and parses each content once. For one caller at a time; blocking."""

    def __init__(self, root: Path, settings: Settings, catalogue: Catalogue, linter: Linter) -> None:
        self.root = root.absolute()
        self._settings = settings
        self._linter = linter
        self._scanner = scanner_of(self.root, settings)
        self._exclusion = exclusion_of(settings)
        rules = LoadingRules.of(settings, catalogue, linter, self.root)
        self._resolution = rules.resolution
        # Like `fsxds check`: every problem has a line and column.
        self._acceptance = replace(rules.acceptance, locate_up_to_bytes=None)
        self._naming = rules.parsing.naming
        self._parser = rules.parsing.make_parser()
        self._scanned = SourceTree(())
        self._parsed: dict[tuple[PurePosixPath, str], ParsedFile] = {}
        self._readable: dict[PurePosixPath, ParsedFile] = {}
        self._clean: Loaded | None = None
        self._views = Views(settings.views, settings.variables, linter.adjusted)
        self._clean_views: LoadedViews | None = None

    def path_of(self, path: Path) -> PurePosixPath | None:
        """Return a path in the tree; the file need not exist."""
        for root, one in ((self.root, path), (self.root.resolve(), path.resolve())):
            if one.is_relative_to(root):
                inside = PurePosixPath(one.relative_to(root))
                return inside if self._belongs(inside) else None
        return None

    def _belongs(self, path: PurePosixPath) -> bool:
        is_hidden = any(part.startswith(".") for part in path.parts)
        return bool(path.parts) and is_read(path.name) and not is_hidden and not self._exclusion.covers(str(path))

    def load(self, buffers: Buffers, *, is_disk_read: bool) -> TreeView:
        """Load the tree with open texts; `is_disk_read` scans files again."""
        if is_disk_read:
            try:
                self._scanned = self._scanner.scan()
            except TreeLost:
                # Open texts are still checked.
                self._scanned = SourceTree(())
        tree = self._overlaid(self._scanned, buffers)
        problems, parsed = self._loaded(tree)
        readable = {path: one if one.documents else self._readable.get(path, one) for path, one in parsed.items()}
        self._readable = readable
        view = TreeView(
            {file.path: file for file in tree.files},
            problems,
            MappingProxyType(parsed),
            MappingProxyType(readable),
            self._linter.static.clusters or frozenset(),
            self._naming,
        )
        present = {(file.path, file.digest) for file in tree.files}
        self._parsed = {key: parsed for key, parsed in self._parsed.items() if key in present}
        return view

    def problems_with(self, buffers: Buffers) -> tuple[Problem, ...]:
        """Return problems with these open texts; no state changes."""
        return self._loaded(self._overlaid(self._scanned, buffers))[0]

    def _overlaid(self, tree: SourceTree, buffers: Buffers) -> SourceTree:
        files = {file.path: file for file in tree.files}
        for path, text in buffers.items():
            content = text.encode("utf-8", "surrogatepass")
            if len(content) <= self._settings.max_file_size_bytes:
                files[path] = SourceFile.of(path, content)
        problems = tuple(problem for problem in tree.problems if problem.path not in buffers)
        ordered = sorted(files.values(), key=lambda file: file.path.parts)
        return replace(tree, files=tuple(ordered), problems=problems)

    def _loaded(self, tree: SourceTree) -> tuple[_Problems, _Parsed]:
        """Load incrementally if there are no problems.

        With problems, a former good version would stay, and the first owner of a name keep it.
        """
        if self._views.names:
            return self._loaded_views(tree)
        loaded = load(tree, self._clean, self._parse, self._acceptance)
        if _is_clean(loaded):
            self._clean = loaded
        else:
            loaded = load(tree, None, self._parse, self._acceptance)
        parsed = {path: record.parsed for path, record in loaded.records.items() if record.parsed is not None}
        noted = with_ignored(loaded, tree.ignored, self._linter)
        found = with_served(whole_tree(noted), self._resolution, None).problems
        return with_undefined_names(found, self._settings), parsed

    def _loaded_views(self, tree: SourceTree) -> tuple[_Problems, _Parsed]:
        loaded = self._load_views(tree, self._clean_views)
        if _is_clean(loaded):
            self._clean_views = loaded
        else:
            loaded = self._load_views(tree, None)
        note = ignored_note(tree.ignored, self._linter)
        found = with_served(loaded, self._resolution, None).problems
        problems = found if note is None else tuple(sorted((*found, note)))
        # A file in no layer is edited too.
        parsed = {file.path: self._parse_once(file) for file in tree.files}
        return with_undefined_names(problems, self._settings), parsed

    def _load_views(self, tree: SourceTree, before: LoadedViews | None) -> LoadedViews:
        folders = LayeredTree.of(
            tree, self._views, before.memory.tree if before and isinstance(before.memory, ViewsMemory) else None
        ).folders
        wanted = {view.layers: self._views.variables_of(view.layers) for view in self._views.possible(folders)}
        views_load = ViewsLoad(tree, wanted, self._views, before)
        return views_load.load(self._parse(views_load.unparsed), self._acceptance)

    def _parse(self, files: Iterable[SourceFile]) -> list[ParsedFile]:
        return [self._parse_once(file) for file in files]

    def _parse_once(self, file: SourceFile) -> ParsedFile:
        key = file.path, file.digest
        if key not in self._parsed:
            self._parsed[key] = parse_one(self._parser, file)
        return self._parsed[key]
