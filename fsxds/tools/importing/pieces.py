"""Resources as files, each proved to be read as in the bootstrap (pure).

A file has its author's text if that can be proved, else it is written from values, without comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.printing import Printer
from fsxds.api.secrets import Masker
from fsxds.formats.json_format import encode_plain as encode_json
from fsxds.formats.yaml_format import encode_plain as encode_yaml
from fsxds.model.resource_types import BY_SHORT_NAME, PREFIX, ResourceType
from fsxds.model.values import FieldPath, PlainValue, SourceFile
from fsxds.server.parse_worker import ParseRules

FIELDS = {"listeners": BY_SHORT_NAME["lds"], "clusters": BY_SHORT_NAME["cds"], "secrets": BY_SHORT_NAME["sds"]}
"""The fields of `static_resources`, with their types."""

# Commands of format strings, which take values from requests.
_COMMANDS = re.compile(r"%[A-Z_0-9]+(\([^()]*\))?(:\d+)?%")
_NOT_KEPT = "comments are not kept"


class ImportLossError(Exception):
    """A part of a bootstrap would be lost; no file is to be written."""


@dataclass(frozen=True, slots=True)
class Addition:
    """An added field; `field_path` leads to its owner, in the author's spelling."""

    field_path: FieldPath
    key: str
    value: PlainValue


@dataclass(frozen=True, slots=True)
class StaticResource:
    """One static resource.

    Attributes:
        field: `listeners`, `clusters` or `secrets`.
        name: made up if it has none.
        value: as authored.
        additions: needed to serve it.
    """

    field: str
    index: int
    name: str
    value: PlainValue
    message: Message
    additions: tuple[Addition, ...] = ()

    @property
    def row(self) -> ResourceType:
        """The resource's type."""
        return FIELDS[self.field]


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A file, relative to the tree; `note` is about losses."""

    path: PurePosixPath
    content: bytes
    resource: StaticResource
    is_secret: bool
    note: str = ""


class WrittenText(Protocol):
    """The bootstrap's text."""

    def piece(self, resource: StaticResource) -> bytes | None:
        """Return a resource's text, or None if it cannot be taken out."""


class PieceWriter:
    """Writes files of resources."""

    def __init__(self, catalogue: Catalogue, text: WrittenText, suffix: str) -> None:
        """`suffix` is for files with the bootstrap's text."""
        self._text = text
        self._suffix = suffix
        self._converter = Converter(catalogue)
        self._printer = Printer(catalogue)
        self._masker = Masker(catalogue)
        self._parser = ParseRules(catalogue).make_parser()

    def write(self, resource: StaticResource, path: PurePosixPath) -> ImportedFile:
        """Return a resource's file; `path` has no suffix.

        Raises:
            ImportLossError: no form of it is read back the same.
        """
        expected = self.expected(resource)
        for suffix, content, note in self._candidates(resource, expected):
            file = SourceFile.of(path.with_name(path.name + suffix), content)
            if self._is_read_as(file, resource, expected):
                is_secret = resource.row.is_secret or self.has_secret(expected)
                return ImportedFile(file.path, content, resource, is_secret, note)
        raise ImportLossError(f"the {resource.row.noun.removesuffix('s')} {resource.name} cannot be written as a file")

    def expected(self, resource: StaticResource) -> Message:
        """Return a resource with its additions.

        Raises:
            ImportLossError: its text alone means another message than in the bootstrap.
        """
        before = self._converter.convert(resource.value, resource.row.message_type).message
        after = self._converter.convert(with_additions(resource), resource.row.message_type).message
        if before is None or after is None or not are_equal(before, resource.message):
            raise ImportLossError(f"{resource.row.noun}: {resource.name} has another meaning in a file of its own")
        return after

    def has_secret(self, message: Message) -> bool:
        """Return whether a message has values that fsxds always hides, format commands aside."""
        plain = self._printer.to_plain(message)
        hidden = self._masker.secrets_in({"@type": f"{PREFIX}{message.DESCRIPTOR.full_name}", **plain})
        return any(_COMMANDS.sub("", text).strip() for text in hidden)

    def _candidates(self, resource: StaticResource, expected: Message) -> Iterator[tuple[str, bytes, str]]:
        content = self._text.piece(resource)
        if content is not None:
            yield self._suffix, content, ""
        yield from printed(self._printer.to_plain(expected))

    def _is_read_as(self, file: SourceFile, resource: StaticResource, expected: Message) -> bool:
        found = [one for document in self._parser.parse(file).documents for one in document.resources]
        body = expected.SerializeToString(deterministic=True)
        return [(resource.row.type_url, resource.name, body)] == [(one.type_url, one.name, one.body) for one in found]


def printed(plain: PlainValue) -> Iterator[tuple[str, bytes, str]]:
    """Yield suffix, text and losses: YAML, then JSON for numbers that YAML cannot express."""
    yield ".yaml", encode_yaml([plain]), _NOT_KEPT
    yield ".json", encode_json(plain), _NOT_KEPT


def with_additions(resource: StaticResource) -> PlainValue:
    """Return a resource's value with its additions."""
    value = resource.value
    for addition in resource.additions:
        value = _with_field(value, addition.field_path, addition)
    return value


def _with_field(value: PlainValue, field_path: Sequence[str | int], addition: Addition) -> PlainValue:
    match value, field_path:
        case dict(), () | []:
            return {addition.key: addition.value, **value}
        case dict(), (str(key), *others):
            return {**value, key: _with_field(value[key], others, addition)}
        case list(), (int(index), *others):
            return [*value[:index], _with_field(value[index], others, addition), *value[index + 1 :]]
    return value


def are_equal(one: Message, other: Message) -> bool:
    """Return whether two messages have the same bytes."""
    return bool(one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True))


def names_twice(resources: Iterable[StaticResource]) -> Iterator[StaticResource]:
    """Yield resources with the name of an earlier one of their type."""
    seen: set[tuple[str, str]] = set()
    for resource in resources:
        key = resource.field, resource.name
        if key in seen:
            yield resource
        seen.add(key)
