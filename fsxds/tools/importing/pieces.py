"""Resources as files, each proved to be read as in the bootstrap (pure).

A file has its author's text if that can be proved, else its values, without comments.

The remaining bootstrap subscribes to its former resources.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import PurePosixPath

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.fields import camel_case
from fsxds.api.printing import Printer
from fsxds.api.secrets import Masker
from fsxds.envoy.bootstrap_text import comments_of
from fsxds.envoy.envoy_bootstrap import XDS_CLUSTER, Section
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
    """A part of a bootstrap would be lost."""


@dataclass(frozen=True, slots=True)
class Addition:
    """An added field; `field_path` leads to its owner, as authored."""

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


class PieceWriter:
    """Writes files of resources."""

    def __init__(self, catalogue: Catalogue, piece: Callable[[StaticResource], bytes | None], suffix: str) -> None:
        """`piece` returns a resource's text in the bootstrap, or None; `suffix` is for files with such a text."""
        self._piece = piece
        self._suffix = suffix
        self._converter = Converter(catalogue)
        self._printer = Printer(catalogue)
        self._masker = Masker(catalogue)
        self._parser = ParseRules(catalogue).make_parser()

    def write(self, resource: StaticResource, path: PurePosixPath) -> ImportedFile:
        """Return a resource's file; `path` has no suffix.

        Raises:
            ImportLossError: no form is read back the same.
        """
        expected = self.expected(resource)
        piece = self._piece(resource)
        own = [] if piece is None else [(self._suffix, piece, "")]
        for suffix, content, note in (*own, *printed(self._printer.to_plain(expected))):
            file = SourceFile.of(path.with_name(path.name + suffix), content)
            found = [one for document in self._parser.parse(file).documents for one in document.resources]
            body = expected.SerializeToString(deterministic=True)
            if [(resource.row.type_url, resource.name, body)] == [(one.type_url, one.name, one.body) for one in found]:
                is_secret = resource.row.is_secret or self.has_secret(expected)
                return ImportedFile(file.path, content, resource, is_secret, note)
        raise ImportLossError(f"the {resource.row.noun.removesuffix('s')} {resource.name} cannot be written as a file")

    def expected(self, resource: StaticResource) -> Message:
        """Return a resource with its additions.

        Raises:
            ImportLossError: its text alone has another meaning.
        """
        before = self._converter.convert(resource.value, resource.row.message_type).message
        after = self._converter.convert(with_additions(resource), resource.row.message_type).message
        if before is None or after is None or not are_equal(before, resource.message):
            raise ImportLossError(f"{resource.row.noun}: {resource.name} has another meaning in a file of its own")
        return after

    def has_secret(self, message: Message) -> bool:
        """Return whether a message has always hidden values, format commands aside."""
        plain = self._printer.to_plain(message)
        hidden = self._masker.secrets_in({"@type": f"{PREFIX}{message.DESCRIPTOR.full_name}", **plain})
        return any(_COMMANDS.sub("", text).strip() for text in hidden)


def printed(plain: PlainValue) -> Iterator[tuple[str, bytes, str]]:
    """Yield suffix, text and losses: YAML, then JSON for numbers beyond YAML."""
    yield ".yaml", encode_yaml([plain]), _NOT_KEPT
    yield ".json", encode_json(plain), _NOT_KEPT


def with_additions(resource: StaticResource) -> PlainValue:
    """Return a resource's extended value."""
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
    """Compare the bytes of messages."""
    return bool(one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True))


def names_twice(resources: Iterable[StaticResource]) -> Iterator[StaticResource]:
    """Yield resources with an earlier one's type and name."""
    seen: set[tuple[str, str]] = set()
    for resource in resources:
        key = resource.field, resource.name
        if key in seen:
            yield resource
        seen.add(key)


# Fields that an Envoy has once, and that fsxds replaces.
_REPLACED = {
    "cds_config": "clusters",
    "cds_resources_locator": "clusters",
    "lds_config": "listeners",
    "lds_resources_locator": "listeners",
    "ads_config": "all sources with `ads: {}`",
}


