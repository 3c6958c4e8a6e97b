"""Server reflection: what tools such as grpcurl need to know of the services; loaded when somebody asks."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc

from fsxds.resource_types import RESOURCE_TYPES
from fsxds.transports.grpc_requests import Context, parse_or_abort

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
