"""Each view's history, and the table of `snapshots/encoding.py`'s objects."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fsxds.history.state_directory import DATABASE, open_database, reject_shared
from fsxds.model.errors import StateError, UsageError
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.snapshots.encoding import (
    Content,
    DamagedBytesError,
    Digest,
    KeptObject,
    decoding,
    joined,
    parted,
    snapshot_near,
)

# The maximum number of names that are kept of a change; their total number is kept, too.
MOST_NAMES = 50


@dataclass(frozen=True, slots=True)
class SomeNames:
    """A number of names, and the first of them."""

    count: int = 0
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str]) -> SomeNames:
        """Count names, and take the first."""
        ordered = sorted(names)
        return cls(len(ordered), tuple(ordered[:MOST_NAMES]))


@dataclass(frozen=True, slots=True)
class HistoryChange:
    """One type's changes from the previous snapshot."""

    added: SomeNames = SomeNames()
    changed: SomeNames = SomeNames()
    removed: SomeNames = SomeNames()


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A snapshot in the history.

    `number` is 3 for `@3`, never reused in the directory; `version` the snapshot's id; `time_s` since 1970. `commit` is
    None outside of a git repository. `changes` are by short name, without unchanged types.
    """

    number: int
    layers: Layers
    version: str
    time_s: float
    commit: str | None = None
    changes: Mapping[str, HistoryChange] = field(default_factory=dict)


def changes_between(before: Snapshot | None, after: Snapshot) -> dict[str, HistoryChange]:
    """Return the changes by type's short name."""
    changes = {}
    for row in RESOURCE_TYPES:
        old, new = before.resources(row.type_url) if before else {}, after.resources(row.type_url)
        change = new.changes_since(before.resources(row.type_url)) if before else None
        updated = frozenset(new) if change is None else change.fresh | change.renewed
        added = {name for name in updated if name not in old}
        names = (added, updated - added, change.removed if change else ())
        if any(names):
            changes[row.short_name] = HistoryChange(*map(SomeNames.of, names))
    return changes


def facts_of(made: HistoryEntry) -> str:
    """Leave out number, layers and snapshot."""
    changes = {
        name: [[each.count, each.names] for each in (change.added, change.changed, change.removed)]
        for name, change in made.changes.items()
    }
    return json.dumps({"version": made.version, "time_s": made.time_s, "commit": made.commit, "changes": changes})


def layers_key(layers: Layers) -> str:
    """Return layers as stored."""
    return json.dumps(layers)


def read_entries(connection: sqlite3.Connection, layers: Layers | None = None) -> tuple[HistoryEntry, ...]:
    """Return the history of some layers, or of all, newest first. Raises DamagedBytesError."""
    query, order = "SELECT number, layers, facts FROM entries", "ORDER BY number DESC"
    if layers is None:
        rows = connection.execute(f"{query} {order}")
    else:
        rows = connection.execute(f"{query} WHERE layers = ? {order}", (layers_key(layers),))
    with decoding("the history"):
        return tuple(entry_of(*row) for row in rows)


def entry_of(number: int, layers: str | bytes, facts: str | bytes) -> HistoryEntry:
    """Decode a database row. Raises one of `DAMAGE`."""
    read = json.loads(facts)
    changes = {
        name: HistoryChange(*(SomeNames(count, tuple(names)) for count, names in change))
        for name, change in read["changes"].items()
    }
    return HistoryEntry(
        number, tuple(json.loads(layers)), str(read["version"]), float(read["time_s"]), read["commit"], changes
    )


def read_snapshot(
    connection: sqlite3.Connection, layers: Layers, number: int, near: Snapshot | None = None
) -> Snapshot | None:
    """Return a snapshot, or None; `near` shares its equal resources. Raises DamagedBytesError."""
    query = "SELECT snapshot FROM entries WHERE layers = ? AND number = ?"
    row = connection.execute(query, (layers_key(layers), number)).fetchone()
    return None if row is None else snapshot_near(row[0], partial(read_object, connection), near)


class History:
    """Reads history beside the process that holds the directory. Blocking."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def opened(cls, directory: Path) -> Iterator[History]:
        """Open a state directory's history.

        Raises:
            UsageError: there is none, or others can write to it.
            StateError: it cannot be read.
        """
        try:
            reject_shared(directory)
            if not (directory / DATABASE).exists():
                raise UsageError(f"{directory}: no history is in this directory; give the --state of a running fsxds")
            connection = open_database(directory)
            try:
                # All reads see one moment.
                connection.execute("BEGIN")
                yield cls(connection)
            finally:
                connection.close()
        except (OSError, sqlite3.Error, DamagedBytesError) as error:
            raise StateError(f"{directory}: the history cannot be read: {error}") from error

    def entries(self, layers: Layers | None = None) -> tuple[HistoryEntry, ...]:
        """Newest first, of some layers, or of all."""
        return read_entries(self._connection, layers)

    def snapshot(self, layers: Layers, number: int, near: Snapshot | None = None) -> Snapshot | None:
        """Return a snapshot, or None."""
        return read_snapshot(self._connection, layers, number, near)


def read_object(connection: sqlite3.Connection, digest: Digest) -> Content:
    """Return an object's content. Raises DamagedBytesError if it is missing."""
    row = connection.execute("SELECT content, children FROM objects WHERE digest = ?", (digest,)).fetchone()
    if row is None:
        raise DamagedBytesError(f"an object is missing: {digest.hex()}")
    return Content(row[0], parted(row[1]))


class ObjectTable:
    """The objects, and their reference counts.

    The counts are in memory only: on disk, each change of a cluster would change those of all chunks. A failed
    transaction makes them wrong: create a new table.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Count the references. Raises DamagedBytesError for a missing object."""
        self.connection = connection
        named = Counter[Digest]()
        kept = set()
        for digest, children in connection.execute("SELECT digest, children FROM objects"):
            kept.add(digest)
            named.update(parted(children))
        for (roots,) in connection.execute("SELECT snapshot FROM entries UNION ALL SELECT snapshots FROM rollouts"):
            named.update(parted(roots))
        if not named.keys() <= kept:
            raise DamagedBytesError("an object is missing")
        self._uses = named

    def keep(self, kept: KeptObject) -> None:
        """Add a reference; write the object if it is new."""
        if kept.digest not in self._uses:
            children = kept.children()
            for child in children:
                self.keep(child)
            row = kept.digest, joined(child.digest for child in children), kept.content()
            self.connection.execute("INSERT INTO objects (digest, children, content) VALUES (?, ?, ?)", row)
        self._uses[kept.digest] += 1

    def release(self, digest: Digest) -> None:
        """Remove a reference, with the last one the object."""
        self._uses[digest] -= 1
        if self._uses[digest]:
            return
        del self._uses[digest]
        children = read_object(self.connection, digest).children
        self.connection.execute("DELETE FROM objects WHERE digest = ?", (digest,))
        for child in children:
            self.release(child)
