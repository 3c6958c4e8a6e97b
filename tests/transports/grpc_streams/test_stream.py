from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import grpc
import grpc.aio
import pytest
from envoy.config.core.v3 import base_pb2

from fsxds.model.resources import Reference, Rows
from fsxds.model.values import Severity
from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.sotw import SotwStream
from fsxds.protocol.subscription import Subscription
from fsxds.rollout.rejections import Nack
from fsxds.runtime.channels import ChannelClient
from fsxds.settings.options import Settings
from fsxds.transports.grpc_streams.stream import LONGEST_IGNORED, MOST_IGNORED_REPORTED, StreamContext
from fsxds.transports.grpc_streams.stream_requests import STOPPING
from fsxds.transports.rest.poll_responses import INTERNAL
from tests.support.faulty_server import Boom
from tests.support.grpc_clients import (
    DiscoveryClient,
    GrpcServer,
    channel_to,
    method_path,
    names_in,
    serving_grpc,
)
from tests.support.polls import until
from tests.support.snapshots import snapshot, type_url

CDS, EDS, VHDS = type_url("CDS"), type_url("EDS"), type_url("VHDS")
TWO = {"CDS": {"a": "1", "b": "1"}, "EDS": {"e": "1", "f": "1"}, "LDS": {"l": "1"}}


@pytest.fixture
async def server() -> AsyncIterator[GrpcServer]:
    """A server that has nothing yet."""
    async with serving_grpc() as server:
        yield server


# A conversation


async def test_a_stream_before_there_is_anything(server: GrpcServer) -> None:
    """Its request is answered as soon as something was loaded."""
    stream = server.stream("CDS")
    await stream.ask(node="n1")
    await until(lambda: bool(server.recorder.opened))
    first = server.publish(TWO)
    response = await stream.answer()

    assert names_in(response) == ["a", "b"]
    assert response.version_info == first.versions[CDS]
    assert response.control_plane.identifier == "fsxds"


async def test_news(server: GrpcServer) -> None:
    """Each change goes out; what was not asked for wakes nobody."""
    server.publish(TWO)
    stream = server.stream("EDS")
    await stream.ask(node="n1", resource_names=["e"])
    await stream.take(await stream.answer(), resource_names=["e"])
    await until(lambda: bool(server.recorder.acks))
    server.publish({**TWO, "EDS": {"e": "1", "f": "2"}})
    server.publish({**TWO, "EDS": {"e": "2", "f": "2"}})
    response = await stream.answer()

    assert [each.value for each in response.resources] == [b"e=2"]
    assert response.nonce == "2"


async def test_an_aggregated_stream(server: GrpcServer) -> None:
    """Several types on one stream; what is used comes before what uses it."""
    server.publish(TWO)
    stream = server.stream()
    await stream.ask("LDS", node="n1")
    assert (await stream.answer()).type_url == type_url("LDS")
    await stream.ask("CDS")
    assert (await stream.answer()).type_url == CDS
    server.publish({**TWO, "CDS": {"a": "2"}, "LDS": {"l": "2"}, "EDS": {}})

    assert [(await stream.answer()).type_url for _ in range(2)][-1] == type_url("LDS")


@pytest.mark.parametrize("is_delta", [False, True], ids=["SotW", "Delta"])
async def test_endpoints_follow_their_cluster(server: GrpcServer, is_delta: bool) -> None:
    """On an aggregated stream, as an Envoy waits for them without a word."""
    needs = Reference(EDS, "e", ("eds_cluster_config", "service_name"), Severity.WARNING)
    for content in "12":
        made = snapshot({"CDS": {"a": content}, "EDS": {"e": "1"}}, generation=int(content))
        clusters = {name: replace(row, references=(needs,)) for name, row in made.resources(CDS).items()}
        server.store.publish(replace(made, by_type={**made.by_type, CDS: Rows(CDS, clusters)}))
        if content == "1":
            stream = server.stream(is_delta=is_delta)
            await stream.ask("CDS", node="n1")
            await stream.take(await stream.answer())
            await stream.ask("EDS", **({"resource_names_subscribe": ["e"]} if is_delta else {"resource_names": ["e"]}))
            await stream.take(await stream.answer(), **({} if is_delta else {"resource_names": ["e"]}))
            await until(partial(has_acks, server, 2))

    assert [(await stream.answer()).type_url for _ in range(2)] == [CDS, EDS]


