"""The plan of an import, proved to lose nothing before it is written (pure).

Resources that Envoy needs before it reaches a server, or never requests, stay in the bootstrap:

* clusters that the bootstrap names outside of its static resources, such as for stats sinks;
* clusters that configuration comes from (ENVOY.md E6), and others that only the bootstrap may define;
* API listeners, which Envoy takes from no server;
* resources that these name in turn, and secrets that they use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import PurePosixPath

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.constraints import FieldRules
from fsxds.api.converter import Converter
from fsxds.api.fields import is_map
from fsxds.api.printing import Printer
from fsxds.api.walk import messages_in
from fsxds.envoy.static_bootstrap import SECRET_CONFIG, may_name_cluster
from fsxds.formats import FORMATS, format_of
from fsxds.formats.json_format import encode_plain as encode_json
from fsxds.model.resource_types import BY_SHORT_NAME, ResourceType, exact_type_from_path
from fsxds.model.values import PlainValue
from fsxds.settings.options import EXCLUDED
from fsxds.snapshots.document import authored_path
from fsxds.snapshots.names import name_of_unnamed
from fsxds.source.listing import Exclusion
from fsxds.tools.doctor.facts import BOOTSTRAP, BootstrapFile
from fsxds.tools.importing.pieces import (
    FIELDS,
    Addition,
    ImportedFile,
    ImportLossError,
    LeftOver,
    PieceWriter,
    StaticResource,
    XdsConnection,
    are_equal,
    left_over,
    members_of,
    names_twice,
    printed,
    with_additions,
)
from fsxds.tools.importing.yaml_nodes import MergeKeyError, YamlBootstrap

_NONE_OF_A_TYPE = """\
# There is no resource of this type yet. Write each into a file of its own in this folder.
resources: []
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """A static resource that stays in the bootstrap."""

    resource: StaticResource
    reason: str


@dataclass(frozen=True, slots=True)
class EmptyFile:
    """A type without resources: Envoy's start does not wait for one."""

    path: PurePosixPath
    content: bytes = _NONE_OF_A_TYPE.encode()


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The files to write; `bootstrap` is the rest, in the format of `suffix`."""

    files: tuple[ImportedFile, ...]
    empty: tuple[EmptyFile, ...]
    kept: tuple[Kept, ...]
    bootstrap: bytes
    suffix: str
    is_secret: bool
    notes: tuple[str, ...]

    @property
    def contents(self) -> list[tuple[PurePosixPath, bytes, bool]]:
        """The tree's files; whether they are secret."""
        files = [(file.path, file.content, file.is_secret) for file in self.files]
        return files + [(file.path, file.content, False) for file in self.empty]


