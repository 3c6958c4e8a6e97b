"""A gRPC server's services: streams, unary discovery, health, reflection, and extra ones.

Health is SERVING while clients are served. Reflection is loaded by its first call.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Never

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2

from fsxds.api.catalogue import DynamicMessage
from fsxds.events.client_events import ResponseSent
from fsxds.model.errors import ProtocolError
from fsxds.model.relay_ids import HEADER, relays_of_metadata
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.protocol.delta import DeltaStream
from fsxds.protocol.messages import Node, SotwResponse
from fsxds.protocol.poll import NOT_ANSWERED, Unavailable, answer_fetch, nonce_of
from fsxds.protocol.sotw import SotwStream
from fsxds.protocol.subscription import Selection, Subscription, reject_request
from fsxds.runtime.access import AccessInUse
from fsxds.runtime.channels import Latest
from fsxds.runtime.supervisor import Supervisor
from fsxds.transports.exchange import ON_DEMAND_WAIT_S, Reader, Requester, peer_of, peer_of_call
from fsxds.transports.grpc_streams.grpc_server import watch_resets
from fsxds.transports.grpc_streams.stream import StreamCall, StreamContext
from fsxds.transports.grpc_streams.stream_requests import (
    HEALTH,
    METHODS,
    STOPPING,
    Context,
    DiscoveryMethod,
    LongLivedCalls,
    Variant,
    guarded,
    parse_or_abort,
)

# Of its own time, when a unary request ends its wait for upstreams.
LEAST_LEFT_S = 0.2


class Health:
    """Reports health, equal for all services and overall (an empty name)."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = ("", *services)
        self._servicer = health.aio.HealthServicer()

    @property
    def handler(self) -> grpc.ServiceRpcHandler:
        """The handler to register."""
        serializer = health_pb2.HealthCheckResponse.SerializeToString
        return grpc.method_handlers_generic_handler(
            HEALTH,
            {
                "Check": grpc.unary_unary_rpc_method_handler(
                    partial(_ask_health, self._servicer.Check), response_serializer=serializer
                ),
                "Watch": grpc.unary_stream_rpc_method_handler(
                    partial(_ask_health, self._servicer.Watch), response_serializer=serializer
                ),
            },
        )

    async def report(self, *, is_serving: bool) -> None:
        """Report it, also to watching clients."""
        statuses = health_pb2.HealthCheckResponse
        for service in self._services:
            await self._servicer.set(service, statuses.SERVING if is_serving else statuses.NOT_SERVING)


async def _ask_health(ask: Callable[..., Awaitable[Any]], content: bytes, context: Context) -> Any:
    return await ask(await parse_or_abort(health_pb2.HealthCheckRequest, content, context), context)


# Older clients know only the first; the messages are equal.
SERVICES = ("grpc.reflection.v1alpha.ServerReflection", "grpc.reflection.v1.ServerReflection")