async def test_what_is_told_of_a_stream(server: GrpcServer) -> None:
    """Who came, what was sent, what became of it, and who went."""
    snapshot = server.publish(TWO)
    stream = server.stream("CDS")
    node = base_pb2.Node(id="n1", cluster="edge", user_agent_name="envoy", client_features=["x"])
    await stream.ask(node=node)
    await stream.take(await stream.answer())
    await until(lambda: bool(server.recorder.acks))
    await stream.call.done_writing()
    await stream.end()
    await until(lambda: bool(server.recorder.closed))
    expected = Node("n1", "edge", "127.0.0.1", frozenset({"x"}), "envoy")

    assert server.recorder.opened == server.recorder.closed == [(expected, "StreamClusters", "127.0.0.1")]
    assert server.recorder.sent == server.recorder.acks == [(expected, Subscription(CDS), snapshot.versions[CDS])]
    assert server.recorder.rejected == []


async def test_a_rejection_names_the_files(server: GrpcServer) -> None:
    """Who is told of a NACK learns which files it came from."""
    snapshot = server.publish(TWO)
    stream = server.stream("EDS")
    await stream.ask(node="n1", resource_names=["e"])
    await stream.take(await stream.answer(), resource_names=["e"], nack="no such thing")
    await until(lambda: bool(server.recorder.nacks))
    (subscription, verdict, files) = server.recorder.nacks[0]

    assert subscription == Subscription(EDS, frozenset({"e"}), wildcard=False)
    resource = snapshot.resources(EDS)["e"]
    nack = Nack(frozenset({((EDS, "e"), resource.version)}), words="no such thing")
    assert verdict == Acknowledgement(server.recorder.sent[0][2], accepted=False, reason="no such thing", nack=nack)
    assert files == (resource.origin.path,)


async def test_a_rejection_is_that_of_a_client_of_a_channel(server: GrpcServer) -> None:
    """The channel hears which client it was, and what it rejected; by its node id it votes."""
    snapshot = server.publish(TWO)
    heard: list[tuple[ChannelClient, Nack]] = []
    server.channels.channel.on_nack = lambda client, nack: heard.append((client, nack))
    stream = server.stream("CDS")
    await stream.ask(node="n1")
    await stream.take(await stream.answer(), nack="Error adding/updating cluster(s) b: no such thing")
    await until(lambda: bool(heard))
    [(client, nack)] = heard

    assert nack.versions == {((CDS, "b"), snapshot.resources(CDS)["b"].version)}
    assert nack.is_named
    assert (client.identity, client.has_returned) == ("n1", True)
    assert client.selected(CDS, frozenset("a")) == {"a"}
    assert not client.selected(EDS, frozenset("e"))


async def test_what_was_rejected_is_offered_again_later(server: GrpcServer) -> None:
    """After a second, by the stream's own alarm clock: no news is needed for it."""
    server.publish(TWO)
    stream = server.stream("CDS")
    await stream.ask(node="n1")
    await stream.take(await stream.answer(), nack="no such thing")
    began_s = asyncio.get_running_loop().time()
    response = await stream.answer()

    assert names_in(response) == ["a", "b"]
    assert asyncio.get_running_loop().time() - began_s > 0.9


async def test_the_node_is_said_once(server: GrpcServer) -> None:
    """It stays that of the first request."""
    server.publish(TWO)
    stream = server.stream()
    await stream.ask("CDS", node="n1")
    await stream.take(await stream.answer())
    await stream.ask("LDS", node="other")
    await stream.answer()
    await until(lambda: len(server.recorder.sent) == 2)

    assert {node.id for node, *_ in server.recorder.sent} == {"n1"}


