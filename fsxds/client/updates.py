"""Received updates, their faults, and lost connections."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import StringValue
from xds.core.v3.resource_locator_pb2 import ResourceLocator
from xds.core.v3.resource_name_pb2 import ResourceName as ResourceNameMessage

from fsxds.api.catalogue import DynamicMessage
from fsxds.api.converter import Converter
from fsxds.model.errors import FsxdsError
from fsxds.model.resource_names import Locator, MalformedName, ResourceName
from fsxds.model.resource_types import PREFIX, ResourceType
from fsxds.model.resources import Origin, Resource, version_of_body
from fsxds.model.values import Nonce, PlainValue, TypeUrl, Version
from fsxds.protocol.messages import Node, metadata_of
from fsxds.snapshots.redirect_payloads import locator_in

# The origin of resources from a wire, whose file is unknown.
ELSEWHERE = Origin(PurePosixPath(), 0)


@dataclass(frozen=True, slots=True)
class Update:
    """One response.

    Attributes:
        version: its `version_info`, or `system_version_info`.
        nonce: the version if the wire has none.
        resources: Delta sends their versions, elsewhere these are digests.
        removed: the names that it removes (Delta).
        is_full: resources missing from it are removed, too.
        heartbeats: names with a renewed TTL, without content.
        unpopulated: names that do not exist, such as a requested virtual host.
        faults: why parts cannot be accepted; empty if it is accepted completely or not at all.
        rejected: resources omitted because of faults. After a fault without a name, the update is not full.
        relays: ids of passed relays, the nearest first.
    """

    type_url: TypeUrl
    version: Version
    nonce: Nonce
    resources: Mapping[str, Resource]
    removed: tuple[str, ...] = ()
    is_full: bool = False
    heartbeats: tuple[str, ...] = ()
    unpopulated: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    rejected: frozenset[str] = frozenset()
    relays: tuple[str, ...] = ()

    @property
    def bodies(self) -> dict[str, bytes]:
        """The serialized resources."""
        return {name: resource.body for name, resource in self.resources.items()}


@dataclass(slots=True)
class UpdateContents:
    """A response's contents so far; `has_unnamed`: a faulty resource's name is unknown."""

    type_url: TypeUrl
    resources: dict[str, Resource] = field(default_factory=dict)
    heartbeats: list[str] = field(default_factory=list)
    unpopulated: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    rejected: set[str] = field(default_factory=set)
    has_unnamed: bool = False

    def add(self, resource: Resource) -> None:
        """Add a resource; a name's second one is a fault."""
        if resource.name in self.resources:
            self.reject(resource.name, f'"{resource.name}" is in it twice')
        self.resources[resource.name] = resource

    def add_body(self, body: bytes) -> None:
        """Add a body; DecodeError if the body is no message."""
        version = version_of_body(self.type_url, body)
        self.add(Resource(self.type_url, name_within(body), body, version, ELSEWHERE))

    def reject(self, name: str, fault: str) -> None:
        """Record a fault of a resource; `name` is empty if unknown."""
        self.faults.append(fault)
        if name:
            self.rejected.add(name)
        else:
            self.has_unnamed = True

    def accepted(self, update: Update) -> Update:
        """Return the update without faulty parts."""
        if not self.faults:
            return update
        good = {name: each for name, each in self.resources.items() if name not in self.rejected}
        return replace(
            update,
            resources=MappingProxyType(good),
            removed=tuple(name for name in update.removed if name not in self.rejected),
            is_full=update.is_full and not self.has_unnamed,
            faults=tuple(self.faults),
            rejected=frozenset(self.rejected),
        )

    def frozen(self) -> Mapping[str, Resource]:
        """Return the resources, read-only."""
        return MappingProxyType(self.resources)


