"""A real Envoy under load, moved from cluster to cluster: nothing is removed before what uses it has moved on."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.grpc_envoy import DELTA_ADS, SOTW_ADS, Fleet, StreamingEnvoy
from tests.support.resources import cluster_route, direct_route, eds_cluster, endpoints, http_listener, static_cluster

MOVES = 12


@pytest.fixture(params=[SOTW_ADS, DELTA_ADS], ids=str)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Fleet:
    """A tree with a listener that answers requests, and one that sends its own to a cluster."""
    fleet = Fleet(tmp_path, request.param)
    fleet.write("lds.yaml", http_listener("front", 0, "front"), http_listener("back", 0, "back"))
    fleet.write("back.rds.yaml", direct_route("back", "fine"))
    fleet.write("moving.yaml", direct_route("front", "not yet"))
    return fleet


@contextmanager
def load(envoy: StreamingEnvoy) -> Iterator[Counter[str]]:
    """Ask the front listener all the time; yield what came back, by its text."""
    answers: Counter[str] = Counter()
    done = threading.Event()
    port = envoy.listener_ports()["front"]

    def ask() -> None:
        while not done.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/")
            answers[connection.getresponse().read().decode()] += 1
            connection.close()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        done.set()
        thread.join()


def statically(name: str, port: int) -> tuple[str, ...]:
    """Return a cluster that has its endpoint itself."""
    return (static_cluster(name, port),)


def by_eds(name: str, port: int) -> tuple[str, ...]:
    """Return a cluster that waits for its endpoint, and the endpoint."""
    return eds_cluster(name), endpoints(name, port)


@pytest.mark.parametrize("cluster", [statically, by_eds])
def test_moves_lose_no_request(fleet: Fleet, cluster: Callable[[str, int], tuple[str, ...]]) -> None:
    """A cluster that is replaced by another, together with the route to it, loses not one request."""
    with fleet.running() as (_, envoy):
        back = envoy.listener_ports()["back"]
        fleet.write("moving.yaml", *cluster("c0", back), cluster_route("front", "c0"))
        envoy.until(lambda: envoy.ask("front").body == "fine", "the first cluster")
        with load(envoy) as answers:
            for number in range(1, MOVES):
                name = f"c{number}"
                fleet.write("moving.yaml", *cluster(name, back), cluster_route("front", name))
                envoy.until_clusters(name)
                time.sleep(0.05)

        assert answers["fine"] > 100
        assert list(answers) == ["fine"]
        assert envoy.rejections() == {}
