"""Services that know nothing of a stop, nor of errors: health, reflection, and what is given from elsewhere.

grpc.health.v1.Health: SERVING as soon as there is something to serve.

Server reflection: what tools such as grpcurl need to know of the services; loaded when somebody asks.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from functools import partial
from inspect import isasyncgenfunction
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2

from fsxds.resource_types import RESOURCE_TYPES
from fsxds.supervisor import ErrorObserver
from fsxds.transports.grpc_streams.requests import Context, guarded, parse_or_abort

STOPPING = "the server stops; connect again"


class LastingCalls:
    """Knows the calls that last, and ends them. Touched from the event loop only."""

    def __init__(self, observer: ErrorObserver) -> None:
        self._observer = observer
        self._calls: dict[_Writer, asyncio.Task[Any] | None] = {}

    def known(self, handler: grpc.GenericRpcHandler) -> grpc.GenericRpcHandler:
        """Return a handler that does the same, whose methods are guarded, and whose streaming calls are known."""
        return _Known(handler, self._adapted)

    async def end(self) -> None:
        """End all calls with UNAVAILABLE, each after the response that is being written."""
        async with asyncio.TaskGroup() as ending:
            for context, task in tuple(self._calls.items()):
                ending.create_task(_end(context, task))

    def _adapted(self, method: grpc.RpcMethodHandler, name: str) -> grpc.RpcMethodHandler:
        behavior = method.unary_unary or method.unary_stream or method.stream_stream
        if method.response_streaming:
            behavior = partial(self._last, behavior)
        make = _MAKERS[method.request_streaming, method.response_streaming]
        return make(guarded(behavior, name, self._observer), method.request_deserializer, method.response_serializer)

    async def _last(self, behavior: Callable[..., Any], request: Any, grpc_context: Context) -> None:
        context = _Writer(grpc_context)
        self._calls[context] = asyncio.current_task()
        try:
            if isasyncgenfunction(behavior):
                responses: AsyncIterator[Any] = behavior(request, context)
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


class _Known(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Has the methods of a handler, each as `adapt` makes it."""

    def __init__(
        self,
        handler: grpc.GenericRpcHandler,
        adapt: Callable[[grpc.RpcMethodHandler, str], grpc.RpcMethodHandler],
    ) -> None:
        self._handler = handler
        self._adapt = adapt

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the method that is called, None where it is another service's."""
        method = self._handler.service(handler_call_details)
        return None if method is None else self._adapt(method, handler_call_details.method)


async def _end(context: _Writer, task: asyncio.Task[Any] | None) -> None:
    await context.idle.wait()
    with suppress(grpc.aio.BaseError):
        await context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
    if task is not None:
        # It may wait for something else than its client.
        task.cancel()


class _Writer:
    """A call's context that tells when nothing is being written: only then can gRPC send a status."""

    def __init__(self, context: Context) -> None:
        self.idle = asyncio.Event()
        self.idle.set()
        self._context = context

    async def write(self, response: Any) -> None:
        """Write a response."""
        self.idle.clear()
        try:
            await self._context.write(response)
        finally:
            self.idle.set()

    def __getattr__(self, name: str) -> Any:
        """Return what gRPC's context has of this name."""
        return getattr(self._context, name)


HEALTH = health.SERVICE_NAME
OVERALL = ""


class Health:
    """Tells the health of the server and of each of its services, which are all alike."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = (OVERALL, *services)
        self._servicer = health.aio.HealthServicer()

    @property
    def handler(self) -> grpc.GenericRpcHandler:
        """What a server registers."""
        serializer = health_pb2.HealthCheckResponse.SerializeToString
        return grpc.method_handlers_generic_handler(
            HEALTH,
            {
                "Check": grpc.unary_unary_rpc_method_handler(self._check, response_serializer=serializer),
                "Watch": grpc.unary_stream_rpc_method_handler(self._watch, response_serializer=serializer),
            },
        )

    async def tell(self, *, is_serving: bool) -> None:
        """Tell everybody, also those who watch."""
        statuses = health_pb2.HealthCheckResponse
        for service in self._services:
            await self._servicer.set(service, statuses.SERVING if is_serving else statuses.NOT_SERVING)

    async def _check(self, content: bytes, context: Context) -> health_pb2.HealthCheckResponse:
        request = await parse_or_abort(health_pb2.HealthCheckRequest, content, context)
        return await self._servicer.Check(request, context)

    async def _watch(self, content: bytes, context: Context) -> None:
        request = await parse_or_abort(health_pb2.HealthCheckRequest, content, context)
        await self._servicer.Watch(request, context)


# Clients that are older know the first alone; the messages are the same.
SERVICES = ("grpc.reflection.v1alpha.ServerReflection", "grpc.reflection.v1.ServerReflection")


class Reflection:
    """Answers reflection for `services`."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = (*services, *SERVICES)
        self._servicer: Any = None

    @property
    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """What a server registers."""
        methods = {"ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(self._answer)}
        return tuple(grpc.method_handlers_generic_handler(service, methods) for service in SERVICES)

    async def _answer(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        from grpc_reflection.v1alpha import reflection, reflection_pb2  # noqa: PLC0415

        if self._servicer is None:
            # It takes a while, for which other clients need not wait.
            await asyncio.to_thread(import_descriptors, self._services)
            self._servicer = reflection.aio.ReflectionServicer(self._services)
        request = reflection_pb2.ServerReflectionRequest
        messages = (await parse_or_abort(request, content, context) async for content in requests)
        async for response in self._servicer.ServerReflectionInfo(messages, context):
            yield response.SerializeToString()


def import_descriptors(services: Iterable[str]) -> None:
    """Import the generated modules of services, and of the types that they serve, into protobuf's default pool."""
    names = (*services, *(row.message_type for row in RESOURCE_TYPES))
    for package in sorted({name.rpartition(".")[0] for name in names if name.startswith("envoy.")}):
        paths = importlib.import_module(package).__path__
        for module in pkgutil.iter_modules(paths):
            if module.name.endswith("_pb2"):
                importlib.import_module(f"{package}.{module.name}")
