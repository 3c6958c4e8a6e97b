from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.service.discovery.v3 import discovery_pb2

from fsxds.events.client_events import AckReceived, ResponseSent
from fsxds.events.event import Event
from fsxds.model.relay_ids import RelayIds
from fsxds.model.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.runtime.channels import Latest
from fsxds.runtime.supervisor import Supervisor
from fsxds.transports.exchange import Clients, Exchange
from fsxds.transports.grpc_streams.discovery import GrpcServices
from fsxds.transports.grpc_streams.grpc_server import listening_grpc
from fsxds.transports.grpc_streams.stream import StreamContext
from fsxds.transports.grpc_streams.stream_requests import STOPPING
from fsxds.transports.rest.poll_responses import INTERNAL
from tests.support.channels import OneChannel
from tests.support.errors import AT_ONCE, Recorder, make_supervisor
from tests.support.grpc_clients import (
    LOCALHOST,
    DiscoveryClient,
    GrpcServer,
    channel_to,
    method_path,
    names_in,
    serving_grpc,
)
from tests.support.patience import PATIENCE_S
from tests.support.polls import until
from tests.support.snapshots import snapshot, type_url

# VHDS asks for hosts of a route configuration, not for everything.
NAMES = {row: "r/h" if row.short_name == "vhds" else "a" for row in RESOURCE_TYPES}
EVERY_TYPE = {row.short_name.upper(): {NAMES[row]: "1"} for row in RESOURCE_TYPES}
SOTW_ROWS = [row for row in RESOURCE_TYPES if row.has_sotw]


def short_name(row: ResourceType) -> str:
    """Name a case of a test."""
    return row.short_name


@pytest.fixture
async def server() -> AsyncIterator[GrpcServer]:
    """A server that has one resource of every type."""
    async with serving_grpc() as server:
        server.publish(EVERY_TYPE)
        yield server


# Every variant of every type


@pytest.mark.parametrize("row", SOTW_ROWS, ids=short_name)
@pytest.mark.parametrize("is_aggregated", [False, True], ids=["alone", "ADS"])
async def test_state_of_the_world(server: GrpcServer, row: ResourceType, is_aggregated: bool) -> None:
    """A resource goes out, is taken, changes, and goes out again."""
    stream = server.stream("" if is_aggregated else row.short_name)
    await stream.ask(row.short_name, node="n1", resource_names=["a"])
    first = await stream.answer()
    await stream.take(first, resource_names=["a"])
    server.publish({**EVERY_TYPE, row.short_name.upper(): {"a": "2"}})
    second = await stream.answer()

    assert [(each.type_url, each.value) for each in first.resources] == [(row.type_url, b"a=1")]
    assert [(each.type_url, each.value) for each in second.resources] == [(row.type_url, b"a=2")]
    assert first.type_url == second.type_url == row.type_url
    assert first.version_info != second.version_info


@pytest.mark.parametrize("row", RESOURCE_TYPES, ids=short_name)
@pytest.mark.parametrize("is_aggregated", [False, True], ids=["alone", "ADS"])
async def test_delta(server: GrpcServer, row: ResourceType, is_aggregated: bool) -> None:
    """A resource goes out, is taken, changes and goes out again, and is removed."""
    if not (row.grpc or is_aggregated):
        pytest.skip("has no service of its own")
    name, stream = NAMES[row], server.delta("" if is_aggregated else row.short_name)
    await stream.ask(row.short_name, node="n1", resource_names_subscribe=[name])
    first = await stream.answer()
    await stream.take(first)
    server.publish({**EVERY_TYPE, row.short_name.upper(): {name: "2"}})
    second = await stream.answer()
    await stream.take(second)
    server.publish({**EVERY_TYPE, row.short_name.upper(): {}})
    third = await stream.answer()

    assert [(each.name, each.resource.value) for each in first.resources] == [(name, f"{name}=1".encode())]
    assert [(each.name, each.resource.value) for each in second.resources] == [(name, f"{name}=2".encode())]
    assert first.resources[0].version != second.resources[0].version
    assert {each.resource.type_url for each in (*first.resources, *second.resources)} == {row.type_url}
    assert list(third.removed_resources) == [name] or row.short_name == "vhds"
    assert [each.type_url for each in (first, second, third)] == [row.type_url] * 3


