"""grpc.health.v1.Health: SERVING as soon as there is something to serve."""

from __future__ import annotations

from collections.abc import Iterable

import grpc
from grpc_health.v1 import health, health_pb2

from fsxds.transports.grpc_requests import Context, parse_or_abort

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
