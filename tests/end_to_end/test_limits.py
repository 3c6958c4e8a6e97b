"""Limits as clients meet them: a status with a reason that names the option, an event, and service for all others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import aiohttp
import grpc
import grpc.aio
import pytest

from fsxds.events.client_events import LimitReached
from fsxds.settings.forms import TcpAddress
from fsxds.settings.options import Settings
from tests.end_to_end.attacks import PREFACE, ROWS, SETTINGS, Row, Target, frame, head_of, measure, resets
from tests.support.errors import Recorder
from tests.support.grpc_clients import channel_to, method_path, serving_grpc
from tests.support.patience import PATIENCE_S
from tests.support.polls import Answer, named, running, until
from tests.support.server import Server, events_in
from tests.support.settings_files import file_flags

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


def limits_of(recorder: Recorder) -> list[str]:
    """Return the options that were reported as reached."""
    return [event.limit for event in recorder.of(LimitReached)]


def reason_of(answer: Answer) -> str:
    """Return what a client is told."""
    return str(answer.content["message"])


async def test_one_held_poll_too_many() -> None:
    """It is told to come back; the one that is held gets its update."""
    async with running(settings=Settings(max_held_polls=1)) as server:
        server.publish(named("cds", "a"))
        version = (await server.poll()).content["version_info"]
        async with asyncio.TaskGroup() as tasks:
            held = tasks.create_task(server.poll(version_info=version))
            await server.until_held()
            other = await server.poll(version_info=version, node={"id": "edge-2"})
            server.publish(named("cds", "b"))

        assert (other.status, other.headers["Retry-After"]) == (503, "5")
        assert "max_held_polls" in reason_of(other)
        assert limits_of(server.recorder) == ["max-held-polls"]
        assert held.result().status == 200


async def test_requests_too_fast() -> None:
    """After the burst a peer is told to wait a second; health and others are not asked of it here."""
    async with running(settings=Settings(max_requests_per_peer=1)) as server:
        server.publish(named("cds", "a"))
        answers = [await server.poll() for _ in range(3)]
        while answers[-1].status == 200 and len(answers) < 1000:
            answers.append(await server.poll(node={"id": f"n{len(answers)}"}))

        assert (answers[-1].status, answers[-1].headers["Retry-After"]) == (429, "1")
        assert "max_requests_per_peer" in reason_of(answers[-1])
        assert limits_of(server.recorder) == ["max-requests-per-peer"]


async def test_bodies_and_names_of_polls() -> None:
    """Too large is 413, too many names 503 with the option; a request as Envoy sends it fits by far."""
    async with running(settings=Settings(max_body_bytes=1000, max_names=2)) as server:
        server.publish(named("eds", "a"))
        large = await server.poll("endpoints", resource_names=["x" * 1000])
        many = await server.poll("endpoints", resource_names=["a", "b", "c"])
        fine = await server.poll("endpoints", resource_names=["a", "b"])

        assert (large.status, many.status, fine.status) == (413, 503, 200)
        assert "max_body" in reason_of(large)
        assert "max_names" in reason_of(many)
        assert limits_of(server.recorder) == ["max-body", "max-names"]


async def test_bodies_of_all_clients() -> None:
    """While one client takes its time, another one's large body is rejected, and a small one is read."""
    async with running(settings=Settings(max_all_bodies_bytes=100_000)) as server:
        server.publish(named("cds", "a"))
        assert isinstance(server.address, TcpAddress)
        head = head_of("content-length: 90000")
        _, slow = await asyncio.open_connection(server.address.host, server.address.port)
        slow.write(head + b" " * 80_000)
        await until(lambda: server.rest.exchange.limiter.body_bytes == 80_000)
        large = await server.poll(node={"id": "n", "metadata": {"x": "x" * 50_000}})
        small = await server.poll(node={"id": "n2"})
        slow.close()
        await until(lambda: server.rest.exchange.limiter.body_bytes == 0)

        assert (large.status, small.status) == (503, 200)
        assert "max_all_bodies" in reason_of(large)
        assert limits_of(server.recorder) == ["max-all-bodies"]


