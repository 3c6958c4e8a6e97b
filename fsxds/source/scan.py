"""Reads a tree into values: each file whole and in one state, changed ones only."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from fsxds.model.errors import TreeLost
from fsxds.model.values import (
    MANIFEST,
    MANIFEST_SIGNATURE,
    NO_MANIFEST,
    Fault,
    ManifestFiles,
    Problem,
    SourceFile,
    SourceTree,
)
from fsxds.source.listing import (
    BOUNDS,
    GONE,
    MANIFEST_NAMES,
    Exclusion,
    FoundFile,
    Identity,
    LostDirectory,
    Signature,
    TreeBounds,
    TreeListing,
    is_passed_over,
    is_text,
    printable_name,
    problem_of,
    remedy_of,
    signature_of,
)

# A generation swapped while it is read is read again, unless that takes long; many swaps in a row are reported by
# `ScanResult.is_steady`.
_TREE_TRIES = 5
_TRYING_S = 0.5

# More take as long as a look at the whole tree.
_MOST_LOOKED_AT = 1000

# A faster writer has not finished anyway.
_FILE_TRIES = 5

# Two writes within one tick of the filesystem's clock leave one timestamp. Ticks are 1 to 10 ms locally, 1 s on some
# remote filesystems and 2 s on FAT, so a younger file is compared by content.
_RACY_NS = 2_000_000_000

_CHUNK_BYTES = 64 * 1024

# Files in /proc have size 0, and may not end.
_MOST_UNSIZED_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ScanResult:
    """One look at a tree; unless `is_steady` it may mix generations.

    `tops` are real paths of the root and linked directories, `directories` by real path, `paths` real ones by paths in
    the tree, `link_paths` linked files and paths that affect links or the root.
    """

    tree: SourceTree
    is_steady: bool
    tops: tuple[str, ...]
    directories: Mapping[str, Identity]
    paths: Mapping[str, str]
    link_paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A known file; `is_racy`: too young for its signature to prove anything."""

    signature: Signature
    file: SourceFile
    is_racy: bool


