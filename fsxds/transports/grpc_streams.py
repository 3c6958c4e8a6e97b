"""SotW, Delta and ADS over grpc.aio, and unary discovery, with health and reflection beside them."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Never

import grpc.aio

from fsxds.errors import ProtocolError
from fsxds.protocol.delta import DeltaStream
from fsxds.protocol.node import Node
from fsxds.protocol.sotw import SotwStream
from fsxds.protocol.time_to_live import TtlMode
from fsxds.protocol.views import Views
from fsxds.store import SnapshotStore
from fsxds.transports.failures import Failures
from fsxds.transports.grpc_calls import ClientLedger, StreamCall, Surroundings
from fsxds.transports.grpc_fetch import answer_fetch
from fsxds.transports.grpc_health import HEALTH, Health
from fsxds.transports.grpc_lasting import STOPPING, LastingCalls
from fsxds.transports.grpc_methods import METHODS, DiscoveryMethod, Variant
from fsxds.transports.grpc_reflection import Reflection
from fsxds.transports.grpc_requests import Context, RequestReader, peer_of
from fsxds.transports.grpc_wire import ResponseWriter
from fsxds.transports.stream_observer import StreamObserver

# The event loop is lent to telling news for so long at a time, so that requests are heard in between.
WAKE_SLICE_S = 0.005

INTERNAL = "an internal error of fsxds; it is told in the server's log"


def make_services(
    store: SnapshotStore,
    observer: StreamObserver,
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
    return GrpcServices(Discovery(store, observer, clients, ttl_mode), extra)


class ErrorEdge:
    """Carries errors of our own to `failures`; the client is told that there was one."""

    __slots__ = ("_context", "_failures")

    def __init__(self, failures: Failures, context: Context) -> None:
        self._failures = failures
        self._context = context

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # grpc.aio's own say that the client is gone.
        if isinstance(error, Exception) and not isinstance(error, grpc.aio.BaseError):
            self._failures.report(error)
            await self._context.abort(grpc.StatusCode.INTERNAL, INTERNAL)


class Discovery:
    """Carries the streams of all discovery services, and answers unary requests."""

    def __init__(
        self, store: SnapshotStore, observer: StreamObserver, clients: ClientLedger, ttl_mode: TtlMode
    ) -> None:
        self.failures = Failures()
        self._store = store
        self._ttl_mode = ttl_mode
        self._views = Views()
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
        async def stream(_: object, context: Context) -> None:
            async with ErrorEdge(self.failures, context):
                await self._converse(method, context)

        async def fetch(content: bytes, context: Context) -> bytes:
            async with ErrorEdge(self.failures, context):
                return await self._fetch(method, content, context)

        if method.variant is Variant.FETCH:
            return grpc.unary_unary_rpc_method_handler(fetch)
        return grpc.stream_stream_rpc_method_handler(stream)

    async def _converse(self, method: DiscoveryMethod, context: Context) -> None:
        if self._is_draining:
            await context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
        make_core = DeltaStream if method.variant is Variant.DELTA else SotwStream
        core = make_core(self._views, self._ttl_mode, is_aggregated=method.is_aggregated)
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
            self._shared.observer.request_refused(peer, error.code, str(error))
            await context.abort(grpc.StatusCode[error.code], str(error))
        self._shared.observer.response_sent(request.node or Node("", peer=peer), subscription, response.version)
        return self._shared.writer.sotw(response)

    async def ring(self, tasks: asyncio.TaskGroup) -> Never:
        """Wake all streams for each newer snapshot; what they have to say is said in tasks of `tasks`."""
        self._tasks = tasks
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
            raise RuntimeError("ring() runs before the first stream")
        self._tasks.create_task(work)


class GrpcServices:
    """All services of a gRPC server: discovery, health, reflection, and more that are given.

    Attributes:
        handlers: what a server registers.
        failures: errors of our own come out of `failures.wait()`; `running` waits for them too.
    """

    def __init__(self, discovery: Discovery, extra: Iterable[grpc.GenericRpcHandler]) -> None:
        streams, more = discovery.handlers(), tuple(extra)
        services = tuple(
            handler.service_name() for handler in (*streams, *more) if isinstance(handler, grpc.ServiceRpcHandler)
        )
        self.failures = discovery.failures
        self._discovery = discovery
        self._health = Health(services)
        self._lasting = LastingCalls()
        others = (*more, self._health.handler, *Reflection((*services, HEALTH)).handlers)
        self.handlers = (*streams, *map(self._lasting.known, others))

    @property
    def open_streams(self) -> int:
        """How many discovery streams are open now."""
        return self._discovery.open_streams

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Tell news as long as the context lasts; an error of our own ends it, in an exception group."""
        await self._health.tell(is_serving=False)
        async with asyncio.TaskGroup() as tasks:
            lasting = (
                tasks.create_task(self._discovery.ring(tasks)),
                tasks.create_task(self.failures.wait()),
                tasks.create_task(self._tell_health()),
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
