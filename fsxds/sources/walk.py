"""List the files of a tree with their signatures, through links and without reading any of them."""

# Paths are text here: making 10 000 Path objects would double the time of a look.
# ruff: noqa: PTH116

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import Counter, deque
from collections.abc import Callable, Collection
from pathlib import PurePosixPath
from typing import NamedTuple, TypeAlias

from fsxds.sources.file_names import Exclusion, as_text, is_passed_over, is_text
from fsxds.sources.links import Links
from fsxds.values import Problem

Signature: TypeAlias = tuple[int, int, int, int, int]
"""What changes when a file changes: mtime_ns, size, inode, ctime_ns, device."""

Identity: TypeAlias = tuple[int, int]
"""What tells a directory from all others: device and inode."""

# Entries behind one link: to list so many takes 0.1 s, and nobody keeps more configuration outside of the tree.
_MOST_BEHIND_LINK = 20_000

# What to do about a file or directory that the system does not let us read.
_REMEDIES = {
    errno.EACCES: "let fsxds read it",
    errno.EPERM: "let fsxds read it",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files (sysctl fs.file-max)",
    errno.EAGAIN: "put a regular file in its place",
    errno.ELOOP: "mend or remove the link",
    errno.ENAMETOOLONG: "shorten the path",
}
_OTHER_REMEDY = "fsxds tries again by itself; look after the filesystem"

_GONE = {errno.ENOENT, errno.ENOTDIR}


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


def remedy_of(error: OSError) -> str:
    """Return what the user can do about what the system did not let us read."""
    return _REMEDIES.get(error.errno or 0, _OTHER_REMEDY)


def problem_of(relative: str, rule: str, message: str, remedy: str) -> Problem:
    """Make the problem of a whole file or directory."""
    return Problem(PurePosixPath(as_text(relative)), 1, 1, "", rule, message, remedy)


