from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import io
import itertools
import json
import logging
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

import aiohttp
import pytest

from fsxds.api.printing import Printer
from fsxds.events.client_events import RequestAnswered
from fsxds.model.relay_ids import RelayIds
from fsxds.model.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.model.resources import Origin
from fsxds.model.values import Version
from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.poll import PollMemory, PollRequest, Wait
from fsxds.runtime.access import Peer
from fsxds.runtime.channels import Channel, ChannelKey
from fsxds.settings.forms import TcpAddress
from fsxds.transports.exchange import Exchange, Requester
from fsxds.transports.rest import http_server
from fsxds.transports.rest.application import REST, ROWS
from fsxds.transports.rest.poll_requests import MAX_REQUEST_BYTES
from fsxds.transports.rest.poll_responses import LARGE_BODY_BYTES
from tests.support.patience import NEVER_S, PATIENCE_S
from tests.support.polls import REAL_REQUEST, Server, named, running, until

CLUSTERS = "/v3/discovery:clusters"
# A poll that says nothing else is held for so long.
MAX_HOLD_S = 60.0
REST_ROWS = [row for row in RESOURCE_TYPES if row.rest_path]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server that has nothing yet."""
    async with running() as server:
        yield server


# What is sent


async def test_the_first_poll_is_answered_at_once(server: Server) -> None:
    """A DiscoveryResponse in proto JSON with snake_case names, uncompressed."""
    snapshot = server.publish(named("cds", "a", alt_stat_name="x"), named("cds", "b"))
    type_url = REST_ROWS[2].type_url
    answer = await server.poll()

    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert "Content-Encoding" not in answer.headers
    assert answer.content == {
        "version_info": snapshot.versions[type_url],
        "resources": [{"@type": type_url, "name": "a", "alt_stat_name": "x"}, {"@type": type_url, "name": "b"}],
        "type_url": type_url,
        "nonce": snapshot.versions[type_url],
    }


@pytest.mark.parametrize("row", REST_ROWS, ids=lambda row: row.short_name)
async def test_each_path_serves_its_type(server: Server, row: ResourceType) -> None:
    """Eight paths, eight types."""
    server.publish(*(named(each.short_name, each.short_name) for each in REST_ROWS))
    answer = await server.poll(str(row.rest_path), type_url=row.type_url)

    assert answer.content["type_url"] == row.type_url
    assert [resource["@type"] for resource in answer.content["resources"]] == [row.type_url]


async def test_both_spellings_are_the_same_request(server: Server) -> None:
    """One in camelCase names one resource as snake_case does."""
    server.publish(named("eds", "a"), named("eds", "b"))
    snake = await server.poll("endpoints", resource_names=["a"], node={"id": "snake"})
    camel = await server.poll("endpoints", resourceNames=["a"], node={"id": "camel"})

    assert [resource["cluster_name"] for resource in snake.content["resources"]] == ["a"]
    assert camel.body == snake.body


async def test_a_percent_encoded_colon_is_a_colon(server: Server) -> None:
    """Some clients encode it."""
    server.publish(named("cds", "a"))
    answer = await server.ask("POST", "/v3/discovery%3Aclusters", json={})

    assert answer.status == 200


async def test_equal_content_is_equal_bytes(server: Server) -> None:
    """Two servers answer alike, nonce included."""
    server.publish(named("cds", "a"))
    first = await server.poll()
    async with running() as replica:
        replica.publish(named("cds", "b"))
        replica.publish(named("cds", "a"))

        assert (await replica.poll()).body == first.body


async def test_a_poll_without_a_node_is_answered(server: Server) -> None:
    """The node is optional."""
    server.publish(named("cds", "a"))
    answer = await server.ask("POST", CLUSTERS, data=b"{}", headers={"content-type": "application/json"})

    assert answer.status == 200


async def test_the_real_request_of_an_envoy(server: Server) -> None:
    """Its 77 kB are read once, whatever the number of polls; they bear a version that nobody sent."""
    server.publish(named("cds", "a"))
    headers = {"content-type": "application/json", "x-envoy-expected-rq-timeout-ms": "200"}
    answers = [await server.ask("POST", CLUSTERS, data=REAL_REQUEST.read_bytes(), headers=headers) for _ in range(3)]

    assert [answer.status for answer in answers] == [200, 304, 304]
    assert server.rest._requests.parsed == 1


async def test_the_client_is_known_by_its_address(server: Server) -> None:
    """The address is that of the connection; X-Forwarded-For, which anybody may write, is not looked at."""
    server.publish(named("cds", "a"))
    headers = {"x-forwarded-for": "192.0.2.1"}
    await server.ask("POST", CLUSTERS, json={"node": {"id": "n", "cluster": "c"}}, headers=headers)
    [(node, subscription, version)] = server.recorder.sent

    assert (node.id, node.cluster, node.peer) == ("n", "c", "127.0.0.1")
    assert subscription.wildcard
    assert version


# Holding


async def test_a_poll_with_the_current_version_is_held_until_the_deadline(server: Server) -> None:
    """A deadline of 400 ms leaves 300; the answer is 304 and has no body."""
    server.publish(named("cds", "a"))
    version = (await server.poll()).content["version_info"]
    answer = await server.poll(timeout_ms=400, version_info=version)

    assert answer.status == 304
    assert answer.body == b""
    assert "Content-Length" not in answer.headers
    assert "Content-Type" not in answer.headers
    assert 0.29 < answer.elapsed_s < MAX_HOLD_S


class DeadlineMemory(PollMemory):
    """Remembers also which polls ended with nothing new."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[str] = []

    def receive_deadline(self, request: PollRequest, now_s: float) -> None:
        """Remember, and go on."""
        self.ended.append(request.node.id)
        super().receive_deadline(request, now_s)


