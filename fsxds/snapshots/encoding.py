"""Encodes parsed files and resources as bytes, and stores snapshots as objects found by digests.

Parsed files come from parsing processes, and are cached between starts. JSON and not pickle: reading foreign bytes must
run no code, and must not end the process, which `marshal` does not promise. Deflated bytes contain the length of a JSON
text, the text, and all bodies; the reader knows the file's path and digest.

Snapshots share objects of common content:

| object | names | is found by |
| --- | --- | --- |
| snapshot | the rows of each type | its facts and its names |
| rows of a type | chunks; if packed, groups of them | its names |
| group | chunks | its names |
| chunk, with its resources | their large bodies; if packed, packs alone | the resources as clients see them, and their files |
| pack, with some resources of a chunk | their large bodies | the same |
| large body | | its version |

An edit among 100 000 resources makes objects of about 20 kB, and 4 kB if packed. Packed objects are more numerous, which
costs writers and readers of all.

The digest of a chunk excludes lines: a line added at the top of a file would make all its chunks new.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import PurePosixPath
from sys import intern
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from fsxds.model.name_table import Chunk, begins
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import (
    Document,
    LayerEdit,
    Origin,
    ParsedFile,
    Reference,
    Resource,
    Rows,
    Snapshot,
    UnreadResource,
    key_of,
    version_of_body,
)
from fsxds.model.values import FieldPath, PlainValue, Problem, Severity, SpelledFloat, TypeUrl, Version

# The fastest: it reduces usual bodies to a tenth; more effort takes longer than writing the rest.
_LEVEL = 1
_LENGTH_BYTES = 4

_SEVERITIES = tuple(Severity)
_NUMBERS = {severity: number for number, severity in enumerate(_SEVERITIES)}

# The first item of each list in a patch: a list, or a float with its text.
_LIST, _FLOAT = 0, 1

_Plain: TypeAlias = Any
"""The JSON form of the rows below."""


class DamagedBytesError(Exception):
    """Bytes are no encoded object."""


DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, zlib.error)
"""The exceptions that foreign bytes cause."""


@contextmanager
def decoding(name: str) -> Iterator[None]:
    """Decode foreign bytes within the context. DamagedBytesError: they are no `name`."""
    try:
        yield
    except DAMAGE as error:
        raise DamagedBytesError(f"{name} is damaged: {type(error).__name__}") from error


def encode(parsed: ParsedFile) -> bytes:
    """Encode all but path and digest."""
    writer = _RowWriter()
    documents = [writer.document(document) for document in parsed.documents]
    problems = [
        (row.line, row.column, row.pointer, row.rule, row.message, row.remedy, _NUMBERS[row.severity])
        for row in parsed.problems
    ]
    return writer.deflated(documents, problems)


def encode_resources(resources: Iterable[Resource]) -> bytes:
    """Encode resources of any files, in order."""
    writer = _RowWriter()
    files: dict[PurePosixPath, int] = {}
    rows = [(files.setdefault(row.origin.path, len(files)), writer.resource(row)) for row in resources]
    return writer.deflated(list(map(str, files)), rows)


def decode_resources(encoded: bytes) -> tuple[Resource, ...]:
    """Reverse `encode_resources`. Raises DamagedBytesError."""
    with decoding("a part of a snapshot"):
        reader = _RowReader(zlib.decompress(encoded))
        files, rows = reader.rest
        paths = [PurePosixPath(path) for path in files]
        return tuple([reader.resource(row, paths[number]) for number, row in rows])


def decode(path: PurePosixPath, digest: str, encoded: bytes) -> ParsedFile:
    """Reverse `encode`. Raises DamagedBytesError."""
    with decoding(str(path)):
        reader = _RowReader(zlib.decompress(encoded))
        documents, problems = reader.rest
        read = tuple([reader.document(row, path) for row in documents])
        found = [
            Problem(path, line, column, pointer, rule, message, remedy, _SEVERITIES[severity])
            for line, column, pointer, rule, message, remedy, severity in problems
        ]
        return ParsedFile(path, digest, read, tuple(found))


def _spelled(value: PlainValue) -> _Plain:
    """Lists start with a tag, as a float with its text is a list."""
    if isinstance(value, dict):
        return {key: _spelled(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_LIST, *map(_spelled, value)]
    return [_FLOAT, value.text, float(value)] if isinstance(value, SpelledFloat) else value


def _unspelled(value: _Plain) -> _Plain:
    if isinstance(value, dict):
        return {key: _unspelled(member) for key, member in value.items()}
    if not isinstance(value, list):
        return value
    return SpelledFloat(*value[1:]) if value[0] == _FLOAT else list(map(_unspelled, value[1:]))


class _RowWriter:
    """Repeated type URLs and paths are indexes."""

    def __init__(self) -> None:
        self.type_urls: dict[TypeUrl, int] = {}
        self.paths: dict[FieldPath, int] = {}
        self.bodies: list[bytes] = []

    def document(self, document: Document) -> _Plain:
        return (
            [self.resource(resource) for resource in document.resources],
            [self._type(type_url) for type_url in sorted(document.declared)],
            document.version_info,
            [(self._type(row.type_url), row.name, self._path(row.field_path)) for row in document.unread],
            [self._edit(edit) for edit in document.edits],
        )

    def _edit(self, edit: LayerEdit) -> _Plain:
        origin, patch = edit.origin, None if edit.patch is None else _spelled(dict(edit.patch))
        path = self._path(origin.field_path)
        return self._type(edit.type_url), edit.name, origin.line, origin.document, path, edit.column, patch

    def resource(self, resource: Resource) -> _Plain:
        self.bodies.append(resource.body)
        origin = resource.origin
        return (
            self._type(resource.type_url),
            resource.name,
            len(resource.body),
            resource.version,
            origin.line,
            origin.document,
            self._path(origin.field_path),
            resource.aliases,
            resource.ttl_s,
            [
                (self._type(row.type_url), row.name, self._path(row.field_path), _NUMBERS[row.severity], row.is_static)
                for row in resource.references
            ],
            # Bytes encoded before redirects existed have no such member.
            *((resource.redirect,) if resource.redirect else ()),
        )

    def deflated(self, *rest: _Plain) -> bytes:
        text = json.dumps([list(self.type_urls), list(self.paths), *rest], separators=(",", ":"), check_circular=False)
        content = text.encode()
        return zlib.compress(len(content).to_bytes(_LENGTH_BYTES) + content + b"".join(self.bodies), _LEVEL)

    def _type(self, type_url: TypeUrl) -> int:
        return self.type_urls.setdefault(type_url, len(self.type_urls))

    def _path(self, field_path: FieldPath) -> int:
        return self.paths.setdefault(field_path, len(self.paths))


class _RowReader:
    """Equal texts and paths are one object, as after parsing."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._next_body = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES])
        type_urls, paths, *self.rest = json.loads(content[_LENGTH_BYTES : self._next_body])
        self._type_urls = [TypeUrl(intern(type_url)) for type_url in type_urls]
        self._paths = [tuple([intern(step) if isinstance(step, str) else step for step in steps]) for steps in paths]

    def document(self, row: _Plain, path: PurePosixPath) -> Document:
        resources, declared, version_info, unread, edits = row
        return Document(
            path,
            tuple([self.resource(each, path) for each in resources]),
            frozenset([self._type_urls[number] for number in declared]),
            version_info,
            tuple(
                [UnreadResource(self._type_urls[number], name, self._paths[where]) for number, name, where in unread]
            ),
            tuple([self._edit(path, *edit) for edit in edits]),
        )

    def _edit(self, path: PurePosixPath, *row: _Plain) -> LayerEdit:
        number, name, line, document, where, column, patch = row
        origin = Origin(path, line, document, self._paths[where])
        return LayerEdit(self._type_urls[number], name, origin, column, None if patch is None else _unspelled(patch))

    def resource(self, row: _Plain, path: PurePosixPath) -> Resource:
        number, name, size, version, line, document, where, aliases, ttl_s, references, *redirect = row
        start = self._next_body
        self._next_body = end = start + size
        return Resource(
            self._type_urls[number],
            name,
            self._content[start:end],
            Version(version),
            Origin(path, line, document, self._paths[where]),
            tuple(aliases),
            ttl_s,
            tuple(
                [
                    Reference(self._type_urls[target], named, self._paths[place], _SEVERITIES[severity], is_static)
                    for target, named, place, severity, is_static in references
                ]
            ),
            redirect[0] if redirect else "",
        )


