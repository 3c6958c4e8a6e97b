"""A change that passes every check and that a real Envoy rejects in part: that part is held back, and no request fails."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.traffic.convergence import missing
from tests.end_to_end.traffic.kinds import FRONT, TYPE, Plain, Tree, World
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
def test_what_envoy_rejects_is_held_back(transport: str, tmp_path: Path) -> None:
    """A listener whose port is taken is held back, and all else of its change is served; what corrects it goes out."""
    with taken_port() as port, running(tmp_path, transport, 600, OPTIONS) as run:
        run.write(tree_of(run.world, 1), "good")

        run.load.record.begin("rejected")
        changed = tree_of(run.world, 2, second_listener(run.world, port))
        write_tree(run.tree, changed)
        held = wait_for_event(run, "versions_held")
        if transport == "rest":
            # A poll says only that something was rejected: what that was is found by offering it in parts.
            assert wait_for_event(run, "versions_released")["resources"] == ["lds front"]
        run.server.wait(lambda: front_is(run, changed), "the listener that is good")
        run.rest(1.0)
        problems = run.server.log_events("problem_found")

        assert front_is(run, changed)
        run.write(tree_of(run.world, 3, second_listener(run.world, free_port())), "corrected")
        run.rest(0.5)

    assert run.failures() == []
    assert held["clients"] == [str(tmp_path / "mirror") if transport == MIRROR_WITH_ADMIN else "edge-1"]
    assert "lds second" in held["resources"]
    rejected = [one for one in problems if one["rule"] == "rejected-by-client" and "listener second" in one["message"]]
    assert {one["path"] for one in rejected} == {"lds.yaml"}


@pytest.mark.parametrize("transport", ["rest", "ads", "delta"])
def test_no_route_leads_to_a_cluster_that_envoy_rejects(transport: str, tmp_path: Path) -> None:
    """Also when that is offered again, again and again; the cluster before it stays."""
    # Envoy alone looks for the file.
    context = {"validation_context": {"trusted_ca": {"filename": "/nowhere/ca.pem"}}}
    tls = {
        "@type": f"{TYPE}.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": context,
    }
    with running(tmp_path, transport, 600, OPTIONS) as run:
        run.change("static clusters, one file", 1)
        run.load.record.begin("rejected")
        bad = run.world.static("bad", 2) | {"transport_socket": {"name": "tls", "typed_config": tls}}
        write_tree(
            run.tree, {"lds.yaml": (run.world.listener(),), "moving.yaml": (bad, run.world.routes(FRONT, "bad"))}
        )
        run.envoy.wait_stat("cluster_manager.cds.update_rejected", 4)
        run.rest(0.5)

    assert run.failures() == []


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
    with taken_port() as port, running(tmp_path, transport, 600, [*OPTIONS, "--nack-limit", "off"]) as run:
        run.write(tree_of(run.world, 1), "good")

        run.load.record.begin("rejected")
        moved = tree_of(run.world, 2)
        moved["lds.yaml"][0]["address"] = second_listener(run.world, port)["address"]
        with run.envoy.expect_update("listener_manager.lds"):
            write_tree(run.tree, moved)
        run.rest(1.5)

    assert run.failures() == []
