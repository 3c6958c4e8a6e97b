"""Seeded runs of a fleet in virtual time: edits, servers that die and come back, answers that are lost, clients that move."""

from __future__ import annotations

import asyncio
import random

import pytest

from fsxds.fleet.memory_engine import MemoryKeyValues
from fsxds.model.resources import Snapshot
from tests.fleet.fleet_servers import FleetServer, fleet_of
from tests.fleet.made import FaultyEngine
from tests.fleet.test_member import route_of, serving, until
from tests.simulation.virtual_time import run_virtually
from tests.support.publishing import RDS, Client
from tests.support.rollouts import Tree

SAVES = 12


def tree_of(number: int) -> Tree:
    """Return a tree in which the route leads to another cluster than before."""
    return {"CDS": {f"c{number}": str(number)}, "RDS": {"r": f"{number} CDS:c{number}"}}


def number_of(snapshot: Snapshot) -> int:
    """Return which tree the route of a snapshot is of."""
    return int(snapshot.resources(RDS)["r"].body.decode().partition("=")[2].split()[0])


class Moving:
    """A node that moves between servers; its route must always lead to a cluster that it has."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = -1
        self.client: Client | None = None
        self.server: FleetServer | None = None

    async def move(self, server: FleetServer) -> None:
        """Leave, and come to a server with what it has; that must not be behind, unless it waited as long as it may."""
        if self.client is not None:
            self.client.leave()
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            served = await server.come(self.client)
            assert number_of(served) >= self.number or loop.time() - began_s > 4.9
            self.number = -1
        self.server = server
        self.client = await server.join(self.name, is_quick=True)
        self.look()

    def look(self) -> int:
        """Check what it has, and return which tree its route is of."""
        if self.client is None or "r" not in self.client.held[RDS]:
            return -1
        assert route_of(self.client) in self.client.clusters(), (self.name, self.client.offers[-6:])
        number = int(self.client.held[RDS]["r"].body.decode().partition("=")[2].split()[0])
        assert number >= self.number, (self.name, self.client.offers[-6:])
        self.number = number
        return number


async def harm(chance: random.Random, alive: list[FleetServer], nodes: list[Moving]) -> None:
    """Let a node move, and a server end or die, now and then."""
    if chance.random() < 0.3:
        await chance.choice(nodes).move(chance.choice(alive))
    if chance.random() < 0.2 and len(alive) == 4:
        victim = chance.choice(alive)
        alive.remove(victim)
        await victim.stop(is_killed=chance.random() < 0.5)
        for node in [one for one in nodes if one.server is victim]:
            await node.move(chance.choice(alive))


async def simulate(seed: int) -> None:
    """Run a fleet with a seed."""
    chance, engine = random.Random(seed), MemoryKeyValues()
    links = [FaultyEngine(engine, chance, 0.0) for _ in range(4)]
    async with fleet_of(2, 2, engines=[*links]) as servers:
        servers[1].save(tree_of(0))
        await serving(servers, tree_of(0))
        nodes = [Moving(f"edge-{number}") for number in range(6)]
        for node in nodes:
            await node.move(chance.choice(servers))
        for link in links:
            link._share = 0.03
        alive = [*servers]
        for number in range(1, SAVES + 1):
            for server in servers[:2]:
                server.save(tree_of(number))
                await asyncio.sleep(chance.random() * 0.5)
            links[chance.randrange(4)].lag_s = chance.choice((0.0, 0.0, 0.3, 1.5))
            await harm(chance, alive, nodes)
            for _ in range(chance.randrange(1, 40)):
                await asyncio.sleep(0.1)
                for node in nodes:
                    node.look()
        for link in links:
            link._share, link.lag_s = 0.0, 0.0
        await until(lambda: all(node.look() == SAVES for node in nodes), 120.0)
        assert not any(server.recorder.errors for server in servers)


@pytest.mark.parametrize("seed", range(30))
def test_traffic_flows_whatever_happens(seed) -> None:
    """No route leads to a cluster that its client lacks, no client goes back, and all end on the last tree."""
    run_virtually(simulate(seed))