async def test_the_rules_hear_of_a_poll_that_ended_with_nothing(server: Server) -> None:
    """Once for each 304, and for no other answer."""
    memory = DeadlineMemory()
    server.rest._memory = memory
    server.publish(named("cds", "a"))
    version = (await server.poll()).content["version_info"]
    await server.poll(timeout_ms=200, version_info=version)
    await server.poll(timeout_ms=350, version_info=version)

    assert memory.ended == ["edge-1", "edge-1"]


@pytest.mark.parametrize("written", ["0.2", "0.2s", "200ms"])
async def test_the_query_tells_how_long_to_hold(server: Server, written: str) -> None:
    """In seconds, or with a unit."""
    server.publish(named("cds", "a"))
    version = (await server.poll()).content["version_info"]
    body = {"node": {"id": "edge-1"}, "version_info": version}
    answer = await server.ask("POST", f"{CLUSTERS}?timeout={written}", json=body)

    assert answer.status == 304
    assert 0.19 < answer.elapsed_s < MAX_HOLD_S


async def test_without_a_deadline_the_operator_decides() -> None:
    """`max_hold` ends a poll."""
    async with running(max_hold_s=0.2) as server:
        server.publish(named("cds", "a"))
        version = (await server.poll()).content["version_info"]
        answer = await server.poll(version_info=version)

        assert answer.status == 304
        assert 0.19 < answer.elapsed_s < MAX_HOLD_S


