"""Lists a tree's files with signatures, through links, without reading.

Rules: how much of a tree is read, and that links do not lead out of it.
"""

# Paths are text here: making 10 000 Path objects would double the time of a look.
# ruff: noqa: PTH115, PTH116, PTH118, PTH120

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import re
import stat
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple, TypeAlias

from fsxds.model.values import MANIFEST, MANIFEST_SIGNATURE, Problem

Signature: TypeAlias = tuple[int, int, int, int, int]
"""mtime_ns, size, inode, ctime_ns and device."""

Identity: TypeAlias = tuple[int, int]
"""Device and inode."""

# Behind one link: listing so many takes 0.1 s; no configuration outside of the tree is larger.
_MOST_BEHIND_LINK = 20_000

# For errors of the system.
_REMEDIES = {
    errno.EACCES: "let fsxds read it",
    errno.EPERM: "let fsxds read it",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files (sysctl fs.file-max)",
    errno.EAGAIN: "put a regular file in its place",
    errno.ELOOP: "fix or remove the link",
    errno.ENAMETOOLONG: "shorten the path",
}
_OTHER_REMEDY = "fsxds tries again by itself; look after the filesystem"

GONE = frozenset({errno.ENOENT, errno.ENOTDIR})
"""The errors of a missing path."""


class FoundFile(NamedTuple):
    """A file to read, by path in the tree and real path."""

    relative: str
    path: str
    signature: Signature


class TreeBounds(NamedTuple):
    """The limits of reading a tree.

    A file beyond `max_file_size_bytes` is a problem; with more than `max_files`, including directories, the tree is
    one, and its last content stays. `follows_outside`: links may lead out.
    """

    max_file_size_bytes: int = 64 * 1024 * 1024
    max_files: int = 100_000
    follows_outside: bool = False
    exclusion: Exclusion | None = None


BOUNDS = TreeBounds()


class LostDirectory(NamedTuple):
    """An unlistable directory; known files below are neither present nor gone."""

    relative: str
    problem: Problem


def signature_of(status: os.stat_result) -> Signature:
    """Return a file's signature."""
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns, status.st_dev


def remedy_of(error: OSError) -> str:
    """Return a reading error's remedy."""
    return _REMEDIES.get(error.errno or 0, _OTHER_REMEDY)


def problem_of(relative: str, rule: str, message: str, remedy: str) -> Problem:
    """Return a whole file's or directory's problem."""
    return Problem.of_file(PurePosixPath(printable_name(relative)), rule, message, remedy)