class Reflection:
    """Answers reflection for `services`, within `access`."""

    def __init__(self, services: Iterable[str], access: AccessInUse) -> None:
        self._services = (*services, *SERVICES)
        self._access = access
        self._servicer: Any = None

    @property
    def handlers(self) -> tuple[grpc.ServiceRpcHandler, ...]:
        """The handlers to register."""
        methods = {"ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(self._answer)}
        return tuple(grpc.method_handlers_generic_handler(service, methods) for service in SERVICES)

    async def _answer(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        from grpc_reflection.v1alpha import reflection, reflection_pb2  # noqa: PLC0415

        if self._servicer is None:
            # The import takes long.
            await asyncio.to_thread(import_descriptors, self._services)
            self._servicer = reflection.aio.ReflectionServicer(self._services)
        request = reflection_pb2.ServerReflectionRequest
        peer = peer_of_call(context)

        async def parse(content: bytes) -> DynamicMessage:
            self._access.current.check_peer(peer)
            return await parse_or_abort(request, content, context)

        messages = (await parse(content) async for content in requests)
        async for response in self._servicer.ServerReflectionInfo(messages, context):
            yield response.SerializeToString()


def import_descriptors(services: Iterable[str]) -> None:
    """Import services' and types' modules into protobuf's default pool."""
    names = (*services, *(row.message_type for row in RESOURCE_TYPES))
    for package in sorted({name.rpartition(".")[0] for name in names if name.startswith("envoy.")}):
        paths = importlib.import_module(package).__path__
        for module in pkgutil.iter_modules(paths):
            if module.name.endswith("_pb2"):
                importlib.import_module(f"{package}.{module.name}")


class GrpcServices:
    """All services of a gRPC server, for `listening_grpc`.

    `handlers` take and return bytes; `unready` is empty while clients are served.
    """

    def __init__(
        self, shared: StreamContext, extra: Iterable[grpc.ServiceRpcHandler] = (), *, unready: Latest[str]
    ) -> None:
        self._shared = shared
        self._observer = shared.observer
        self._exchange = shared.exchange
        self._unready = unready
        # In order of arrival.
        self._streams: dict[StreamCall, None] = {}
        self._is_draining = False
        self._long_lived = LongLivedCalls(shared.observer, shared.limiter, shared.admit)
        discovery, more = self._discovery(), tuple(extra)
        services = tuple(handler.service_name() for handler in (*discovery, *more))
        self._health = Health(services)
        others = (*more, self._health.handler, *Reflection((*services, HEALTH), shared.access).handlers)
        self.handlers = (*discovery, *map(self._long_lived.adapt, others))

    @property
    def open_streams(self) -> int:
        """Count discovery streams."""
        return len(self._streams)

    @asynccontextmanager
    async def running(self, supervisor: Supervisor) -> AsyncIterator[None]:
        """Wake streams and report health meanwhile."""
        await self._health.report(is_serving=False)
        listeners = self._shared.access.listeners
        listeners[self] = self._check_access
        try:
            with self._exchange.woken():
                async with asyncio.TaskGroup() as tasks:
                    self._shared.tasks = tasks
                    lasting = (
                        tasks.create_task(supervisor.run("streams", self._shared.waking.keep_waking)),
                        tasks.create_task(supervisor.run("health", self._report_health)),
                        tasks.create_task(supervisor.run("resets", partial(watch_resets, self._observer))),
                    )
                    # Each task takes its first step before the first stream comes.
                    await asyncio.sleep(0)
                    yield
                    for task in lasting:
                        task.cancel()
        finally:
            del listeners[self]

    def _check_access(self) -> None:
        for stream in tuple(self._streams):
            stream.check_access()

    async def drain(self) -> None:
        """End streams with UNAVAILABLE after present responses; accept no more."""
        await self._health.report(is_serving=False)
        self._is_draining = True
        self._exchange.drain()
        async with asyncio.TaskGroup() as ending:
            # Together: one waits for as long as its client does not read.
            ending.create_task(self._long_lived.end())
            for stream in tuple(self._streams):
                ending.create_task(stream.end())

    def _discovery(self) -> tuple[grpc.ServiceRpcHandler, ...]:
        methods: dict[str, dict[str, grpc.RpcMethodHandler]] = defaultdict(dict)
        admit = self._shared.admit
        for method in METHODS:
            is_unary = method.variant is Variant.FETCH
            behavior = partial(self._fetch if is_unary else self._converse, method)
            make = grpc.unary_unary_rpc_method_handler if is_unary else grpc.stream_stream_rpc_method_handler
            methods[method.service][method.name] = make(guarded(behavior, method.name, self._observer, admit))
        return tuple(grpc.method_handlers_generic_handler(service, each) for service, each in methods.items())

    async def _converse(self, method: DiscoveryMethod, _: object, context: Context) -> None:
        if self._is_draining:
            await context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
        make_core = DeltaStream if method.variant is Variant.DELTA else SotwStream
        core = make_core(self._shared.memory, self._shared.ttl_mode, is_aggregated=method.is_aggregated)
        stream = StreamCall(self._shared, method, core, context)
        metadata = context.invocation_metadata() or ()
        is_relay = any(key == HEADER for key, _ in metadata)
        calling = self._shared.relays.calling(relays_of_metadata(metadata)) if is_relay else nullcontext()
        with self._shared.limiter.stream(peer_of(context.peer())), calling:
            self._streams[stream] = None
            try:
                await stream.converse()
            finally:
                del self._streams[stream]

    async def _fetch(self, method: DiscoveryMethod, content: bytes, context: Context) -> bytes:
        sender = peer_of_call(context)
        # Before the request is parsed.
        self._shared.access.current.check_peer(sender)
        request = self._shared.reader.sotw(content, method.row, sender.address)
        reject_request(request.rejected_names)
        subscription = Subscription.for_request(request.type_url, request.names)
        requester = Requester(
            sender, request.node or Node("", peer=sender.address), request.type_url, subscription.asked
        )
        reader = Reader(await self._exchange.channel_of(requester))
        with self._exchange.asking(requester):
            answer = self._answer(subscription, reader)
            if answer is NOT_ANSWERED:
                with self._exchange.limiter.holding(len(subscription.names)):
                    answer = await self._wait(requester, subscription, reader, context.time_remaining())
        if not isinstance(answer, Selection):
            raise ProtocolError(answer.reason, "UNAVAILABLE")
        self._observer(ResponseSent(requester.node, subscription, answer.version))
        nonce = nonce_of(answer.version)
        return self._shared.writer.write(SotwResponse(request.type_url, answer.version, nonce, answer.resources))

    def _answer(self, subscription: Subscription, reader: Reader) -> Selection | Unavailable:
        channels = self._exchange.channels
        return answer_fetch(subscription, self._exchange.snapshot_of(reader.channel), channels.on_demand.unanswered)

    async def _wait(
        self, requester: Requester, subscription: Subscription, reader: Reader, left_s: float | None
    ) -> Selection | Unavailable:
        within_s = ON_DEMAND_WAIT_S if left_s is None else min(ON_DEMAND_WAIT_S, left_s - LEAST_LEFT_S)
        now_s = asyncio.get_running_loop().time()
        answer: Selection | Unavailable = NOT_ANSWERED
        deadline_s = now_s + within_s
        while answer is NOT_ANSWERED and now_s < deadline_s and not self._exchange.is_draining:
            now_s = await self._exchange.wait_reading(requester, reader, deadline_s, awaits_answers=True)
            answer = self._answer(subscription, reader)
        return answer

    async def _report_health(self) -> Never:
        while True:
            unready = self._unready.current
            await self._health.report(is_serving=not unready)
            await self._unready.other_than(unready)
