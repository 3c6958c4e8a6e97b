"""What becomes of clients of several servers that serve one tree: they are led as by one server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest

from fsxds.events.fleet_events import PublisherElected, PublisherLost, PublisherWaits
from fsxds.events.process_events import InternalError
from fsxds.fleet.content import FleetContent
from fsxds.fleet.fleet_commands import FleetCommands
from fsxds.fleet.fleet_planner import FleetPlanner
from fsxds.fleet.key_values import Delete, Guard, Put
from fsxds.fleet.memory_engine import MemoryKeyValues
from fsxds.fleet.pointers import ViewKey
from fsxds.fleet.records import read_history
from fsxds.fleet.sealing import Sealing
from fsxds.model.errors import ProtocolError
from fsxds.publishing.node_channels import DROPPED_AFTER_S
from fsxds.publishing.rollout_operator import RolloutOperator
from fsxds.rollout.holding import HoldingRules
from fsxds.runtime.channels import ChannelKey
from fsxds.settings.rollout_forms import Canary, NackLimit
from tests.fleet.fleet_servers import RULES, FleetServer, fleet_of
from tests.fleet.made import KEYS, FaultyEngine
from tests.support.publishing import RDS, Client, virtually
from tests.support.rollouts import Tree, tree_snapshot

OLD: Tree = {"CDS": {"old": "1"}, "RDS": {"r": "1 CDS:old"}}
NEW: Tree = {"CDS": {"new": "bad"}, "RDS": {"r": "2 CDS:new"}}


async def until(is_so: Callable[[], bool], within_s: float = 60.0) -> float:
    """Wait until something is so, and return how long that took."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while not is_so():
        await asyncio.sleep(0.01)
        assert loop.time() - began_s < within_s
    return loop.time() - began_s


async def serving(servers: list[FleetServer], tree: Tree = OLD) -> None:
    """Have a tree published, and served by all."""
    servers[0].save(tree)
    await until(lambda: all(one.publisher.whole.store.current is not None for one in servers))


def route_of(client: Client) -> str:
    """Return the cluster that the route of a client leads to."""
    return client.held[RDS]["r"].body.decode().partition("CDS:")[2]


@virtually
async def test_a_step_waits_for_the_clients_of_all_servers() -> None:
    """No route leads to the new cluster while a client of any server does not have it; then all go on."""
    async with fleet_of(1, 2) as servers:
        await serving(servers)
        quick = [await server.join(f"edge-{number}") for number, server in enumerate(servers)]
        slow = await servers[2].join("slow", is_quick=False)
        servers[0].save(NEW)
        await until(lambda: all(client.clusters() == {"old": "1", "new": "bad"} for client in quick))
        await asyncio.sleep(3.0)
        assert [route_of(client) for client in quick] == ["old"] * 3

        slow.quicken()
        await until(lambda: all(client.clusters() == {"new": "bad"} for client in (*quick, slow)), 2.0)
        assert [route_of(client) for client in (*quick, slow)] == ["new"] * 4


@virtually
async def test_a_client_that_is_late_is_left_behind_by_its_server() -> None:
    """The others are not held up for longer than by one server, and it goes on by itself when it answers."""
    async with fleet_of(1, 2) as servers:
        await serving(servers)
        quick = await servers[1].join("quick")
        slow = await servers[2].join("slow", is_quick=False)
        servers[0].save(NEW)
        took_s = await until(lambda: route_of(quick) == "new")
        assert 4.9 < took_s < 7.0
        assert slow.clusters() == {"old": "1"}

        slow.quicken()
        await until(lambda: slow.clusters() == {"new": "bad"})
        assert slow.offers.index(("new", "bad")) < len(slow.offers) - 1


@virtually
async def test_one_of_many_rejects_for_itself_alone() -> None:
    """It keeps what it has; the others, at whatever server, get the change."""
    rules = replace(RULES, nack_limit=NackLimit(0.5))
    async with fleet_of(1, 2, rules) as servers:
        await serving(servers)
        clients = [await servers[number % 3].join(f"edge-{number}") for number in range(6)]
        clients[4].rejects.add("bad")
        servers[0].save(NEW)
        others = [client for client in clients if client is not clients[4]]
        await until(lambda: all(route_of(client) == "new" for client in others))
        await asyncio.sleep(20.0)
        assert route_of(clients[4]) == "old"
        assert all(client.clusters() == {"new": "bad"} for client in others)