async def test_a_client_without_a_name(server: GrpcServer) -> None:
    """It is served, and told of by its address."""
    server.publish(TWO)
    stream = server.stream("CDS")
    await stream.ask()
    await stream.answer()
    await until(lambda: bool(server.recorder.sent))

    assert server.recorder.sent[0][0] == Node("", peer="127.0.0.1")


async def test_clients_can_be_asked_for(server: GrpcServer) -> None:
    """Each stream is among the clients while it lasts."""
    server.publish(TWO)
    stream = server.stream("EDS")
    await stream.ask(node="n1", resource_names=["e", "missing"])
    await stream.answer()
    (status,) = server.clients.statuses()

    assert (status.node.id, status.service) == ("n1", "StreamEndpoints")
    assert [(watch.type_url, watch.missing) for watch in status.watches] == [(EDS, ("missing",))]
    stream.call.cancel()
    await until(lambda: not list(server.clients.statuses()))
    assert server.services.open_streams == 0


async def test_time_to_live_for_those_who_know_it() -> None:
    """The mode and the client's features reach the rules of time to live."""
    async with serving_grpc(settings=replace(Settings(), ttl="spec")) as server:
        snapshot = server.publish(TWO)
        rows = snapshot.resources(EDS)
        object.__setattr__(rows["e"], "ttl_s", 100.0)
        features = ["xds.config.supports-resource-ttl", "xds.config.supports-resource-in-sotw"]
        stream = server.stream("EDS")
        await stream.ask(node=base_pb2.Node(id="n1", client_features=features), resource_names=["e"])

        assert (await stream.answer()).resources[0].type_url.endswith("envoy.service.discovery.v3.Resource")


# What clients get wrong


async def test_another_type_than_the_methods(server: GrpcServer, caplog: pytest.LogCaptureFixture) -> None:
    """It ends the stream with a reason, and is told; nothing is logged by gRPC."""
    stream = server.stream("CDS")
    await stream.ask("EDS", node="n1")
    message = f"type_url: is {EDS}, but this method serves {CDS}; send that, or leave type_url out"

    assert await stream.end() == (grpc.StatusCode.INVALID_ARGUMENT, message)
    assert server.recorder.rejected == [("127.0.0.1", "INVALID_ARGUMENT", message)]
    assert server.recorder.opened == server.recorder.closed == []
    assert caplog.records == []


async def test_no_type_on_an_aggregated_stream(server: GrpcServer) -> None:
    """Nobody can know what is meant."""
    stream = server.stream()
    await stream.ask(node="n1")
    code, message = await stream.end()

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert message.startswith("type_url: is empty")


@pytest.mark.parametrize("word", ["Stream", "Delta"])
async def test_bytes_that_are_no_message(server: GrpcServer, word: str, caplog: pytest.LogCaptureFixture) -> None:
    """They end their stream with a reason; nothing is logged by gRPC, and nobody else notices."""
    server.publish(TWO)
    good, bad = server.stream("CDS"), server.stream("CDS", is_delta=word == "Delta")
    await bad.send(b"\xff\xff")
    code, message = await bad.end()

    assert (code, message[:29]) == (grpc.StatusCode.INVALID_ARGUMENT, "the message cannot be parsed;")
    assert caplog.records == []
    await good.ask(node="n1")
    assert names_in(await good.answer()) == ["a", "b"]


async def test_a_mistake_after_good_requests(server: GrpcServer) -> None:
    """The responses before it are written; the stream counts as closed."""
    server.publish(TWO)
    stream = server.stream("CDS")
    await stream.ask(node="n1")
    await stream.ask("EDS")
    assert names_in(await stream.answer()) == ["a", "b"]
    assert (await stream.end())[0] is grpc.StatusCode.INVALID_ARGUMENT
    await until(lambda: len(server.recorder.closed) == 1)


