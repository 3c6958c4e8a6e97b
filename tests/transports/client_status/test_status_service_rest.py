from __future__ import annotations

from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any

import pytest

from fsxds.protocol.messages import ClientStatus, Node
from fsxds.transports.client_status import status_service
from fsxds.transports.rest.poll_requests import MAX_REQUEST_BYTES
from fsxds.transports.rest.poll_responses import LARGE_BODY_BYTES
from tests.support.polls import Server, named, running

CLIENT_STATUS = "/v3/discovery:client_status"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server that has nothing yet."""
    async with running() as server:
        yield server


async def told(server: Server, **request: object) -> list[dict[str, Any]]:
    """Return what is told of clients."""
    answer = await server.ask("POST", CLIENT_STATUS, json=request)
    assert answer.status == 200
    configs: list[dict[str, Any]] = answer.content["config"]
    return configs


async def of_clusters(server: Server) -> dict[str, Any]:
    """Return what is told of the only resource of the only client, without its type and content."""
    [config] = await told(server, exclude_resource_contents=True)
    [status] = config["generic_xds_configs"]
    assert status.pop("type_url").endswith(".Cluster")
    return dict(status)


async def test_without_clients_there_is_nothing_to_tell(server: Server) -> None:
    """An answer in JSON all the same."""
    answer = await server.ask("POST", CLIENT_STATUS, json={})

    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.content == {"config": []}


async def test_a_client_that_polls(server: Server) -> None:
    """From its first poll to its acceptance: waiting for something, sent, accepted."""
    await server.poll(timeout_ms=200, node={"id": "edge-1", "metadata": {"role": "edge"}, "extensions": [{}]})
    [config] = await told(server)

    assert config == {
        "node": {"id": "edge-1", "metadata": {"role": "edge"}},
        "generic_xds_configs": [
            {
                "type_url": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
                "name": "*",
                "config_status": "NOT_SENT",
                "client_status": "REQUESTED",
            }
        ],
        "client_scope": "REST",
    }

    server.publish(named("cds", "a"))
    version = (await server.poll()).content["version_info"]

    assert await of_clusters(server) == {
        "name": "a",
        "version_info": version,
        "config_status": "STALE",
        "client_status": "REQUESTED",
    }

    await server.poll(timeout_ms=200, version_info=version)

    assert await of_clusters(server) == {
        "name": "a",
        "version_info": version,
        "config_status": "SYNCED",
        "client_status": "ACKED",
    }


async def test_a_client_that_rejects(server: Server) -> None:
    """It comes back with the version before; its words are told where it has any."""
    server.publish(named("cds", "a"))
    first = (await server.poll()).content["version_info"]
    await server.poll(timeout_ms=200, version_info=first)
    server.publish(named("cds", "a", alt_stat_name="x"))
    second = (await server.poll(version_info=first)).content["version_info"]
    await server.poll(timeout_ms=200, version_info=first, error_detail={"message": "bad"})

    assert await of_clusters(server) == {
        "name": "a",
        "version_info": first,
        "config_status": "ERROR",
        "client_status": "NACKED",
        "error_state": {"details": "bad", "version_info": second},
    }


async def test_a_client_that_held_it_before_the_server_started(server: Server) -> None:
    """Nothing is sent to it, and it is in step."""
    server.publish(named("cds", "a"))
    version = (await server.poll()).content["version_info"]
    async with running() as restarted:
        restarted.publish(named("cds", "a"))
        await restarted.poll(timeout_ms=200, version_info=version)

        assert (await of_clusters(restarted))["client_status"] == "ACKED"


async def test_a_client_whose_poll_was_held_for_long_is_still_there(server: Server) -> None:
    """It was there until the poll ended, and may come back."""
    await server.poll(timeout_ms=500)

    assert [config["node"]["id"] for config in await told(server)] == ["edge-1"]


async def test_nothing_is_told_of_a_client_without_an_id(server: Server) -> None:
    """Nothing is remembered of it: each of its polls stands for itself."""
    server.publish(named("cds", "a"))
    await server.poll(node={})

    assert await told(server) == []


async def test_other_transports_are_told_of(server: Server) -> None:
    """Whoever is connected, by whatever it uses."""
    server.clients.opened(lambda: ClientStatus(Node("edge-2"), "StreamClusters"))

    assert [config["client_scope"] for config in await told(server)] == ["StreamClusters"]


async def test_clients_are_chosen_by_their_nodes(server: Server) -> None:
    """As the request says."""
    server.publish(named("cds", "a"))
    for node in ("edge-1", "core-1"):
        await server.poll(node={"id": node, "metadata": {"role": node[:4]}})
    role = {"path": [{"key": "role"}], "value": {"string_match": {"exact": "core"}}}
    chosen = await told(server, node_matchers=[{"node_metadatas": [role]}])

    assert [config["node"]["id"] for config in chosen] == ["core-1"]


async def test_a_node_that_cannot_be_read_is_answered_and_told_of(server: Server) -> None:
    """By its id; what it says of itself decides nothing."""
    server.publish(named("cds", "a"))
    answer = await server.poll(node={"id": "edge-1", "user_agent_name": "envoy", "metadata": [1]})
    [config] = await told(server)

    assert answer.status == 200
    assert config["node"] == {"id": "edge-1"}


@pytest.mark.parametrize(
    ("request_", "status", "code", "message"),
    [
        ({"data": b"nonsense"}, 400, 3, "send `{}` at least"),
        ({"json": {"node_matchers": [{"node_id": {}}]}}, 400, 3, "node_matchers[0].node_id: has no form"),
        ({"data": b" " * 70_000}, 413, 8, "the request is over 65536 bytes"),
        ({"data": BytesIO(b" " * (MAX_REQUEST_BYTES + 1))}, 413, 8, "the body is over"),
        ({"data": b"{}", "headers": {"content-type": "text/plain"}}, 415, 3, "not declared as JSON"),
    ],
)
async def test_bad_requests_are_refused(
    server: Server, request_: dict[str, Any], status: int, code: int, message: str
) -> None:
    """As polls are, and the log hears of it."""
    request_ = {"headers": {"content-type": "application/json"}, **request_}
    answer = await server.ask("POST", CLIENT_STATUS, **request_)

    assert (answer.status, answer.content["code"]) == (status, code)
    assert message in answer.content["message"]
    assert server.recorder.rejected == [("127.0.0.1", status, answer.content["message"])]


async def test_other_methods_are_refused(server: Server) -> None:
    """POST alone."""
    answer = await server.ask("GET", CLIENT_STATUS)

    assert (answer.status, answer.headers["Allow"]) == (405, "POST")


async def test_an_answer_that_is_too_large_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the remedy."""
    server.publish(named("cds", "a"))
    await server.poll()
    monkeypatch.setattr(status_service, "MOST_ANSWER_BYTES", 100)
    answer = await server.ask("POST", CLIENT_STATUS, json={})

    assert (answer.status, answer.content["code"]) == (413, 8)
    assert "node_matchers" in answer.content["message"]