async def test_texts_that_are_kept_are_short() -> None:
    """A node id of a megabyte would be remembered ten thousand times."""
    async with running() as server:
        server.publish(named("cds", "a"))
        answers = [
            await server.poll(node={"id": "x" * 5000}),
            await server.poll(node={"id": "n", "cluster": "x" * 5000}),
            await server.poll(version_info="x" * 5000),
            await server.poll(response_nonce="x" * 5000),
        ]

        assert {answer.status for answer in answers} == {400}
        assert reason_of(answers[0]) == "node.id: has 5000 characters, more than 4096; shorten it"


async def test_one_connection_too_many() -> None:
    """It is answered with 503; those that are open go on, and there is room when one closes."""
    async with running(settings=Settings(max_connections=2)) as server:
        server.publish(named("cds", "a"))
        version = (await server.poll()).content["version_info"]
        async with asyncio.TaskGroup() as tasks:
            held = [tasks.create_task(server.poll(version_info=version, node={"id": f"n{n}"})) for n in range(2)]
            await server.until_held(2)
            surplus = await server.poll()
            server.publish(named("cds", "b"))

        assert surplus.status == 503
        assert "max_connections" in reason_of(surplus)
        assert limits_of(server.recorder) == ["max-connections"]
        assert [one.result().status for one in held] == [200, 200]
        assert (await server.poll(node={"id": "n9"})).status == 200


async def test_nodes_are_forgotten_and_nothing_is_lost_by_that() -> None:
    """A node that polls again with the version that it holds is recognized by it, and is held."""
    async with running(settings=Settings(max_nodes=2)) as server:
        server.publish(named("cds", "a"))
        version = (await server.poll()).content["version_info"]
        for number in range(5):
            await server.poll(node={"id": f"made-up-{number}"})
        again = await server.poll(version_info=version, timeout_ms=400)

        assert len(server.rest._memory) == 2
        assert set(limits_of(server.recorder)) == {"max-nodes"}
        assert again.status == 304


@pytest.mark.parametrize("limit", ["max-streams", "max-streams-per-peer"])
async def test_one_stream_too_many(limit: str) -> None:
    """Its status names the option; streams of reflection and health count too, and the ones that are open go on."""
    settings = Settings(max_streams=2) if limit == "max-streams" else Settings(max_streams_per_peer=2)
    async with serving_grpc(settings=settings) as server:
        server.publish({"CDS": {"a": "1"}})
        first = server.stream("CDS")
        await first.ask(node="n1")
        await first.answer()
        watch = server.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        await watch.read()
        second = server.stream("CDS")
        with suppress(grpc.aio.AioRpcError):
            # The stream may have ended before its first request is written.
            await second.ask(node="n2")
        code, reason = await second.end()
        watch.cancel()
        server.publish({"CDS": {"b": "1"}})

        assert (code, limit.replace("-", "_") in reason) == (EXHAUSTED, True)
        assert limits_of(server.recorder) == [limit]
        assert await first.answer()


async def test_calls_too_fast_are_rejected_and_health_is_not() -> None:
    """A probe at the address of an attacker keeps its answer."""
    async with serving_grpc(settings=Settings(max_requests_per_peer=1)) as server:
        server.publish({"CDS": {"a": "1"}})
        check = server.channel.unary_unary("/grpc.health.v1.Health/Check")
        codes = set()
        for _ in range(1000):
            try:
                await server.fetch("CDS")
            except grpc.aio.AioRpcError as error:
                codes.add((error.code(), "max_requests_per_peer" in (error.details() or "")))
                break

        assert codes == {(EXHAUSTED, True)}
        assert await check(b"")