class TreeListing:
    """One walk over a tree, by the constructor.

    Real directories come first, then linked ones by name, each once; parents of the tree add nothing.

    `lost` are unlistable; `real_root` is None if missing, and `root_error` tells why. `directories` are by real path,
    `linked_files` real paths with the link in the tree, `tops` real paths of the root, then of linked directories.
    `surplus`: where the limit of files stopped the listing.
    """

    def __init__(
        self,
        root: str,
        is_read: Callable[[str], bool],
        known: Collection[str],
        bounds: TreeBounds = BOUNDS,
    ) -> None:
        """List a tree.

        `root` is absolute; `is_read`: whether to read a name; `known`: files read so far.
        """
        self.surplus: str | None = None
        self._bounds = bounds
        self.files: list[FoundFile] = []
        self.ignored: list[str] = []
        self.excluded: list[str] = []
        self.problems: list[Problem] = []
        self.lost: list[LostDirectory] = []
        self.links = Links()
        self.real_root = self.links.resolve(root)
        self.root_error: OSError | None = None
        self.directories: dict[str, Identity] = {}
        self.linked_files: dict[str, str] = {}
        self.tops: list[str] = []
        self._is_read = is_read
        self._known = known
        self._exclusion = bounds.exclusion or Exclusion()
        # They need no other visit; with their link in the tree.
        self._visited: dict[Identity, str] = {}
        # Not walked yet: path in the tree, real path, and link in the tree.
        self._linked: list[tuple[str, str, str]] = []
        # The link that led to the present directory; empty in the tree itself.
        self._through = ""
        self._counts: Counter[str] = Counter()
        self._root_identity: Identity | None = None
        try:
            # For a missing root, raises the kernel's error.
            self._walk_all(root if self.real_root is None else self.real_root)
        except OSError as error:
            self.root_error = error
        except _TreeTooLargeError as error:
            self.surplus = str(error)

    def is_still_true(self) -> bool:
        """Whether root and links are unchanged: one generation."""
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
                self._discard_link(self._through)

    def _walk_real(self, top: str, prefix: str) -> None:
        pending = deque([(top, prefix)])
        while pending:
            directory, inner = pending.popleft()
            try:
                identity = identity_of(directory)
                if identity in self._visited:
                    continue
                self._visited[identity] = self._through
                self._check_count(inner.rstrip("/"))
                self.directories[directory] = identity
                if directory == top:
                    self.tops.append(top)
                pending.extend(self._list(directory, inner))
            except OSError as error:
                if not inner:
                    raise
                # A gone directory takes its files along; a broken link may be a mistake.
                if directory == top or error.errno not in GONE:
                    self._lose(inner.rstrip("/"), error, is_link=directory == top)

    def _list(self, directory: str, prefix: str) -> list[tuple[str, str]]:
        inner: list[tuple[str, str]] = []
        with os.scandir(directory) as entries:
            for direntry in entries:
                if self._through:
                    self._counts[self._through] += 1
                    if self._counts[self._through] > _MOST_BEHIND_LINK:
                        raise _TooMuchError
                if is_passed_over(direntry.name) and (prefix or direntry.name not in MANIFEST_NAMES):
                    continue  # `..data` too: the links that lead through it change when it flips.
                relative = prefix + direntry.name
                if self._exclusion.patterns and self._exclusion.matches(relative):
                    self.excluded.append(relative)
                elif direntry.is_symlink():
                    self._take_link(direntry, prefix)
                elif direntry.is_dir(follow_symlinks=False):
                    if self._is_walked(direntry.name, relative):
                        inner.append((direntry.path, relative + "/"))
                else:
                    self._take_file(direntry, relative, direntry.path)
        return inner

    def _is_walked(self, name: str, relative: str) -> bool:
        """Report a directory, or a link to one, in place of a file, or with an unreadable name."""
        if relative in self._known or relative in MANIFEST_NAMES:
            self._report_not_a_file(relative, stat.S_IFDIR)
        if not is_text(name):
            self._report_name(relative)
        return is_text(name) and relative not in MANIFEST_NAMES

    def _take_link(self, direntry: os.DirEntry[str], prefix: str) -> None:
        relative = prefix + direntry.name
        real = self.links.resolve(direntry.path)
        try:
            # By its real path: the link may lead into the next generation by now.
            is_directory = stat.S_ISDIR(os.stat(real or direntry.path).st_mode)
            if real is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))  # Created just now.
        except OSError as error:
            is_ignored = "." in direntry.name and not self._is_read(direntry.name)
            if is_ignored and not any(known.startswith(relative + "/") for known in self._known):
                self.ignored.append(relative)
            else:
                self._lose(relative, error, is_link=True)
            return
        if self._is_outside(real) and (is_directory or self._is_read(direntry.name) or relative in self._known):
            root = printable_name(self.real_root or "")
            message = f"the link leads to {printable_name(real)}, outside of the tree {root}"
            remedy = "put that into the tree, serve a directory that holds both, or allow such links by `follow_outside: true` in the settings"
            self.lost.append(LostDirectory(relative, problem_of(relative, "outside-link", message, remedy)))
        elif not is_directory:
            self.linked_files[real] = self._through
            self._take_file(direntry, relative, real)
        elif self._is_walked(direntry.name, relative):
            self._linked.append((relative, real, self._through or relative))

    def _is_outside(self, real: str) -> bool:
        root = self.real_root
        if self._bounds.follows_outside or root is None or real == root:
            return False
        return not (f"{real}/".startswith(f"{root}/") or f"{root}/".startswith(f"{real}/") or "/" in {real, root})

    def _check_count(self, relative: str) -> None:
        if len(self.files) + len(self.directories) >= self._bounds.max_files:
            raise _TreeTooLargeError(relative)

    def _take_file(self, direntry: os.DirEntry[str], relative: str, path: str) -> None:
        if relative not in self._known:
            if not is_text(direntry.name):
                self._report_name(relative)
                return
            if not self._is_read(direntry.name):
                self.ignored.append(relative)
                return
        try:
            # By its real path: the link may lead into the next generation by now.
            status = os.stat(path)
        except OSError as error:
            if error.errno not in GONE:
                message = f"the file cannot be looked at: {error.strerror}"
                self.problems.append(problem_of(relative, "unreadable-file", message, remedy_of(error)))
            return
        if stat.S_ISREG(status.st_mode):
            self._check_count(relative)
            self.files.append(FoundFile(relative, path, signature_of(status)))
        else:
            self._report_not_a_file(relative, status.st_mode)

    def _report_not_a_file(self, relative: str, mode: int) -> None:
        message = f"this is {_file_type_name(mode)}, not a file"
        self.problems.append(problem_of(relative, "not-a-file", message, "put a regular file in its place"))

    def _report_name(self, relative: str) -> None:
        message = "the name is not valid UTF-8"
        self.problems.append(problem_of(relative, "unreadable-name", message, "rename it"))

    def _lose(self, relative: str, error: OSError, *, is_link: bool) -> None:
        if is_link and error.errno in {*GONE, errno.ELOOP}:
            problem = problem_of(relative, "broken-link", "the link leads nowhere", "fix or remove the link")
        else:
            what = "the target of the link" if is_link else "the directory"
            message = f"{what} cannot be read: {error.strerror}"
            problem = problem_of(relative, "unreadable-file", message, remedy_of(error))
        self.lost.append(LostDirectory(relative, problem))

    def _discard_link(self, link: str) -> None:
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


