"""Resources, the rows that they make up by type, and the snapshots that rows make up; immutable, no I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from rpds import HashTrieSet

from fsxds.model.memo import AnswersByNames, Lru
from fsxds.model.name_table import Chunk, NameTable
from fsxds.model.set_versions import version_of_set, version_of_table
from fsxds.model.values import FieldPath, PlainValue, Problem, Severity, TypeUrl, Version

Derived = TypeVar("Derived")

# What rows keep. Streams advance together: differences to a few earlier rows are all that is asked for again.
MOST_CHANGES = 16
MOST_LISTS = 256
MOST_VERSIONS = 4096

# The names of a change are kept as long as answers from before it hold; those of a larger one take more than the answers.
MOST_TAKEN_OVER = 10_000

# Of so large a part of all resources, those that are wanted are found faster by walking over all of them.
LARGE_SHARE = 0.25

Key = tuple[TypeUrl, str]
"""Type and name, of which there may be one resource."""


ADDRESS = TypeUrl("address")
"""Stands for the type of a mention that is no reference but a claim: no other resource may make the same."""

HOST = TypeUrl("host")
"""Stands for the type of a claim of virtual hosts: their names, and the names by which their domains are asked for."""

HOST_NAME = TypeUrl("host name")
"""Stands for the type of a claim of virtual hosts: what Envoy keeps them by, which is `VirtualHost.name`."""

UNNAMED = TypeUrl("unnamed listener")
"""Stands for the type of a claim of listeners without a name, of which there may be one."""

CLAIMED = frozenset({ADDRESS, HOST, HOST_NAME, UNNAMED})
"""What stands for the type of a claim."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a resource was written: its file, and the line (from 1) on which it begins; 0 where it came from elsewhere.

    `document` counts the documents of the file from 0; `field_path` leads from the top of the document to the resource.
    A resource that a layer patched is that of the patch; `patched` says which of its fields were written elsewhere.
    """

    path: PurePosixPath
    line: int
    document: int = field(default=0, compare=False)
    field_path: FieldPath = field(default=(), compare=False)
    patched: Patched | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        """`edge/cds.yaml:12`, or `upstream 10.0.0.1:18000`."""
        return f"{self.path}:{self.line}" if self.line else str(self.path)


@dataclass(frozen=True, slots=True)
class Patched:
    """Where the fields of a patched resource were written.

    Attributes:
        base: the origin of the resource that was patched.
        sources: of paths in the patched resource, whether the patch wrote what is there, and its path in the patch, or in the
            base. The longest path that leads to a field counts; the base wrote all else.
    """

    base: Origin
    sources: Mapping[FieldPath, tuple[bool, FieldPath]]


class Reference(NamedTuple):
    """One resource's mention of another by its name.

    `field_path` leads from the top of the resource to the mention, in the API's own spelling. `severity` is that of nothing
    having this name: an ERROR where Envoy would reject the resource or wait until a timeout.
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
    None for no expiry. `references` are its mentions of other resources, in the order of its fields. `redirect` is the
    canonical locator that it leads to, empty where it is no redirect; as it was read from a file, such a one has no body.
    """

    type_url: TypeUrl
    name: str
    body: bytes = field(repr=False)
    version: Version
    origin: Origin = field(compare=False)
    aliases: tuple[str, ...] = ()
    ttl_s: float | None = None
    references: tuple[Reference, ...] = field(default=(), compare=False, repr=False)
    redirect: str = ""

    def equals_for_clients(self, other: Resource) -> bool:
        """Whether a client that was sent `other` has this: its content, time to live and aliases."""
        return self is other or (
            self.version == other.version and self.ttl_s == other.ttl_s and self.aliases == other.aliases
        )


def key_of(resource: Resource) -> Key:
    """Return what makes a resource one and the same, whatever it holds."""
    return resource.type_url, resource.name


def claims_of(resource: Resource) -> frozenset[Key]:
    """Return what no other resource of a view may claim too."""
    return frozenset((one.type_url, one.name) for one in resource.references if one.type_url in CLAIMED)


def version_of_body(type_url: TypeUrl, body: bytes) -> Version:
    """Return the version of one resource: 32 hex digits of SHA-256 over its type and its serialized body."""
    return Version(hashlib.sha256(type_url.encode() + b"\0" + body).hexdigest()[:32])


@dataclass(frozen=True, slots=True)
class UnreadResource:
    """A resource that has a mistake and is no message therefore, but whose name could be read."""

    type_url: TypeUrl
    name: str
    field_path: FieldPath


@dataclass(frozen=True, slots=True)
class LayerEdit:
    """What a layer does to a resource of the layers below it.

    Attributes:
        type_url: the type of the resource.
        name: its name.
        origin: where it is written.
        column: counts from 1.
        patch: what is merged into the resource; None deletes it. It is never changed.
    """

    type_url: TypeUrl
    name: str
    origin: Origin
    column: int = 1
    patch: Mapping[str, PlainValue] | None = field(default=None, repr=False)

    @property
    def key(self) -> Key:
        """Type and name of the resource."""
        return self.type_url, self.name


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file: what it holds, and what it declares.

    `declared` are the types that it lists, more than those of its resources where a list is empty on purpose.
    `version_info` is what its author wrote, None where nothing was. `unread` are not among the resources. `edits` are of
    resources in layers below that of the file.
    """

    path: PurePosixPath
    resources: tuple[Resource, ...]
    declared: frozenset[TypeUrl]
    version_info: str | None = None
    unread: tuple[UnreadResource, ...] = ()
    edits: tuple[LayerEdit, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The documents of one file and the problems found in it; `digest` is that of the content that was parsed.

    `takes` are the resources of layers below that it deletes or patches, where that was done.
    `mark` is of this one object alone, so that what is worked out of it can be found by it without keeping it alive.
    """

    path: PurePosixPath
    digest: str
    documents: tuple[Document, ...] = ()
    problems: tuple[Problem, ...] = ()
    takes: frozenset[Key] = frozenset()
    mark: object = field(init=False, default_factory=object, compare=False, repr=False)

    @property
    def is_good(self) -> bool:
        """Whether nothing in it is so wrong that it must not be served."""
        return not any(problem.severity is Severity.ERROR for problem in self.problems)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The resources of all its documents, in the order of the file."""
        return tuple(resource for document in self.documents for resource in document.resources)

    @property
    def unread(self) -> tuple[UnreadResource, ...]:
        """What has a mistake and a name, of all its documents."""
        return tuple(resource for document in self.documents for resource in document.unread)

    @property
    def edits(self) -> tuple[LayerEdit, ...]:
        """What it does to resources of layers below, of all its documents."""
        return tuple(edit for document in self.documents for edit in document.edits)

    @property
    def declared(self) -> frozenset[TypeUrl]:
        """The types that its documents list."""
        return frozenset[TypeUrl]().union(*(document.declared for document in self.documents))


class ResourceList(Collection[Resource]):
    """Resources of one type in the order of their names, as one object for all clients that are sent them.

    It is equal to itself alone, so that what is made of it can be found by it at no cost.
    """

    __slots__ = ("_names", "_resources")

    def __init__(self, resources: NameTable[Resource] | Iterable[Resource] = ()) -> None:
        """Take resources in the order of their names; a table is not copied."""
        self._resources: Collection[Resource]
        self._resources = resources.values() if isinstance(resources, NameTable) else tuple(resources)
        self._names: frozenset[str] | None = None

    def __iter__(self) -> Iterator[Resource]:
        """Yield the resources by name."""
        return iter(self._resources)

    def __len__(self) -> int:
        """Return how many they are."""
        return len(self._resources)

    def __contains__(self, resource: object) -> bool:
        """Whether a resource is one of them."""
        return resource in self._resources

    @property
    def names(self) -> frozenset[str]:
        """The names of the resources."""
        if self._names is None:
            self._names = frozenset(resource.name for resource in self._resources)
        return self._names


NO_RESOURCES = ResourceList()


@dataclass(frozen=True, slots=True)
class RowsChange:
    """How the resources of one type differ from earlier ones, by name.

    `fresh` are new or have other content, `renewed` have only another time to live or other aliases. `moved` are only
    written elsewhere, which is no difference for clients.
    """

    fresh: frozenset[str] = frozenset()
    renewed: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    moved: frozenset[str] = field(default=frozenset(), compare=False)

    def __bool__(self) -> bool:
        """Whether there is any difference for clients."""
        return bool(self.fresh or self.renewed or self.removed)

    @property
    def names(self) -> frozenset[str]:
        """All names in it."""
        return frozenset().union(self.fresh, self.renewed, self.removed, self.moved)


class Rows(NameTable[Resource]):
    """The resources of one type in a snapshot, by name, in the order of the names; never changed.

    What is worked out from them is worked out once, for all clients, and goes when they go. What a change does not touch is
    taken over from the rows before it.
    """

    __slots__ = (
        "__weakref__",
        "_changes",
        "_derived",
        "_everything",
        "_lists",
        "_mark",
        "_timed",
        "_version",
        "_versions",
        "type_url",
    )

    def __init__(
        self,
        type_url: TypeUrl,
        resources: Mapping[str, Resource] | None = None,
        since: tuple[Rows, RowsChange] | None = None,
    ) -> None:
        """Take resources by name, and how they differ from earlier rows, where that is known."""
        super().__init__(resources)
        self.type_url = type_url
        # Stands for these rows where others remember how they differ from them, and keeps nothing alive.
        self._mark = object()
        self._everything: ResourceList | None = None
        self._timed: NameTable[Resource] | None = None
        self._version: Version | None = None
        self._lists: AnswersByNames[ResourceList] = AnswersByNames(MOST_LISTS)
        self._versions: AnswersByNames[Version] = AnswersByNames(MOST_VERSIONS)
        self._changes: Lru[object, RowsChange] = Lru(MOST_CHANGES)
        self._derived: dict[type, object] = {}
        if since is not None:
            self._follow(*since)

    def _follow(self, earlier: Rows, change: RowsChange) -> None:
        """Take over what still holds of what is known of earlier rows."""
        names = change.names
        self._changes.put(earlier._mark, change)
        if len(names) <= MOST_TAKEN_OVER:
            self._lists, self._versions = earlier._lists.after(names), earlier._versions.after(names)
        if earlier._timed is not None:
            timed = {name: self[name] for name in self.among(names) if self[name].ttl_s is not None}
            self._timed = earlier._timed.changed(timed, earlier._timed.among(names) - timed.keys())

    @property
    def by_name(self) -> NameTable[Resource]:
        """The resources alone, without what was worked out from them."""
        return NameTable(self)

    @property
    def everything(self) -> ResourceList:
        """All resources."""
        if self._everything is None:
            self._everything = ResourceList(self.by_name)
        return self._everything

    def select(self, names: AbstractSet[str]) -> ResourceList:
        """Return those resources that have these names."""
        return self._lists.find(frozenset(names), lambda: ResourceList(self._in_order(names)))

    def _in_order(self, names: AbstractSet[str]) -> Iterator[Resource]:
        if len(names) > len(self) * LARGE_SHARE:
            return (resource for name, resource in self.items() if name in names)
        return map(self.__getitem__, sorted(self.among(names)))

    @property
    def timed(self) -> NameTable[Resource]:
        """Those resources that have a time to live."""
        if self._timed is None:
            self._timed = NameTable({name: resource for name, resource in self.items() if resource.ttl_s is not None})
        return self._timed

    @property
    def shortest_ttl_s(self) -> float | None:
        """The shortest time to live of any resource, None where none has one."""
        shortest_s = min((chunk.once(_shortest_ttl_s) for chunk in self.timed.chunks), default=inf)
        return None if shortest_s == inf else shortest_s

    @property
    def version(self) -> Version:
        """The version of all resources."""
        if self._version is None:
            self._version = version_of_table(self.type_url, self)
        return self._version

    def prepared(self) -> Rows:
        """Return these rows with their version worked out: for a hundred thousand it takes longer than clients should wait."""
        self._version = self.version
        return self

    def version_of(self, names: frozenset[str]) -> Version:
        """Return the version of what these names stand for, whether it exists or not."""
        return self._versions.find(names, lambda: version_of_set(self.type_url, self._members(names)))

    def _members(self, names: frozenset[str]) -> Iterator[tuple[str, str]]:
        return ((name, self[name].version if name in self else "") for name in sorted(names))

    def with_changes(self, updated: Iterable[Resource], removed: Iterable[str]) -> Rows:
        """Return these rows with some that are new or others, and without some names; they know how they differ.

        The cost follows the number of changes: the rows of a type may be a hundred thousand.
        """
        new = {resource.name: resource for resource in updated if self.get(resource.name) is not resource}
        gone = frozenset(self.among(removed))
        if not new and not gone:
            return self
        table = self.changed(new, gone)
        return Rows(self.type_url, table, (self, self._change(new, gone)) if self else None)

    def with_those_of(self, earlier: Rows, names: AbstractSet[str]) -> Rows:
        """Return these rows and those of earlier ones that have these names, of which none is in these.

        They know how they differ from the earlier ones, and take over what still holds of what is known of those.
        """
        change = self.changes_since(earlier)
        change = replace(change, removed=change.removed - names)
        if not change and not change.moved:
            return earlier
        table = self.changed({name: earlier[name] for name in names}, frozenset())
        return Rows(self.type_url, table, (earlier, change))

    def _change(self, new: Mapping[str, Resource], gone: frozenset[str]) -> RowsChange:
        """Return how rows differ from these in which some are new or others, and some are missing."""
        kept = self.among(new)
        moved = frozenset(name for name in kept if new[name].equals_for_clients(self[name]))
        renewed = frozenset(name for name in kept if new[name].version == self[name].version) - moved
        return RowsChange(frozenset(new.keys() - renewed - moved), renewed, gone, moved)

    def changes_since(self, earlier: Rows) -> RowsChange:
        """Return how these differ from earlier rows of the type; they are compared where that is not known yet."""
        if earlier is self:
            return RowsChange()
        if not earlier:
            # Not kept: those are all names, and it is the first load alone that asks.
            return RowsChange(frozenset(self))
        return self._changes.find(earlier._mark, lambda: self._compare(earlier, self.differing(earlier)))

    def changes_over(self, below: Rows, earlier: Rows, earlier_below: Rows) -> RowsChange:
        """Return how these differ from earlier rows, where both were made of others by a few changes; it costs these."""
        if earlier is self or not earlier:
            return self.changes_since(earlier)
        names = self.changes_since(below).names | earlier.changes_since(earlier_below).names
        names |= below.changes_since(earlier_below).names
        return self._changes.find(
            earlier._mark,
            lambda: self._compare(earlier, {one for one in names if self.get(one) is not earlier.get(one)}),
        )

    def _compare(self, earlier: Rows, differing: AbstractSet[str]) -> RowsChange:
        new = {name: self[name] for name in self.among(differing)}
        return earlier._change(new, frozenset(differing - new.keys()))

    def derive(self, made: type[Derived], make: Callable[[], Derived]) -> Derived:
        """Return the one object of a class that was made from these rows, or make it."""
        found = self.derived(made)
        if found is None:
            self._derived[made] = found = make()
        return found

    def derived(self, made: type[Derived]) -> Derived | None:
        """Return the object of a class that was made from these rows; None where there is none yet."""
        found = self._derived.get(made)
        return found if isinstance(found, made) else None


def _shortest_ttl_s(chunk: Chunk[Resource]) -> float:
    return min((resource.ttl_s for resource in chunk.values if resource.ttl_s), default=inf)


@dataclass(frozen=True, slots=True)
class TypeChange:
    """The last change of a type: the generation of its snapshot, the names, and the files in which they were written.

    A resource of which only the time to live or the aliases are others is `changed` too. Of `removed` names, `files` has
    those that held them.
    """

    generation: int
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    files: tuple[PurePosixPath, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is served at one moment; shared by all clients, never changed.

    Attributes:
        generation: counts up in this process, and is never sent.
        by_type: rows for every known type.
        authored: the versions to send instead of those of rows, where the authors' own are wanted.
        changes: the last change of each type.
        incomplete: the types that a file which was never good may define, so that what is missing from them may not be
            reported as removed.
        withheld: those of them of which nothing at all was ever good.
        undeclared: the types that no document ever listed.
        unresolved: the redirects that lead to nothing that is served here.
        tombstones: by type and collection: the names of members that were removed from the view, the latest last.
        let_go: by type, names of upstreams that went though no upstream removed them; see `UpstreamContent`.
        upstreams: by the names of upstreams: the `sequence` of the content of each that is merged into it.
    """

    generation: int
    by_type: Mapping[TypeUrl, Rows]
    authored: Mapping[TypeUrl, str] = field(default_factory=lambda: MappingProxyType({}))
    changes: Mapping[TypeUrl, TypeChange] = field(default_factory=lambda: MappingProxyType({}))
    incomplete: frozenset[TypeUrl] = frozenset()
    withheld: frozenset[TypeUrl] = frozenset()
    undeclared: frozenset[TypeUrl] = frozenset()
    unresolved: Mapping[Key, Resource] = field(default_factory=lambda: MappingProxyType({}))
    tombstones: Mapping[Key, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    let_go: Mapping[TypeUrl, tuple[HashTrieSet[str], ...]] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False
    )
    upstreams: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}), compare=False)

    @property
    def versions(self) -> Mapping[TypeUrl, Version]:
        """The version of all resources of a type, for each."""
        return MappingProxyType({type_url: rows.version for type_url, rows in self.by_type.items()})

    def resources(self, type_url: TypeUrl) -> Rows:
        """Return the resources of a type by name, none for a type that is not served."""
        rows = self.by_type.get(type_url)
        return Rows(type_url) if rows is None else rows

    def beyond(self, other: Snapshot) -> Iterator[Resource]:
        """Yield the resources that the other one has not, or with other content; it costs what differs."""
        for type_url, rows in self.by_type.items():
            others = other.resources(type_url)
            for name in rows.changes_since(others).names:
                found, known = rows.get(name), others.get(name)
                if found is not None and (known is None or known.version != found.version):
                    yield found
