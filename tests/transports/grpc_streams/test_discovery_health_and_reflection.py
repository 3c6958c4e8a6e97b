from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fsxds.transports.grpc_streams.stream_requests import METHODS
from tests.support.grpc_clients import GrpcServer, serving_grpc
from tests.support.patience import PATIENCE_S

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
SERVICES = ["", *sorted({method.service for method in METHODS})]


@pytest.fixture
async def server() -> AsyncIterator[GrpcServer]:
    """A server that has nothing yet."""
    async with serving_grpc() as server:
        yield server


async def check(server: GrpcServer, service: str = "") -> int:
    """Return what is said of a service."""
    stub = health_pb2_grpc.HealthStub(server.channel)
    response = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE_S)
    return int(response.status)


@pytest.mark.parametrize("service", SERVICES)
async def test_serving_means_that_clients_are_served(server: GrpcServer, service: str) -> None:
    """No service is healthy while they are not."""
    watch = health_pb2_grpc.HealthStub(server.channel).Watch(health_pb2.HealthCheckRequest(service=service))

    assert await check(server, service) == NOT_SERVING
    assert (await watch.read()).status == NOT_SERVING
    server.unready.replace("")
    assert (await watch.read()).status == SERVING
    assert await check(server, service) == SERVING
    server.unready.replace("REST listener: degraded")
    assert (await watch.read()).status == NOT_SERVING


async def test_a_server_that_stops_is_not_healthy(server: GrpcServer) -> None:
    """Who asks is told so while it still answers."""
    server.unready.replace("")
    watch = health_pb2_grpc.HealthStub(server.channel).Watch(health_pb2.HealthCheckRequest())
    async with asyncio.timeout(PATIENCE_S):
        while (await watch.read()).status != SERVING:
            pass
    await server.services.drain()

    assert await check(server) == NOT_SERVING


async def test_an_unknown_service(server: GrpcServer) -> None:
    """It is neither healthy nor not."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(server, "no.such.Service")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("method", ["Check", "Watch"])
async def test_bytes_that_are_no_message(server: GrpcServer, method: str, caplog: pytest.LogCaptureFixture) -> None:
    """They are their sender's mistake, and nothing to log."""
    call = server.channel.unary_stream(f"/grpc.health.v1.Health/{method}")(b"\xff\xff")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert [] == [record for record in caplog.records if record.levelname == "ERROR"]
