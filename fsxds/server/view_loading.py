"""Loads views of trees once, for commands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from fsxds.api.catalogue import Catalogue
from fsxds.disk_cache.parsed_files import ParseCache
from fsxds.formats.yaml_format import require_libyaml
from fsxds.model.values import Layers, SourceTree
from fsxds.runtime.views import View, Views
from fsxds.server import loading_rules
from fsxds.server.parse_worker import Progress, no_progress
from fsxds.server.parsing import parse_now
from fsxds.settings.options import Settings
from fsxds.snapshots.accept import MISSING_LAYER
from fsxds.snapshots.layers_load import LayeredTree, ViewsLoad
from fsxds.snapshots.load import Loaded
from fsxds.snapshots.loaded_views import LoadedViews, only_view, with_served
from fsxds.snapshots.proposals import Check

Choose: TypeAlias = Callable[[Views, Collection[str]], Iterable[View]]
"""Chooses views to load, given all and the folders that may be layers; UsageError for none."""


class ViewLoader:
    """Loads views as serving would, cached under `directory`."""

    def __init__(self, settings: Settings, catalogue: Catalogue, check: Check, directory: Path = Path()) -> None:
        self.views = Views(settings.views, settings.variables, check.adjusted)
        self._settings, self._catalogue, self._check, self._directory = settings, catalogue, check, directory
        self.progress: Progress = no_progress

    def load(self, trees: Iterable[SourceTree], choose: Choose) -> tuple[LoadedViews, ...]:
        """Load chosen views of trees; without views, whole trees."""
        trees = tuple(trees)
        chosen = [tuple(choose(self.views, self.folders_of(tree))) for tree in trees]
        if self.views.names:
            return tuple(
                self.load_views(tree, (view.layers for view in views))
                for tree, views in zip(trees, chosen, strict=True)
            )
        return self.load_whole(trees)

    def load_whole(self, trees: Iterable[SourceTree]) -> tuple[LoadedViews, ...]:
        """Load trees as one view each, whatever the settings."""
        return loading_rules.load_trees(trees, *self._rules(), self.progress)

    def _rules(self) -> tuple[loading_rules.LoadingRules, ParseCache | None]:
        rules = loading_rules.LoadingRules.of(self._settings, self._catalogue, self._check, self._directory)
        return rules, loading_rules.cache_of(self._directory, self._settings, rules.parsing)

    def load_one(self, tree: SourceTree, choose: Callable[[Views, Collection[str]], View]) -> Loaded:
        """Load one view of one tree."""
        (views,) = self.load((tree,), lambda views, existing: (choose(views, existing),))
        return only_view(views)

    def folders_of(self, tree: SourceTree) -> frozenset[str]:
        """Return a tree's folders: possible layers."""
        return LayeredTree.of(tree, self.views, None).folders

    def load_views(self, tree: SourceTree, views: Iterable[Layers]) -> LoadedViews:
        """Load views by layers; others' missing layers are not reported."""
        require_libyaml()
        rules, cache = self._rules()
        wanted = {layers: self.views.variables_of(layers) for layers in views}
        load = ViewsLoad(tree, wanted, self.views, None)
        parsed = parse_now(load.unparsed, rules.parsing, rules.limits, cache, self.progress)
        loaded = load.load(parsed, replace(rules.acceptance, locate_up_to_bytes=None))
        seen = frozenset[str]().union(*wanted)
        problems = [one for one in loaded.problems if one.rule != MISSING_LAYER or str(one.path) in seen]
        note = loading_rules.ignored_note(tree.ignored, self._check)
        noted = replace(loaded, problems=tuple(sorted(problems if note is None else (*problems, note))))
        return with_served(noted, rules.resolution, None)