class Scanner:
    """Reads one tree repeatedly, only changed files; for one caller at a time."""

    def __init__(
        self,
        root: Path,
        *,
        is_read: Callable[[str], bool],
        exclusion: Exclusion | None = None,
        bounds: TreeBounds = BOUNDS,
    ) -> None:
        """Prepare to read `root`, maybe a link.

        Files that no format claims by `is_read` are ignored; excluded ones are neither read nor ignored.
        """
        self.root = root.absolute()
        self.is_read = is_read
        self.exclusion = exclusion or Exclusion()
        self.bounds = bounds
        self._seen: dict[str, _Seen] = {}
        self._tree = SourceTree(())
        # Real paths of its files.
        self._paths: Mapping[str, str] = {}
        # Of the last look: {real path: path in the tree}.
        self._look: ScanResult | None = None
        self._plain: dict[str, str] | None = None
        # So `_tree` is an earlier one.
        self._is_too_large = False

    def scan(self) -> SourceTree:
        """Return the present tree, of one generation despite swaps. Raises TreeLost."""
        return self.look().tree

    def look(self) -> ScanResult:
        """Return the present tree, with a watcher's paths. Raises TreeLost."""
        started_s = time.monotonic()
        walk, is_steady = self._take_in()
        tries = 1
        while not is_steady and tries < _TREE_TRIES and time.monotonic() - started_s < _TRYING_S:
            walk, is_steady = self._take_in()
            tries += 1
        self._plain = None
        self._look = ScanResult(
            self._tree,
            is_steady,
            tuple(walk.tops),
            walk.directories,
            self._paths,
            frozenset({*walk.links.targets, *walk.links.missing, *walk.tops, *walk.linked_files}),
        )
        return self._look

    def look_at(self, paths: Collection[str]) -> ScanResult | None:
        """Read only these real paths; no others may have changed.

        Returns None if the whole tree must be looked at: a path is, or was, more than a file with one name in a listed
        directory, or unreadable, or there are too many.
        """
        look = self._look
        if look is None or not look.is_steady or self._is_too_large or len(paths) > _MOST_LOOKED_AT:
            return None
        if not (look.link_paths.isdisjoint(paths) and look.directories.keys().isdisjoint(paths)):
            return None
        if self._plain is None:
            self._plain = {path: relative for relative, path in look.paths.items()}
        files, found = list(self._tree.files), dict(look.paths)
        for path in paths:
            relative = self._plain.get(path) or self._relative_of_new(path, look)
            if relative is None or not self._look_at_one(path, relative, files):
                return None
            if relative in self._seen:
                found[relative], self._plain[path] = path, relative
            else:
                found.pop(relative, None)
                self._plain.pop(path, None)
        if len(files) + len(look.directories) > self.bounds.max_files:
            return None
        self._tree, self._paths = replace(self._tree, files=tuple(files)), found
        self._look = replace(look, tree=self._tree, paths=found)
        return self._look

    def is_as_read(self, path: PurePosixPath, real: str) -> bool:
        """Return whether a file is as last read."""
        known = self._seen.get(str(path))
        try:
            return known is not None and signature_of(os.stat(real)) == known.signature  # noqa: PTH116
        except OSError:
            return False

    def _look_at_one(self, path: str, relative: str, files: list[SourceFile]) -> bool:
        parts, before = PurePosixPath(relative).parts, self._seen.get(relative)
        place = bisect_left(files, parts, key=lambda file: file.path.parts)
        there = files[place : place + 1] if place < len(files) and files[place].path.parts == parts else []
        outcome = read_file(path, self.bounds.max_file_size_bytes)
        if isinstance(outcome, FileContent) and _has_one_name(path, outcome):
            self._seen[relative] = _remembered(relative, outcome, before)
            files[place : place + len(there)] = [self._seen[relative].file]
            # The file may be one of the problems.
            return bool(there) or not self._tree.problems
        if outcome is None and not os.path.lexists(path):
            self._seen.pop(relative, None)
            del files[place : place + len(there)]
            return not self._tree.problems
        return False

    def _relative_of_new(self, path: str, look: ScanResult) -> str | None:
        """None if it would not be read, or is uncertain."""
        directory, _, name = path.rpartition("/")
        relative = path.removeprefix(look.tops[0].rstrip("/") + "/")
        if directory not in look.directories or relative == path or not (is_text(name) and self.is_read(name)):
            return None
        # Only links lead below passed-over directories.
        is_reached = not any(map(is_passed_over, relative.split("/"))) and not self.exclusion.covers(relative)
        return relative if is_reached else None

    def _take_in(self) -> tuple[TreeListing, bool]:
        bounds = self.bounds._replace(exclusion=self.exclusion)
        walk = TreeListing(str(self.root), self._is_listed, self._seen, bounds)
        if walk.root_error is not None:
            raise TreeLost(f"{self.root}: the directory {_lost_because(walk.root_error)}")
        self._is_too_large = walk.surplus is not None
        if walk.surplus is not None:
            self._tree = replace(self._tree, problems=(self._too_large(walk.surplus),))
            return walk, walk.is_still_true()
        problems = [*walk.problems, *self._problems_of_lost(walk.lost)]
        seen, are_whole = self._read_changed(walk.files, problems)
        is_steady = are_whole and walk.is_still_true()
        self._tree = self._tree_of(seen, problems, walk)
        self._paths = {file.relative: file.path for file in walk.files if file.relative not in MANIFEST_NAMES}
        # To name unreadable files if their directory is lost next.
        kept = {str(problem.path) for problem in problems} & self._seen.keys()
        self._seen = seen | {relative: self._seen[relative] for relative in kept}
        return walk, is_steady

    def _is_listed(self, name: str) -> bool:
        return name in MANIFEST_NAMES or self.is_read(name)

    def _too_large(self, surplus: str) -> Problem:
        message = f"the tree has more than {self.bounds.max_files} files and directories; the content read before stays"
        remedy = "serve a smaller directory, leave some out by the setting exclude, or raise the setting max_files"
        return problem_of(surplus or ".", "too-many-files", message, remedy)

    def _read_changed(self, found: list[FoundFile], problems: list[Problem]) -> tuple[dict[str, _Seen], bool]:
        seen: dict[str, _Seen] = {}
        are_whole = True
        for relative, path, signature in found:
            before = self._seen.get(relative)
            if before is not None and before.signature == signature and not before.is_racy:
                seen[relative] = before
                continue
            outcome = read_file(path, self.bounds.max_file_size_bytes)
            if isinstance(outcome, FileContent):
                seen[relative] = _remembered(relative, outcome, before)
            elif isinstance(outcome, Fault):
                problems.append(problem_of(relative, outcome.rule, outcome.message, outcome.remedy))
            else:
                are_whole = False
                if before is not None:
                    seen[relative] = _Seen(before.signature, before.file, is_racy=True)
        return seen, are_whole

    def _problems_of_lost(self, lost: list[LostDirectory]) -> list[Problem]:
        found = [directory.problem for directory in lost]
        problems = {directory.relative: directory.problem for directory in lost}
        for relative in self._seen if lost else ():
            for slash in re.finditer("/", relative):
                directory = relative[: slash.start()]
                if (problem := problems.get(directory)) is not None:
                    message = f"its directory {printable_name(directory)} is lost: {problem.message}"
                    found.append(problem_of(relative, problem.rule, message, problem.remedy))
        return found

    def _tree_of(self, seen: dict[str, _Seen], problems: list[Problem], walk: TreeListing) -> SourceTree:
        before = self._tree
        files = before.files
        signed = _manifest_of(seen, problems)
        found = {relative: known.file for relative, known in seen.items() if relative not in MANIFEST_NAMES}
        # By identity: 10 000 paths take 14 ms.
        if set(map(id, found.values())) != set(map(id, files)):
            files = tuple(sorted(found.values(), key=lambda file: file.path.parts))
        others = (problem for problem in problems if problem not in signed.problems)
        tree = SourceTree(files, tuple(sorted(others)), _paths_of(walk.ignored), _paths_of(walk.excluded), signed)
        return before if tree == before else tree


