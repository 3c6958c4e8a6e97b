"""The messages of the streams: xds-protos' classes, and what is read out of them.

What a client is told, as values; and what it hears when it is told nothing more.

Why a stream ended, in words for people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import StringValue

from fsxds.errors import FsxdsError
from fsxds.protocol.messages import Node
from fsxds.resource_types import PREFIX
from fsxds.resources import Origin, Resource, version_of_body
from fsxds.values import Nonce, TypeUrl, Version

# What came over a wire was written in no file that is known here.
ELSEWHERE = Origin(PurePosixPath(), 0)


@dataclass(frozen=True, slots=True)
class Update:
    """One response of a server.

    Attributes:
        type_url: the type that it is about.
        version: its `version_info`, or `system_version_info`.
        nonce: its nonce, or version where the wire has none.
        resources: what it holds, by name. A version is the server's own word in Delta, elsewhere a digest of the body.
        removed: the names that it takes away (Delta).
        is_full: it holds all there is, so that what is not in it is taken away too.
        heartbeats: names whose time to live begins anew, without their content.
        unpopulated: names that are answered with nothing: there is no such virtual host.
    """

    type_url: TypeUrl
    version: Version
    nonce: Nonce
    resources: Mapping[str, Resource]
    removed: tuple[str, ...] = ()
    is_full: bool = False
    heartbeats: tuple[str, ...] = ()
    unpopulated: tuple[str, ...] = ()

    @property
    def bodies(self) -> dict[str, bytes]:
        """The serialized resources by name."""
        return {name: resource.body for name, resource in self.resources.items()}


@dataclass(frozen=True, slots=True)
class Told:
    """What stands around a resource on the wire; `version` is empty where nothing is said."""

    version: str = ""
    aliases: tuple[str, ...] = ()
    ttl_s: float | None = None


@dataclass(slots=True)
class Contents:
    """What was read out of one response, until it is an update.

    `faults` are for people: what a client cannot take.
    """

    type_url: TypeUrl
    resources: dict[str, Resource] = field(default_factory=dict)
    heartbeats: list[str] = field(default_factory=list)
    unpopulated: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def add(self, name: str, body: bytes, told: Told = Told()) -> None:
        """Take in a resource; the second one of a name is a fault."""
        if name in self.resources:
            self.faults.append(f'"{name}" is in it twice')
        version = Version(told.version) or version_of_body(self.type_url, body)
        self.resources[name] = Resource(self.type_url, name, body, version, ELSEWHERE, told.aliases, told.ttl_s)

    def frozen(self) -> Mapping[str, Resource]:
        """Return the resources, not to be changed any more."""
        return MappingProxyType(self.resources)


class LostError(FsxdsError):
    """The server tells nothing more, or cannot be reached; to ask again is to connect again.

    `code` is the name of a gRPC status code, or an HTTP status. `is_final`: it would be told the same again.
    """

    def __init__(self, message: str, code: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_final = is_final


class WrongAnswerError(FsxdsError):
    """The server told what a client cannot take; `update` is what could be read of it."""

    def __init__(self, message: str, update: Update) -> None:
        super().__init__(message)
        self.update = update


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


# The code of LostError where what listens there speaks something else; it is none of gRPC's.
WRONG_PROTOCOL = "WRONG_PROTOCOL"

_NO_SUCH_METHOD = grpc.StatusCode.UNIMPLEMENTED
# To say the same again would be answered with the same again.
_FINAL = frozenset(
    {
        _NO_SUCH_METHOD,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)
# gRPC's words for a connection that could not be made go from the outside to the inside; the last say what is wrong.
_CONNECT_WORDS = re.compile(
    r"failed to connect to all addresses; .*?last error: \w+: (?:(?:ipv4|ipv6|unix):\S+: )?"
    r"(?:Failed to connect to remote host: (?:connect: )?|connect failed: addr: \S+ error: )?(?P<connect>.*)"
    r"|.*errors resolving .*?: (?P<resolve>[^:\]]*)\]?",
    re.DOTALL,
)
# What gRPC says of a server that answers with something else than HTTP/2.
_OTHER_PROTOCOL = "Failed parsing HTTP/2"


def lost_by(code: grpc.StatusCode, details: str, method: str) -> LostError:
    """Return the end of a call in words for people; those of the server are quoted."""
    quoted = f', "{_cut(details)}"' if details else ""
    if code is _NO_SUCH_METHOD:
        return LostError(f"the server has no {method.rpartition('/')[2]}{quoted}", code.name, is_final=True)
    connecting = _CONNECT_WORDS.fullmatch(details) if code is grpc.StatusCode.UNAVAILABLE else None
    if connecting is not None and _OTHER_PROTOCOL in details:
        return LostError("what listens there does not speak gRPC", WRONG_PROTOCOL)
    if connecting is not None:
        return LostError(f"cannot connect: {_cut(connecting['connect'] or connecting['resolve'])}", code.name)
    return LostError(f"the server ended the stream: {code.name}{quoted}", code.name, is_final=code in _FINAL)


def _cut(details: str) -> str:
    return re.sub(r"\s+", " ", details)[:300]