class _TreeTooLargeError(Exception):
    """The tree exceeds the limit of files at this path."""


class _TooMuchError(Exception):
    """A link leads to too many entries."""


def identity_of(path: str) -> Identity:
    """Return a directory's identity. Raises OSError."""
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return status.st_dev, status.st_ino


def _file_type_name(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a directory" if stat.S_ISDIR(mode) else "a device"


# vim creates and removes `4913` to check whether it may create files.
_VIM_PROBE = "4913"
_SUFFIXES_OF_LEFTOVERS = ("~", ".swp", ".tmp")


def is_passed_over(name: str) -> bool:
    """Whether a name is neither read, walked nor reported.

    A leading dot covers hidden files, emacs' lock `.#cds.yaml`, and a Kubernetes volume's `..data` and
    `..2026_01_31`, reached by links. `#cds.yaml#` is emacs' auto-save file.
    """
    return name.startswith((".", "#")) or name.endswith(_SUFFIXES_OF_LEFTOVERS) or name == _VIM_PROBE


MANIFEST_NAMES = frozenset({MANIFEST, MANIFEST_SIGNATURE})
"""Hidden files at the top of a tree that are read."""


class Exclusion:
    """Names and paths that the user excludes.

    A pattern without a slash matches names at any depth, others paths from the top; `**` is any directories. A
    directory covers all below.

    >>> exclusion = Exclusion(["README*", "charts/**/values.yaml"])
    >>> [exclusion.covers(path) for path in ("edge/README.yaml", "charts/a/b/values.yaml", "edge/values.yaml")]
    [True, True, False]
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns = tuple(patterns)
        texts = [pattern.removeprefix("./").rstrip("/") for pattern in self.patterns]
        names = [fnmatch.translate(text) for text in texts if "/" not in text]
        self._name = re.compile("|".join(names)) if names else None
        self._paths = [text.removeprefix("/").split("/") for text in texts if "/" in text]

    def matches(self, relative: str) -> bool:
        """Whether a path itself is excluded."""
        if self._name is not None and self._name.match(relative, relative.rfind("/") + 1):
            return True
        return any(_is_match(relative.split("/"), pattern) for pattern in self._paths)

    def covers(self, relative: str) -> bool:
        """Whether a path, or one above, is excluded."""
        ends = [match.start() for match in re.finditer("/", relative)]
        return any(self.matches(relative[:end]) for end in [*ends, len(relative)])


def _is_match(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_is_match(parts[start:], pattern[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _is_match(parts[1:], pattern[1:])


def is_text(name: str) -> bool:
    """Whether a name is valid UTF-8."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable_name(name: str) -> str:
    """Return any bytes' name as printable text."""
    return name if is_text(name) else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


# The kernel follows 40 per path; Python nests far more.
_MOST_NESTED_LINKS = 100


class Links:
    """Links followed in one look; `missing` paths did not exist."""

    def __init__(self) -> None:
        self.targets: dict[str, str] = {}
        self.missing: set[str] = set()
        self._real: dict[str, str | None] = {"/": "/", "//": "/"}

    def resolve(self, path: str) -> str | None:
        """Return the path without links; None: a missing part, or a loop.

        Unlike `os.path.realpath` it records links, and resolves each once.
        """
        return self._resolve(path, 0)

    def forget_below(self, directories: tuple[str, ...]) -> None:
        """Forget links below directories that end with a slash."""
        self.targets = {link: target for link, target in self.targets.items() if not link.startswith(directories)}
        self.missing = {path for path in self.missing if not path.startswith(directories)}

    def are_unchanged(self) -> bool:
        """Whether every link still has its target."""
        try:
            return all(os.readlink(link) == target for link, target in self.targets.items())
        except OSError:
            return False

    def _resolve(self, path: str, depth: int) -> str | None:
        """Behind `depth` links; directories first: only links nest."""
        real = self._real
        unknown: list[str] = []
        while path not in real:
            unknown.append(path)
            path = os.path.dirname(path)
        for step in reversed(unknown):
            # Meeting it again means a loop.
            real[step] = None
            try:
                real[step] = self._step(step, depth)
            except _TooManyLinksError:
                del real[step]  # A later link may need fewer steps.
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
        candidate = os.path.join(parent, name)
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
    """A path has too many links."""
