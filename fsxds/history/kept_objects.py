"""Snapshots as objects that are found by what they hold: what two snapshots share is one object.

A snapshot names the rows of its types, rows name their chunks, and a chunk has its resources; large bodies are objects of
their own. So an edit makes a few small objects, however many resources there are. `snapshot_near` goes the other way, and
reads only what a snapshot that is at hand does not have.

What is not part of the digest of a chunk is what clients do not see: the line on which a resource was written is that which
it had when the chunk was kept first. Otherwise a line added at the top of a file would make all of its chunks new.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from fsxds.model.name_table import Chunk
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Resource, Rows, Snapshot, version_of_body
from fsxds.model.values import TypeUrl
from fsxds.snapshots.parsed_bytes import DamagedBytesError, decode_resources, encode_resources

Digest: TypeAlias = bytes
"""What an object is found by."""

DIGEST_BYTES = 16

# Smaller bodies take less space beside their neighbours, which look alike.
LARGE_BYTES = 8 * 1024


class KeptObject(NamedTuple):
    """An object that may be kept: `expand` returns its content and the objects that it names, and is asked for new ones."""

    digest: Digest
    expand: Callable[[], tuple[bytes, tuple[KeptObject, ...]]]


class Content(NamedTuple):
    """An object that is kept, and the digests of those that it names, in their order."""

    content: bytes
    children: tuple[Digest, ...]


Read: TypeAlias = Callable[[Digest], Content]
"""Returns what is kept; DamagedBytesError where there is nothing."""


def object_of(snapshot: Snapshot) -> KeptObject:
    """Return a snapshot as an object. Equal content is an equal object; its generation is no part of it."""
    tables = {row.type_url: _table(snapshot.resources(row.type_url)) for row in RESOURCE_TYPES}
    facts = {
        "types": list(tables),
        "authored": dict(sorted(snapshot.authored.items())),
        "incomplete": sorted(snapshot.incomplete),
        "withheld": sorted(snapshot.withheld),
        "undeclared": sorted(snapshot.undeclared),
    }
    return _named(json.dumps(facts, separators=(",", ":")).encode(), tuple(tables.values()))


def _table(rows: Rows) -> KeptObject:
    """Return all rows of a type as an object; its content is the objects that it names alone."""
    return _named(b"", tuple(map(_chunk, rows.chunks)))


def _named(content: bytes, children: tuple[KeptObject, ...]) -> KeptObject:
    named = joined(child.digest for child in children)
    digest = _digest(b"named", len(children).to_bytes(4) + named + content)
    return KeptObject(digest, lambda: (content, children))


def _digest(person: bytes, content: bytes) -> Digest:
    return blake2b(content, digest_size=DIGEST_BYTES, person=person).digest()


def _chunk(chunk: Chunk[Resource]) -> KeptObject:
    return KeptObject(chunk.once(chunk_digest), lambda: _expanded(chunk))


def chunk_digest(chunk: Chunk[Resource]) -> Digest:
    """Return what a chunk is found by: its type, and of each resource all that clients see, and its file."""
    rows = [(row.name, row.version, row.ttl_s, row.aliases, str(row.origin.path)) for row in chunk.values]
    return _digest(b"chunk", repr((chunk.values[0].type_url, rows)).encode())


def _expanded(chunk: Chunk[Resource]) -> tuple[bytes, tuple[KeptObject, ...]]:
    small = (replace(row, body=b"") if _is_large(row) else row for row in chunk.values)
    return encode_resources(small), tuple(map(_body, filter(_is_large, chunk.values)))


def _is_large(resource: Resource) -> bool:
    return len(resource.body) >= LARGE_BYTES


def _body(resource: Resource) -> KeptObject:
    return KeptObject(bytes.fromhex(resource.version), lambda: (zlib.compress(resource.body, 1), ()))


def snapshot_near(digest: Digest, read: Read, near: Snapshot | None = None, generation: int = 0) -> Snapshot:
    """Return a snapshot that is kept, with the versions that it had; it does not say what changed last.

    Args:
        digest: that of the snapshot.
        read: returns objects.
        near: a snapshot that has much in common with it; what is equal is shared, and is not read.
        generation: the one that it is given.

    Raises:
        DamagedBytesError: an object is missing, or is not what was kept.
    """
    content, children = read(digest)
    try:
        facts = json.loads(content)
        tables = dict(zip(map(TypeUrl, facts["types"]), children, strict=True))
        return Snapshot(
            generation,
            MappingProxyType({row.type_url: _rows(row.type_url, tables, read, near) for row in RESOURCE_TYPES}),
            MappingProxyType({TypeUrl(type_url): str(version) for type_url, version in facts["authored"].items()}),
            incomplete=frozenset(map(TypeUrl, facts["incomplete"])),
            withheld=frozenset(map(TypeUrl, facts["withheld"])),
            undeclared=frozenset(map(TypeUrl, facts["undeclared"])),
        )
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise DamagedBytesError(f"a snapshot is damaged: {type(error).__name__}") from error


def _rows(type_url: TypeUrl, tables: Mapping[TypeUrl, Digest], read: Read, near: Snapshot | None) -> Rows:
    """Return the rows of a type; none of a type that fsxds did not know when they were kept."""
    kept = read(tables[type_url]).children if type_url in tables else ()
    old = Rows(type_url) if near is None else near.resources(type_url)
    at_hand = {chunk.once(chunk_digest): chunk for chunk in old.chunks}
    new = {row.name: row for digest in kept if digest not in at_hand for row in _resources(type_url, digest, read)}
    gone = {name for digest in at_hand.keys() - kept for name in at_hand[digest].names} - new.keys()
    return old.with_changes([row for row in new.values() if not _is_same(row, old.get(row.name))], gone).prepared()


def _is_same(resource: Resource, other: Resource | None) -> bool:
    """Whether two resources are the same to a chunk that has them."""
    return other is not None and resource.equals_for_clients(other) and resource.origin.path == other.origin.path


def _resources(type_url: TypeUrl, digest: Digest, read: Read) -> Iterator[Resource]:
    """Yield the resources of a chunk, each with the body that its version stands for."""
    content, children = read(digest)
    bodies = {child.hex(): child for child in children}
    for row in decode_resources(content):
        resource = replace(row, body=_inflated(read(bodies[row.version]))) if row.version in bodies else row
        if row.type_url != type_url or version_of_body(type_url, resource.body) != row.version:
            raise DamagedBytesError(f"{row.name} is not what was kept")
        yield resource


def _inflated(body: Content) -> bytes:
    try:
        return zlib.decompress(body.content)
    except zlib.error as error:
        raise DamagedBytesError("a body is damaged") from error


def joined(digests: Iterable[Digest]) -> bytes:
    """Return digests as bytes."""
    return b"".join(digests)


def parted(digests: bytes) -> tuple[Digest, ...]:
    """Return the digests that were joined."""
    return tuple(digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES))


def read_object(connection: sqlite3.Connection, digest: Digest) -> Content:
    """Return what is kept.

    Raises:
        DamagedBytesError: there is nothing.
    """
    row = connection.execute("SELECT content, children FROM objects WHERE digest = ?", (digest,)).fetchone()
    if row is None:
        raise DamagedBytesError(f"an object is missing: {digest.hex()}")
    return Content(row[0], parted(row[1]))


class ObjectTable:
    """The objects, and how often each is named: by others, by entries of the history, and by rollouts.

    The numbers are those in memory: on the disk, each change of a cluster would change those of all chunks. They are right
    as long as every transaction succeeds; after one that did not, a new table is to be made.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Count what is kept.

        Raises:
            DamagedBytesError: something names an object that is missing.
        """
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
        """Count one more use of an object, and write it if it is new."""
        if kept.digest not in self._uses:
            content, children = kept.expand()
            for child in children:
                self.keep(child)
            row = kept.digest, joined(child.digest for child in children), content
            self.connection.execute("INSERT INTO objects (digest, children, content) VALUES (?, ?, ?)", row)
        self._uses[kept.digest] += 1

    def release(self, digest: Digest) -> None:
        """Count one use less of an object, and remove it if that was the last."""
        self._uses[digest] -= 1
        if self._uses[digest]:
            return
        del self._uses[digest]
        children = read_object(self.connection, digest).children
        self.connection.execute("DELETE FROM objects WHERE digest = ?", (digest,))
        for child in children:
            self.release(child)
