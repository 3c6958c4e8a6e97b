"""The content of a client status: states of resources, and content without secrets.

Large answers are written row by row, and joined. Source: envoy/service/status/v3/csds.proto.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Hashable, Iterator
from datetime import UTC, datetime
from typing import Generic, TypeVar

from envoy.service.status.v3 import csds_pb2
from google.protobuf.message import DecodeError, Message
from google.protobuf.wrappers_pb2 import BytesValue

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.printing import Printer, dump
from fsxds.api.secrets import HIDDEN, Masker, mask_reason
from fsxds.model.errors import ApiError
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Resource
from fsxds.model.values import PlainValue, TypeUrl, Version
from fsxds.protocol.messages import (
    ClientResourceStatus,
    ClientStatus,
    ConfigStatus,
    OwnStatus,
    ResourceStatus,
    WatchStatus,
    without_message,
)
from fsxds.protocol.subscription import WILDCARD
from fsxds.transports.client_status.nodes import node_message
from fsxds.transports.rest.poll_responses import Payload

REJECTED = ConfigStatus.ERROR, ClientResourceStatus.NACKED


def resource_statuses(status: ClientStatus) -> Iterator[ResourceStatus]:
    """Yield a client's sent and requested resources, by watch.

    A wildcard client that was sent nothing has asked for `*`.
    """
    is_delta = status.service.startswith("Delta")
    for watch in status.watches:
        yield from _held(watch, is_delta=is_delta)
        yield from _not_held(watch)


def _held(watch: WatchStatus, *, is_delta: bool) -> Iterator[ResourceStatus]:
    state, reason = _state_of_accepted(watch), _reason(watch)
    for resource in watch.resources:
        type_url, name = watch.type_url, resource.name
        if name not in watch.rejected:
            version = resource.version if is_delta else _accepted_version(watch)
            yield ResourceStatus(type_url, name, *state, version, resource)
            continue
        # The version that a Delta client kept is unknown.
        kept, nacked = (None, resource.version) if is_delta else (watch.acked, watch.nacked)
        yield ResourceStatus(type_url, name, *REJECTED, version=kept, resource=resource, nacked=nacked, reason=reason)


def _not_held(watch: WatchStatus) -> Iterator[ResourceStatus]:
    removed = sorted(watch.rejected - {resource.name for resource in watch.resources}) if watch.rejected else ()
    reason = _reason(watch) if removed else None
    for name in removed:
        yield ResourceStatus(watch.type_url, name, *REJECTED, nacked=watch.nacked, reason=reason)
    missing = frozenset(watch.missing) - watch.rejected
    for name in sorted(missing):
        yield ResourceStatus(watch.type_url, name, ConfigStatus.NOT_SENT, ClientResourceStatus.DOES_NOT_EXIST)
    if watch.sent is None:
        requested = frozenset((WILDCARD,)) if watch.names is None else watch.names - missing
        for name in sorted(requested):
            yield ResourceStatus(watch.type_url, name, ConfigStatus.NOT_SENT, ClientResourceStatus.REQUESTED)


def _state_of_accepted(watch: WatchStatus) -> tuple[ConfigStatus, ClientResourceStatus]:
    if watch.acked is None:
        return ConfigStatus.STALE, ClientResourceStatus.REQUESTED
    if watch.sent in (watch.acked, watch.nacked):
        return ConfigStatus.SYNCED, ClientResourceStatus.ACKED
    # Which resources are unchanged is unknown.
    return ConfigStatus.STALE, ClientResourceStatus.UNKNOWN


def _accepted_version(watch: WatchStatus) -> Version | None:
    return watch.acked if watch.acked is not None and watch.sent == watch.nacked else watch.sent


def _reason(watch: WatchStatus) -> str | None:
    # Envoy prints the rejected message, including secrets.
    return None if watch.reason is None else mask_reason(without_message(watch.reason))


_SECRET = frozenset(row.type_url for row in RESOURCE_TYPES if row.is_secret)
_NODE = "envoy.config.core.v3.Node"
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")
_HIDDEN_BYTES = base64.b64encode(HIDDEN.encode()).decode()


class Contents:
    """Shows resources with `<hidden>` in place of secrets.

    Secrets and types beyond the catalogue are not shown. Content is cached; see `turn`.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._printer = Printer(catalogue)
        self._converter = Converter(catalogue)
        self._masker = Masker(catalogue, hide_bytes=lambda _: _HIDDEN_BYTES)
        self._bodies: _Recent[tuple[TypeUrl, Version], bytes | None] = _Recent()
        self._jsons: _Recent[tuple[TypeUrl, Version], bytes | None] = _Recent()
        self._nodes: _Recent[bytes, bytes] = _Recent()

    def turn(self, *, with_contents: bool = True) -> None:
        """Begin a report; drop content unused since the one before."""
        self._nodes.turn()
        if with_contents:
            self._bodies.turn()
            self._jsons.turn()

    def body_of(self, resource: Resource) -> bytes | None:
        """Return a resource without secrets, serialized; None if not shown."""
        key = resource.type_url, resource.version
        return self._bodies.get(key, lambda: self._body(resource.type_url, resource.body))

    def json_of(self, resource: Resource) -> bytes | None:
        """Return a resource without secrets as proto JSON with its `@type`; None if not shown."""
        return self._jsons.get((resource.type_url, resource.version), lambda: self._json(resource))

    def node_json(self, node: Message) -> bytes:
        """Return a Node without secrets as JSON."""
        return self._nodes.get(node.SerializeToString(), lambda: dump(self.plain_node(node)))

    def plain_node(self, node: Message) -> dict[str, PlainValue]:
        """Return a Node without secrets as plain values."""
        if not self._catalogue.knows(_NODE):
            return {}
        plain = self._printer.to_plain(self._catalogue.message_class(_NODE).FromString(node.SerializeToString()))
        return self._masker.masked_message(plain, _NODE)

    def _json(self, resource: Resource) -> bytes | None:
        body = self.body_of(resource)
        # Resources that JSON cannot express have no body here.
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


