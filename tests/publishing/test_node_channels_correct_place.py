from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

import pytest

from fsxds.model.resources import Snapshot
from fsxds.model.values import TypeUrl
from fsxds.protocol.messages import Node
from fsxds.publishing.node_channels import GATHERS_S, NodeChannels
from tests.support.publishing import CDS, EDS, RDS, Client, Publishing, publishing, virtually
from tests.support.rollouts import Tree

EDGE = Node("edge-1")


async def left_behind(run: Publishing) -> list[Snapshot]:
    """Let a node leave within the first step to another cluster; return what was served, the newest first."""
    run.load(["a"], "a")
    client = await run.join(EDGE.id)
    run.load(["b"], "b")
    await run.settled()
    client.leave()
    served: list[Snapshot] = []
    for name in ("b", "c", "d"):
        run.load([name], name)
        await run.passed(0.1)
        assert run.store.current is not None
        served.insert(0, run.store.current)
    return served


def has(name: str, snapshot: Snapshot) -> bool:
    """Whether a snapshot has a cluster alone."""
    return list(snapshot.resources(CDS)) == [name]


async def names_for(channels: NodeChannels, name: str) -> list[str]:
    """Return what the node is served when it comes with a cluster alone."""
    channel = await channels.channel_of(EDGE, holds=True, holds_of=partial(has, name))
    assert channel.store.current is not None
    return list(channel.store.current.resources(CDS))


@virtually
async def test_who_was_led_on_elsewhere_goes_on_from_there() -> None:
    """It is not led again from where it left: it would go back."""
    async with publishing() as run:
        served = await left_behind(run)
        run.channels.correct_place(EDGE, partial(has, "c"), served)

        assert await names_for(run.channels, "c") == ["c"]


@virtually
async def test_who_has_what_it_left_with_goes_on_from_there() -> None:
    """So does one of which nobody knows what it has."""
    for name in ("a", "x"):
        async with publishing() as run:
            served = await left_behind(run)
            run.channels.correct_place(EDGE, partial(has, name), served)

            assert await names_for(run.channels, name) == ["a", "b"]


@virtually
async def test_who_was_never_here_goes_on_from_what_another_server_led_it_to() -> None:
    """At once it would get routes before their clusters, or lose clusters before its routes."""
    async with publishing() as run:
        served = await left_behind(run)
        run.channels.correct_place(Node("edge-2"), partial(has, "c"), served)
        channel = await run.channels.channel_of(Node("edge-2"), holds=True, holds_of=partial(has, "c"))

        assert channel.store.current is not None
        assert ["c"] == list(channel.store.current.resources(CDS))


@virtually
async def test_who_was_never_here_and_has_nothing_known_has_no_place() -> None:
    """It is served what the others are, as is one that has almost that, and one without an id."""
    async with publishing() as run:
        served = await left_behind(run)
        for node, name in ((Node("edge-2"), "x"), (Node("edge-3"), "d"), (Node(""), "c")):
            run.channels.correct_place(node, partial(has, name), served)
            channel = await run.channels.channel_of(node, holds=True, holds_of=partial(has, name))

            assert channel is run.publisher.whole


@virtually
async def test_who_is_here_stays() -> None:
    """A new subscription of a client that follows the others is no sign of another place."""
    async with publishing() as run:
        served = await left_behind(run)
        await run.join("edge-2")
        run.channels.correct_place(Node("edge-2"), partial(has, "c"), served)
        channel = await run.channels.channel_of(Node("edge-2"), holds=True, holds_of=partial(has, "c"))

        assert channel is run.publisher.whole


FIRST: Tree = {"CDS": {"c": "1 EDS:e"}, "EDS": {"e": "1", "f": "1"}, "RDS": {"r": "1 CDS:c"}}
LAST: Tree = {"CDS": {"d": "1 EDS:e"}, "EDS": {"e": "2", "f": "2", "g": "1"}, "RDS": {"r": "2 CDS:d"}}


async def returned(run: Publishing, name: str, types: Collection[TypeUrl], place: Snapshot) -> Client:
    """Let a node come that another server led to a place, with these types; it takes every step."""
    node = Node(name)
    run.channels.correct_place(node, lambda snapshot: snapshot is place, [place])
    channel = await run.channels.channel_of(node, holds=True, holds_of=lambda snapshot: snapshot is place)
    return Client(channel, name, is_quick=True, types=types)


