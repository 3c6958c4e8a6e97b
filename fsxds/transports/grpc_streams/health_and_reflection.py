"""Health, SERVING as soon as there is a snapshot, and reflection, for tools such as grpcurl: loaded with its first call."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

from fsxds.resource_types import RESOURCE_TYPES
from fsxds.transports.grpc_streams.stream_requests import Context, parse_or_abort

HEALTH = health.SERVICE_NAME
OVERALL = ""


class Health:
    """Reports the health of the server and of each of its services, which are all alike."""

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

    async def report(self, *, is_serving: bool) -> None:
        """Report it to all clients, also those that watch."""
        statuses = health_pb2.HealthCheckResponse
        for service in self._services:
            await self._servicer.set(service, statuses.SERVING if is_serving else statuses.NOT_SERVING)

    async def _check(self, content: bytes, context: Context) -> health_pb2.HealthCheckResponse:
        request = await parse_or_abort(health_pb2.HealthCheckRequest, content, context)
        return await self._servicer.Check(request, context)

    async def _watch(self, content: bytes, context: Context) -> None:
        request = await parse_or_abort(health_pb2.HealthCheckRequest, content, context)
        await self._servicer.Watch(request, context)


# Older clients know the first alone; the messages are the same.
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
            # It takes long, and other clients do not wait for it.
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
