"""Resources, rows of one type, and snapshots; immutable, no I/O."""

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
from fsxds.model.name_table import Chunk, NameTable, version_of_set, version_of_table
from fsxds.model.values import FieldPath, PlainValue, Problem, Severity, TypeUrl, Version

Derived = TypeVar("Derived")

# Cache sizes of rows. Streams advance together, so only differences to a few earlier rows are needed again.
MOST_CHANGES = 16
MOST_LISTS = 256
MOST_VERSIONS = 4096

# A change with more names is not kept for reuse of earlier answers: its names take more memory than the answers.
MOST_TAKEN_OVER = 10_000

# From this share of all resources on, a selection is made faster by visiting all of them.
LARGE_SHARE = 0.25

Key = tuple[TypeUrl, str]
"""Type and name of a resource."""


ADDRESS = TypeUrl("address")
"""The type of a claim, not a reference: no other resource may make the same."""

HOST = TypeUrl("host")
"""Claims of virtual hosts: their names, and the names by which their domains are requested."""

HOST_NAME = TypeUrl("host name")
"""Claims of virtual hosts: `VirtualHost.name`, Envoy's key."""

UNNAMED = TypeUrl("unnamed listener")
"""The claim of a listener without a name."""

CLAIMED = frozenset({ADDRESS, HOST, HOST_NAME, UNNAMED})
"""All types of claims."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A resource's place: its file, and first line (from 1; 0 without a file).

    `document` counts from 0; `field_path` leads from its top to the resource, or to its patch.
    """

    path: PurePosixPath
    line: int
    document: int = field(default=0, compare=False)
    field_path: FieldPath = field(default=(), compare=False)
    patched: Patched | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        """Return `edge/cds.yaml:12`, or `upstream 10.0.0.1:18000`."""
        return f"{self.path}:{self.line}" if self.line else str(self.path)

    def problem(self, rule: str, message: str, remedy: str, severity: Severity = Severity.ERROR) -> Problem:
        """Return a problem at this line."""
        return Problem(self.path, self.line or 1, 1, "", rule, message, remedy, severity)


@dataclass(frozen=True, slots=True)
class Patched:
    """The places of a patched resource's fields.

    `sources`, by path: whether the patch wrote the value, and its path there or in `base`. The longest path to a field
    counts; else it is from the base.
    """

    base: Origin
    sources: Mapping[FieldPath, tuple[bool, FieldPath]]


class Reference(NamedTuple):
    """One resource's mention of another.

    `field_path` leads from the resource's top, in the API's spelling. `severity` is a dangling reference's: an ERROR if
    Envoy would reject the resource or time out. `is_static`: the bootstrap's resource is meant.
    """

    type_url: TypeUrl
    name: str
    field_path: FieldPath
    severity: Severity
    is_static: bool = False


@dataclass(frozen=True, slots=True)
class Resource:
    """One named xDS resource.

    `body` is serialized deterministically, `version` the digest of type and body. `ttl_s` is None for no expiry.
    `redirect` is its target's canonical locator, or empty; a redirect from a file has no body.
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
        """Compare content, time to live and aliases."""
        return self is other or (
            self.version == other.version and self.ttl_s == other.ttl_s and self.aliases == other.aliases
        )


def key_of(resource: Resource) -> Key:
    """Return type and name."""
    return resource.type_url, resource.name


def claims_of(resource: Resource) -> frozenset[Key]:
    """Return claims that a view's other resources may not make."""
    return frozenset((one.type_url, one.name) for one in resource.references if one.type_url in CLAIMED)


def version_of_body(type_url: TypeUrl, body: bytes) -> Version:
    """Return 32 hex digits of SHA-256 over type and body."""
    return Version(hashlib.sha256(type_url.encode() + b"\0" + body).hexdigest()[:32])


@dataclass(frozen=True, slots=True)
class UnreadResource:
    """A resource with a mistake and a readable name."""

    type_url: TypeUrl
    name: str
    field_path: FieldPath