class Walk:
    """One walk over a tree, done when it is made.

    Real directories come first, then the linked ones in the order of their names, and each directory is visited once:
    a link to a directory that was already seen, or that holds the tree, adds nothing.
    """

    def __init__(
        self, root: str, is_read: Callable[[str], bool], known: Collection[str], exclusion: Exclusion | None = None
    ) -> None:
        """Walk.

        Args:
            root: an absolute path.
            is_read: tells by a file's name whether it is one to read.
            exclusion: what the user excludes.
            known: paths of the files that were read so far, whatever stands there now.
        """
        self.files: list[FoundFile] = []
        self.ignored: list[str] = []
        self.excluded: list[str] = []
        self.problems: list[Problem] = []
        self.lost: list[LostDirectory] = []
        self.links = Links()
        self.real_root = self.links.resolve(root)
        self.directories: dict[str, Identity] = {}
        """The real paths of all directories that were listed."""
        self.linked_files: dict[str, str] = {}
        """The real paths of linked files, each with the link in the tree through which it was reached."""
        self.tops: list[str] = []
        """The real root, then the real paths of the linked directories."""
        self._is_read = is_read
        self._known = known
        self._exclusion = exclusion or Exclusion()
        self._visited: dict[Identity, str] = {}
        """The directories that need no other visit, each with the link in the tree through which it was reached."""
        self._linked: list[tuple[str, str, str]] = []
        """Links to directories that are still to be walked: path in the tree, real path, and link in the tree."""
        self._through = ""
        """The link in the tree behind which the walk is now, empty in the tree itself."""
        self._counts: Counter[str] = Counter()
        self._root_identity: Identity | None = None
        self.root_error: OSError | None = None
        """Why there is nothing to walk; None when there is."""
        try:
            # The kernel says why there is no way to the root.
            self._walk_all(root if self.real_root is None else self.real_root)
        except OSError as error:
            self.root_error = error

    def is_still_true(self) -> bool:
        """Tell whether the root and all links are what they were, so that what was listed is of one generation."""
        try:
            return identity_of(self.real_root or "") == self._root_identity and self.links.are_unchanged()
        except OSError:
            return False

    def _walk_all(self, root: str) -> None:
        self._root_identity = identity_of(root)
        for directory in PurePosixPath(root).parents:
            with contextlib.suppress(OSError):
                self._visited[identity_of(str(directory))] = ""
        self._walk_real(root, "")
        while self._linked:
            self._linked.sort(reverse=True)
            relative, real, self._through = self._linked.pop()
            try:
                self._walk_real(real, relative + "/")
            except _TooMuchError:
                self._take_back(self._through)

    def _walk_real(self, top: str, prefix: str) -> None:
        pending = deque([(top, prefix)])
        while pending:
            directory, inner = pending.popleft()
            try:
                identity = identity_of(directory)
                if identity in self._visited:
                    continue
                self._visited[identity] = self._through
                self.directories[directory] = identity
                if directory == top:
                    self.tops.append(top)
                pending.extend(self._list(directory, inner))
            except OSError as error:
                if not inner:
                    raise
                # A real directory that is gone takes its files along; a link that leads nowhere may be a mistake.
                if directory == top or error.errno not in _GONE:
                    self._lose(inner.rstrip("/"), error, is_link=directory == top)

    def _list(self, directory: str, prefix: str) -> list[tuple[str, str]]:
        """Take in the entries of one directory; returns its real sub-directories."""
        inner: list[tuple[str, str]] = []
        with os.scandir(directory) as entries:
            for direntry in entries:
                self._count()
                if is_passed_over(direntry.name):
                    continue  # `..data` too: what leads through it tells when it flips.
                if self._exclusion.matches(prefix + direntry.name):
                    self.excluded.append(prefix + direntry.name)
                elif direntry.is_symlink():
                    self._take_link(direntry, prefix)
                elif direntry.is_dir(follow_symlinks=False):
                    inner.extend(self._take_directory(direntry, prefix))
                else:
                    self._take_file(direntry, prefix + direntry.name, direntry.path)
        return inner

    def _take_directory(self, direntry: os.DirEntry[str], prefix: str) -> list[tuple[str, str]]:
        relative = prefix + direntry.name
        if not is_text(direntry.name):
            self._report_name(relative)
            return []
        if relative in self._known:
            self._report_not_a_file(relative, stat.S_IFDIR)
        return [(direntry.path, relative + "/")]

    def _take_link(self, direntry: os.DirEntry[str], prefix: str) -> None:
        relative = prefix + direntry.name
        real = self.links.resolve(direntry.path)
        try:
            # By its real path: the link itself may lead into the next generation by now.
            is_directory = stat.S_ISDIR(os.stat(real or direntry.path).st_mode)
            if real is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))  # It came to be just now.
        except OSError as error:
            self._take_broken_link(direntry.name, relative, error)
            return
        if not is_directory:
            self.linked_files[real] = self._through
            self._take_file(direntry, relative, real)
        elif is_text(direntry.name):
            self._linked.append((relative, real, self._through or relative))
        else:
            self._report_name(relative)

    def _take_broken_link(self, name: str, relative: str, error: OSError) -> None:
        is_ignored = "." in name and not self._is_read(name)
        if is_ignored and not any(known.startswith(relative + "/") for known in self._known):
            self.ignored.append(relative)
        else:
            self._lose(relative, error, is_link=True)

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
        except OSError as error:
            if error.errno not in _GONE:
                message = f"the file cannot be looked at: {error.strerror}"
                self.problems.append(problem_of(relative, "unreadable-file", message, remedy_of(error)))
            return
        if stat.S_ISREG(status.st_mode):
            self.files.append(FoundFile(relative, path, signature_of(status)))
        else:
            self._report_not_a_file(relative, status.st_mode)

    def _report_not_a_file(self, relative: str, mode: int) -> None:
        message = f"this is {_kind_of(mode)}, not a file"
        self.problems.append(problem_of(relative, "not-a-file", message, "put a regular file in its place"))

    def _report_name(self, relative: str) -> None:
        message = "the name is not valid UTF-8"
        self.problems.append(problem_of(relative, "unreadable-name", message, "rename it"))

    def _lose(self, relative: str, error: OSError, *, is_link: bool) -> None:
        if is_link and error.errno in {*_GONE, errno.ELOOP}:
            problem = problem_of(relative, "broken-link", "the link leads nowhere", "mend or remove the link")
        else:
            what = "what the link leads to" if is_link else "the directory"
            message = f"{what} cannot be read: {error.strerror}"
            problem = problem_of(relative, "unreadable-file", message, remedy_of(error))
        self.lost.append(LostDirectory(relative, problem))

    def _count(self) -> None:
        """Count one more behind the present link, if any; _TooMuchError when it is one too many."""
        if self._through:
            self._counts[self._through] += 1
            if self._counts[self._through] > _MOST_BEHIND_LINK:
                raise _TooMuchError

    def _take_back(self, link: str) -> None:
        """Let a link, and all links behind it, add nothing but a problem."""
        below = link + "/"
        self.files = [file for file in self.files if not file.relative.startswith(below)]
        self.ignored = [relative for relative in self.ignored if not relative.startswith(below)]
        self.excluded = [relative for relative in self.excluded if not relative.startswith(below)]
        self.problems = [problem for problem in self.problems if not str(problem.path).startswith(below)]
        self.lost = [lost for lost in self.lost if not lost.relative.startswith(below)]
        self._linked = [linked for linked in self._linked if linked[2] != link]
        self.linked_files = {path: through for path, through in self.linked_files.items() if through != link}
        self._visited = {identity: through for identity, through in self._visited.items() if through != link}
        tops = tuple(f"{top}/" for top in self.tops if self.directories[top] not in self._visited)
        self.links.forget_below(tops)
        self.directories = {path: known for path, known in self.directories.items() if known in self._visited}
        self.tops = [top for top in self.tops if top in self.directories]
        message = f"more than {_MOST_BEHIND_LINK} files and directories are behind this link, so none of them is read"
        remedy = "let it lead to a smaller directory"
        self.lost.append(LostDirectory(link, problem_of(link, "too-many-files", message, remedy)))


class _TooMuchError(Exception):
    """More is behind a link than is listed."""


def identity_of(path: str) -> Identity:
    """Return what tells a directory from all others; OSError where there is none."""
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return status.st_dev, status.st_ino


def _kind_of(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a directory" if stat.S_ISDIR(mode) else "a device"
