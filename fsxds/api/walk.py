"""Walks over a message and everything packed in it."""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.fields import ANY, FieldValue
from fsxds.model.resources import Reference
from fsxds.model.values import Fault, FieldPath, Severity, TypeUrl

# Messages in messages, counted through every Any; the deepest real Envoy configurations have about 40.
MAX_DEPTH = 100


Path: TypeAlias = "tuple[Path, str | int] | None"
"""A place within the walked message, innermost step last: `(((None, "endpoints"), 3), "priority")`; None is the top.

Steps are field names in snake_case, indexes and map keys; an Any's content has the path of the Any. A path is cheap to
make; only a fault turns it into a `FieldPath`.
"""

Visit: TypeAlias = "Callable[[Message, Path, Walk], None]"
"""Checks a message with everything in it."""

Leave: TypeAlias = Callable[[], None]

Hook: TypeAlias = "Callable[[FieldValue, Path, Walk], Leave | None]"
"""A check of one message type, called before its fields are walked; its result is called after them.

A check of one field is called with the field's value and path, if the field is set, and returns None.
"""

Hooks: TypeAlias = Mapping[str, tuple[Hook, ...]]
"""The hooks of messages and fields, by full name."""


def merge_hooks(*parts: Hooks) -> Hooks:
    """Merge hooks; earlier ones are called first."""
    merged: defaultdict[str, tuple[Hook, ...]] = defaultdict(tuple)
    for part in parts:
        for name, hooks in part.items():
            merged[name] += hooks
    return dict(merged)


def field_path_of(path: Path) -> FieldPath:
    """Reverse a path: the outermost step first."""
    steps: list[str | int] = []
    while path is not None:
        path, step = path
        steps.append(step)
    return tuple(reversed(steps))


MOST_ERRORS: Final = 2000
"""More errors of one message than a file ever shows."""


class TooManyFaultsError(Exception):
    """More than `MOST_ERRORS`: the walk ends."""


class Walk:
    """The findings of one walk, in field order.

    `noted` counts them. An Any in which nothing was noted is not walked again, there or elsewhere. So a check that is silent
    because of the Any's surroundings must call `depend_on_place`.
    """

    __slots__ = ("_errors", "_visit", "faults", "noted", "references")

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._errors = 0
        self.noted = 0
        self.faults: list[Fault] = []
        self.references: list[Reference] = []

    def error(self, path: Path, rule: str, message: str, remedy: str) -> None:
        """Report an error; the walk ends after `MOST_ERRORS`."""
        self.noted += 1
        self.faults.append(Fault(rule, message, remedy, field_path_of(path)))
        self._errors += 1
        if self._errors > MOST_ERRORS:
            raise TooManyFaultsError

    def warning(self, path: Path, rule: str, message: str, remedy: str) -> None:
        """Report a hardly intended construct."""
        self.noted += 1
        self.faults.append(Fault(rule, message, remedy, field_path_of(path), severity=Severity.WARNING))

    def refer(self, path: Path, type_url: TypeUrl, name: str, severity: Severity) -> None:
        """Note a reference, with its absence's severity."""
        self.noted += 1
        self.references.append(Reference(type_url, name, field_path_of(path), severity))

    def refer_to_static(self, path: Path, type_url: TypeUrl, name: str, severity: Severity) -> None:
        """Note a bootstrap reference."""
        self.noted += 1
        self.references.append(Reference(type_url, name, field_path_of(path), severity, is_static=True))

    def depend_on_place(self) -> None:
        """Note that more than message and field counts."""
        self.noted += 1

    def forgetting(self, is_unread: Callable[[Fault], bool]) -> Leave:
        """Return a function that drops faults found until then in unread fields."""
        count = len(self.faults)

        def forget() -> None:
            self.faults[count:] = [fault for fault in self.faults[count:] if not is_unread(fault)]

        return forget

    def enter(self, message: Message, path: Path) -> None:
        """Walk another form, such as a TypedStruct's content."""
        self._visit(message, path, self)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An unknown or broken Any."""

    field_path: FieldPath
    message_type: str
    is_known: bool


def messages_of(field: FieldDescriptor, value: FieldValue) -> Iterator[tuple[FieldPath, Message]]:
    """Yield a field's messages, with index or key."""
    if field.message_type is None:
        return
    if not field.is_repeated:
        yield (), value
    elif not field.message_type.GetOptions().map_entry:
        yield from (((index,), part) for index, part in enumerate(value))
    elif field.message_type.fields_by_name["value"].message_type is not None:
        yield from (((str(key),), part) for key, part in value.items())


