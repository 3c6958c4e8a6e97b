"""A client that polls, against the real REST server, and against servers that are none."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from fsxds.api.converter import Converter
from fsxds.client.polls import PollingClient
from fsxds.client.updates import TOO_LARGE_RESPONSE, ConnectionLostError, WrongResponseError, name_within
from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.protocol.messages import Node
from fsxds.settings.forms import TcpAddress, UnixAddress
from fsxds.transports.rest.http_server import listening
from tests.support.polls import Server, envoy_catalogue, named, running, until

CDS, EDS = BY_SHORT_NAME["cds"], BY_SHORT_NAME["eds"]
NODE = Node("n1", "fleet")

Handler = Callable[[web.Request], Awaitable[web.Response]]


def client_of(address: str) -> PollingClient:
    """Return a client that polls for clusters."""
    return PollingClient(address, CDS, NODE, Converter(envoy_catalogue()))


def url_of(server: Server) -> str:
    """Return the address of a server as a client takes it."""
    return f"http://{server.address}" if isinstance(server.address, TcpAddress) else str(server.address)


async def test_updates_come_as_they_are_published() -> None:
    """The first poll is answered at once, the next is held until something changes; each accepts the one before."""
    async with running() as server, client_of(url_of(server)) as client:
        client.subscribe(CDS.type_url)
        one = named("cds", "a")
        before = server.publish(one)
        first = await client.next()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(client.next())
            await server.until_held()
            server.publish(one, named("cds", "b"))
        second = waiting.result()

    assert ({"a": one.body}, before.versions[CDS.type_url], True) == (first.bodies, first.version, first.is_full)
    assert ["a", "b"] == list(second.resources)
    assert [("n1", "fleet", first.version)] == [
        (node.id, node.cluster, version) for node, _, version in server.recorder.acks
    ]


async def test_names_can_be_asked_for() -> None:
    """A client that asks for names is told those alone."""
    async with running() as server, client_of(url_of(server)) as client:
        server.publish(named("cds", "a"), named("cds", "b"))
        client.subscribe(CDS.type_url, "b", "x")

        assert ["b"] == list((await client.next()).resources)
        with pytest.raises(ValueError, match="polls for cds"):
            client.subscribe(EDS.type_url)
        with pytest.raises(ValueError, match="polls for cds"):
            client.unsubscribe(EDS.type_url, "b")


async def test_a_refusal_is_told_with_the_next_poll() -> None:
    """A NACK has the reason; the version is offered again after a while, or another at once."""
    async with running() as server, client_of(url_of(server)) as client:
        server.publish(named("cds", "a"))
        await client.next()
        client.nack("no good")
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(client.next())
            await server.until_held()
            server.publish(named("cds", "b"))
        update = waiting.result()

    assert (["no good"], ["b"]) == ([verdict.reason for _, verdict, _ in server.recorder.nacks], list(update.resources))


async def test_a_poll_that_ends_without_news_is_sent_again() -> None:
    """What is not modified is not an update."""
    async with running(max_hold_s=0.02) as server, client_of(url_of(server)) as client:
        answers: list[None] = []
        client.on_connected = lambda: answers.append(None)
        server.publish(named("cds", "a"))
        await client.next()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(client.next())
            await until(lambda: len(answers) > 3)
            server.publish(named("cds", "b"))

    assert ["b"] == list(waiting.result().resources)


async def test_over_a_unix_socket(tmp_path: Path) -> None:
    """A path is as good as a port."""
    async with running(address=UnixAddress(tmp_path / "s")) as server, client_of(url_of(server)) as client:
        server.publish(named("cds", "a"))

        assert ["a"] == list((await client.next()).resources)


async def test_the_last_word_is_heard() -> None:
    """`finish()` accepts the last update by a poll that is not held."""
    async with running() as server, client_of(url_of(server)) as client:
        server.publish(named("cds", "a"))
        await client.next()
        await client.finish()

        assert 1 == len(server.recorder.acks)


async def test_a_server_without_content() -> None:
    """It says that there is nothing yet; to ask again is worth it."""
    async with running() as server, client_of(url_of(server)) as client:
        with pytest.raises(ConnectionLostError, match=r"^nothing to send yet: no good content is loaded yet") as caught:
            await client.next()

        assert ("503", False) == (caught.value.code, caught.value.is_final)


async def test_a_server_that_is_back_is_heard_at_once(tmp_path: Path) -> None:
    """After an outage the first poll is not held: that it is answered at all is news."""
    address = UnixAddress(tmp_path / "s")
    back = asyncio.Event()
    async with client_of(str(address)) as client:
        async with running(address=address) as server:
            server.publish(named("cds", "a"))
            await client.next()
        with pytest.raises(ConnectionLostError):
            await client.next()
        client.on_connected = back.set
        async with running(address=address) as server, asyncio.TaskGroup() as tasks:
            server.publish(named("cds", "a"))
            waiting = tasks.create_task(client.next())
            async with asyncio.timeout(60):
                await back.wait()
            waiting.cancel()


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    """It is told in the system's words."""
    with pytest.raises(socket.gaierror) as of_system:
        socket.getaddrinfo("nosuch.invalid", 1)
    for address, words in (
        ("http://127.0.0.1:1", "Connection refused"),
        (f"unix:{tmp_path}/s", "No such file or directory"),
        ("http://nosuch.invalid:1", of_system.value.strerror),
    ):
        async with client_of(address) as client:
            with pytest.raises(ConnectionLostError) as caught:
                await client.next()

        assert (f"cannot connect: {words}", "UNAVAILABLE") == (str(caught.value), caught.value.code)


