"""Who may ask for what over gRPC: real servers, streams of both variants, and clients that try to slip through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from envoy.service.discovery.v3 import discovery_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from fsxds.events.client_events import LimitReached
from fsxds.protocol.messages import Node
from fsxds.runtime.access import Access, AccessInUse
from fsxds.runtime.asked_names import AskedNames
from fsxds.runtime.channels import Channel
from fsxds.runtime.views import Views
from fsxds.settings.access_rules import AccessRule, Tokens
from fsxds.settings.forms import TcpAddress, UnixAddress
from fsxds.settings.options import Settings
from fsxds.settings.view_rules import ViewRule
from fsxds.transports import exchange as exchange_module
from fsxds.transports.client_status.status_service import CLIENT_STATUS_SERVICE
from fsxds.transports.grpc_streams import discovery
from tests.support.channels import Denier
from tests.support.grpc_clients import GrpcServer, channel_to, method_path, names_in, serving_grpc
from tests.support.patience import NEVER_S, PATIENCE_S
from tests.support.polls import envoy_catalogue, until
from tests.support.snapshots import type_url

TOKENS = Tokens(tuple((name, sha256(f"{name}-token".encode()).digest()) for name in ("edge", "batch", "all")))
RULES = (AccessRule("edge", nodes=("edge-*",)), AccessRule("batch", nodes=("batch-*",)), AccessRule("all"))
ACCESS = Access(RULES, TOKENS)
DENIED, UNKNOWN = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
VARIANTS = pytest.mark.parametrize("word", ["Stream", "Delta"])
BOTH = {"CDS": {"a": "1"}, "SDS": {"s": "1"}}


@pytest.fixture
async def in_use() -> AccessInUse:
    """What holds, with a token for each of two fleets and one for all nodes."""
    return AccessInUse(ACCESS)


@pytest.fixture
async def server(in_use: AccessInUse) -> AsyncIterator[GrpcServer]:
    async with serving_grpc(catalogue=envoy_catalogue(), access=in_use) as running:
        running.publish(BOTH)
        yield running


class Client:
    """A stream, as a client sees it that sends what it likes."""

    def __init__(self, server: GrpcServer, path: str, token: str = "edge") -> None:
        is_delta = "/Delta" in path
        self.request = discovery_pb2.DeltaDiscoveryRequest if is_delta else discovery_pb2.DiscoveryRequest
        response = discovery_pb2.DeltaDiscoveryResponse if is_delta else discovery_pb2.DiscoveryResponse
        call = server.channel.stream_stream(path, response_deserializer=response.FromString)
        self.call: Any = call(metadata=[("authorization", f"Bearer {token}-token")] if token else None)

    async def ask(self, short_name: str, node: str = "", **fields: Any) -> None:
        """Send a request."""
        request: Any = self.request(type_url=type_url(short_name), **fields)
        request.node.id = node
        if not node:
            request.ClearField("node")
        # A client without credentials is denied before it sends anything; `end` says how.
        with suppress(grpc.aio.AioRpcError):
            await self.call.write(request.SerializeToString())

    async def names(self) -> list[str]:
        """Return the names in the next response."""
        async with asyncio.timeout(60):
            return names_in(await self.call.read())

    async def end(self) -> grpc.StatusCode:
        """Return how the server ends the stream, which sends nothing more before."""
        async with asyncio.timeout(60):
            with suppress(grpc.aio.AioRpcError):
                assert await self.call.read() is grpc.aio.EOF
            code: grpc.StatusCode = await self.call.code()
            return code


async def fetched(server: GrpcServer, fleet: str, *names: str, token: str = "edge") -> object:
    """Return the names that a node of a fleet is sent by a unary call, or how the call ends."""
    call = server.channel.unary_unary(
        method_path("CDS", "Fetch"), response_deserializer=discovery_pb2.DiscoveryResponse.FromString
    )
    request = discovery_pb2.DiscoveryRequest(resource_names=names)
    request.node.id = f"{fleet}-1"
    try:
        metadata = [("authorization", f"Bearer {token}-token")]
        return names_in(await call(request.SerializeToString(), metadata=metadata, timeout=PATIENCE_S))
    except grpc.aio.AioRpcError as error:
        return error.code()


@VARIANTS
async def test_a_node_that_asks_as_another_is_denied(server: GrpcServer, word: str) -> None:
    """With its reason and an event; nothing is sent, and others get what they asked for."""
    for token, node, answer in (
        ("edge", "edge-1", ["a"]),
        ("edge", "batch-1", DENIED),
        ("edge", "", DENIED),
        ("batch", "batch-1", ["a"]),
        ("wrong", "edge-1", UNKNOWN),
        ("", "edge-1", UNKNOWN),
    ):
        client = Client(server, method_path("CDS", word), token)
        await client.ask("CDS", node)
        if isinstance(answer, list):
            assert await client.names() == answer
            client.call.cancel()
        else:
            assert await client.end() is answer
    assert [status for _, status, _ in server.recorder.rejected] == [
        *("PERMISSION_DENIED",) * 2,
        *("UNAUTHENTICATED",) * 2,
    ]


@VARIANTS
async def test_a_later_node_does_not_slip_through(server: GrpcServer, word: str) -> None:
    """The first node of a stream stays, whatever its client says of itself later."""
    first = Client(server, method_path("", word))
    await first.ask("CDS", "edge-1")
    assert await first.names() == ["a"]
    await first.ask("SDS", "batch-1")
    assert await first.names() == ["s"]
    await until(lambda: {status.node.id for status in server.clients.statuses()} == {"edge-1"})
    first.call.cancel()


@VARIANTS
async def test_a_node_that_is_named_late_is_decided_about(in_use: AccessInUse, server: GrpcServer, word: str) -> None:
    """A stream that began without a node, which its client may, gets no other one's."""
    views = Views((ViewRule("named", (("id", ("*",)),), ("a",)), ViewRule("nameless", (), ("b",))))
    in_use.replace(Access((AccessRule("all", views=("nameless",)),), TOKENS, views=views))
    client = Client(server, method_path("", word), "all")
    await client.ask("CDS")
    assert await client.names() == ["a"]
    await client.ask("SDS", "batch-1")

    assert await client.end() is DENIED


