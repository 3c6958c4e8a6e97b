"""Stores upstream resources, one per row: an edit's cost follows its changes.

Each write changes an upstream's mark, by which this process recognizes its last one. With another mark, as the database
was set aside or lacked the upstream, all its resources are written.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from fsxds.history.held_rows import HeldReader, remove_held, write_changes
from fsxds.model.name_table import NameTable
from fsxds.model.resources import Snapshot
from fsxds.runtime.row_source import KeptUpstream, RestoredUpstreams
from fsxds.snapshots.encoding import DamagedBytesError
from fsxds.snapshots.upstream_content import Held, HeldResource

# Databases of earlier versions get it when they are opened.
SCHEMA = """
CREATE TABLE IF NOT EXISTS upstreams (
  number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, servers TEXT NOT NULL, mark BLOB NOT NULL
)
"""
_MARK_BYTES = 16

NOTHING: Held = MappingProxyType({})
_NO_TABLE = NameTable[HeldResource]()


class _KnownUpstream(NamedTuple):
    mark: bytes
    upstream: KeptUpstream


class UpstreamTable:
    """The rows known to this process. Outlives the connections to a database."""

    def __init__(self) -> None:
        # By name. A failed transaction changes neither the rows nor these.
        self._written: dict[str, _KnownUpstream] = {}

    def write(self, connection: sqlite3.Connection, upstreams: Iterable[KeptUpstream]) -> dict[str, _KnownUpstream]:
        """Write the difference; return the argument for `take` after the commit.

        Resources written by an earlier process and unreadable here stay until others are held.
        """
        known = self._written
        return {
            one.name: _write(connection, known.get(one.name), one) for one in upstreams if one.name in known or one.held
        }

    def take(self, written: Mapping[str, _KnownUpstream]) -> None:
        """Record the committed writes."""
        self._written.update(written)

    def read(
        self, connection: sqlite3.Connection, upstreams: Collection[KeptUpstream], near: Snapshot | None = None
    ) -> RestoredUpstreams:
        """Read these upstreams' resources; remove damaged ones, and other upstreams.

        A renamed upstream is recognized by a common server. `near` shares its equal bodies. Raises DamagedBytesError if
        a row is damaged outside of its resources.
        """
        rows = connection.execute("SELECT number, name, servers, mark FROM upstreams ORDER BY number").fetchall()
        try:
            kept = [
                _KeptRow(number, name.decode(), tuple(json.loads(servers)), mark)
                for number, name, servers, mark in rows
            ]
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DamagedBytesError(f"the upstreams are damaged: {type(error).__name__}") from error
        found = dict(_matching(upstreams, kept))
        dropped = [row for row in kept if row.number not in found]
        for row in dropped:
            _remove(connection, row.number)
        held: dict[str, Held] = {}
        damaged: dict[str, int] = {}
        for row in kept:
            if (upstream := found.get(row.number)) is None:
                continue
            reader = HeldReader(connection, upstream.name, near)
            held[upstream.name] = tables = reader.read(row.number)
            reader.remove_damaged()
            damaged[upstream.name] = len(reader.damaged)
            connection.execute("UPDATE upstreams SET name = ? WHERE number = ?", (upstream.name, row.number))
            # With the stored servers, not the configured ones: the next write updates them.
            self._written[upstream.name] = _KnownUpstream(row.mark, KeptUpstream(upstream.name, row.servers, tables))
        return RestoredUpstreams(
            {name: tables for name, tables in held.items() if tables},
            tuple(row.name for row in dropped),
            {name: count for name, count in damaged.items() if count},
        )


class _KeptRow(NamedTuple):
    number: int
    name: str
    servers: tuple[str, ...]
    mark: bytes


def _matching(upstreams: Collection[KeptUpstream], kept: Collection[_KeptRow]) -> Iterator[tuple[int, KeptUpstream]]:
    """The name counts first."""
    by_name = {row.name: row for row in kept}
    taken = {one.name for one in upstreams}
    left = [row for row in kept if row.name not in taken]
    for upstream in upstreams:
        row = by_name.get(upstream.name)
        if row is None:
            row = next((row for row in left if not {row.name, *row.servers}.isdisjoint(upstream.servers)), None)
            if row is None:
                continue
            left.remove(row)
        yield row.number, upstream


def _is_same(held: Held, other: Held) -> bool:
    return held is other or (
        held.keys() == other.keys() and all(table is other[type_url] for type_url, table in held.items())
    )


def _write(connection: sqlite3.Connection, known: _KnownUpstream | None, upstream: KeptUpstream) -> _KnownUpstream:
    row = connection.execute("SELECT number, mark FROM upstreams WHERE name = ?", (upstream.name,)).fetchone()
    if known is None or row is None or row[1] != known.mark:
        if row is not None:
            _remove(connection, row[0])
        before = NOTHING
        insert = "INSERT INTO upstreams (name, servers, mark) VALUES (?, ?, ?)"
        number = connection.execute(insert, (upstream.name, "[]", b"")).lastrowid or 0
    elif known.upstream.servers == upstream.servers and _is_same(known.upstream.held, upstream.held):
        return known
    else:
        number, before = row[0], known.upstream.held
    for type_url in before.keys() | upstream.held.keys():
        old, new = before.get(type_url, _NO_TABLE), upstream.held.get(type_url, _NO_TABLE)
        write_changes(connection, (number, type_url), old, new)
    mark = os.urandom(_MARK_BYTES)
    update = "UPDATE upstreams SET servers = ?, mark = ? WHERE number = ?"
    connection.execute(update, (json.dumps(upstream.servers), mark, number))
    return _KnownUpstream(mark, upstream)


def _remove(connection: sqlite3.Connection, number: int) -> None:
    remove_held(connection, number)
    connection.execute("DELETE FROM upstreams WHERE number = ?", (number,))
