"""Unary discovery: one DiscoveryRequest, one DiscoveryResponse, and nothing is remembered.

SotW, Delta and ADS over grpc.aio, and unary discovery, with health and reflection beside them.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Never

import grpc.aio

from fsxds.errors import ProtocolError
from fsxds.events import ClientLedger, Observer, RequestRejected, ResponseSent
from fsxds.protocol.delta import DeltaStream
from fsxds.protocol.messages import Node, SotwRequest, SotwResponse
from fsxds.protocol.poll import nonce_of
from fsxds.protocol.sotw import SotwStream
from fsxds.protocol.subscription import SharedMemory, Subscription, select
from fsxds.protocol.ttl import TtlMode
from fsxds.resources import Snapshot
from fsxds.store import SnapshotStore
from fsxds.supervisor import Supervisor
from fsxds.transports.grpc_streams.calls import STOPPING, LastingCalls, guarded
from fsxds.transports.grpc_streams.health_and_reflection import HEALTH, Health, Reflection
from fsxds.transports.grpc_streams.requests import METHODS, Context, DiscoveryMethod, RequestReader, Variant, peer_of
from fsxds.transports.grpc_streams.responses import ResponseWriter
from fsxds.transports.grpc_streams.stream import StreamCall, Surroundings

UNAVAILABLE = "UNAVAILABLE"


def answer_fetch(request: SotwRequest, snapshot: Snapshot | None) -> tuple[SotwResponse, Subscription]:
    """Return what a client should hold now, and what it asked for.

    Raises:
        ProtocolError: nothing good was loaded of the type, or of a resource that was named: with the code `UNAVAILABLE`.
    """
    type_url = request.type_url
    if snapshot is None or type_url in snapshot.withheld:
        raise ProtocolError("nothing good was loaded yet; see the server's log, or run `fsxds check`", UNAVAILABLE)
    subscription = Subscription.for_request(type_url, request.names)
    selection = select(snapshot, subscription)
    if selection.missing and type_url in snapshot.incomplete:
        raise ProtocolError("a file that may define this resource was never good", UNAVAILABLE)
    response = SotwResponse(type_url, selection.version, nonce_of(selection.version), selection.resources)
    return response, subscription


# The event loop is lent to telling news for so long at a time, so that requests are heard in between.
WAKE_SLICE_S = 0.005


def make_services(
    store: SnapshotStore,
    observer: Observer,
    clients: ClientLedger,
    ttl_mode: TtlMode,
    extra: Iterable[grpc.GenericRpcHandler] = (),
) -> GrpcServices:
    """Make the services that serve `store`. Run them with `grpc_serving.listening_grpc`.

    Args:
        store: what is served.
        observer: hears of streams.
        clients: is told of each stream while it lasts.
        ttl_mode: which resources keep their time to live.
        extra: handlers of more services.
    """
    return GrpcServices(Discovery(store, observer, clients, ttl_mode), observer, extra)


class Discovery:
    """Carries the streams of all discovery services, and answers unary requests."""

    def __init__(self, store: SnapshotStore, observer: Observer, clients: ClientLedger, ttl_mode: TtlMode) -> None:
        self._store = store
        self._ttl_mode = ttl_mode
        self._memory = SharedMemory()
        self._shared = Surroundings(store, observer, clients, self._spawn, RequestReader(), ResponseWriter())
        # In the order of their arrival.
        self._calls: dict[StreamCall, None] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._is_draining = False

    @property
    def open_streams(self) -> int:
        """How many streams are open now."""
        return len(self._calls)

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Return what a server registers: bytes go in and out."""
        methods: dict[str, dict[str, grpc.RpcMethodHandler]] = defaultdict(dict)
        for method in METHODS:
            methods[method.service][method.name] = self._handler(method)
        return tuple(grpc.method_handlers_generic_handler(service, each) for service, each in methods.items())

    def _handler(self, method: DiscoveryMethod) -> grpc.RpcMethodHandler:
        observer = self._shared.observer
        if method.variant is Variant.FETCH:
            return grpc.unary_unary_rpc_method_handler(guarded(partial(self._fetch, method), method.name, observer))
        return grpc.stream_stream_rpc_method_handler(guarded(partial(self._converse, method), method.name, observer))

    async def _converse(self, method: DiscoveryMethod, _: object, context: Context) -> None:
        if self._is_draining:
            await context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
        make_core = DeltaStream if method.variant is Variant.DELTA else SotwStream
        core = make_core(self._memory, self._ttl_mode, is_aggregated=method.is_aggregated)
        call = StreamCall(self._shared, method, core, context)
        self._calls[call] = None
        try:
            await call.converse()
        finally:
            del self._calls[call]

    async def _fetch(self, method: DiscoveryMethod, content: bytes, context: Context) -> bytes:
        peer = peer_of(context.peer())
        try:
            request = self._shared.reader.sotw(content, method.row, peer)
            response, subscription = answer_fetch(request, self._store.current)
        except ProtocolError as error:
            self._shared.observer(RequestRejected(peer, error.code, str(error)))
            await context.abort(grpc.StatusCode[error.code], str(error))
        self._shared.observer(ResponseSent(request.node or Node("", peer=peer), subscription, response.version))
        return self._shared.writer.write(response)

    def speak_in(self, tasks: asyncio.TaskGroup) -> None:
        """Say in tasks of this group what streams have to say that nobody asked for just now."""
        self._tasks = tasks

    async def ring(self) -> Never:
        """Wake all streams for each newer snapshot."""
        generation = 0
        while True:
            generation = (await self._store.newer_than(generation)).generation
            slice_end_s = time.monotonic() + WAKE_SLICE_S
            for call in tuple(self._calls):
                call.wake()
                if time.monotonic() >= slice_end_s:
                    await asyncio.sleep(0)
                    slice_end_s = time.monotonic() + WAKE_SLICE_S

    async def first_snapshot(self) -> None:
        """Wait until there is something to serve."""
        await self._store.newer_than(0)

    async def drain(self) -> None:
        """End every stream after the response that is being written, and take no more."""
        self._is_draining = True
        async with asyncio.TaskGroup() as ending:
            for call in tuple(self._calls):
                ending.create_task(call.end())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._tasks is None:
            raise RuntimeError("speak_in() is called before the first stream comes")
        self._tasks.create_task(work)


