"""Whether someone is still writing what was read, as far as the files themselves can tell."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fsxds.values import SourceFile


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for writers, in seconds.

    `writer_s`: for one who has a file open, since it last changed. `git_s`: for a running git command, since it began.
    `twice_s`: between the two looks that must find the same content where nobody can say whether a file is open.
    """

    writer_s: float
    git_s: float
    twice_s: float


class Writers:
    """Remembers since when each changed file holds still."""

    def __init__(self, root: Path, patience: Patience) -> None:
        """Start knowing nothing about the tree at `root`."""
        self._root = root
        self._patience = patience
        # {path: (what was read, when it was first seen so)}
        self._since: dict[PurePosixPath, tuple[SourceFile, float]] = {}

    def rest_s(self, changed: Iterable[SourceFile], now_s: float, *, can_ask: bool, is_told: bool) -> float:
        """Return how many seconds the changed files should be left to their writers, 0.0 when nobody writes.

        Args:
            changed: what differs from what was served last.
            now_s: `time.monotonic()` of the look that read them.
            can_ask: whether this kernel knows of everybody who opens these files.
            is_told: whether the end of each writing is announced, so that silence means that nobody writes.
        """
        since = self._since
        self._since = {
            file.path: since[file.path] if file.path in since and since[file.path][0] is file else (file, now_s)
            for file in changed
        }
        waits = [self._git_rest_s()]
        for path, (_, seen_s) in self._since.items():
            is_open = is_open_for_writing(self._root / path) if can_ask else None
            if is_open and not _is_old(self._root / path, self._patience.writer_s):
                waits.append(seen_s + self._patience.writer_s - now_s)
            elif is_open is None and not is_told:
                waits.append(seen_s + self._patience.twice_s - now_s)
        return max(0.0, *waits)

    def _git_rest_s(self) -> float:
        """Git holds the lock on its index while it replaces files, so half of a checkout is known to be half."""
        for directory in (self._root, *self._root.parents):
            # Unlike Path.is_dir, this is false where we may not look.
            if os.path.isdir(directory / ".git"):  # noqa: PTH112
                try:
                    age_s = time.time() - (directory / ".git/index.lock").stat().st_mtime
                except OSError:
                    return 0.0
                return max(0.0, self._patience.git_s - abs(age_s))
        return 0.0


def is_open_for_writing(path: Path) -> bool | None:
    """Ask the kernel whether anybody has a file open for writing; None when it does not say.

    A read lease is granted only while nobody has. It is given back at once. It is not granted on the files of other
    users (unless to root), nor by all filesystems.

    Source: fcntl(2), "Leases".
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Whoever opens the file for writing in this very moment makes the kernel send a signal. The default, SIGIO,
        # would end the process; SIGURG is ignored by default.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    else:
        return False
    finally:
        os.close(descriptor)


def _is_old(path: Path, age_s: float) -> bool:
    """Tell whether a file was last modified longer ago than that; one that is gone is old."""
    try:
        return time.time() - path.stat().st_mtime > age_s
    except OSError:
        return True
