from __future__ import annotations

import asyncio
import logging
import random
import resource
import socket
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.settings.forms import Address, UnixAddress
from fsxds.transports.rest.application import make_application
from fsxds.transports.rest.poll_responses import LARGE_BODY_BYTES
from tests.support import polls
from tests.support.departures import NODES, bad_requests, good_requests, many_go_away, wire
from tests.support.patience import PATIENCE_S
from tests.support.polls import LOCALHOST, named, running, until
from tests.support.polls import Server as InProcess
from tests.support.server import Server, write_file

REST_ROWS = [row for row in RESOURCE_TYPES if row.rest_path]


def publish_all(server: InProcess) -> dict[str, str]:
    """Publish clusters whose body is written in slices, and one small resource of each other type; return versions."""
    clusters = [named("cds", f"c-{number}", alt_stat_name="x" * 60_000) for number in range(20)]
    snapshot = server.publish(*clusters, *(named(row.short_name, row.short_name) for row in REST_ROWS))
    return {f"/v3/discovery:{row.rest_path}": snapshot.versions[row.type_url] for row in REST_ROWS}


@pytest.mark.parametrize("is_unix", [False, True])
async def test_clients_may_go_away_at_any_byte(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_unix: bool
) -> None:
    """Of their request or their answer: nothing is logged, nothing stays behind, and others are served all the time."""
    address: Address = UnixAddress(tmp_path / "x.sock") if is_unix else LOCALHOST
    with caplog.at_level(logging.INFO):
        async with running(address=address) as server:
            versions = publish_all(server)
            requests = [*good_requests(random.Random(1), versions), *bad_requests()]
            served = 0
            async with asyncio.TaskGroup() as tasks:
                going = tasks.create_task(many_go_away(server.address, lambda _: requests, 150, seed=7))
                while not going.done():
                    answer = await server.poll("endpoints", node={"id": "stays"}, resource_names=[str(served)])
                    assert answer.status == 200
                    served += 1
            await until(lambda: not len(server.rest.exchange))
            remembered = len(server.rest._memory)
            # The others left, or were sent all of their last answer.
            assert "stays" in {client.node.id for client in server.channels.channel.clients}

    assert served > 0
    assert remembered <= NODES * len(REST_ROWS) + served + 1
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


@pytest.mark.parametrize("service", ["clusters", "endpoints"])
async def test_an_answer_that_did_not_get_through_is_no_rejection(
    monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    """Large or small: whoever comes back with the version before gets the new one at once, and no NACK is told.

    Until then nobody waits for it.
    """
    leaving: list[bool] = []

    async def leave(request: web.BaseRequest, _: web.StreamResponse) -> None:
        if leaving and request.transport is not None:
            request.transport.abort()

    def make(*arguments: Any, **options: Any) -> web.Application:
        application = make_application(*arguments, **options)
        application.on_response_prepare.append(leave)
        return application

    monkeypatch.setattr(polls, "make_application", make)
    async with running() as server:
        server.publish(named("cds", "a"), named("eds", "a"))
        before = (await server.poll(service)).content["version_info"]
        await server.poll(service, 200, version_info=before)
        publish_all(server)
        leaving.append(True)
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await server.poll(service, version_info=before)
        await until(lambda: not server.channels.channel.clients)
        leaving.clear()
        answer = await server.poll(service, version_info=before)

    assert answer.content["version_info"] != before
    assert (len(answer.body) > LARGE_BODY_BYTES) == (service == "clusters")
    assert not server.recorder.nacks
    assert len(server.recorder.sent) == 2


def test_few_descriptors_are_left_for_what_is_served(tmp_path: Path) -> None:
    """Whoever comes when they are nearly used up gets 503, and fsxds goes on reading files and answering the others."""
    write_file(tmp_path / "tree" / "cds.yaml", "resources: [{name: a, connect_timeout: 1s}]")
    with Server(tmp_path / "tree", tmp_path, grpc="off") as server, ExitStack() as clients:
        first = clients.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        assert ask(first) == 200
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (96, 96))
        others = [
            clients.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S))
            for _ in range(120)
        ]
        statuses = Counter(ask(other) for other in others)
        write_file(tmp_path / "tree" / "cds.yaml", "resources: [{name: b, connect_timeout: 1s}]")
        server.wait(lambda: len(server.log_events("snapshot_published")) == 2, "the edit")
        answered = ask(first)
        clients.close()
        server.wait(lambda: ask_anew(server) == 200, "free descriptors")

    assert answered == 200
    assert statuses.keys() == {200, 503, None}
    assert [line["status"] for line in server.log_events("request_rejected")] == [503]
    assert not server.log_events("library_error")


def ask_anew(server: Server) -> int | None:
    """Ask over a connection of its own."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        return ask(connection)


def ask(connection: socket.socket) -> int | None:
    """Send a poll and return the status of its answer, None where the connection is closed instead."""
    try:
        connection.sendall(wire("/v3/discovery:clusters", b"{}", "content-type: application/json"))
        return int(connection.recv(65536).split()[1])
    except (ConnectionError, IndexError):
        return None
