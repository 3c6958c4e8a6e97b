from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.status.v3 import csds_pb2

from fsxds.model.errors import ProtocolError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Resource
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.messages import ClientStatus, Node, WatchStatus
from fsxds.transports.client_status import status_service
from fsxds.transports.client_status.contents import Contents
from fsxds.transports.client_status.status_service import ClientReports
from fsxds.transports.exchange import Clients
from fsxds.transports.rest.poll_requests import serialized_node
from fsxds.transports.rest.poll_responses import LARGE_RESOURCE_BYTES
from tests.support.polls import envoy_catalogue, named

CDS, SDS = BY_SHORT_NAME["cds"].type_url, BY_SHORT_NAME["sds"].type_url
CLUSTER = named("cds", "a", alt_stat_name="x")
V1, V2 = Version("v1"), Version("v2")
SCOPE = "StreamAggregatedResources"
METADATA = {"role": "edge", "limit": float("nan"), "zones": ["a", None]}


def watch(*resources: Resource, **fields: Any) -> WatchStatus:
    """Make a watch of clusters in step; fields say what is different."""
    told: dict[str, Any] = {"names": None, "sent": V1, "acked": V1, "resources": resources, **fields}
    return WatchStatus(CDS, **told)


def reports_of(*statuses: ClientStatus) -> ClientReports:
    """Return reports about these clients."""
    clients = Clients()
    for status in statuses:
        clients.opened(partial(replace, status))
    return ClientReports(clients, envoy_catalogue())


def clients_of(reports: ClientReports) -> Clients:
    """Return the clients that are reported."""
    assert isinstance(reports._clients, Clients)
    return reports._clients


def client(node_id: str, *watches: WatchStatus, node: Node | None = None) -> ClientStatus:
    """Make a client with a stream."""
    return ClientStatus(node or Node(node_id), SCOPE, watches)


async def answer(reports: ClientReports, **request: Any) -> csds_pb2.ClientStatusResponse:
    """Ask over the wire."""
    message = csds_pb2.ClientStatusRequest(**request)
    return csds_pb2.ClientStatusResponse.FromString(await reports.answer(message.SerializeToString()))


async def answer_json(reports: ClientReports, **request: Any) -> dict[str, Any]:
    """Ask in JSON."""
    content: dict[str, Any] = json.loads((await reports.answer_json(json.dumps(request).encode())).body)
    return content


async def test_a_client_in_step() -> None:
    """Over the wire: who it is, how it is connected, and each resource with its content."""
    told = base_pb2.Node(id="edge-1", user_agent_name="envoy")
    reports = reports_of(client("", watch(CLUSTER), node=Node("edge-1", serialized=told.SerializeToString())))
    expected = csds_pb2.ClientStatusResponse()
    config = expected.config.add(node=told, client_scope=SCOPE)
    resource = config.generic_xds_configs.add(
        type_url=CDS, name="a", version_info=V1, config_status="SYNCED", client_status="ACKED"
    )
    resource.xds_config.type_url, resource.xds_config.value = CDS, CLUSTER.body

    assert await answer(reports) == expected


async def test_a_client_in_step_in_json() -> None:
    """The same; resources as JSON of their own, with snake_case names."""
    node = Node("edge-1", serialized=serialized_node({"id": "edge-1", "metadata": METADATA}))

    assert await answer_json(reports_of(client("", watch(CLUSTER), node=node))) == {
        "config": [
            {
                "node": {"id": "edge-1", "metadata": {**METADATA, "limit": "NaN"}},
                "generic_xds_configs": [
                    {
                        "type_url": CDS,
                        "name": "a",
                        "version_info": V1,
                        "xds_config": {"@type": CDS, "name": "a", "alt_stat_name": "x"},
                        "config_status": "SYNCED",
                        "client_status": "ACKED",
                    }
                ],
                "client_scope": SCOPE,
            }
        ]
    }