@VARIANTS
async def test_streams_end_when_access_changes(in_use: AccessInUse, server: GrpcServer, word: str) -> None:
    """Those whose node may no longer; others go on, and get the next snapshot."""
    edge, batch = Client(server, method_path("CDS", word)), Client(server, method_path("CDS", word), "batch")
    for client, node in ((edge, "edge-1"), (batch, "batch-1")):
        await client.ask("CDS", node)
        assert await client.names() == ["a"]
    in_use.replace(Access(RULES[1:], TOKENS))
    assert await edge.end() is DENIED
    server.publish({"CDS": {"a": "2"}})

    assert await batch.names() == ["a"]
    await until(lambda: server.services.open_streams == 1)
    batch.call.cancel()


async def test_a_stranger_is_not_read(server: GrpcServer) -> None:
    """A stream without credentials ends before it says anything."""
    assert await Client(server, method_path("", "Stream"), "").end() is UNKNOWN


async def test_unary_fetch_is_decided(server: GrpcServer) -> None:
    """As a stream is."""
    pairs = ("edge", "edge"), ("batch", "edge"), ("edge", "x")
    answers = [await fetched(server, node, token=token) for node, token in pairs]

    assert answers == [["a"], DENIED, UNKNOWN]


@pytest.fixture
def asked(server: GrpcServer, monkeypatch: pytest.MonkeyPatch) -> AskedNames:
    """What clients of the server ask for; an upstream may have what it has not, and is waited for as long as need be."""
    monkeypatch.setattr(discovery, "ON_DEMAND_WAIT_S", NEVER_S)
    server.channels.on_demand = asked = AskedNames([Denier()])
    exchange = server.services._exchange
    asked.listeners[exchange] = exchange.wake_for_answers
    return asked


