"""A client on a stream, against a real gRPC server that says what it is told to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from fsxds.client.connection import Streaming, Wire, streaming
from fsxds.client.streams import StreamClient
from fsxds.client.updates import WRONG_PROTOCOL, ConnectionLostError, WrongResponseError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.protocol.messages import Node
from tests.client.scripted import CDS, EDS, Script, cluster, packed, scripted, sotw
from tests.support.tcp_relay import Relay

CLUSTERS = Streaming(Wire.SOTW, BY_SHORT_NAME["cds"])
NODE = Node("n1", "fleet", features=frozenset({"b", "a"}))


@asynccontextmanager
async def talking(wanted: Streaming = CLUSTERS) -> AsyncIterator[tuple[StreamClient, Script]]:
    """Yield a client that asked for all clusters, and the server that has heard it."""
    async with scripted(wanted.method) as script, streaming(script.target, wanted, NODE) as client:
        client.subscribe(CDS)
        yield client, script


async def test_an_update_is_accepted_when_the_next_is_asked_for() -> None:
    """`next()` says ACK to the update before it, with its version and nonce."""
    async with talking() as (client, script):
        script.say(sotw("1", cluster("a")), sotw("2", cluster("a"), cluster("b")))

        first, second = await client.next(), await client.next()
        opening, acked = await script.requested(), await script.requested()

    assert (["a"], ["a", "b"]) == (list(first.resources), list(second.resources))
    assert ("", "") == (opening.version_info, opening.response_nonce)
    assert ("1", "n1", False) == (acked.version_info, acked.response_nonce, acked.HasField("error_detail"))


async def test_the_node_is_told_once_per_stream() -> None:
    """The first request of each stream carries the node, later ones do not."""
    async with talking() as (client, script):
        script.say(sotw("1"))
        await client.next()
        client.ack()
        opening, acked = await script.requested(), await script.requested()
        script.say(None)
        with pytest.raises(ConnectionLostError, match="the server ended the stream"):
            await client.next()
        script.say(sotw("2"))
        await client.next()
        again = await script.requested()

    assert ("n1", "fleet", ["a", "b"]) == (opening.node.id, opening.node.cluster, list(opening.node.client_features))
    assert [True, False, True] == [request.HasField("node") for request in (opening, acked, again)]
    assert ("1", "") == (again.version_info, again.response_nonce)
    assert 2 == script.streams


@pytest.mark.parametrize(("agent", "told"), [("", "fsxds watch"), ("envoy", "envoy")])
async def test_who_the_client_is(agent: str, told: str) -> None:
    """The user agent is our own unless another is wanted: servers treat Envoy in a way of its own."""
    node = Node("n1", agent=agent)
    async with scripted(CLUSTERS.method) as script, streaming(script.target, CLUSTERS, node) as client:
        client.subscribe(CDS)
        await script_is_open(client, script)
        # A client that ends may not have written it.
        opening = await script.requested()

    assert told == opening.node.user_agent_name


async def test_a_refusal_says_why_and_keeps_the_version() -> None:
    """A NACK has the reason, the nonce refused and the version that was accepted before."""
    async with talking() as (client, script):
        script.say(sotw("1", cluster("a")), sotw("2", cluster("a", 2)))
        await client.next()
        await client.next()
        client.nack("no good")
        _, _, refused = [await script.requested() for _ in range(3)]

    assert ("1", "n2", "no good") == (refused.version_info, refused.response_nonce, refused.error_detail.message)


async def test_a_verdict_can_wait() -> None:
    """A deferred update is not accepted by `next()`, and can be later."""
    async with talking() as (client, script):
        script.say(sotw("1"), sotw("2"))
        await client.next()
        late = client.defer()
        await client.next()
        client.ack()
        client.accept(late)
        _, first, second = [await script.requested() for _ in range(3)]

    assert ("n2", "n1") == (first.response_nonce, second.response_nonce)


async def test_waiting_can_be_given_up() -> None:
    """A client that waits in vain for a while goes on with the same stream."""
    async with talking() as (client, script):
        await script_is_open(client, script)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.next()
        script.say(sotw("2", cluster("b")))
        update = await client.next()

    assert (["b"], 1) == (list(update.resources), script.streams)


async def script_is_open(client: StreamClient, script: Script) -> None:
    """Let one update pass."""
    script.say(sotw("1"))
    await client.next()


async def test_names_are_added_and_let_go() -> None:
    """Each request names all that is asked for then; a new stream begins with it."""
    wanted = Streaming(Wire.SOTW)
    async with scripted(wanted.method) as script, streaming(script.target, wanted, NODE) as client:
        client.subscribe(EDS, "a", "b")
        await script_is_open_for(EDS, client, script)
        client.subscribe(EDS, "c")
        client.unsubscribe(EDS, "a")
        asked = [await script.requested() for _ in range(3)]
        client.disconnect()
        await script.stream_ended()
        await script_is_open_for(EDS, client, script)
        again = await script.requested()

    assert [["a", "b"], ["a", "b", "c"], ["b", "c"]] == [list(request.resource_names) for request in asked]
    assert ["b", "c"] == list(again.resource_names)


async def script_is_open_for(type_url: str, client: StreamClient, script: Script) -> None:
    """Let one update of a type pass."""
    script.say(sotw("1", type_url=type_url))
    await client.next()


async def test_who_let_go_of_all_names_asks_for_nothing() -> None:
    """On a new stream, a type without names any more is not asked for: that would ask for everything."""
    wanted = Streaming(Wire.SOTW)
    async with scripted(wanted.method) as script, streaming(script.target, wanted, NODE) as client:
        client.subscribe(EDS, "a")
        client.unsubscribe(EDS, "a")
        client.subscribe(CDS)
        await script_is_open(client, script)
        first = await script.requested()

        assert (CDS, True) == (first.type_url, script.has_heard_all())


@pytest.mark.parametrize(
    ("response", "fault"),
    [
        (sotw("1", cluster("a"), cluster("a", 2)), '"a" is in it twice'),
        (sotw("1", packed(EDS, b"")), "a resource in it is of type type.googleapis.com/envoy.config.endpoint"),
        (sotw("1", packed(CDS, b"\xff")), "a resource in it is no message"),
    ],
)
async def test_what_cannot_be_taken_is_refused(response: bytes, fault: str) -> None:
    """A wrong answer is told to the caller, and to the server with a NACK."""
    async with talking() as (client, script):
        script.say(response)
        with pytest.raises(WrongResponseError, match=fault):
            await client.next()
        _, refused = [await script.requested() for _ in range(2)]

    assert refused.error_detail.message.startswith(fault)


async def test_what_was_not_asked_for_is_not_answered() -> None:
    """A response of another type is told to the caller; a NACK would ask for all of that type."""
    async with talking() as (client, script):
        script.say(sotw("1", type_url=EDS), sotw("2"))
        with pytest.raises(WrongResponseError, match="was not asked for"):
            await client.next()
        await client.next()
        client.ack()
        _, acked = [await script.requested() for _ in range(2)]

    assert (CDS, "n2") == (acked.type_url, acked.response_nonce)


async def test_a_large_response() -> None:
    """There is no limit to the size of a response; gRPC's own is 4 MiB."""
    async with talking() as (client, script):
        script.say(sotw("1", *(cluster(f"{number:01000}") for number in range(5000))))

        assert 5000 == len((await client.next()).resources)


