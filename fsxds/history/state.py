"""The server's state on disk: history, rollouts, and upstream resources.

All functions block, and are called in a thread. Each change is one transaction, so a crash leaves it complete or
absent. An unreadable database is set aside and reported, an empty one takes its place: serving does not depend on it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import NamedTuple, Self

from fsxds.events.event import Observer
from fsxds.history.entries import (
    HistoryEntry,
    ObjectTable,
    changes_between,
    facts_of,
    layers_key,
    read_entries,
    read_object,
    read_snapshot,
)
from fsxds.history.rejection_rows import read_rejections, restore_rejections, write_rejections
from fsxds.history.rollout_rows import (
    OtherFormError,
    RemovedMembersTable,
    channel_key,
    channel_text,
    decode_state,
    encode_state,
    snapshots_of,
)
from fsxds.history.state_directory import DATABASE, StateDirectory, is_damage
from fsxds.history.upstream_table import UpstreamTable
from fsxds.model.errors import StateError, UsageError
from fsxds.model.resources import Snapshot, snapshot_id
from fsxds.model.tree_trust import SeenManifest
from fsxds.model.values import Layers
from fsxds.protocol.absence import Tombstones
from fsxds.rollout.machine import RolloutState
from fsxds.rollout.rejections import Rejections
from fsxds.runtime.channels import ChannelKey
from fsxds.runtime.row_source import KeptUpstream, RestoredUpstreams
from fsxds.snapshots.encoding import DamagedBytesError, Digest, KeptObject, joined, object_of, parted, snapshot_near

# Per view.
MOST_SNAPSHOTS = 50

NO_VIEWS: Mapping[Layers, Tombstones] = MappingProxyType({})


class _Opened(NamedTuple):
    connection: sqlite3.Connection
    objects: ObjectTable
    removed: RemovedMembersTable
    status: os.stat_result


class State:
    """One state directory, held by this process. Any thread may use it; methods wait for each other.

    StateError: reading or writing failed; nothing is written, and the next method starts from the disk.
    """

    def __init__(self, path: Path, observer: Observer) -> None:
        """Use a directory that is held; `open` does both."""
        self._directory = StateDirectory(path, observer)
        self._lock = Lock()
        self._opened: _Opened | None = None
        self._upstreams = UpstreamTable()

    @classmethod
    def open(cls, path: Path, observer: Observer) -> Self:
        """Hold a directory until `close`, and report unused files.

        Raises:
            UsageError: it cannot be created, others can write to it, or another process holds it.
        """
        state = cls(path, observer)
        state._directory.hold()
        state._directory.ignore_others()
        return state

    @property
    def path(self) -> Path:
        """The directory."""
        return self._directory.path

    def close(self) -> None:
        """Release the directory for other processes."""
        with self._lock:
            self._close()
            self._directory.release()

    def record(self, layers: Layers, snapshot: Snapshot, commit: str | None, now_s: float) -> int:
        """Append a snapshot, unless it is the newest; return its number. The oldest beyond 50 is removed.

        The cost follows unstored bodies. `now_s` counts since 1970. Raises StateError.
        """
        with self._transaction() as opened:
            made = HistoryEntry(0, layers, snapshot_id(snapshot), now_s, commit)
            return _record(opened, snapshot, object_of(snapshot), made)

    def save(
        self,
        rollouts: Mapping[ChannelKey, RolloutState],
        commit: str | None,
        now_s: float,
        removed: Mapping[Layers, Tombstones] = NO_VIEWS,
    ) -> frozenset[ChannelKey]:
        """Store rollouts and the snapshots that they reached; return all stored channels.

        A snapshot that canaries reached is in the history only if the main channel has no rollout. `now_s` counts since
        1970. `removed` members are of the same moment: however the process ends, the next finds a member either in the
        served snapshot, or among these. Raises StateError.
        """
        with self._transaction() as opened:
            opened.removed.keep(removed)
            saved = {key: _save(opened, key, rollout, now_s) for key, rollout in rollouts.items()}
            texts = opened.connection.execute("SELECT channel FROM rollouts")
            kept = frozenset(channel_key(text) for (text,) in texts)
            for key, rollout in rollouts.items():
                if not key.is_main or rollout.good is None:
                    continue
                if not (key.is_canary and replace(key, is_canary=False) in kept):
                    version = snapshot_id(rollout.good)
                    made = HistoryEntry(0, key.layers, version, now_s, commit)
                    _record(opened, rollout.good, saved[key]["good"], made)
        return kept

    def forget(self, keys: Collection[ChannelKey]) -> None:
        """Remove unneeded rollouts; the history stays. Raises StateError."""
        with self._transaction() as opened:
            for key in keys:
                _forget(opened, channel_text(key))

    def rollouts(self, now_s: float) -> dict[ChannelKey, RolloutState]:
        """Return all rollouts, as of now; report unreadable ones. Raises StateError."""
        found: dict[ChannelKey, RolloutState] = {}
        restored: dict[Digest, Snapshot] = {}

        def restore(digest: Digest) -> Snapshot:
            if digest not in restored:
                # Snapshots of one directory have much in common.
                near = next(reversed(restored.values()), None)
                restored[digest] = snapshot_near(digest, partial(read_object, connection), near)
            return restored[digest]

        damage: DamagedBytesError | None = None
        with self._transaction() as (connection, *_):
            for text, facts in connection.execute("SELECT channel, facts FROM rollouts ORDER BY channel").fetchall():
                try:
                    found[channel_key(text)] = decode_state(facts, restore, now_s)
                except OtherFormError as error:
                    self._directory.ignore(text.decode(errors="replace"), str(error))
                except DamagedBytesError as error:
                    damage = error
        if damage is not None:
            self._set_aside(str(damage))
        return found

    def keep_rejections(self, text: str) -> None:
        """Store the result of `encode_rejections`. Raises StateError."""
        with self._transaction() as opened:
            write_rejections(opened.connection, text)

    def restore_rejections(self, rejections: Rejections, clock_s: float, now_s: float) -> None:
        """Restore stored rejections; `clock_s` is by their clock. Raises StateError."""
        with self._transaction() as opened:
            for text in read_rejections(opened.connection):
                restore_rejections(rejections, text, clock_s, now_s)

    def removed_members(self) -> dict[Layers, Tombstones]:
        """Return views' removed members. Raises StateError."""
        with self._transaction() as opened:
            return dict(opened.removed.by_layers)

    def keep_upstreams(self, upstreams: Iterable[KeptUpstream]) -> None:
        """Store resources; the cost follows the difference. Raises StateError."""
        with self._transaction() as opened:
            written = self._upstreams.write(opened.connection, upstreams)
        self._upstreams.take(written)

    def restored_upstreams(
        self, upstreams: Collection[KeptUpstream], near: Snapshot | None = None
    ) -> RestoredUpstreams:
        """Read the resources of upstreams, dropping others; `near` shares its equal bodies. Raises StateError."""
        with self._transaction() as opened:
            return self._upstreams.read(opened.connection, upstreams, near)

    def entries(self, layers: Layers | None = None) -> tuple[HistoryEntry, ...]:
        """Return the newest first, of some layers, or of all. Raises StateError."""
        with self._transaction() as (connection, *_):
            return read_entries(connection, layers)

    def snapshot(self, layers: Layers, number: int, near: Snapshot | None = None) -> Snapshot | None:
        """Return a snapshot, or None; `near` shares its equal resources. Raises StateError."""
        with self._transaction() as (connection, *_):
            return read_snapshot(connection, layers, number, near)

    def newest_manifest(self, subject: str) -> SeenManifest | None:
        """Return a subject's newest trusted manifest, or None. Raises StateError."""
        with self._transaction() as opened:
            query = "SELECT serial, digest FROM seen_manifests WHERE subject = ?"
            row = opened.connection.execute(query, (subject,)).fetchone()
            return None if row is None else SeenManifest(int(row[0]), row[1].decode())

    def keep_manifest(self, subject: str, seen: SeenManifest) -> None:
        """Store a subject's newest trusted manifest. Raises StateError."""
        with self._transaction() as opened:
            row = subject, seen.serial, seen.digest
            opened.connection.execute(
                "INSERT OR REPLACE INTO seen_manifests (subject, serial, digest) VALUES (?, ?, ?)", row
            )

    @contextmanager
    def _transaction(self) -> Iterator[_Opened]:
        with self._lock:
            is_done = False
            try:
                opened = self._ready()
                opened.connection.execute("BEGIN")
                yield opened
                opened.connection.execute("COMMIT")
                is_done = True
            except (sqlite3.Error, UnicodeDecodeError, DamagedBytesError, OSError, UsageError) as error:
                self._close()
                if not isinstance(error, OSError | UsageError) and is_damage(error):
                    self._set_aside(str(error))
                strerror = error.strerror if isinstance(error, OSError) else None
                raise StateError(strerror or str(error)) from error
            finally:
                if not is_done:
                    self._close()

    def _ready(self) -> _Opened:
        if self._opened is not None and not self._directory.is_same(self._opened.status):
            self._close()
        if self._opened is None:
            self._directory.hold()
            connection = self._directory.connect()
            status = (self._directory.path / DATABASE).lstat()
            self._opened = _Opened(connection, ObjectTable(connection), RemovedMembersTable(connection), status)
        return self._opened

    def _set_aside(self, damage: str) -> None:
        """Start with an empty database: objects that share the damage would run into it again."""
        self._close()
        with suppress(OSError):
            self._directory.set_aside(damage)

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(sqlite3.Error):
                opened.connection.close()


