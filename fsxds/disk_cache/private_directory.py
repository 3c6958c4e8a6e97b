"""A directory private to this user, with a lock, atomic writes and eviction."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fsxds.model.errors import UsageError

TEMPORARY = ".new-"
"""The prefix of temporary files."""

# Temporary files of a killed process; no write takes that long.
TEMPORARY_FOR_S = 3600.0

# Files unused for this long belong to a removed tree or an old version of fsxds.
UNUSED_FOR_S = 30 * 24 * 3600.0

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Does not block on a named pipe in place of the file.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHERS = 0o077
# The errors of opening an entry that is no private file, as against those of a system without resources.
_NOT_A_FILE = frozenset((errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV, errno.EACCES, errno.EPERM))


class NotPrivateError(OSError):
    """Another user owns the directory, and could change it."""


class PrivateDirectory:
    """An opened directory; names are files directly in it: no change of the path leads elsewhere."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator[PrivateDirectory]:
        """Open or create a directory, private to its owner. Raises NotPrivateError for another user's, or OSError."""
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
        """Return a file's descriptor to read and write, or None.

        An entry that others can access, or no regular file, is removed and counts as missing.
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
        """Return None unless it is a private regular file. Raises OSError."""
        try:
            descriptor = os.open(name, _FILE | os.O_RDWR, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno in _NOT_A_FILE:
                return None
            raise
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & _OTHERS:
            return descriptor
        os.close(descriptor)
        return None

    def replace(self, name: str, content: Iterable[bytes]) -> None:
        """Replace a file atomically. Raises OSError."""
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
        """Remove old files, then the least recently used, down to a total size.

        `ours` matches files to consider; `keep` is in use.
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
    """Remove files unused for a time, and unfinished ones.

    A file's time of change is its last use; far in the future it counts as old: the clock was set back.
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


class DirectoryLock:
    """The lock of a directory; it ends with its process."""

    def __init__(self, path: Path, use: str) -> None:
        """`use` is for error texts, such as `mirrors into this directory`."""
        self._path = path
        self._use = use
        self._lock: int | None = None

    def hold(self, subject: Path) -> bool:
        """Take the lock; return whether it was free. `subject` is the user's name of the directory.

        Raises UsageError if another process has it, or OSError.
        """
        if self.is_held:
            return False
        self.release()
        lock = self._open()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(lock, 20, 0).decode(errors="replace").strip()
            os.close(lock)
            fact = f"{subject}: another fsxds (process {owner or 'unknown'}) {self._use}"
            raise UsageError(f"{fact}; end it, or choose another one") from error
        except OSError:
            os.close(lock)
            raise
        self._lock = lock
        with suppress(OSError):  # it is only for the message above, and the disk may be full
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
        return True

    def _open(self) -> int:
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | flags, 0o600)
        except OSError as error:
            if error.errno != errno.EROFS or not self._path.exists():
                raise
        # A disk that became read-only, such as after an error, can still be read by the process that held the
        # directory.
        return os.open(self._path, os.O_RDONLY | flags)

    @property
    def is_held(self) -> bool:
        """Whether the locked directory still exists, not a recreated one."""
        if self._lock is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._lock), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