@pytest.mark.parametrize("row", SOTW_ROWS, ids=short_name)
async def test_fetch(server: GrpcServer, row: ResourceType) -> None:
    """One request, one answer."""
    found = await server.fetch(row.short_name, resource_names=["a", "absent"])

    assert [(each.type_url, each.value) for each in found.resources] == [(row.type_url, b"a=1")]
    assert (found.type_url, found.control_plane.identifier) == (row.type_url, "fsxds")
    assert server.recorder.sent[0][2] == found.version_info


NAME_OF_A_CLUSTER = "xdstp://x/envoy.config.cluster.v3.Cluster/c"


@pytest.mark.parametrize("is_aggregated", [False, True], ids=["alone", "ADS"])
async def test_refused_names(server: GrpcServer, is_aggregated: bool) -> None:
    """A name of another type is refused with the reason, on the wire and in the log; all else of the stream is served."""
    stream = server.stream("" if is_aggregated else "EDS")
    await stream.ask("EDS", node="n1", resource_names=[NAME_OF_A_CLUSTER, "a", "xdstp:bad"])
    first = await stream.answer()
    await stream.take(first, resource_names=[NAME_OF_A_CLUSTER, "a", "xdstp:bad"])
    server.publish({**EVERY_TYPE, "EDS": {"a": "2"}})
    second = await stream.answer()
    delta = server.delta("" if is_aggregated else "EDS")
    await delta.ask("EDS", node="n2", resource_names_subscribe=[NAME_OF_A_CLUSTER, "a"])
    third = await delta.answer()

    reasons = {each.resource_name.name: each.error_detail for each in first.resource_errors}
    assert {each.code for each in reasons.values()} == {grpc.StatusCode.INVALID_ARGUMENT.value[0]}
    assert "is a name of envoy.config.cluster.v3.Cluster" in reasons.pop(NAME_OF_A_CLUSTER).message
    assert "is no structured name; write xdstp://" in reasons.pop("xdstp:bad").message
    assert not reasons
    assert [each.value for each in second.resources] == [b"a=2"]
    assert not second.resource_errors
    assert (names_in(third), list(third.removed_resources)) == (["a"], [NAME_OF_A_CLUSTER])
    assert [each.resource_name.name for each in third.resource_errors] == [NAME_OF_A_CLUSTER]
    assert [status for _, status, _ in server.recorder.rejected] == ["INVALID_ARGUMENT"] * 3
    with pytest.raises(grpc.aio.AioRpcError, match=r"resource_names: .*is a name of") as caught:
        await server.fetch("EDS", resource_names=["a", NAME_OF_A_CLUSTER])
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_spellings(server: GrpcServer) -> None:
    """A resource is answered under its canonical name, on Delta streams with the client's spelling as an alias."""
    name, written = "xdstp://x/envoy.config.cluster.v3.Cluster/c%20d", "udpa://x/envoy.config.cluster.v3.Cluster/c d"
    server.publish({"CDS": {name: "1"}})
    delta, sotw = server.delta("CDS"), server.stream("CDS")
    await delta.ask(node="n1", resource_names_subscribe=[written])
    await sotw.ask(node="n1", resource_names=[written])
    (found,) = (await delta.answer()).resources

    assert (found.name, list(found.aliases)) == (name, [written])
    assert [each.value for each in (await sotw.answer()).resources] == [f"{name}=1".encode()]