class GrpcServices:
    """All services of a gRPC server: discovery, health, reflection, and more that are given.

    Attributes:
        handlers: what a server registers.
    """

    def __init__(self, discovery: Discovery, observer: Observer, extra: Iterable[grpc.GenericRpcHandler]) -> None:
        streams, more = discovery.handlers(), tuple(extra)
        services = tuple(
            handler.service_name() for handler in (*streams, *more) if isinstance(handler, grpc.ServiceRpcHandler)
        )
        self._discovery = discovery
        self._health = Health(services)
        self._lasting = LastingCalls(observer)
        others = (*more, self._health.handler, *Reflection((*services, HEALTH)).handlers)
        self.handlers = (*streams, *map(self._lasting.known, others))

    @property
    def open_streams(self) -> int:
        """How many discovery streams are open now."""
        return self._discovery.open_streams

    @asynccontextmanager
    async def running(self, supervisor: Supervisor) -> AsyncIterator[None]:
        """Wake streams and report health as long as the context lasts."""
        await self._health.tell(is_serving=False)
        async with asyncio.TaskGroup() as tasks:
            self._discovery.speak_in(tasks)
            lasting = (
                tasks.create_task(supervisor.run("streams", self._discovery.ring)),
                tasks.create_task(supervisor.run("health", self._tell_health)),
            )
            # The first step of each, before the first stream comes.
            await asyncio.sleep(0)
            yield
            for task in lasting:
                task.cancel()

    async def drain(self) -> None:
        """End every stream after the response that is being written, with UNAVAILABLE, and take no more."""
        await self._health.tell(is_serving=False)
        await self._lasting.end()
        await self._discovery.drain()

    async def _tell_health(self) -> None:
        await self._discovery.first_snapshot()
        await self._health.tell(is_serving=True)
