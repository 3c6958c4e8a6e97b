"""The output directory: its lock, atomic replacement of files, and the record of ours.

If others remove or change mirrored files, fsxds undoes it, at a limited rate.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fsxds.disk_cache.private_directory import DirectoryLock
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Snapshot
from fsxds.model.values import BackOff, TypeUrl
from fsxds.source.listing import identity_of
from fsxds.source.notifications import Notifications
from fsxds.transports.mirror.files import BUNDLES, COLLECTIONS, FORMS, SINGLES, FileOnDisk, MirrorEncoding, MirrorFile
from fsxds.transports.mirror.layout import is_path_of_resource

OURS = ".fsxds"
"""The folder of the lock, the manifest and the temporary file.

A rename among the direct children of a `watched_directory` makes Envoy reload every file below it (ENVOY.md E24), hence
a folder, on the same file system.
"""

MANIFEST = PurePosixPath(OURS, "manifest.json")
_LOCK = PurePosixPath(OURS, "lock")
_TEMPORARY = PurePosixPath(OURS, "next.tmp")

Signature = tuple[int, int, int, int]
"""Inode, size, time of modification and mode; equal for an unchanged file.
"""


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
        """Return a path's first part of another kind, or None."""
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

        Envoy reloads a file only when another is renamed over it (ENVOY.md E23). `is_private`: our user alone. `changed_at_s`:
        modification time; None: now.
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
        """Make missing parents; private: our user alone."""
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
    return tuple(reversed(path.parents))[1:]


LAYOUT = 1
"""A manifest of another version is not read."""

# With its authority: `lcds/example.com/edge.yaml`.
_WITH_AUTHORITIES = {BY_TYPE_URL[type_url].short_name for type_url in COLLECTIONS}
_OF_AUTHORITY = 3


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """One of our files, maybe a stand-in (see `MirrorFile`).

    `digest` is a SHA-256; None before it is written: ours with any content.
    """

    type_url: TypeUrl
    names: tuple[str, ...]
    digest: str | None
    is_stand_in: bool = False


