"""List the files of a tree with their signatures, through links and without reading any of them."""

# Paths are text here: making 10 000 Path objects would double the time of a look.
# ruff: noqa: PTH112, PTH116

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Container
from pathlib import PurePosixPath
from typing import NamedTuple, TypeAlias

from fsxds.sources.file_names import as_text, is_passed_over, is_text
from fsxds.sources.links import Links
from fsxds.values import Problem

Signature: TypeAlias = tuple[int, int, int, int, int]
"""What changes when a file changes: mtime_ns, size, inode, ctime_ns, device."""


class FoundFile(NamedTuple):
    """A file to read: its path in the tree, its path on disk without links, its signature."""

    relative: str
    path: str
    signature: Signature


class LostDirectory(NamedTuple):
    """A directory, or what was one, that cannot be listed; what was known below it is neither here nor gone."""

    relative: str
    problem: Problem


def signature_of(status: os.stat_result) -> Signature:
    """Return the signature of a file."""
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns, status.st_dev


def problem_of(relative: str, rule: str, message: str, remedy: str) -> Problem:
    """Make the problem of a whole file or directory."""
    return Problem(PurePosixPath(as_text(relative)), 1, 1, "", rule, message, remedy)


class Walk:
    """One walk over a tree, done when it is made.

    Real directories come first, then the linked ones in the order of their names, and each directory is visited once:
    a link to a directory that was already seen, or that holds the tree, adds nothing.
    """

    def __init__(self, root: str, is_read: Callable[[str], bool], known: Container[str]) -> None:
        """Walk.

        Args:
            root: an absolute path.
            is_read: tells by a file's name whether it is one to read.
            known: paths of files that are known to be read, so that `is_read` need not be asked.
        """
        self.files: list[FoundFile] = []
        self.ignored: list[str] = []
        self.problems: list[Problem] = []
        self.lost: list[LostDirectory] = []
        self.links = Links()
        self.real_root = self.links.resolve(root)
        self.real_directories: list[str] = []
        """The real root, then the real paths of the linked directories."""
        self.real_files: list[str] = []
        """The real paths of linked files."""
        self._is_read = is_read
        self._known = known
        self._visited: set[tuple[int, int]] = set()
        self._linked: list[tuple[str, str]] = []
        self._root_identity: tuple[int, int] | None = None
        if self.real_root is not None:
            self._walk_all(self.real_root)

    @property
    def has_root(self) -> bool:
        """Whether there is a directory to walk."""
        return self._root_identity is not None

    def is_still_true(self) -> bool:
        """Tell whether the root and all links are what they were, so that what was listed is of one generation."""
        return (
            self.has_root and self._identity(self.real_root or "") == self._root_identity and self.links.are_unchanged()
        )

    def _walk_all(self, root: str) -> None:
        self._root_identity = self._identity(root)
        if self._root_identity is None:
            return
        self._visited.update(filter(None, map(self._identity, _directories_above(root))))
        self._walk_real(root, "")
        while self._linked:
            self._linked.sort(reverse=True)
            relative, real = self._linked.pop()
            if self._identity(real) is None:
                self._lose(relative, "broken-link", "the link leads nowhere", "mend or remove the link")
            self._walk_real(real, relative + "/")

    def _walk_real(self, top: str, prefix: str) -> None:
        pending = deque([(top, prefix)])
        while pending:
            directory, inner = pending.popleft()
            identity = self._identity(directory)
            if identity is None or identity in self._visited:
                continue
            self._visited.add(identity)
            if directory == top:
                self.real_directories.append(top)
            pending.extend(self._list(directory, inner))

    def _list(self, directory: str, prefix: str) -> list[tuple[str, str]]:
        """Take in the entries of one directory; returns its real sub-directories."""
        inner: list[tuple[str, str]] = []
        try:
            with os.scandir(directory) as entries:
                for direntry in entries:
                    if direntry.is_symlink():
                        self._take_link(direntry, prefix)
                    elif is_passed_over(direntry.name):
                        continue
                    elif direntry.is_dir(follow_symlinks=False):
                        inner.extend(self._take_directory(direntry, prefix))
                    else:
                        self._take_file(direntry, prefix + direntry.name, direntry.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._lose(prefix.rstrip("/"), "unreadable-file", f"the directory cannot be read: {error.strerror}")
        return inner

    def _take_directory(self, direntry: os.DirEntry[str], prefix: str) -> list[tuple[str, str]]:
        relative = prefix + direntry.name
        if not is_text(direntry.name):
            self._report_name(relative)
            return []
        return [(direntry.path, relative + "/")]

    def _take_link(self, direntry: os.DirEntry[str], prefix: str) -> None:
        relative = prefix + direntry.name
        if is_passed_over(direntry.name):
            # `..data` leads the links beside it to their files: its flip is the step from one generation to the next.
            self.links.pass_by(direntry.path)
            return
        real = self.links.resolve(direntry.path)
        if real is None:
            self._take_broken_link(direntry.name, relative)
        elif not os.path.isdir(real):
            self.real_files.append(real)
            self._take_file(direntry, relative, real)
        elif is_text(direntry.name):
            self._linked.append((relative, real))
        else:
            self._report_name(relative)

    def _take_broken_link(self, name: str, relative: str) -> None:
        if "." in name and not self._is_read(name):
            self.ignored.append(relative)
        else:
            self._lose(relative, "broken-link", "the link leads nowhere", "mend or remove the link")

    def _take_file(self, direntry: os.DirEntry[str], relative: str, path: str) -> None:
        if relative not in self._known:
            if not is_text(direntry.name):
                self._report_name(relative)
                return
            if not self._is_read(direntry.name):
                self.ignored.append(relative)
                return
        try:
            # By its real path: the link itself may lead into the next generation by now.
            status = os.stat(path)
        except FileNotFoundError:
            return
        except OSError as error:
            message = f"the file cannot be looked at: {error.strerror}"
            self.problems.append(problem_of(relative, "unreadable-file", message, "let fsxds read it"))
            return
        if stat.S_ISREG(status.st_mode):
            self.files.append(FoundFile(relative, path, signature_of(status)))
        else:
            message = f"this is {_kind_of(status.st_mode)}, not a file"
            self.problems.append(problem_of(relative, "not-a-file", message, "put a regular file in its place"))

    def _report_name(self, relative: str) -> None:
        message = "the name is not valid UTF-8"
        self.problems.append(problem_of(relative, "unreadable-name", message, "rename it"))

    def _lose(self, relative: str, rule: str, message: str, remedy: str = "let fsxds read it") -> None:
        self.lost.append(LostDirectory(relative, problem_of(relative, rule, message, remedy)))

    @staticmethod
    def _identity(path: str) -> tuple[int, int] | None:
        try:
            status = os.stat(path)
        except OSError:
            return None
        return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def _directories_above(path: str) -> list[str]:
    return [str(directory) for directory in PurePosixPath(path).parents]


def _kind_of(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a directory" if stat.S_ISDIR(mode) else "a device"
