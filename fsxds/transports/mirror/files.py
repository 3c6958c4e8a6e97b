"""Mirrored files as values, their names, and their encoding.

Rules: at which path a mirrored resource is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import PurePosixPath
from urllib.parse import quote

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.converter import Converter
from fsxds.api.printing import Printer
from fsxds.events.file_events import Remark
from fsxds.formats import FORMATS, Format, format_of
from fsxds.formats.decoded import MessageDocument, PlainDocument
from fsxds.model.errors import UsageError
from fsxds.model.memo import Recent
from fsxds.model.name_table import version_of_set
from fsxds.model.resource_names import parse_or_none
from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL, RESOURCE_TYPES
from fsxds.model.resources import Origin, Resource, version_of_body
from fsxds.model.values import TypeUrl, Version

# Most file systems allow 255 bytes; suffixes and `name.bak` need some.
LONGEST_BYTES = 200
# Not percent escapes, so no other name is encoded like them.
EMPTY = "%empty"
CUT = "%~"
_KEPT_BYTES = 150


def file_name_of(name: str) -> str:
    """Return a file name, without suffix, unique to a resource name.

    Letters, digits, `_`, `-` and dots stay; other characters, and a leading dot, become `%XX` per byte of UTF-8. Beyond
    200 bytes it ends in `%~` and a digest; only the manifest leads back. Names that differ in case alone need a
    case-sensitive file system.
    """
    if not name:
        return EMPTY
    safe = quote(name, safe="").replace("~", "%7E")
    if safe.startswith("."):
        safe = "%2E" + safe[1:]
    if len(safe) <= LONGEST_BYTES:
        return safe
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    return re.sub(r"%.?$", "", safe[:_KEPT_BYTES]) + CUT + digest


COLLECTIONS = (BY_SHORT_NAME["lcds"].type_url,)
"""One `Resource` per file, for Envoy's `lds_resources_locator: file:///...` (ENVOY.md E79)."""

BUNDLES = tuple(row.type_url for row in RESOURCE_TYPES if row.rest_path and row.full_state_in_sotw)
SINGLES = tuple(row.type_url for row in RESOURCE_TYPES if row.rest_path and not row.full_state_in_sotw)
SINGLES += COLLECTIONS
"""The types with one file per type, and those with one per resource (ENVOY.md E16).

VHDS and LEDS have no form as files.
"""

FORMS = ("pb", "json", "yaml", "pb_text")
"""The suffixes that Envoy distinguishes (ENVOY.md E22): it reads all others as JSON."""


