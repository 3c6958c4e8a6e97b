"""What Envoy asks for by the collection that it is in: the virtual hosts of a route configuration, endpoints of a locality.

That a collection is empty, or that no resource asks for one, is reported once for all that are in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath

from fsxds.lint.reference_findings import ReferenceFinding, nearest
from fsxds.lint.tree_names import FileNames
from fsxds.resource_types import route_configuration_of
from fsxds.resources import Key, Resource
from fsxds.snapshots.references import ROUTES, VIRTUAL_HOST
from fsxds.values import Fault, Severity, TypeUrl

# Each takes some milliseconds where there are many route configurations, whenever anything changes.
MOST_HINTS = 5

RULES = ("no-virtual-hosts", "no-lb-endpoints", "unused-virtual-host")


class Memberships:
    """Finds empty collections, and virtual hosts in collections that no resource asks for."""

    def __init__(self, files: Sequence[FileNames], unknown: frozenset[TypeUrl] = frozenset()) -> None:
        """Look at all files; of the types in `unknown`, nothing is reported as missing."""
        self._files = files
        self._unknown = unknown
        # Few files have to do with collections.
        self._present = frozenset[Key]().union(*(names.members for names in files if names.members))
        self._asked = frozenset[Key]().union(*(names.collections for names in files if names.collections))
        self._looked_up = 0

    @property
    def has_hosts_elsewhere(self) -> bool:
        """Whether some route configuration discovers virtual hosts that this tree does not have."""
        return any(type_url == VIRTUAL_HOST for type_url, _ in self._asked - self._present)

    def findings(self, files: Iterable[FileNames]) -> Mapping[PurePosixPath, tuple[ReferenceFinding, ...]]:
        """Return what is wrong with some of the files."""
        concerned = (names for names in files if names.collections or names.members)
        found = {names.parsed.path: (*self._empty(names), *self._unasked(names)) for names in concerned}
        return {path: findings for path, findings in found.items() if findings}

    def _empty(self, names: FileNames) -> Iterator[ReferenceFinding]:
        """Yield the collections that a file asks for, and that are empty."""
        for key, (resource, field_path) in names.collections.items():
            if key in self._present or key[0] in self._unknown:
                continue
            if key[0] == VIRTUAL_HOST:
                fact = f'there are no virtual hosts of route configuration "{resource.name}" in this tree'
                remedy = f'name them "{resource.name}/<name>", unless they come from elsewhere'
                rule = "no-virtual-hosts"
            else:
                fact = f'there is nothing in the collection "{key[1]}" in this tree'
                remedy = "name endpoints so that they are in it, unless they come from elsewhere"
                rule = "no-lb-endpoints"
            yield ReferenceFinding(resource, Fault(rule, fact, remedy, field_path, severity=Severity.NOTE))

    def _unasked(self, names: FileNames) -> Iterator[ReferenceFinding]:
        """Yield the first virtual host of each route configuration that is not there, or discovers none."""
        for key, host in names.members.items():
            if key[0] == VIRTUAL_HOST and key not in self._asked and self._has_routes:
                words = self._words(route_configuration_of(host.name))
                yield ReferenceFinding(host, Fault("unused-virtual-host", *words, severity=Severity.WARNING))

    @cached_property
    def _has_routes(self) -> bool:
        return ROUTES not in self._unknown and any(ROUTES in names.declared for names in self._files)

    @cached_property
    def _tables(self) -> Mapping[str, Resource]:
        files = (names.parsed for names in self._files if ROUTES in names.declared)
        return {one.name: one for parsed in files for one in parsed.resources if one.type_url == ROUTES}

    def _words(self, table: str) -> tuple[str, str]:
        """Return the fact and the remedy of virtual hosts that no route configuration asks for."""
        found = self._tables.get(table)
        if found is not None:
            fact = f'route configuration "{table}" at {found.origin} has no vhds; Envoy asks for none of its hosts'
            return fact, "add `vhds: {config_source: {ads: {}, resource_api_version: V3}}` to it"
        hint = self._nearest(table)
        remedy = f'did you mean "{hint}"?' if hint else "name the host after the route configuration that it belongs to"
        return f'there is no route configuration "{table}"; Envoy asks for none of its virtual hosts', remedy

    def _nearest(self, table: str) -> str:
        self._looked_up += 1
        if self._looked_up > MOST_HINTS:
            return ""
        return nearest((ROUTES, table), frozenset((ROUTES, name) for name in self._tables))