class ConnectionLostError(FsxdsError):
    """There is no connection now; the next attempt connects.

    Attributes:
        code: a gRPC status code, an HTTP status, or WRONG_PROTOCOL.
        is_final: another attempt would end the same way.
    """

    def __init__(self, message: str, code: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_final = is_final


class WrongResponseError(FsxdsError):
    """A client cannot accept a response; `update` is the readable part."""

    def __init__(self, message: str, update: Update) -> None:
        super().__init__(message)
        self.update = update


DiscoveryRequest = discovery_pb2.DiscoveryRequest
DiscoveryResponse = discovery_pb2.DiscoveryResponse
DeltaDiscoveryRequest = discovery_pb2.DeltaDiscoveryRequest
DeltaDiscoveryResponse = discovery_pb2.DeltaDiscoveryResponse

# The default user agent of a client.
AGENT = "fsxds watch"

_WRAPPER = f"{PREFIX}envoy.service.discovery.v3.Resource"
_LOCATORS = {f"{PREFIX}{each.DESCRIPTOR.full_name}": each for each in (ResourceLocator, ResourceNameMessage)}

# google.rpc.Code; Envoy sends it with each NACK (ENVOY.md E32).
NACK_CODE = 13


def node_message(node: Node) -> DynamicMessage:
    """Return a node, preferably its more complete serialized form."""
    if node.serialized:
        return base_pb2.Node.FromString(node.serialized)
    return base_pb2.Node(
        id=node.id,
        cluster=node.cluster,
        user_agent_name=node.agent or AGENT,
        client_features=sorted(node.features),
        metadata=json_format.ParseDict(metadata_of(node.attributes), Struct()),
    )


def name_within(body: bytes) -> str:
    """Return a serialized resource's name; DecodeError if the bytes are no message.

    Every named type has it in its first field, so a message with one text there reads them all.
    """
    name: str = StringValue.FromString(body).value
    return name


def read_anys(anys: Iterable[DynamicMessage], contents: UpdateContents) -> None:
    """Add SotW resources, wrapped or not."""
    for packed in anys:
        try:
            if packed.type_url == _WRAPPER:
                read_wrapper(discovery_pb2.Resource.FromString(packed.value), contents)
            elif _is_of(packed.type_url, contents, ""):
                contents.add_body(packed.value)
        except DecodeError:
            contents.reject("", "a resource in it is no message")


def read_plain(plain: PlainValue, row: ResourceType, converter: Converter, contents: UpdateContents) -> None:
    """Add a resource in JSON, as an `Any` of its type."""
    fields = plain if isinstance(plain, dict) else {}
    if fields.get("@type") != row.type_url:
        contents.reject("", f"a resource in it is of type {str(fields.get('@type'))[:200]}")
        return
    converted = converter.convert({name: fields[name] for name in fields if name != "@type"}, row.message_type)
    if converted.message is None:
        name = fields.get(row.name_field or "")
        # The message may contain a part of a secret.
        why = "" if row.is_secret else f": {converted.faults[0].message}"
        contents.reject(name if isinstance(name, str) else "", f"a resource in it cannot be read{why}")
        return
    contents.add_body(converted.message.SerializeToString(deterministic=True))


def read_wrapper(wrapper: DynamicMessage, contents: UpdateContents) -> None:
    """Add a `Resource`: content, a heartbeat, or a name that does not exist.

    Raises:
        DecodeError: an unnamed resource is no message.
    """
    if not wrapper.HasField("resource"):
        # A heartbeat has a time to live, and the version that the client holds already.
        (contents.heartbeats if wrapper.HasField("ttl") else contents.unpopulated).append(wrapper.name)
        return
    body = wrapper.resource.value
    if wrapper.resource.type_url in _LOCATORS:
        _add_redirect(wrapper, contents)
    elif _is_of(wrapper.resource.type_url, contents, wrapper.name):
        version = Version(wrapper.version) or version_of_body(contents.type_url, body)
        ttl_s = wrapper.ttl.ToNanoseconds() / 1e9 if wrapper.HasField("ttl") else None
        name = wrapper.name or name_within(body)
        contents.add(Resource(contents.type_url, name, body, version, ELSEWHERE, tuple(wrapper.aliases), ttl_s))


def _add_redirect(wrapper: DynamicMessage, contents: UpdateContents) -> None:
    """Source: xRFC TP1, "Redirects"."""
    try:
        payload = _LOCATORS[wrapper.resource.type_url].FromString(wrapper.resource.value)
        locator = str(locator_in(payload, ""))
    except MalformedName as error:
        contents.reject(wrapper.name, f"a redirect in it {error}")
        return
    except DecodeError:
        contents.reject(wrapper.name, "a redirect in it is no message")
        return
    version = Version(wrapper.version) or version_of_body(contents.type_url, wrapper.resource.value)
    aliases = tuple(wrapper.aliases)
    contents.add(Resource(contents.type_url, wrapper.name, b"", version, ELSEWHERE, aliases, redirect=locator))


def targets_of(update: Update) -> Iterator[str]:
    """Yield redirects' first targets."""
    for resource in update.resources.values():
        if resource.redirect and isinstance(target := Locator.parse(resource.redirect).target, ResourceName):
            yield str(target)


def _is_of(type_url: TypeUrl, contents: UpdateContents, name: str) -> bool:
    if type_url != contents.type_url:
        contents.reject(name, f"a resource in it is of type {type_url}")
    return type_url == contents.type_url


# The code if the peer does not speak gRPC.
WRONG_PROTOCOL = "WRONG_PROTOCOL"

_NO_SUCH_METHOD = grpc.StatusCode.UNIMPLEMENTED
# The same request would get the same status again.
_FINAL = frozenset(
    {
        _NO_SUCH_METHOD,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)
# gRPC's messages of failed connects go from the outer to the inner cause; the last part is the useful one.
_CONNECT_WORDS = re.compile(
    r"failed to connect to all addresses; .*?last error: \w+: (?:(?:ipv4|ipv6|unix):\S+: )?"
    r"(?:Failed to connect to remote host: (?:connect: )?|connect failed: addr: \S+ error: )?(?P<connect>.*)"
    r"|.*errors resolving .*?: (?P<resolve>[^:\]]*)\]?",
    re.DOTALL,
)
_TOO_LARGE = re.compile(r".*message larger than max \((?P<size>\d+) vs\. (?P<most>\d+)\)", re.DOTALL)
# The code if a response is larger than the client accepts.
TOO_LARGE_RESPONSE = "TOO_LARGE_RESPONSE"
# The code if a stream ended while its first requests were being written: gRPC loses the status then.
ENDED_EARLY = "ENDED_EARLY"
_CORE_ERROR = "Internal error from Core"
# gRPC's message for a server that answers with another protocol than HTTP/2.
_OTHER_PROTOCOL = "Failed parsing HTTP/2"


def lost_by(code: grpc.StatusCode, details: str, method: str) -> ConnectionLostError:
    """Return a call's end's cause, with the server's message."""
    quoted = f', "{_cut(details)}"' if details else ""
    if code is _NO_SUCH_METHOD:
        return ConnectionLostError(f"the server has no {method.rpartition('/')[2]}{quoted}", code.name, is_final=True)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and (sizes := _TOO_LARGE.match(details)):
        fact = f"a message of {sizes['size']} bytes is larger than {sizes['most']}, which is all that is taken"
        return ConnectionLostError(fact, TOO_LARGE_RESPONSE)
    connecting = _CONNECT_WORDS.fullmatch(details) if code is grpc.StatusCode.UNAVAILABLE else None
    if details == _CORE_ERROR:
        return ConnectionLostError("the stream ended while it was opened", ENDED_EARLY)
    if connecting is not None and _OTHER_PROTOCOL in details:
        return ConnectionLostError("the server there does not speak gRPC", WRONG_PROTOCOL)
    if connecting is not None:
        return ConnectionLostError(f"cannot connect: {_cut(connecting['connect'] or connecting['resolve'])}", code.name)
    return ConnectionLostError(f"the server ended the stream: {code.name}{quoted}", code.name, is_final=code in _FINAL)


def _cut(details: str) -> str:
    return re.sub(r"\s+", " ", details)[:300]