async def test_a_rejection() -> None:
    """With the client's words, and what it refused; what is empty is not written."""
    refused = watch(CLUSTER, acked=None, nacked=V1, reason="bad", rejected=frozenset({"a", "b"}))
    reports = reports_of(client("edge-1", refused))
    [config] = (await answer(reports, exclude_resource_contents=True)).config
    content = await answer_json(reports, exclude_resource_contents=True)

    assert [
        (each.name, each.error_state.details, each.error_state.version_info) for each in config.generic_xds_configs
    ] == [
        ("a", "bad", V1),
        ("b", "bad", V1),
    ]
    assert content["config"][0]["generic_xds_configs"] == [
        {
            "type_url": CDS,
            "name": name,
            "config_status": "ERROR",
            "client_status": "NACKED",
            "error_state": {"details": "bad", "version_info": V1},
        }
        for name in "ab"
    ]


async def test_a_rejection_without_words() -> None:
    """It is one all the same."""
    reports = reports_of(client("edge-1", watch(CLUSTER, nacked=V1, rejected=frozenset("a"))))
    [config] = (await answer(reports)).config
    content = await answer_json(reports)

    assert config.generic_xds_configs[0].HasField("error_state")
    assert content["config"][0]["generic_xds_configs"][0]["error_state"] == {"version_info": V1}


async def test_what_the_client_thinks_may_not_be_known() -> None:
    """The status is not written then."""
    reports = reports_of(client("edge-1", watch(CLUSTER, sent=V2)))
    [config] = (await answer(reports)).config
    told = (await answer_json(reports))["config"][0]["generic_xds_configs"][0]

    assert config.generic_xds_configs[0].client_status == 0
    assert told["config_status"] == "STALE"
    assert "client_status" not in told


async def test_a_client_that_asked_for_nothing_yet() -> None:
    """It is there."""
    reports = reports_of(client("edge-1"))

    assert await answer_json(reports) == {"config": [{"node": {"id": "edge-1"}, "client_scope": SCOPE}]}
    assert len((await answer(reports)).config) == 1


async def test_without_clients_the_answer_is_empty() -> None:
    """Nobody is connected."""
    assert await reports_of().answer(b"") == b""
    assert await answer_json(reports_of()) == {"config": []}


async def test_contents_can_be_left_out() -> None:
    """`exclude_resource_contents` leaves names, versions and verdicts."""
    reports = reports_of(client("edge-1", watch(CLUSTER)))
    [config] = (await answer(reports, exclude_resource_contents=True)).config
    content = await answer_json(reports, exclude_resource_contents=True)

    assert not config.generic_xds_configs[0].HasField("xds_config")
    assert "xds_config" not in content["config"][0]["generic_xds_configs"][0]


async def test_secrets_are_never_told() -> None:
    """That a client holds a Secret is told, and not what it is."""
    secret = named("sds", "key", generic_secret={"secret": {"inline_string": "sunshine"}})
    reports = reports_of(ClientStatus(Node("edge-1"), SCOPE, (WatchStatus(SDS, None, V1, V1, resources=(secret,)),)))
    wire, written = await reports.answer(b""), (await reports.answer_json(b"{}")).body

    assert b"sunshine" not in wire + written
    assert b"key" in wire
    assert b'"name":"key"' in written
    assert b'"xds_config"' not in written


async def test_clients_are_chosen_by_their_nodes() -> None:
    """`node_matchers` of the request."""
    reports = reports_of(client("edge-1"), client("core-1"), client("edge-2"))
    matchers = [{"node_id": {"prefix": "edge"}}]
    configs = (await answer(reports, node_matchers=matchers)).config

    assert [config.node.id for config in configs] == ["edge-1", "edge-2"]
    assert [config["node"]["id"] for config in (await answer_json(reports, node_matchers=matchers))["config"]] == [
        "edge-1",
        "edge-2",
    ]


