"""Loads a tree, or a chosen view."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from fsxds.api.catalogue import Catalogue
from fsxds.cli.command import Choice
from fsxds.lint.linter import linter_of
from fsxds.model.errors import UsageError
from fsxds.runtime.views import EVERYTHING, VIEW, View, Views, node_of
from fsxds.server import loading_rules
from fsxds.server.loading_rules import ViewLoader
from fsxds.settings.options import Settings
from fsxds.snapshots.load import Loaded


def load_chosen(directory: Path, settings: Settings, catalogue: Catalogue, choice: Choice) -> Loaded:
    """Load the chosen view, or the tree if there are no views."""
    loader = ViewLoader(settings, catalogue, linter_of(settings), directory)
    return loader.load_one(loading_rules.scan_trusted(directory, settings), partial(chosen_view, choice))


def chosen_view(choice: Choice, views: Views, existing: Collection[str]) -> View:
    """Return the chosen view.

    Raises:
        UsageError: there is no such view, none for such a node, or there are several and the flags choose none.
    """
    names, view_name = views.names, dict(choice).get(VIEW)
    if not names and view_name is None:
        return EVERYTHING
    if view_name is not None and view_name not in names:
        near = get_close_matches(view_name, names, 1)
        there = (
            f"there are {', '.join(names)}"
            if names
            else "the settings define no views; name the settings file by --settings"
        )
        raise UsageError(f"there is no view {view_name}; {f'did you mean {near[0]}?' if near else there}")
    if not choice:
        remedy = "give one by --view, or a node by --node-id, --node-cluster and --node-metadata"
        raise UsageError(f"the settings have the views {', '.join(names)}; {remedy}")
    view = views.layers_of(node_of(choice), existing)
    if view is None:
        described = ", ".join(f"{attribute} {text}" for attribute, text in choice)
        raise UsageError(f"no view of the settings matches a node of {described}; add a rule to `views`")
    return view