async def test_no_response_at_all() -> None:
    """Bytes that are no message end the stream for the client."""
    async with talking() as (client, script):
        script.say(b"\xff")
        with pytest.raises(ConnectionLostError, match="is no DiscoveryResponse"):
            await client.next()


async def test_the_last_word_is_heard() -> None:
    """`finish()` accepts the last update, and waits until the server has heard it."""
    async with talking() as (client, script):
        script.say(sotw("1"))
        await client.next()
        await client.finish()
        _, acked = [await script.requested() for _ in range(2)]

    assert "n1" == acked.response_nonce


async def test_errors_of_the_body_come_out_as_they_are() -> None:
    """What is raised while a client lives is not wrapped in a group, and the client ends."""

    async def fail() -> None:
        async with talking() as (client, script):
            await script_is_open(client, script)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        await fail()


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    """It is told at once, in the system's words."""
    for target, words in (("127.0.0.1:1", "Connection refused"), (f"unix:{tmp_path}/s", "No such file or directory")):
        async with streaming(target, CLUSTERS, NODE) as client:
            client.subscribe(CDS)
            with pytest.raises(ConnectionLostError) as caught:
                await client.next()

        assert (f"cannot connect: {words}", "UNAVAILABLE") == (str(caught.value), caught.value.code)