@dataclass(frozen=True, slots=True)
class LayerEdit:
    """A layer's edit of a resource below.

    `column` counts from 1. `patch` is never changed; None deletes.
    """

    type_url: TypeUrl
    name: str
    origin: Origin
    column: int = 1
    patch: Mapping[str, PlainValue] | None = field(default=None, repr=False)

    @property
    def key(self) -> Key:
        """The resource's type and name."""
        return self.type_url, self.name


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file.

    `declared` are its lists' types, even empty ones. `version_info` is the author's.
    """

    path: PurePosixPath
    resources: tuple[Resource, ...]
    declared: frozenset[TypeUrl]
    version_info: str | None = None
    unread: tuple[UnreadResource, ...] = ()
    edits: tuple[LayerEdit, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """One parsed file.

    `takes` are resources below that it deleted or patched. `mark` is unique: results can be keyed by it without keeping
    it alive.
    """

    path: PurePosixPath
    digest: str
    documents: tuple[Document, ...] = ()
    problems: tuple[Problem, ...] = ()
    takes: frozenset[Key] = frozenset()
    mark: object = field(init=False, default_factory=object, compare=False, repr=False)

    def with_some(self, is_kept: Callable[[Resource], bool], digest: str) -> ParsedFile:
        """Leave out resources; set the digest."""
        documents = (replace(one, resources=tuple(filter(is_kept, one.resources))) for one in self.documents)
        return replace(self, documents=tuple(documents), digest=digest)

    @property
    def is_good(self) -> bool:
        """Whether it has no error."""
        return not any(problem.severity is Severity.ERROR for problem in self.problems)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """All resources, in order."""
        return tuple(resource for document in self.documents for resource in document.resources)

    @property
    def unread(self) -> tuple[UnreadResource, ...]:
        """All unread resources."""
        return tuple(resource for document in self.documents for resource in document.unread)

    @property
    def edits(self) -> tuple[LayerEdit, ...]:
        """All edits."""
        return tuple(edit for document in self.documents for edit in document.edits)

    @property
    def declared(self) -> frozenset[TypeUrl]:
        """Its lists' types."""
        return frozenset[TypeUrl]().union(*(document.declared for document in self.documents))


class ResourceList(Collection[Resource]):
    """Resources of one type sorted by name, shared by all clients; compares by identity, to be a cheap key."""

    __slots__ = ("_names", "_resources")

    def __init__(self, resources: NameTable[Resource] | Iterable[Resource] = ()) -> None:
        """A table is not copied."""
        self._resources: Collection[Resource]
        self._resources = resources.values() if isinstance(resources, NameTable) else tuple(resources)
        self._names: frozenset[str] | None = None

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._resources)

    def __len__(self) -> int:
        return len(self._resources)

    def __contains__(self, resource: object) -> bool:
        return resource in self._resources

    @property
    def names(self) -> frozenset[str]:
        """The names."""
        if self._names is None:
            self._names = frozenset(resource.name for resource in self._resources)
        return self._names


NO_RESOURCES = ResourceList()


@dataclass(frozen=True, slots=True)
class RowsChange:
    """The difference between resources of one type, by name.

    `fresh` are new or have other content, `renewed` another time to live or aliases, `moved` only another place.
    """

    fresh: frozenset[str] = frozenset()
    renewed: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    moved: frozenset[str] = field(default=frozenset(), compare=False)

    def __bool__(self) -> bool:
        return bool(self.fresh or self.renewed or self.removed)

    @property
    def names(self) -> frozenset[str]:
        """All names in it."""
        return frozenset().union(self.fresh, self.renewed, self.removed, self.moved)