async def test_an_address_that_is_none() -> None:
    """A broken URL does not heal."""
    async with client_of("http://[x") as client:
        with pytest.raises(ConnectionLostError, match="is no URL") as caught:
            await client.next()

    assert caught.value.is_final


async def test_a_server_that_does_not_answer() -> None:
    """A poll that is not answered long after its end is given up."""
    release = asyncio.Event()

    async def silent(_: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    async with answering(silent) as address:
        client = client_of(address)
        client.hold_s, client.late_s = 0.01, 0.01
        async with client:
            with pytest.raises(ConnectionLostError, match="no response came in time"):
                await client.next()
        release.set()


@asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[str]:
    """Run a server that is not fsxds, and yield its address."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    async with listening(application, TcpAddress("127.0.0.1", 0), grace_s=1.0) as bound:
        yield f"http://{bound}"


@pytest.mark.parametrize(
    ("answer", "words", "is_final"),
    [
        (web.json_response({"message": "not so"}, status=400), "responds with status 400: not so", True),
        (web.Response(status=404), "responds with status 404: without a message such as fsxds gives", True),
        (web.Response(status=502, text="x"), "responds with status 502", False),
        (web.Response(text="<html>"), "the response is no DiscoveryResponse in JSON", False),
        (web.json_response([]), "the response is no DiscoveryResponse in JSON", False),
    ],
)
async def test_answers_that_are_none(answer: web.Response, words: str, is_final: bool) -> None:
    """What another server says is told, and whether to ask again is worth it."""

    async def reply(_: web.Request) -> web.Response:
        return web.Response(status=answer.status, body=answer.body)

    async with answering(reply) as address, client_of(address) as client:
        with pytest.raises(ConnectionLostError, match=words) as caught:
            await client.next()

    assert is_final is caught.value.is_final


@pytest.mark.parametrize(
    ("resource", "fault"),
    [
        ({"@type": EDS.type_url}, f"a resource in it is of type {EDS.type_url}"),
        ("x", "a resource in it is of type None"),
        ({"@type": CDS.type_url, "nam": "a"}, "a resource in it cannot be read: "),
    ],
)
async def test_what_cannot_be_taken_is_refused(resource: object, fault: str) -> None:
    """A wrong resource is told to the caller, and to the server with the next poll."""
    requests: list[dict[str, object]] = []

    async def reply(request: web.Request) -> web.Response:
        requests.append(await request.json())
        if len(requests) == 1:
            return web.json_response({"version_info": "1", "nonce": "n", "resources": [resource]})
        return web.json_response({"version_info": "2"})

    async with answering(reply) as address, client_of(address) as client:
        with pytest.raises(WrongResponseError) as caught:
            await client.next()
        update = await client.next()

    assert str(caught.value).startswith(fault)
    assert ("n", str(caught.value)) == (requests[1]["response_nonce"], requests[1]["error_detail"]["message"])  # type: ignore[index]
    assert ("2", "2", {}) == (update.version, update.nonce, update.bodies)


@pytest.mark.parametrize("row", [row for row in RESOURCE_TYPES if row.name_field], ids=lambda row: row.short_name)
def test_the_name_is_the_first_field(row: object) -> None:
    """In every type the name is read out of the bytes."""
    assert "some name" == name_within(named(row.short_name, "some name").body)  # type: ignore[attr-defined]


async def test_there_is_nothing_to_judge() -> None:
    """Without an update there is nothing to refuse; without a context there is no client."""
    client = client_of("http://127.0.0.1:1")
    with pytest.raises(ValueError, match="no unanswered update"):
        client.nack("no")
    with pytest.raises(RuntimeError, match="context manager"):
        await client.next()


async def test_a_client_that_accepts_parts() -> None:
    """What cannot be read is left out by its name; without one, nothing is said of what is missing."""
    bad = {"@type": CDS.type_url, "name": "b", "typ": 1}

    async def reply(request: web.Request) -> web.Response:
        resources = [{"@type": CDS.type_url, "name": "a"}, bad, *([{}] if request.query["timeout"] == "7" else [])]
        return web.json_response({"version_info": "1", "resources": resources})

    async with answering(reply) as address, client_of(address) as client:
        client.accepts_parts = True
        named_alone = await client.next()
    async with answering(reply) as address, client_of(address) as client:
        client.accepts_parts, client.hold_s = True, 7.0
        unnamed = await client.next()

    assert (["a"], True, frozenset({"b"})) == (list(named_alone.resources), named_alone.is_full, named_alone.rejected)
    assert (["a"], False, 2) == (list(unnamed.resources), unnamed.is_full, len(unnamed.faults))


@pytest.mark.parametrize("is_compressed", [False, True])
async def test_a_response_may_be_too_large(*, is_compressed: bool) -> None:
    """A larger response than a client takes ends the poll, also where it is small until it is decompressed."""

    async def reply(_: web.Request) -> web.Response:
        response = web.Response(body=b" " * 5_000_000)
        if is_compressed:
            response.enable_compression(web.ContentCoding.gzip)
        return response

    async with answering(reply) as address, client_of(address) as client:
        client.most_bytes = 1_000_000
        with pytest.raises(ConnectionLostError, match="is larger than 1000000 bytes") as caught:
            await client.next()

    assert caught.value.code == TOO_LARGE_RESPONSE


async def test_a_server_that_does_not_hold_polls() -> None:
    """It is not asked without end: where there is nothing new, a second passes until the next poll."""
    polls = 0

    async def reply(_: web.Request) -> web.Response:
        nonlocal polls
        polls += 1
        return web.json_response({"version_info": "1"}) if polls == 1 else web.Response(status=304)

    async with answering(reply) as address, client_of(address) as client:
        await client.next()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await client.next()

    assert 2 == polls


async def test_no_redirect_is_followed() -> None:
    """What a server leads to is another server, which the token is not for."""
    paths = []

    async def reply(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    async with answering(reply) as address, client_of(address) as client:
        with pytest.raises(ConnectionLostError, match="status 307"):
            await client.next()

    assert ["/v3/discovery:clusters"] == paths


async def test_headers_and_relays() -> None:
    """A client sends the headers that it is given, and says which relays a response passed."""
    relay, sent = "0123456789abcdef", []

    async def reply(request: web.Request) -> web.Response:
        sent.append(request.headers["x-more"])
        return web.json_response({"version_info": "1"}, headers={"fsxds-relays": relay})

    async with answering(reply) as address, client_of(address) as client:
        client.headers = (("x-more", "1"),)
        update = await client.next()

    assert (["1"], (relay,)) == (sent, update.relays)


async def test_other_names_are_asked_for_afresh() -> None:
    """Names can be added and given up; a version says nothing of other names, so none is sent."""
    requests: list[tuple[object, object]] = []

    async def reply(request: web.Request) -> web.Response:
        body = await request.json()
        requests.append((body.get("resource_names"), body.get("version_info")))
        return web.json_response({"version_info": str(len(requests))})

    async with answering(reply) as address, client_of(address) as client:
        client.subscribe(CDS.type_url, "a", "b")
        await client.next()
        await client.next()
        client.ack()
        client.subscribe(CDS.type_url, "c")
        client.unsubscribe(CDS.type_url, "a")
        await client.next()

    assert [(["a", "b"], None), (["a", "b"], "1"), (["b", "c"], None)] == requests


@pytest.mark.parametrize("body", ["[" * 100_000, '{"version_info": "1", "resources": 7}', "9" * 5000, '"x"'])
async def test_json_that_is_no_response(body: str) -> None:
    """Whatever comes ends the poll with a clear error."""

    async def reply(_: web.Request) -> web.Response:
        return web.Response(text=body)

    async with answering(reply) as address, client_of(address) as client:
        with pytest.raises(ConnectionLostError, match="no DiscoveryResponse in JSON"):
            await client.next()


@pytest.mark.parametrize("status", [403, 404, 405, 501])
async def test_a_server_of_files_is_read_by_get(status: int) -> None:
    """A server that takes no POST is asked for the list of the type and its members, again and again without POST; it gets no ACK."""
    asked = []
    files = {"/envoy.config.cluster.v3.Cluster/index.json": [{"name": "/envoy.config.cluster.v3.Cluster/a"}]}

    async def reply(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path}")
        if request.method == "POST":
            return web.Response(status=status)
        return web.json_response(files.get(request.path, {"name": "a", "alt_stat_name": str(len(asked))}))

    async with answering(reply) as address, client_of(address) as client:
        client.token = "secret"
        first, second = await client.next(), await client.next()
        count = len(asked)
        await client.finish()
        assert count == len(asked)

    assert (["a"], ["a"]) == (list(first.resources), list(second.resources))
    assert first.version != second.version
    assert [1, 2] == [sum(each.startswith("POST") for each in asked), sum(each.endswith(".json") for each in asked)]


async def test_a_server_that_takes_no_get_either() -> None:
    """What it says of the POST counts: it may be a server of polls that refuses this client."""

    async def reply(request: web.Request) -> web.Response:
        return web.json_response({"message": f"no {request.method} for you"}, status=403)

    async with answering(reply) as address, client_of(address) as client:
        with pytest.raises(ConnectionLostError, match="status 403: no POST for you"):
            await client.next()