async def test_types_that_are_not_served(server: GrpcServer) -> None:
    """On an aggregated stream they are ignored, which is told once for each; the rest goes on."""
    server.publish(TWO)
    stream = server.stream()
    for _ in range(2):
        await stream.ask("type.googleapis.com/x.Y", node="n1")
        await stream.ask("VHDS")
    await stream.ask("CDS")
    response = await stream.answer()

    assert (response.type_url, response.nonce) == (CDS, "1")
    assert [status for _, status, _ in server.recorder.rejected] == ["IGNORED"] * 2
    assert [message for *_, message in server.recorder.rejected] == [
        "type_url: type.googleapis.com/x.Y is not served; its requests on this stream are ignored",
        f"type_url: {VHDS} is served over Delta alone; its requests on this stream are ignored",
    ]


async def test_ever_new_types_that_are_not_served(server: GrpcServer) -> None:
    """A client that makes up types fills neither the log nor the memory."""
    server.publish(TWO)
    stream = server.stream()
    for index in range(MOST_IGNORED_REPORTED + 5):
        await stream.ask(f"type.googleapis.com/x.Y{index}")
    await stream.ask("CDS")
    await stream.answer()

    assert len(server.recorder.rejected) == MOST_IGNORED_REPORTED


async def test_a_long_type_that_is_not_served_is_not_kept(server: GrpcServer) -> None:
    """The report and the memory of it have its beginning."""
    server.publish(TWO)
    stream = server.stream()
    await stream.ask(f"type.googleapis.com/{'x' * 1_000_000}")
    await stream.ask("CDS")
    await stream.answer()
    [call] = server.services._streams

    assert [len(message) < 300 for *_, message in server.recorder.rejected] == [True]
    # Nothing else shows what a stream keeps.
    assert sum(map(len, call._ignored)) <= LONGEST_IGNORED


# Clients that go, and slow ones

# A client that takes no more than it asks for, as one on a slow line.
NARROW = {"grpc.http2.lookahead_bytes": 65536, "grpc.http2.bdp_probe": 0}
LARGE = "x" * 4_000_000


@asynccontextmanager
async def slow_stream(server: GrpcServer, short_name: str = "") -> AsyncIterator[DiscoveryClient]:
    """Open a stream whose large responses stay with the server until they are read."""
    async with channel_to(server.address, **NARROW) as channel:
        yield DiscoveryClient(channel, method_path(short_name, "Stream"))


def is_writing(server: GrpcServer) -> bool:
    """Tell whether a response is being written: nothing else shows it from outside."""
    return any(stream._is_writing for stream in server.services._streams)


def has_acks(server: GrpcServer, count: int) -> bool:
    """Tell whether so many were recorder."""
    return len(server.recorder.acks) == count


def starts(response: Any) -> list[str]:
    """Return how the contents of a response begin: large ones are not worth to be printed."""
    return [packed.value[:3].decode() for packed in response.resources]


async def test_a_client_that_goes(server: GrpcServer, caplog: pytest.LogCaptureFixture) -> None:
    """Its stream ends, whether it said so or not; gRPC logs nothing."""
    server.publish(TWO)
    said, cancelled = server.stream("CDS"), server.stream("CDS")
    async with channel_to(server.address) as channel:
        lost = DiscoveryClient(channel, method_path("CDS", "Stream"))
        for stream in (said, cancelled, lost):
            await stream.ask(node="n1")
            await stream.answer()
        await said.call.done_writing()
        cancelled.call.cancel()
    await until(lambda: server.services.open_streams == 0)

    assert (await said.end())[0] is grpc.StatusCode.OK
    assert len(server.recorder.closed) == 3
    assert caplog.records == []