def _manifest_of(seen: Mapping[str, _Seen], problems: list[Problem]) -> ManifestFiles:
    manifest, signature = seen.get(MANIFEST), seen.get(MANIFEST_SIGNATURE)
    of_both = tuple(sorted(problem for problem in problems if str(problem.path) in MANIFEST_NAMES))
    if manifest is None and signature is None and not of_both:
        return NO_MANIFEST
    return ManifestFiles(
        None if manifest is None else manifest.file, None if signature is None else signature.file, of_both
    )


def _has_one_name(path: str, content: FileContent) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_nlink == 1 and signature_of(status) == content.signature


def _lost_because(error: OSError) -> str:
    match error.errno:
        case errno.ENOENT:
            return "does not exist; create it, or name another one"
        case errno.ENOTDIR:
            return "is not a directory; create it, or name another one"
    return f"cannot be read: {error.strerror}; {remedy_of(error)}"


def _paths_of(relatives: list[str]) -> tuple[PurePosixPath, ...]:
    return tuple(PurePosixPath(printable_name(relative)) for relative in sorted(relatives))


def _remembered(relative: str, outcome: FileContent, before: _Seen | None) -> _Seen:
    """Equal content keeps its object."""
    file = SourceFile.of(PurePosixPath(relative), outcome.content)
    if before is not None and before.file.digest == file.digest:
        file = before.file
    return _Seen(outcome.signature, file, outcome.is_racy)


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file's content; `is_racy`: too young for its signature to prove it unchanged."""

    content: bytes
    signature: Signature
    is_racy: bool


def read_file(path: str, max_size_bytes: int) -> FileContent | Fault | None:
    """Return a file's content; None: gone, or another kind of entry."""
    try:
        # O_NONBLOCK: a pipe in its place does not wait for a writer. O_NOFOLLOW: a link in its place may lead anywhere.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        return None if error.errno in {*GONE, errno.ELOOP} else _unreadable(error)
    try:
        return _read_steadily(descriptor, max_size_bytes)
    except OSError as error:
        return _unreadable(error)
    finally:
        os.close(descriptor)


def _read_steadily(descriptor: int, max_size_bytes: int) -> FileContent | Fault | None:
    for _ in range(_FILE_TRIES):
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            return None
        if before.st_size > max_size_bytes:
            return _too_large(before.st_size, max_size_bytes)
        started_ns = time.time_ns()
        limit_bytes = max_size_bytes if before.st_size else min(max_size_bytes, _MOST_UNSIZED_BYTES)
        content = _read_from_start(descriptor, before.st_size, limit_bytes)
        if len(content) > limit_bytes and signature_of(os.fstat(descriptor)) == signature_of(before):
            return _too_large(None, limit_bytes)
        if signature_of(os.fstat(descriptor)) == signature_of(before):
            age_ns = started_ns - max(before.st_mtime_ns, before.st_ctime_ns)
            return FileContent(content, signature_of(before), abs(age_ns) < _RACY_NS)
    message = "the file changes faster than it can be read"
    return Fault("unreadable-file", message, "move a finished file into its place instead")


def _read_from_start(descriptor: int, size_bytes: int, max_size_bytes: int) -> bytes:
    """Read all, but at most a little more than the limit. Raises BlockingIOError, never with a regular file."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    content = bytearray()
    while len(content) <= max_size_bytes:
        chunk = os.read(descriptor, max(size_bytes + 1 - len(content), _CHUNK_BYTES))
        if not chunk:
            break
        content += chunk
    return bytes(content)


def _too_large(size_bytes: int | None, max_size_bytes: int) -> Fault:
    size = "more bytes than" if size_bytes is None else f"{size_bytes} bytes, more than"
    message = f"the file has {size} the {max_size_bytes} that are read"
    return Fault("file-too-large", message, "split it, or raise the setting max_file_size")


def _unreadable(error: OSError) -> Fault:
    return Fault("unreadable-file", f"the file cannot be read: {error.strerror}", remedy_of(error))
