"""The discovery services' methods, the parsing of requests, and the edge of their calls.

An error of fsxds ends only its own call; long-lived calls end with the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from hashlib import sha256
from inspect import isasyncgenfunction
from itertools import chain
from sys import intern
from types import MappingProxyType
from typing import Any, TypeAlias

import grpc
import grpc.aio
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2

from fsxds.api.catalogue import DynamicMessage
from fsxds.api.fields import quoted_type_url
from fsxds.events.client_events import RequestAnswered
from fsxds.events.event import Observer
from fsxds.events.process_events import InternalError
from fsxds.model.errors import LimitError, ProtocolError
from fsxds.model.memo import Lru
from fsxds.model.resource_names import SCHEMES
from fsxds.model.resource_types import BY_TYPE_URL, RESOURCE_TYPES, ResourceType
from fsxds.model.values import Nonce, TypeUrl, Version
from fsxds.protocol.messages import (
    MOST_KEPT_NODE_BYTES,
    DeltaRequest,
    Node,
    SotwRequest,
    attributes_of_message,
    check_length,
    without_message,
)
from fsxds.protocol.subscription import NO_STRUCTURED_NAMES, RequestedNames, read_names
from fsxds.transports.exchange import peer_of
from fsxds.transports.limits import Limiter, report_rejection
from fsxds.transports.rest.poll_responses import INTERNAL

AGGREGATED = "envoy.service.discovery.v3.AggregatedDiscoveryService"


class Variant(Enum):
    """A method name's first word."""

    SOTW = "Stream"
    DELTA = "Delta"
    FETCH = "Fetch"


@dataclass(frozen=True, slots=True)
class DiscoveryMethod:
    """One service's method. `row` None: all types (ADS)."""

    service: str
    name: str
    variant: Variant
    row: ResourceType | None

    @property
    def is_aggregated(self) -> bool:
        """Whether all types share its streams."""
        return self.row is None

    def serves(self, type_url: TypeUrl) -> bool:
        """Whether its streams serve a type."""
        row = BY_TYPE_URL.get(type_url)
        return row is not None and (row.has_sotw or self.variant is Variant.DELTA)


def _methods() -> Iterator[DiscoveryMethod]:
    yield DiscoveryMethod(AGGREGATED, "StreamAggregatedResources", Variant.SOTW, None)
    yield DiscoveryMethod(AGGREGATED, "DeltaAggregatedResources", Variant.DELTA, None)
    for row in RESOURCE_TYPES:
        if not row.grpc:
            continue
        service, noun = row.grpc.split()
        for variant in Variant if row.has_sotw else (Variant.DELTA,):
            yield DiscoveryMethod(f"envoy.service.{service}", f"{variant.value}{noun}", variant, row)


METHODS = tuple(_methods())

_SCHEMES = tuple(scheme.encode() for scheme in SCHEMES)

# Without ADS, one Envoy opens a stream for each cluster, route and secret (ENVOY.md E30).
MOST_NODES = 4096

# An Envoy's node takes 61 kB, mostly its extensions (ENVOY.md E1). Parsed, a node may take 46 times its size.
MOST_NODE_BYTES = 512 * 1024

# Names that a message may subscribe to, as many to unsubscribe, and as many versions (`max_names`). A name of four
# bytes takes a hundred once parsed, so size alone does not limit the cost.
MOST_NAMES = 250_000

Context: TypeAlias = Any
"""grpc.aio's ServicerContext, with undeclared methods to read and write."""


async def parse_or_abort(message_class: type[Message], content: bytes, context: Context) -> DynamicMessage:
    """Parse a message, or end the call with INVALID_ARGUMENT."""
    try:
        return _parsed(message_class, content)
    except ProtocolError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))


