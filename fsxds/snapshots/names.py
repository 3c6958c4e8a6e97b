"""Rules for resource names: checks, generated names, aliases, uniqueness across files, and canonical form.

Envoy requests virtual hosts one by one, by domains, so these are aliases. It gives a nameless listener a random name in
each response: every update of any listener would replace it and drain its connections. So it is served under a name made
of its address (ENVOY.md E20).

Envoy compares texts. So each structured name or locator is rewritten in canonical form, in any field, also in the Struct
and the Any of an extension. Secrets and malformed names stay.

Rules: which structured names no client can ask for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property, lru_cache
from pathlib import PurePosixPath

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.fields import ANY, VALUE, FieldValue, is_map, map_parts
from fsxds.api.secrets import Secrecy, is_secret_field
from fsxds.model.resource_names import Locator, MalformedName, ResourceName, is_structured, parse_or_none
from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL, ResourceType, name_of_domain, route_configuration_of
from fsxds.model.resources import HOST, HOST_NAME, UNNAMED, Document, Key, Reference, Resource, key_of
from fsxds.model.values import Fault, FieldPath, Problem, Severity
from fsxds.settings.naming_rules import NamingRules
from fsxds.snapshots.proposals import Conflicts, Proposal, Proposals
from fsxds.snapshots.shape import wrapper_path

LISTENER = BY_SHORT_NAME["lds"]
VIRTUAL_HOST = BY_SHORT_NAME["vhds"]

ONLY_ONE = Reference(UNNAMED, "", (), Severity.ERROR)
"""Envoy accepts one listener without a name, and rejects two."""

_UDP = 1  # envoy.config.core.v3.SocketAddress.Protocol


def naming_fault(
    row: ResourceType, own_name: str, wrapper_name: str, field_path: FieldPath, find_name: Callable[[], FieldPath]
) -> Fault | None:
    """Return the problem of a name, or None. Source: ENVOY.md E18, E46.

    `wrapper_name` is that of the `Resource`. `find_name`, called only for a problem, returns the path of `own_name`, or
    `field_path`.
    """
    if row.name_field is None:
        fact = f"{row.message_name} has no name of its own, and no Resource with a name around it"
        remedy = "write `name: …` and `resource: {…}`, and move this message into resource"
        return None if wrapper_name else Fault("missing-name", fact, remedy, field_path)
    if row is VIRTUAL_HOST:
        if not (wrapper_name or own_name):
            return _nameless(row, find_name())
        around = wrapper_path(field_path) if wrapper_name else field_path
        return table_fault(wrapper_name or own_name, (*around, "name"))
    if wrapper_name and own_name and wrapper_name != own_name:
        fact = f'the Resource is named "{wrapper_name}", and its content "{own_name}"; Envoy would add it and delete it again'
        return Fault("name-mismatch", fact, "make the two names equal, or leave the Resource's name out", find_name())
    return None if own_name else _nameless(row, find_name())


def _nameless(row: ResourceType, field_path: FieldPath) -> Fault:
    return Fault("missing-name", f"`{row.name_field}` is missing or empty", "name the resource", field_path)


# Listeners


def name_of_unnamed(listener: DynamicMessage, wrapper_name: str) -> str:
    """Return the wrapper's name, else one made of the address, if any."""
    if not wrapper_name and listener.WhichOneof("listener_specifier") == "internal_listener":
        return "unnamed-internal"
    if wrapper_name or not listener.HasField("address"):
        return wrapper_name
    chosen = listener.address.WhichOneof("address")
    if chosen == "pipe":
        return f"unnamed-{listener.address.pipe.path}"
    if chosen != "socket_address":
        return ""
    socket = listener.address.socket_address
    port = socket.named_port or socket.port_value
    return f"unnamed-{socket.address}:{port}{'/udp' if socket.protocol == _UDP else ''}"


def unnamed_fault(name: str, place: FieldPath) -> Fault:
    """Note the served name of an unnamed listener."""
    fact = f'the listener has no name and is served as "{name}"; Envoy would make up another one at every update'
    return Fault("unnamed-listener", fact, "give it a name", place, severity=Severity.NOTE)


# Names that no client requests

# Envoy requests collections of these types, and adds to their names the parameters that `node_context_params` in its
# bootstrap lists.
_IN_GLOBS = frozenset({"lds", "cds", "srds", "leds"})
_NODE, _METADATA = "xds.node.", "xds.node.metadata."
_NODE_ATTRIBUTES = frozenset({
    f"{_NODE}{attribute}" for attribute in (
        "id", "cluster", "user_agent_name", "user_agent_version", "locality.region", "locality.zone", "locality.sub_zone",
    )
})  # fmt: skip
# The prefixes of the parameters that clients add to names.
_OF_CLIENTS = (_NODE, "xds.resource.", "xds.client_feature.")


