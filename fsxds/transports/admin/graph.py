"""The graph of references between resources: only names and places.

References are computed once per chunk, which snapshots share.

Rules: which part of the graph is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice

from fsxds.model.memo import Lru
from fsxds.model.name_table import Chunk
from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL
from fsxds.model.resources import Key, Reference, Resource, Snapshot
from fsxds.model.values import Severity, TypeUrl

# A browser draws so many at once, and a person can follow them.
MOST_NODES = 400

# Two routes of a thousand clusters each request their uses several times.
MOST_KEPT = 1000

SERVED, MISSING, OUTSIDE = "served", "missing", "outside"

# Stands for all resources of a type, or behind a prefix for all names with it.
ANY = "*"

# Users come before the resources that they use.
_FROM_THE_TOP = ("lcds", "lds", "srds", "rds", "vhds", "ecds", "cds", "eds", "leds", "sds", "rtds")
_TOP_DOWN = tuple(BY_SHORT_NAME[name].type_url for name in _FROM_THE_TOP)

IsStatic = Callable[[Key], bool]
"""Whether the bootstrap defines a resource, as far as that is known."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A resource, or a referenced name.

    Attributes:
        id: such as `cds/web`.
        place: such as `cds.yaml:3`, and a redirect's target; empty if not served.
        state: `served`; `missing`: users do not work; or `outside`: of the bootstrap, or of an undeclared type.
    """

    id: str
    type: str
    name: str
    place: str
    state: str


@dataclass(frozen=True, slots=True)
class Graph:
    """A part of a view's graph; edges' first uses the second.

    `total` counts nodes of the view, or matches; `missing` names of the view.
    """

    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[str, str], ...]
    total: int
    missing: int
    view: str = ""


@dataclass(frozen=True, slots=True)
class GraphRequest:
    """Requests nodes connected to `around`, else named with `search`."""

    search: str = ""
    around: Key | None = None
    limit: int = 200


@dataclass(slots=True)
class _ChunkUses:
    """Users by key, names that must exist, patterns, aliases."""

    users: dict[Key, list[str]] = field(default_factory=dict)
    needed: dict[TypeUrl, set[str]] = field(default_factory=dict)
    patterns: list[tuple[Reference, str]] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)


def _uses_of(chunk: Chunk[Resource]) -> _ChunkUses:
    uses = _ChunkUses()
    for resource in chunk.values:
        for alias in resource.aliases:
            uses.aliases.setdefault(alias, resource.name)
        for reference in filter(_is_drawn, resource.references):
            if reference.name.endswith(ANY):
                uses.patterns.append((reference, resource.name))
                continue
            key = (reference.type_url, reference.name)
            users = uses.users.setdefault(key, [])
            if not users or users[-1] != resource.name:
                users.append(resource.name)
            if reference.severity is not Severity.NOTE:
                uses.needed.setdefault(key[0], set()).add(key[1])
    return uses


def _is_drawn(reference: Reference) -> bool:
    if reference.is_static or reference.type_url not in BY_TYPE_URL:
        return False
    return reference.name != ANY or reference.severity is not Severity.NOTE


class SnapshotUses:
    """Knows which resources use which. For one thread at a time."""

    def __init__(self, snapshot: Snapshot, is_static: IsStatic) -> None:
        self.snapshot = snapshot
        self._used: Lru[Key, tuple[Key, ...]] = Lru(MOST_KEPT)
        self._is_static = is_static
        self._by_type: dict[TypeUrl, list[_ChunkUses]] = {
            type_url: [chunk.once(_uses_of) for chunk in rows.chunks] for type_url, rows in snapshot.by_type.items()
        }
        self._aliases: dict[TypeUrl, dict[str, str]] = {}
        for type_url, chunks in self._by_type.items():
            # The first resource with an alias wins.
            found = [uses.aliases for uses in reversed(chunks) if uses.aliases]
            self._aliases[type_url] = {alias: name for aliases in found for alias, name in aliases.items()}
        self._patterns = [
            (reference, (type_url, user))
            for type_url, chunks in self._by_type.items()
            for uses in chunks
            for reference, user in uses.patterns
        ]

    def resource(self, key: Key) -> Resource | None:
        """Return a served resource by name or alias."""
        rows = self.snapshot.resources(key[0])
        found: Resource | None = rows.get(key[1])
        if found is None and (name := self._aliases.get(key[0], {}).get(key[1])) is not None:
            return rows[name]
        return found

    def state(self, key: Key) -> str:
        """Return a node's state."""
        if self.resource(key) is not None:
            return SERVED
        return OUTSIDE if key[0] in self.snapshot.undeclared or self._is_static(key) else MISSING

    @cached_property
    def missing(self) -> list[Key]:
        """Absent names that must exist."""
        needed: dict[TypeUrl, set[str]] = {}
        for uses in chain.from_iterable(self._by_type.values()):
            for type_url, names in uses.needed.items():
                needed.setdefault(type_url, set()).update(names)
        lacking: set[Key] = set()
        for type_url, names in needed.items():
            absent = names - self.snapshot.resources(type_url).among(names)
            lacking.update(key for key in ((type_url, name) for name in absent) if self.state(key) == MISSING)
        for reference, _ in self._patterns:
            if reference.severity is not Severity.NOTE and not any(self._matching(reference)):
                key = (reference.type_url, reference.name)
                lacking.update({key} if self.state(key) == MISSING else ())
        return sorted(lacking)

    def used_by(self, key: Key) -> Iterator[Key]:
        """Yield a resource's users."""
        for type_url, chunks in self._by_type.items():
            for uses in chunks:
                for name in uses.users.get(key, ()):
                    yield type_url, name
        for reference, user in self._patterns:
            if reference.type_url == key[0] and key[1].startswith(reference.name.removesuffix(ANY)):
                yield user

    def used(self, key: Key) -> tuple[Key, ...]:
        """Return used names, once each, also missing ones."""
        return self._used.find(key, lambda: tuple(dict.fromkeys(self._find_used(key))))

    def _find_used(self, key: Key) -> Iterator[Key]:
        resource = self.snapshot.resources(key[0]).get(key[1])
        for reference in filter(_is_drawn, resource.references if resource else ()):
            other = (reference.type_url, reference.name)
            if reference.name.endswith(ANY) and other[1] not in self.snapshot.resources(other[0]):
                members = list(islice(self._matching(reference), MOST_NODES))
                yield from members or ((other,) if reference.severity is not Severity.NOTE else ())
            elif (served := self.resource(other)) is not None:
                yield other[0], served.name
            elif reference.severity is not Severity.NOTE:
                yield other

    def _matching(self, reference: Reference) -> Iterator[Key]:
        rows = self.snapshot.resources(reference.type_url)
        for name, _ in rows.starting_with(reference.name.removesuffix(ANY)):
            yield reference.type_url, name

    def names_with(self, text: str) -> Iterator[Key]:
        """Yield resources and missing names with a text."""
        wanted = text.casefold()
        for key in self.missing:
            if wanted in key[1].casefold():
                yield key
        for type_url in _TOP_DOWN:
            for name in self.snapshot.resources(type_url):
                if wanted in name.casefold():
                    yield type_url, name


