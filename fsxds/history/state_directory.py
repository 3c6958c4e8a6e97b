"""The state directory: its permissions, its lock, and the database in it.

The database is one SQLite file, with atomic transactions, even at a power failure. Only `state.py` knows its content.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path

from fsxds.disk_cache.private_directory import DirectoryLock
from fsxds.events.event import Observer
from fsxds.events.process_events import StateIgnored
from fsxds.history import rejection_rows, rollout_rows, upstream_table
from fsxds.model.errors import UsageError

FORMAT = 1
"""The version of the format. A database of another version has another name, and is left untouched."""

DATABASE = f"history-{FORMAT}.sqlite"
_JOURNAL = f"{DATABASE}-journal"
_LOCK = "lock"

DAMAGED = ".damaged"
"""The suffix of files that were set aside."""

_APPLICATION = 0x66737864  # "fsxd"

# A reading process needs milliseconds.
BUSY_S = 5.0

# Errors caused by the disk, the memory or another process; all others are damage.
_OF_THE_SYSTEM = {
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM),
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_NOLFS),
    *(sqlite3.SQLITE_AUTH, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISUSE),
}

_WRITABLE = stat.S_IWGRP | stat.S_IWOTH

# Deleted secrets are overwritten, and a file that shrinks frees its space.
_PRAGMAS = (
    "auto_vacuum = FULL",
    "journal_mode = TRUNCATE",
    "synchronous = FULL",
    "secure_delete = ON",
    "trusted_schema = OFF",
    "temp_store = MEMORY",
    "mmap_size = 0",
)
_SCHEMA = f"""
BEGIN;
CREATE TABLE objects (digest BLOB PRIMARY KEY, children BLOB NOT NULL, content BLOB NOT NULL);
CREATE TABLE entries (
  number INTEGER PRIMARY KEY AUTOINCREMENT, layers TEXT NOT NULL, snapshot BLOB NOT NULL, facts TEXT NOT NULL
);
CREATE INDEX entries_of_layers ON entries (layers, number);
CREATE TABLE rollouts (channel TEXT PRIMARY KEY, snapshots BLOB NOT NULL, facts TEXT NOT NULL);
PRAGMA application_id = {_APPLICATION};
COMMIT;
"""

# Tables that databases of earlier versions get when they are opened.
_SEEN_MANIFESTS = """
CREATE TABLE IF NOT EXISTS seen_manifests (subject TEXT PRIMARY KEY, serial INTEGER NOT NULL, digest TEXT NOT NULL)
"""
_LATER_SCHEMAS = (
    rollout_rows.MEMBERS_SCHEMA,
    *upstream_table.SCHEMAS,
    _SEEN_MANIFESTS,
    rejection_rows.SCHEMA,
)


class StateDirectory:
    """One state directory, held by one process at a time."""

    def __init__(self, path: Path, observer: Observer) -> None:
        """The directory and its parents are created if necessary."""
        self.path = path
        self._observer = observer
        self._lock = DirectoryLock(path / _LOCK, "keeps its state in this directory")

    def hold(self) -> None:
        """Lock the directory.

        Raises:
            UsageError: it cannot be created, others can write to it, or another process holds it.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
            reject_shared(self.path)
            self._lock.hold(self.path)
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror}; give another directory as --state") from error

    def release(self) -> None:
        """Unlock the directory."""
        self._lock.release()

    def connect(self) -> sqlite3.Connection:
        """Open the database for writing; a foreign or damaged file is set aside.

        Raises sqlite3.Error or OSError.
        """
        try:
            return self._connect()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not is_damage(error):
                raise
            self.set_aside(str(error))
        return self._connect()

    def _connect(self) -> sqlite3.Connection:
        if (fault := self._made_private()) is not None:
            self.set_aside(fault)
            self._made_private()
        connection = open_database(self.path)
        try:
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                connection.executescript(_SCHEMA)
            if connection.execute("PRAGMA application_id").fetchone() != (_APPLICATION,):
                raise _NotOursError("it is a database of another program")
            # The check takes 20 ms for 20 MB; damage would otherwise yield data that was never written.
            if connection.execute("PRAGMA integrity_check(1)").fetchone() != (b"ok",):
                raise _NotOursError("it is damaged")
            for schema in _LATER_SCHEMAS:
                connection.execute(schema)
        except (sqlite3.Error, UnicodeDecodeError):
            connection.close()
            raise
        return connection

    def _made_private(self) -> str | None:
        """Create an empty database, or return an existing one's fault, if any."""
        path = self.path / DATABASE
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with suppress(FileExistsError):
            # SQLite itself would make it readable for others, and its journal has the permissions of the database.
            os.close(os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600))
            sync_directory(self.path)
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            return "it is no file"
        if found.st_uid != os.geteuid():
            return f"it belongs to user {found.st_uid}"
        return "others can write to it" if found.st_mode & _WRITABLE else None

    def set_aside(self, reason: str) -> None:
        """Rename an unusable database, replacing an earlier one."""
        # The journal may be needed to repair it. Beside another database it would do harm.
        for name in (DATABASE, _JOURNAL):
            with suppress(FileNotFoundError):
                (self.path / name).replace(self.path / f"{name}{DAMAGED}")
        sync_directory(self.path)
        self.ignore(str(self.path / f"{DATABASE}{DAMAGED}"), reason)

    def ignore(self, subject: str, reason: str) -> None:
        """Report an unused file."""
        self._observer(StateIgnored(subject, reason))

    def ignore_others(self) -> None:
        """Report databases of other versions of fsxds, which stay."""
        for path in sorted(self.path.glob("history-*.sqlite")):
            if path.name != DATABASE:
                self.ignore(str(path), "another version of fsxds wrote it")

    def is_same(self, status: os.stat_result) -> bool:
        """Whether the database still is this file: it may be removed."""
        with suppress(FileNotFoundError):
            return os.path.samestat(status, (self.path / DATABASE).lstat())
        return False


def reject_shared(path: Path) -> None:
    """Reject a directory that others may change: their content would be served.

    Raises:
        UsageError: others may change it.
        OSError: it does not exist.
    """
    found = path.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{path}: is no directory; give another one as --state")
    if found.st_uid != os.geteuid():
        fact = f"{path}: belongs to user {found.st_uid}, who could change the served content"
    elif found.st_mode & _WRITABLE:
        fact = f"{path}: others can write to it (mode {stat.S_IMODE(found.st_mode):o}), and change the served content"
    else:
        return
    raise UsageError(f"{fact}; give a directory that is not there yet, such as {path / 'fsxds'}, as --state")


def open_database(path: Path) -> sqlite3.Connection:
    """Open an existing database. Each statement is a transaction, unless one was begun."""
    uri = f"{(path / DATABASE).absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    # All text is JSON: whether it is UTF-8 is checked with whether it is JSON.
    connection.text_factory = bytes
    return connection


def is_damage(error: Exception) -> bool:
    """Whether the file is no database, or was changed by others."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        # From the sqlite3 module: a mistake in fsxds. Other exceptions are about the content read.
        return not isinstance(error, sqlite3.Error)
    return code & 0xFF not in _OF_THE_SYSTEM  # the primary code, which is the low byte


def sync_directory(path: Path) -> None:
    """Make created and renamed files survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _NotOursError(sqlite3.DatabaseError):
    """A database is not ours, or is damaged."""

    sqlite_errorcode = sqlite3.SQLITE_NOTADB
