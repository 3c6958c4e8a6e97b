"""The resources held from an upstream: applies responses, and decides removals and versions to report. Pure.

| rule | source |
| --- | --- |
| A held resource goes by a removal, by its absence from a full state, or at the end of its time to live, and by nothing else. | xDS protocol, "Deleting Resources", "TTL" |
| A resource that cannot be served keeps its last good content; the others of the response are applied. | |
| A heartbeat renews the time to live, and nothing else. | xDS protocol, "TTL" |
| A server gets the versions that it gave itself, and content digests; for any other resource, an empty version. | xDS protocol, "initial_resource_versions" |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from types import MappingProxyType
from typing import TypeVar

from fsxds.model.name_table import NameTable
from fsxds.model.resources import Key, Resource, Rows
from fsxds.model.values import TypeUrl
from fsxds.snapshots.upstream_content import Held, HeldResource
from fsxds.upstream.responses import ReadResponse

NO_TABLE: NameTable[HeldResource] = NameTable()

# Kept beside one end for each resource.
MOST_STALE_ENDS = 1000

Table = TypeVar("Table", NameTable[HeldResource], Rows)


@dataclass(frozen=True, slots=True)
class Taken:
    """The changes by a response.

    `surplus`: names of new resources beyond the limit.
    """

    before: tuple[Resource, ...] = ()
    after: tuple[Resource, ...] = ()
    surplus: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there was a change."""
        return bool(self.before or self.after)

    @property
    def keys(self) -> frozenset[Key]:
        """Of all changed resources."""
        return frozenset((each.type_url, each.name) for each in (*self.before, *self.after))


class HeldResources:
    """The resources held from one upstream: `held` with its data, `rows` alone; without empty types."""

    def __init__(self, most: int) -> None:
        self.held: Held = MappingProxyType({})
        self.rows: Mapping[TypeUrl, Rows] = MappingProxyType({})
        self._most = most
        self._size = 0
        # A renewed time to live has an outdated entry too; `held` decides.
        self._ends: list[tuple[float, Key]] = []

    def rows_of(self, type_url: TypeUrl) -> Rows:
        """Return the held resources of a type."""
        rows = self.rows.get(type_url)
        return Rows(type_url) if rows is None else rows

    def restore(self, held: Held) -> None:
        """Hold an earlier process's resources, as the first call."""
        self.held = MappingProxyType({type_url: table for type_url, table in held.items() if table})
        self.rows = MappingProxyType(
            {
                type_url: Rows(type_url, {name: each.resource for name, each in table.items()})
                for type_url, table in self.held.items()
            }
        )
        self._size = sum(map(len, self.held.values()))
        for type_url, table in self.held.items():
            for name, each in table.items():
                self._note_end((type_url, name), each.expires_s)

    def take(self, response: ReadResponse, wants: Callable[[Resource], bool], server: str, now_s: float) -> Taken:
        """Apply a server's response, at `now_s` since 1970; `wants` selects resources."""
        type_url = response.type_url
        table = self.held.get(type_url, NO_TABLE)
        new, surplus = dict[str, HeldResource](), list[str]()
        room = self._most - self._size
        for name, resource in response.resources.items():
            known = table.get(name)
            if (
                known is not None
                and known.resource is resource
                and _is_as_known(known, response.versions[name], server)
            ):
                # A full state repeats unchanged resources.
                continue
            if not wants(resource):
                continue
            if known is None:
                if room <= 0:
                    surplus.append(name)
                    continue
                room -= 1
            expires_s = None if resource.ttl_s is None else now_s + resource.ttl_s
            new[name] = HeldResource(resource, response.versions[name], server, now_s, expires_s)
        for name in table.among(response.renewed) - new.keys():
            known = table[name]
            if known.resource.ttl_s is not None:
                new[name] = replace(known, expires_s=now_s + known.resource.ttl_s)
        return replace(self._change(type_url, new, self._removed(response, table)), surplus=tuple(surplus))

    def _removed(self, response: ReadResponse, table: NameTable[HeldResource]) -> set[str]:
        removed = table.among(response.removed)
        if response.is_full:
            removed |= {name for name in table if name not in response.resources and name not in response.bad}
        return removed

    def drop(self, keys: Iterable[Key]) -> Taken:
        """Drop resources."""
        of_type: defaultdict[TypeUrl, set[str]] = defaultdict(set)
        for type_url, name in keys:
            of_type[type_url].add(name)
        return _joined(
            self._change(type_url, {}, self.held.get(type_url, NO_TABLE).among(names))
            for type_url, names in of_type.items()
        )

    @property
    def next_end_s(self) -> float | None:
        """When a time to live ends next, or earlier, in seconds since 1970; None: never."""
        return self._ends[0][0] if self._ends else None

    def expire(self, now_s: float) -> Taken:
        """Drop expired resources."""
        over = set[Key]()
        while self._ends and self._ends[0][0] <= now_s:
            _, (type_url, name) = heappop(self._ends)
            known = self.held.get(type_url, NO_TABLE).get(name)
            if known is not None and known.expires_s is not None and known.expires_s <= now_s:
                over.add((type_url, name))
        return self.drop(over)

    def versions(self, server: str, type_url: TypeUrl) -> Mapping[str, str]:
        """Return the versions to report to a server; "" matches none."""
        return {
            name: each.version if each.server == server or each.version == each.resource.version else ""
            for name, each in self.held.get(type_url, NO_TABLE).items()
        }

    def _change(self, type_url: TypeUrl, new: Mapping[str, HeldResource], removed: set[str]) -> Taken:
        table = self.held.get(type_url, NO_TABLE)
        # Equal content keeps its object, so that comparison finds no difference.
        new = {name: _with_known(each, table.get(name)) for name, each in new.items()}
        if not new and not removed:
            return Taken()
        rows = self.rows_of(type_url)
        changed = [name for name, each in new.items() if rows.get(name) is not each.resource]
        before = tuple(rows[name] for name in (*removed, *rows.among(changed)))
        after = tuple(new[name].resource for name in changed)
        self._size += len(after) - len(before)
        for name, each in new.items():
            self._note_end((type_url, name), each.expires_s)
        self.held = _with_table(self.held, type_url, table.changed(new, removed))
        self.rows = _with_table(self.rows, type_url, rows.with_changes(after, removed))
        return Taken(before, after)

    def _note_end(self, key: Key, expires_s: float | None) -> None:
        if expires_s is None:
            return
        heappush(self._ends, (expires_s, key))
        if len(self._ends) > 2 * self._size + MOST_STALE_ENDS:
            ends = (
                (each.expires_s, (type_url, name))
                for type_url, table in self.held.items()
                for name, each in table.items()
            )
            self._ends = sorted((end_s, key) for end_s, key in ends if end_s is not None)


def _is_as_known(known: HeldResource, version: str, server: str) -> bool:
    """Never with a time to live, which begins anew."""
    return known.version == version and known.server == server and known.expires_s is None


def _with_known(each: HeldResource, known: HeldResource | None) -> HeldResource:
    if known is None or not known.resource.equals_for_clients(each.resource):
        return each
    return replace(each, resource=known.resource, received_s=known.received_s)


def _with_table(tables: Mapping[TypeUrl, Table], type_url: TypeUrl, table: Table) -> Mapping[TypeUrl, Table]:
    others = {each: tables[each] for each in tables if each != type_url}
    return MappingProxyType({**others, type_url: table} if table else others)


def _joined(parts: Iterable[Taken]) -> Taken:
    taken = tuple(parts)
    return Taken(
        tuple(each for part in taken for each in part.before), tuple(each for part in taken for each in part.after)
    )