async def test_a_connection_that_comes_later(tmp_path: Path) -> None:
    """Who lost a server waits for it, and hears when it is there."""
    address = f"unix:{tmp_path}/s"
    heard: list[str] = []
    async with streaming(address, CLUSTERS, NODE) as client:
        client.on_connected = lambda: heard.append("connected")
        client.subscribe(CDS)
        with pytest.raises(ConnectionLostError):
            await client.next()
        async with scripted(CLUSTERS.method, address) as script:
            script.say(sotw("1", cluster("a")))
            update = await client.next()
            client.disconnect()

    assert (["a"], ["connected"]) == (list(update.resources), heard)


async def test_a_connection_may_take_its_time() -> None:
    """A server that is far away, or on a busy machine, says nothing for a second, and is connected at the first attempt."""
    async with scripted(CLUSTERS.method) as script:
        with Relay(int(script.target.rpartition(":")[2]), pause_s=1.0) as relay:
            async with streaming(relay.address, CLUSTERS, NODE) as client:
                client.subscribe(CDS)
                script.say(sotw("1", cluster("a")))

                assert list((await client.next()).resources) == ["a"]


async def test_a_server_that_speaks_something_else() -> None:
    """What answers in HTTP/1 is told apart from what does not answer."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"-" * 200)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, streaming(f"{host}:{port}", CLUSTERS, NODE) as client:
        client.subscribe(CDS)
        with pytest.raises(ConnectionLostError, match="does not speak gRPC") as caught:
            await client.next()

    assert WRONG_PROTOCOL == caught.value.code


async def test_a_method_that_is_not_there() -> None:
    """That is final: asking again is answered the same."""
    other = Streaming(Wire.DELTA, BY_SHORT_NAME["cds"])
    async with scripted(other.method) as script, streaming(script.target, CLUSTERS, NODE) as client:
        client.subscribe(CDS)
        with pytest.raises(ConnectionLostError, match="the server has no StreamClusters") as caught:
            await client.next()

    assert ("UNIMPLEMENTED", True) == (caught.value.code, caught.value.is_final)


@pytest.mark.parametrize(
    ("code", "is_final"), [(grpc.StatusCode.UNAVAILABLE, False), (grpc.StatusCode.INVALID_ARGUMENT, True)]
)
async def test_a_status_ends_the_stream(code: grpc.StatusCode, is_final: bool) -> None:
    """The status and its words are told; what the client did wrong would be wrong again."""
    async with talking() as (client, script):
        # Twice: a stream that ends before its first request was sent is opened again, for the status.
        script.say(code, code)
        with pytest.raises(ConnectionLostError, match=f'{code.name}, "as the script says"') as caught:
            await client.next()

    assert is_final is caught.value.is_final


async def test_there_is_nothing_to_judge() -> None:
    """Without an update there is nothing to refuse or to defer, and nothing to accept."""
    async with talking() as (client, _):
        client.ack()
        with pytest.raises(ValueError, match="no unanswered update"):
            client.nack("no")
        with pytest.raises(ValueError, match="no unanswered update"):
            client.defer()
        await client.finish()