@pytest.mark.parametrize("is_delta", [True, False])
async def test_names_of_a_stream(is_delta: bool) -> None:
    """Names add up over the types and requests of a stream; a stream with too many ends, and gives them back."""
    field = "resource_names_subscribe" if is_delta else "resource_names"
    async with serving_grpc(settings=Settings(max_names=5)) as server:
        server.publish({"CDS": {"a": "1"}})
        stream = server.stream(is_delta=is_delta)
        await stream.ask("EDS", node="n1", **{field: ["a", "b", "c"]})
        await stream.ask("RDS", **{field: ["d", "e", "f"]})
        code, reason = await stream.end()

        assert (code, "max_names" in reason) == (EXHAUSTED, True)
        assert limits_of(server.recorder) == ["max-names"]
        # The stream is forgotten once its client was told.
        await until(lambda: server.services._shared.limiter.names == 0)


async def test_names_of_all_streams() -> None:
    """The one that brings too many ends."""
    async with serving_grpc(settings=Settings(max_all_names=4)) as server:
        server.publish({"EDS": {"a": "1"}})
        first, second = server.delta(), server.delta()
        await first.ask("EDS", node="n1", resource_names_subscribe=["a", "b", "c"])
        await first.answer()
        await second.ask("EDS", node="n2", resource_names_subscribe=["d", "e"])
        code, reason = await second.end()
        server.publish({"EDS": {"a": "2"}})

        assert (code, "max_all_names" in reason) == (EXHAUSTED, True)
        assert (await first.answer()).resources[0].name == "a"


async def test_a_message_that_is_too_large() -> None:
    """It ends its stream alone."""
    async with serving_grpc(settings=Settings(max_message_bytes=1000)) as server:
        server.publish({"CDS": {"a": "1"}})
        stream = server.stream("CDS")
        await stream.ask(node="n1", resource_names=["x" * 2000])
        code, _ = await stream.end()

        assert code is EXHAUSTED
        assert await server.fetch("CDS")