async def test_a_short_deadline_is_answered_at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under 300 ms nothing is held."""
    server.publish(named("cds", "a"))
    version = (await server.poll()).content["version_info"]
    # Without it a poll that is held fails.
    monkeypatch.delattr(Exchange, "wait")
    answer = await server.poll(timeout_ms=299, version_info=version)

    assert answer.status == 304


async def test_a_held_poll_is_answered_as_soon_as_there_is_news(server: Server) -> None:
    """A newer snapshot wakes it."""
    server.publish(named("cds", "a"))
    version = (await server.poll()).content["version_info"]
    async with asyncio.TaskGroup() as tasks:
        poll = tasks.create_task(server.poll(timeout_ms=30_000, version_info=version))
        await server.until_held()
        server.publish(named("cds", "b"))
    answer = poll.result()

    assert answer.status == 200
    assert [resource["name"] for resource in answer.content["resources"]] == ["b"]
    assert not len(server.rest.exchange)


async def test_other_news_does_not_answer_a_held_poll(server: Server) -> None:
    """A change of another type, or of another name, leaves it where it is."""
    server.publish(named("eds", "a"))
    version = (await server.poll("endpoints", resource_names=["a"])).content["version_info"]
    async with asyncio.TaskGroup() as tasks:
        poll = tasks.create_task(server.poll("endpoints", 30_000, resource_names=["a"], version_info=version))
        await server.until_held()
        server.publish(named("eds", "a"), named("cds", "a"))
        await server.until_held()
        server.publish(named("eds", "a"), named("eds", "b"))
        # It looks at the news first.
        server.rest.exchange.drain()

    assert poll.result().status == 304


async def test_a_name_that_does_not_exist_is_delivered_when_it_does(server: Server) -> None:
    """200 without it at first, 200 with it later."""
    server.publish(named("eds", "b"))
    first = await server.poll("endpoints", resource_names=["a"])
    async with asyncio.TaskGroup() as tasks:
        version = first.content["version_info"]
        poll = tasks.create_task(server.poll("endpoints", 30_000, resource_names=["a"], version_info=version))
        await server.until_held()
        server.publish(named("eds", "a"))

    assert first.content["resources"] == []
    assert [resource["cluster_name"] for resource in poll.result().content["resources"]] == ["a"]


async def test_a_secret_that_does_not_exist_is_waited_for(server: Server) -> None:
    """Envoy rejects an answer without it, so there is none."""
    server.publish()
    answer = await server.poll("secrets", 400, resource_names=["tls"])

    assert answer.status == 304
    assert answer.elapsed_s > 0.29


async def test_before_anything_was_loaded_there_is_no_answer(server: Server) -> None:
    """503 for who starts; who holds something is held, and gets the first snapshot when it is there."""
    starting = await server.poll()
    async with asyncio.TaskGroup() as tasks:
        poll = tasks.create_task(server.poll(timeout_ms=30_000, version_info="old", node={"id": "edge-2"}))
        await server.until_held()
        server.publish(named("cds", "a"))

    assert (starting.status, starting.content["code"], starting.headers["Retry-After"]) == (503, 14, "1")
    assert poll.result().status == 200
    assert [status for _, status, _ in server.recorder.rejected] == [503]


async def test_who_was_led_on_by_another_server_leaves_its_place(server: Server) -> None:
    """It brings what it was never sent here: it follows the channel of those who come, and not that in which it was left."""
    server.publish(named("cds", "a"))
    left = server.channels.channel
    first = (await server.poll()).content["version_info"]
    server.channels.channel = others = Channel(ChannelKey(), left.store)
    for version in (first, "", first):
        polling = asyncio.create_task(server.poll(version_info=version, timeout_ms=400))
        await polling
        assert len(left.clients) == 1
    await server.poll(version_info="elsewhere", timeout_ms=400)
    assert (len(left.clients), len(others.clients)) == (0, 1)


async def test_all_held_polls_are_woken_by_one_change(server: Server) -> None:
    """A hundred polls of a hundred nodes get the same bytes, which were written once."""
    server.publish(named("cds", "a"))
    version = (await server.poll()).content["version_info"]
    async with asyncio.TaskGroup() as tasks:
        polls = [
            tasks.create_task(server.poll(version_info=version, node={"id": f"node-{number}"})) for number in range(100)
        ]
        await server.until_held(100)
        server.publish(named("cds", "a"), named("cds", "b"))

    assert len({poll.result().body for poll in polls}) == 1
    assert server.rest._bodies.rendered == 2


ASKER = Requester(Peer("127.0.0.1", is_private=True), Node("edge-1"))


@dataclass
class Waiter:
    """Waits with polls."""

    channel: Channel
    limits: set[asyncio.Timeout] = field(default_factory=set)


async def test_who_is_woken_at_any_moment_of_its_end_keeps_nobody_asleep(server: Server) -> None:
    """A wait ends within some turns of the event loop; whoever wakes it again in these wakes all others as well."""
    exchange, rounds = server.rest.exchange, 8
    ends: list[float] = []

    async def wait() -> None:
        for _ in range(rounds):
            waiter = Waiter(server.channels.channel)
            until_s = asyncio.get_running_loop().time() + NEVER_S
            ends.append(await exchange.wait(ASKER, waiter, None, Wait(until_s, awaits_answers=True)))

    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(wait()) for _ in range(3)]
        async with asyncio.timeout(PATIENCE_S):
            while not all(task.done() for task in waiting):
                exchange.wake_for_answers()
                exchange.wake()
                await asyncio.sleep(0)

    assert len(ends) == 3 * rounds


async def test_a_client_that_goes_away_frees_its_handler(server: Server) -> None:
    """Nothing is left of its poll."""
    server.publish(named("cds", "a"))
    version = (await server.poll()).content["version_info"]
    poll = asyncio.ensure_future(server.poll(version_info=version))
    await server.until_held()
    poll.cancel()

    await until(lambda: not len(server.rest.exchange))


async def test_a_held_poll_does_not_hold_its_body(server: Server) -> None:
    """A hundred Envoys with requests of 77 kB leave some kB each."""
    server.publish(named("cds", "a"))
    content = json.loads(REAL_REQUEST.read_bytes())
    content["version_info"] = (await server.poll()).content["version_info"]
    assert isinstance(server.address, TcpAddress)
    writers = []
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(100):
            content["node"]["id"] = f"node-{number}"
            body = json.dumps(content).encode()
            _, writer = await asyncio.open_connection(server.address.host, server.address.port)
            writer.write(
                f"POST {CLUSTERS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            writers.append(writer)
        await server.until_held(100)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for writer in writers:
        writer.transport.abort()

    # Both ends of the connections are in this process.
    assert (after - before) / 100 < 40_000


# Verdicts


async def test_an_accepted_version_is_told_once(server: Server) -> None:
    """The next poll bears it."""
    server.publish(named("cds", "a"))
    version = (await server.poll()).content["version_info"]
    for _ in range(2):
        await server.poll(timeout_ms=200, version_info=version)

    assert [told for _, _, told in server.recorder.acks] == [version]


async def test_a_rejection_in_words_is_told_with_its_files(server: Server) -> None:
    """`error_detail.message` is the reason."""
    server.publish(named("cds", "a"))
    content = (await server.poll()).content
    detail = {"code": 3, "message": "no such thing"}
    await server.poll(timeout_ms=200, response_nonce=content["nonce"], error_detail=detail)

    verdict = Acknowledgement(Version(content["version_info"]), accepted=False, reason="no such thing")
    assert [nack[1:] for nack in server.recorder.nacks] == [(verdict, (PurePosixPath("edge.yaml"),))]


async def test_a_rejection_of_named_resources_is_told_with_their_own_files(server: Server) -> None:
    """Not with those of the last change of their type, which may be of other names."""
    web = replace(named("eds", "web"), origin=Origin(PurePosixPath("web.yaml"), 1))
    server.publish(web, named("eds", "other"))
    content = (await server.poll("endpoints", resource_names=["web"])).content
    detail = {"message": "no"}
    await server.poll("endpoints", 200, resource_names=["web"], response_nonce=content["nonce"], error_detail=detail)

    assert [files for *_, files in server.recorder.nacks] == [(PurePosixPath("web.yaml"),)]


async def test_a_rejected_version_is_offered_again_after_a_while(server: Server) -> None:
    """The version before comes back: held for a second, then sent again."""
    server.publish(named("cds", "a"))
    first = (await server.poll()).content["version_info"]
    server.publish(named("cds", "b"))
    second = await server.poll(version_info=first)
    again = await server.poll(version_info=first)

    assert (second.status, again.status) == (200, 200)
    assert again.body == second.body
    assert 0.8 < again.elapsed_s < MAX_HOLD_S
    [(_, verdict, files)] = server.recorder.nacks
    assert (verdict.version, verdict.accepted, verdict.reason) == (second.content["version_info"], False, None)
    assert files == (PurePosixPath("edge.yaml"),)


async def test_a_rejection_of_what_is_not_served_any_more_names_no_files(server: Server) -> None:
    """They would be those of another version."""
    server.publish(named("cds", "a"))
    content = (await server.poll()).content
    server.publish(named("cds", "b"))
    await server.poll(timeout_ms=200, response_nonce=content["nonce"], error_detail={"message": "no"})

    assert [files for *_, files in server.recorder.nacks] == [()]


# The end


async def test_the_end_of_the_server_answers_all_who_wait() -> None:
    """304 for who holds something, 503 for who has nothing, at once."""
    async with running() as server:
        server.publish(named("cds", "a"))
        version = (await server.poll()).content["version_info"]
        async with asyncio.TaskGroup() as tasks:
            holding = tasks.create_task(server.poll(version_info=version))
            empty = tasks.create_task(server.poll("secrets", resource_names=["tls"]))
            await server.until_held(2)
            server.rest.exchange.drain()

        assert holding.result().status == 304
        assert empty.result().status == 503
        assert empty.result().headers["Retry-After"] == "1"
        assert holding.result().headers["Connection"] == "close"
        assert (await server.poll(version_info=version)).status == 304


async def test_stopping_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with held polls ends at once, and nobody is cut off."""
    monkeypatch.setattr("fsxds.transports.sockets.STALLED_AFTER_S", NEVER_S)
    async with asyncio.timeout(PATIENCE_S), running(max_hold_s=NEVER_S, grace_s=NEVER_S) as stopped:
        stopped.publish(named("cds", "a"))
        version = (await stopped.poll()).content["version_info"]
        session = aiohttp.ClientSession(f"http://{stopped.address}")
        poll = asyncio.ensure_future(session.post(CLUSTERS, json={"node": {"id": "x"}, "version_info": version}))
        await stopped.until_held()
    answer = await poll
    await session.close()

    assert answer.status == 304


