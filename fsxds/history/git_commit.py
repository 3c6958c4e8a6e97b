"""The git commit of a tree, read from `.git` itself: running git would cost more than recording a change."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

# HEAD names a branch, which may be a symbolic reference itself; more are a circle.
_MOST_STEPS = 5

# References, and `.git` files of worktrees and submodules, are one line.
_LONGEST_LINE = 4096


def commit_of(directory: Path) -> str | None:
    """Return the commit that is checked out where a directory is: 40 or 64 hex digits.

    None where it is in no repository, where nothing was committed yet, and where the references are in another form than
    files (reftable). That files were changed since is not seen.

    Source: gitrepository-layout(5), https://git-scm.com/docs/gitrepository-layout
    """
    # Any of these files may be somebody's that this process cannot read, or be no text.
    with suppress(OSError, ValueError):
        top = directory.resolve()
        for folder in (top, *top.parents):
            if (git := _git_directory(folder / ".git")) is not None:
                return _commit_in(git)
    return None


def _git_directory(path: Path) -> Path | None:
    """Return the repository that `.git` is, or that it names, as in a worktree."""
    if path.is_dir():
        return path if (path / "HEAD").exists() else None
    name = _first_line(path).removeprefix("gitdir: ")
    return path.parent / name if name else None


def _commit_in(git: Path) -> str | None:
    # A worktree has its own HEAD, and the references of its repository.
    common = git / (_first_line(git / "commondir") or ".")
    reference = "HEAD"
    for _ in range(_MOST_STEPS):
        found = _first_line(git / reference) or _first_line(common / reference) or _packed(common, reference)
        if _COMMIT.fullmatch(found):
            return found
        reference = found.removeprefix("ref: ")
        # Names of references have no `..`: what a repository says must not lead anywhere else.
        if not found.startswith("ref: refs/") or ".." in reference:
            return None
    return None


def _packed(common: Path, reference: str) -> str:
    """Return the commit of a reference that has no file of its own; empty where there is none."""
    path = common / "packed-refs"
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8") as lines:
        rows = (line.rstrip("\n").partition(" ") for line in lines)
        return next((commit for commit, _, name in rows if name == reference), "")


def _first_line(path: Path) -> str:
    """Return the first line of a file; empty where there is none."""
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8") as file:
        return file.readline(_LONGEST_LINE).rstrip("\r\n")
