"""An upstream's responses, and the resources held from it: parses, applies, decides removals and versions to report. Pure.

| rule | source |
| --- | --- |
| A held resource goes only by a removal, by its absence from a full state, or at its time to live's end. | xDS protocol, "Deleting Resources", "TTL" |
| A resource that cannot be served keeps its last good content; the response's others are applied. | |
| A heartbeat renews the time to live, and nothing else. | xDS protocol, "TTL" |
| A server gets its own versions, and content digests; for any other resource, an empty version. | xDS protocol, "initial_resource_versions" |
| A resource's bytes are served as they came, with fields unknown here. | xRFC TP1, "xDS relay proxy" |
| Resources that Envoy would reject are not served: bytes that are no message, a broken rule of the API, a wrong name. | ENVOY.md E12 |
| An extension's unknown message type is no fault: clients may know it. | |
| A held resource is not checked again. | |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.fields import shown_pointer
from fsxds.api.walk import unreadable_parts
from fsxds.client.updates import Update
from fsxds.model.name_table import NameTable
from fsxds.model.resource_names import Locator, MalformedName, is_structured
from fsxds.model.resource_types import BY_TYPE_URL, ResourceType
from fsxds.model.resources import Key, Reference, Resource, Rows, version_of_body
from fsxds.model.values import Fault, Severity, TypeUrl
from fsxds.settings.naming_rules import NamingRules
from fsxds.snapshots.names import VIRTUAL_HOST, NameWriter, aliases_of, claims_of, may_hold_names, naming_fault
from fsxds.snapshots.parse import field_rules
from fsxds.snapshots.proposals import Check
from fsxds.snapshots.redirect_payloads import read_redirect
from fsxds.snapshots.shape import rules_of
from fsxds.snapshots.upstream_content import Held, HeldResource, origin_of

NO_TABLE: NameTable[HeldResource] = NameTable()

# Kept beside one end for each resource.
MOST_STALE_ENDS = 1000

Table = TypeVar("Table", NameTable[HeldResource], Rows)


@dataclass(frozen=True, slots=True)
class Taken:
    """A response's changes.

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
    """Resources held from one upstream: `held` with its data, `rows` alone; without empty types. `most` may be set."""

    def __init__(self, most: int) -> None:
        self.held: Held = MappingProxyType({})
        self.rows: Mapping[TypeUrl, Rows] = MappingProxyType({})
        self.most = most
        self._size = 0
        # A renewed time to live has an outdated entry too; `held` decides.
        self._ends: list[tuple[float, Key]] = []

    def rows_of(self, type_url: TypeUrl) -> Rows:
        """Return a type's held resources."""
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
        """Apply a server's response, at `now_s` since 1970; `wants` selects."""
        type_url = response.type_url
        table = self.held.get(type_url, NO_TABLE)
        new, surplus = dict[str, HeldResource](), list[str]()
        room = self.most - self._size
        for name, resource in response.resources.items():
            known = table.get(name)
            if (
                known is not None
                and known.resource is resource
                and known.version == response.versions[name]
                and known.server == server
                and known.expires_s is None
            ):
                # A full state repeats unchanged resources; a time to live begins anew.
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
        taken = [
            self._change(type_url, {}, self.held.get(type_url, NO_TABLE).among(names))
            for type_url, names in of_type.items()
        ]
        return Taken(
            tuple(each for part in taken for each in part.before), tuple(each for part in taken for each in part.after)
        )

    @property
    def next_end_s(self) -> float | None:
        """When a time to live ends next, or earlier, in seconds since 1970, or None."""
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
        """Return versions to report to a server; "" matches none."""
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


def _with_known(each: HeldResource, known: HeldResource | None) -> HeldResource:
    if known is None or not known.resource.equals_for_clients(each.resource):
        return each
    return replace(each, resource=known.resource, received_s=known.received_s)


def _with_table(tables: Mapping[TypeUrl, Table], type_url: TypeUrl, table: Table) -> Mapping[TypeUrl, Table]:
    others = {each: tables[each] for each in tables if each != type_url}
    return MappingProxyType({**others, type_url: table} if table else others)


# Of a NACK and a log line.
MOST_FAULTS = 10
LONGEST_FAULT = 300


class BadResource(ValueError):  # noqa: N818 - as what int() raises, it is a ValueError
    """Cannot be served, for a reason without secrets."""


