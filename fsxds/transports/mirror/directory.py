"""The output directory on disk: its lock, its temporaries, and files that are replaced whole."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path, PurePosixPath

from fsxds.disk_cache.directory_lock import DirectoryLock

OURS = ".fsxds"
"""The folder of the lock, the manifest and the temporaries: a rename among the direct children of a `watched_directory`
makes Envoy reload every file below it (ENVOY.md E24), so temporaries need a place of their own on the same file system."""

MANIFEST = PurePosixPath(OURS, "manifest.json")
_LOCK = PurePosixPath(OURS, "lock")
_TEMPORARY = PurePosixPath(OURS, "next.tmp")

Signature = tuple[int, int, int, int]
"""Inode, size, time of modification and mode: while it is the same, the file was not changed."""


class MirrorDirectory:
    """One output directory. Every path is relative to it, every OSError is the caller's.

    Args:
        root: made, with its parents, when it does not exist.
        durable: what was written survives a power failure: an empty or torn `.pb` makes Envoy delete everything.
        use: what the process that has it does, for the message to others.
    """

    def __init__(self, root: Path, *, durable: bool, use: str = "mirrors into this directory") -> None:
        self.root = root
        self.durable = durable
        self._lock = DirectoryLock(root / _LOCK, use)
        self._unsynced: set[Path] = set()

    def hold(self) -> bool:
        """Lock the directory for this process; return whether it was not locked before.

        Raises:
            UsageError: another process has it.
        """
        if self._lock.is_held:
            return False
        (self.root / OURS).mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._lock.hold(self.root)

    def release(self) -> None:
        """Unlock the directory."""
        self._lock.release()

    def signature(self, path: PurePosixPath) -> Signature | None:
        """Return the signature of a file, None where there is no file of that name."""
        try:
            found = (self.root / path).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode

    def read(self, path: PurePosixPath) -> bytes | None:
        """Return the content of a file, None where there is none, or something else than a file."""
        signature = self.signature(path)
        return (self.root / path).read_bytes() if signature and stat.S_ISREG(signature[3]) else None

    def obstacle(self, path: PurePosixPath) -> PurePosixPath | None:
        """Return what is in the place of a file or of one of its folders and is none; None where there is no such obstacle."""
        for folder in _folders_of(path):
            signature = self.signature(folder)
            if signature is not None and not stat.S_ISDIR(signature[3]):
                return folder
        signature = self.signature(path)
        return path if signature is not None and not stat.S_ISREG(signature[3]) else None

    def replace(
        self, path: PurePosixPath, content: bytes, *, is_private: bool = False, changed_at_s: float | None = None
    ) -> Signature | None:
        """Put a file in place whole, so that a reader sees the old one or the new one; return its signature.

        Envoy reloads a file only when another is renamed over it (ENVOY.md E23), so it is never written in place. Private
        files are for our own user alone, and so are their folders, except for those that are there. `changed_at_s` is the
        time of change that the file gets, None for now.
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
        """Make the folders of a file that are not there, for our own user alone if they are private."""
        if (self.root / path).parent.exists():
            return
        mode = 0o700 if is_private else 0o755
        for folder in _folders_of(path):
            with contextlib.suppress(FileExistsError):
                (self.root / folder).mkdir(mode)
                self._unsynced.add((self.root / folder).parent)

    def remove(self, path: PurePosixPath) -> None:
        """Remove a file, whether it is there or not."""
        (self.root / path).unlink(missing_ok=True)
        self._unsynced.add((self.root / path).parent)

    def remove_empty_folders(self, path: PurePosixPath) -> None:
        """Remove those of a file's folders that are empty, the innermost first."""
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
        """Make the renames and removals since the last call survive a power failure, once per folder."""
        while self._unsynced:
            folder = self._unsynced.pop()
            if self.durable:
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)


def _folders_of(path: PurePosixPath) -> tuple[PurePosixPath, ...]:
    """Return the folders of a file within the directory, the outermost first."""
    return tuple(reversed(path.parents))[1:]