class GrpcRequestReader:
    """Parses requests, without unknown fields.

    Methods raise ProtocolError with problem and remedy. They take the message; the method's type, None for ADS; the
    client's IP address, empty on a unix socket; and whether the stream sent its node before.

    `most_names` limits each kind in a message. `authority` is for structured names without one.
    """

    def __init__(
        self, most_names: Callable[[], int] = lambda: MOST_NAMES, authority: Callable[[], str] = lambda: ""
    ) -> None:
        self._most_names = most_names
        self._authority = authority
        self._nodes: Lru[tuple[bytes, str], Node] = Lru(MOST_NODES)

    def read(
        self, content: bytes, method: DiscoveryMethod, peer: str, *, knows_node: bool = False
    ) -> SotwRequest | DeltaRequest:
        """Parse a stream's request."""
        read = self.delta if method.variant is Variant.DELTA else self.sotw
        return read(content, method.row, peer, knows_node=knows_node)

    def sotw(self, content: bytes, row: ResourceType | None, peer: str, *, knows_node: bool = False) -> SotwRequest:
        """Parse a serialized DiscoveryRequest."""
        _check_names(content, SOTW_NAMES, self._most_names())
        message = _parsed(DiscoveryRequest, content)
        type_url = _type_url(message.type_url, row)
        read = self._structured(content, message.resource_names, type_url)
        return SotwRequest(
            type_url=type_url,
            names=tuple(map(intern, read.among(message.resource_names))),
            version_info=Version(check_length("version_info", message.version_info)) or None,
            nonce=Nonce(check_length("response_nonce", message.response_nonce)) or None,
            error_detail=without_message(message.error_detail.message) if message.HasField("error_detail") else None,
            node=self._node(message, peer) if message.node and not knows_node else None,
            rejected_names=read.rejected,
            without_authority=read.without_authority,
        )

    def delta(self, content: bytes, row: ResourceType | None, peer: str, *, knows_node: bool = False) -> DeltaRequest:
        """Parse a serialized DeltaDiscoveryRequest."""
        _check_names(content, DELTA_NAMES, self._most_names())
        message = _parsed(DeltaDiscoveryRequest, content)
        type_url = _type_url(message.type_url, row)
        names = chain(message.resource_names_subscribe, message.resource_names_unsubscribe)
        read = self._structured(content, names, type_url)
        return DeltaRequest(
            type_url=type_url,
            subscribe=tuple(map(intern, message.resource_names_subscribe)),
            unsubscribe=tuple(message.resource_names_unsubscribe),
            initial_resource_versions=MappingProxyType(
                {held.key: Version(held.value) for held in message.initial_resource_versions}
            ),
            nonce=Nonce(check_length("response_nonce", message.response_nonce)) or None,
            error_detail=without_message(message.error_detail.message) if message.HasField("error_detail") else None,
            node=self._node(message, peer) if message.node and not knows_node else None,
            canonical=read.canonical,
            rejected_names=read.rejected,
            without_authority=read.without_authority,
        )

    def _structured(self, content: bytes, names: Iterable[str], type_url: TypeUrl) -> RequestedNames:
        if not any(scheme in content for scheme in _SCHEMES):
            return NO_STRUCTURED_NAMES
        return read_names(names, type_url, self._authority())

    def _node(self, request: DynamicMessage, peer: str) -> Node:
        if len(request.node) > MOST_NODE_BYTES:
            raise ProtocolError(
                f"node: takes {len(request.node)} bytes, more than {MOST_NODE_BYTES}; shorten its metadata"
            )
        message = _parsed(base_pb2.Node, request.node, part_of=type(request))
        # 61 kB of names, which affect no resource (ENVOY.md E1).
        del message.extensions[:]
        serialized = message.SerializeToString(deterministic=True)
        is_kept = len(serialized) <= MOST_KEPT_NODE_BYTES
        key = serialized if is_kept else sha256(serialized).digest(), peer
        return self._nodes.find(
            key,
            lambda: Node(
                id=check_length("node.id", message.id),
                cluster=check_length("node.cluster", message.cluster),
                peer=peer,
                features=frozenset(message.client_features),
                agent=check_length("node.user_agent_name", message.user_agent_name),
                attributes=attributes_of_message(message),
                serialized=serialized if is_kept else b"",
            ),
        )


_PACKAGE = "envoy.service.discovery.v3"
_READ = frozenset(
    (
        *("node", "type_url", "response_nonce", "error_detail", "version_info", "resource_names"),
        *("resource_names_subscribe", "resource_names_unsubscribe", "initial_resource_versions", "message"),
    )
)


def _declare() -> tuple[type[Message], ...]:
    """The API's messages with only the fields of `_READ`; the rest and the node stay bytes.

    As the API declares them, 16 MiB of a hostile request become 700 MiB of objects, and each repeated node is parsed.
    """
    # Error messages ask for messages of these names.
    file = FileDescriptorProto(name="fsxds/discovery.proto", package=_PACKAGE, syntax="proto3")
    for message in (discovery_pb2.DiscoveryRequest, discovery_pb2.DeltaDiscoveryRequest, status_pb2.Status):
        declared = file.message_type.add()
        message.DESCRIPTOR.CopyToProto(declared)
        fields = [field for field in declared.field if field.name in _READ]
        for field in fields:
            field.ClearField("options")
            if field.name == "node":
                field.type = FieldDescriptorProto.TYPE_BYTES
                field.ClearField("type_name")
            elif field.name == "error_detail":
                field.type_name = f".{_PACKAGE}.Status"
        del declared.field[:]
        declared.field.extend(fields)
        for nested in declared.nested_type:
            # On the wire, a map is a list of entries; parsed as a map, it takes twice the time.
            nested.ClearField("options")
    pool = DescriptorPool()
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return tuple(GetMessageClass(find(f"{_PACKAGE}.{name}")) for name in ("DiscoveryRequest", "DeltaDiscoveryRequest"))


DiscoveryRequest, DeltaDiscoveryRequest = _declare()

# The repeated fields: names, and names with versions.
SOTW_NAMES = (b"\x1a",)
DELTA_NAMES = (b"\x1a", b"\x22", b"\x2a")


def _check_names(content: bytes, fields: tuple[bytes, ...], most: int) -> None:
    """Before parsing. Tag bytes may occur within names: the count may be a little too high."""
    if len(content) > most and max(map(content.count, fields)) > most:
        raise LimitError("max-names", f"the message has more than {most} names")