async def until_held(server: GrpcServer, count: int = 1) -> None:
    """Wait until so many unary requests wait for the upstream."""
    await until(lambda: server.services._shared.limiter.held == count)


def answer_all(asked: AskedNames) -> None:
    """Let the upstream say that it has none of it."""
    asked.upstreams = (Denier("b", "c"),)
    asked.answered()


async def test_a_fetch_that_waits_is_denied_when_access_changes(
    in_use: AccessInUse, server: GrpcServer, asked: AskedNames
) -> None:
    """At once, and not only when the upstream answers; one that may go on is answered."""
    edge, batch = (asyncio.ensure_future(fetched(server, node, "a", "b", token=node)) for node in ("edge", "batch"))
    await until_held(server, 2)
    in_use.replace(Access((AccessRule("edge", nodes=("other-*",)), *RULES[1:]), TOKENS))

    assert await edge is DENIED
    assert not batch.done()
    answer_all(asked)
    assert await batch == ["a"]
    assert [status for _, status, _ in server.recorder.rejected] == ["PERMISSION_DENIED"]
    exchange = server.services._exchange
    assert set(in_use.listeners) == {server.services, exchange}
    assert set(asked.listeners) == {exchange}
    assert not len(exchange) + server.channels.channel.readers
    assert not server.store.listeners


