"""Stores upstream resources, one per row: an edit's cost follows its changes.

Each write changes an upstream's mark, by which this process recognizes its last one. With another mark, as the database
was set aside or lacked the upstream, all its resources are written. Damaged rows are detected at reading.

Rules: kept resources find their upstream again after it was renamed.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from sys import intern
from types import MappingProxyType
from typing import Any, NamedTuple

from fsxds.model.name_table import NameTable
from fsxds.model.resources import Reference, Resource, Snapshot, version_of_body
from fsxds.model.values import Severity, TypeUrl, Version
from fsxds.runtime.row_source import KeptUpstream, RestoredUpstreams
from fsxds.snapshots.encoding import decoding
from fsxds.snapshots.upstream_content import Held, HeldResource, origin_of

# Databases of earlier versions get them when they are opened. The body is last, so that a renewed time to live, which
# changes columns before it, is written without it.
SCHEMAS = (
    """
CREATE TABLE IF NOT EXISTS upstreams (
  number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, servers TEXT NOT NULL, mark BLOB NOT NULL
)
""",
    """
CREATE TABLE IF NOT EXISTS held_resources (
  upstream INTEGER NOT NULL, type TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, server TEXT NOT NULL,
  received_s REAL NOT NULL, expires_s REAL, checksum INTEGER NOT NULL, digest TEXT NOT NULL, facts TEXT NOT NULL,
  is_deflated INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (upstream, type, name)
)
""",
)
_INSERT = "INSERT OR REPLACE INTO held_resources VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_RENEW = """
UPDATE held_resources SET version = ?, server = ?, received_s = ?, expires_s = ?, checksum = ?
WHERE upstream = ? AND type = ? AND name = ?
"""
_DELETE = "DELETE FROM held_resources WHERE upstream = ? AND type = ? AND name = ?"
_READ = """
SELECT rowid, type, name, version, server, received_s, expires_s, checksum, digest, facts, is_deflated, body
FROM held_resources WHERE upstream = ?
"""

# Deflating smaller bodies takes longer than writing them.
_DEFLATED_BYTES = 1024

_SEVERITIES = tuple(Severity)
_NUMBERS = {severity: number for number, severity in enumerate(_SEVERITIES)}

_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, RecursionError, zlib.error)
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
        with decoding("the table of upstreams"):
            kept = [
                _KeptRow(number, name.decode(), tuple(json.loads(servers)), mark)
                for number, name, servers, mark in rows
            ]
        found = dict(_matching(upstreams, kept))
        dropped = [row for row in kept if row.number not in found]
        for row in dropped:
            _remove(connection, row.number)
        held: dict[str, Held] = {}
        damaged: dict[str, int] = {}
        for row in kept:
            if (upstream := found.get(row.number)) is None:
                continue
            reader = _HeldReader(connection, upstream.name, near)
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
        _write_changes(connection, (number, type_url), old, new)
    mark = os.urandom(_MARK_BYTES)
    update = "UPDATE upstreams SET servers = ?, mark = ? WHERE number = ?"
    connection.execute(update, (json.dumps(upstream.servers), mark, number))
    return _KnownUpstream(mark, upstream)


def _remove(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("DELETE FROM held_resources WHERE upstream = ?", (number,))
    connection.execute("DELETE FROM upstreams WHERE number = ?", (number,))


def _write_changes(
    connection: sqlite3.Connection,
    part: tuple[int, TypeUrl],
    before: NameTable[HeldResource],
    after: NameTable[HeldResource],
) -> None:
    """Write the difference, which it costs; `part` is the upstream's number, and the type."""
    fresh, renewed, gone = [], [], []
    for name in sorted(after.differing(before)):
        held, known = after.get(name), before.get(name)
        if held is None:
            gone.append((*part, name))
        elif known is not None and known.resource is held.resource:
            renewed.append((*_changing(held), *part, name))
        else:
            fresh.append((*part, name, *_changing(held), *_lasting_columns(held.resource)))
    connection.executemany(_DELETE, gone)
    connection.executemany(_RENEW, renewed)
    connection.executemany(_INSERT, fresh)


