"""A second real client: grpcio's own `xds:///` resolver makes calls through a config that fsxds serves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.grpc_envoy import SOTW_ADS, Fleet
from tests.support.patience import PATIENCE_S
from tests.support.resources import cluster_route, eds_cluster, http_listener
from tests.support.xds_resolver import XdsCaller, backends


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """A tree for a client that asks for the listener `web`, with routes to one of two clusters."""
    fleet = Fleet(tmp_path, SOTW_ADS)
    fleet.write("lds.yaml", api_listener("web", "r1"))
    fleet.write("rds.yaml", cluster_route("r1", "blue"))
    fleet.write("cds.yaml", eds_cluster("blue"), eds_cluster("green"))
    return fleet


@pytest.fixture
def ports() -> Iterator[list[int]]:
    """Three backends."""
    with backends("one", "two", "three") as ports:
        yield ports


def api_listener(name: str, route: str) -> str:
    """Return a listener of the sort that clients of gRPC ask for, as a list item."""
    (listener,) = yaml.safe_load(http_listener(name, 0, route))
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    api = {"@type": listener["@type"], "name": name, "api_listener": {"api_listener": manager}}
    return yaml.safe_dump([api])


def located(name: str, *ports: int) -> str:
    """Return the endpoints of a cluster; gRPC, unlike Envoy, looks only at localities that have a weight."""
    members = [
        {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}} for port in ports
    ]
    locality = {"locality": {"region": "here"}, "load_balancing_weight": 1, "lb_endpoints": members}
    assignment = {
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": name,
        "endpoints": [locality],
    }
    return yaml.safe_dump([assignment])


def call_until(caller: XdsCaller, holds: Callable[[str], bool]) -> None:
    """Call until the answer is as expected; no call on the way may fail."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds(answer := caller.call()):
        assert not answer.startswith("error"), answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)


def test_calls_follow_endpoints_and_routes(fleet: Fleet, tmp_path: Path, ports: list[int]) -> None:
    """Calls go where endpoints and routes say, follow their changes, and none fails on the way."""
    one, two, three = ports
    fleet.write("eds.yaml", located("blue", one), located("green", three))
    with fleet.server() as server, XdsCaller("web", str(server.ready["grpc"]), tmp_path) as caller:
        assert caller.call() == "one"
        fleet.write("eds.yaml", located("blue", two), located("green", three))
        call_until(caller, lambda answer: answer == "two")
        fleet.write("eds.yaml", located("blue", one, two), located("green", three))
        call_until(caller, lambda answer: answer == "one")
        fleet.write("rds.yaml", cluster_route("r1", "green"))
        call_until(caller, lambda answer: answer == "three")

        assert server.log_events("nack_received") == []


def test_calls_outlive_the_server(fleet: Fleet, tmp_path: Path, ports: list[int]) -> None:
    """Calls go on while fsxds is away, and follow the files again when it is back."""
    one, two, three = ports
    fleet.write("eds.yaml", located("blue", one), located("green", three))
    with fleet.server() as server:
        address = str(server.ready["grpc"])
        with XdsCaller("web", address, tmp_path) as caller:
            assert caller.call() == "one"
            server.stop()
            assert caller.call() == "one"
            fleet.write("eds.yaml", located("blue", two), located("green", three))
            with fleet.server(address):
                call_until(caller, lambda answer: answer == "two")


def test_a_listener_that_springs_up(fleet: Fleet, tmp_path: Path, ports: list[int]) -> None:
    """A call to a target that nobody wrote yet waits, and is answered once it is written."""
    fleet.write("eds.yaml", located("blue", ports[0]), located("green", ports[2]))
    with fleet.server() as server, XdsCaller("new", str(server.ready["grpc"]), tmp_path) as caller:
        caller.begin_call()
        fleet.wait_for_clients(server, 1)
        fleet.write("more.lds.yaml", api_listener("new", "r1"))

        assert caller.end_call() == "one"