def graph_of(uses: SnapshotUses, request: GraphRequest) -> Graph:
    """Return a part of a snapshot's graph; by default missing names with users, then connections of the first listeners."""
    missing = uses.missing
    total = len(missing) + sum(map(len, uses.snapshot.by_type.values()))
    if request.around is not None:
        chosen = _chosen(_around(uses, request.around), request.limit)
    elif request.search:
        matching = list(uses.names_with(request.search))
        total = len(matching)
        # The other half is for connected resources.
        seeds = matching[: max(request.limit // 2, 1)]
        hanging = (key for seed in seeds for key in _around(uses, seed))
        chosen = _chosen(chain(seeds, hanging, matching), request.limit)
    else:
        users = (key for one in missing for key in chain((one,), _walk(one, uses.used_by, {one})))
        half = _chosen(users, max(request.limit // 2, 1))
        chosen = _chosen(chain(half, _all_from_the_top(uses, request.limit)), request.limit)
    return Graph(tuple(_node(uses, key) for key in chosen), tuple(_edges(uses, chosen)), total, len(missing))


def key_of_id(node_id: str) -> Key | None:
    """Return an id's type and name."""
    short_name, _, name = node_id.partition("/")
    row = BY_SHORT_NAME.get(short_name)
    return None if row is None or not name else (row.type_url, name)


def _id_of(key: Key) -> str:
    return f"{BY_TYPE_URL[key[0]].short_name}/{key[1]}"


def _chosen(keys: Iterable[Key], limit: int) -> dict[Key, None]:
    chosen: dict[Key, None] = {}
    for key in keys:
        if len(chosen) >= limit:
            break
        chosen.setdefault(key)
    return chosen


def _walk(start: Key, following: Callable[[Key], Iterable[Key]], seen: set[Key]) -> Iterator[Key]:
    ends = [start]
    while ends:
        found = []
        for end in ends:
            for key in following(end):
                if key not in seen:
                    seen.add(key)
                    found.append(key)
                    yield key
        ends = found


def _around(uses: SnapshotUses, key: Key) -> Iterator[Key]:
    if uses.resource(key) is None and next(uses.used_by(key), None) is None:
        return
    yield key
    yield from _walk(key, uses.used_by, {key})
    yield from _walk(key, uses.used, {key})


def _all_from_the_top(uses: SnapshotUses, limit: int) -> Iterator[Key]:
    seen: set[Key] = set()
    for type_url in _TOP_DOWN:
        for name in islice(uses.snapshot.resources(type_url), limit):
            yield type_url, name
            seen.add((type_url, name))
            yield from _walk((type_url, name), uses.used, seen)


def _node(uses: SnapshotUses, key: Key) -> GraphNode:
    resource = uses.resource(key)
    place = "" if resource is None else str(resource.origin)
    if resource is not None and resource.redirect:
        place += f", redirects to {resource.redirect}"
    return GraphNode(_id_of(key), BY_TYPE_URL[key[0]].short_name, key[1], place, uses.state(key))


def _edges(uses: SnapshotUses, chosen: dict[Key, None]) -> Iterator[tuple[str, str]]:
    for user in chosen:
        for key in uses.used(user):
            if key in chosen:
                yield _id_of(user), _id_of(key)
