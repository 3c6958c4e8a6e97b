"""Nodes that poll, as clients of the channels that they follow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.protocol.messages import Node
from fsxds.protocol.polling_node import PollingNode
from fsxds.rollout.rejections import Nack
from fsxds.rollout.step import Standing
from fsxds.runtime.channels import Channel, ChannelClient, ChannelKey
from fsxds.transports.rest import application
from fsxds.transports.rest.application import RestClient
from tests.support.polls import Server, named, running, snapshot_of, until
from tests.support.steps import step_between

CDS = BY_SHORT_NAME["cds"].type_url


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server that has one cluster."""
    async with running() as server:
        server.publish(named("cds", "a"))
        yield server


def names(clients: Iterable[ChannelClient]) -> list[str]:
    """Return what clients are called."""
    return sorted(client.name for client in clients)


def version_of(server: Server) -> str:
    """Return the version of all clusters."""
    assert server.store.current is not None
    return server.store.current.versions[CDS]


async def test_all_polls_of_a_node_are_one_client(server: Server) -> None:
    """A node joins its channel with its first poll, once; one without an id does not join."""
    for service in ("clusters", "listeners"):
        await server.poll(service)
    await server.poll(node={"id": "edge-2"})
    await server.poll(node={})

    clients = tuple(server.channels.channel.clients)
    assert names(clients) == ["edge-1", "edge-2"]
    assert {client.transport for client in clients} == {"REST"}
    clients[0].wake()


async def test_a_step_is_taken_when_the_node_polls_with_it(server: Server) -> None:
    """A held poll is answered with a step, and the one after it shows that the client took it."""
    asked: list[Standing] = []
    channel = server.channels.channel
    async with asyncio.TaskGroup() as tasks:
        await server.poll()
        tasks.create_task(server.poll(version_info=version_of(server)))
        await server.until_held()
        before = server.store.current
        assert before is not None
        grown = snapshot_of(2, named("cds", "a"), named("cds", "b"))
        channel.step = step = step_between(before, grown)
        channel.on_progress = lambda client: asked.append(client.standing(step))
        server.store.publish(grown)
        (client,) = channel.clients
        assert client.standing(step) is Standing.PENDING
        await server.until_held(0)
        tasks.create_task(server.poll(version_info=version_of(server)))
        await server.until_held()
        assert client.standing(step) is Standing.TAKEN
        server.rest.exchange.drain()

    assert asked[0] is Standing.PENDING
    assert asked[-1] is Standing.TAKEN


async def test_a_node_that_came_once_has_not_shown_that_it_stays(server: Server) -> None:
    """A poll after an answer shows that; a second poll of something else does not."""
    await server.poll()
    await server.poll("listeners")
    (client,) = server.channels.channel.clients
    before = client.has_returned
    await server.poll(version_info=version_of(server), timeout_ms=1)

    assert (before, client.has_returned) == (False, True)
    assert client.selected(CDS, frozenset("a")) == {"a"}
    assert not client.selected(BY_SHORT_NAME["eds"].type_url, frozenset("a"))


async def test_a_rejection_is_that_of_a_client_of_a_channel(server: Server) -> None:
    """The channel hears which client it was, and what it rejected; by its node id it votes."""
    heard: list[tuple[ChannelClient, Nack]] = []
    server.channels.channel.on_nack = lambda client, nack: heard.append((client, nack))
    answer = await server.poll()
    error = {"code": 3, "message": "Error adding/updating cluster(s) a: no such thing"}
    await server.poll(response_nonce=answer.content["nonce"], error_detail=error, timeout_ms=1)
    [(client, nack)] = heard

    assert server.store.current is not None
    assert nack.versions == {((CDS, "a"), server.store.current.resources(CDS)["a"].version)}
    assert (nack.is_named, client.identity) == (True, "edge-1")


async def test_a_node_that_breaks_off_all_its_polls_leaves(server: Server) -> None:
    """An Envoy that ends is no client any more; when it is back it is another one."""
    channel = server.channels.channel
    await server.poll()
    (first,) = channel.clients
    held = asyncio.ensure_future(server.poll(version_info=version_of(server)))
    await server.until_held()
    held.cancel()
    await until(lambda: not channel.clients)
    await server.poll(version_info=None)

    (second,) = channel.clients
    assert second is not first
    assert names([second]) == ["edge-1"]


async def test_a_poll_that_is_broken_off_while_another_is_held(server: Server) -> None:
    """A node stays as long as any of its polls is there, and the one that ended is not waited for."""
    channel = server.channels.channel
    for service in ("clusters", "listeners"):
        await server.poll(service)
    assert server.store.current is not None
    listeners = server.store.current.versions[BY_SHORT_NAME["lds"].type_url]
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.poll("listeners", version_info=listeners))
        await server.until_held(1)
        held = tasks.create_task(server.poll(version_info=version_of(server)))
        await server.until_held(2)
        held.cancel()
        await server.until_held(1)
        (client,) = channel.clients
        step = step_between(server.store.current, snapshot_of(2, named("cds", "b")))
        await until(lambda: client.standing(step) is Standing.TAKEN)
        server.rest.exchange.drain()