def unmatchable_fault(name: str, row: ResourceType, place: FieldPath) -> Fault | None:
    """Warn of context parameters that no client sends. Source: ENVOY.md E72; xRFC TP1."""
    structured = parse_or_none(name) if "xds." in name or "udpa." in name else None
    for parameter, value in structured.context if structured else ():
        words = _unmatchable(parameter, value, row)
        if words is not None:
            return Fault("unmatchable-name", *words, place, severity=Severity.WARNING)
    return None


def _unmatchable(parameter: str, value: str, row: ResourceType) -> tuple[str, str] | None:
    if parameter.startswith(_NODE):
        return _unmatchable_of_node(parameter, value, row)
    if not parameter.startswith(("xds.", "udpa.")) or parameter.startswith(_OF_CLIENTS):
        return None
    near = get_close_matches(parameter, _OF_CLIENTS, 1) or [_NODE]
    fact = "no client has parameters that begin as one of this name does; xds. and udpa. are reserved"
    return fact, f"write {near[0]}…, or a name of your own"


def _unmatchable_of_node(parameter: str, value: str, row: ResourceType) -> tuple[str, str] | None:
    is_metadata = parameter.startswith(_METADATA) and parameter != _METADATA
    if not is_metadata and parameter not in _NODE_ATTRIBUTES:
        near = get_close_matches(parameter, _NODE_ATTRIBUTES, 1)
        known = ", ".join(sorted(one.removeprefix(_NODE) for one in _NODE_ATTRIBUTES))
        return (
            "no node has the attribute of a parameter",
            f"write {near[0]}" if near else f"there are {known}, metadata.KEY",
        )
    if row.short_name not in _IN_GLOBS:
        fact = f"Envoy asks for {row.noun} by the names as written, and adds no attributes of its node"
        return fact, f"leave {_NODE}… out, and write a parameter of your own into the reference"
    if is_metadata and not _is_json(value):
        return "the value of metadata is JSON, as Envoy writes it", 'write a text in quotes, "prod", and %22 for each'
    return None


def _is_json(value: str) -> bool:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


# Virtual hosts


def table_fault(name: str, place: FieldPath) -> Fault | None:
    """Demand `<route configuration>/<name>`, as Envoy does. Source: ENVOY.md E46."""
    table, _, host = name.rpartition("/")
    if table and host:
        return None
    fact = (
        f'"{name}" does not say of which route configuration it is; requests for it would hang in Envoy without an end'
    )
    return Fault("virtual-host-name", fact, f'name it "<route configuration>/{host or table}"', place)


def lasting_fault(name: str, own_name: str, field_path: FieldPath) -> Fault | None:
    """Warn of a virtual host that Envoy would not remove.

    Envoy keys it by its own name, but its removal has the resource name.
    """
    if own_name in {"", name}:
        return None
    fact = f'the Resource is named "{name}", the virtual host in it "{own_name}"; Envoy keeps it when it is removed'
    remedy = f'name the virtual host "{name}" as well'
    return Fault("lasting-virtual-host", fact, remedy, (*field_path, "name"), severity=Severity.WARNING)


def aliases_of(name: str, host: DynamicMessage, authored: tuple[str, ...]) -> tuple[str, ...]:
    """Return the aliases for domains, and the author's.

    Envoy requests `<route>/<domain>`, with wildcards as written, in lower case.
    """
    table = route_configuration_of(name)
    return tuple(dict.fromkeys((*(name_of_domain(table, domain) for domain in host.domains), *authored)))


def claims_of(name: str, host: DynamicMessage, authored: tuple[str, ...]) -> Iterator[Reference]:
    """Yield the names that no other virtual host may have."""
    table = route_configuration_of(name)
    claimed = set()
    for index, domain in enumerate(host.domains):
        claimed.add(name_of_domain(table, domain))
        yield Reference(HOST, name_of_domain(table, domain), ("domains", index), Severity.ERROR)
    for other in (name, *authored):
        if other not in claimed:
            yield Reference(HOST, other, (), Severity.ERROR)
    yield Reference(HOST_NAME, f"{table}\n{host.name}", ("name",), Severity.ERROR)


# One name for one resource


def repeated_names(documents: Iterable[Document]) -> Iterator[Problem]:
    """Yield a problem for each repeated name in a file."""
    seen: dict[Key, Resource] = {}
    for document in documents:
        for resource in document.resources:
            first = seen.setdefault(key_of(resource), resource)
            if first is not resource:
                # Generated files repeat resources that several others use. An Envoy that subscribes by name gets one of
                # the equals; one that gets all resources of a type rejects them (ENVOY.md E14).
                is_full_state = BY_TYPE_URL[resource.type_url].full_state_in_sotw
                is_harmless = resource.version == first.version and not is_full_state
                severity = Severity.WARNING if is_harmless else Severity.ERROR
                yield replace(duplicate_name(resource, first), severity=severity)