async def test_an_error_of_ours_comes_out_and_tells_the_client_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is a plain 500, the error is reported, and others are served on."""

    def any_json(*_: object) -> bytes:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(Printer, "any_json", any_json)
    async with running() as server:
        server.publish(named("cds", "a"))
        answer = await server.poll()

        assert (answer.status, answer.content["code"]) == (500, 13)
        assert b"secret" not in answer.body
        [(where, error)] = server.recorder.errors
        assert (where, type(error)) == ("REST request", ZeroDivisionError)
        assert (await server.poll(CLUSTERS.replace("clusters", "listeners"))).status != 500


# Compression and large bodies


async def test_compression_is_for_those_who_ask(server: Server) -> None:
    """It is gzip, when the request accepts it, and not with a weight of zero."""
    server.publish(named("cds", "a"))
    plain = await server.poll()
    async with aiohttp.ClientSession(f"http://{server.address}", auto_decompress=False) as client:
        for accepted, is_compressed in (("br, gzip;q=0.5", True), ("gzip;q=0", False), ("br", False)):
            async with client.post(CLUSTERS, json={}, headers={"accept-encoding": accepted}) as response:
                body = await response.read()

            assert (response.headers.get("Content-Encoding") == "gzip") is is_compressed
            assert (gzip.decompress(body) if is_compressed else body) == plain.body


async def test_a_large_body_arrives_whole(server: Server) -> None:
    """What is over a megabyte is handed over in slices, and has its length in its head."""
    server.publish(*(named("cds", f"c-{number}", alt_stat_name="x" * 20_000) for number in range(100)))
    answer = await server.poll()

    assert len(answer.body) > LARGE_BODY_BYTES
    assert answer.headers["Content-Length"] == str(len(answer.body))
    assert len(answer.content["resources"]) == 100
    assert len(server.recorder.sent) == 1


async def test_slow_readers_hold_no_copy_of_a_large_body(server: Server) -> None:
    """Ten clients that do not read cost less than one body of 8 MB together."""
    server.publish(*(named("cds", f"c-{number}", alt_stat_name="x" * 80_000) for number in range(100)))
    size = len((await server.poll()).body)
    head = f"POST {CLUSTERS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
    assert isinstance(server.address, TcpAddress)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        writers = []
        for _ in range(10):
            # A limit of one byte: the client stops reading at once.
            _, writer = await asyncio.open_connection(server.address.host, server.address.port, limit=1)
            writer.write(head.encode())
            writers.append(writer)
        await asyncio.sleep(0.5)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for writer in writers:
        writer.transport.abort()

    assert size > 8_000_000
    assert after - before < size
    assert server.recorder.errors == []


# Refusals


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body is empty"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "the body: is a list; send an object"),
        (b'{"type_url": "type.googleapis.com/envoy.config.listener.v3.Listener"}', "this path serves type.googleapis"),
        (b'{"typeUrl": 1}', "type_url: is a number"),
        (b'{"node": {"id": 7}}', "node.id: is a number; send a string"),
        (b'{"resource_names": "a"}', "resource_names: is a string; send a list of strings"),
        (b'{"resource_names": ["a", null]}', "resource_names[1]: is null; send a string"),
    ],
)
async def test_bad_requests(server: Server, body: bytes, said: str) -> None:
    """400, which names the field, the fact and the remedy, and is told to the observer."""
    answer = await server.ask("POST", CLUSTERS, data=body, headers={"content-type": "application/json"})

    assert (answer.status, answer.content["code"], answer.content["details"]) == (400, 3, [])
    assert said in answer.content["message"]
    assert answer.headers["Content-Type"] == "application/json"
    assert server.recorder.rejected == [("127.0.0.1", 400, answer.content["message"])]


@pytest.mark.parametrize(
    ("query", "header"), [("", "soon"), ("", "-1"), ("", "nan"), ("?timeout=1h", None), ("?timeout=", None)]
)
async def test_a_deadline_that_is_no_number(server: Server, query: str, header: str | None) -> None:
    """400, rather than a guess."""
    headers = {} if header is None else {"x-envoy-expected-rq-timeout-ms": header}
    answer = await server.ask("POST", CLUSTERS + query, json={}, headers=headers)

    assert answer.status == 400


@pytest.mark.parametrize(
    "path",
    ["/", "/v3/discovery", "/v3/discovery:virtual_hosts", "/v3/delta_discovery:clusters", "/v3/discovery:clusters/"],
)
async def test_an_unknown_path_names_the_eight(server: Server, path: str) -> None:
    """And says what has no REST form."""
    answer = await server.ask("POST", path, json={})

    assert (answer.status, answer.content["code"]) == (404, 5)
    assert all(known in answer.content["message"] for known in ROWS)
    assert "VHDS and Delta have no REST form" in answer.content["message"]
    assert len(ROWS) == 8


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS", "DELETE"])
async def test_another_method(server: Server, method: str) -> None:
    """405, with the method that is allowed."""
    answer = await server.ask(method, CLUSTERS)

    assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    assert method == "HEAD" or answer.content["code"] == 12


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_over_one_mebibyte(server: Server, *, is_chunked: bool) -> None:
    """413, whether its length is told or not; one byte less is read."""

    async def chunks(size: int) -> AsyncIterator[bytes]:
        for _ in range(size // 1024):
            yield b" " * 1024
        yield b" " * (size % 1024)

    server.publish(named("cds", "a"))
    headers = {"content-type": "application/json"}
    over, fits = MAX_REQUEST_BYTES + 1, MAX_REQUEST_BYTES - 2
    large = await server.ask(
        "POST", CLUSTERS, data=chunks(over) if is_chunked else io.BytesIO(b" " * over), headers=headers
    )
    small = await server.ask("POST", CLUSTERS, data=io.BytesIO(b"{}" + b" " * fits), headers=headers)

    assert (large.status, large.content["code"]) == (413, 8)
    assert small.status == 200


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("text/json", 200),
        ("application/vnd.x+json", 200),
        ("application/x-www-form-urlencoded", 415),
        ("text/plain", 415),
        ("application/x-protobuf", 415),
    ],
)
async def test_the_content_must_be_json(server: Server, content_type: str, status: int) -> None:
    """The default of curl is not; the refusal says what to send."""
    server.publish(named("cds", "a"))
    answer = await server.ask("POST", CLUSTERS, data=b"{}", headers={"content-type": content_type})

    assert answer.status == status
    assert status == 200 or "content-type: application/json" in answer.content["message"]


async def exchange(server: Server, request: bytes) -> bytes:
    """Send raw bytes and return what comes back until the server closes or is silent."""
    assert isinstance(server.address, TcpAddress)
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    writer.write(request)
    try:
        async with asyncio.timeout(0.5):
            return await reader.readuntil(b"}")
    except (TimeoutError, asyncio.IncompleteReadError) as error:
        return getattr(error, "partial", b"")
    finally:
        writer.close()


@pytest.mark.parametrize("header", ["", "content-type:\r\n"])
async def test_content_without_a_type_is_refused(server: Server, header: str) -> None:
    """A page of any origin can send it: a Blob without a type has none."""
    server.publish(named("cds", "a"))
    head = f"POST {CLUSTERS} HTTP/1.1\r\nhost: localhost\r\n{header}content-length: 2\r\n\r\n{{}}"
    answer = await exchange(server, head.encode())

    assert answer.startswith(b"HTTP/1.1 415 ")


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ("transfer-encoding: chunked", b"zz\r\n{}\r\n0\r\n\r\n", 400),
        ("content-encoding: gzip", b"oops", 400),
        ("content-encoding: gzip", gzip.compress(b"{}")[:-1], 400),
        ("content-encoding: gzip", gzip.compress(b"{}") + b"more", 400),
        ("content-encoding: gzip", gzip.compress(b" " * (MAX_REQUEST_BYTES + 1)), 413),
        ("content-encoding: gzip, gzip", gzip.compress(gzip.compress(b"{}")), 415),
        ("content-encoding: br", b"{}", 415),
        ("content-encoding: gzip", gzip.compress(b"{}"), 200),
        ("content-encoding: Deflate", zlib.compress(b"{}"), 200),
        ("content-encoding: identity", b"{}", 200),
    ],
    # Not the bodies: gzip writes the time into them, and every worker of a run must find the same names.
    ids=itertools.count(),
)
async def test_an_encoded_body(
    server: Server, caplog: pytest.LogCaptureFixture, headers: str, body: bytes, status: int
) -> None:
    """What is broken is 400, too large 413 however small it was sent, unknown 415: no error of ours, and no traceback."""
    server.publish(named("cds", "a"))
    length = "" if "chunked" in headers else f"\r\ncontent-length: {len(body)}"
    head = f"POST {CLUSTERS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}{length}\r\n\r\n"
    answer = await exchange(server, head.encode() + body)

    assert int(answer.split()[1]) == status
    assert server.recorder.errors == []
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


@pytest.mark.parametrize(
    ("version", "coding"),
    [("1.1", "\x0bchunked"), ("1.1", "chunked\x0c"), ("1.0", "chunked"), ("1.1", "gzip, chunked"), ("1.1", "identity")],
)
async def test_a_body_whose_end_is_doubtful_is_refused(server: Server, version: str, coding: str) -> None:
    """A proxy before this server may see another end, and with it another request."""
    server.publish(named("cds", "a"))
    head = f"POST {CLUSTERS} HTTP/{version}\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    body = "2\r\n{}\r\n0\r\n\r\nGET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
    answer = await exchange(server, f"{head}transfer-encoding: {coding}\r\n\r\n{body}".encode())

    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    assert answer.count(b"Content-Length") == 1
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == 3


@pytest.mark.parametrize("coding", ["chunked", "Chunked", " \tchunked"])
async def test_a_chunked_body_is_read(server: Server, coding: str) -> None:
    """With any case, and the white space that a header may have."""
    server.publish(named("cds", "a"))
    head = f"POST {CLUSTERS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
    answer = await exchange(server, f"{head}transfer-encoding: {coding}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n".encode())

    assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01 / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx y: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 20_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
    ],
    ids=itertools.count(),
)
async def test_what_is_no_http_is_answered_in_json(server: Server, request_bytes: bytes) -> None:
    """As every error is, without the name of what runs here, and it is reported as every rejected request is."""
    answer = await exchange(server, request_bytes)
    head, _, body = answer.partition(b"\r\n\r\n")

    assert int(answer.split()[1]) in {400, 431}
    assert json.loads(body).keys() == {"code", "message", "details"}
    assert b"content-type: application/json" in head.lower()
    assert b"\r\nserver:" not in head.lower()
    [(peer, status, reason)] = server.recorder.rejected
    assert (peer, status, reason) == ("127.0.0.1", int(answer.split()[1]), http_server.MALFORMED)
    assert server.recorder.of(RequestAnswered) == [RequestAnswered("REST", status, peer)]


async def test_a_body_that_drips_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 408, and the connection is closed."""
    monkeypatch.setattr("fsxds.transports.rest.poll_requests.BODY_S", 0.1)
    answer = await exchange(
        server,
        f"POST {CLUSTERS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{{".encode(),
    )

    assert answer.split()[1] == b"408"
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize(
    ("request_line", "status"), [(f"PUT {CLUSTERS}", 405), ("POST /nowhere", 404), (f"POST {CLUSTERS}", 413)]
)
async def test_a_refused_body_is_not_read_to_its_end(
    server: Server, request_line: str, status: int, *, is_chunked: bool
) -> None:
    """The answer comes first, and the connection is closed long before the gigabyte is sent."""
    assert isinstance(server.address, TcpAddress)
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    length = "transfer-encoding: chunked" if is_chunked else "content-length: 1000000000"
    start = b"100001\r\n" + b" " * 0x100001 + b"\r\n" if is_chunked else b""
    writer.write(
        f"{request_line} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{length}\r\n\r\n".encode()
        + start
    )
    answered = int((await reader.readline()).split()[1])
    piece = b" " * 65536
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 1_000_000_000:
            writer.write(b"10000\r\n" + piece + b"\r\n" if is_chunked else piece)
            await writer.drain()
            sent += len(piece)
    writer.close()

    assert answered == status
    assert sent < 100_000_000