@virtually
async def test_nodes_are_counted_over_all_servers() -> None:
    """One of two at its server is one of nine in the fleet: too few for the limit, also for the other one there."""
    async with fleet_of(1, 2, replace(RULES, nack_limit=NackLimit(0.2))) as servers:
        await serving(servers)
        many = [await servers[1].join(f"many-{number}") for number in range(7)]
        rejecting, other = [await servers[2].join(f"edge-{number}") for number in range(2)]
        rejecting.rejects.add("bad")
        servers[0].save(NEW)
        await until(lambda: all(client.clusters() == {"new": "bad"} for client in (*many, other)))
        await asyncio.sleep(20.0)
        assert route_of(rejecting) == "old"
        assert all(client.clusters() == {"new": "bad"} for client in (*many, other))


@virtually
async def test_what_too_many_reject_is_held_back_from_all_servers() -> None:
    """Two of six, at two servers, are too many; nobody gets it any more until it changes."""
    rules = replace(RULES, nack_limit=NackLimit(0.3))
    async with fleet_of(1, 2, rules) as servers:
        await serving(servers)
        clients = [await servers[number % 3].join(f"edge-{number}") for number in range(6)]
        for client in clients[1:3]:
            client.rejects.add("bad")
        servers[0].save(NEW)
        await until(lambda: all(client.clusters() == {"old": "1"} for client in clients))
        await asyncio.sleep(300.0)
        assert all(client.clusters() == {"old": "1"} and route_of(client) == "old" for client in clients)

        servers[0].save({"CDS": {"new": "good"}, "RDS": {"r": "3 CDS:new"}})
        await until(lambda: all(client.clusters() == {"new": "good"} for client in clients))


@virtually
async def test_canaries_of_all_servers_come_first() -> None:
    """The others get a change when the canaries have lived with it, at whatever server they are."""
    rules = replace(RULES, canary=Canary(share=0.5), bake_s=10.0)
    async with fleet_of(1, 2, rules) as servers:
        canaries, others = await canaries_of(servers)
        assert canaries
        assert others
        servers[0].save(NEW)
        await until(lambda: all(client.clusters() == {"new": "bad"} for client in canaries), 5.0)
        assert all(client.clusters() == {"old": "1"} for client in others)
        took_s = await until(lambda: all(client.clusters() == {"new": "bad"} for client in others))
        assert 7.0 < took_s < 15.0


async def canaries_of(servers: list[FleetServer]) -> tuple[list[Client], list[Client]]:
    """Let twelve nodes come, to all servers; return those that are canaries, and the others."""
    await serving(servers)
    clients = [await servers[number % 3].join(f"edge-{number}") for number in range(12)]
    canaries = [client for client in clients if client.channel.key.is_canary]
    return canaries, [client for client in clients if client not in canaries]


@virtually
async def test_a_canary_that_rejects_keeps_a_change_from_the_others() -> None:
    """Whichever server it is at."""
    async with fleet_of(1, 2, replace(RULES, canary=Canary(share=0.5), bake_s=10.0)) as servers:
        canaries, others = await canaries_of(servers)
        canaries[-1].rejects.add("bad")
        servers[0].save(NEW)
        await until(lambda: canaries[0].clusters() == {"new": "bad"})
        await asyncio.sleep(120.0)
        assert all(client.clusters() == {"old": "1"} for client in others)


@virtually
async def test_a_canary_that_leaves_keeps_a_change_from_the_others() -> None:
    """Its silence is no consent; when it is back, it has lived with the change."""
    async with fleet_of(1, 2, replace(RULES, canary=Canary(share=0.5), bake_s=10.0)) as servers:
        canaries, others = await canaries_of(servers)
        servers[0].save(NEW)
        await until(lambda: all(client.clusters() == {"new": "bad"} for client in canaries))
        canaries[-1].leave()
        await asyncio.sleep(120.0)
        assert all(client.clusters() == {"old": "1"} for client in others)

        await servers[0].join(canaries[-1].name)
        await until(lambda: all(client.clusters() == {"new": "bad"} for client in others))