def duplicate_name(resource: Resource, first: Resource) -> Problem:
    """Return the problem of a repeated name."""
    fact = f'{BY_TYPE_URL[resource.type_url].message_name} "{resource.name}" is already defined at {first.origin}'
    return resource.origin.problem("duplicate-name", fact, "rename or remove one of the two")


def unique_names(proposals: Proposals) -> Conflicts:
    """Return files that define others' names."""
    # A file on trial whose last good content is served is examined only if other files repeat a name.
    served = {proposal.path for proposal in proposals if proposal.is_last_good}
    tried = [one for one in proposals.on_trial if one.path in served]
    left_out = {id(resource) for one in tried for resource in proposals.served.change_to(one.path, one.parsed).added}
    if not _repeated(proposals, left_out):
        return {}
    # Files outside of these share no name with another.
    return _duplicates(proposals.of_files(frozenset().union(*_repeated(proposals, frozenset()))))


def _repeated(proposals: Proposals, left_out: Container[int]) -> list[frozenset[PurePosixPath]]:
    keys = {key_of(resource) for resource in proposals.added if id(resource) not in left_out}
    definers = (found for key in keys if len(found := proposals.defining(key)) > 1)
    paths = (frozenset(one.origin.path for one in several if id(one) not in left_out) for several in definers)
    return [several for several in paths if len(several) > 1]


def _duplicates(proposals: tuple[Proposal, ...]) -> Conflicts:
    taken = _owned(proposals)
    held: list[Proposal] = []
    for proposal in proposals:
        own = {key_of(resource): resource for resource in proposal.parsed.resources}
        if any(_is_of_another(taken, key, proposal.path) for key in own):
            held.append(proposal)
        elif not proposal.is_on_trial:
            # A held file takes no names from later files.
            taken |= own
    return {
        proposal.path: tuple(
            duplicate_name(resource, taken[key_of(resource)])
            for resource in proposal.parsed.resources
            if _is_of_another(taken, key_of(resource), proposal.path)
        )
        for proposal in held
    }


def _owned(proposals: tuple[Proposal, ...]) -> dict[Key, Resource]:
    """Unchanged files own theirs anyway."""
    owned: dict[Key, Resource] = {}
    for proposal in proposals:
        if proposal.was and not (proposal.is_last_good or proposal.is_gone or proposal.is_on_trial):
            served = {key_of(resource) for parsed in proposal.was for resource in parsed.resources}
            for resource in proposal.parsed.resources:
                if key_of(resource) in served:
                    owned.setdefault(key_of(resource), resource)
    return owned


def _is_of_another(taken: Mapping[Key, Resource], key: Key, path: PurePosixPath) -> bool:
    return key in taken and taken[key].origin.path != path


ROUTES = BY_SHORT_NAME["rds"]

_LONGEST_REMEMBERED = 500
_MARKS = (b"xdstp:", b"udpa:")
# Names the secret that another message uses, and contains none.
_SECRET_NAME = "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig"  # noqa: S105 - the name of a message


def may_hold_names(body: bytes) -> bool:
    """Whether bytes may contain structured names; few do."""
    return any(mark in body for mark in _MARKS)