async def led_from_the_first(run: Publishing) -> Snapshot:
    """Load both trees; return the first as it was served."""
    run.save(FIRST)
    await run.settled()
    assert run.store.current is not None
    place = run.store.current
    run.save(LAST)
    await run.settled()
    return place


@virtually
async def test_a_node_that_has_come_with_all_types_is_led_on_at_once() -> None:
    """Those that came with it, and never ask for all that changes, get theirs when the rest is over."""
    async with publishing() as run:
        place = await led_from_the_first(run)
        clusters_alone = await returned(run, "edge-2", [CDS], place)
        began_s = asyncio.get_running_loop().time()
        whole = await returned(run, "edge-3", [CDS, EDS, RDS], place)
        await run.passed(GATHERS_S)
        assert ["d"] == list(whole.held[CDS])
        assert ["c"] == list(clusters_alone.held[CDS])
        assert asyncio.get_running_loop().time() < began_s + run.publisher.rules.rollout.step_timeout_s
        await run.passed(run.publisher.rules.rollout.step_timeout_s)
        assert ["d"] == list(clusters_alone.held[CDS])

        assert whole.channel is clusters_alone.channel is run.publisher.whole


@virtually
async def test_nodes_that_return_together_share_a_lane() -> None:
    """A thousand rollouts of one node each would hold up everything else."""
    async with publishing() as run:
        place = await led_from_the_first(run)
        clients = []
        for number in range(20):
            clients.append(await returned(run, f"edge-{number + 2}", [CDS, EDS, RDS], place))
            await run.passed(GATHERS_S / 40)
        assert 1 == len({client.channel for client in clients})
        assert 2 == len(run.publisher.rollouts)
        await run.passed(GATHERS_S)

        assert {run.publisher.whole} == {client.channel for client in clients}
        assert [["d"]] * 20 == [list(client.held[CDS]) for client in clients]


class Polls(Client):
    """A node whose polls for endpoints come one by one."""

    polled: frozenset[str] = frozenset()

    def reachable(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """Return those with a poll."""
        return names & self.polled if type_url == EDS else super().reachable(type_url, names)


@virtually
@pytest.mark.parametrize(("polled", "expected"), [({"e"}, ["c"]), ({"e", "f"}, ["d"])])
async def test_each_poll_for_endpoints_is_waited_for(polled: set[str], expected: list[str]) -> None:
    """Of other types, a node may use some resources only."""
    async with publishing() as run:
        place = await led_from_the_first(run)
        node = Node("edge-2")
        run.channels.correct_place(node, lambda snapshot: snapshot is place, [place])
        channel = await run.channels.channel_of(node, holds=True, holds_of=lambda snapshot: snapshot is place)
        client = Polls(channel, node.id, is_quick=True, types=[CDS, EDS, RDS])
        client.polled = frozenset(polled)
        channel.progressed(client)
        await run.passed(GATHERS_S)

        assert expected == list(client.held[CDS])


@virtually
async def test_a_later_poll_of_a_resting_node_shows_a_later_place() -> None:
    """Its polls were at several servers; the earlier ones are answered from there, and nothing goes back."""
    async with publishing() as run:
        served = await left_behind(run)
        node = Node("edge-2")
        run.channels.correct_place(node, partial(has, "b"), served)
        channel = await run.channels.channel_of(node, holds=True, holds_of=partial(has, "b"))
        client = Client(channel, node.id, types=[RDS])
        client.transport = "REST"
        await run.settled()
        run.channels.correct_place(node, partial(has, "c"), served)
        later = await run.channels.channel_of(node, holds=True, holds_of=partial(has, "c"))
        assert later.store.current is not None
        assert ["c"] == list(later.store.current.resources(CDS))
        assert client not in channel.clients
        run.channels.correct_place(node, partial(has, "b"), served)

        assert await run.channels.channel_of(node, holds=True, holds_of=partial(has, "b")) is later


@virtually
async def test_a_stream_is_led_on_from_its_place_whatever_others_with_its_id_have() -> None:
    """Envoys may share an id: the first has nothing to do with the content of the second."""
    async with publishing() as run:
        place = await led_from_the_first(run)
        stream = await returned(run, "edge-2", [CDS], place)
        run.save({**LAST, "CDS": {"e": "1 EDS:e"}, "RDS": {"r": "2 CDS:e"}})
        await run.settled()
        assert run.store.current is not None
        later = run.store.current
        run.channels.correct_place(Node("edge-2"), lambda snapshot: snapshot is later, [later, place])
        await run.passed(run.publisher.rules.rollout.step_timeout_s)

        assert ["e"] == list(stream.held[CDS])