async def taken_over(servers: list[FleetServer]) -> Client:
    """Have the second server take over, of which the tree is older than what the first published; return a client."""
    servers[1].save(OLD)
    await serving(servers)
    client = await servers[2].join("edge-1")
    await asyncio.sleep(1.0)
    servers[0].save(NEW)
    await until(lambda: client.clusters() == {"new": "bad"})
    await servers[0].stop(is_killed=True)
    await asyncio.sleep(20.0)
    assert servers[1].events(PublisherElected, PublisherWaits) == ["PublisherElected", "PublisherWaits"]
    assert client.clusters() == {"new": "bad"}
    return client


@virtually
async def test_without_a_canary_a_change_waits() -> None:
    """A server at which canaries were is none of them."""
    async with fleet_of(1, 2, replace(RULES, canary=Canary(share=0.5), bake_s=10.0)) as servers:
        canaries, others = await canaries_of(servers)
        for client in canaries:
            client.leave()
        await asyncio.sleep(10.0)
        servers[0].save(NEW)
        await asyncio.sleep(120.0)
        assert all(client.clusters() == {"old": "1"} for client in others)


@virtually
async def test_a_publisher_with_an_older_tree_waits_for_it_to_change() -> None:
    """Its copy of the tree may be late: clients would go back."""
    async with fleet_of(2, 1) as servers:
        client = await taken_over(servers)
        servers[1].save(OLD)
        await asyncio.sleep(2.0)
        assert client.clusters() == {"new": "bad"}

        servers[1].save({**NEW, "CDS": {"new": "good"}})
        await until(lambda: client.clusters() == {"new": "good"}, 5.0)


@virtually
async def test_an_older_tree_is_published_after_a_while() -> None:
    """It may be that somebody took the change back before."""
    async with fleet_of(2, 1) as servers:
        client = await taken_over(servers)
        await until(lambda: client.clusters() == {"old": "1"}, 30.0)


@virtually
async def test_another_server_publishes_when_the_publisher_dies() -> None:
    """Within five seconds, and from where the fleet is; who comes back publishes nothing."""
    async with fleet_of(2, 1) as servers:
        await serving(servers)
        client = await servers[2].join("edge-1")
        servers[1].save(NEW)
        await asyncio.sleep(10.0)
        assert client.clusters() == {"old": "1"}
        assert not servers[1].events(PublisherElected)

        await servers[0].stop(is_killed=True)
        assert await until(lambda: client.clusters() == {"new": "bad"}) < 5.0
        assert route_of(client) == "new"
        assert client.offers.index(("new", "bad")) < len(client.offers) - 1
        assert servers[1].events(PublisherElected, PublisherLost) == ["PublisherElected"]


@virtually
async def test_who_cannot_read_what_is_published_does_not_publish() -> None:
    """A server with another key resigns, and another one is elected; nothing is written over."""
    engine = MemoryKeyValues()
    async with fleet_of(2, 1, engines=[engine] * 3) as servers:
        await serving(servers)
        client = await servers[2].join("edge-1")
        servers[1].member._content.sealing = Sealing((bytes(32),))
        servers[1].save(NEW)
        await servers[0].stop(is_killed=True)
        await asyncio.sleep(10.0)
        assert client.clusters() == {"old": "1"}
        assert servers[1].events(PublisherElected, PublisherLost)[:1] == ["PublisherLost"]
        assert not (await engine.read([KEYS.publisher])).values
        assert not servers[1].recorder.errors


