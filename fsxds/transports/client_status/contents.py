"""What is told of each resource of a client: was it sent, and what did the client make of it.

The two forms of a client status: bytes of the wire, and JSON. Rows are written one by one, and joined.

What people may see of resources: their contents without secrets, as bytes of the wire and as JSON.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, Protocol, TypeVar, cast

from envoy.service.status.v3 import csds_pb2
from google.protobuf.message import DecodeError, Message
from google.protobuf.wrappers_pb2 import BytesValue

from fsxds.api.catalogue import Catalogue
from fsxds.api.convert import Converter
from fsxds.api.printing import Printer, dump
from fsxds.api.secrets import HIDDEN, Masker, mask_reason
from fsxds.errors import ApiError
from fsxds.protocol.messages import ClientStatus, WatchStatus, without_message
from fsxds.protocol.subscription import WILDCARD
from fsxds.resource_types import RESOURCE_TYPES
from fsxds.resources import Resource
from fsxds.transports.client_status.nodes import node_message
from fsxds.transports.rest.responses import Payload
from fsxds.values import PlainValue, TypeUrl, Version


class ConfigStatus(IntEnum):
    """`envoy.service.status.v3.ConfigStatus`: how we see it."""

    SYNCED = 1
    NOT_SENT = 2
    STALE = 3
    ERROR = 4


class ClientStand(IntEnum):
    """`envoy.admin.v3.ClientResourceStatus`: how the client sees it."""

    UNKNOWN = 0
    REQUESTED = 1
    DOES_NOT_EXIST = 2
    ACKED = 3
    NACKED = 4


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """Where one resource, or a name that was asked for, stands with one client.

    `version` is the one that the client was sent last, or where it rejected that, the one before; None where there was
    none. `refused` and `reason` are there for a rejected one alone. `resource` is None where nothing was sent.
    """

    type_url: TypeUrl
    name: str
    config_status: ConfigStatus
    stand: ClientStand
    version: Version | None = None
    resource: Resource | None = None
    refused: Version | None = None
    reason: str | None = None


def resource_statuses(status: ClientStatus) -> Iterator[ResourceStatus]:
    """Tell of all resources that a client was sent or asked for, those of each watch together.

    A client that wants everything of a type and was sent nothing has asked for `*`.
    """
    tells_each_version = status.service.startswith("Delta")
    for watch in status.watches:
        yield from _held(watch, tells_each_version=tells_each_version)
        yield from _not_held(watch)


def _held(watch: WatchStatus, *, tells_each_version: bool) -> Iterator[ResourceStatus]:
    verdict = _verdict(watch)
    reason = _reason(watch)
    for resource in watch.resources:
        if resource.name in watch.rejected:
            yield _refused(watch, resource, reason, tells_each_version=tells_each_version)
        else:
            version = resource.version if tells_each_version else _version(watch)
            yield ResourceStatus(watch.type_url, resource.name, *verdict, version, resource)


def _not_held(watch: WatchStatus) -> Iterator[ResourceStatus]:
    """Tell of what was rejected and is gone, of names that do not exist, and of what nothing was said of yet."""
    gone = sorted(watch.rejected - {resource.name for resource in watch.resources}) if watch.rejected else ()
    reason = _reason(watch) if gone else None
    for name in gone:
        yield ResourceStatus(
            watch.type_url,
            name,
            ConfigStatus.ERROR,
            ClientStand.NACKED,
            refused=watch.nacked,
            reason=reason,
        )
    missing = frozenset(watch.missing) - watch.rejected
    for name in sorted(missing):
        yield ResourceStatus(watch.type_url, name, ConfigStatus.NOT_SENT, ClientStand.DOES_NOT_EXIST)
    if watch.sent is None:
        awaited = frozenset((WILDCARD,)) if watch.names is None else watch.names - missing
        for name in sorted(awaited):
            yield ResourceStatus(watch.type_url, name, ConfigStatus.NOT_SENT, ClientStand.REQUESTED)


def _verdict(watch: WatchStatus) -> tuple[ConfigStatus, ClientStand]:
    """Tell where the resources stand that were not rejected."""
    if watch.acked is None:
        return ConfigStatus.STALE, ClientStand.REQUESTED
    if watch.sent in (watch.acked, watch.nacked):
        return ConfigStatus.SYNCED, ClientStand.ACKED
    # Nothing tells which of the resources are as they were in the version before, so the client's view is not known.
    return ConfigStatus.STALE, ClientStand.UNKNOWN


def _version(watch: WatchStatus) -> Version | None:
    """Return the version of what was not rejected."""
    return watch.acked if watch.acked is not None and watch.sent == watch.nacked else watch.sent


def _refused(watch: WatchStatus, resource: Resource, reason: str | None, *, tells_each_version: bool) -> ResourceStatus:
    return ResourceStatus(
        watch.type_url,
        resource.name,
        ConfigStatus.ERROR,
        ClientStand.NACKED,
        # Which version of its own the client kept is not known.
        version=None if tells_each_version else watch.acked,
        resource=resource,
        refused=resource.version if tells_each_version else watch.nacked,
        reason=reason,
    )


def _reason(watch: WatchStatus) -> str | None:
    # Envoy prints the message that it refuses, secrets included.
    return None if watch.reason is None else mask_reason(without_message(watch.reason))


_SECRET = frozenset(row.type_url for row in RESOURCE_TYPES if row.is_secret)
_NODE = "envoy.config.core.v3.Node"
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")
_HIDDEN_BYTES = base64.b64encode(HIDDEN.encode()).decode()


class Contents:
    """Shows resources without their secrets: `<hidden>` stands in place of each.

    A Secret is not shown at all, and neither is what the catalogue has no type for: nothing tells its secrets. What was
    shown lately is kept by its version; see `turn`.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._printer = Printer(catalogue)
        self._converter = Converter(catalogue)
        self._masker = Masker(catalogue, hide_bytes=lambda _: _HIDDEN_BYTES)
        self._bodies: _Lately[tuple[TypeUrl, Version], bytes | None] = _Lately()
        self._jsons: _Lately[tuple[TypeUrl, Version], bytes | None] = _Lately()
        self._nodes: _Lately[bytes, bytes] = _Lately()

    def turn(self, *, with_contents: bool = True) -> None:
        """Begin another report: what was not shown in this one and the one before will be forgotten."""
        self._nodes.turn()
        if with_contents:
            self._bodies.turn()
            self._jsons.turn()

    def body_of(self, resource: Resource) -> bytes | None:
        """Return the serialized resource without its secrets; None where nothing of it is shown."""
        key = resource.type_url, resource.version
        return self._bodies.get(key, lambda: self._body(resource.type_url, resource.body))

    def json_of(self, resource: Resource) -> bytes | None:
        """Return the resource without its secrets as proto JSON with its `@type`; None where nothing of it is shown."""
        return self._jsons.get((resource.type_url, resource.version), lambda: self._json(resource))

    def node_json(self, node: Message) -> bytes:
        """Return a Node without its secrets as proto JSON."""
        return self._nodes.get(node.SerializeToString(), lambda: dump(self.plain_node(node)))

    def plain_node(self, node: Message) -> dict[str, PlainValue]:
        """Return a Node without its secrets as the plain values of its JSON."""
        if not self._catalogue.knows(_NODE):
            return {}
        plain = self._printer.to_plain(self._catalogue.message_class(_NODE).FromString(node.SerializeToString()))
        return self._masker.masked_message(plain, _NODE)

    def _json(self, resource: Resource) -> bytes | None:
        body = self.body_of(resource)
        # What cannot be written as JSON, such as a time out of bounds, has no body here.
        return None if body is None else self._printer.any_json(resource.type_url, body)

    def _body(self, type_url: TypeUrl, body: bytes) -> bytes | None:
        if type_url in _SECRET:
            return None
        try:
            plain = json.loads(self._printer.any_json(type_url, body))
        except (ApiError, DecodeError):
            return None
        masked = self._masker.masked(plain)
        if masked == plain:
            return body
        message = self._converter.convert_any(masked).message
        return None if message is None else message.SerializeToString(deterministic=True)


