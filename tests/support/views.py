"""Views of trees that change step by step, in the toy format of `mentions`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from fsxds.lint.linter import Linter
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import ParsedFile
from fsxds.model.values import Layers, Problem, Severity, SourceFile
from fsxds.runtime.views import Views
from fsxds.settings.view_rules import Variables, ViewRule
from fsxds.snapshots.layers_load import ViewsLoad
from fsxds.snapshots.load import Acceptance, Loaded
from fsxds.snapshots.loaded_views import LoadedViews
from tests.support import mentions
from tests.support.trees import tree_of

ACCEPTANCE = Acceptance(check=Linter())


class ViewStory:
    """A tree whose layers have these names, and its views, step by step.

    Attributes:
        parsed: the files that were parsed in the last step.
    """

    def __init__(
        self,
        *wanted: Layers,
        layers: Collection[str] = ("common", "common/x", "edge", "nodes/a", "nodes/b"),
        acceptance: Acceptance = ACCEPTANCE,
        parse: Callable[[SourceFile], ParsedFile] = mentions.parse_file,
    ) -> None:
        self.wanted: Collection[Layers] | Mapping[Layers, Variables] = wanted
        self.files: dict[str, str] = {}
        self.loaded: LoadedViews | None = None
        self.parsed: list[str] = []
        self._acceptance = acceptance
        self._parse = parse
        self._sources: dict[str, SourceFile] = {}
        self.rules = rules_of(*layers)

    def step(self, edits: Mapping[str, str | None], problems: Iterable[Problem] = ()) -> LoadedViews:
        """Change files (None deletes one), and load what is then there."""
        changed = {**self.files, **edits}
        self.files = {path: content for path, content in changed.items() if content is not None}
        tree = tree_of(self.files, problems)
        # As the scanner does: what did not change is the same object.
        files = tuple(self._sources.get(str(file.path), file) for file in tree.files)
        files = tuple(old if old == new else new for old, new in zip(files, tree.files, strict=True))
        self._sources = {str(file.path): file for file in files}
        load = ViewsLoad(type(tree)(files, tree.problems), self.wanted, self.rules, self.loaded)
        self.parsed = [str(file.path) for file in load.unparsed]
        self.loaded = load.load([self._parse(file) for file in load.unparsed], self._acceptance)
        return self.loaded

    def anew(self) -> LoadedViews:
        """Load the tree as it is now as if nothing had been before."""
        load = ViewsLoad(tree_of(self.files), self.wanted, self.rules, None)
        return load.load([self._parse(file) for file in load.unparsed], self._acceptance)


def rules_of(*layers: str, adjusted: Callable[[Problem], Problem | None] = lambda _: None) -> Views:
    """Return rules by which these are layers; where they have no folder that is no problem, unless it is `adjusted` to one."""
    return Views((ViewRule("all", (), layers),), adjusted=adjusted)


def served(loaded: Loaded) -> dict[str, str]:
    """Return where what is served was written, by type and name: `{"CDS web": "common/a:1"}`."""
    return {
        f"{BY_TYPE_URL[url].short_name.upper()} {name}": str(row.origin)
        for url, rows in loaded.snapshot.by_type.items()
        for name, row in rows.items()
    }


def problems(loaded: LoadedViews | Loaded) -> list[str]:
    """Return the problems that are no notes, as `path:line: rule`."""
    found = (problem for problem in loaded.problems if problem.severity is not Severity.NOTE)
    return [f"{problem.path}:{problem.line}: {problem.rule}" for problem in found]


def held(loaded: LoadedViews | Loaded) -> dict[str, bool]:
    """Return the files that are held back: whether something older of them is served."""
    return {str(file.path): file.has_last_good for file in loaded.held}