async def rolled_back(servers: list[FleetServer], slow: SlowEngine | None = None) -> tuple[Client, FleetPlanner]:
    """Have a change served that both publishers have, and roll back at the first one; return a client, and what plans there."""
    before, planner = servers[0]._tree, servers[0].member.planner
    assert before is not None
    assert planner is not None
    client = await servers[2].join("a")
    for server in servers[:2]:
        server.save(NEW)
    await until(lambda: client.clusters() == {"new": "bad"})
    # What was published before is kept by now.
    await asyncio.sleep(5.0)
    if slow is not None:
        slow.pause_s = 0.5
    operator = RolloutOperator(planner.publisher, lambda: [("", ())], None)
    assert operator.roll_back({(): before}) == 1
    return client, planner


@virtually
async def test_a_rollback_survives_the_publisher() -> None:
    """The next one, whose tree has what was taken back, does not serve that; a resume there follows the tree again."""
    async with fleet_of(2, 1) as servers:
        await serving(servers, OLD)
        servers[1].save(OLD)
        client, planner = await rolled_back(servers)
        await planner.until_kept()
        await until(lambda: client.clusters() == {"old": "1"})

        await servers[0].stop(is_killed=True)
        await until(lambda: servers[1].member.planner is not None)
        await asyncio.sleep(60.0)
        assert client.clusters() == {"old": "1"}
        assert servers[1].member.planner is not None
        planner = servers[1].member.planner
        rows = await read_history(FleetContent(servers[1].engine, KEYS))
        assert [row.entry.number for row in rows] == [3, 2, 1]
        RolloutOperator(planner.publisher, lambda: [("", ())], None).resume(None)
        await until(lambda: client.clusters() == {"new": "bad"})


class SlowEngine(FaultyEngine):
    """An engine whose writes take some time, as they do where it is no memory of this process."""

    pause_s = 0.0

    async def write(self, changes: Sequence[Put | Delete], guards: Collection[Guard] = ()) -> int | None:
        """Write after a pause."""
        await asyncio.sleep(self.pause_s)
        return await super().write(changes, guards)


@virtually
async def test_a_decision_is_kept_when_it_is_answered() -> None:
    """A publisher that is killed right after that loses nothing."""
    engine = MemoryKeyValues()
    slow = SlowEngine(engine, random.Random(0), 0.0)
    async with fleet_of(2, 1, engines=[slow, engine, engine]) as servers:
        await serving(servers, OLD)
        client, planner = await rolled_back(servers, slow)
        await planner.until_kept()
        await servers[0].stop(is_killed=True)
        await until(lambda: client.clusters() == {"old": "1"}, 120.0)
        await asyncio.sleep(60.0)
        assert client.clusters() == {"old": "1"}


@virtually
async def test_a_decision_that_cannot_be_kept_says_so() -> None:
    """The operator learns that it holds only as long as the publisher lives."""
    engine = MemoryKeyValues()
    link = FaultyEngine(engine, random.Random(0), 0.0)
    async with fleet_of(2, 1, engines=[link, engine, engine]) as servers:
        await serving(servers, OLD)
        _, planner = await rolled_back(servers)
        link.is_away = True
        with pytest.raises(ProtocolError, match="etcd did not keep it within 5 s"):
            await planner.until_kept()


@virtually
async def test_a_removal_that_is_held_waits_on() -> None:
    """The next publisher knows since when; it is approved there."""
    many: Tree = {"CDS": {f"c{number}": "1" for number in range(10)}}
    few: Tree = {"CDS": {"c0": "1"}}
    rules = replace(RULES, holding=HoldingRules(max_removal=0.5))
    with patch("time.time", lambda: asyncio.get_running_loop().time()):
        async with fleet_of(2, 1, rules) as servers:
            await serving(servers, many)
            slow = await servers[2].join("slow")
            for server in servers[:2]:
                server.save(few)
            await asyncio.sleep(20.0)
            await servers[0].stop(is_killed=True)
            await until(lambda: servers[1].member.planner is not None)
            await asyncio.sleep(40.0)
            planner = servers[1].member.planner
            assert planner is not None
            rollout = planner.publisher.rollouts[ChannelKey()]
            since_s = min(rollout.held_since_s.values())
            assert asyncio.get_running_loop().time() - since_s > 55.0
            operator = RolloutOperator(planner.publisher, lambda: [("", ())], None)
            (report,) = [one for one in operator.status() if one.approval]
            assert report.approval is not None
            assert operator.approve(report.approval.id) == 1
            await until(lambda: slow.clusters() == {"c0": "1"})


