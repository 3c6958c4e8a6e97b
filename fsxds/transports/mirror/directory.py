"""The output directory: its lock, temporary file, and atomic replacement of files."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path, PurePosixPath

from fsxds.disk_cache.directory_lock import DirectoryLock

OURS = ".fsxds"
"""The folder of the lock, the manifest and the temporary file.

A rename among the direct children of a `watched_directory` makes Envoy reload every file below it (ENVOY.md E24), hence
a folder, on the same file system.
"""

MANIFEST = PurePosixPath(OURS, "manifest.json")
_LOCK = PurePosixPath(OURS, "lock")
_TEMPORARY = PurePosixPath(OURS, "next.tmp")

Signature = tuple[int, int, int, int]
"""Inode, size, time of modification and mode; equal for an unchanged file."""


class MirrorDirectory:
    """One output directory, with relative paths; callers handle OSError.

    Args:
        durable: files must survive a power failure: an empty or torn `.pb` makes Envoy delete everything.
        use: of this process, for another one's error.
    """

    def __init__(self, root: Path, *, durable: bool, use: str = "mirrors into this directory") -> None:
        self.root = root
        self.durable = durable
        self._lock = DirectoryLock(root / _LOCK, use)
        self._unsynced: set[Path] = set()

    def hold(self) -> bool:
        """Lock the directory; return whether it was unlocked.

        Raises:
            UsageError: another process holds the lock.
        """
        if self._lock.is_held:
            return False
        (self.root / OURS).mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._lock.hold(self.root)

    def release(self) -> None:
        """Unlock the directory."""
        self._lock.release()

    def signature(self, path: PurePosixPath) -> Signature | None:
        """Return a file's signature, or None."""
        try:
            found = (self.root / path).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode

    def read(self, path: PurePosixPath) -> bytes | None:
        """Return a regular file's content, or None."""
        signature = self.signature(path)
        return (self.root / path).read_bytes() if signature and stat.S_ISREG(signature[3]) else None

    def obstacle(self, path: PurePosixPath) -> PurePosixPath | None:
        """Return the first part of a path that is of another kind, or None."""
        for folder in _folders_of(path):
            signature = self.signature(folder)
            if signature is not None and not stat.S_ISDIR(signature[3]):
                return folder
        signature = self.signature(path)
        return path if signature is not None and not stat.S_ISREG(signature[3]) else None

    def replace(
        self, path: PurePosixPath, content: bytes, *, is_private: bool = False, changed_at_s: float | None = None
    ) -> Signature | None:
        """Replace a file atomically; return the new signature.

        Envoy reloads a file only when another is renamed over it (ENVOY.md E23). `is_private` restricts file and new
        folders to our user. `changed_at_s` is the modification time; None: now.
        """
        target, temporary = self.root / path, self.root / _TEMPORARY
        self.make_folders(path, is_private=is_private)
        temporary.unlink(missing_ok=True)
        mode = 0o600 if is_private else 0o644
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
                file.write(content)
                file.flush()
                if self.durable:
                    os.fdatasync(file.fileno())
            if changed_at_s is not None:
                os.utime(temporary, (changed_at_s, changed_at_s))
            temporary.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is the one to report
                temporary.unlink(missing_ok=True)
            raise
        self._unsynced.add(target.parent)
        return self.signature(path)

    def make_folders(self, path: PurePosixPath, *, is_private: bool = False) -> None:
        """Make missing parent folders; private ones for our user alone."""
        if (self.root / path).parent.exists():
            return
        mode = 0o700 if is_private else 0o755
        for folder in _folders_of(path):
            with contextlib.suppress(FileExistsError):
                (self.root / folder).mkdir(mode)
                self._unsynced.add((self.root / folder).parent)

    def remove(self, path: PurePosixPath) -> None:
        """Remove a file if it exists."""
        (self.root / path).unlink(missing_ok=True)
        self._unsynced.add((self.root / path).parent)

    def remove_empty_folders(self, path: PurePosixPath) -> None:
        """Remove empty parent folders, innermost first."""
        for folder in reversed(_folders_of(path)):
            try:
                (self.root / folder).rmdir()
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                    raise
                return
            self._unsynced.discard(self.root / folder)
            self._unsynced.add((self.root / folder).parent)

    def sync(self) -> None:
        """Make renames and removals durable, one sync per folder."""
        while self._unsynced:
            folder = self._unsynced.pop()
            if self.durable:
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)


def _folders_of(path: PurePosixPath) -> tuple[PurePosixPath, ...]:
    """Below the root, the outermost first."""
    return tuple(reversed(path.parents))[1:]