def encode_manifest(rows: Mapping[PurePosixPath, ManifestRow]) -> bytes:
    """Encode the manifest; equal rows, equal bytes."""
    files = [
        {"path": str(path), "type_url": row.type_url, "names": row.names, "sha256": row.digest}
        | ({"is_stand_in": True} if row.is_stand_in else {})
        for path, row in sorted(rows.items())
    ]
    return json.dumps({"layout": LAYOUT, "files": files}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def decode_manifest(content: bytes) -> dict[PurePosixPath, ManifestRow]:
    """Decode a manifest.

    Raises:
        ValueError: it is none, or names a file that fsxds cannot have written.
    """
    try:
        document = json.loads(content)
        if document["layout"] != LAYOUT:
            raise ValueError(f"layout {document['layout']!r} is not {LAYOUT}")
        return {_checked(PurePosixPath(row["path"])): _row(row) for row in document["files"]}
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a manifest of fsxds: {error!r}") from error


def _row(fields: Mapping[str, object]) -> ManifestRow:
    type_url, names, digest = fields["type_url"], fields["names"], fields["sha256"]
    if type_url not in BY_TYPE_URL or not isinstance(names, list) or not isinstance(digest, str | None):
        raise ValueError(f"not a row of a manifest: {fields!r}")
    return ManifestRow(TypeUrl(str(type_url)), tuple(map(str, names)), digest, fields.get("is_stand_in") is True)


def _checked(path: PurePosixPath) -> PurePosixPath:
    """Inside the directory: rows' files may be overwritten and removed."""
    stem, _, form = path.name.rpartition(".")
    if form in FORMS and is_path_of_resource(path):
        return path
    is_bundle = len(path.parts) == 1
    words = {BY_TYPE_URL[type_url].short_name for type_url in (BUNDLES if is_bundle else SINGLES)}
    folder = path.parent
    if len(path.parts) == _OF_AUTHORITY and path.parts[0] in _WITH_AUTHORITIES and ".." not in path.parts:
        folder = folder.parent
    if form not in FORMS or (stem if is_bundle else str(folder)) not in words:
        raise ValueError(f"fsxds writes no file {str(path)!r}")
    return path


class MirrorRecords:
    """One directory's files that fsxds wrote, across restarts.

    `load` first, `announce` before changes and `save` after: a crash leaves no unrecorded file.
    """

    def __init__(self, directory: MirrorDirectory, encoding: MirrorEncoding) -> None:
        self._directory = directory
        self._encoding = encoding
        self._is_loaded = False
        self._rows: dict[PurePosixPath, ManifestRow] = {}
        # As on disk.
        self._manifest = b""
        self._manifest_signature: Signature | None = None
        # Valid for this signature.
        self._known: dict[PurePosixPath, tuple[Signature | None, MirrorFile]] = {}

    def forget(self) -> None:
        """Have `load` read again, as others may have changed it."""
        self._is_loaded = False

    def load(self) -> None:
        """Read the manifest once; if damaged, no file is ours."""
        if self._is_loaded:
            return
        self._known = {}
        self._manifest = self._directory.read(MANIFEST) or b""
        self._manifest_signature = self._directory.signature(MANIFEST)
        try:
            self._rows = decode_manifest(self._manifest) if self._manifest else {}
        except ValueError:
            # Equal files are adopted, others reported with a remedy.
            self._rows = {}
        self._is_loaded = True

    @property
    def paths(self) -> Collection[PurePosixPath]:
        """The paths of files that fsxds wrote, or was about to."""
        return self._rows.keys()

    def owns_content(self, path: PurePosixPath, content: bytes | None) -> bool:
        """Whether our file has our content; None: missing."""
        return content is not None and self._rows[path].digest in {None, hashlib.sha256(content).hexdigest()}

    def changed_by_others(self) -> dict[PurePosixPath, Signature | None]:
        """Return our files and manifest that others changed or removed, with signatures.

        The lock may have gone with them.
        """
        known = {path: signature for path, (signature, _) in self._known.items()}
        if self._manifest:
            known[MANIFEST] = self._manifest_signature
        found = {path: self._directory.signature(path) for path in known}
        return {path: signature for path, signature in found.items() if signature != known[path]}

    def held(self, snapshot: Snapshot) -> dict[PurePosixPath, FileOnDisk]:
        """Return our existing files; forget missing ones.

        A bundle that would lose resources is read, to keep them a while.
        """
        held: dict[PurePosixPath, FileOnDisk] = {}
        for path, row in list(self._rows.items()):
            signature = self._directory.signature(path)
            if signature is None:
                self.drop(path)
                continue
            known = self._known.get(path)
            content = known[1] if known and known[0] == signature else None
            if content is None and row.type_url in BUNDLES and set(row.names) - snapshot.resources(row.type_url).keys():
                content = self._encoding.decode(self._directory.read(path) or b"", path, row.type_url)
                if content is not None:
                    self._known[path] = signature, content
            held[path] = FileOnDisk(row.type_url, row.names, content, row.is_stand_in)
        return held

    def announce(self, files: Iterable[MirrorFile]) -> None:
        """Record that these will be ours."""
        self._write(self._rows | {file.path: _row_of(file, None) for file in files})

    def record(self, file: MirrorFile, content: bytes, signature: Signature | None) -> None:
        """Record a file's content with its signature."""
        self._rows[file.path] = _row_of(file, hashlib.sha256(content).hexdigest())
        self._known[file.path] = signature, file

    def drop(self, path: PurePosixPath) -> None:
        """Forget a file."""
        del self._rows[path]
        self._known.pop(path, None)

    def save(self) -> None:
        """Write the manifest if it changed."""
        self._write(self._rows)

    def _write(self, rows: dict[PurePosixPath, ManifestRow]) -> None:
        content = encode_manifest(rows)
        if content != self._manifest:
            self._manifest_signature = self._directory.replace(MANIFEST, content, is_private=True)
            self._directory.sync()
            self._manifest = content


def _row_of(file: MirrorFile, digest: str | None) -> ManifestRow:
    return ManifestRow(file.type_url, file.names, digest, file.is_stand_in)


# Undone at once; a process that makes more also writes the files.
AT_ONCE = 3
BACK_OFF = BackOff()
# Other files beside them may be written all the time.
CHECK_INTERVAL_S = 0.05


class ForeignChanges:
    """Decides when to look at mirrored files before the next rescan, by `request_look`.

    In the event loop. Without inotify, and for other machines' changes, it detects nothing.
    """

    def __init__(self, request_look: Callable[[], None]) -> None:
        self.request_look = request_look
        self._notifications: Notifications | None = None
        # A thread that arms outlives the task that waits for it.
        self._lock = threading.Lock()
        self._is_noted = False
        # Of the event loop; before the first notification no look is due.
        self._next_look_s = 0.0
        self._is_calm_at_s = 0.0
        self._restorations = 0

    def start(self) -> None:
        """Prepare to watch."""
        loop = asyncio.get_running_loop()

        def note(*_: object) -> None:
            # Runs in watchdog's thread, also for files that fsxds writes: one call until the next look is enough.
            if not self._is_noted:
                loop.call_soon_threadsafe(self._note)

        self._notifications = Notifications(note, note)

    async def stop(self) -> None:
        """Stop watching."""
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        with self._lock:
            notifications, self._notifications = self._notifications, None
            if notifications is not None:
                notifications.stop()

    async def watch(self, find_folders: Callable[[], Collection[Path]]) -> None:
        """Watch these folders, looking if any is new; `find_folders` runs in a thread."""
        if await asyncio.to_thread(self._arm, find_folders):
            self._note()

    def _arm(self, find_folders: Callable[[], Collection[Path]]) -> bool:
        identities = {}
        for folder in find_folders():
            # A removed folder causes an event in its parent.
            with contextlib.suppress(OSError):
                identities[str(folder)] = identity_of(str(folder))
        with self._lock:
            return self._notifications is not None and self._notifications.arm(identities).is_new

    def due_s(self, latest_s: float) -> float:
        """Return when to look, at most `latest_s`; event loop times."""
        return min(latest_s, self._next_look_s) if self._is_noted else latest_s

    def begin_look(self) -> None:
        """Record a look at the files."""
        self._is_noted = False
        self._next_look_s = max(self._next_look_s, asyncio.get_running_loop().time() + CHECK_INTERVAL_S)

    def restored(self) -> float:
        """Record a restoration; return how long further changes are left."""
        now_s = asyncio.get_running_loop().time()
        self._restorations = 1 if now_s >= self._is_calm_at_s else self._restorations + 1
        surplus = self._restorations - AT_ONCE
        pause_s = BACK_OFF.pause_s(surplus) if surplus > 0 else 0.0
        self._next_look_s = now_s + max(pause_s, CHECK_INTERVAL_S)
        self._is_calm_at_s = now_s + pause_s + BACK_OFF.well_after_s
        return pause_s

    def _note(self) -> None:
        self._is_noted = True
        self.request_look()
