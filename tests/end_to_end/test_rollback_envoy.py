"""A change that passes every check and that a real Envoy rejects: what was good is served again, and no request fails."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.traffic.convergence import missing
from tests.end_to_end.traffic.kinds import FRONT, Plain, Tree, World
from tests.end_to_end.traffic.running import MIRROR_WITH_ADMIN, TRANSPORTS, Run, running, write_tree
from tests.support.ports import free_port

OPTIONS = ["--linger", "600s"]


@contextmanager
def taken_port() -> Iterator[int]:
    """Yield a port at which this process listens, and Envoy cannot."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def second_listener(world: World, port: int) -> Plain:
    """Return another listener, at a port."""
    listener = world.listener()
    listener["name"] = "second"
    listener["address"] = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return listener


def tree_of(world: World, number: int, *listeners: Plain) -> Tree:
    """Return the front listener with filters and inline routes that differ by number, the cluster of these, and more listeners."""
    front = world.listener(world.routes("inline", f"c{number}"), filters=number)
    return {
        "lds.yaml": (front, *listeners),
        "moving.yaml": (world.static(f"c{number}", number), world.static("steady", 0), world.routes(FRONT, "steady")),
    }


def wait_for_event(run: Run, event: str) -> dict[str, Any]:
    """Return the first line of the log that has an event."""
    found: list[dict[str, Any]] = run.server.wait(lambda: run.server.log_events(event), event)
    return found[0]


def front_is(run: Run, tree: Tree) -> bool:
    """Whether Envoy has the front listener of a tree."""
    return missing(run.envoy, {"lds.yaml": tree["lds.yaml"][:1]}) == []


@pytest.mark.parametrize("transport", ["rest", "ads", "delta", MIRROR_WITH_ADMIN])
def test_what_envoy_rejects_is_taken_back(transport: str, tmp_path: Path) -> None:
    """A listener whose port is taken is taken back with all that changed with it; what corrects it goes out."""
    with taken_port() as port, running(tmp_path, transport, 600, OPTIONS) as run:
        good = tree_of(run.world, 1)
        run.write(good, "good")

        run.load.record.begin("rejected")
        write_tree(run.tree, tree_of(run.world, 2, second_listener(run.world, port)))
        rolled_back = wait_for_event(run, "rolled_back")
        run.server.wait(lambda: front_is(run, good), "the listener as it was")
        run.rest(1.0)
        problem = wait_for_event(run, "problem_found")

        assert front_is(run, good)
        run.write(tree_of(run.world, 3, second_listener(run.world, free_port())), "corrected")
        run.rest(0.5)

    assert run.failures() == []
    assert rolled_back["clients"] == [str(tmp_path / "mirror") if transport == MIRROR_WITH_ADMIN else "edge-1"]
    assert rolled_back["type"] == "lds"
    assert "second" in rolled_back["resources"]
    assert (problem["path"], problem["rule"]) == ("lds.yaml", "rejected-by-client")


def test_what_an_envoy_rejects_that_reads_files_loses_no_request(tmp_path: Path) -> None:
    """Nobody knows that an Envoy without a known admin page rejected a file; what its connections use lingers, and what corrects it goes out."""
    with taken_port() as port, running(tmp_path, "mirror", 600, OPTIONS) as run:
        run.write(tree_of(run.world, 1), "good")

        run.load.record.begin("rejected")
        with run.envoy.expect_update("listener_manager.lds"):
            write_tree(run.tree, tree_of(run.world, 2, second_listener(run.world, port)))
        run.rest(1.0)

        assert run.envoy.stat("listener_manager.lds.update_rejected") == 1
        run.write(tree_of(run.world, 3, second_listener(run.world, free_port())), "corrected")
        run.rest(0.5)

    assert run.failures() == []


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_listener_that_stays_as_it_was_keeps_its_clusters(transport: str, tmp_path: Path) -> None:
    """A listener that Envoy keeps, because it rejected the new one, goes on with its routes to a cluster that the tree dropped."""
    with taken_port() as port, running(tmp_path, transport, 600, [*OPTIONS, "--on-nack", "continue"]) as run:
        run.write(tree_of(run.world, 1), "good")

        run.load.record.begin("rejected")
        moved = tree_of(run.world, 2)
        moved["lds.yaml"][0]["address"] = second_listener(run.world, port)["address"]
        with run.envoy.expect_update("listener_manager.lds"):
            write_tree(run.tree, moved)
        run.rest(1.5)

    assert run.failures() == []