@dataclass(frozen=True, slots=True)
class ReadResponse:
    """A response's usable part, with canonical names.

    Attributes:
        versions: the server's.
        absent: do not exist, which removes nothing.
        renewed: with renewed times to live.
        bad: problems of unusable resources.
        faults: other problems.
        is_full: other names are removed.
    """

    type_url: TypeUrl
    resources: Mapping[str, Resource]
    versions: Mapping[str, str]
    removed: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()
    renewed: frozenset[str] = frozenset()
    bad: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    faults: tuple[str, ...] = ()
    is_full: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The problems to report, limited."""
        noun = BY_TYPE_URL[self.type_url].message_name if self.type_url in BY_TYPE_URL else ""
        of_names = (
            f'{noun} "{name}": {self.bad[name]}' for name in sorted(self.bad) if self.bad[name] not in self.faults
        )
        found = [*self.faults, *of_names]
        more = [f"and {len(found) - MOST_FAULTS} more"] if len(found) > MOST_FAULTS else []
        return tuple(fault[:LONGEST_FAULT] for fault in (*found[:MOST_FAULTS], *more))


class ResponseReader:
    """Parses one upstream's responses."""

    def __init__(self, catalogue: Catalogue, check: Check, upstream: str, authority: str = "") -> None:
        """Parse by an Envoy's API; `authority` is for structured names without one. Raises ApiError for an unknown field rule."""
        self._catalogue = catalogue
        self._rules = field_rules(catalogue, check)
        self._check = check
        self._origin = origin_of(upstream)
        self._names = NameWriter(catalogue, NamingRules(authority), PurePosixPath())

    def read(self, update: Update, held: Rows) -> ReadResponse:
        """Parse a response. Resources as in `held` keep their objects."""
        row = BY_TYPE_URL.get(update.type_url)
        if row is None:
            fault = "the type of the response was not requested"
            return ReadResponse(update.type_url, {}, {}, faults=(*update.faults, fault))
        resources, versions, bad = dict[str, Resource](), dict[str, str](), dict[str, str]()
        for written, came in update.resources.items():
            name = self._canonical(written, row)
            try:
                resource = self._read(came, row, held.get(name))
            except BadResource as error:
                bad[name] = str(error)[:LONGEST_FAULT]
            else:
                resources[resource.name], versions[resource.name] = resource, came.version
        for written in update.rejected:
            bad[self._canonical(written, row)] = next(
                (fault for fault in update.faults if f'"{written}"' in fault), "it cannot be read"
            )
        present = {*resources, *bad}
        return ReadResponse(
            update.type_url,
            MappingProxyType(resources),
            MappingProxyType(versions),
            # A removed name with a resource is a fault already.
            frozenset(self._canonical(name, row) for name in update.removed) - present,
            frozenset(self._canonical(name, row) for name in update.unpopulated) - present,
            frozenset(self._canonical(name, row) for name in update.heartbeats),
            MappingProxyType(bad),
            update.faults,
            update.is_full,
        )

    def _canonical(self, name: str, row: ResourceType) -> str:
        if not is_structured(name):
            return name
        canonical = self._names.resource_name(name, row, ())
        return self._names.reference(name) if isinstance(canonical, Fault) else canonical

    def _read(self, came: Resource, row: ResourceType, held: Resource | None) -> Resource:
        if held is not None and _is_same(came, held):
            return held
        if came.ttl_s is not None and came.ttl_s <= 0:
            raise BadResource("its time to live is not above zero")
        names = [self._own_name(name, row) for name in (came.name, *came.aliases)]
        if came.redirect:
            return self._read_redirect(came, row, names)
        message = self._message_of(came.body, row)
        own_name = str(getattr(message, row.name_field)) if row.name_field else ""
        fault = naming_fault(row, self._own_name(own_name, row), names[0], (), lambda: ())
        if fault is not None:
            raise BadResource(fault.message)
        references = (*self._checked(message, may_name=may_hold_names(came.body)), *_more_references(message, row))
        aliases = tuple(names[1:])
        if row is VIRTUAL_HOST:
            references += tuple(claims_of(names[0], message, aliases))
            aliases = aliases_of(names[0], message, aliases)
        version = version_of_body(row.type_url, came.body)
        return Resource(row.type_url, names[0], came.body, version, self._origin, aliases, came.ttl_s, references)

    def _own_name(self, name: str, row: ResourceType) -> str:
        canonical = self._names.resource_name(name, row, ()) if is_structured(name) else name
        if isinstance(canonical, Fault):
            raise BadResource(f"its name is wrong: {canonical.message}")
        return canonical

    def _read_redirect(self, came: Resource, row: ResourceType, names: list[str]) -> Resource:
        try:
            locator = Locator.parse(came.redirect)
        except MalformedName as error:
            raise BadResource(f"the locator that it leads to {error.fact}") from error
        redirect = read_redirect(names[0], locator, row, ())
        if isinstance(redirect, Fault):
            raise BadResource(redirect.message)
        if redirect.row is not row:
            raise BadResource(f"it leads to a resource of {redirect.row.message_type}")
        return redirect.as_resource(names[0], tuple(names[1:]), came.ttl_s, self._origin)

    def _message_of(self, body: bytes, row: ResourceType) -> Message:
        try:
            message = self._catalogue.message_class(row.message_type).FromString(body)
        except DecodeError as error:
            raise BadResource(f"its bytes are no {row.message_type}") from error
        broken = next((part for part in unreadable_parts(message, self._catalogue) if part.is_known), None)
        if broken is not None:
            place = shown_pointer(broken.field_path, "", self._catalogue)
            raise BadResource(f"{place}: its bytes are no {broken.message_type}")
        return message

    def _checked(self, message: Message, *, may_name: bool) -> Iterable[Reference]:
        walk = self._rules.check(message)
        for found in walk.faults:
            fault = self._check.adjusted(found)
            if fault is not None and fault.severity is Severity.ERROR:
                place = shown_pointer(fault.field_path, fault.message, self._catalogue)
                raise BadResource(f"{place}: {fault.message}" if place else fault.message)
        if not may_name:
            return walk.references
        return [each._replace(name=self._names.reference(each.name)) for each in walk.references]


def _is_same(came: Resource, held: Resource) -> bool:
    is_content = came.redirect == held.redirect and (bool(held.redirect) or came.body == held.body)
    return is_content and came.ttl_s == held.ttl_s and came.aliases == held.aliases


def _more_references(message: DynamicMessage, row: ResourceType) -> Iterator[Reference]:
    rules = rules_of(row)
    if rules is None:
        return
    try:
        yield from rules.references_of(message)
    except MalformedName as error:
        raise BadResource(f"the locator of an entry {error.fact}") from error
    except KeyError as error:
        raise BadResource("the locator of an entry leads to a type that xDS does not serve") from error
