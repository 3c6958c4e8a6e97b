"""Locks a directory for one process."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from fsxds.model.errors import UsageError


class DirectoryLock:
    """The lock of a directory; it ends with its process."""

    def __init__(self, path: Path, use: str) -> None:
        """`use` is for error texts, such as `mirrors into this directory`."""
        self._path = path
        self._use = use
        self._lock: int | None = None

    def hold(self, subject: Path) -> bool:
        """Take the lock; return whether it was not held before.

        `subject` is the user's name of the directory.

        Raises:
            UsageError: another process has it.
            OSError: the file cannot be opened.
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