async def test_others_have_their_turn_while_clients_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where none of them is wanted."""
    monkeypatch.setattr(status_service, "SLICE_S", 0.0)
    reports = reports_of(*(client(str(number)) for number in range(100)))
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        other = tasks.create_task(take_turns())
        await answer(reports, node_matchers=[{"node_id": {"exact": "none"}}])
        other.cancel()

    assert turns >= 100


async def test_polling_clients_are_told_of() -> None:
    """Clients without a stream are listed as those with one."""
    reports = reports_of()
    clients_of(reports).add(lambda: iter([client("edge-1")]))

    assert len((await answer(reports)).config) == 1


async def test_both_spellings_of_a_request() -> None:
    """As everywhere in proto JSON; unknown fields are ignored."""
    reports = reports_of(client("edge-1", watch(CLUSTER)))
    content = await answer_json(reports, excludeResourceContents=True, unknown=1)

    assert "xds_config" not in content["config"][0]["generic_xds_configs"][0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no ClientStatusRequest in JSON; send `{}`"),
        (b"[]", "no ClientStatusRequest in JSON"),
        (b"nonsense", "no ClientStatusRequest in JSON"),
        (b"\xff", "no ClientStatusRequest in JSON"),
        (b"[" * 60_000, "no ClientStatusRequest in JSON"),
        (b"1", "no ClientStatusRequest in JSON"),
        (b'{"node_matchers":{}}', "no ClientStatusRequest in JSON; .*node_matchers"),
        (b'{"node_matchers":[{"node_id":{"exact":"\\ud800"}}]}', "no ClientStatusRequest in JSON"),
        (b'{"node_matchers":[{"node_id":{"exact":"a","prefix":"b"}}]}', "no ClientStatusRequest in JSON"),
        (b'{"node_matchers":[{"node_id":{"custom":{"typed_config":{"@type":"x"}}}}]}', "no ClientStatusRequest"),
        (b'{"node_matchers":[{"node_id":{}}]}', r"node_matchers\[0\]\.node_id: has no form"),
    ],
)
async def test_bad_json_is_refused(body: bytes, message: str) -> None:
    """With what is wrong, and the remedy."""
    with pytest.raises(ProtocolError, match=message) as refused:
        await reports_of().answer_json(body)

    assert refused.value.code == "INVALID_ARGUMENT"


async def test_a_bad_message_is_refused() -> None:
    """Bytes that are no message, and matchers that match nothing."""
    with pytest.raises(ProtocolError, match="no ClientStatusRequest; send"):
        await reports_of().answer(b"\xff")
    with pytest.raises(ProtocolError, match=r"node_matchers\[0\]"):
        await answer(reports_of(), node_matchers=[{"node_id": {}}])


async def test_an_answer_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says how to ask for less; up to the limit there is an answer."""
    reports = reports_of(client("edge-1", watch(CLUSTER)), client("edge-2", watch(CLUSTER)))
    size = len(await reports.answer(b""))
    monkeypatch.setattr(status_service, "MOST_ANSWER_BYTES", size)

    assert await reports.answer(b"")

    monkeypatch.setattr(status_service, "MOST_ANSWER_BYTES", size - 1)
    with pytest.raises(ProtocolError, match="node_matchers, or set exclude_resource_contents") as refused:
        await reports.answer(b"")

    assert refused.value.code == "RESOURCE_EXHAUSTED"
    assert await answer(reports, exclude_resource_contents=True)
    assert await answer(reports, node_matchers=[{"node_id": {"exact": "edge-1"}}])


async def test_too_many_resources_are_refused_before_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all clients that are asked for are counted."""
    reports = reports_of(client("edge-1", watch(CLUSTER)), client("edge-2", watch(CLUSTER)))
    monkeypatch.setattr(status_service, "MOST_ROWS", 1)
    with pytest.raises(ProtocolError, match="or have over 1 resources; ask for fewer"):
        await reports.answer_json(b"{}")

    assert not len(reports._contents._bodies)
    assert await answer(reports, node_matchers=[{"node_id": {"exact": "edge-1"}}])


async def test_what_no_client_holds_any_more_is_forgotten() -> None:
    """With the second report without it."""
    reports = reports_of()
    connected = clients_of(reports).opened(lambda: client("edge-1", watch(CLUSTER)))
    await reports.answer(b"")
    clients_of(reports).closed(connected)

    assert len(reports._contents._bodies)

    await reports.answer(b"")
    await reports.answer(b"")

    assert not len(reports._contents._bodies)


@pytest.mark.parametrize("is_json", [False, True])
async def test_no_client_waits_while_an_answer_is_made(monkeypatch: pytest.MonkeyPatch, *, is_json: bool) -> None:
    """Others have their turn again and again: their longest time without is a small part of what the answer takes."""
    monkeypatch.setattr(status_service, "SLICE_S", status_service.SLICE_S / 10)
    clusters = [named("cds", f"c-{number:03}", alt_stat_name="x" * 500) for number in range(150)]
    reports = reports_of(*(client(f"edge-{number}", watch(*clusters)) for number in range(20)))
    turns_s: list[float] = []

    async def take_turns() -> None:
        while True:
            turns_s.append(time.thread_time())
            await asyncio.sleep(0)

    gc.disable()
    try:
        async with asyncio.TaskGroup() as tasks:
            other = tasks.create_task(take_turns())
            await asyncio.sleep(0)
            await (reports.answer_json(b"{}") if is_json else reports.answer(b""))
            turns_s.append(time.thread_time())
            other.cancel()
    finally:
        gc.enable()

    longest_s = max(later - earlier for earlier, later in pairwise(turns_s))
    assert longest_s < (turns_s[-1] - turns_s[0]) / 5


async def test_a_large_resource_is_shown_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no small one: a thread that runs Python makes the event loop wait after each look at a socket."""
    threads = {}

    def show(_: Contents, resource: Resource) -> bytes:
        threads[resource.name] = threading.current_thread()
        return resource.body

    monkeypatch.setattr(Contents, "body_of", show)
    large = named("cds", "large", alt_stat_name="x" * LARGE_RESOURCE_BYTES)
    await reports_of(client("edge-1", watch(CLUSTER, large))).answer(b"")

    assert threads["a"] is threading.main_thread()
    assert threads["large"] is not threading.main_thread()


