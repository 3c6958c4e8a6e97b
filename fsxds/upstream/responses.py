"""Parses an upstream's responses: which resources can be served, and the problems of the rest. Pure.

| rule | source |
| --- | --- |
| The bytes of a resource are served as they came, with fields that this process does not know. | xRFC TP1, "xDS relay proxy" |
| Resources that Envoy would reject are not served: bytes that are no message, a broken rule of the API, a wrong name. | ENVOY.md E12 |
| An unknown message type of an extension is no fault: clients may know it. | |
| A resource that is held already is not checked again. | |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.fields import shown_pointer
from fsxds.api.walk import unreadable_parts
from fsxds.client.updates import Update
from fsxds.model.resource_names import Locator, MalformedName, is_structured
from fsxds.model.resource_types import BY_TYPE_URL, ResourceType
from fsxds.model.resources import Reference, Resource, Rows, version_of_body
from fsxds.model.values import Fault, Severity, TypeUrl
from fsxds.settings.naming_rules import NamingRules
from fsxds.snapshots.names import VIRTUAL_HOST, NameWriter, aliases_of, claims_of, may_hold_names, naming_fault
from fsxds.snapshots.parse import field_rules
from fsxds.snapshots.proposals import Check
from fsxds.snapshots.redirect_payloads import read_redirect
from fsxds.snapshots.shape import rules_of
from fsxds.snapshots.upstream_content import origin_of

# Of a NACK and a log line.
MOST_FAULTS = 10
LONGEST_FAULT = 300


class BadResource(ValueError):  # noqa: N818 - as what int() raises, it is a ValueError
    """A resource cannot be served, for a reason without secrets."""


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
        noun = BY_TYPE_URL[self.type_url].message_type.rpartition(".")[2] if self.type_url in BY_TYPE_URL else ""
        of_names = (
            f'{noun} "{name}": {self.bad[name]}' for name in sorted(self.bad) if self.bad[name] not in self.faults
        )
        found = [*self.faults, *of_names]
        more = [f"and {len(found) - MOST_FAULTS} more"] if len(found) > MOST_FAULTS else []
        return tuple(fault[:LONGEST_FAULT] for fault in (*found[:MOST_FAULTS], *more))


class ResponseReader:
    """Parses the responses of one upstream."""

    def __init__(self, catalogue: Catalogue, check: Check, upstream: str, authority: str = "") -> None:
        """Parse by an Envoy's API; `authority` is for structured names without one.

        Raises:
            ApiError: the catalogue has an unknown field rule.
        """
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
            bad[self._canonical(written, row)] = _fault_of(written, update.faults)
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
        """Return `held` if it is equal. Raises BadResource."""
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
        """Raises BadResource for a broken rule of the API."""
        walk = self._rules.check(message)
        for found in walk.faults:
            fault = self._check.adjusted(found)
            if fault is not None and fault.severity is Severity.ERROR:
                place = shown_pointer(fault.field_path, fault.message, self._catalogue)
                raise BadResource(f"{place}: {fault.message}" if place else fault.message)
        if not may_name:
            return walk.references
        return [each._replace(name=self._names.reference(each.name)) for each in walk.references]


def _fault_of(name: str, faults: Iterable[str]) -> str:
    return next((fault for fault in faults if f'"{name}"' in fault), "it cannot be read")


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