class FailingControl:
    """What operators decide by, with an error of fsxds in it."""

    async def answer(self, request: object) -> object:
        """Fail."""
        raise RuntimeError(request)


@virtually
async def test_a_publisher_that_cannot_decide_says_so() -> None:
    """It has no admin address, or fails: who asked is answered at once, and the publisher goes on."""
    async with fleet_of(1, 1) as servers:
        await serving(servers)
        publisher, other = servers[0].member, servers[1].member
        commands = FleetCommands(other._content, other._lease, other.name)
        with pytest.raises(ProtocolError, match="server-0 publishes, and has no admin address"):
            await commands.ask({"ask": "channels"})
        planner = publisher.planner
        publisher._control = FailingControl()  # type: ignore[assignment]
        with pytest.raises(ProtocolError, match="the log of server-0 says how") as raised:
            await commands.ask({"ask": "channels"})
        assert raised.value.code == "INTERNAL"
        assert servers[0].events(InternalError) == ["InternalError"]
        assert publisher.planner is planner


@virtually
async def test_a_view_that_no_server_serves_is_dropped() -> None:
    """The publisher loads and publishes it no more after ten minutes; it is there again when a server serves it again."""
    view = ViewKey(("edge",))
    async with fleet_of(1, 2) as servers:
        await serving(servers)
        server, following = servers[1], servers[1].member.following

        async def served() -> None:
            following.want(view.layers)
            server.publisher.rollout_of(ChannelKey(view.layers))
            servers[0].save(OLD, view.layers)
            await until(lambda: view in following.snapshots and view in servers[2].member.following.published)

        await served()
        await asyncio.sleep(2 * DROPPED_AFTER_S)
        assert servers[0].trees.dropped == []

        server.publisher.drop(server.publisher.rollouts[ChannelKey(view.layers)])
        following.drop(view.layers)
        took_s = await until(lambda: view not in servers[2].member.following.published, 2 * DROPPED_AFTER_S)
        assert took_s >= DROPPED_AFTER_S
        assert servers[0].trees.dropped == [view.layers]
        assert ViewKey() in following.published
        await served()


@virtually
async def test_a_view_that_is_rolled_back_is_not_dropped() -> None:
    """The rollback would be forgotten."""
    view = ViewKey(("edge",))
    async with fleet_of(1, 1) as servers:
        await serving(servers)
        servers[0].save(NEW, view.layers)
        await until(lambda: view in servers[1].member.following.published)
        planner = servers[0].member.planner
        assert planner is not None
        operator = RolloutOperator(planner.publisher, lambda: [("", ())], None)
        assert operator.roll_back({view.layers: tree_snapshot(OLD)}) == 1
        await asyncio.sleep(3 * DROPPED_AFTER_S)
        assert view in servers[1].member.following.published


class LateEngine(FaultyEngine):
    """An engine of which writes take a while."""

    async def write(self, changes: Sequence[Put | Delete], guards: Collection[Guard] = ()) -> int | None:
        """Write, and answer later."""
        await asyncio.sleep(0.2 * self._chance.random())
        revision = await super().write(changes, guards)
        await asyncio.sleep(0.2 * self._chance.random())
        return revision


@virtually
async def test_a_publication_does_not_cross_a_removal_of_objects(monkeypatch) -> None:
    """The publisher would take what it wrote itself for another one's, or miss an object that comes back."""
    monkeypatch.setattr("fsxds.fleet.fleet_planner.COLLECT_EVERY_S", 1.1)
    engine = MemoryKeyValues()
    late = LateEngine(engine, random.Random(0), 0.0)
    async with fleet_of(1, 1, engines=[late, engine]) as servers:
        await serving(servers)
        for number in range(200):
            servers[0].save({"CDS": {"old": str(number % 7)}, "RDS": {"r": "1 CDS:old"}})
            await asyncio.sleep(0.43)

        assert servers[0].events(PublisherElected, PublisherLost) == ["PublisherElected"]
