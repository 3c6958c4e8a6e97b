"""Database rows of upstreams' resources; damage is detected at reading."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable
from sys import intern
from types import MappingProxyType
from typing import Any

from fsxds.model.name_table import NameTable
from fsxds.model.resources import Reference, Resource, Snapshot, version_of_body
from fsxds.model.values import Severity, TypeUrl, Version
from fsxds.snapshots.upstream_content import Held, HeldResource, origin_of

# Databases of earlier versions get it when they are opened. The body is last, so that a renewed time to live, which
# changes columns before it, is written without it.
SCHEMA = """
CREATE TABLE IF NOT EXISTS held_resources (
  upstream INTEGER NOT NULL, type TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, server TEXT NOT NULL,
  received_s REAL NOT NULL, expires_s REAL, checksum INTEGER NOT NULL, digest TEXT NOT NULL, facts TEXT NOT NULL,
  is_deflated INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (upstream, type, name)
)
"""
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


def write_changes(
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


def remove_held(connection: sqlite3.Connection, upstream: int) -> None:
    """Remove all resources of an upstream."""
    connection.execute("DELETE FROM held_resources WHERE upstream = ?", (upstream,))


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


class HeldReader:
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
        return Resource(
            type_url,
            name,
            self._shared(type_url, name, body),
            version,
            self._origin,
            tuple(aliases),
            ttl_s,
            tuple([_reference(*each) for each in references]),
            redirect,
        )

    def _shared(self, type_url: TypeUrl, name: str, body: bytes) -> bytes:
        other = self._near.resources(type_url).get(name) if self._near is not None else None
        return other.body if other is not None and other.body == body else body


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