class Planner:
    """Plans one import."""

    def __init__(self, read: BootstrapFile, rules: FieldRules, catalogue: Catalogue) -> None:
        """Prepare a bootstrap without errors."""
        self._catalogue = catalogue
        self._converter = Converter(catalogue)
        self._rules = rules
        if read.message is None:
            raise ImportLossError("it is no bootstrap")
        self._message: DynamicMessage = read.message
        self._format = (format_of(read.written.file.path) or FORMATS[0]).name
        own = read.written.value if self._format in {"yaml", "json"} else None
        if not isinstance(own, dict) or not self._has_as_many(own):
            self._format = ""
            own = Printer(catalogue).to_plain(read.message)
        self._value = own
        self._suffix = ".json" if self._format == "json" else ".yaml"
        self._yaml = YamlBootstrap(plain_text(read.written.file.content)) if self._format == "yaml" else None
        self._writer = PieceWriter(catalogue, self._piece, self._suffix)

    def _has_as_many(self, value: Mapping[str, PlainValue]) -> bool:
        """Lists within lists are read as one."""
        static = self._message.static_resources
        return all(len(members_of(value, name)) == len(getattr(static, name)) for name in FIELDS)

    def _piece(self, resource: StaticResource) -> bytes | None:
        if self._yaml is not None:
            return self._yaml.piece(resource)
        return encode_json(with_additions(resource)) if self._format == "json" else None

    def cluster_names(self) -> frozenset[str]:
        """Return the names of static clusters."""
        return frozenset(cluster.name for cluster in self._message.static_resources.clusters)

    def plan(self, connection: XdsConnection) -> ImportPlan:
        """Return the plan.

        Raises:
            ImportLossError: a part of the bootstrap would be lost, or could not be served.
        """
        static = _StaticPart(self._message, self._rules, self._catalogue)
        resources = [one for name in FIELDS for one in self._resources(name)]
        kept = tuple(self._kept(resources, static))
        staying = {id(one.resource) for one in kept}
        moved = [one for one in resources if id(one) not in staying]
        for twice in names_twice(moved):
            noun = twice.row.noun.removesuffix("s")
            raise ImportLossError(f'two {noun}s are named "{twice.name}"; a tree has one of a name: rename one of them')
        secrets = {one.name for one in moved if one.row.type_url == SECRET}
        moved = [self._with_additions(one, secrets, connection) for one in moved]
        paths = TreePaths()
        files = tuple(self._writer.write(one, paths.path_of(one.row, one.name)) for one in moved)
        indexes = {name: tuple(one.resource.index for one in kept if one.resource.field == name) for name in FIELDS}
        left = left_over(self._value, indexes, connection)
        content, suffix, expected, note = self._left_over(left)
        self._prove(files, kept, expected)
        notes = (*left.notes, *_notes_of(files), *([note] if note else ()))
        rows = (BY_SHORT_NAME[short_name] for short_name in ("cds", "lds"))
        served = [file.resource.row for file in files]
        # Envoy waits for a response of both types.
        empty = tuple(EmptyFile(PurePosixPath(row.noun, "none.yaml")) for row in rows if row not in served)
        return ImportPlan(files, empty, kept, content, suffix, self._writer.has_secret(expected), notes)

    def _resources(self, name: str) -> Iterator[StaticResource]:
        messages, values = getattr(self._message.static_resources, name), members_of(self._value, name)
        for index, (message, value) in enumerate(zip(messages, values, strict=True)):
            own = message.name or (name == "listeners" and (name_of_unnamed(message, "") or f"unnamed-{index}"))
            yield StaticResource(name, index, own or "", value, message)

    def _kept(self, resources: list[StaticResource], static: _StaticPart) -> Iterator[Kept]:
        names = [one.name for one in resources if one.field == "secrets"]
        for one in resources:
            if one.field == "listeners":
                reason = static.listeners.get(one.index)
            elif one.field == "clusters":
                reason = static.clusters.get(one.name)
            else:
                reason = static.secrets.get(one.name)
                if names.count(one.name) > 1:
                    reason = "another secret has the same name"
            if reason is not None:
                yield Kept(one, reason)

    def _with_additions(self, resource: StaticResource, secrets: set[str], connection: XdsConnection) -> StaticResource:
        additions = []
        message: DynamicMessage = resource.message
        if not message.name and resource.field == "listeners":
            additions.append(Addition((), "name", resource.name))
        for reference in self._rules.check(resource.message).references:
            if reference.is_static and reference.type_url == SECRET and reference.name in secrets:
                path = authored_path(resource.value, reference.field_path[:-1])
                additions.append(Addition(path, "sds_config", connection.source))
        return replace(resource, additions=tuple(additions))

    def _left_over(self, left: LeftOver) -> tuple[bytes, str, Message, str]:
        expected = self._converter.convert(left.value, BOOTSTRAP).message
        if expected is None:
            raise ImportLossError("the remaining bootstrap is invalid")
        own = encode_json(left.value) if self._format == "json" else None
        if self._yaml is not None:
            with suppress(MergeKeyError):
                own = self._yaml.left_over(left)
        candidates = [] if own is None else [(self._suffix, own, "")]
        for suffix, content, note in (*candidates, *printed(Printer(self._catalogue).to_plain(expected))):
            path = PurePosixPath(f"bootstrap{suffix}")
            file_format = format_of(path) or FORMATS[0]
            documents = file_format.decode(content, self._catalogue, BOOTSTRAP).documents
            value: PlainValue = getattr(documents[0], "value", None) if documents else None
            found = self._converter.convert(value, BOOTSTRAP).message
            if found is not None and are_equal(found, expected):
                return content, suffix, expected, f"the remaining bootstrap: {note}" if note else ""
        raise ImportLossError("the remaining bootstrap cannot be written")

    def _prove(self, files: tuple[ImportedFile, ...], kept: tuple[Kept, ...], left: Message) -> None:
        """Each static resource must be in a proved file, or in the bootstrap."""
        left_message: DynamicMessage = left
        for name in FIELDS:
            before = list(getattr(self._message.static_resources, name))
            moved = [file.resource.index for file in files if file.resource.field == name]
            staying = [one.resource.index for one in kept if one.resource.field == name]
            after = list(getattr(left_message.static_resources, name))
            is_there = all(any(are_equal(before[index], one) for one in after) for index in staying)
            if sorted((*moved, *staying)) != list(range(len(before))) or not is_there:
                raise ImportLossError(f"not all of static_resources.{name} would be in the written files")


