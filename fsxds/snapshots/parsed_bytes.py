"""A parsed file as bytes: what a process that parses returns, and what is kept from one start to the next.

JSON and not pickle: reading bytes that somebody else wrote must run no code, and must not end the process, which `marshal`
does not promise. The bytes are deflated. Within are the length of a JSON text, the text, and the bodies of all resources.
The path and the digest of the file are left out: who asks for it knows them.
"""

from __future__ import annotations

import json
import zlib
from pathlib import PurePosixPath
from sys import intern
from typing import Any, TypeAlias

from fsxds.resources import Document, Origin, ParsedFile, Reference, Resource, UnreadResource
from fsxds.values import FieldPath, Problem, Severity, TypeUrl, Version

# The fastest: a tenth of the size is left of usual bodies; more effort takes longer than writing the rest.
_LEVEL = 1
_LENGTH_BYTES = 4

_SEVERITIES = tuple(Severity)
_NUMBERS = {severity: number for number, severity in enumerate(_SEVERITIES)}

_Plain: TypeAlias = Any
"""What JSON makes of the rows below."""


class DamagedBytesError(Exception):
    """Bytes are not what `encode` returned."""


def encode(parsed: ParsedFile) -> bytes:
    """Return all of a parsed file but its path and its digest."""
    writer = _RowWriter()
    documents = [writer.document(document) for document in parsed.documents]
    problems = [
        (row.line, row.column, row.pointer, row.rule, row.message, row.remedy, _NUMBERS[row.severity])
        for row in parsed.problems
    ]
    rows = [list(writer.type_urls), list(writer.paths), documents, problems]
    text = json.dumps(rows, separators=(",", ":"), check_circular=False).encode()
    return zlib.compress(len(text).to_bytes(_LENGTH_BYTES) + text + b"".join(writer.bodies), _LEVEL)


def decode(path: PurePosixPath, digest: str, encoded: bytes) -> ParsedFile:
    """Return the file that was encoded, as that of a path and of content with this digest.

    Raises:
        DamagedBytesError: the bytes are others.
    """
    try:
        return _RowReader(path, zlib.decompress(encoded)).read(digest)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, zlib.error) as error:
        raise DamagedBytesError(str(path)) from error


class _RowWriter:
    """Makes rows of plain values. What many resources have alike is a number: that of its place in a table."""

    def __init__(self) -> None:
        self.type_urls: dict[TypeUrl, int] = {}
        self.paths: dict[FieldPath, int] = {}
        self.bodies: list[bytes] = []

    def document(self, document: Document) -> _Plain:
        return (
            [self._resource(resource) for resource in document.resources],
            [self._type(type_url) for type_url in sorted(document.declared)],
            document.version_info,
            [(self._type(row.type_url), row.name, self._path(row.field_path)) for row in document.unread],
        )

    def _resource(self, resource: Resource) -> _Plain:
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
        )

    def _type(self, type_url: TypeUrl) -> int:
        return self.type_urls.setdefault(type_url, len(self.type_urls))

    def _path(self, field_path: FieldPath) -> int:
        return self.paths.setdefault(field_path, len(self.paths))


class _RowReader:
    """Makes values of the rows; texts and paths that are alike are one object, as after parsing."""

    def __init__(self, path: PurePosixPath, content: bytes) -> None:
        self._path = path
        self._content = content
        self._next_body = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES])
        type_urls, paths, self._documents, self._problems = json.loads(content[_LENGTH_BYTES : self._next_body])
        self._type_urls = [TypeUrl(intern(type_url)) for type_url in type_urls]
        self._paths = [tuple([intern(step) if isinstance(step, str) else step for step in steps]) for steps in paths]

    def read(self, digest: str) -> ParsedFile:
        documents = tuple([self._document(row) for row in self._documents])
        return ParsedFile(self._path, digest, documents, tuple([self._problem(row) for row in self._problems]))

    def _document(self, row: _Plain) -> Document:
        resources, declared, version_info, unread = row
        return Document(
            self._path,
            tuple([self._resource(each) for each in resources]),
            frozenset([self._type_urls[number] for number in declared]),
            version_info,
            tuple([UnreadResource(self._type_urls[number], name, self._paths[path]) for number, name, path in unread]),
        )

    def _problem(self, row: _Plain) -> Problem:
        line, column, pointer, rule, message, remedy, severity = row
        return Problem(self._path, line, column, pointer, rule, message, remedy, _SEVERITIES[severity])

    def _resource(self, row: _Plain) -> Resource:
        number, name, size, version, line, document, path, aliases, ttl_s, references = row
        start = self._next_body
        self._next_body = end = start + size
        return Resource(
            self._type_urls[number],
            name,
            self._content[start:end],
            Version(version),
            Origin(self._path, line, document, self._paths[path]),
            tuple(aliases),
            ttl_s,
            tuple([self._reference(each) for each in references]),
        )

    def _reference(self, row: _Plain) -> Reference:
        number, name, path, severity, is_static = row
        return Reference(self._type_urls[number], name, self._paths[path], _SEVERITIES[severity], is_static)
