"""Exclusive claims: addresses of listeners, domains and names of virtual hosts.

For listeners, Envoy 1.40 compares protocol, IP address and port, or the path of a socket (ENVOY.md E56), however a
listener binds its port. Port 0, internal listeners and other network namespaces never conflict.

Of virtual hosts discovered one by one, Envoy rejects all in a response if their route configuration duplicates a
domain. Of two with equal `VirtualHost.name` it silently keeps the last. Resource names and domains are requested alike,
so they too must differ.

A collection's listeners are compared among themselves: no Envoy reads it beside other listeners.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from types import MappingProxyType

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.walk import Hooks, Path, Walk, addresses_taken
from fsxds.lint.reference_findings import ReferenceFinding, nearest
from fsxds.lint.tree_names import IN_COLLECTIONS, TouchedKeys, TreeNames, collection_of
from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL, name_of_domain, route_configuration_of
from fsxds.model.resources import ADDRESS, CLAIMED, HOST, HOST_NAME, UNNAMED, Key, ParsedFile, Reference, Resource
from fsxds.model.values import Fault, FieldPath, Severity, TypeUrl
from fsxds.snapshots.references import ROUTES, VIRTUAL_HOST

_LISTENER = BY_SHORT_NAME["lds"].message_type
_COLLECTION = BY_SHORT_NAME["lcds"].message_type
_ROUTES = BY_SHORT_NAME["rds"].message_type


def hooks(catalogue: Catalogue) -> Hooks:
    """Collect claims; compare within collections."""
    compare = partial(_compare_addresses, catalogue)
    return {_LISTENER: (_claim_addresses,), _ROUTES: (_claim_domains,), _COLLECTION: (compare,)}


def _claim_addresses(listener: DynamicMessage, path: Path, walk: Walk) -> None:
    """Envoy compares them whether bound or not."""
    if path is not None:
        return
    claimed = set()
    for place, name in addresses_taken(listener):
        # The same address twice in one listener is no conflict.
        if name not in claimed:
            claimed.add(name)
            walk.refer(place, ADDRESS, name, Severity.ERROR)


def _compare_addresses(catalogue: Catalogue, collection: DynamicMessage, path: Path, walk: Walk) -> None:
    """Envoy rejects the second listener, and stops others."""
    taken: dict[str, str] = {}
    for index, entry in enumerate(collection.entries):
        packed = entry.inline_entry.resource
        if packed.type_url.rpartition("/")[2] != _LISTENER:
            continue
        listener: DynamicMessage = catalogue.message_class(_LISTENER).FromString(packed.value)
        at: Path = ((((path, "entries"), index), "inline_entry"), "resource")
        for name in dict.fromkeys(name for _, name in addresses_taken(listener)):
            other = taken.setdefault(name, listener.name)
            if other != listener.name:
                claim = CLAIMS[ADDRESS]
                fact = claim.fact.format(claimed=name, other=f'listener "{other}" of this collection')
                walk.error(at, claim.rule, fact, claim.remedy)


def _claim_domains(config: DynamicMessage, path: Path, walk: Walk) -> None:
    """No discovered virtual host may have them."""
    if path is not None or not config.HasField("vhds"):
        return
    for number, host in enumerate(config.virtual_hosts):
        for index, domain in enumerate(host.domains):
            place: Path = ((((path, "virtual_hosts"), number), "domains"), index)
            walk.refer(place, HOST, name_of_domain(config.name, domain), Severity.ERROR)


@dataclass(frozen=True, slots=True)
class Claim:
    """One kind of claim."""

    rule: str
    fact: str
    remedy: str


CLAIMS: Mapping[TypeUrl, Claim] = {
    ADDRESS: Claim(
        "listener-address", "{claimed} is already the address of {other}", "give one of the two another address or port"
    ),
    HOST: Claim(
        "duplicate-domain",
        '"{claimed}" is already a domain or name of {other}; letter case does not count',
        "give the domain to one virtual host, and rename a host that has it as its name",
    ),
    HOST_NAME: Claim(
        "duplicate-name",
        'a VirtualHost named "{claimed}" is already in {other}; Envoy keeps one of the two',
        "name each VirtualHost as its Resource",
    ),
    UNNAMED: Claim(
        "missing-name", "{other} has no name either, and Envoy accepts one such listener at most", "name the listeners"
    ),
}

_NOUNS = {
    BY_SHORT_NAME["lds"].type_url: "listener",
    BY_SHORT_NAME["rds"].type_url: "route configuration",
    BY_SHORT_NAME["vhds"].type_url: "virtual host",
}


ClaimKey = tuple[TypeUrl, str]
"""The kind of a claim, and the claimed value."""


def owned_claims(parsed: ParsedFile, was: Iterable[ParsedFile]) -> Mapping[ClaimKey, Resource]:
    """Return claims that the file is already served with."""
    served = {(claim.type_url, claim.name) for one in was for _, claim in claims_in(one)}
    claimed = {(claim.type_url, claim.name): resource for resource, claim in reversed(tuple(claims_in(parsed)))}
    return {key: resource for key, resource in claimed.items() if key in served}


def claims_in(parsed: ParsedFile) -> Iterator[tuple[Resource, Reference]]:
    """Yield the claims of resources."""
    for resource in parsed.resources:
        for reference in resource.references:
            if reference.type_url in CLAIMED and not reference.is_static:
                yield resource, reference


def conflicts(
    files: Iterable[tuple[ParsedFile, bool]],
    sorts: Container[TypeUrl],
    owned: Mapping[ClaimKey, Resource] = MappingProxyType({}),
) -> Mapping[PurePosixPath, tuple[ReferenceFinding, ...]]:
    """Find resources with another's claims. `files`: whether each is on trial and takes nothing from others."""
    taken: dict[ClaimKey, Resource] = dict(owned)
    found = {}
    for parsed, is_on_trial in files:
        findings, own = _check_file(parsed, sorts, taken)
        if findings:
            found[parsed.path] = findings
        elif not is_on_trial:
            # A held file takes nothing from later ones.
            taken |= own
    return found