@dataclass(frozen=True, slots=True)
class XdsConnection:
    """The connection, as `fsxds bootstrap` writes it.

    Attributes:
        transport: `rest`, `ads`, `delta` or `files`.
        clusters: none if Envoy reads files.
        node: id and cluster, for a node without.
    """

    transport: str
    clusters: list[PlainValue]
    dynamic: Section
    node: Section

    @classmethod
    def of(cls, transport: str, bootstrap: Section, names: Collection[str]) -> XdsConnection:
        """Extract a connection; its cluster's name is not in `names`."""
        candidates = chain((XDS_CLUSTER,), (f"fsxds-{number}" for number in count(1)))
        name = next(one for one in candidates if one not in names)
        static, dynamic, node = (bootstrap.get(key, {}) for key in ("static_resources", "dynamic_resources", "node"))
        clusters = static.get("clusters", []) if isinstance(static, dict) else []
        clusters, dynamic = _renamed(clusters, name), _renamed(dynamic, name)
        sections = (part if isinstance(part, dict) else {} for part in (dynamic, node))
        return cls(transport, clusters if isinstance(clusters, list) else [], *sections)

    @property
    def source(self) -> PlainValue:
        """The resources' config source; with files, `--mirror-config-sources` makes it a path."""
        if self.transport == "files":
            return {"resource_api_version": "V3", "ads": {}}
        return self.dynamic["cds_config"]


def _renamed(value: PlainValue, name: str) -> PlainValue:
    """Shared parts stay one object."""
    seen: dict[int, PlainValue] = {}

    def renamed(part: PlainValue) -> PlainValue:
        if isinstance(part, list):
            return [renamed(member) for member in part]
        if not isinstance(part, dict):
            return part
        if id(part) not in seen:
            seen[id(part)] = {
                key: [name]
                if key == "cluster_names"
                else name
                if key in {"name", "cluster_name"} and inner == XDS_CLUSTER
                else renamed(inner)
                for key, inner in part.items()
            }
        return seen[id(part)]

    return renamed(value)


@dataclass(frozen=True, slots=True)
class LeftOver:
    """The remaining bootstrap.

    Attributes:
        kept: indexes by field of `static_resources`.
        replaced: sections that are written anew.
        comments: reasons of new values, by the keys below.
    """

    value: dict[str, PlainValue]
    kept: Mapping[str, tuple[int, ...]]
    replaced: Mapping[str, PlainValue]
    clusters: list[PlainValue]
    comments: Mapping[str, str]
    notes: tuple[str, ...] = ()


def left_over(
    value: Mapping[str, PlainValue], kept: Mapping[str, tuple[int, ...]], connection: XdsConnection
) -> LeftOver:
    """Return the remaining bootstrap."""
    own = {name: members_of(value, name) for name in FIELDS}
    left: Section = {name: [own[name][index] for index in kept[name]] for name in FIELDS}
    left["clusters"] = [*connection.clusters, *(own["clusters"][index] for index in kept["clusters"])]
    replaced: dict[str, PlainValue] = {"static_resources": {name: part for name, part in left.items() if part}}
    before = _section(value, "dynamic_resources")
    new = _REPLACED.keys() - (set() if "ads_config" in connection.dynamic else {"ads_config"})
    gone = {key for key in before if _snake(key) in new}
    others = {key: part for key, part in before.items() if key not in gone}
    replaced["dynamic_resources"] = {**others, **connection.dynamic}
    node = _section(value, "node")
    missing = {key: part for key, part in connection.node.items() if not node.get(key)}
    if missing:
        replaced["node"] = {**node, **missing}
    kept_names = {key: part for key, part in value.items() if _snake(key) not in replaced}
    notes = tuple(_notes(gone, others, missing))
    return LeftOver(
        {**kept_names, **{key: part for key, part in replaced.items() if part}},
        kept,
        replaced,
        connection.clusters,
        comments_of(connection.transport),
        notes,
    )


def _notes(gone: Collection[str], others: Collection[str], missing: Mapping[str, PlainValue]) -> Iterator[str]:
    for key in gone:
        came = _REPLACED[_snake(key)]
        yield f"dynamic_resources.{key} is replaced: {came} came from elsewhere so far, and come from fsxds alone now"
    for key in others:
        yield f"dynamic_resources.{key} stays as it was"
    for key, part in missing.items():
        remedy = ": give each Envoy its own" if key == "id" else ""
        yield f"node.{key} was missing, and is {json.dumps(part)} now{remedy}"


def _snake(key: str) -> str:
    names = {camel_case(name): name for name in (*_REPLACED, "static_resources", "dynamic_resources")}
    return names.get(key, key)


def _section(value: Mapping[str, PlainValue], name: str) -> Mapping[str, PlainValue]:
    found = value.get(name, value.get(camel_case(name)))
    return found if isinstance(found, dict) else {}


def members_of(value: Mapping[str, PlainValue], name: str) -> list[PlainValue]:
    """Return a field of `static_resources`; one is a list of one."""
    found = _section(value, "static_resources").get(name)
    return found if isinstance(found, list) else [] if found is None else [found]