class _Lately(Generic[_Key, _Value]):
    """Keeps what was asked for in this turn and the one before."""

    def __init__(self) -> None:
        self._now: dict[_Key, _Value] = {}
        self._before: dict[_Key, _Value] = {}

    def __len__(self) -> int:
        return len({**self._before, **self._now})

    def turn(self) -> None:
        """Forget what was asked for in the turn before this one alone, and begin another."""
        self._now, self._before = {}, self._now

    def get(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        """Return what is kept, or else what `make` makes."""
        if key not in self._now:
            self._now[key] = self._before[key] if key in self._before else make()
        return self._now[key]


class Form(Protocol):
    """A way to write a ClientStatusResponse."""

    def content(self, resource: Resource) -> bytes | None:
        """Write what is shown of a resource; None where that is nothing."""

    def row(self, status: ResourceStatus, content: bytes | None) -> bytes:
        """Write where a resource stands, as a GenericXdsConfig."""

    def client(self, status: ClientStatus, rows: list[bytes], *, is_first: bool) -> bytes:
        """Write a client, as a ClientConfig."""

    async def payload(self, clients: list[bytes]) -> Payload:
        """Return the whole answer."""


class WireForm:
    """Protobuf's wire format, in which a message is a join of its fields."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def content(self, resource: Resource) -> bytes | None:
        """Write what is shown of a resource; None where that is nothing."""
        return self._contents.body_of(resource)

    def row(self, status: ResourceStatus, content: bytes | None) -> bytes:
        """Write where a resource stands, as a GenericXdsConfig in its field."""
        client = csds_pb2.ClientConfig()
        told = client.generic_xds_configs.add(
            type_url=status.type_url,
            name=status.name,
            version_info=status.version,
            config_status=status.config_status,
            client_status=status.stand,
        )
        if status.stand is ClientStand.NACKED:
            told.error_state.details = status.reason or ""
            told.error_state.version_info = status.refused or ""
        if content is not None:
            told.xds_config.type_url = status.type_url
            told.xds_config.value = content
        return cast("bytes", client.SerializeToString())

    def client(self, status: ClientStatus, rows: list[bytes], *, is_first: bool) -> bytes:
        """Write a client, as a ClientConfig in its field."""
        head = csds_pb2.ClientConfig(node=node_message(status.node), client_scope=status.service).SerializeToString()
        # Written as a ClientStatusResponse has it: bytes, in field 1.
        return BytesValue(value=b"".join((head, *rows))).SerializeToString()

    async def payload(self, clients: list[bytes]) -> Payload:
        """Return the whole answer; gRPC wants it in one piece."""
        return Payload(await asyncio.to_thread(b"".join, clients) if len(clients) > 1 else b"".join(clients))


class JsonForm:
    """Proto JSON with snake_case names, in which what is empty is not written, but for messages."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def content(self, resource: Resource) -> bytes | None:
        """Write what is shown of a resource; None where that is nothing."""
        return self._contents.json_of(resource)

    def row(self, status: ResourceStatus, content: bytes | None) -> bytes:
        """Write where a resource stands, as a GenericXdsConfig."""
        plain: dict[str, PlainValue] = {"type_url": status.type_url, "name": status.name}
        if status.version:
            plain["version_info"] = status.version
        plain["config_status"] = status.config_status.name
        if status.stand:
            plain["client_status"] = status.stand.name
        if status.stand is ClientStand.NACKED:
            error = {"details": status.reason, "version_info": status.refused}
            plain["error_state"] = {name: value for name, value in error.items() if value}
        row = dump(plain)
        return row if content is None else b'%b,"xds_config":%b}' % (row[:-1], content)

    def client(self, status: ClientStatus, rows: list[bytes], *, is_first: bool) -> bytes:
        """Write a client, as a ClientConfig, after a comma where it is not the first."""
        begin = b'%b{"node":%b' % (b"" if is_first else b",", self._contents.node_json(node_message(status.node)))
        end = b',"client_scope":%b}' % dump(status.service)
        if not rows:
            return begin + end
        listed = [b","] * (2 * len(rows) - 1)
        listed[::2] = rows
        return b"".join((begin, b',"generic_xds_configs":[', *listed, b"]", end))

    async def payload(self, clients: list[bytes]) -> Payload:
        """Return the whole answer."""
        return Payload(b'{"config":[', *clients, b"]}")