async def test_a_slow_client_skips(server: GrpcServer) -> None:
    """While it does not read, one response is on its way to it; then it gets the newest."""
    server.publish({"CDS": {"a": "1" + LARGE}})
    quick = server.stream("CDS")
    async with slow_stream(server, "CDS") as slow:
        for stream in (slow, quick):
            await stream.ask(node="n1")
        for content in range(2, 9):
            await quick.take(await quick.answer())
            await until(partial(has_acks, server, content - 1))
            server.publish({"CDS": {"a": str(content) + LARGE}})
        await quick.answer()

        assert [starts(await slow.answer()) for _ in range(2)] == [["a=1"], ["a=8"]]


async def test_clients_that_go_while_they_are_written_to(server: GrpcServer, caplog: pytest.LogCaptureFixture) -> None:
    """Their streams end; gRPC logs nothing of it, whether an answer or news was on the way."""
    server.publish({"CDS": {"a": "1" + LARGE}, "LDS": {"l": "1"}})
    for short_name in ("CDS", "LDS"):
        async with slow_stream(server, short_name) as stream:
            await stream.ask(node="n1")
            if short_name == "LDS":
                await stream.answer()
                server.publish({"LDS": {"l": "2" + LARGE}})
            await until(partial(is_writing, server))
        await until(lambda: server.services.open_streams == 0)

    assert len(server.recorder.closed) == 2
    assert caplog.records == []


async def test_a_request_waits_for_the_response_that_is_written(server: GrpcServer) -> None:
    """While a client does not read, its further requests are not worked on; when it does, all are answered."""
    server.publish({"EDS": dict.fromkeys("abcdef", "x" * 2000000)})
    stream = server.stream("EDS")
    asked = [list("abcdef"[: count + 1]) for count in range(6)]
    for names in asked:
        await stream.ask(node="n1", resource_names=names)

    got = [names_in(await stream.answer()) for _ in asked]
    assert got == [[name] for name in "abcdef"]
    assert await stream.is_silent()


async def test_news_while_a_response_is_written(server: GrpcServer) -> None:
    """What is published meanwhile goes out after it, without anybody asking; what nobody could see is skipped."""
    server.publish({"CDS": {"a": "1" + LARGE}})
    async with slow_stream(server, "CDS") as stream:
        await stream.ask(node="n1")
        await until(partial(is_writing, server))
        server.publish({"CDS": {"a": "2" + LARGE}})
        await asyncio.sleep(0)
        server.publish({"CDS": {"a": "3"}})

        assert [starts(await stream.answer()) for _ in range(2)] == [["a=1"], ["a=3"]]


async def test_a_request_while_news_are_written(server: GrpcServer) -> None:
    """Its answer goes out after them; the client said it before it saw them."""
    server.publish({"CDS": {"a": "1"}, "LDS": {"l": "1"}})
    async with slow_stream(server) as stream:
        await stream.ask("CDS", node="n1")
        await stream.take(await stream.answer())
        server.publish({"CDS": {"a": "2" + LARGE}, "LDS": {"l": "1"}})
        await until(partial(is_writing, server))
        await stream.ask("LDS")
        responses = [await stream.answer() for _ in range(2)]

    assert [starts(response) for response in responses] == [["a=2"], ["l=1"]]
    assert [response.nonce for response in responses] == ["2", "3"]


async def test_an_error_beside_a_request(server: GrpcServer) -> None:
    """The client gets the status once: what the request is answered is not sent beside it."""
    server.publish({"CDS": {"a": "1"}})
    stream = server.stream("CDS")
    await stream.ask(node="n1")
    response = await stream.answer()
    (call,) = server.services._streams
    # The client may have the response before the server is done with writing it.
    await until(lambda: not call._is_writing)
    held: list[Coroutine[Any, Any, None]] = []
    with (
        patch.object(SotwStream, "receive_snapshot", side_effect=Boom),
        patch.object(StreamContext, "spawn", lambda _, work: held.append(work)),
    ):
        server.publish({"CDS": {"a": "2"}})
        await until(lambda: bool(held))
    await stream.take(response, resource_names=["a", "b"])
    await until(lambda: call._core.subscription_of(CDS).names == {"a", "b"})
    await asyncio.gather(*held)

    assert await stream.end() == (grpc.StatusCode.INTERNAL, INTERNAL.message)