async def test_a_wildcard_delta_client_that_comes_back(server: GrpcServer) -> None:
    """It says what it holds, and gets what is new alone."""
    server.publish({"CDS": {"a": "1", "b": "1", "c": "1"}})
    before = server.delta("CDS")
    await before.ask(node="n1")
    held = {resource.name: resource.version for resource in (await before.answer()).resources}
    before.call.cancel()
    server.publish({"CDS": {"a": "1", "b": "2"}})
    again = server.delta("CDS")
    await again.ask(node="n1", resource_names_subscribe=["*"], initial_resource_versions=held)
    responses = [await again.answer()]
    if not responses[0].removed_resources:
        responses.append(await again.answer())

    assert [name for response in responses for name in names_in(response)] == ["b"]
    assert [name for response in responses for name in response.removed_resources] == ["c"]


# Unary requests


async def refused(server: GrpcServer, *arguments: Any, **fields: Any) -> tuple[grpc.StatusCode, str]:
    """Return how a unary request is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.fetch(*arguments, **fields)
    return caught.value.code(), caught.value.details() or ""


async def test_a_bad_fetch(server: GrpcServer, caplog: pytest.LogCaptureFixture) -> None:
    """The client is told why, and so is who observes; gRPC logs nothing."""
    type_mismatch = await refused(server, "CDS", type_url=type_url("EDS"))
    no_message = await refused(server, "CDS", b"\xff\xff")

    assert type_mismatch[0] is no_message[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert "this method serves" in type_mismatch[1]
    assert [(status, message) for _, status, message in server.recorder.rejected] == [
        ("INVALID_ARGUMENT", type_mismatch[1]),
        ("INVALID_ARGUMENT", no_message[1]),
    ]
    assert caplog.records == []


async def test_a_fetch_before_there_is_anything() -> None:
    """It is told to come again."""
    async with serving_grpc() as server:
        code, message = await refused(server, "CDS")

    assert code is grpc.StatusCode.UNAVAILABLE
    assert message.startswith("no good content is loaded yet")


async def test_a_method_that_is_not_there(server: GrpcServer) -> None:
    """Virtual hosts have no state-of-the-world form."""
    stream = DiscoveryClient(server.channel, method_path("VHDS", "Stream"))

    assert (await stream.end())[0] is grpc.StatusCode.UNIMPLEMENTED


# More services, and errors of our own


async def test_services_that_are_given() -> None:
    """They are served beside the others, and told by health and reflection."""

    async def say(content: bytes, _: object) -> bytes:
        return content

    handler = grpc.method_handlers_generic_handler("some.Service", {"Say": grpc.unary_unary_rpc_method_handler(say)})
    services = GrpcServices(
        StreamContext(Exchange.of_streams(OneChannel()), Recorder(), Clients()),
        [handler],
        unready=Latest("starting"),
    )
    async with (
        listening_grpc(services, LOCALHOST, make_supervisor(), grace_s=1.0) as bound,
        channel_to(bound) as channel,
    ):
        assert await channel.unary_unary("/some.Service/Say")(b"x", timeout=PATIENCE_S) == b"x"
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        # The field `service = 1` of a request, the field `status = 1` of a response: NOT_SERVING.
        assert await health(b"\x0a\x0csome.Service", timeout=PATIENCE_S) == b"\x08\x02"


async def test_a_call_that_nobody_reads_does_not_keep_streams_from_ending() -> None:
    """When the server stops, they are told to connect again, while it waits for the call."""
    written: list[bytes] = []

    async def flood(_: bytes, __: object) -> AsyncIterator[bytes]:
        while True:
            written.append(b"")
            yield bytes(1_000_000)

    methods = {"Flood": grpc.unary_stream_rpc_method_handler(flood)}
    extra = (grpc.method_handlers_generic_handler("some.Service", methods),)
    channels = OneChannel()
    channels.store.publish(snapshot({"CDS": {"a": "1"}}))
    shared = StreamContext(Exchange.of_streams(channels), Recorder(), Clients())
    services = GrpcServices(shared, extra, unready=Latest(""))
    async with (
        listening_grpc(services, LOCALHOST, make_supervisor(), grace_s=0.2) as bound,
        channel_to(bound) as channel,
        channel_to(bound) as other,
        asyncio.TaskGroup() as tasks,
    ):
        call = other.unary_stream("/some.Service/Flood")(b"")
        await until(lambda: bool(written))
        stream = DiscoveryClient(channel, method_path("CDS", "Stream"))
        await stream.ask(node="n1")
        await stream.answer()
        draining = tasks.create_task(services.drain())

        async with asyncio.timeout(PATIENCE_S):
            ended = await stream.end()
        assert ended == (grpc.StatusCode.UNAVAILABLE, STOPPING)
        assert not draining.done()

        call.cancel()


class BrokenObserver(Recorder):
    """An observer with a mistake of ours."""

    def __call__(self, event: Event) -> None:
        """Fail with the first ACK, in the task that reads requests, and with the second response, in one that writes."""
        super().__call__(event)
        if isinstance(event, AckReceived):
            raise ZeroDivisionError("ack")
        if isinstance(event, ResponseSent) and len(self.sent) == 2:
            raise ZeroDivisionError("sent")


@pytest.mark.parametrize("mistake", ["ack", "sent"])
async def test_an_error_of_our_own_ends_its_stream(mistake: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its client learns that there was one; it is reported, and another client is served on."""
    channels, recorder = OneChannel(), BrokenObserver()
    services = GrpcServices(StreamContext(Exchange.of_streams(channels), recorder, Clients()), unready=Latest(""))
    supervisor = Supervisor(recorder, AT_ONCE)
    async with listening_grpc(services, LOCALHOST, supervisor, grace_s=0.2) as bound, channel_to(bound) as channel:
        channels.store.publish(snapshot({"CDS": {"a": "1"}}))
        stream = DiscoveryClient(channel, method_path("CDS", "Stream"))
        await stream.ask(node="n1")
        response = await stream.answer()
        if mistake == "ack":
            await stream.take(response)
        else:
            channels.store.publish(snapshot({"CDS": {"a": "2"}}, generation=2))
        assert await stream.end() == (grpc.StatusCode.INTERNAL, INTERNAL.message)

        other = DiscoveryClient(channel, method_path("CDS", "Stream"))
        await other.ask(node="n2")
        assert names_in(await other.answer()) == ["a"]

    where, error = recorder.errors[0]
    assert (where, str(error)) == ("gRPC StreamClusters", mistake)
    assert caplog.records == []