class MessageVisitor:
    """Visits a message and all within it, also in Anys, outer ones first.

    Unknown or broken messages are skipped. `enters` decides once per field.
    """

    def __init__(self, catalogue: Catalogue, enters: Callable[[FieldDescriptor], bool]) -> None:
        self._catalogue = catalogue
        self._enters = enters
        self._entered: dict[str, frozenset[int]] = {}

    def visit(self, message: DynamicMessage, change: Callable[[DynamicMessage], bool]) -> bool:
        """Call `change` with each; return whether any changed."""
        if message.DESCRIPTOR.full_name == ANY:
            inner = self._catalogue.unpacked(message)
            if inner is None or not self.visit(inner, change):
                return False
            message.value = inner.SerializeToString(deterministic=True)
            return True
        is_changed, entered = change(message), self._entered_of(message.DESCRIPTOR)
        for field, value in message.ListFields() if entered else ():
            if field.number in entered:
                for _, part in messages_of(field, value):
                    is_changed |= self.visit(cast("DynamicMessage", part), change)
        return is_changed

    def _entered_of(self, descriptor: Descriptor) -> frozenset[int]:
        if (entered := self._entered.get(descriptor.full_name)) is None:
            entered = frozenset(field.number for field in descriptor.fields if self._enters(field))
            self._entered[descriptor.full_name] = entered
        return entered


def parts_of(
    message: Message, catalogue: Catalogue, field_path: FieldPath = (), depth: int = 0
) -> Iterator[tuple[FieldPath, Message] | Unreadable]:
    """Yield a message and all within it, outer ones first, with paths.

    An Any's content has its path. An unreadable or too deep one is `Unreadable`.
    """
    if message.DESCRIPTOR.full_name != ANY:
        yield field_path, message
        for field, value in message.ListFields():
            for step, part in messages_of(field, value):
                yield from parts_of(part, catalogue, (*field_path, field.name, *step), depth + 1)
        return
    packed = cast("AnyMessage", message)  # an Any of the catalogue's own pool
    message_type = packed.type_url.rpartition("/")[2]
    is_known = catalogue.knows(message_type)
    inner = catalogue.unpacked(packed) if is_known and depth <= MAX_DEPTH else None
    if inner is None:
        yield Unreadable(field_path, message_type, is_known)
    else:
        yield from parts_of(inner, catalogue, field_path, depth + 1)


def unreadable_parts(message: Message, catalogue: Catalogue, field_path: FieldPath = ()) -> Iterator[Unreadable]:
    """Yield every unreadable Any."""
    return (part for part in parts_of(message, catalogue, field_path) if isinstance(part, Unreadable))


def messages_in(message: Message, catalogue: Catalogue) -> Iterator[tuple[FieldPath, DynamicMessage]]:
    """Yield readable parts, with paths."""
    return (part for part in parts_of(message, catalogue) if not isinstance(part, Unreadable))


_UDP = 1  # envoy.config.core.v3.SocketAddress.Protocol
# As inet_pton reads them: four numbers without leading zeros.
_NUMBER = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{3}}")


def addresses_taken(listener: DynamicMessage) -> Iterator[tuple[Path, str]]:
    """Yield each exclusive address, with its place."""
    for place, address in _addresses(listener):
        key = _key(address)
        if key is not None:
            yield place, " ".join(filter(None, key))


def _addresses(listener: DynamicMessage) -> Iterator[tuple[Path, DynamicMessage]]:
    if listener.HasField("address"):
        yield (None, "address"), listener.address
    for index, more in enumerate(listener.additional_addresses):
        yield (((None, "additional_addresses"), index), "address"), more.address


def _key(address: DynamicMessage) -> tuple[str, ...] | None:
    """None for an address that cannot conflict."""
    chosen = address.WhichOneof("address")
    if chosen == "pipe":
        return (address.pipe.path,)
    if chosen != "socket_address":
        return None
    socket = address.socket_address
    if not socket.port_value:
        return None
    host = _host(socket.address)
    if host is None:
        return None
    network = getattr(socket, "network_namespace_filepath", "")
    return f"{host}:{socket.port_value}", "udp" if socket.protocol == _UDP else "tcp", network


def _host(address: str) -> str | None:
    if ip_version(address) == 4:
        return address  # it has one spelling, and `ipaddress` is slow
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return None
    return f"[{ip}]"


def ip_version(text: str) -> int | None:
    """Return 4 or 6 for an IP address, else None.

    With a scope, such as "fe80::1%eth0", it is 6: whether the scope exists depends on Envoy's machine.
    """
    if _IPV4.fullmatch(text) is not None:
        return 4
    if ":" not in text:
        return None
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return None
    return 6
