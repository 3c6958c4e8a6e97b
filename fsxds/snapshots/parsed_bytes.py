"""Encodes parsed files and resources, for results of parsing processes and for the cache between starts.

JSON and not pickle: reading foreign bytes must run no code, and must not end the process, which `marshal` does not
promise. Deflated bytes contain the length of a JSON text, the text, and the bodies of all resources; the reader knows
the path and the digest of the file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from sys import intern
from typing import Any, TypeAlias

from fsxds.model.resources import Document, LayerEdit, Origin, ParsedFile, Reference, Resource, UnreadResource
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
    """Bytes are no result of `encode` or `encode_resources`."""


# The exceptions that foreign bytes cause; OverflowError for a number as large as 1e999.
_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, zlib.error)


@contextmanager
def decoding(name: str) -> Iterator[None]:
    """Decode foreign bytes within the context. DamagedBytesError: they are no such thing as `name`."""
    try:
        yield
    except _DAMAGE as error:
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
    """Decode resources.

    Raises:
        DamagedBytesError: the bytes are no result of `encode_resources`.
    """
    try:
        reader = _RowReader(zlib.decompress(encoded))
        files, rows = reader.rest
        paths = [PurePosixPath(path) for path in files]
        return tuple([reader.resource(row, paths[number]) for number, row in rows])
    except _DAMAGE as error:
        raise DamagedBytesError(f"resources are damaged: {type(error).__name__}") from error


def decode(path: PurePosixPath, digest: str, encoded: bytes) -> ParsedFile:
    """Decode a file.

    Raises:
        DamagedBytesError: the bytes are no result of `encode`.
    """
    try:
        reader = _RowReader(zlib.decompress(encoded))
        documents, problems = reader.rest
        read = tuple([reader.document(row, path) for row in documents])
        return ParsedFile(path, digest, read, tuple([_problem(row, path) for row in problems]))
    except _DAMAGE as error:
        raise DamagedBytesError(str(path)) from error


def _spelled(value: PlainValue) -> _Plain:
    """A list starts with a tag, as a float with its text is also a list."""
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
    """Repeated type URLs and paths are indexes into tables."""

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
            tuple([self._reference(each) for each in references]),
            redirect[0] if redirect else "",
        )

    def _reference(self, row: _Plain) -> Reference:
        number, name, path, severity, is_static = row
        return Reference(self._type_urls[number], name, self._paths[path], _SEVERITIES[severity], is_static)


def _problem(row: _Plain, path: PurePosixPath) -> Problem:
    line, column, pointer, rule, message, remedy, severity = row
    return Problem(path, line, column, pointer, rule, message, remedy, _SEVERITIES[severity])