def _parsed(message_class: type[Message], content: bytes, part_of: type[Message] | None = None) -> DynamicMessage:
    try:
        return message_class.FromString(content)
    except DecodeError as error:
        name = (part_of or message_class).DESCRIPTOR.full_name
        raise ProtocolError(f"the message cannot be parsed; send a serialized {name}") from error


def _type_url(sent: str, row: ResourceType | None) -> TypeUrl:
    if row is None:
        if not sent:
            raise ProtocolError("type_url: is empty; an aggregated stream serves all types, so name the type")
        return TypeUrl(sent)
    if sent not in {"", row.type_url}:
        raise ProtocolError(
            f"type_url: is {quoted_type_url(sent)}, but this method serves {row.type_url}; send that, or leave type_url out"
        )
    return row.type_url


HEALTH = "grpc.health.v1.Health"
STOPPING = "the server stops; connect again"


def where(method: str) -> str:
    """Name a call in reports, such as `gRPC StreamClusters`."""
    return f"gRPC {method.rpartition('/')[2]}"


def guarded(
    behavior: Callable[..., Awaitable[object]],
    method: str,
    observer: Observer,
    admit: Callable[[Context], object] = lambda _: None,
) -> Callable[..., Awaitable[object]]:
    """Wrap a method: report its end, and answer unexpected exceptions with INTERNAL.

    `admit` comes first; a ProtocolError of either ends the call with its code. Streaming methods write by their context.
    """

    async def answer(request: object, context: Context) -> object:
        is_over = False
        try:
            admit(context)
            result = await behavior(request, context)
            is_over = True
        except ProtocolError as error:
            report_rejection(observer, peer_of(context.peer()), error.code, error)
            await context.abort(grpc.StatusCode[error.code], str(error))
            raise  # never reached: abort raises
        except grpc.aio.BaseError:
            # The client is gone or rejected.
            raise
        # The edge of every call.
        except Exception as error:
            observer(InternalError(where(method), error))
            await context.abort(grpc.StatusCode.INTERNAL, INTERNAL.message)
            raise  # never reached: abort raises
        finally:
            code = context.code()
            status = code.name if isinstance(code, grpc.StatusCode) else "OK" if is_over else "CANCELLED"
            observer(RequestAnswered("gRPC", status, peer_of(context.peer())))
        return result

    return answer


class LongLivedCalls:
    """Ends long-lived calls, admitted as in `guarded` except for health. For the event loop."""

    def __init__(
        self,
        observer: Observer,
        limiter: Limiter | None = None,
        admit: Callable[[Context], object] = lambda _: None,
    ) -> None:
        self._observer = observer
        self._limiter = limiter or Limiter()
        self._admit = admit
        self._calls: dict[_TrackedContext, asyncio.Task[object] | None] = {}

    def adapt(self, handler: grpc.ServiceRpcHandler) -> grpc.ServiceRpcHandler:
        """Guard a handler's methods, also for `end`."""
        methods = handler._method_handlers  # noqa: SLF001 - nothing else tells
        adapted = {path.rpartition("/")[2]: self._adapted(method, path) for path, method in methods.items()}
        return grpc.method_handlers_generic_handler(handler.service_name(), adapted)

    async def end(self) -> None:
        """End calls with UNAVAILABLE after present responses."""
        async with asyncio.TaskGroup() as ending:
            for context, task in tuple(self._calls.items()):
                ending.create_task(_end(context, task))

    def _adapted(self, method: grpc.RpcMethodHandler, name: str) -> grpc.RpcMethodHandler:
        behavior = method.unary_unary or method.unary_stream or method.stream_stream
        if method.response_streaming:
            behavior = partial(self._last, behavior)
        make = _MAKERS[method.request_streaming, method.response_streaming]
        # Health checks get answers even if their address asks too often.
        is_health = name.startswith(f"/{HEALTH}/")
        guard = guarded if is_health else partial(guarded, admit=self._admit)
        return make(guard(behavior, name, self._observer), method.request_deserializer, method.response_serializer)

    async def _last(self, behavior: Callable[..., Any], request: object, grpc_context: Context) -> None:
        context = _TrackedContext(grpc_context)
        with self._limiter.stream(peer_of(grpc_context.peer())):
            self._calls[context] = asyncio.current_task()
            try:
                if isasyncgenfunction(behavior):
                    responses: AsyncIterator[object] = behavior(request, context)
                    async for response in responses:
                        await context.write(response)
                else:
                    await behavior(request, context)
            finally:
                del self._calls[context]


_MAKERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


async def _end(context: _TrackedContext, task: asyncio.Task[object] | None) -> None:
    await context.idle.wait()
    with suppress(grpc.aio.BaseError):
        await context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
    if task is not None:
        # It may wait for more than its client.
        task.cancel()


class _TrackedContext:
    """Knows when no response is being written: only then can gRPC send a status."""

    def __init__(self, context: Context) -> None:
        self.idle = asyncio.Event()
        self.idle.set()
        self._context = context

    async def write(self, response: object) -> None:
        self.idle.clear()
        try:
            await self._context.write(response)
        finally:
            self.idle.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