def _changing(held: HeldResource) -> tuple[str | float | None, ...]:
    columns = held.version, held.server, held.received_s, held.expires_s
    return *columns, _checksum(held.resource.name, *columns)


def _lasting_columns(resource: Resource) -> tuple[str | bytes | bool, ...]:
    is_deflated = len(resource.body) >= _DEFLATED_BYTES
    body = zlib.compress(resource.body, 1) if is_deflated else resource.body
    return resource.version, _facts(resource), is_deflated, body


def _facts(resource: Resource) -> str:
    references = [(*row[:3], _NUMBERS[row.severity], row.is_static) for row in resource.references]
    facts = resource.aliases, resource.ttl_s, resource.redirect, references
    if not any(facts):
        return ""
    text = json.dumps(facts, separators=(",", ":"), check_circular=False)
    return f"{_checksum(resource.name, text)} {text}"


def _checksum(*columns: str | float | None) -> int:
    """Detects changes by other programs; the body has its digest for that."""
    return zlib.crc32(repr(columns).encode())


class _HeldReader:
    """Reads one upstream's resources; `damaged` has numbers of rows."""

    def __init__(self, connection: sqlite3.Connection, upstream: str, near: Snapshot | None = None) -> None:
        """`near` shares its equal bodies."""
        self._connection = connection
        self._origin = origin_of(upstream)
        self._near = near
        self.damaged: list[int] = []

    def read(self, number: int) -> Held:
        """Read by the upstream's number."""
        found: dict[TypeUrl, dict[str, HeldResource]] = {}
        for row, *columns in self._connection.execute(_READ, (number,)):
            try:
                held = self._held(*columns)
            except _DAMAGE:
                self.damaged.append(row)
            else:
                found.setdefault(held.resource.type_url, {})[held.resource.name] = held
        return MappingProxyType({type_url: NameTable(members) for type_url, members in found.items()})

    def remove_damaged(self) -> None:
        """Remove damaged rows, which are not found otherwise."""
        self._connection.executemany("DELETE FROM held_resources WHERE rowid = ?", [(row,) for row in self.damaged])

    def _held(self, *row: Any) -> HeldResource:
        """Raises one of `_DAMAGE`."""
        type_url, name, version, server = map(bytes.decode, row[:4])
        received_s, expires_s, checksum = row[4:7]
        _require(_checksum(name, version, server, received_s, expires_s) == checksum)
        resource = self._resource(TypeUrl(intern(type_url)), name, *row[7:])
        # The version of a resource from an fsxds is the digest.
        shared = resource.version if version == resource.version else version
        return HeldResource(resource, shared, intern(server), received_s, expires_s)

    def _resource(self, type_url: TypeUrl, name: str, *row: Any) -> Resource:
        digest, facts, is_deflated, kept = row
        aliases, ttl_s, redirect, references = _read_facts(name, facts.decode())
        body = zlib.decompress(kept) if is_deflated else kept
        version = Version(digest.decode())
        _require(bool(redirect) or version_of_body(type_url, body) == version)
        other = self._near.resources(type_url).get(name) if self._near is not None else None
        return Resource(
            type_url,
            name,
            (other.body if other is not None and other.body == body else body),
            version,
            self._origin,
            tuple(aliases),
            ttl_s,
            tuple([_reference(*each) for each in references]),
            redirect,
        )


def _read_facts(name: str, text: str) -> tuple[Any, ...]:
    if not text:
        return (), None, "", ()
    checksum, _, facts = text.partition(" ")
    _require(int(checksum) == _checksum(name, facts))
    return tuple(json.loads(facts))


def _reference(type_url: str, name: str, path: Iterable[str | int], severity: int, is_static: object) -> Reference:
    field_path = tuple([intern(step) if isinstance(step, str) else step for step in path])
    return Reference(TypeUrl(intern(type_url)), name, field_path, _SEVERITIES[severity], bool(is_static))


def _require(is_as_written: bool) -> None:  # noqa: FBT001
    if not is_as_written:
        raise ValueError
