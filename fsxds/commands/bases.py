"""From where the paths of a report lead: the current directory for people, the top of the repository for pipelines."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

# Their readers know the repository, and nothing of the directory in which a step of a pipeline ran.
_OF_REPOSITORIES = frozenset({"github", "sarif"})


def base_for(format_name: str, directory: Path) -> Path:
    """Return the directory from which all paths of a report lead.

    Args:
        format_name: of the report.
        directory: the tree; the repository is the nearest directory above it, or itself, that holds `.git`.
    """
    here = Path.cwd()
    if format_name not in _OF_REPOSITORIES:
        return here
    top = Path(os.path.normpath(directory.absolute()))
    return next((one for one in (top, *top.parents) if (one / ".git").exists()), here)


def path_from(base: Path, path: Path) -> PurePosixPath:
    """Return a path as it leads from a base: relative where it leads into it, else as it was given."""
    absolute = Path(os.path.normpath(path.absolute()))
    if absolute.is_relative_to(base):
        return PurePosixPath(absolute.relative_to(base))
    return PurePosixPath(path if base == Path.cwd() else absolute)