async def test_a_fetch_is_denied_when_access_changes_while_its_view_is_loaded(
    in_use: AccessInUse, server: GrpcServer, asked: AskedNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if that is not the first time: its node may have another view when the upstream has answered."""
    edge = asyncio.ensure_future(fetched(server, "edge", "b"))
    await until_held(server)
    is_loading, is_loaded = asyncio.Event(), asyncio.Event()

    async def channel_of(_: Node, **holds: object) -> Channel:
        assert holds["holds"] is None
        is_loading.set()
        await is_loaded.wait()
        return server.channels.channel

    monkeypatch.setattr(server.channels, "channel_of", channel_of)
    answer_all(asked)
    await is_loading.wait()
    in_use.replace(Access(RULES[1:], TOKENS))
    is_loaded.set()

    assert await edge is DENIED


async def test_fetches_that_wait_are_limited(server: GrpcServer, asked: AskedNames) -> None:
    """With polls and GETs that are held, and their names with those of all clients."""
    limiter = server.services._shared.limiter
    limiter.settings = Settings(max_held_polls=1, max_all_names=2)
    edge = asyncio.ensure_future(fetched(server, "edge", "a", "b"))
    await until_held(server)
    too_many = await fetched(server, "edge", "b")
    limiter.settings = Settings(max_all_names=2)
    too_many_names = await fetched(server, "edge", "b")
    answer_all(asked)

    assert [await edge, too_many, too_many_names] == [["a"], *(grpc.StatusCode.RESOURCE_EXHAUSTED,) * 2]
    assert (limiter.held, limiter.names) == (0, 0)
    assert [event.limit for event in server.recorder.of(LimitReached)] == ["max-held-polls", "max-all-names"]


async def test_client_status_and_reflection_are_decided_and_health_is_open(server: GrpcServer) -> None:
    """The status is about all nodes; reflection is for all who may ask for anything."""

    async def asked(path: str, token: str, content: bytes = b"", *, is_stream: bool = False) -> object:
        metadata = [("authorization", f"Bearer {token}-token")]
        try:
            if is_stream:
                call: Any = server.channel.stream_stream(path)(metadata=metadata)
                await call.write(content)
                await call.done_writing()
                response = await call.read()
                return "OK" if response is not grpc.aio.EOF else await call.code()
            await server.channel.unary_unary(path)(content, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return "OK"

    status, listed = f"/{CLIENT_STATUS_SERVICE}/", reflection_pb2.ServerReflectionRequest(list_services="")
    reflection = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    for token, of_status, of_reflection in (("all", "OK", "OK"), ("edge", DENIED, "OK"), ("x", UNKNOWN, UNKNOWN)):
        assert await asked(f"{status}FetchClientStatus", token) == of_status
        assert await asked(f"{status}StreamClientStatus", token, is_stream=True) == of_status
        assert await asked(reflection, token, listed.SerializeToString(), is_stream=True) == of_reflection
        health = health_pb2.HealthCheckRequest().SerializeToString()
        assert await asked("/grpc.health.v1.Health/Check", token, health) == "OK"


@pytest.fixture
async def in_clear(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GrpcServer]:
    """A server of whose peers nobody is on this machine, as far as it knows."""
    monkeypatch.setattr(exchange_module, "is_loopback", lambda _: False)
    async with serving_grpc(access=AccessInUse()) as running:
        running.publish(BOTH)
        yield running


@VARIANTS
async def test_secrets_are_withheld_in_clear(in_clear: GrpcServer, word: str) -> None:
    """A stream of secrets is denied; an aggregated one goes on without them, and with the node that came with them."""
    alone = Client(in_clear, method_path("SDS", word))
    await alone.ask("SDS", "edge-1")
    assert await alone.end() is DENIED

    together = Client(in_clear, method_path("", word))
    await together.ask("SDS", "edge-1")
    await together.ask("CDS")
    assert await together.names() == ["a"]
    assert [status.node.id for status in in_clear.clients.statuses()] == ["edge-1"]
    in_clear.publish({"CDS": {"a": "2"}, "SDS": {"s": "2"}})
    assert await together.names() == ["a"]
    together.call.cancel()


async def test_secrets_are_withheld_from_unary_calls_too(in_clear: GrpcServer) -> None:
    """And given where that is allowed; then they end when it is not any more."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await in_clear.fetch("SDS")
    assert (caught.value.code(), "--insecure-secrets" in caught.value.details()) == (DENIED, True)

    access = in_clear.services._shared.access
    access.replace(Access(has_insecure_secrets=True))
    assert names_in(await in_clear.fetch("SDS")) == ["s"]
    client = Client(in_clear, method_path("", "Stream"))
    await client.ask("SDS", "edge-1")
    assert await client.names() == ["s"]
    access.replace(Access())
    assert await client.end() is DENIED


async def test_peers_of_a_unix_socket_and_of_loopback_are_private(tmp_path: Path) -> None:
    """Secrets are served to them."""
    for address in (UnixAddress(tmp_path / "grpc.sock"), TcpAddress("localhost", 0)):
        async with serving_grpc(address) as running, channel_to(running.address) as channel:
            running.publish(BOTH)
            call = channel.unary_unary(
                method_path("SDS", "Fetch"), response_deserializer=discovery_pb2.DiscoveryResponse.FromString
            )
            assert names_in(await call(b"")) == ["s"]


@pytest.mark.parametrize("word", ["Stream", "Delta", "Fetch"])
async def test_pages_behind_grpc_web_are_rejected(word: str) -> None:
    """A page's origin, which a proxy of gRPC-Web passes on, is denied unless it is named; no browser asks otherwise."""
    ui = "https://ui.example"
    async with serving_grpc(settings=Settings(cors_origin=(ui,))) as server:
        server.publish(BOTH)
        foreign = [("origin", "https://evil.example")], [("sec-fetch-site", "cross-site")]
        request = discovery_pb2.DiscoveryRequest().SerializeToString()
        for metadata, is_answered in (*((each, False) for each in foreign), ([("origin", ui)], True)):
            if word == "Fetch":
                call: Any = server.channel.unary_unary(method_path("CDS", word))(request, metadata=metadata)
            else:
                call = server.channel.stream_stream(method_path("CDS", word))(metadata=metadata)
                # grpcio may report INTERNAL for a stream that ends while it writes.
                if is_answered:
                    await call.write(request)
            async with asyncio.timeout(60):
                if is_answered:
                    assert await (call if word == "Fetch" else call.read())
                else:
                    assert await call.code() is DENIED
                    assert "cors_origin" in await call.details()
