"""Detects writers that cause no events: by leases, and by git's lock."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fsxds.model.values import SourceFile

# A key, and a path.
_MOST_GITDIR_BYTES = 8 + 4096

# After a git command.
_MOMENT_S = 0.001


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for writers, in seconds.

    `writer_s`: for an open file, since its last change; `git_s`: since a git command began; `twice_s`: until another
    look.
    """

    writer_s: float
    git_s: float
    twice_s: float


class Writers:
    """Remembers since when changed files are unchanged."""

    def __init__(self, root: Path, patience: Patience) -> None:
        self._root = root
        self._patience = patience
        # When git's index was written, and its inode.
        self._index: tuple[int, int] | None = None
        # {path: (file, when this content was first seen)}
        self._since: dict[PurePosixPath, tuple[SourceFile, float]] = {}

    def rests_s(
        self, changed: Iterable[SourceFile], now_s: float, *, can_ask: bool, is_reported: bool
    ) -> dict[PurePosixPath, float]:
        """Return the seconds to wait for changed files' writers, if any.

        `now_s` is `time.monotonic()` of their look. `can_ask`: this kernel knows all openers; `is_reported`: ends of
        writing have events.
        """
        since = self._since
        self._since = {
            file.path: since[file.path] if file.path in since and since[file.path][0] is file else (file, now_s)
            for file in changed
        }
        waits = {}
        for path, (_, seen_s) in self._since.items():
            is_open = is_open_for_writing(self._root / path) if can_ask else None
            if is_open and not _is_old(self._root / path, self._patience.writer_s):
                waits[path] = seen_s + self._patience.writer_s - now_s
            elif is_open is None and not is_reported:
                waits[path] = seen_s + self._patience.twice_s - now_s
        return {path: wait_s for path, wait_s in waits.items() if wait_s > 0.0}

    def has_no_writer(self, path: PurePosixPath) -> bool:
        """Whether certainly nobody writes to a file, nor git."""
        return is_open_for_writing(self._root / path) is False and self.git_rest_s() == 0.0

    def git_rest_s(self) -> float:
        """Return the seconds to wait for git; 0.0 for none.

        Git locks its index while it replaces files; after a command that ended since the last call, a moment is
        returned.
        """
        for directory in (self._root, *self._root.parents):
            if (git := _git_directory(directory)) is not None:
                index = _times_of(git / "index")
                index_before, self._index = self._index, index
                lock = _times_of(git / "index.lock")
                rest_s = 0.0 if lock is None else self._patience.git_s - abs(time.time() - lock[0] / 1e9)
                return max(0.0, rest_s, _MOMENT_S if index != index_before else 0.0)
        return 0.0


def _git_directory(directory: Path) -> Path | None:
    """None: no top of a repository, worktree or submodule.

    Source: gitrepository-layout(5): `.git` may be a file with the line `gitdir: PATH`.
    """
    path = directory / ".git"
    # Unlike Path.is_dir, false without permission.
    if os.path.isdir(path):  # noqa: PTH112
        return path
    try:
        # A pipe would make us wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            key, _, target = os.fsdecode(os.read(descriptor, _MOST_GITDIR_BYTES)).strip().partition(": ")
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return directory / target if key == "gitdir" and "\0" not in target else None


def _times_of(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def is_open_for_writing(path: Path) -> bool | None:
    """Return whether any process has a file open for writing; None: unknown.

    A read lease is granted only if none has; not on others' files (unless to root), nor by all filesystems.

    Source: fcntl(2), "Leases".
    """
    try:
        descriptor = _open_with_lease(path)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    os.close(descriptor)
    return False


def read_undisturbed(path: Path, max_size_bytes: int) -> bytes | None:
    """Return a file's content; None: open for writing, larger, or unknown.

    Meanwhile, processes that open it for writing wait.
    """
    try:
        descriptor = _open_with_lease(path)
        try:
            content = os.read(descriptor, max_size_bytes + 1)
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return content if len(content) <= max_size_bytes else None


def _open_with_lease(path: Path) -> int:
    """The lease ends on close; OSError with EAGAIN if open for writing."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # The kernel sends a signal if the file is opened for writing right now. The default, SIGIO, would end the
        # process; SIGURG is ignored.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_old(path: Path, age_s: float) -> bool:
    try:
        return time.time() - path.stat().st_mtime > age_s
    except OSError:
        return True
