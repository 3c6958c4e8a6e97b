"""Clients that take little, while trees come often: each adds a cluster, moves the route to it, removes the one before."""

from __future__ import annotations

import pytest

from fsxds.publishing.publisher import PublishRules
from fsxds.rollout.machine import RolloutOptions
from tests.support.publishing import CDS, EDS, RDS, Client, Publishing, publishing, virtually

RULES = PublishRules(RolloutOptions(linger_s=0, step_timeout_s=5.0))


@virtually
@pytest.mark.parametrize("is_frozen", [True, False])
async def test_who_takes_nothing_keeps_no_change_of_an_edit_a_second_from_the_others(*, is_frozen: bool) -> None:
    """It is left behind, once."""
    async with publishing(RULES) as run:
        run.load(["c0"], "c0")
        quick = await run.join("edge-1", is_quick=True)
        await run.join("edge-2", is_quick=not is_frozen)
        routes = []
        for number in range(1, 31):
            run.load([f"c{number}"], f"c{number}")
            await run.passed(1.0)
            routes.append(run.served()["RDS"]["r"])
            assert routes[-1].removeprefix("1 CDS:") in quick.held[CDS]

        assert len(set(routes)) > (20 if is_frozen else 29)


async def edited_for_clients_in_turn(run: Publishing, content: str) -> list[str]:
    """Move the route to a new cluster, and change its endpoints each second; each client takes its steps every two seconds."""
    run.save({"CDS": {"c0": "1", "x": "1 EDS:e"}, "EDS": {"e": "0"}, "RDS": {"r": "1 CDS:c0"}})
    await run.settled()
    clients = [Client(run.publisher.whole, name, types=[CDS, EDS, RDS]) for name in ("edge-1", "edge-2")]
    for client in clients:
        client.rejects = {"bad"}
    routes = []
    for number in range(1, 10):
        run.save({"CDS": {"c1": content, "x": "1 EDS:e"}, "EDS": {"e": str(number)}, "RDS": {"r": "1 CDS:c1"}})
        await run.passed(0.5)
        clients[number % 2].take()
        await run.passed(0.5)
        routes.append(run.served()["RDS"]["r"])
    return routes


@virtually
async def test_frequent_endpoints_do_not_put_off_routes() -> None:
    """At each edit, a client has yet to take the last one, and none is late."""
    async with publishing(RULES) as run:
        routes = await edited_for_clients_in_turn(run, "1")

        assert ["1 CDS:c0"] * 3 == routes[:3]
        assert "1 CDS:c1" in routes


@virtually
async def test_no_route_follows_to_a_cluster_that_was_rejected_meanwhile() -> None:
    """Whatever was put off."""
    async with publishing(RULES) as run:
        assert {"1 CDS:c0"} == set(await edited_for_clients_in_turn(run, "bad"))