class Rows(NameTable[Resource]):
    """A snapshot's resources of one type, sorted by name; never changed.

    Derived results are computed once, for all clients. A change keeps untouched ones.
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
        """`since` is the known difference to earlier rows."""
        super().__init__(resources)
        self.type_url = type_url
        # Stands for these rows in caches of others, without keeping them alive.
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
        names = change.names
        self._changes.put(earlier._mark, change)
        if len(names) <= MOST_TAKEN_OVER:
            self._lists, self._versions = earlier._lists.after(names), earlier._versions.after(names)
        if earlier._timed is not None:
            timed = {name: self[name] for name in self.among(names) if self[name].ttl_s is not None}
            self._timed = earlier._timed.changed(timed, earlier._timed.among(names) - timed.keys())

    @property
    def by_name(self) -> NameTable[Resource]:
        """The resources without derived results."""
        return NameTable(self)

    @property
    def everything(self) -> ResourceList:
        """All resources."""
        if self._everything is None:
            self._everything = ResourceList(self.by_name)
        return self._everything

    def select(self, names: AbstractSet[str]) -> ResourceList:
        """Select resources by name."""
        return self._lists.find(frozenset(names), lambda: ResourceList(self._in_order(names)))

    def _in_order(self, names: AbstractSet[str]) -> Iterator[Resource]:
        if len(names) > len(self) * LARGE_SHARE:
            return (resource for name, resource in self.items() if name in names)
        return map(self.__getitem__, sorted(self.among(names)))

    @property
    def timed(self) -> NameTable[Resource]:
        """The resources with a time to live."""
        if self._timed is None:
            self._timed = NameTable({name: resource for name, resource in self.items() if resource.ttl_s is not None})
        return self._timed

    @property
    def shortest_ttl_s(self) -> float | None:
        """The shortest time to live, or None."""
        shortest_s = min((chunk.once(_shortest_ttl_s) for chunk in self.timed.chunks), default=inf)
        return None if shortest_s == inf else shortest_s

    @property
    def version(self) -> Version:
        """The version of all resources."""
        if self._version is None:
            self._version = version_of_table(self.type_url, self)
        return self._version

    def prepared(self) -> Rows:
        """Compute the version: for a hundred thousand rows, clients should not wait."""
        self._version = self.version
        return self

    def version_of(self, names: frozenset[str]) -> Version:
        """Names may not exist."""
        return self._versions.find(names, lambda: version_of_set(self.type_url, self._members(names)))

    def _members(self, names: frozenset[str]) -> Iterator[tuple[str, str]]:
        return ((name, self[name].version if name in self else "") for name in sorted(names))

    def with_changes(self, updated: Iterable[Resource], removed: Iterable[str]) -> Rows:
        """Apply a change, at its cost; the result knows the difference."""
        new = {resource.name: resource for resource in updated if self.get(resource.name) is not resource}
        gone = frozenset(self.among(removed))
        if not new and not gone:
            return self
        table = self.changed(new, gone)
        return Rows(self.type_url, table, (self, self._change(new, gone)) if self else None)

    def with_rows_of(self, earlier: Rows, names: AbstractSet[str]) -> Rows:
        """Add earlier rows, none of them here.

        The result knows its difference to `earlier`, and keeps its valid results.
        """
        change = self.changes_since(earlier)
        change = replace(change, removed=change.removed - names)
        if not change and not change.moved:
            return earlier
        table = self.changed({name: earlier[name] for name in names}, frozenset())
        return Rows(self.type_url, table, (earlier, change))

    def _change(self, new: Mapping[str, Resource], gone: frozenset[str]) -> RowsChange:
        kept = self.among(new)
        moved = frozenset(name for name in kept if new[name].equals_for_clients(self[name]))
        renewed = frozenset(name for name in kept if new[name].version == self[name].version) - moved
        return RowsChange(frozenset(new.keys() - renewed - moved), renewed, gone, moved)

    def changes_since(self, earlier: Rows) -> RowsChange:
        """Return the difference, cached or compared."""
        if earlier is self:
            return RowsChange()
        if not earlier:
            # Not cached: these are all names, and only the first load asks.
            return RowsChange(frozenset(self))
        return self._changes.find(earlier._mark, lambda: self._compare(earlier, self.differing(earlier)))

    def changes_over(self, below: Rows, earlier: Rows, earlier_below: Rows) -> RowsChange:
        """Return the difference, at the cost of the few changes that made both from others."""
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
        """Return the rows' one object of a class; `make` it if missing."""
        found = self.derived(made)
        if found is None:
            self._derived[made] = found = make()
        return found

    def derived(self, made: type[Derived]) -> Derived | None:
        """Return the object of a class made from these rows."""
        found = self._derived.get(made)
        return found if isinstance(found, made) else None


def _shortest_ttl_s(chunk: Chunk[Resource]) -> float:
    return min((resource.ttl_s for resource in chunk.values if resource.ttl_s), default=inf)


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A type's last change: generation, names, and files.

    `changed` includes changes of time to live or aliases alone; `files` former files of `removed` names.
    """

    generation: int
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    files: tuple[PurePosixPath, ...] = ()


_ID_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is served at one moment; shared by all clients, never changed.

    `generation` counts up in this process, and is never sent; `by_type` has every known type; `authored` are authors'
    versions to send. `incomplete` are types that a never-good file may define: missing resources are not reported as
    removed; `withheld` those without any good file; `undeclared` types that no document ever listed. `unresolved` are
    redirects without a target here. `tombstones` are removed members of collections, the latest last; `released` names
    gone from upstreams though none removed them (see `UpstreamContent`); `upstreams` each merged content's `sequence`.
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
    released: Mapping[TypeUrl, tuple[HashTrieSet[str], ...]] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False
    )
    upstreams: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}), compare=False)

    @property
    def versions(self) -> Mapping[TypeUrl, Version]:
        """Each type's version."""
        return MappingProxyType({type_url: rows.version for type_url, rows in self.by_type.items()})

    def resources(self, type_url: TypeUrl) -> Rows:
        """Return a type's resources; empty if it is not served."""
        rows = self.by_type.get(type_url)
        return Rows(type_url) if rows is None else rows

    def beyond(self, other: Snapshot) -> Iterator[Resource]:
        """Yield resources that differ in `other`, or are missing there; the cost follows the difference."""
        for type_url, rows in self.by_type.items():
            others = other.resources(type_url)
            for name in rows.changes_since(others).names:
                found, known = rows.get(name), others.get(name)
                if found is not None and (known is None or known.version != found.version):
                    yield found


def snapshot_id(snapshot: Snapshot) -> str:
    """Return 12 hex digits: equal content has one id, in every process."""
    versions = snapshot.versions
    lines = "".join(f"{type_url}\0{versions[type_url]}\n" for type_url in sorted(versions))
    return hashlib.sha256(lines.encode()).hexdigest()[:_ID_DIGITS]
