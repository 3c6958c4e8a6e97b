"""Follow paths through symbolic links, and remember every link that was passed."""

# Paths are text here: making 10 000 Path objects would double the time of a look.
# ruff: noqa: PTH115, PTH118, PTH120

from __future__ import annotations

import errno
import os


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
        if path not in self._real:
            # Whoever comes by here again while the way is being followed goes in a circle.
            self._real[path] = None
            self._real[path] = self._step(path)
        return self._real[path]

    def pass_by(self, link: str) -> None:
        """Remember a link's target without following it."""
        try:
            self.targets[link] = os.readlink(link)
        except OSError:
            self.missing.add(link)

    def are_unchanged(self) -> bool:
        """Tell whether every link still has the target that it had."""
        try:
            return all(os.readlink(link) == target for link, target in self.targets.items())
        except OSError:
            return False

    def _step(self, path: str) -> str | None:
        directory, name = os.path.split(path)
        parent = self.resolve(directory)
        if parent is None:
            return None
        if name in {"", "."}:
            return parent
        if name == "..":
            return os.path.dirname(parent)
        return self._follow(parent, os.path.join(parent, name))

    def _follow(self, parent: str, candidate: str) -> str | None:
        try:
            target = os.readlink(candidate)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return candidate  # it is no link
            self.missing.add(candidate)
            return None
        self.targets[candidate] = target
        return self.resolve(os.path.join(parent, target))
