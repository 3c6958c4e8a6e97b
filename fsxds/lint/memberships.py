"""Collections: Envoy requests virtual hosts by route configuration, and endpoints by locality.

An empty or unrequested collection is reported once per file.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType

from fsxds.lint.mentions import IN_COLLECTIONS, TouchedKeys, collection_of
from fsxds.lint.reference_findings import ReferenceFinding, nearest
from fsxds.lint.tree_names import TreeNames
from fsxds.model.resource_types import route_configuration_of
from fsxds.model.resources import Key, ParsedFile, Resource
from fsxds.model.values import Fault, FieldPath, Severity, TypeUrl
from fsxds.snapshots.references import ROUTES, VIRTUAL_HOST

# Each takes some milliseconds with many route configurations, whenever one of them changes.
MOST_HINTS = 5

MEMBERSHIP_RULES = ("no-virtual-hosts", "no-lb-endpoints", "unused-virtual-host")

Table = tuple[PurePosixPath, Key]
"""A file, and the collection of a route configuration's virtual hosts in it."""


@dataclass(frozen=True, slots=True)
class MembershipScope:
    """The scope of reports on collections.

    Attributes:
        unknown: types in unreadable files; they are not reported as missing.
        has_routes: the tree has route configurations, so that its virtual hosts should have theirs.
    """

    unknown: frozenset[TypeUrl] = frozenset()
    has_routes: bool = False
    hints: Mapping[Table, str] = field(default_factory=lambda: MappingProxyType({}))


class Memberships:
    """Finds empty collections, and unrequested virtual hosts."""

    def __init__(self, names: TreeNames, held: Collection[PurePosixPath] = (), held_good: Container[int] = ()) -> None:
        """`held` files come last; `held_good` are their served resources' ids."""
        self._names = names
        self._held = held
        self._held_good = held_good

    def scope(
        self, unknown: frozenset[TypeUrl], before: MembershipScope | None = None, touched: TouchedKeys | None = None
    ) -> MembershipScope:
        """Return the scope since `before`; `touched` may have changed."""
        has_routes = ROUTES not in unknown and bool(self._names.mentions.declared.get(ROUTES))
        if before is not None and has_routes == before.has_routes and not _is_about_hosts(touched):
            return MembershipScope(unknown, has_routes, before.hints)
        return MembershipScope(unknown, has_routes, MappingProxyType(self._hints() if has_routes else {}))

    def findings(self, parsed: ParsedFile, scope: MembershipScope) -> Iterator[ReferenceFinding]:
        """Yield the faults of a file."""
        if self._names.open.empty:
            yield from self._empty(parsed, scope)
        if self._names.open.unasked and scope.has_routes:
            yield from self._unasked(parsed, scope)

    def _empty(self, parsed: ParsedFile, scope: MembershipScope) -> Iterator[ReferenceFinding]:
        for key, (resource, field_path) in _collections(parsed).items():
            if key not in self._names.open.empty or key[0] in scope.unknown:
                continue
            if key[0] == VIRTUAL_HOST:
                fact = f'there are no virtual hosts of route configuration "{resource.name}" in this tree'
                remedy = f'name them "{resource.name}/<name>", unless another server has them'
                rule = "no-virtual-hosts"
            else:
                fact = f'this tree has no member of the collection "{key[1]}"'
                remedy = "name endpoints as members of it, unless another server has them"
                rule = "no-lb-endpoints"
            yield ReferenceFinding(resource, Fault(rule, fact, remedy, field_path, severity=Severity.NOTE))

    def _unasked(self, parsed: ParsedFile, scope: MembershipScope) -> Iterator[ReferenceFinding]:
        seen = set()
        for host in parsed.resources:
            if host.type_url != VIRTUAL_HOST:
                continue
            key = VIRTUAL_HOST, collection_of(VIRTUAL_HOST, host.name)
            if key in self._names.open.unasked and key not in seen:
                seen.add(key)
                words = self._message(route_configuration_of(host.name), scope.hints.get((parsed.path, key), ""))
                yield ReferenceFinding(host, Fault("unused-virtual-host", *words, severity=Severity.WARNING))

    def _message(self, table: str, hint: str) -> tuple[str, str]:
        found = self._route_configuration(table)
        if found is not None:
            fact = f'route configuration "{table}" at {found.origin} has no vhds; Envoy does not ask for its hosts'
            return fact, "add `vhds: {config_source: {ads: {}, resource_api_version: V3}}` to it"
        remedy = f'did you mean "{hint}"?' if hint else "name the host after the route configuration that it belongs to"
        return f'there is no route configuration "{table}"; Envoy does not ask for its virtual hosts', remedy

    def _route_configuration(self, name: str) -> Resource | None:
        """Of several, prefer a served one, then the last file's."""
        found = self._names.defining((ROUTES, name))
        return max(found, key=lambda one: (id(one) in self._held_good, self._place(one)), default=None)

    def _hints(self) -> dict[Table, str]:
        names = self._names
        tables: dict[Table, Resource] = {}
        for key in names.open.unasked:
            hosts = [host for host in names.mentions.members.of(key) if names.is_present(host)]
            if not hosts or names.defining((ROUTES, route_configuration_of(hosts[0].name))):
                continue
            for host in hosts:
                table = host.origin.path, key
                tables[table] = min(host, tables.get(table, host), key=self._place)
        first = heapq.nsmallest(MOST_HINTS, tables, key=lambda table: self._place(tables[table]))
        routes = {name for name in names.names_of(ROUTES) if names.defining((ROUTES, name))} if first else set()
        return {table: nearest(route_configuration_of(tables[table].name), routes) for table in first}

    def _place(self, resource: Resource) -> tuple[object, ...]:
        origin = resource.origin
        steps = tuple((isinstance(step, str), step) for step in origin.field_path)
        return origin.path in self._held, origin.path.parts, origin.document, origin.line, steps


def _is_about_hosts(touched: TouchedKeys | None) -> bool:
    """Whether unrequested virtual hosts, or hints for them, may have changed."""
    return touched is None or bool(touched.collections) or any(type_url == ROUTES for type_url, _ in touched.names)


def _collections(parsed: ParsedFile) -> Mapping[Key, tuple[Resource, FieldPath]]:
    found: dict[Key, tuple[Resource, FieldPath]] = {}
    for resource in parsed.resources:
        for reference in resource.references:
            if reference.type_url in IN_COLLECTIONS and not reference.is_static:
                key = reference.type_url, collection_of(reference.type_url, reference.name)
                found.setdefault(key, (resource, reference.field_path))
    return found
