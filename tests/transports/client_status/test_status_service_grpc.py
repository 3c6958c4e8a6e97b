from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc.aio
import pytest
from envoy.admin.v3 import config_dump_shared_pb2
from envoy.service.status.v3 import csds_pb2, csds_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.protocol.messages import ClientStatus, Node
from fsxds.runtime.channels import Latest
from fsxds.transports.client_status import status_service
from fsxds.transports.client_status.status_service import CLIENT_STATUS_SERVICE, ClientReports, client_status_handlers
from fsxds.transports.exchange import Clients, Exchange
from fsxds.transports.grpc_streams.discovery import GrpcServices
from fsxds.transports.grpc_streams.grpc_server import listening_grpc
from fsxds.transports.grpc_streams.stream import StreamContext
from fsxds.transports.grpc_streams.stream_requests import LongLivedCalls
from tests.support.channels import OneChannel
from tests.support.errors import Recorder, make_supervisor
from tests.support.grpc_clients import LOCALHOST, channel_to, serving_grpc
from tests.support.polls import envoy_catalogue, until

CDS = BY_SHORT_NAME["cds"].type_url


@dataclass(frozen=True)
class Served:
    """A gRPC server with the service, and what talks to it."""

    clients: Clients
    recorder: Recorder
    stub: csds_pb2_grpc.ClientStatusDiscoveryServiceStub
    channel: grpc.aio.Channel
    server: grpc.aio.Server


@asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    """Run a server."""
    clients, recorder, server = Clients(), Recorder(), grpc.aio.server()
    [handler] = client_status_handlers(ClientReports(clients, envoy_catalogue()))
    server.add_generic_rpc_handlers([LongLivedCalls(recorder).adapt(handler)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = csds_pb2_grpc.ClientStatusDiscoveryServiceStub(channel)
        yield Served(clients, recorder, stub, channel, server)
    await server.stop(None)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A server that nobody else talks to."""
    async with serving() as served:
        yield served


def connect(served: Served, node_id: str) -> object:
    """Let a client open a stream."""
    return served.clients.opened(lambda: ClientStatus(Node(node_id), "StreamClusters"))


def ids(response: csds_pb2.ClientStatusResponse) -> list[str]:
    """Return the ids of the nodes that are told of."""
    return [config.node.id for config in response.config]


async def ask(served: Served, request: csds_pb2.ClientStatusRequest, *, is_stream: bool) -> None:
    """Ask by one of the two methods."""
    if is_stream:
        await anext(aiter(served.stub.StreamClientStatus(iter([request]))))
    else:
        await served.stub.FetchClientStatus(request)


def test_the_service_is_that_of_the_protocol() -> None:
    """By its full name, with its two methods."""
    [service] = csds_pb2.DESCRIPTOR.services_by_name.values()
    [handlers] = client_status_handlers(ClientReports(Clients(), envoy_catalogue()))

    assert service.full_name == CLIENT_STATUS_SERVICE == handlers.service_name()
    assert {method.name for method in service.methods} == {"FetchClientStatus", "StreamClientStatus"}


async def test_fetching(served: Served) -> None:
    """One request, one answer."""
    connect(served, "edge-1")

    assert ids(await served.stub.FetchClientStatus(csds_pb2.ClientStatusRequest())) == ["edge-1"]


async def test_each_request_of_a_stream_is_answered(served: Served) -> None:
    """With what is so by then, and by its own matchers."""
    connect(served, "edge-1")
    call = served.stub.StreamClientStatus()
    await call.write(csds_pb2.ClientStatusRequest())

    assert ids(await call.read()) == ["edge-1"]

    connect(served, "edge-2")
    await call.write(csds_pb2.ClientStatusRequest())

    assert ids(await call.read()) == ["edge-1", "edge-2"]

    await call.write(csds_pb2.ClientStatusRequest(node_matchers=[{"node_id": {"suffix": "2"}}]))

    assert ids(await call.read()) == ["edge-2"]

    await call.done_writing()

    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


@pytest.mark.parametrize("is_stream", [False, True])
async def test_bad_matchers_are_refused(served: Served, *, is_stream: bool) -> None:
    """INVALID_ARGUMENT, with the place."""
    request = csds_pb2.ClientStatusRequest(node_matchers=[{"node_id": {}}])
    with pytest.raises(grpc.aio.AioRpcError, match=r"node_matchers\[0\]") as refused:
        await ask(served, request, is_stream=is_stream)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert [status for _, status, _ in served.recorder.rejected] == ["INVALID_ARGUMENT"]


async def test_bad_bytes_are_refused(served: Served) -> None:
    """INVALID_ARGUMENT."""
    fetch = served.channel.unary_unary(f"/{CLIENT_STATUS_SERVICE}/FetchClientStatus")
    with pytest.raises(grpc.aio.AioRpcError, match="no ClientStatusRequest") as refused:
        await fetch(b"\xff")

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_answer_that_is_too_large_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """RESOURCE_EXHAUSTED."""
    connect(served, "edge-1")
    monkeypatch.setattr(status_service, "MOST_ANSWER_BYTES", 1)
    with pytest.raises(grpc.aio.AioRpcError, match="node_matchers") as refused:
        await served.stub.FetchClientStatus(csds_pb2.ClientStatusRequest())

    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_error_of_our_own_ends_the_call(served: Served, *, is_stream: bool) -> None:
    """It is reported; the client is told that it is not its own."""

    def broken() -> ClientStatus:
        raise ZeroDivisionError

    served.clients.opened(broken)
    request = csds_pb2.ClientStatusRequest()
    with pytest.raises(grpc.aio.AioRpcError) as told:
        await ask(served, request, is_stream=is_stream)

    assert told.value.code() is grpc.StatusCode.INTERNAL
    assert [type(error) for _, error in served.recorder.errors] == [ZeroDivisionError]


# What streams tell


async def told_of(reports: ClientReports) -> list[tuple[str, str, list[tuple[str, str, str, str]]]]:
    """Return of each client its id, its scope, and of each resource its name, version and both statuses."""
    response = csds_pb2.ClientStatusResponse.FromString(await reports.answer(b""))
    return [
        (
            config.node.id,
            config.client_scope,
            [
                (
                    each.name,
                    each.version_info,
                    csds_pb2.ConfigStatus.Name(each.config_status),
                    config_dump_shared_pb2.ClientResourceStatus.Name(each.client_status),
                )
                for each in config.generic_xds_configs
            ],
        )
        for config in response.config
    ]


@pytest.mark.parametrize("is_delta", [False, True])
async def test_a_stream_is_told_of_from_its_first_request_to_its_end(*, is_delta: bool) -> None:
    """Waiting, sent, accepted, rejected, gone: with the versions that its client knows."""
    scope = "DeltaClusters" if is_delta else "StreamClusters"
    async with serving_grpc() as server:
        reports = ClientReports(server.clients, envoy_catalogue())
        client = server.stream("CDS", is_delta=is_delta)
        await client.ask("CDS", node="n1")
        await until(lambda: bool(server.recorder.opened))

        assert await told_of(reports) == [("n1", scope, [("*", "", "NOT_SENT", "REQUESTED")])]

        first = server.publish({"CDS": {"a": "1"}})
        response = await client.answer()
        version = first.resources(CDS)["a"].version if is_delta else response.version_info
        await until(lambda: bool(server.recorder.sent))

        assert await told_of(reports) == [("n1", scope, [("a", version, "STALE", "REQUESTED")])]

        await client.take(response)
        await until(lambda: bool(server.recorder.acks))

        assert await told_of(reports) == [("n1", scope, [("a", version, "SYNCED", "ACKED")])]

        server.publish({"CDS": {"a": "2"}})
        await client.take(await client.answer(), nack="bad")
        await until(lambda: bool(server.recorder.nacks))

        assert await told_of(reports) == [("n1", scope, [("a", "" if is_delta else version, "ERROR", "NACKED")])]

        client.call.cancel()
        await until(lambda: bool(server.recorder.closed))

        assert await told_of(reports) == []


async def test_an_aggregated_stream_is_one_client() -> None:
    """With all types that it asked for, and the names that do not exist."""
    async with serving_grpc() as server:
        server.publish({"CDS": {"a": "1"}, "EDS": {"a": "1"}})
        client = server.stream()
        await client.ask("CDS", node="n1")
        await client.take(await client.answer())
        await client.ask("EDS", resource_names=["a", "b"])
        await client.take(await client.answer(), resource_names=["a", "b"])
        await until(lambda: len(server.recorder.acks) == 2)
        [(_, scope, resources)] = await told_of(ClientReports(server.clients, envoy_catalogue()))

        assert scope == "StreamAggregatedResources"
        assert [(name, *statuses) for name, _, *statuses in resources] == [
            ("a", "SYNCED", "ACKED"),
            ("a", "SYNCED", "ACKED"),
            ("b", "NOT_SENT", "DOES_NOT_EXIST"),
        ]


async def test_the_service_stands_beside_the_others() -> None:
    """As an extra of the discovery services, known to health checks."""
    channels, clients = OneChannel(), Clients()
    extra = client_status_handlers(ClientReports(clients, envoy_catalogue()))
    services = GrpcServices(
        StreamContext(Exchange.of_streams(channels), Recorder(), clients),
        extra,
        unready=Latest("starting"),
    )
    async with (
        listening_grpc(services, LOCALHOST, make_supervisor(), grace_s=0.1) as address,
        channel_to(address) as channel,
    ):
        stub = csds_pb2_grpc.ClientStatusDiscoveryServiceStub(channel)
        connected = clients.opened(lambda: ClientStatus(Node("edge-1"), "StreamClusters"))

        assert ids(await stub.FetchClientStatus(csds_pb2.ClientStatusRequest())) == ["edge-1"]

        clients.closed(connected)
        health = health_pb2_grpc.HealthStub(channel)
        told = await health.Check(health_pb2.HealthCheckRequest(service=CLIENT_STATUS_SERVICE))

        assert told.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_a_client_that_leaves_is_no_error(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Its stream is over, and nothing is logged."""
    call = served.stub.StreamClientStatus()
    await call.write(csds_pb2.ClientStatusRequest())
    await call.read()
    call.cancel()
    await served.stub.FetchClientStatus(csds_pb2.ClientStatusRequest())

    assert served.recorder.errors == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_stream_does_not_keep_the_server(caplog: pytest.LogCaptureFixture) -> None:
    """It ends with the server's grace, and nothing is logged."""
    async with serving() as served:
        call = served.stub.StreamClientStatus()
        await call.write(csds_pb2.ClientStatusRequest())
        await call.read()
        async with asyncio.timeout(60):
            await served.server.stop(0.05)

        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await call.read()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