def _check_file(
    parsed: ParsedFile, sorts: Container[TypeUrl], taken: Mapping[ClaimKey, Resource]
) -> tuple[tuple[ReferenceFinding, ...], Mapping[ClaimKey, Resource]]:
    own: dict[ClaimKey, Resource] = {}
    findings = []
    for resource, claim in claims_in(parsed):
        if claim.type_url not in sorts:
            continue
        key = (claim.type_url, claim.name)
        first = own.setdefault(key, resource)
        other = taken.get(key, first)
        if other.origin.path == parsed.path:
            other = first
        if other is not resource:
            sort, noun = CLAIMS[claim.type_url], _NOUNS.get(other.type_url, BY_TYPE_URL[other.type_url].noun)
            # As written: `VirtualHost.name` without the table before it.
            claimed = claim.name.rpartition("\n")[2] if claim.type_url == HOST_NAME else claim.name
            fact = sort.fact.format(claimed=claimed, other=f'{noun} "{other.name}" at {other.origin}')
            findings.append(ReferenceFinding(resource, Fault(sort.rule, fact, sort.remedy, claim.field_path)))
    return tuple(findings), own


# Each takes some milliseconds with many route configurations, whenever one of them changes.
MOST_HINTS = 5

MEMBERSHIP_RULES = ("no-virtual-hosts", "no-lb-endpoints", "unused-virtual-host")

Table = tuple[PurePosixPath, Key]
"""A file, and the collection of a route configuration's virtual hosts in it."""


@dataclass(frozen=True, slots=True)
class MembershipScope:
    """The scope of reports on collections.

    Attributes:
        unknown: types in unreadable files, not reported as missing.
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
        """Return the scope; `touched` may have changed since `before`."""
        has_routes = ROUTES not in unknown and bool(self._names.mentions.declared.get(ROUTES))
        if before is not None and has_routes == before.has_routes and not _is_about_hosts(touched):
            return MembershipScope(unknown, has_routes, before.hints)
        return MembershipScope(unknown, has_routes, MappingProxyType(self._hints() if has_routes else {}))

    def findings(self, parsed: ParsedFile, scope: MembershipScope) -> Iterator[ReferenceFinding]:
        """Yield the faults of a file."""
        if self._names.open.empty:
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
        if self._names.open.unasked and scope.has_routes:
            seen = set()
            for host in parsed.resources:
                if host.type_url != VIRTUAL_HOST:
                    continue
                collection = VIRTUAL_HOST, collection_of(VIRTUAL_HOST, host.name)
                if collection in self._names.open.unasked and collection not in seen:
                    seen.add(collection)
                    words = self._message(
                        route_configuration_of(host.name), scope.hints.get((parsed.path, collection), "")
                    )
                    yield ReferenceFinding(host, Fault("unused-virtual-host", *words, severity=Severity.WARNING))

    def _message(self, table: str, hint: str) -> tuple[str, str]:
        several = self._names.defining((ROUTES, table))
        # Prefer a served one, then the last file's.
        found = max(several, key=lambda one: (id(one) in self._held_good, self._place(one)), default=None)
        if found is not None:
            fact = f'route configuration "{table}" at {found.origin} has no vhds; Envoy does not ask for its hosts'
            return fact, "add `vhds: {config_source: {ads: {}, resource_api_version: V3}}` to it"
        remedy = f'did you mean "{hint}"?' if hint else "name the host after the route configuration that it belongs to"
        return f'there is no route configuration "{table}"; Envoy does not ask for its virtual hosts', remedy

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
    """Unrequested virtual hosts, or hints for them, may have changed."""
    return touched is None or bool(touched.collections) or any(type_url == ROUTES for type_url, _ in touched.names)


def _collections(parsed: ParsedFile) -> Mapping[Key, tuple[Resource, FieldPath]]:
    found: dict[Key, tuple[Resource, FieldPath]] = {}
    for resource in parsed.resources:
        for reference in resource.references:
            if reference.type_url in IN_COLLECTIONS and not reference.is_static:
                key = reference.type_url, collection_of(reference.type_url, reference.name)
                found.setdefault(key, (resource, reference.field_path))
    return found
