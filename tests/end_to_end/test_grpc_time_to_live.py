"""A real Envoy that gets resources with a time to live: kept by heartbeats, gone without them (ENVOY.md E40, E41, E42)."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.grpc_envoy import CDS, DELTA_ADS, SOTW_ADS, Fleet, StreamingEnvoy
from tests.support.resources import direct_route, eds_cluster, endpoints, http_listener, static_cluster
from tests.support.server import Server

# Heartbeats come twice in that time, and may be late on a busy machine.
TTL_S = 3.0
FEATURES = ["xds.config.supports-resource-ttl", "xds.config.supports-resource-in-sotw"]


@pytest.fixture(params=[SOTW_ADS, DELTA_ADS], ids=str)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Fleet:
    """A tree in which something of each kind has a time to live."""
    fleet = Fleet(tmp_path, request.param)
    fleet.write("cds.yaml", mortal("a", static_cluster("a")), mortal("web", eds_cluster("web")))
    fleet.write("eds.yaml", mortal("web", endpoints("web", 9)))
    fleet.write("lds.yaml", mortal("front", http_listener("front", 0, "r1")))
    fleet.write("rds.yaml", mortal("r1", direct_route("r1", "one")))
    return fleet


def mortal(name: str, resource: str) -> str:
    """Return a list item in a wrapper that gives it a time to live."""
    wrapper = {
        "@type": "type.googleapis.com/envoy.service.discovery.v3.Resource",
        "name": name,
        "ttl": f"{TTL_S}s",
        "resource": yaml.safe_load(resource)[0],
    }
    return yaml.safe_dump([wrapper])


def bootstrap(fleet: Fleet, server: Server, *features: str) -> dict[str, Any]:
    """Return the bootstrap of an Envoy that announces `features`, which Envoy by itself does not."""
    bootstrap = fleet.bootstrap(server)
    bootstrap["node"]["client_features"] = list(features)
    return bootstrap


def test_heartbeats_keep_and_silence_ends(fleet: Fleet) -> None:
    """All that has a time to live outlasts it twice, without rebuilding, and is gone when the server is."""
    with fleet.server() as server, StreamingEnvoy(bootstrap(fleet, server, *FEATURES)) as envoy:
        removed, reloads = envoy.stat("cluster_manager.cluster_removed"), envoy.stat(f"{CDS}.config_reload")
        time.sleep(2 * TTL_S)
        assert envoy.cluster_names(dynamic_only=True) == {"a", "web"}
        assert envoy.endpoints("web") == {"127.0.0.1:9"}
        assert envoy.ask("front").body == "one"
        assert envoy.stat("cluster_manager.cluster_removed") == removed
        assert envoy.stat(f"{CDS}.config_reload") <= reloads + 1
        assert envoy.rejections() == {}

        server.stop()
        envoy.until_clusters()
        envoy.until(lambda: envoy.listener_names() == set(), "the listener's end")
        assert envoy.returncode is None


def test_a_pause_longer_than_a_time_to_live_is_no_fault(fleet: Fleet) -> None:
    """An Envoy gets everything again from a server that was paused while it expired, and rejects nothing of it."""
    with fleet.server() as server, StreamingEnvoy(bootstrap(fleet, server, *FEATURES)) as envoy:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            envoy.until_clusters()
            envoy.until(lambda: envoy.listener_names() == set(), "the listener's end")
        finally:
            os.kill(server.pid, signal.SIGCONT)
        envoy.until_clusters("a", "web")
        envoy.until(lambda: envoy.ask("front").body == "one", "the listener")

        assert envoy.endpoints("web") == {"127.0.0.1:9"}
        assert envoy.rejections() == {}


def test_who_announces_nothing_is_not_told(fleet: Fleet) -> None:
    """An Envoy that does not announce that it knows times to live keeps everything while the server is away."""
    with fleet.server() as server, StreamingEnvoy(bootstrap(fleet, server)) as envoy:
        server.stop()
        time.sleep(2 * TTL_S)

        assert envoy.cluster_names(dynamic_only=True) == {"a", "web"}
        assert envoy.ask("front").body == "one"
        assert envoy.returncode is None
