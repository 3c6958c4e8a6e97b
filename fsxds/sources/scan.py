"""Read a directory tree into values; unchanged files are not read again."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fsxds.errors import FsxdsError
from fsxds.sources.file_names import Exclusion, as_text
from fsxds.sources.reading import Content, Refusal, read_file
from fsxds.sources.walk import FoundFile, Identity, LostDirectory, Signature, Walk, problem_of, remedy_of
from fsxds.values import Problem, SourceFile, SourceTree

DEFAULT_MAX_FILE_SIZE_BYTES = 64 * 1024 * 1024

# A generation that is swapped while it is read is read again; more than a few swaps in a row are no swap but an
# upheaval, and whoever watches is told so by `Look.is_steady`. Nor is a tree read again that takes long to read.
_TRIES = 5
_TRYING_S = 0.5


class TreeLost(FsxdsError):  # noqa: N818 - it says what happened, as the observers' methods do
    """The directory that is served is not there, is not a directory, or lost all its files at once."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a tree saw.

    `is_steady` is false when the tree kept changing while it was read, so that `tree` may mix generations.
    `tops` are the real paths of the root and of linked directories, `directories` those of all that were listed, and
    `paths` those of the files by their paths in the tree. `turning_points` are the linked files, and the paths whose
    replacement would change where the root or a link leads.
    """

    tree: SourceTree
    is_steady: bool
    tops: tuple[str, ...]
    directories: Mapping[str, Identity]
    paths: Mapping[str, str]
    turning_points: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is remembered of a file; `is_racy` says that it was so young that its signature proves nothing."""

    signature: Signature
    file: SourceFile
    is_racy: bool


class Scanner:
    """Reads one tree again and again, and each of its files only when it changed. For one caller at a time."""

    def __init__(
        self,
        root: Path,
        *,
        is_read: Callable[[str], bool],
        exclusion: Exclusion | None = None,
        max_file_size_bytes: int = DEFAULT_MAX_FILE_SIZE_BYTES,
    ) -> None:
        """Remember what to read.

        Args:
            root: the directory, which may be a link.
            is_read: tells by a file's name whether a format claims it; the others are listed as ignored.
            exclusion: what the user excludes; it is neither read nor ignored.
            max_file_size_bytes: a larger file is a problem and is not read.
        """
        self.root = root.absolute()
        self.is_read = is_read
        self.exclusion = exclusion or Exclusion()
        self.max_file_size_bytes = max_file_size_bytes
        self._seen: dict[str, _Seen] = {}
        self._tree = SourceTree(())

    def scan(self) -> SourceTree:
        """Return the tree as it is now, of one generation even while links are being swapped.

        Raises:
            TreeLost: the root is missing or is not a directory.
        """
        return self.look().tree

    def look(self) -> Look:
        """Return the tree as it is now, with what a watcher needs to know about where it is.

        Raises:
            TreeLost: the root is missing or is not a directory.
        """
        started_s = time.monotonic()
        walk, is_steady = self._take_in()
        tries = 1
        while not is_steady and tries < _TRIES and time.monotonic() - started_s < _TRYING_S:
            walk, is_steady = self._take_in()
            tries += 1
        return Look(
            self._tree,
            is_steady,
            tuple(walk.tops),
            walk.directories,
            {file.relative: file.path for file in walk.files},
            frozenset({*walk.links.targets, *walk.links.missing, *walk.tops, *walk.linked_files}),
        )

    def _take_in(self) -> tuple[Walk, bool]:
        walk = Walk(str(self.root), self.is_read, self._seen, self.exclusion)
        if walk.root_error is not None:
            raise TreeLost(f"{self.root}: the directory {_lost_because(walk.root_error)}")
        problems = [*walk.problems, *self._problems_of_lost(walk.lost)]
        seen, are_whole = self._read_changed(walk.files, problems)
        is_steady = are_whole and walk.is_still_true()
        self._tree = self._tree_of(seen, problems, walk)
        # What cannot be read now is remembered: should its directory be lost next, it has to be named still.
        kept = {str(problem.path) for problem in problems} & self._seen.keys()
        self._seen = seen | {relative: self._seen[relative] for relative in kept}
        return walk, is_steady

    def _read_changed(self, found: list[FoundFile], problems: list[Problem]) -> tuple[dict[str, _Seen], bool]:
        """Return what is now known of the found files, and whether each of them held still while it was read."""
        seen: dict[str, _Seen] = {}
        are_whole = True
        for relative, path, signature in found:
            before = self._seen.get(relative)
            if before is not None and before.signature == signature and not before.is_racy:
                seen[relative] = before
                continue
            outcome = read_file(path, self.max_file_size_bytes)
            if isinstance(outcome, Content):
                seen[relative] = _remembered(relative, outcome, before)
            elif isinstance(outcome, Refusal):
                problems.append(problem_of(relative, outcome.rule, outcome.message, outcome.remedy))
            else:
                are_whole = False
                if before is not None:
                    seen[relative] = _Seen(before.signature, before.file, is_racy=True)
        return seen, are_whole

    def _problems_of_lost(self, lost: list[LostDirectory]) -> list[Problem]:
        """Name the lost directories and each file that was known below one."""
        found = [directory.problem for directory in lost]
        for relative, directory in self._known_below(lost):
            problem = directory.problem
            message = f"its directory {as_text(directory.relative)} is lost: {problem.message}"
            found.append(problem_of(relative, problem.rule, message, problem.remedy))
        return found

    def _known_below(self, lost: list[LostDirectory]) -> list[tuple[str, LostDirectory]]:
        return [
            (relative, directory)
            for directory in lost
            for relative in self._seen
            if relative.startswith(directory.relative + "/")
        ]

    def _tree_of(self, seen: dict[str, _Seen], problems: list[Problem], walk: Walk) -> SourceTree:
        before = self._tree
        files = before.files
        if len(seen) != len(files) or any(_file_of(seen, file) is not file for file in files):
            files = tuple(sorted((known.file for known in seen.values()), key=lambda file: file.path.parts))
        tree = SourceTree(files, tuple(sorted(problems)), _paths_of(walk.ignored), _paths_of(walk.excluded))
        return before if tree == before else tree


def _lost_because(error: OSError) -> str:
    match error.errno:
        case errno.ENOENT:
            return "does not exist; create it, or name another one"
        case errno.ENOTDIR:
            return "is not a directory; create it, or name another one"
    return f"cannot be read: {error.strerror}; {remedy_of(error)}"


def _paths_of(relatives: list[str]) -> tuple[PurePosixPath, ...]:
    return tuple(PurePosixPath(as_text(relative)) for relative in sorted(relatives))


def _file_of(seen: dict[str, _Seen], file: SourceFile) -> SourceFile | None:
    known = seen.get(str(file.path))
    return None if known is None else known.file


def _remembered(relative: str, outcome: Content, before: _Seen | None) -> _Seen:
    """Remember what was read; equal content keeps its value, so that files can be told apart by identity."""
    file = SourceFile.of(PurePosixPath(relative), outcome.content)
    if before is not None and before.file.digest == file.digest:
        file = before.file
    return _Seen(outcome.signature, file, outcome.is_racy)
