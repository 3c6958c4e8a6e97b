"""gRPC requests to protocol values: a DiscoveryRequest, a DeltaDiscoveryRequest, and who sent it."""

from __future__ import annotations

from collections import OrderedDict
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

import grpc
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import DecodeError

from fsxds.errors import ProtocolError
from fsxds.protocol.node import Node
from fsxds.protocol.reasons import without_message
from fsxds.protocol.streams import DeltaRequest, SotwRequest
from fsxds.resource_types import ResourceType
from fsxds.values import Nonce, TypeUrl, Version

# One Envoy opens a stream for each cluster, route and secret where it is not told to use ADS; they share their node.
MOST_NODES = 4096

Context = Any
"""grpc.aio's ServicerContext, with the reader and writer methods that its type does not declare."""


def peer_of(transport_peer: str) -> str:
    """Return the IP address in gRPC's `ipv4:192.0.2.1:4711` or `ipv6:%5B::1%5D:4711`; empty for a unix socket."""
    scheme, _, rest = transport_peer.partition(":")
    if scheme not in {"ipv4", "ipv6"}:
        return ""
    return unquote(rest).rpartition(":")[0].strip("[]")


async def parse_or_abort(message_class: Any, content: bytes, context: Context) -> Any:
    """Return a message; where the bytes are none, end the call with INVALID_ARGUMENT."""
    try:
        return _parsed(message_class, content)
    except ProtocolError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))


class RequestReader:
    """Reads requests.

    Unknown fields are ignored. Both methods raise ProtocolError with what is wrong, and the remedy. Their arguments are:
    the message; the type that the method speaks of, None for ADS, which speaks of all; the IP address of the client, empty
    on a unix socket; and whether the node was told before on the stream, so that it is not looked at again.
    """

    def __init__(self) -> None:
        self._nodes: OrderedDict[tuple[bytes, str], Node] = OrderedDict()

    def sotw(self, content: bytes, row: ResourceType | None, peer: str, *, knows_node: bool = False) -> SotwRequest:
        """Return the value of a serialized DiscoveryRequest."""
        message = _parsed(discovery_pb2.DiscoveryRequest, without_field(content, 2) if knows_node else content)
        return SotwRequest(
            type_url=_type_url(message.type_url, row),
            names=tuple(message.resource_names),
            version_info=Version(message.version_info) or None,
            nonce=Nonce(message.response_nonce) or None,
            error_detail=without_message(message.error_detail.message) if message.HasField("error_detail") else None,
            node=self._node(message.node, peer) if message.HasField("node") else None,
        )

    def delta(self, content: bytes, row: ResourceType | None, peer: str, *, knows_node: bool = False) -> DeltaRequest:
        """Return the value of a serialized DeltaDiscoveryRequest."""
        message = _parsed(discovery_pb2.DeltaDiscoveryRequest, without_field(content, 1) if knows_node else content)
        return DeltaRequest(
            type_url=_type_url(message.type_url, row),
            subscribe=tuple(message.resource_names_subscribe),
            unsubscribe=tuple(message.resource_names_unsubscribe),
            held=MappingProxyType(dict(message.initial_resource_versions)),
            nonce=Nonce(message.response_nonce) or None,
            error_detail=without_message(message.error_detail.message) if message.HasField("error_detail") else None,
            node=self._node(message.node, peer) if message.HasField("node") else None,
        )

    def _node(self, message: Any, peer: str) -> Node:
        # 61 kB of names, which say nothing about what to serve (ENVOY.md A1).
        del message.extensions[:]
        told = message.SerializeToString(deterministic=True)
        node = self._nodes.get((told, peer))
        if node is None:
            node = Node(
                id=message.id,
                cluster=message.cluster,
                peer=peer,
                features=frozenset(message.client_features),
                agent=message.user_agent_name,
                told=told,
            )
            self._nodes[told, peer] = node
            if len(self._nodes) > MOST_NODES:
                self._nodes.popitem(last=False)
        else:
            self._nodes.move_to_end((told, peer))
        return node


def without_field(content: bytes, field: int) -> bytes:
    """Return a message without one of its first two fields, if that is a message; anything else stays as it is.

    By default an Envoy says its node in every message, and 43 us of 50 go into its parsing.
    """
    start = 0
    for _ in range(2):
        tag = content[start : start + 1]
        size, body = _varint_at(content, start + 1)
        end = body + size
        if not tag or tag[0] & 0b111 != _LENGTH_DELIMITED or end > len(content):
            return content
        if tag[0] >> 3 == field:
            return content[:start] + content[end:]
        start = end
    return content


_LENGTH_DELIMITED = 2


def _varint_at(content: bytes, start: int) -> tuple[int, int]:
    """Return the size that begins at `start`, and where it ends; beyond all sizes where it is cut."""
    number = 0
    for shift, group in enumerate(content[start : start + 5]):
        number |= (group & 0x7F) << (7 * shift)
        if group < 0x80:
            return number, start + shift + 1
    return 1 << 35, start


def _parsed(message_class: Any, content: bytes) -> Any:
    try:
        return message_class.FromString(content)
    except DecodeError as error:
        name = message_class.DESCRIPTOR.full_name
        raise ProtocolError(f"the message cannot be parsed; send a serialized {name}") from error


def _type_url(told: str, row: ResourceType | None) -> TypeUrl:
    if row is None:
        if not told:
            raise ProtocolError("type_url: is empty; an aggregated stream serves all types, name the one that is meant")
        return TypeUrl(told)
    if told not in {"", row.type_url}:
        raise ProtocolError(
            f"type_url: is {told[:200]}, but this method serves {row.type_url}; send that, or leave type_url out"
        )
    return row.type_url