async def test_held_polls_follow_their_client_to_another_channel(server: Server) -> None:
    """What the other channel serves is answered at once, and further polls are answered from it."""
    first, second = server.channels.channel, Channel(ChannelKey(is_canary=True))
    await server.poll()
    async with asyncio.TaskGroup() as tasks:
        held = tasks.create_task(server.poll(version_info=version_of(server)))
        await server.until_held()
        (client,) = first.clients
        second.store.publish(snapshot_of(9, named("cds", "c")))
        second.join(client)
        first.leave(client)
        client.follow(second)
        answer = await held
    server.channels.channel = second

    assert [resource["name"] for resource in answer.content["resources"]] == ["c"]
    assert (await server.poll()).content["resources"] == answer.content["resources"]
    assert list(second.clients) == [client]


async def test_a_node_that_is_served_something_else_moves_with_all_its_polls(server: Server) -> None:
    """Where a poll finds that its node has another channel, the other polls of the node look at that one too."""
    first, second = server.channels.channel, Channel(ChannelKey(is_canary=True))
    second.store.publish(snapshot_of(9, named("cds", "c")))
    await server.poll()
    async with asyncio.TaskGroup() as tasks:
        held = tasks.create_task(server.poll(version_info=version_of(server)))
        await server.until_held()
        server.channels.channel = second
        await server.poll("listeners")
        answer = await held

    assert [resource["name"] for resource in answer.content["resources"]] == ["c"]
    assert not first.clients
    assert names(second.clients) == ["edge-1"]


async def test_a_channel_with_the_same_content_answers_no_poll(server: Server) -> None:
    """A held poll that looks at another channel goes on waiting, until its own deadline or an update there."""
    first, second = server.channels.channel, Channel(ChannelKey(is_canary=True))
    await server.poll()
    second.store.publish(snapshot_of(9, named("cds", "a")))
    async with asyncio.TaskGroup() as tasks:
        held = tasks.create_task(server.poll(version_info=version_of(server)))
        await server.until_held()
        (client,) = first.clients
        assert isinstance(client, RestClient)
        client.follow(second)
        await until(lambda: any(limit.when() is not None for limit in client.limits))
        first.store.publish(snapshot_of(10, named("cds", "b")))
        second.store.publish(snapshot_of(11, named("cds", "d")))
        answer = await held

    assert [resource["name"] for resource in answer.content["resources"]] == ["d"]


def test_a_node_is_forgotten_with_its_client() -> None:
    """The client of a node shows the node as it described itself last."""
    polls = PollingNode(Node("edge-1", serialized=b"old"))
    client = RestClient(polls, Channel(ChannelKey()))
    polls.node = Node("edge-1", serialized=b"new")

    assert client.node.serialized == b"new"


async def test_a_client_that_polls_no_more_leaves_its_channel(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its vote ends then, ten minutes after its last poll; a client with a held poll stays, and each may come back."""
    monkeypatch.setattr(application, "CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr(application, "GONE_AFTER_S", 0.05)
    channel = server.channels.channel
    for node in ("held", "gone"):
        await server.poll(node={"id": node})
    task = asyncio.create_task(server.poll(node={"id": "held"}, version_info=version_of(server)))
    await server.until_held()
    await until(lambda: names(channel.clients) == ["held"])
    assert [status.node.id for status in server.clients.statuses()] == ["held"]

    monkeypatch.setattr(application, "GONE_AFTER_S", 600.0)
    await server.poll(node={"id": "gone"}, version_info=version_of(server), timeout_ms=1)
    assert names(channel.clients) == ["gone", "held"]

    server.rest.exchange.drain()
    await task


async def test_a_poll_that_another_server_answered_meanwhile_leaves_the_held_ones_in_place(server: Server) -> None:
    """All polls of the node follow its client; one that no client knows would be held until its deadline."""
    other = Channel(ChannelKey(is_canary=True))
    for service in ("clusters", "listeners"):
        await server.poll(service)
    assert server.store.current is not None
    listeners = server.store.current.versions[BY_SHORT_NAME["lds"].type_url]
    async with asyncio.TaskGroup() as tasks:
        held = tasks.create_task(server.poll("listeners", version_info=listeners))
        await server.until_held()
        await server.poll(version_info="of another server")
        (client,) = server.channels.channel.clients
        other.store.publish(snapshot_of(7, named("lds", "l")))
        other.join(client)
        client.follow(other)
        answer = await held

    assert answer.status == 200
    assert [{"name": "l"}] == [{"name": one["name"]} for one in answer.content["resources"]]