async def test_a_stream_before_its_first_request(server: GrpcServer) -> None:
    """It is not woken: nobody knows yet what it is served."""
    stream = server.stream("CDS")
    with patch.object(SotwStream, "receive_snapshot", side_effect=Boom):
        server.publish({"CDS": {"a": "1"}})
        other = server.stream("CDS")
        await other.ask(node="n2")
        await other.answer()
    await stream.ask(node="n1")

    assert starts(await stream.answer()) == ["a=1"]


async def test_an_error_within_a_request_while_news_are_written(server: GrpcServer) -> None:
    """The client gets the news, and then the status."""
    async with slow_stream(server, "CDS") as stream:
        await stream.ask(node="n1")
        await until(lambda: bool(server.recorder.opened))
        server.publish({"CDS": {"a": "1" + LARGE}})
        await until(partial(is_writing, server))
        with patch("fsxds.transports.grpc_streams.stream_requests._parsed", side_effect=Boom) as parsed:
            await stream.ask(node="n1")
            await until(lambda: parsed.called)

        assert starts(await stream.answer()) == ["a=1"]
        assert await stream.end() == (grpc.StatusCode.INTERNAL, INTERNAL.message)


# The end


async def test_streams_end_when_the_server_stops(server: GrpcServer) -> None:
    """Each of them with UNAVAILABLE, which makes a client connect again; who comes later is told the same."""
    server.publish(TWO)
    idle = server.stream("CDS")
    await idle.ask(node="n1")
    await idle.answer()
    await server.services.drain()

    assert await idle.end() == await server.stream("CDS").end() == (grpc.StatusCode.UNAVAILABLE, STOPPING)
    assert server.services.open_streams == 0


async def test_a_stream_ends_after_what_is_being_written(server: GrpcServer) -> None:
    """A response that was begun arrives whole; what was to follow it does not."""
    server.publish({"CDS": {"a": "1"}, "LDS": {"l": "1"}})
    async with slow_stream(server) as stream, asyncio.TaskGroup() as tasks:
        for short_name in ("CDS", "LDS"):
            await stream.ask(short_name, node="n1")
            await stream.take(await stream.answer())
        await until(partial(has_acks, server, 2))
        server.publish({"CDS": {"a": "2" + LARGE}, "LDS": {"l": "2" + LARGE}})
        await until(partial(is_writing, server))
        tasks.create_task(server.services.drain())
        await asyncio.sleep(0)
        last = await stream.answer()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.answer()

    assert starts(last) == ["a=2"]
    assert len(last.resources[0].value) == len(LARGE) + 3
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAVAILABLE, STOPPING)


async def test_a_stream_ends_after_its_first_response(server: GrpcServer) -> None:
    """With a status that gRPC would not send while that response is being written."""
    server.publish({"CDS": {"a": "1" + LARGE}})
    async with slow_stream(server, "CDS") as stream, asyncio.TaskGroup() as tasks:
        await stream.ask(node="n1")
        await until(partial(is_writing, server))
        tasks.create_task(server.services.drain())
        await asyncio.sleep(0)
        assert starts(await stream.answer()) == ["a=1"]
        assert await stream.end() == (grpc.StatusCode.UNAVAILABLE, STOPPING)


async def test_many_streams(server: GrpcServer) -> None:
    """Five hundred streams are told a change, each once."""
    server.publish(TWO)
    streams = [server.stream("EDS") for _ in range(500)]
    for stream in streams:
        await stream.ask(node="n1", resource_names=["e"])
    for stream in streams:
        await stream.answer()
    assert server.services.open_streams == 500
    server.publish({**TWO, "EDS": {"e": "2"}})
    answers = [await stream.answer() for stream in streams]

    assert {each.resources[0].value for each in answers} == {b"e=2"}
    assert len(server.recorder.sent) == 1000