class NameWriter:
    """Writes one file's names in canonical form."""

    def __init__(self, catalogue: Catalogue, rules: NamingRules, path: PurePosixPath) -> None:
        self._catalogue = catalogue
        self._authority = rules.authority
        self._rules, self._path = rules, path

    @cached_property
    def _context(self) -> dict[str, str]:
        return dict(self._rules.context_of(self._path))

    def resource_name(self, text: str, row: ResourceType, place: FieldPath) -> str | Fault:
        """Return the canonical name, or its fault."""
        return self._name(text, row, place, self._context) if is_structured(text) else text

    def edited_name(self, text: str, row: ResourceType, place: FieldPath) -> str | Fault:
        """A resource below got its parameters from its own folder."""
        return self._name(text, row, place, {}) if is_structured(text) else text

    def _name(self, text: str, row: ResourceType, place: FieldPath, context: Mapping[str, str]) -> str | Fault:
        # Envoy requests virtual hosts by the name of their route configuration, of any form, and a slash.
        table, slash, host = text.rpartition("/") if row is VIRTUAL_HOST else (text, "", "")
        try:
            name = ResourceName.parse(table, self._authority)
        except MalformedName as error:
            return _malformed(error, place)
        if name.is_glob:
            remedy = "write that of one resource, without *"
            return Fault("malformed-name", "is the name of a collection", remedy, place)
        fault = _type_fault(name, ROUTES if row is VIRTUAL_HOST else row, place)
        return fault or f"{name.with_context(context)}{slash}{host}"

    def written_name(self, text: str, row: ResourceType) -> str:
        """Return a malformed text itself."""
        name = self.resource_name(text, row, ())
        return text if isinstance(name, Fault) else name

    def reference(self, text: str) -> str:
        """Malformed and plain names stay."""
        return self._written(text) if is_structured(text) else text

    def checked(self, references: Iterable[Reference]) -> Iterator[Reference | Fault]:
        """Yield references, and faults of names.

        A resource of another authority need not be in the tree.
        """
        for reference in references:
            row = BY_TYPE_URL.get(reference.type_url)
            if row is None or row is VIRTUAL_HOST or not is_structured(reference.name):
                yield reference
                continue
            try:
                targets = [choice.target for choice in Locator.parse(reference.name).choices()]
            except MalformedName as error:
                yield _malformed(error, reference.field_path)
                continue
            names = [target for target in targets if isinstance(target, ResourceName)]
            yield from filter(None, [_type_fault(name, row, reference.field_path) for name in names])
            is_own = all(name.authority in {"", self._authority} for name in names) and len(names) == len(targets)
            is_elsewhere = bool(self._authority) and not is_own
            yield reference._replace(severity=Severity.NOTE) if is_elsewhere else reference

    def rewrite(self, message: Message) -> None:
        """Rewrite names, also in packed messages."""
        if may_hold_names(message.SerializeToString()):
            self._rewrite_fields(message, is_secret=False)

    def _rewrite_fields(self, message: Message, *, is_secret: bool) -> None:
        is_secret, secrecy = is_secret and message.DESCRIPTOR.full_name != _SECRET_NAME, self._catalogue.once(Secrecy)
        for field, value in message.ListFields():
            self._rewrite_field(message, field, value, is_secret=is_secret or secrecy.covers(field))

    def _rewrite_field(self, message: Message, field: FieldDescriptor, value: FieldValue, *, is_secret: bool) -> None:
        if is_map(field):
            self._rewrite_map(field, value, is_secret=is_secret)
        elif field.message_type is not None:
            for part in value if field.is_repeated else (value,):
                self._rewrite_message(part, is_secret=is_secret)
        elif is_secret or field.type != FieldDescriptor.TYPE_STRING:
            return
        elif field.is_repeated:
            for index, text in enumerate(value):
                if is_structured(text):
                    value[index] = self._written(text)
        elif is_structured(value):
            setattr(message, field.name, self._written(value))

    def _rewrite_map(self, field: FieldDescriptor, value: FieldValue, *, is_secret: bool) -> None:
        of_values = map_parts(field)[1]
        if of_values.message_type is not None:
            for key, part in value.items():
                # In a Struct, the keys mark secrets.
                is_text = part.DESCRIPTOR.full_name == VALUE and part.HasField("string_value")
                self._rewrite_message(part, is_secret=is_secret or (is_text and is_secret_field(str(key))))
        elif of_values.type == FieldDescriptor.TYPE_STRING and not is_secret:
            for key, text in tuple(value.items()):
                if is_structured(text) and not is_secret_field(str(key)):
                    value[key] = self._written(text)

    def _rewrite_message(self, message: DynamicMessage, *, is_secret: bool) -> None:
        if message.DESCRIPTOR.full_name == ANY:
            inner = self._catalogue.unpacked(message) if may_hold_names(message.value) else None
            if inner is not None:
                self._rewrite_message(inner, is_secret=is_secret)
                message.value = inner.SerializeToString(deterministic=True)
        else:
            self._rewrite_fields(message, is_secret=is_secret)

    def _written(self, text: str) -> str:
        # Many resources have the same references; texts longer than usual names would take much memory.
        read = _remembered_locator if len(text) <= _LONGEST_REMEMBERED else _canonical_locator
        return read(text, self._authority)


def _canonical_locator(text: str, authority: str) -> str:
    try:
        locator = Locator.parse(text, authority)
    except MalformedName:
        return text
    return str(locator)


_remembered_locator = lru_cache(maxsize=4096)(_canonical_locator)


def _malformed(error: MalformedName, place: FieldPath) -> Fault:
    return Fault("malformed-name", error.fact, error.remedy, place)


def _type_fault(name: ResourceName, row: ResourceType, place: FieldPath) -> Fault | None:
    if name.message_type == row.message_type:
        return None
    fact = f"the name is that of another type than {row.message_type}"
    return Fault("name-of-other-type", fact, f"write xdstp://<authority>/{row.message_type}/<path>", place)
