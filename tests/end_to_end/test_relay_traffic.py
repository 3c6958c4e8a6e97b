"""Traffic through a real Envoy below relays, while what it uses is replaced: no request is lost."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.end_to_end.test_grpc_traffic import by_eds, load
from tests.end_to_end.traffic.running import Above, running
from tests.support.grpc_envoy import DELTA_ADS, Fleet, StreamingEnvoy
from tests.support.resources import cluster_route, direct_route, http_listener
from tests.support.server import Server, events_in

MOVES = 6
FLAGS = ("--linger", "0s", "--settle", "10ms")


@pytest.mark.parametrize("names", ["all", "asked"])
def test_moves_lose_no_request_two_relays_below(tmp_path: Path, names: str) -> None:
    """A cluster that is replaced by another at the top, together with the route to it, goes when the Envoy has moved on."""
    fleet = Fleet(tmp_path, DELTA_ADS, *FLAGS)
    fleet.write("lds.yaml", http_listener("front", 0, "front"), http_listener("back", 0, "back"))
    fleet.write("back.rds.yaml", direct_route("back", "fine"))
    fleet.write("moving.yaml", direct_route("front", "not yet"))
    with ExitStack() as stack:
        above = stack.enter_context(fleet.server())
        for level in ("middle", "bottom"):
            (tmp_path / level).mkdir()
            options = ("--upstream", str(above.ready["grpc"]), "--upstream-names", names, *FLAGS)
            above = stack.enter_context(Server(None, tmp_path / level, *options))
        envoy = stack.enter_context(StreamingEnvoy(fleet.bootstrap(above)))
        back = envoy.listener_ports()["back"]
        fleet.write("moving.yaml", *by_eds("c0", back), cluster_route("front", "c0"))
        envoy.until(lambda: envoy.ask("front").body == "fine", "the first cluster")
        with load(envoy) as answers:
            for number in range(1, MOVES):
                fleet.write("moving.yaml", *by_eds(f"c{number}", back), cluster_route("front", f"c{number}"))
                envoy.until_clusters(f"c{number}")
                time.sleep(0.05)

        assert answers["fine"] > 50
        assert list(answers) == ["fine"]
        assert envoy.rejections() == {}


@pytest.mark.parametrize("servers", [1, 2], ids=["restart", "failover"])
def test_another_tree_after_a_restart_loses_no_request(tmp_path: Path, servers: int) -> None:
    """A server is killed, and it, or another one, serves a tree in which all that is used has another name.

    `python -m tests.end_to_end.traffic --relays 1 --restart 1` makes more changes.
    """
    options = ["--linger", "600s", "--max-removal", "off"]
    with running(tmp_path, "delta", 600, options, above=Above(relays=1, servers=servers)) as run:
        for number, name in enumerate(("EDS clusters, two files", "weighted clusters")):
            run.change(name, number + 1)
        run.rest(0.5)

    assert run.failures() == []
    assert run.load.record.requests.total() > 500


def test_a_relay_that_was_killed_waits_for_none_who_has_what_it_serves(tmp_path: Path) -> None:
    """Without a state directory it is asked before its upstream has answered: who polls holds what is there then, and each edit follows."""
    options = ["--linger", "600s", "--step-timeout", "20s", "--log-level", "debug"]
    with running(tmp_path, "rest", 600, options, above=Above(relays=1)) as run:
        for number in range(1, 9, 2):
            run.change("EDS clusters, one file", number)
            run.kill_server()
            run.change("unused clusters", number + 1)
        events = {event["event"] for event in events_in(run.server.log_file.read_bytes())}

    assert run.failures() == []
    assert "rollout_completed" in events
    assert not events & {"step_timed_out", "library_error"}