def _record(opened: _Opened, snapshot: Snapshot, kept: KeptObject, made: HistoryEntry) -> int:
    connection, objects = opened.connection, opened.objects
    key = layers_key(made.layers)
    query = "SELECT number, snapshot FROM entries WHERE layers = ? ORDER BY number DESC"
    rows: list[tuple[int, bytes]] = connection.execute(query, (key,)).fetchall()
    if rows and rows[0][1] == kept.digest:
        return rows[0][0]
    before = read_snapshot(connection, made.layers, rows[0][0], snapshot) if rows else None
    objects.keep(kept)
    facts = facts_of(replace(made, changes=changes_between(before, snapshot)))
    insert = "INSERT INTO entries (layers, snapshot, facts) VALUES (?, ?, ?)"
    number = connection.execute(insert, (key, kept.digest, facts)).lastrowid
    for old, digest in rows[MOST_SNAPSHOTS - 1 :]:
        connection.execute("DELETE FROM entries WHERE number = ?", (old,))
        objects.release(digest)
    return number or 0


def _save(opened: _Opened, key: ChannelKey, rollout: RolloutState, now_s: float) -> dict[str, KeptObject]:
    snapshots = snapshots_of(rollout)
    # Most often they are one and the same.
    made = {id(snapshot): object_of(snapshot) for snapshot in snapshots.values()}
    kept = {name: made[id(snapshot)] for name, snapshot in snapshots.items()}
    for each in kept.values():
        opened.objects.keep(each)
    _forget(opened, channel_text(key))
    digests = {name: each.digest for name, each in kept.items()}
    row = channel_text(key), joined(digests.values()), encode_state(rollout, digests, now_s)
    opened.connection.execute("INSERT INTO rollouts (channel, snapshots, facts) VALUES (?, ?, ?)", row)
    return kept


def _forget(opened: _Opened, channel: str) -> None:
    connection, objects = opened.connection, opened.objects
    row = connection.execute("SELECT snapshots FROM rollouts WHERE channel = ?", (channel,)).fetchone()
    connection.execute("DELETE FROM rollouts WHERE channel = ?", (channel,))
    for digest in parted(row[0]) if row else ():
        objects.release(digest)