async def test_connections_of_grpc() -> None:
    """Beyond as many as allowed there is no service; those that are open have it, and there is room when one closes."""
    async with serving_grpc(settings=Settings(max_connections=2)) as server:
        server.publish({"CDS": {"a": "1"}})
        await server.fetch("CDS")
        fetch = method_path("CDS", "Fetch")
        numbers = count()

        async def is_served() -> bool:
            # Channels with the same arguments share a connection.
            async with channel_to(server.address, **{"grpc.test": next(numbers)}) as channel:
                try:
                    await channel.unary_unary(fetch)(b"", timeout=2)
                except grpc.aio.AioRpcError:
                    return False
                return True

        async with channel_to(server.address, **{"grpc.test": 999}) as second:
            await second.unary_unary(fetch)(b"", timeout=PATIENCE_S)
            third = await is_served()
            assert await server.fetch("CDS")
        async with asyncio.timeout(60):
            # Nothing tells when a server has noticed that a connection is closed.
            while not await is_served():  # noqa: ASYNC110
                await asyncio.sleep(0.1)

        assert not third


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A real server, which all attacks are made on."""
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "tree").mkdir()
    target = Target(Server(folder / "tree", folder, "--rollout", "off", "--log-level", "warning"), folder / "tree")
    target.edit()
    with target.server:
        yield target


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_memory_stays_bounded_and_others_are_served(row: Row, target: Target) -> None:
    """A hundredth of each attack of `tests.end_to_end.attacks`: a client that behaves gets each update meanwhile."""
    measured = await measure(target, row.attack, 0.01)
    log = target.server.log_file.read_bytes()

    assert len(measured.updates_s) == measured.made
    assert measured.unanswered * 100 <= len(measured.streams_s)
    assert measured.growth < 150
    assert b"Traceback" not in log
    assert "internal_error" not in {event["event"] for event in events_in(log)}


@pytest.mark.parametrize(
    "path", [b"/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources", b"/unknown"]
)
async def test_a_connection_that_resets_calls_as_it_makes_them_is_closed(path: bytes, target: Target) -> None:
    """It waits until then, as gRPC reads no more from it; and the log tells of it, once for many connections."""
    parts, before = [resets(number, path) for number in range(100)], len(target.server.log_file.read_bytes())

    def told() -> list[dict[str, object]]:
        return [
            event for event in events_in(target.server.log_file.read_bytes()[before:]) if event.get("limit") == "resets"
        ]

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(PREFACE + frame(SETTINGS, 0, 0, b""))
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.01)
        while await reader.read(1 << 16):
            pass

    async with asyncio.timeout(PATIENCE_S):
        # A machine that is busy otherwise leaves the server too little time to notice a flood.
        while not told():
            connections = [await asyncio.open_connection(*target.grpc) for _ in range(8)]
            resetting = [asyncio.create_task(reset(*each)) for each in connections]
            await asyncio.wait(resetting, timeout=5.0)
            if told():
                await asyncio.wait(resetting, return_when=asyncio.FIRST_COMPLETED)
            for task, (_, writer) in zip(resetting, connections, strict=True):
                task.cancel()
                writer.close()

    assert told()[0]["peer"] == "127.0.0.1"
    assert len(told()) <= 2


def test_a_tree_of_too_many_files_is_told_of(tmp_path: Path) -> None:
    """`fsxds check` names the option, and what was read before is not there: this is the first look."""
    from tests.support.fsxds_process import run_fsxds

    for number in range(3):
        (tmp_path / f"{number}.yaml").write_text("[]")
    done = run_fsxds(["check", str(tmp_path), *file_flags(max_files="2"), "--no-envoy"])

    assert done.returncode == 1
    assert "too-many-files" in done.stdout + done.stderr
    assert "max_files" in done.stdout + done.stderr


HOSTILE = (
    *("../secret", "..", ".", "", "/", "/etc", "a/../../secret", "..%2fsecret", "%2e%2e/secret", "a\x00/../../secret"),
    *(
        "\x00",
        "a\n",
        "\u2024\u2024/secret",
        "\uff0e\uff0e",
        "A",
        "a\u0301",
        "a ",
        " a",
        "a" * 5000,
        "x" * 1024,
        "~",
        "$HOME",
    ),
    *("nodes/a", "{node.id}", "${HOME}", "*", "a*", "[a]", "\\..\\secret", "CON", "\u202ea", "\ud83d\ude00"),
)


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
async def test_nothing_that_a_node_says_becomes_a_path(name: str, views: Target) -> None:
    """A node whose id is a path, or what some take for one, sees the common layer, or is told that its id is too long."""
    host, port = views.http
    async with aiohttp.ClientSession() as session:
        body = {"node": {"id": name, "metadata": {"tier": name}}}
        async with session.post(f"http://{host}:{port}/v3/discovery:clusters?timeout=1", json=body) as response:
            status, content = response.status, await response.text()

    if len(name) > 4096:
        assert (status, "secret" in content) == (400, False)
        return
    assert status == 200
    assert [resource["name"] for resource in json.loads(content)["resources"]] == ["common"]


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server whose views have layers by node id and metadata, with clusters that nobody may see beside and above them."""
    folder = tmp_path_factory.mktemp("views")
    for path in ("tree/common", "tree/nodes/a", "tree/secret", "tree/tiers/a", "secret"):
        (folder / path).mkdir(parents=True)
        (folder / path / "cds.json").write_text(json.dumps([{"name": Path(path).name}]))
    rules = [{"name": "all", "layers": ["common", "nodes/{node.id}", "tiers/{node.metadata.tier}"]}]
    (folder / "settings.json").write_text(json.dumps({"views": rules}))
    target = Target(Server(folder / "tree", folder, "--settings", str(folder / "settings.json")), folder / "tree")
    with target.server:
        yield target