@dataclass(frozen=True, slots=True)
class MirrorFile:
    """A file as it should be: a DiscoveryResponse, or one `Resource` if `is_wrapped`.

    `is_stand_in`: the tree lacks the resource: an empty ClusterLoadAssignment for a referencing cluster, or no resource
    for a listener's referenced extension.
    """

    path: PurePosixPath
    type_url: TypeUrl
    version: Version
    resources: tuple[Resource, ...]
    is_stand_in: bool = False
    is_wrapped: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the file."""
        return tuple(resource.name for resource in self.resources)


@dataclass(frozen=True, slots=True)
class FileOnDisk:
    """Our file on disk; `content` None: unknown."""

    type_url: TypeUrl
    names: tuple[str, ...]
    content: MirrorFile | None
    is_stand_in: bool = False


Held = Mapping[PurePosixPath, FileOnDisk]


@dataclass(frozen=True, slots=True)
class Layout:
    """The `files` that should exist, and our `kept` ones.

    `kept_resources` are not in the snapshot; `left_sources` could not be pointed at a file.
    """

    files: Mapping[PurePosixPath, MirrorFile]
    kept: frozenset[PurePosixPath]
    kept_resources: tuple[Remark, ...] = ()
    left_sources: tuple[Remark, ...] = ()


def path_of(type_url: TypeUrl, name: str | None, suffix: str) -> PurePosixPath:
    """Return a resource's path, or the type's bundle's (`name` None).

    A list collection is at `lcds/<authority>/<path>`, without an authority at `lcds/<path>`.
    """
    short_name = BY_TYPE_URL[type_url].short_name
    structured = parse_or_none(name or "") if type_url in COLLECTIONS else None
    if structured is not None:
        # Percent-encoded already, so no path looks like one with parameters.
        file_name = file_name_of(structured.without_authority.removeprefix(f"/{structured.message_type}/"))
        folders = f"{file_name_of(structured.authority)}/" if structured.authority else ""
        return PurePosixPath(f"{short_name}/{folders}{file_name}{suffix}")
    return PurePosixPath(short_name + suffix if name is None else f"{short_name}/{file_name_of(name)}{suffix}")


class MirrorPaths:
    """Caches paths: ten thousand cost more than all else on an unchanged snapshot.

    Call `turn` before each layout.
    """

    def __init__(self, suffix: str, directory: PurePosixPath) -> None:
        self._suffix = suffix
        self._directory = directory
        # By the arguments of `path_of`.
        self._relative: Recent[tuple[TypeUrl, str | None], PurePosixPath] = Recent()
        self._absolute: Recent[tuple[TypeUrl, str | None], PurePosixPath] = Recent()

    def relative(self, type_url: TypeUrl, name: str | None) -> PurePosixPath:
        """Return `path_of`."""
        return self._relative.get((type_url, name), lambda: path_of(type_url, name, self._suffix))

    def absolute(self, type_url: TypeUrl, name: str | None) -> PurePosixPath:
        """Return the path including the directory."""
        return self._absolute.get((type_url, name), lambda: self._directory / self.relative(type_url, name))

    def turn(self) -> None:
        """Forget paths unused in the last layout."""
        self._relative.turn()
        self._absolute.turn()


def united(wanted: MirrorFile, before: MirrorFile | None) -> MirrorFile:
    """Return a bundle of wanted and earlier resources.

    With additions its version is a digest, to differ.
    """
    names = set(wanted.names)
    others = tuple(resource for resource in before.resources if resource.name not in names) if before else ()
    if not others or before is None:
        return wanted
    resources = tuple(sorted((*wanted.resources, *others), key=lambda resource: resource.name))
    if [(r.name, r.body) for r in resources] == [(r.name, r.body) for r in before.resources]:
        return replace(before, path=wanted.path)
    type_url = wanted.type_url
    version = version_of_set(type_url, ((r.name, version_of_body(type_url, r.body)) for r in resources))
    return MirrorFile(wanted.path, type_url, version, resources)


RESPONSE = "envoy.service.discovery.v3.DiscoveryResponse"
RESOURCE = "envoy.service.discovery.v3.Resource"


class MirrorEncoding:
    """Encodes and decodes mirrored files in one of `FORMS`."""

    def __init__(self, catalogue: Catalogue, form: str) -> None:
        if form not in FORMS:
            raise UsageError(f"there are no mirrored files of the form {form!r}; choose one of {', '.join(FORMS)}")
        self.suffix = f".{form}"
        self._catalogue = catalogue
        self._format: Format = next(row for row in FORMATS if self.suffix in row.suffixes)
        self._printer = Printer(catalogue)
        self._response: DynamicMessage = catalogue.message_class(RESPONSE)
        self._wrapper: DynamicMessage = catalogue.message_class(RESOURCE)
        self._any: DynamicMessage = catalogue.message_class("google.protobuf.Any")

    def encode(self, file: MirrorFile) -> bytes:
        """Encode without TTL, responses without `Resource` wrappers (ENVOY.md E18, E19)."""
        packed = [self._any(type_url=resource.type_url, value=resource.body) for resource in file.resources]
        if file.is_wrapped:
            wrapper: Message = self._wrapper(name=file.names[0], version=file.version, resource=packed[0])
            return self._format.encode(wrapper, self._printer)
        response: Message = self._response(version_info=file.version, type_url=file.type_url, resources=packed)
        return self._format.encode(response, self._printer)

    def decode(self, content: bytes, path: PurePosixPath, type_url: TypeUrl) -> MirrorFile | None:
        """Decode our file, of any form; None if unreadable."""
        found = format_of(path)
        response = self._response_in(content, found, BY_TYPE_URL[type_url].message_type) if found else None
        if response is None:
            return None
        try:
            resources = tuple(self._resource(packed, path) for packed in response.resources)
        except (DecodeError, KeyError):  # damaged, or of a type that fsxds does not write
            return None
        return MirrorFile(path, type_url, Version(response.version_info), resources)

    def _response_in(self, content: bytes, found: Format, message_type: str) -> DynamicMessage:
        match found.decode(content, self._catalogue, message_type).documents:
            case (MessageDocument(message=message),) if message.DESCRIPTOR.full_name == RESPONSE:
                return message
            case (PlainDocument(value=value),):
                return Converter(self._catalogue).convert(value, RESPONSE).message
        return None

    def _resource(self, packed: DynamicMessage, path: PurePosixPath) -> Resource:
        row = BY_TYPE_URL[packed.type_url]
        message = self._catalogue.message_class(row.message_type).FromString(packed.value)
        name = str(getattr(message, row.name_field or "name"))
        version = version_of_body(row.type_url, packed.value)
        return Resource(row.type_url, name, packed.value, version, Origin(path, 1))


@dataclass(frozen=True, slots=True)
class Write:
    """Put this file in place."""

    file: MirrorFile


@dataclass(frozen=True, slots=True)
class Pause:
    """Lets Envoy read the files so far: two files renamed at once race.

    Envoy then rejects up to a fifth of the listeners, without retrying (ENVOY.md E26).
    """


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove one of our files."""

    path: PurePosixPath


FileStep = Write | Pause | Remove


class Phase(IntEnum):
    """With pauses: clusters before their users, unused files last."""

    CLUSTERS = 0
    LISTENERS = 1
    STAND_INS = 2
    UNUSED_FILES = 3


CLUSTERS = BY_SHORT_NAME["cds"]


def steps_to(layout: Layout, held: Held) -> tuple[FileStep, ...]:
    """Return steps from held files to a layout."""
    changed = [file for path, file in layout.files.items() if path not in held or held[path].content != file]
    phases: dict[Phase, list[FileStep]] = {phase: [] for phase in Phase}
    for file in sorted(changed, key=lambda file: (_rank(file, held), file.path)):
        phases[_phase(file, held)].append(Write(file))
    unused = [path for path in held if path not in layout.files and path not in layout.kept]
    ranks = {path: BY_TYPE_URL[held[path].type_url].file_order for path in unused}
    phases[Phase.UNUSED_FILES] += [Remove(path) for path in sorted(unused, key=lambda path: (-ranks[path], path))]
    return tuple(_with_pauses(phases.values()))


def _rank(file: MirrorFile, held: Held) -> int:
    row = BY_TYPE_URL[file.type_url]
    return row.file_order if file.path in held or row.new_file_order is None else row.new_file_order


def _phase(file: MirrorFile, held: Held) -> Phase:
    if file.is_stand_in and file.path in held:
        return Phase.STAND_INS
    return Phase.LISTENERS if _rank(file, held) > CLUSTERS.file_order else Phase.CLUSTERS


def _with_pauses(phases: Iterable[list[FileStep]]) -> Iterable[FileStep]:
    is_first = True
    for steps in phases:
        if steps and not is_first:
            yield Pause()
        yield from steps
        is_first = is_first and not steps