async def test_large_clients_are_joined_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is the same."""
    reports = reports_of(*(client(f"edge-{number}", watch(CLUSTER)) for number in range(3)))
    wire, written = await reports.answer(b""), (await reports.answer_json(b"{}")).body
    monkeypatch.setattr(status_service, "PIECE_BYTES", 1)
    in_pieces = await reports.answer_json(b"{}")

    assert await reports.answer(b"") == wire
    assert in_pieces.body == written
    assert len(in_pieces.pieces) > 3


async def test_who_asks_for_the_same_meanwhile_shares_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was begun after the question, so that it tells of what was before."""
    monkeypatch.setattr(status_service, "SLICE_S", 0.0)
    reports = reports_of(client("edge-1", watch(CLUSTER)))
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(reports.answer_json(b"{}"))
        while not len(reports._contents._bodies):  # noqa: ASYNC110, to be noticed at once
            await asyncio.sleep(0)
        clients_of(reports).opened(lambda: client("edge-2"))
        others = [tasks.create_task(reports.answer_json(b"{}")) for _ in range(10)]
        different = tasks.create_task(reports.answer(b""))

    assert reports.made == 3
    assert b"edge-2" not in first.result().body
    assert b"edge-2" in others[0].result().body
    assert all(other.result() is others[0].result() for other in others)
    assert b"edge-2" in different.result()
    assert not reports._requests


async def test_who_goes_away_is_not_worked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work ends where it is, and who waits for the same gets an answer of its own."""
    monkeypatch.setattr(status_service, "SLICE_S", 0.0)
    reports = reports_of(client("edge-1", watch(*[CLUSTER] * 100)))
    async with asyncio.TaskGroup() as tasks:
        gone = tasks.create_task(reports.answer_json(b"{}"))
        stays = tasks.create_task(reports.answer_json(b"{}"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        began = reports.made
        gone.cancel()

    assert (began, reports.made, gone.cancelled()) == (1, 2, True)
    assert stays.result().body.count(b'"name":"a"') == 200
    assert not reports._requests


async def test_secrets_are_looked_for_once_per_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many clients hold it, and in both forms."""
    looked = []
    look = Contents._body

    def count(contents: Contents, type_url: TypeUrl, body: bytes) -> bytes | None:
        looked.append(body)
        return look(contents, type_url, body)

    monkeypatch.setattr(Contents, "_body", count)
    reports = reports_of(*(client(f"edge-{number}", watch(CLUSTER)) for number in range(3)))
    for _ in range(2):
        await reports.answer(b"")
        await reports.answer_json(b"{}")
        await answer(reports, exclude_resource_contents=True)
        await answer(reports, exclude_resource_contents=True)

    assert looked == [CLUSTER.body]


async def test_a_large_request_is_refused() -> None:
    """Reading it would take long."""
    request = json.dumps({"node_matchers": [{"node_id": {"exact": "x"}}] * 5000}).encode()
    for ask in (reports_of().answer_json, reports_of().answer):
        with pytest.raises(ProtocolError, match="the request is over 65536 bytes; ask with fewer") as refused:
            await ask(request)

        assert refused.value.code == "RESOURCE_EXHAUSTED"