Member = TypeVar("Member")

Chunks: TypeAlias = "tuple[Chunk[Resource], ...]"

Digest: TypeAlias = bytes
"""The key of an object."""

DIGEST_BYTES = 16

# One in so many names begins a group, and one a pack; chunks are in between. Servers of several versions make the same
# objects: like the number of chunks, these must never change.
NAMES_PER_GROUP = 4096
NAMES_PER_PACK = 16

# Smaller bodies take less space beside their neighbours, which look alike.
LARGE_BYTES = 8 * 1024


class KeptObject(NamedTuple):
    """Content and children are computed for new objects only."""

    digest: Digest
    content: Callable[[], bytes]
    children: Callable[[], tuple[KeptObject, ...]]


class Content(NamedTuple):
    """A kept object, with the digests of its children, in order."""

    content: bytes
    children: tuple[Digest, ...]


Read: TypeAlias = Callable[[Digest], Content]
"""Returns a kept object; raises DamagedBytesError if there is none."""


def object_of(snapshot: Snapshot, *, is_packed: bool = False) -> KeptObject:
    """The generation is not included."""
    tables = []
    for row in RESOURCE_TYPES:
        rows = snapshot.resources(row.type_url)
        of_chunks = (_of_rows(chunk.once(chunk_digest), chunk.values) for chunk in rows.chunks)
        tables.append(_named(b"", tuple(map(_group, _grouped(rows)) if is_packed else of_chunks)))
    return _named(facts_of(snapshot), tuple(tables))