async def test_malformed_http_is_answered_and_not_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """It is its sender's mistake."""
    with caplog.at_level(logging.INFO):
        answer = await exchange(server, b"POST / HTTP/1.1\r\nbad header\r\n\r\n")

    assert answer.split()[1] == b"400"
    assert caplog.records == []


async def test_a_client_that_goes_away_while_sending(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Half a body is nobody's error."""
    assert isinstance(server.address, TcpAddress)
    _, writer = await asyncio.open_connection(server.address.host, server.address.port)
    writer.write(
        f"POST {CLUSTERS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{".encode()
    )
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.transport.abort()
    await asyncio.sleep(0.05)

    assert caplog.records == []
    assert server.recorder.errors == []


async def test_one_connection_takes_many_polls(server: Server) -> None:
    """Pipelined requests are answered in their order, on a connection that stays open."""
    server.publish(named("cds", "a"))
    one = f"POST {CLUSTERS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}".encode()
    assert isinstance(server.address, TcpAddress)
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    writer.write(one * 3)
    for _ in range(3):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length: ")[2].split("\r\n")[0])
        assert json.loads(await reader.readexactly(length))["resources"]
    writer.close()


async def test_a_relay_that_asks_itself_is_rejected(server: Server) -> None:
    """A poll that came through this relay gets 508 and the path; those of others are counted as below while they are held."""
    own, below = "a" * 16, "b" * 16
    rest = server.application[REST]
    rest.relays = RelayIds(own)
    snapshot = server.publish(named("cds", "a"))
    body, around = {"node": {"id": "n1"}}, {"fsxds-relays": f"{below},{own}"}
    async with server.client.post(CLUSTERS, json=body, headers=around) as rejected:
        words = (await rejected.json())["message"]
    headers, held = (
        {"fsxds-relays": below},
        {**body, "version_info": snapshot.versions[ROWS[CLUSTERS].type_url]},
    )
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(server.client.post(CLUSTERS, json=held, headers=headers))
        await server.until_held()
        during = rest.relays.upwards
        server.publish(named("cds", "b"))
    waiting.result().close()

    assert (508, True) == (rejected.status, f"relay {own} is its own upstream" in words)
    assert (f"{own},{below}", own) == (during, rest.relays.upwards)