@pytest.mark.parametrize("coding", ["gzip", "identity"])
async def test_a_large_answer(server: Server, coding: str) -> None:
    """It is written in pieces, compressed where that is asked for."""
    server.publish(*(named("cds", f"c-{number:02}", alt_stat_name="x" * 60_000) for number in range(40)))
    await server.poll()
    answer = await server.ask("POST", CLIENT_STATUS, json={}, headers={"accept-encoding": coding})
    [config] = answer.content["config"]

    assert len(answer.body) > 2 * LARGE_BODY_BYTES
    assert answer.headers.get("Content-Encoding", "identity") == coding
    assert [each["name"] for each in config["generic_xds_configs"]] == [f"c-{number:02}" for number in range(40)]


async def test_the_wrong_path_names_this_one(server: Server) -> None:
    """Who asks elsewhere is told what there is."""
    answer = await server.ask("POST", "/v3/discovery:nothing", json={})

    assert CLIENT_STATUS in answer.content["message"]


async def test_an_error_of_our_own_ends_the_request(server: Server) -> None:
    """It is not the client's."""

    def broken() -> ClientStatus:
        raise ZeroDivisionError

    server.clients.opened(broken)
    answer = await server.ask("POST", CLIENT_STATUS, json={})

    assert answer.status == 500
    assert [type(error) for _, error in server.recorder.errors] == [ZeroDivisionError]
