"""Follow paths through symbolic links, and remember every link that was passed."""

# Paths are text here: making 10 000 Path objects would double the time of a look.
# ruff: noqa: PTH115, PTH118, PTH120

from __future__ import annotations

import errno
import os

# Far more than the 40 that the kernel follows in one path, and far fewer than what Python can nest.
_MOST_NESTED_LINKS = 100


class Links:
    """The links that one look at a tree passed through, each with the target it had.

    `targets` are those links. `missing` are the paths at which a way ended because nothing stood there.
    """

    def __init__(self) -> None:
        self.targets: dict[str, str] = {}
        self.missing: set[str] = set()
        self._real: dict[str, str | None] = {"/": "/", "//": "/"}

    def resolve(self, path: str) -> str | None:
        """Return the path without links, None when something is missing or the links go in a circle.

        Unlike `os.path.realpath` this keeps what it passed, and resolves each directory only once.
        """
        return self._resolve(path, 0)

    def forget_below(self, directories: tuple[str, ...]) -> None:
        """Forget the links below these directories, which end with a slash."""
        self.targets = {link: target for link, target in self.targets.items() if not link.startswith(directories)}
        self.missing = {path for path in self.missing if not path.startswith(directories)}

    def are_unchanged(self) -> bool:
        """Tell whether every link still has the target that it had."""
        try:
            return all(os.readlink(link) == target for link, target in self.targets.items())
        except OSError:
            return False

    def _resolve(self, path: str, depth: int) -> str | None:
        """Resolve a path that was met behind `depth` links, its directories first, so that only links nest."""
        real = self._real
        unknown: list[str] = []
        while path not in real:
            unknown.append(path)
            path = os.path.dirname(path)
        for step in reversed(unknown):
            # Whoever comes by here again while the way is being followed goes in a circle.
            real[step] = None
            try:
                real[step] = self._step(step, depth)
            except _TooManyLinksError:
                del real[step]  # From a later link the way may be short enough.
                if depth:
                    raise
                return None
            path = step
        return real[path]

    def _step(self, path: str, depth: int) -> str | None:
        directory, name = os.path.split(path)
        parent = self._real[directory]
        if parent is None:
            return None
        if name in {"", "."}:
            return parent
        if name == "..":
            return os.path.dirname(parent)
        return self._follow(parent, os.path.join(parent, name), depth)

    def _follow(self, parent: str, candidate: str, depth: int) -> str | None:
        try:
            target = os.readlink(candidate)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return candidate  # it is no link
            self.missing.add(candidate)
            return None
        self.targets[candidate] = target
        if depth == _MOST_NESTED_LINKS:
            raise _TooManyLinksError
        return self._resolve(os.path.join(parent, target), depth + 1)


class _TooManyLinksError(Exception):
    """The way leads through more links than anybody follows."""
