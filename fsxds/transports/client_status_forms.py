"""The two forms of a client status: bytes of the wire, and JSON. Rows are written one by one, and joined."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from envoy.service.status.v3 import csds_pb2
from google.protobuf.wrappers_pb2 import BytesValue

from fsxds.api.printing import dump
from fsxds.protocol.messages import ClientStatus
from fsxds.resources import Resource
from fsxds.transports.client_status_contents import Contents
from fsxds.transports.client_status_nodes import node_message
from fsxds.transports.client_status_resources import ClientStand, ResourceStatus
from fsxds.transports.json_bodies import Payload
from fsxds.values import PlainValue


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