class _Recent(Generic[_Key, _Value]):
    def __init__(self) -> None:
        self._now: dict[_Key, _Value] = {}
        self._before: dict[_Key, _Value] = {}

    def __len__(self) -> int:
        return len({**self._before, **self._now})

    def turn(self) -> None:
        self._now, self._before = {}, self._now

    def get(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        if key not in self._now:
            self._now[key] = self._before[key] if key in self._before else make()
        return self._now[key]


class WireForm:
    """Protobuf's wire format: concatenated fields are a message."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def content(self, resource: Resource) -> bytes | None:
        """Return the shown content, or None."""
        return self._contents.body_of(resource)

    def row(self, status: ResourceStatus, content: bytes | None) -> bytes:
        """Write a resource's state, as a GenericXdsConfig field."""
        client = csds_pb2.ClientConfig()
        row = client.generic_xds_configs.add(
            type_url=status.type_url,
            name=status.name,
            version_info=status.version,
            config_status=status.config_status,
            client_status=status.client_status,
        )
        if status.updated_s is not None:
            row.last_updated.FromMilliseconds(round(status.updated_s * 1000))
        if status.client_status is ClientResourceStatus.NACKED:
            row.error_state.details = status.reason or ""
            row.error_state.version_info = status.nacked or ""
        if content is not None:
            row.xds_config.type_url = status.type_url
            row.xds_config.value = content
        return bytes(client.SerializeToString())

    def client(self, status: ClientStatus | OwnStatus, rows: list[bytes], *, is_first: bool) -> bytes:
        """Write a client, as a ClientConfig field."""
        head = csds_pb2.ClientConfig(node=node_message(status.node), client_scope=status.service).SerializeToString()
        # In a ClientStatusResponse, bytes in field 1.
        return BytesValue(value=b"".join((head, *rows))).SerializeToString()

    async def payload(self, clients: list[bytes]) -> Payload:
        """Return the answer in one piece."""
        return Payload(await asyncio.to_thread(b"".join, clients) if len(clients) > 1 else b"".join(clients))


class JsonForm:
    """Proto JSON with snake_case names, without empty fields except messages."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def content(self, resource: Resource) -> bytes | None:
        """Return the shown content, or None."""
        return self._contents.json_of(resource)

    def row(self, status: ResourceStatus, content: bytes | None) -> bytes:
        """Write a resource's state, as a GenericXdsConfig."""
        plain: dict[str, PlainValue] = {"type_url": status.type_url, "name": status.name}
        if status.version:
            plain["version_info"] = status.version
        if status.updated_s is not None:
            updated = datetime.fromtimestamp(status.updated_s, UTC)
            plain["last_updated"] = updated.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if status.config_status:
            plain["config_status"] = status.config_status.name
        if status.client_status:
            plain["client_status"] = status.client_status.name
        if status.client_status is ClientResourceStatus.NACKED:
            error = {"details": status.reason, "version_info": status.nacked}
            plain["error_state"] = {name: value for name, value in error.items() if value}
        row = dump(plain)
        return row if content is None else b'%b,"xds_config":%b}' % (row[:-1], content)

    def client(self, status: ClientStatus | OwnStatus, rows: list[bytes], *, is_first: bool) -> bytes:
        """Write a ClientConfig with its `rows`, after a comma unless `is_first`."""
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


Form = WireForm | JsonForm
"""A format of a ClientStatusResponse."""