def facts_of(snapshot: Snapshot) -> bytes:
    """Return a snapshot's facts beside its resources."""
    facts: dict[str, object] = {
        "types": [row.type_url for row in RESOURCE_TYPES],
        "authored": dict(sorted(snapshot.authored.items())),
        "incomplete": sorted(snapshot.incomplete),
        "withheld": sorted(snapshot.withheld),
        "undeclared": sorted(snapshot.undeclared),
    }
    # Without one, the bytes are those of earlier releases.
    if snapshot.unresolved:
        facts["unresolved"] = [_redirect_row(snapshot.unresolved[key]) for key in sorted(snapshot.unresolved)]
    return json.dumps(facts, separators=(",", ":")).encode()


def snapshot_with(facts: bytes, by_type: Mapping[TypeUrl, Rows], generation: int = 0) -> Snapshot:
    """Raises DamagedBytesError."""
    with decoding("a snapshot"):
        found = json.loads(facts)
        return Snapshot(
            generation,
            MappingProxyType(dict(by_type)),
            MappingProxyType({TypeUrl(type_url): str(version) for type_url, version in found["authored"].items()}),
            incomplete=frozenset(map(TypeUrl, found["incomplete"])),
            withheld=frozenset(map(TypeUrl, found["withheld"])),
            undeclared=frozenset(map(TypeUrl, found["undeclared"])),
            unresolved=MappingProxyType({key_of(one): one for one in map(_redirect_of, found.get("unresolved", ()))}),
        )


def _redirect_row(redirect: Resource) -> list[object]:
    origin = redirect.origin
    return [
        *(redirect.type_url, redirect.name, redirect.redirect, redirect.version, redirect.ttl_s, redirect.aliases),
        *(str(origin.path), origin.line, origin.document),
    ]


def _redirect_of(row: Sequence[Any]) -> Resource:
    type_url, name, locator, version, ttl_s, aliases, path, line, document = row
    return Resource(
        *(TypeUrl(type_url), str(name), b"", Version(version), Origin(PurePosixPath(path), int(line), int(document))),
        aliases=tuple(map(str, aliases)),
        ttl_s=None if ttl_s is None else float(ttl_s),
        redirect=str(locator),
    )


def _grouped(rows: Rows) -> Iterator[Chunks]:
    return _parted(rows.chunks, lambda chunk: begins(chunk.first, NAMES_PER_GROUP))


def _parted(members: Iterable[Member], begins_part: Callable[[Member], bool]) -> Iterator[tuple[Member, ...]]:
    part: list[Member] = []
    for member in members:
        if part and begins_part(member):
            yield tuple(part)
            part = []
        part.append(member)
    if part:
        yield tuple(part)


def _group(chunks: Chunks) -> KeptObject:
    return _named(b"", tuple(map(_packed_chunk, chunks)))


def _named(content: bytes, children: tuple[KeptObject, ...]) -> KeptObject:
    digest = _digest_of_named(content, [child.digest for child in children])
    return KeptObject(digest, lambda: content, lambda: children)


def _digest_of_named(content: bytes, children: Collection[Digest]) -> Digest:
    return _digest(b"named", len(children).to_bytes(4) + joined(children) + content)


def _digest(person: bytes, content: bytes) -> Digest:
    return blake2b(content, digest_size=DIGEST_BYTES, person=person).digest()


def _packed_chunk(chunk: Chunk[Resource]) -> KeptObject:
    def packs() -> tuple[KeptObject, ...]:
        parts = _parted(chunk.values, lambda row: begins(row.name, NAMES_PER_PACK))
        return tuple(_of_rows(_digest_of_rows(b"pack", part), part) for part in parts)

    return KeptObject(chunk.once(chunk_digest), lambda: b"", packs)


