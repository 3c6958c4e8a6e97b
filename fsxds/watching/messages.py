"""The messages of the streams: xds-protos' classes, and what is read out of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import StringValue

from fsxds.protocol.messages import Node
from fsxds.resource_types import PREFIX
from fsxds.values import TypeUrl
from fsxds.watching.updates import Contents, Told

DiscoveryRequest = discovery_pb2.DiscoveryRequest
DiscoveryResponse = discovery_pb2.DiscoveryResponse
DeltaDiscoveryRequest = discovery_pb2.DeltaDiscoveryRequest
DeltaDiscoveryResponse = discovery_pb2.DeltaDiscoveryResponse

# Who a client is that does not say so itself.
AGENT = "fsxds watch"

_WRAPPER = f"{PREFIX}envoy.service.discovery.v3.Resource"

# google.rpc.Code; what Envoy says with each NACK (ENVOY.md D1).
NACK_CODE = 13


def node_message(node: Node) -> Any:
    """Return a node as it is told to a server."""
    return base_pb2.Node(
        id=node.id,
        cluster=node.cluster,
        user_agent_name=node.agent or AGENT,
        client_features=sorted(node.features),
    )


def name_within(body: bytes) -> str:
    """Return the name that a serialized resource bears itself; raises DecodeError where the bytes are no message.

    Every named type has it in its first field, so a message with one text in that field reads it from all of them.
    """
    name: str = StringValue.FromString(body).value
    return name


def read_anys(anys: Iterable[Any], contents: Contents) -> None:
    """Take in the resources of a SotW response, wrapped or not."""
    for packed in anys:
        try:
            if packed.type_url == _WRAPPER:
                read_wrapper(discovery_pb2.Resource.FromString(packed.value), contents)
            elif _is_of(packed.type_url, contents):
                contents.add(name_within(packed.value), packed.value)
        except DecodeError:
            contents.faults.append("a resource in it is no message")


def read_wrapper(wrapper: Any, contents: Contents) -> None:
    """Take in a `Resource`: with content, as a heartbeat, or as the word that there is none."""
    aliases = tuple(wrapper.aliases)
    if not wrapper.HasField("resource"):
        # A heartbeat has a time to live, and the version of what the client holds already.
        (contents.heartbeats if wrapper.HasField("ttl") else contents.unpopulated).append(wrapper.name)
        return
    ttl_s = wrapper.ttl.ToNanoseconds() / 1e9 if wrapper.HasField("ttl") else None
    if _is_of(wrapper.resource.type_url, contents):
        name = wrapper.name or name_within(wrapper.resource.value)
        contents.add(name, wrapper.resource.value, Told(wrapper.version, aliases, ttl_s))


def _is_of(type_url: TypeUrl, contents: Contents) -> bool:
    if type_url != contents.type_url:
        contents.faults.append(f"a resource in it is of type {type_url}")
    return type_url == contents.type_url
