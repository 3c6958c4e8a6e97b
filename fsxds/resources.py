"""Resources, and the snapshots that they make up; immutable, no I/O.

What became of one file when it was parsed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from fsxds.values import FieldPath, Problem, Severity, TypeUrl, Version


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a resource was written: its file, and the line (from 1) on which it begins.

    `document` counts the documents of the file from 0; `field_path` leads from the top of the document to the resource.
    """

    path: PurePosixPath
    line: int
    document: int = field(default=0, compare=False)
    field_path: FieldPath = field(default=(), compare=False)

    def __str__(self) -> str:
        """`edge/cds.yaml:12`."""
        return f"{self.path}:{self.line}"


class Reference(NamedTuple):
    """One resource's mention of another by its name.

    `field_path` leads from the top of the resource to the mention, in the API's own spelling. `severity` is how much it
    weighs that nothing has this name: an ERROR where Envoy would reject the resource or wait in vain.
    `is_static`: it has to be one of the bootstrap's static resources; none of the tree will do.
    """

    type_url: TypeUrl
    name: str
    field_path: FieldPath
    severity: Severity
    is_static: bool = False


@dataclass(frozen=True, slots=True)
class Resource:
    """One named xDS resource.

    `body` is its deterministic binary serialization, `version` the digest of type and body. `ttl_s` is in seconds,
    None for no expiry. `references` are its mentions of other resources, in the order of its fields.
    """

    type_url: TypeUrl
    name: str
    body: bytes = field(repr=False)
    version: Version
    origin: Origin = field(compare=False)
    aliases: tuple[str, ...] = ()
    ttl_s: float | None = None
    references: tuple[Reference, ...] = field(default=(), compare=False, repr=False)

    def says_the_same_as(self, other: Resource) -> bool:
        """Whether a client that was told `other` was told this: its content, time to live and aliases."""
        return self is other or (
            self.version == other.version and self.ttl_s == other.ttl_s and self.aliases == other.aliases
        )


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file: what it holds, and what it declares.

    `declared` are the types it speaks of, which is more than the types of its resources when a list is empty on purpose.
    `version_info` is what the author wrote, None where nothing was.
    """

    path: PurePosixPath
    resources: tuple[Resource, ...]
    declared: frozenset[TypeUrl]
    version_info: str | None = None


@dataclass(frozen=True, slots=True)
class TypeChange:
    """How one type came to its present state: the names, and the places where what is new was written.

    `generation` is the snapshot in which it happened, `follows` that of the type's change before it (0 for none).
    `removed` names have no place, only the files in `files`. A resource of which only the time to live or the aliases are
    others is `changed` too.
    """

    generation: int
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    files: tuple[PurePosixPath, ...] = ()
    follows: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is served at one moment; shared by all clients, never changed.

    `by_type` has a row for every known type; the names in a row are sorted. `versions` are the versions of the whole rows.
    `generation` counts up in this process and is never sent. `authored` are the versions to send instead, where the
    authors' own are wanted. `incomplete` are the types that a file which was never good may define, so that what is
    missing from them may not be told as removed; `withheld` are those of them of which nothing at all was ever good.
    `undeclared` are the types that no document ever spoke of.
    """

    generation: int
    by_type: Mapping[TypeUrl, Mapping[str, Resource]]
    versions: Mapping[TypeUrl, Version]
    authored: Mapping[TypeUrl, str] = field(default_factory=lambda: MappingProxyType({}))
    changes: Mapping[TypeUrl, TypeChange] = field(default_factory=lambda: MappingProxyType({}))
    incomplete: frozenset[TypeUrl] = frozenset()
    withheld: frozenset[TypeUrl] = frozenset()
    undeclared: frozenset[TypeUrl] = frozenset()

    def resources(self, type_url: TypeUrl) -> Mapping[str, Resource]:
        """Return the resources of a type by name, none for a type that is not served."""
        return self.by_type.get(type_url, MappingProxyType({}))


def version_of_body(type_url: TypeUrl, body: bytes) -> Version:
    """Return the version of one resource: 32 hex digits of SHA-256 over its type and its serialized body."""
    return Version(hashlib.sha256(type_url.encode() + b"\0" + body).hexdigest()[:32])


def version_of_set(type_url: TypeUrl, members: Iterable[tuple[str, str]]) -> Version:
    """Return the version of a set of resources: 32 hex digits of SHA-256 over its type, its names and their versions.

    Args:
        type_url: the type of all of them.
        members: name and version of each, sorted by name; an empty version stands for a name that does not exist.
    """
    text = "".join(f"{name}\0{version}\n" for name, version in members)
    return Version(hashlib.sha256(f"{type_url}\n{text}".encode()).hexdigest()[:32])


Key = tuple[TypeUrl, str]
"""Type and name, of which there may be one resource."""


def key_of(resource: Resource) -> Key:
    """Return what makes a resource one and the same, whatever it holds."""
    return resource.type_url, resource.name


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The documents of one file and the problems found in it; `digest` is that of the content that was parsed."""

    path: PurePosixPath
    digest: str
    documents: tuple[Document, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether nothing in it is so wrong that it must not be served."""
        return not any(problem.severity is Severity.ERROR for problem in self.problems)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The resources of all its documents, in the order of the file."""
        return tuple(resource for document in self.documents for resource in document.resources)

    @property
    def declared(self) -> frozenset[TypeUrl]:
        """The types that its documents speak of."""
        return frozenset[TypeUrl]().union(*(document.declared for document in self.documents))