def chunk_digest(chunk: Chunk[Resource]) -> Digest:
    """Digest a chunk's client-visible data and files."""
    return _digest_of_rows(b"chunk", chunk.values)


def _digest_of_rows(person: bytes, resources: Sequence[Resource]) -> Digest:
    rows = [(row.name, row.version, row.ttl_s, row.aliases, str(row.origin.path)) for row in resources]
    return _digest(person, repr((resources[0].type_url, rows)).encode())


def _of_rows(digest: Digest, resources: tuple[Resource, ...]) -> KeptObject:
    def content() -> bytes:
        return encode_resources(replace(row, body=b"") if _is_large(row) else row for row in resources)

    return KeptObject(digest, content, lambda: tuple(map(_body, filter(_is_large, resources))))


def _is_large(resource: Resource) -> bool:
    return len(resource.body) >= LARGE_BYTES


def _body(resource: Resource) -> KeptObject:
    return KeptObject(bytes.fromhex(resource.version), lambda: zlib.compress(resource.body, 1), lambda: ())


def snapshot_near(digest: Digest, read: Read, near: Snapshot | None = None, generation: int = 0) -> Snapshot:
    """Return a kept snapshot, without its last changes.

    Parts equal to `near` are shared and not read. DamagedBytesError: an object is missing or damaged.
    """
    content, children = read(digest)
    with decoding("a snapshot"):
        tables = dict(zip(map(TypeUrl, json.loads(content)["types"]), children, strict=True))
        rows = {row.type_url: _rows(row.type_url, tables, read, near) for row in RESOURCE_TYPES}
        return snapshot_with(content, rows, generation)


def _rows(type_url: TypeUrl, tables: Mapping[TypeUrl, Digest], read: Read, near: Snapshot | None) -> Rows:
    old = Rows(type_url) if near is None else near.resources(type_url)
    at_hand: dict[Digest, Chunks] = {chunk.once(chunk_digest): (chunk,) for chunk in old.chunks}
    at_hand |= {_group(chunks).digest: chunks for chunks in _grouped(old)}
    found = set[Chunk[Resource]]()
    new = {}
    if type_url in tables:
        new = {row.name: row for row in _new_rows(type_url, tables[type_url], read, at_hand, found)}
    gone = {name for chunk in old.chunks if chunk not in found for name in chunk.names} - new.keys()
    known = ((row, old.get(row.name)) for row in new.values())
    changed = [
        row for row, was in known if not (was and row.equals_for_clients(was) and row.origin.path == was.origin.path)
    ]
    return old.with_changes(changed, gone).prepared()


def _new_rows(
    type_url: TypeUrl, digest: Digest, read: Read, at_hand: Mapping[Digest, Chunks], found: set[Chunk[Resource]]
) -> Iterator[Resource]:
    """Add chunks at hand to `found`; yield the other resources."""
    if digest in at_hand:
        found.update(at_hand[digest])
        return
    kept = read(digest)
    if kept.content:
        yield from _resources(type_url, kept, read)
    elif digest == _digest_of_named(b"", kept.children):
        for child in kept.children:
            yield from _new_rows(type_url, child, read, at_hand, found)
    else:
        rows = [row for child in kept.children for row in _resources(type_url, read(child), read)]
        if not rows or _digest_of_rows(b"chunk", rows) != digest:
            raise DamagedBytesError("a chunk differs from the stored object")
        yield from rows


def digests_in(snapshot: Snapshot) -> frozenset[Digest]:
    """Return the digests that `snapshot_near` does not read."""
    tables = snapshot.by_type.values()
    chunks = (chunk.once(chunk_digest) for rows in tables for chunk in rows.chunks)
    return frozenset((*chunks, *(_group(each).digest for rows in tables for each in _grouped(rows))))


def _resources(type_url: TypeUrl, kept: Content, read: Read) -> Iterator[Resource]:
    bodies = {child.hex(): child for child in kept.children}
    for row in decode_resources(kept.content):
        resource = row
        if row.version in bodies:
            with decoding("a body"):
                resource = replace(row, body=zlib.decompress(read(bodies[row.version]).content))
        if row.type_url != type_url or version_of_body(type_url, resource.body) != row.version:
            raise DamagedBytesError(f"{row.name} differs from the stored object")
        yield resource


def joined(digests: Iterable[Digest]) -> bytes:
    """Join digests."""
    return b"".join(digests)


def parted(digests: bytes) -> tuple[Digest, ...]:
    """Reverse `joined`."""
    return tuple(digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES))
