"""The settings' mirrors, their checks, and their resolution of locators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fsxds.api.catalogue import Catalogue
from fsxds.model.errors import UsageError
from fsxds.model.resource_names import Locator
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Resource, Snapshot
from fsxds.runtime.views import Views, node_of
from fsxds.settings.options import Settings
from fsxds.settings.view_rules import MirrorRule

if TYPE_CHECKING:
    from fsxds.transports.mirror.layout import FindListeners, ListenerFinder


def reject_loop(directory: Path, out: Path) -> None:
    """Raise UsageError for a mirror inside the tree: fsxds would read it."""
    tree, mirror = directory.resolve(), out.resolve()
    if tree == mirror or tree in mirror.parents:
        raise UsageError(f"{out}: is inside of the tree {directory}; choose a directory outside of it")


def mirrors_of(settings: Settings) -> tuple[MirrorRule, ...]:
    """Return all mirrored directories."""
    of_flag = () if settings.mirror is None else (MirrorRule(settings.mirror),)
    return (*of_flag, *(settings.mirrors or ()))


def require_views(settings: Settings) -> None:
    """Raise UsageError for mirrors of nodes without a view."""
    views = Views(settings.views, settings.variables)
    for rule in mirrors_of(settings):
        if views.layers_of(node_of(rule.attributes), ()) is None:
            fact = f"{rule.directory}: no view of the settings is for the node of this mirror"
            raise UsageError(f"{fact}; add a rule to `views`, or name a view or a node in `mirrors`")


def listener_finder(settings: Settings, directory: Path | None, catalogue: Catalogue) -> ListenerFinder:
    """Return the finder of locators' listeners."""
    type_url, root = BY_SHORT_NAME["lds"].type_url, "" if directory is None else str(directory.absolute())

    def finder(snapshot: Snapshot) -> FindListeners:
        def find(locator: Locator) -> tuple[Resource, ...] | str:
            from fsxds.snapshots.locators import NotThere, Resolver  # noqa: PLC0415 - loaded with the first locator

            found = Resolver(snapshot, settings.authority, root, catalogue).find(locator, type_url)
            if isinstance(found, NotThere):
                return f"leads to {locator}, {found.reason}"
            return (found,) if isinstance(found, Resource) else found

        return find

    return finder