async def test_a_relay_that_asks_itself_is_rejected(server: GrpcServer) -> None:
    """A call that came through this relay ends with the path; others go on, and learn which relays they asked."""
    above, own, below = (digit * 16 for digit in "abc")
    relays = RelayIds(own)
    relays.receive("upstream", (above,))
    server.services._shared.relays = relays
    path = method_path("cds", "Stream")
    around = server.channel.stream_stream(path)(metadata=(("fsxds-relays", f"{below},{own}"),))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await around.read()
    call: Any = server.channel.stream_stream(path, response_deserializer=discovery_pb2.DiscoveryResponse.FromString)(
        metadata=(("fsxds-relays", below),)
    )
    await call.write(discovery_pb2.DiscoveryRequest(type_url=type_url("CDS")).SerializeToString())
    response = await call.read()
    during = relays.upwards
    relays.disconnected("upstream")
    server.publish({**EVERY_TYPE, "EDS": {"other": "2"}})
    alone = await server.fetch("cds")
    call.cancel()

    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert f"relay {own} is its own upstream: it asks itself through {below}, {own}; " in (caught.value.details() or "")
    assert (f"fsxds {own},{above}", f"{own},{below}") == (response.control_plane.identifier, during)
    assert f"fsxds {own}" == alone.control_plane.identifier