def _notes_of(files: tuple[ImportedFile, ...]) -> Iterator[str]:
    for file in files:
        if file.note:
            yield f"{file.path}: {file.note}"
        for addition in file.resource.additions:
            if addition.key == "name":
                yield f'{file.path}: the listener had no name, and is "{file.resource.name}" now'
        if any(addition.key == "sds_config" for addition in file.resource.additions):
            yield f"{file.path}: its secrets come from fsxds now (sds_config), and no longer from the bootstrap"


def plain_text(content: bytes) -> str:
    """Decode text without byte order mark, with line feeds alone."""
    return re.sub("\r\n?", "\n", content.decode("utf-8-sig"))


# A name of up to 255 bytes would leave no margin for the suffixes of editors and copies.
LONGEST_NAME = 120

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


class TreePaths:
    """Names files, such as `clusters/backend.yaml`."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # by path in lower case: the number to try next
        self._exclusion = Exclusion(EXCLUDED)

    def path_of(self, row: ResourceType, name: str) -> PurePosixPath:
        """Return a path without suffix.

        Characters other than letters, digits, `_`, `-` and dots become `_`. Names that differ in case get a number.
        """
        stem = _UNSAFE.sub("_", name)[:LONGEST_NAME].strip("-.") or "unnamed"
        file = PurePosixPath(row.noun, f"{stem}.yaml")
        # A type word in the file's name would win over the folder's.
        if exact_type_from_path(file) is not row or self._exclusion.covers(str(file)):
            stem = f"{row.noun.removesuffix('s')}-{stem}"
        plain = PurePosixPath(row.noun, stem)
        first = self._numbers.get(str(plain).lower(), 1)
        paths = ((number, plain.with_name(f"{stem}-{number}") if number > 1 else plain) for number in count(first))
        number, path = next((number, path) for number, path in paths if str(path).lower() not in self._taken)
        self._numbers[str(plain).lower()] = number + 1
        self._taken.add(str(path).lower())
        return path


CLUSTER, SECRET = (BY_SHORT_NAME[name].type_url for name in ("cds", "sds"))

# Its `cluster` is the name of a group of Envoys.
_NODE = "envoy.config.core.v3.Node"


class _StaticPart:
    """Reasons to stay: by name for clusters and secrets, by index for listeners."""

    def __init__(self, bootstrap: DynamicMessage, rules: FieldRules, catalogue: Catalogue) -> None:
        static = bootstrap.static_resources
        self.clusters: dict[str, str] = {}
        self.secrets: dict[str, str] = {}
        self.listeners: dict[int, str] = {}
        self._catalogue = catalogue
        self._fields: dict[str, tuple[FieldDescriptor, ...]] = {}
        self._by_name = {cluster.name: cluster for cluster in static.clusters}
        for field, value in bootstrap.ListFields():
            members = value.values() if is_map(field) else value if field.is_repeated else (value,)
            if field.message_type is not None and field.name != "static_resources":
                for part in (one for one in members if isinstance(one, Message)):
                    self._keep_all_of(part, f"{field.name} of the bootstrap uses it")
        for noun, resources in (("cluster", static.clusters), ("listener", static.listeners)):
            for resource in resources:
                name = resource.name or "without a name"
                references = rules.check(resource).references
                for named in (one.name for one in references if one.is_static and one.type_url == CLUSTER):
                    self._keep_cluster(named, f"the {noun} {name} needs it in the bootstrap")
        for index, listener in enumerate(static.listeners):
            if listener.HasField("api_listener"):
                self.listeners[index] = "Envoy takes API listeners from no server"
                self._keep_all_of(listener, f"the API listener {listener.name} uses it")

    def _keep_all_of(self, message: Message, reason: str) -> None:
        """A superfluous cluster or secret is harmless."""
        for _, part in messages_in(message, self._catalogue):
            descriptor = part.DESCRIPTOR
            if descriptor.full_name == _NODE:
                continue
            if descriptor.full_name not in self._fields:
                named = tuple(field for field in descriptor.fields if may_name_cluster(field, descriptor))
                self._fields[descriptor.full_name] = named
            for field in self._fields[descriptor.full_name]:
                value = getattr(part, field.name)
                for name in value if field.is_repeated else (value,):
                    self._keep_cluster(name, reason)
            if descriptor.full_name == SECRET_CONFIG and part.name and not part.HasField("sds_config"):
                self.secrets.setdefault(part.name, reason)

    def _keep_cluster(self, name: str, reason: str) -> None:
        if name in self._by_name and name not in self.clusters:
            self.clusters[name] = reason
            self._keep_all_of(self._by_name[name], f"the cluster {name}, which stays, uses it")
