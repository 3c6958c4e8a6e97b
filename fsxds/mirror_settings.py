"""What the settings say about directories of mirrored files, and which of them cannot be."""

from __future__ import annotations

from pathlib import Path

from fsxds.errors import UsageError
from fsxds.settings.mirror_rules import MirrorRule
from fsxds.settings.options import Settings
from fsxds.views import Views, node_of


def reject_loop(directory: Path, out: Path) -> None:
    """Reject a directory of files that are written inside of the tree: fsxds would read them.

    Raises:
        UsageError: it is.
    """
    tree, mirror = directory.resolve(), out.resolve()
    if tree == mirror or tree in mirror.parents:
        raise UsageError(f"{out}: is inside of the tree {directory}; choose a directory outside of it")


def mirrors_of(settings: Settings) -> tuple[MirrorRule, ...]:
    """Return all directories of mirrored files."""
    of_flag = () if settings.mirror is None else (MirrorRule(settings.mirror),)
    return (*of_flag, *(settings.mirrors or ()))


def require_views(settings: Settings) -> None:
    """Reject mirrors whose nodes have no view. Which layers exist makes no difference.

    Raises:
        UsageError: there is one.
    """
    views = Views(settings.views, settings.variables)
    for rule in mirrors_of(settings):
        if views.layers_of(node_of(rule.attributes), ()) is None:
            fact = f"{rule.directory}: no view of the settings is for the node of this mirror"
            raise UsageError(f"{fact}; add a rule to `views`, or name a view or a node in `mirrors`")
