"""The link to an upstream, with real servers: which is asked, on which wire, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import web
from envoy.service.discovery.v3 import discovery_pb2

from fsxds.client.connection import Streaming, Wire
from fsxds.events.client_events import AckReceived, NackReceived
from fsxds.events.upstream_events import (
    UpstreamChanged,
    UpstreamConnected,
    UpstreamFailedOver,
    UpstreamLooped,
    UpstreamLost,
    UpstreamNacked,
    UpstreamRejected,
)
from fsxds.model.errors import UsageError
from fsxds.model.relay_ids import LoopError, RelayIds
from fsxds.settings.forms import TcpAddress
from fsxds.settings.upstream_rules import UpstreamNode, UpstreamRule
from fsxds.upstream import stream_session
from fsxds.upstream.server_order import ASKED_WITHIN_S
from tests.client.scripted import CDS, delta, packed, scripted, sotw, wrapped
from tests.client.scripted import cluster as scripted_cluster
from tests.support.certificates import Authority
from tests.support.grpc_clients import GrpcServer, serving_grpc
from tests.support.hostile_upstream import hostile
from tests.support.polls import named, running, snapshot_of
from tests.support.ports import free_address
from tests.upstream.linked import SETTINGS, SHORT, linked, rule_of, until
from tests.upstream.made import NOW_S, update
from tests.upstream.made import cluster as made_cluster
from tests.upstream.test_link_hostile import open_only

DELTA_ADS = Streaming(Wire.DELTA).method
SOTW_ADS = Streaming(Wire.SOTW).method


def publish(server: GrpcServer, *names: str) -> None:
    """Serve these clusters, and nothing else."""
    before = server.store.current
    generation = 1 if before is None else before.generation + 1
    server.store.publish(snapshot_of(generation, *(named("cds", name) for name in names)))


@dataclass
class Restarting:
    """A real server that is stopped and started at one address."""

    address: str
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        """Start it."""
        host, _, port = self.address.rpartition(":")
        server = await self._stack.enter_async_context(serving_grpc(TcpAddress(host, int(port)), grace_s=0.0))
        publish(server, *self.names)

    async def stop(self) -> None:
        """Stop it."""
        await self._stack.aclose()
        self._stack = AsyncExitStack()


@asynccontextmanager
async def restarting(*names: str) -> AsyncIterator[Restarting]:
    """Run a server that has these clusters."""
    server = Restarting(free_address(), names)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def test_what_a_server_has_is_followed() -> None:
    """By Delta: what is there, what changes and what goes."""
    async with serving_grpc() as server, linked(rule_of(str(server.address))) as relay:
        publish(server, "a", "b")
        await relay.until(lambda: relay.names == ["a", "b"])
        publish(server, "b", "c")
        await relay.until(lambda: relay.names == ["b", "c"])
        status = relay.upstream.status()
        changes = [(event.changed, event.removed) for event in relay.recorder.of(UpstreamChanged)]

    assert ("connected", "Delta ADS", str(server.address)) == (status.state, status.wire, status.server)
    assert [(2, 0), (1, 1)] == changes
    assert [] == relay.recorder.of(UpstreamLost)


async def test_a_server_that_restarts_loses_nothing_and_sends_nothing_again() -> None:
    """What is held stays meanwhile; the next stream begins with the versions of it."""
    firsts: list[Any] = []

    async def answer(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
        request = discovery_pb2.DeltaDiscoveryRequest.FromString(await anext(requests))
        while request.type_url != CDS:
            request.MergeFromString(await anext(requests))
        firsts.append(request)
        if len(firsts) > 1:
            await asyncio.Event().wait()
        await context.write(delta("1", wrapped(scripted_cluster("a"), "a", "va")))

    async with serving_calls(answer) as address, linked(rule_of(address)) as relay:
        await relay.until(lambda: len(firsts) > 1)

    assert ["a"] == relay.names
    assert [{}, {"a": "va"}] == [dict(request.initial_resource_versions) for request in firsts]
    assert all(request.HasField("node") for request in firsts)


async def test_the_next_server_is_asked_and_left_when_the_first_is_back() -> None:
    """Servers in order: the second while the first is away, the first as soon as it answers, and never nothing at all."""
    async with (
        restarting("a", "first") as first,
        restarting("a", "second") as second,
        linked(rule_of(first.address, second.address)) as relay,
    ):
        await relay.until(lambda: relay.names == ["a", "first"])
        await first.stop()
        await relay.until(lambda: relay.names == ["a", "second"])
        over = relay.upstream.status().server
        await first.start()
        await relay.until(lambda: relay.names == ["a", "first"])
        back = relay.upstream.status().server
        losses = len(relay.recorder.of(UpstreamLost))
        await second.stop()
        moves = relay.recorder.of(UpstreamFailedOver)

    assert (second.address, first.address) == (over, back)
    assert [(first.address, second.address), (second.address, first.address)] == [
        (event.before, event.server) for event in moves
    ]
    assert moves[0].reason
    assert not moves[1].reason
    # The second was left, not lost: nobody asks it any more.
    assert losses == len(relay.recorder.of(UpstreamLost))
    assert {first.address} == {event.server for event in relay.recorder.of(UpstreamLost)}


async def test_an_earlier_server_is_followed_soon_after_it_is_back() -> None:
    """However long its pauses would be without another one that answers."""
    pauses = replace(SHORT, longest_s=120.0)
    async with (
        restarting("a") as first,
        restarting("b") as second,
        linked(rule_of(first.address, second.address), back_off=pauses) as relay,
    ):
        await relay.until(lambda: relay.names == ["a"])
        await first.stop()
        await relay.until(lambda: relay.names == ["b"])
        relay.recorder.events.clear()
        await relay.until(lambda: len(relay.recorder.of(UpstreamLost)) >= 2)
        assert all(event.retry_s <= ASKED_WITHIN_S for event in relay.recorder.of(UpstreamLost))
        await first.start()
        await relay.until(lambda: relay.names == ["a"])


@pytest.mark.parametrize(("silent_s", "answering_s"), [(0.0, 0.2), (0.7, 0.0)], ids=["soon", "late"])
async def test_a_server_that_answers_and_dies_is_asked_ever_more_seldom(silent_s: float, answering_s: float) -> None:
    """A brief connection is a failure; the time before the first response does not count."""

    async def answer_and_die(_: Any, context: grpc.aio.ServicerContext) -> None:
        await asyncio.sleep(silent_s)
        await context.write(delta("1", wrapped(scripted_cluster("a"), "a")))
        await asyncio.sleep(answering_s)

    async with serving_calls(answer_and_die) as address, linked(rule_of(address)) as relay:
        await relay.until(lambda: len(relay.recorder.of(UpstreamLost)) == 9)
        pauses = [event.retry_s for event in relay.recorder.of(UpstreamLost)]

    # The chance that all of nine random ones are so short is below 1 in a million.
    assert max(pauses) > SHORT.first_s


async def test_a_server_that_is_silent_is_passed_over() -> None:
    """A server that takes the stream and says nothing is none, after its time; what it says late is taken in nevertheless."""
    settings = replace(SETTINGS, upstream_patience_s=0.3)
    async with (
        scripted(DELTA_ADS) as silent,
        restarting("b") as second,
        linked(rule_of(silent.target, second.address), settings) as relay,
    ):
        await relay.until(lambda: relay.names == ["b"])
        lost = relay.recorder.of(UpstreamLost)[0]

    assert (silent.target, "it gave no response within 0.3 s") == (lost.server, lost.reason)


async def test_a_server_without_delta() -> None:
    """It is asked by SotW, where a full state removes what is not in it; an ACK has the version."""
    async with scripted(SOTW_ADS) as script, linked(rule_of(script.target)) as relay:
        script.say(sotw("1", scripted_cluster("a"), scripted_cluster("b")))
        await relay.until(lambda: relay.names == ["a", "b"])
        script.say(sotw("2", scripted_cluster("b")))
        await relay.until(lambda: relay.names == ["b"])
        wire = relay.upstream.status().wire
        while (request := await script.requested()).version_info != "2":
            pass

    assert "SotW ADS" == wire
    assert ("n2", False) == (request.response_nonce, request.HasField("error_detail"))
    assert [] == relay.recorder.of(UpstreamLost)


async def test_a_server_without_xds() -> None:
    """Where there is neither Delta nor SotW, the server is told of, and asked again after the longest pause."""
    method = "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus"
    async with scripted(method) as script, linked(rule_of(script.target), holds="a") as relay:
        lost = await relay.until_lost("the server has no StreamAggregatedResources")
        state = relay.upstream.status().state

    assert (["a"], "refused") == (relay.names, state)
    assert lost.retry_s >= 0.15


async def test_a_server_of_rest() -> None:
    """A URL is polled, one poll for each type; what changes comes, and what goes."""
    async with running() as server:
        server.publish(named("cds", "a"), named("lds", "l"))
        async with linked(rule_of(f"http://{server.address}")) as relay:
            await relay.until(lambda: relay.names == ["a"])
            server.publish(named("cds", "b"))
            await relay.until(lambda: relay.names == ["b"])
            status = relay.upstream.status()

    assert ("REST", "connected") == (status.wire, status.state)
    assert [] == relay.recorder.of(UpstreamLost)


async def test_a_response_that_is_bad_in_part() -> None:
    """What is good in it is taken in, what is held of the rest stays, and the NACK names each."""
    garbled = wrapped(packed(CDS, b"\xff\xff"), "b")
    async with scripted(DELTA_ADS) as script, linked(rule_of(script.target), holds="b") as relay:
        script.say(delta("1", wrapped(scripted_cluster("a"), "a"), garbled, type_url=CDS))
        await relay.until(lambda: relay.names == ["a", "b"])
        while not (request := await script.requested()).HasField("error_detail"):
            pass

    assert "n1" == request.response_nonce
    assert '"b"' in request.error_detail.message or "b" in request.error_detail.message
    assert [script.target] == [event.server for event in relay.recorder.of(UpstreamRejected)]


async def test_a_response_that_was_taken_in_is_acked() -> None:
    """Each of them, at once: nobody waits for what nodes make of it."""
    async with scripted(DELTA_ADS) as script, linked(rule_of(script.target)) as relay:
        script.say(delta("1", wrapped(scripted_cluster("a"), "a")), delta("2", wrapped(scripted_cluster("b"), "b")))
        await relay.until(lambda: relay.names == ["a", "b"])
        answers: list[tuple[str, bool]] = []
        while len(answers) < 2:
            if (request := await script.requested()).response_nonce:
                answers.append((request.response_nonce, request.HasField("error_detail")))

    assert [("n1", False), ("n2", False)] == answers


@pytest.mark.parametrize("is_delta", [True, False], ids=["Delta", "SotW"])
async def test_what_too_many_nodes_reject_is_nacked_late(*, is_delta: bool) -> None:
    """The last response of the type, which was ACKed, in the words of a node; once."""
    async with scripted(DELTA_ADS if is_delta else SOTW_ADS) as script, linked(rule_of(script.target)) as relay:
        if is_delta:
            script.say(delta("1", wrapped(scripted_cluster("a"), "a")), delta("2", wrapped(scripted_cluster("b"), "b")))
        else:
            script.say(sotw("1", scripted_cluster("a")), sotw("2", scripted_cluster("a"), scripted_cluster("b")))
        await relay.until(lambda: relay.names == ["a", "b"])
        while (request := await script.requested()).response_nonce != "n2":
            pass
        relay.hold_back("a", "no such address")
        relay.hold_back("a", "no such address")
        rejected = await script.requested()
        script.say(delta("3", removed=("a",)) if is_delta else sotw("3", scripted_cluster("b")))
        after = await script.requested()

    assert not request.HasField("error_detail")
    assert ("n2", "node envoy-1: Error adding/updating cluster(s) a: no such address") == (
        rejected.response_nonce,
        rejected.error_detail.message,
    )
    assert ("n3", False) == (after.response_nonce, after.HasField("error_detail"))
    assert [True] == [event.was_sent for event in relay.recorder.of(UpstreamNacked)]


async def test_what_too_many_nodes_reject_is_nacked_late_in_a_poll() -> None:
    """At once: the poll that is held is not waited for."""
    async with running() as server:
        server.publish(named("cds", "a"))
        async with linked(rule_of(f"http://{server.address}")) as relay:
            await relay.until(lambda: relay.names == ["a"])
            await relay.until(lambda: server.recorder.of(AckReceived))
            relay.hold_back("a", "no such address")
            await relay.until(lambda: server.recorder.of(NackReceived))
            (event,) = server.recorder.of(NackReceived)

    assert "node envoy-1: Error adding/updating cluster(s) a: no such address" == event.acknowledgement.reason


async def test_a_loop_by_the_header() -> None:
    """A server that this relay is above of rejects the call; nothing is taken, and it is asked again after a long pause."""
    async with serving_grpc() as server:
        publish(server, "b")
        server.services._shared.relays = RelayIds("0" * 16)
        async with linked(rule_of(str(server.address)), holds="a") as relay:
            lost = await relay.until_lost("is its own upstream")
            looped = relay.recorder.of(UpstreamLooped)

    assert (["a"], 1) == (relay.names, len(looped))
    assert "it asks itself through" in lost.reason
    assert lost.retry_s >= 0.15
    assert relay.upstream.status().state == "refused"


async def test_a_loop_by_a_response() -> None:
    """A response that passed this relay is not taken in."""
    async with serving_grpc() as server:
        publish(server, "b")
        server.services._shared.relays = RelayIds("1" * 16)
        server.services._shared.relays.receive("x", ("0" * 16,))
        # The relay does not name itself, as one that connects at the same moment.
        relays = RelayIds("0" * 16)
        async with linked(rule_of(str(server.address)), holds="a", relays=Nameless(relays)) as relay:
            await relay.until(lambda: relay.recorder.of(UpstreamLooped))

    assert ["a"] == relay.names
    assert ("1" * 16, "0" * 16) == relay.recorder.of(UpstreamLooped)[0].relays


async def test_a_loop_in_which_both_wait_for_each_other() -> None:
    """Where a relay asks this one through itself, an upstream that is silent is left: it waits for this one."""
    async with hostile(open_only) as server, linked(rule_of(server.address)) as relay:
        await relay.until(lambda: server.connections)
        with pytest.raises(LoopError), relay.relays.calling(("1" * 16, relay.relays.own)):
            pass
        await relay.until(lambda: relay.recorder.of(UpstreamLooped))

    assert ("1" * 16, "0" * 16) == relay.recorder.of(UpstreamLooped)[0].relays


class Nameless(RelayIds):
    """Names nothing upwards."""

    def __init__(self, relays: RelayIds) -> None:
        super().__init__(relays.own)

    @property
    def upwards(self) -> str:
        """Nothing."""
        return ""


async def test_a_server_that_rejects_the_token(tmp_path: Path) -> None:
    """The token is read again for each attempt: a new one counts without a restart, and none is in what is said."""
    token = tmp_path / "token"
    token.write_text("old-old-old-old-old-old\n")
    sent: list[str] = []

    async def check(_: Any, context: grpc.aio.ServicerContext) -> None:
        sent.append(dict(context.invocation_metadata())["authorization"])
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")

    async with serving_calls(check) as address:
        rule = replace(rule_of(address), token=token)
        async with linked(rule, holds="a") as relay:
            lost = await relay.until_lost("UNAUTHENTICATED")
            token.write_text("new-new-new-new-new-new\n")
            await until(lambda: "Bearer new-new-new-new-new-new" in sent)
            token.unlink()
            missing = await relay.until_lost("the tokens cannot be read")

    assert "who are you?" in lost.reason
    assert "old-old" not in repr(relay.recorder.events)
    assert (["a"], "") == (relay.names, missing.reason.partition(str(token))[0])


async def test_a_token_that_is_gone_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream stays, although the server cannot be asked for manifests meanwhile."""
    monkeypatch.setattr(stream_session, "UNKNOWN_S", 0.02)
    monkeypatch.setattr(stream_session, "PAUSE_S", 0.02)
    token = tmp_path / "token"
    token.write_text("old-old-old-old-old-old\n")
    begun = asyncio.Event()

    async def wait(*_: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with serving_calls(wait) as address, linked(replace(rule_of(address), token=token)) as relay:
        await begun.wait()
        token.unlink()
        await asyncio.sleep(0.3)
        assert relay.recorder.of(UpstreamLost) == []


@asynccontextmanager
async def serving_calls(behaviour: Any, credentials: Any = None) -> AsyncIterator[str]:
    """Run a gRPC server whose ADS streams behave so."""
    server = grpc.aio.server(options=(("grpc.max_receive_message_length", 10_000),))
    handler = grpc.stream_stream_rpc_method_handler(behaviour)
    names = ("DeltaAggregatedResources", "StreamAggregatedResources")
    service = "envoy.service.discovery.v3.AggregatedDiscoveryService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, dict.fromkeys(names, handler)),))
    address = "127.0.0.1:0"
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_the_node_that_servers_are_told() -> None:
    """What the settings say of it; the relay wants times to live, since it passes them on."""
    node = UpstreamNode("relay-1", "relays", "eu", "eu-1", "", {"tier": ["a", 1]})
    settings = replace(SETTINGS, upstream_node=node)
    async with scripted(DELTA_ADS) as script, linked(rule_of(script.target), settings):
        request = await script.requested()

    told = request.node
    assert ("relay-1", "relays", "eu", "eu-1") == (told.id, told.cluster, told.locality.region, told.locality.zone)
    assert ("fsxds", ["a", 1]) == (told.user_agent_name, list(told.metadata["tier"]))
    assert "xds.config.supports-resource-ttl" in told.client_features


async def test_files_that_are_missing_at_the_start(tmp_path: Path) -> None:
    """They are the operator's mistake, before anything is connected."""
    rule = UpstreamRule(("127.0.0.1:1",), ca=tmp_path / "ca.pem")
    with pytest.raises(UsageError, match=r"ca\.pem"):
        async with linked(rule):
            pass


async def test_a_server_that_sends_without_end() -> None:
    """It is read slowly: the process has time for others, and what came last is held."""

    async def flood(_: Any, context: grpc.aio.ServicerContext) -> None:
        number = 0
        while True:
            number += 1
            resource = wrapped(scripted_cluster("a", number % 100 + 1), "a", str(number))
            await context.write(
                delta(str(number), resource, wrapped(scripted_cluster(f"b{number % 2}"), f"b{number % 2}"))
            )

    async with serving_calls(flood) as address, linked(rule_of(address), holds="held") as relay:
        await relay.until(lambda: len(relay.recorder.of(UpstreamChanged)) > 250)
        ticks = 0
        async with asyncio.timeout(30):
            for _ in range(100):
                await asyncio.sleep(0)
                ticks += 1

    assert (100, ["a", "b0", "b1", "held"]) == (ticks, relay.names)


async def test_types_and_names_that_nobody_asked_for() -> None:
    """A type that was not asked for, a name twice, and one that is removed and sent: the rest is taken in."""
    twice = wrapped(scripted_cluster("twice"), "twice")
    async with scripted(DELTA_ADS) as script, linked(rule_of(script.target), holds="twice") as relay:
        script.say(
            delta("1", wrapped(packed("type.googleapis.com/x.Y", b""), "y"), type_url="type.googleapis.com/x.Y"),
            delta("2", twice, twice, removed=("gone",)),
            delta("2", wrapped(scripted_cluster("a"), "a")),
        )
        await relay.until(lambda: relay.names == ["a", "twice"])

    assert [] == relay.recorder.of(UpstreamLost)
    assert 2 == len(relay.recorder.of(UpstreamRejected))


async def test_only_what_is_asked_for() -> None:
    """With names of clients alone, those are subscribed to while the stream goes on, and given up later."""
    settings = replace(SETTINGS, upstream_names="asked")
    async with serving_grpc() as server, linked(rule_of(str(server.address)), settings) as relay:
        publish(server, "a", "b")
        await relay.until(lambda: relay.recorder.of(UpstreamConnected))
        relay.upstream.ask({CDS: frozenset({"a"})}, 0.0)
        await relay.until(lambda: relay.names == ["a"])
        relay.upstream.ask({CDS: frozenset({"a", "b"})}, 0.0)
        await relay.until(lambda: relay.names == ["a", "b"])

    assert [] == relay.recorder.of(UpstreamLost)


async def send_a(_: Any, context: grpc.aio.ServicerContext) -> None:
    """Send a cluster, and keep the stream open."""
    await context.write(delta("1", wrapped(scripted_cluster("a"), "a")))
    await asyncio.Event().wait()


async def test_tls_on_both_sides(tmp_path: Path) -> None:
    """Servers are trusted by the CA that is given, and see the certificate of the relay; without either, the words say which."""
    authority, other = Authority("servers"), Authority("others")
    ca, wrong = authority.write(tmp_path / "ca.pem"), other.write(tmp_path / "wrong.pem")
    cert, key = authority.issue("relay").write(tmp_path, "relay")
    own = authority.issue("127.0.0.1")
    pair = ((own.key.encode(), own.chain.encode()),)
    credentials = grpc.ssl_server_credentials(pair, authority.chain.encode(), require_client_auth=True)
    async with serving_calls(send_a, credentials) as address:
        rule = UpstreamRule((address,), ca=ca, cert=cert, key=key)
        async with linked(rule) as relay:
            await relay.until(lambda: relay.names == ["a"])
        for bad, words in (
            (replace(rule, ca=wrong), "CERTIFICATE_VERIFY_FAILED"),
            (UpstreamRule((address,)), "cannot connect"),
        ):
            async with linked(bad, holds="b") as relay:
                await relay.until_lost(words)
                assert ["b"] == relay.names


async def test_a_server_that_takes_small_requests_alone() -> None:
    """Where it rejects the versions of what is held for their size, it is asked without, and for what it did not send by name."""
    asked: list[Any] = []

    async def answer(requests: Any, context: grpc.aio.ServicerContext) -> None:
        async for content in requests:
            request = discovery_pb2.DeltaDiscoveryRequest.FromString(content)
            asked.append(request)
            if request.type_url == CDS and not request.response_nonce:
                names = [name for name in request.resource_names_subscribe if name != "*"]
                here = [] if names else [wrapped(scripted_cluster("a"), "a")]
                await context.write(delta(str(len(asked)), *here, removed=tuple(names)))

    async with serving_calls(answer) as address, linked(rule_of(address)) as relay:
        held = {f"{number:050}": made_cluster(f"{number:050}") for number in range(150)}
        relay.upstream.receive(update(CDS, held), address, NOW_S)
        await relay.until(lambda: relay.names == ["a"])

    assert not any(request.initial_resource_versions for request in asked)


async def test_a_server_that_never_reads() -> None:
    """What it does not read does not pile up: there is an end to it, and what is held stays."""
    unread = delta("1", wrapped(scripted_cluster("a", 1), "a")), delta("2", wrapped(scripted_cluster("a", 2), "a"))

    async def flood(_: Any, context: grpc.aio.ServicerContext) -> None:
        while True:
            for response in unread:
                await context.write(response)

    async with serving_calls(flood) as address, linked(rule_of(address), holds="b") as relay:
        await relay.until(lambda: len(relay.recorder.of(UpstreamChanged)) > 300)

    assert ["a", "b"] == relay.names


async def test_a_type_that_a_server_of_rest_has_not() -> None:
    """An error of one type is no error of the server: others are followed, and it is asked for again."""
    rejected: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        if not request.path.endswith(":clusters"):
            rejected.append(request.path)
            return web.Response(status=503)
        body = await request.json()
        if body.get("version_info") == "1":
            await asyncio.sleep(60)
        resource = {"@type": CDS, "name": "a", "connect_timeout": "1s"}
        return web.json_response({"version_info": "1", "resources": [resource]})

    async with serving_http(answer) as address, linked(rule_of(address)) as relay:
        await relay.until(lambda: rejected and relay.names == ["a"])
        # It takes note of the last of them.
        await asyncio.sleep(0.1)

    assert [] == relay.recorder.of(UpstreamLost)


@asynccontextmanager
async def serving_http(answer: Any) -> AsyncIterator[str]:
    """Run an HTTP server, and yield its URL."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
