"""A directory that is this user's alone, where files appear whole or not at all, and old ones go."""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TEMPORARY = ".new-"
"""Begins the names of files that are being written."""

# What a process that was killed left; none writes for so long.
TEMPORARY_FOR_S = 3600.0

# What was not used for so long belongs to a tree or to a version of fsxds that is no more.
UNUSED_FOR_S = 30 * 24 * 3600.0

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not to wait for whoever reads a named pipe that somebody put there.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHERS = 0o077


class NotPrivateError(OSError):
    """A directory belongs to somebody else, who could change what is in it."""


class PrivateDirectory:
    """One opened directory. All names are those of files directly in it, so that no change of the path leads elsewhere."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator[PrivateDirectory]:
        """Open a directory, and make it where there is none: for its owner alone.

        Raises:
            NotPrivateError: it belongs to another user.
            OSError: it cannot be made or read.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        descriptor = os.open(path, _DIRECTORY)
        try:
            status = os.fstat(descriptor)
            if status.st_uid != os.geteuid():
                raise NotPrivateError(f"{path} belongs to user {status.st_uid}")
            if status.st_mode & _OTHERS:
                os.fchmod(descriptor, 0o700)
            yield cls(descriptor)
        finally:
            os.close(descriptor)

    def open(self, name: str, *, create: bool = False) -> int | None:
        """Open a file to read and write, and return its descriptor; None where there is none.

        A file that others may change, or that is none, is removed. That which was open to others once is as if it had never been.
        """
        for _ in range(2):
            with suppress(FileNotFoundError):
                descriptor = self._open(name)
                if descriptor is not None:
                    return descriptor
                os.unlink(name, dir_fd=self._descriptor)
            if not create:
                return None
            with suppress(FileExistsError):
                flags = _FILE | os.O_RDWR | os.O_CREAT | os.O_EXCL
                return os.open(name, flags, 0o600, dir_fd=self._descriptor)
        return None

    def _open(self, name: str) -> int | None:
        """Return the descriptor of a regular file that is this user's alone; None for anything else."""
        try:
            descriptor = os.open(name, _FILE | os.O_RDWR, dir_fd=self._descriptor)
        except FileNotFoundError:
            raise
        except OSError:
            return None
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & _OTHERS:
            return descriptor
        os.close(descriptor)
        return None

    def replace(self, name: str, content: Iterable[bytes]) -> None:
        """Put a file in place as a whole; OSError where that is not possible."""
        temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600, dir_fd=self._descriptor)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(content)
            os.replace(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self._descriptor)
            raise

    def evict(self, ours: re.Pattern[str], keep: str, most_bytes: int) -> None:
        """Remove what was not used for long, and of the others what was not used for longest, down to a size.

        Args:
            ours: matches the names of the files that this is about.
            keep: the name of the one that is in use.
            most_bytes: the size of all together.
        """
        evict_old(self._descriptor, ours, UNUSED_FOR_S, keep)
        size_bytes = 0
        files = _files_of(self._descriptor, ours)
        for name, status in sorted(files, key=lambda row: (row[0] != keep, -row[1].st_mtime)):
            size_bytes += status.st_size
            if size_bytes > most_bytes and name != keep:
                with suppress(OSError):
                    os.unlink(name, dir_fd=self._descriptor)


def evict_old(directory: int | Path, ours: re.Pattern[str], unused_for_s: float, keep: str = "") -> None:
    """Remove the files of a directory that were not used for so long, and what was never finished.

    A file's time of change is that of its last use. One that is far ahead is as old: the clock was set back.

    Args:
        directory: its descriptor, or its path.
        ours: matches the names of the files that this is about; the directory may have others.
        unused_for_s: how long.
        keep: the name of one that stays.
    """
    now_s = time.time()
    for name, status in _files_of(directory, ours):
        limit_s = TEMPORARY_FOR_S if name.startswith(TEMPORARY) else unused_for_s
        if name != keep and abs(now_s - status.st_mtime) > limit_s:
            with suppress(OSError):
                if isinstance(directory, int):
                    os.unlink(name, dir_fd=directory)
                else:
                    (directory / name).unlink()


def _files_of(directory: int | Path, ours: re.Pattern[str]) -> list[tuple[str, os.stat_result]]:
    found = []
    with suppress(OSError), os.scandir(directory) as rows:
        for row in rows:
            with suppress(OSError):
                if ours.fullmatch(row.name) and row.is_file(follow_symlinks=False):
                    found.append((row.name, row.stat(follow_symlinks=False)))
    return found
