"""A real Envoy that polls a real server (ENVOY.md E9, E10, E11)."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fsxds.protocol.poll import PROMPT_RETURNS_ALLOWED
from tests.support.back_off import most_offers
from tests.support.envoy import Envoy
from tests.support.patience import NEVER_S
from tests.support.resources import (
    cluster_route,
    direct_route,
    document,
    eds_cluster,
    endpoints,
    http_listener,
    refused_cluster,
    static_cluster,
)
from tests.support.server import Server, write_file

CDS, LDS = "cluster_manager.cds", "listener_manager.lds"


def rest_source(poll_s: float = 30.0) -> dict[str, Any]:
    """Return a REST config source as a bootstrap has it."""
    return {
        "resource_api_version": "V3",
        "initial_fetch_timeout": "60s",
        "api_config_source": {
            "api_type": "REST",
            "transport_api_version": "V3",
            "cluster_names": ["xds"],
            "refresh_delay": "0.05s",
            "request_timeout": f"{poll_s}s",
        },
    }


def bootstrap(port: int, *, node: str = "edge-1", runtime: bool = False, poll_s: float = 30.0) -> dict[str, Any]:
    """Return the bootstrap of an Envoy that polls the server at `port`."""
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    layers = [{"name": "live", "rtds_layer": {"name": "live", "rtds_config": rest_source()}}] if runtime else []
    return {
        "node": {"id": node, "cluster": "edge"},
        "static_resources": {
            "clusters": [
                {
                    "name": "xds",
                    "type": "STATIC",
                    "connect_timeout": "1s",
                    "load_assignment": {
                        "cluster_name": "xds",
                        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
                    },
                }
            ]
        },
        "dynamic_resources": {"cds_config": rest_source(poll_s), "lds_config": rest_source(poll_s)},
        "layered_runtime": {"layers": layers},
    }


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


@contextmanager
def running(tree: Path, tmp_path: Path, *arguments: str, **options: Any) -> Iterator[tuple[Server, Envoy]]:
    """Serve a tree to a real Envoy."""
    with Server(tree, tmp_path, *arguments) as server, Envoy(bootstrap(server.port, **options)) as envoy:
        yield server, envoy


def fetch(port: int) -> str:
    """Return what Envoy's listener answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as response:
        return str(response.read().decode())


def wait_until(envoy: Envoy, predicate: Callable[[], Any], what: str) -> None:
    """Wait until `predicate` holds, with the traffic that it may cause."""

    def holds() -> bool:
        try:
            return bool(predicate())
        except (urllib.error.URLError, ConnectionError, KeyError):
            return False

    envoy.wait(holds, what=what)


def test_envoy_starts_follows_and_forgets(tree: Path, tmp_path: Path) -> None:
    """Clusters that appear, change and vanish in files appear, change and vanish in Envoy."""
    write_file(tree / "cds.yaml", document([static_cluster("a"), static_cluster("b")]))
    with running(tree, tmp_path) as (server, envoy):
        assert envoy.cluster_names(dynamic_only=True) == {"a", "b"}

        write_file(tree / "cds.yaml", document([static_cluster("a", port=10)]))
        wait_until(envoy, lambda: envoy.cluster_names(dynamic_only=True) == {"a"}, "b gone")
        wait_until(envoy, lambda: envoy.endpoints("a") == {"127.0.0.1:10"}, "a changed")
        write_file(tree / "more" / "cds.yaml", document([static_cluster("c")]))
        wait_until(envoy, lambda: envoy.cluster_names(dynamic_only=True) == {"a", "c"}, "c there")
        (tree / "more" / "cds.yaml").unlink()
        wait_until(envoy, lambda: envoy.cluster_names(dynamic_only=True) == {"a"}, "c gone")

        assert envoy.stat(f"{CDS}.update_rejected") == 0
        assert envoy.stat(f"{CDS}.update_failure") == 0
        assert server.log_events("nack_received") == []


def test_named_resources_reach_traffic(tree: Path, tmp_path: Path) -> None:
    """Endpoints and routes are polled by name, each wakes only its own poll, and traffic follows."""
    write_file(tree / "cds.yaml", document([eds_cluster("web"), eds_cluster("other")]))
    write_file(tree / "lds.yaml", document([http_listener("front", 0, "r1"), http_listener("back", 0, "back")]))
    write_file(tree / "rds.yaml", document([direct_route("r1", "one"), direct_route("back", "backend")]))
    write_file(tree / "eds.yaml", document([endpoints("web", 9), endpoints("other", 9)]))
    with running(tree, tmp_path) as (_, envoy):
        ports = envoy.listener_ports()
        assert fetch(ports["front"]) == "one"

        before = envoy.stat("cluster.other.update_success")
        write_file(tree / "eds.yaml", document([endpoints("web", ports["back"]), endpoints("other", 9)]))
        wait_until(envoy, lambda: envoy.endpoints("web") == {f"127.0.0.1:{ports['back']}"}, "new endpoint")
        write_file(tree / "rds.yaml", document([cluster_route("r1", "web"), direct_route("back", "backend")]))
        wait_until(envoy, lambda: fetch(ports["front"]) == "backend", "new route")

        assert envoy.stat("cluster.other.update_success") == before


def test_a_changed_cluster_gets_its_endpoints_at_once(tree: Path, tmp_path: Path) -> None:
    """A modified EDS cluster opens a new subscription without a version; it is answered and warms without delay."""
    write_file(tree / "cds.yaml", document([eds_cluster("web")]))
    write_file(tree / "eds.yaml", document([endpoints("web", 9)]))
    with running(tree, tmp_path) as (_, envoy):
        for number in range(2, 9):
            changes = envoy.stat(f"{CDS}.config_reload")
            write_file(tree / "cds.yaml", document([eds_cluster("web", f"{number}s")]))
            envoy.wait_stat(f"{CDS}.config_reload", changes + 1)
            wait_until(envoy, lambda: envoy.stat("cluster_manager.warming_clusters") == 0, "warm")

            assert envoy.endpoints("web") == {"127.0.0.1:9"}
        assert envoy.stat("cluster.web.init_fetch_timeout") == 0


def test_a_missing_name_does_not_delay_the_start_and_springs_up(tree: Path, tmp_path: Path) -> None:
    """Endpoints and routes that do not exist are answered as such, and delivered when they appear."""
    write_file(tree / "cds.yaml", document([eds_cluster("web")]))
    write_file(tree / "lds.yaml", document([http_listener("front", 0, "r1")]))
    with running(tree, tmp_path) as (_, envoy):
        assert set(envoy.stats("init_fetch_timeout$").values()) == {0}
        write_file(tree / "eds.yaml", document([endpoints("web", 9)]))
        write_file(tree / "rds.yaml", document([direct_route("r1", "here")]))
        wait_until(envoy, lambda: envoy.endpoints("web") == {"127.0.0.1:9"}, "endpoints")
        wait_until(envoy, lambda: fetch(envoy.listener_ports()["front"]) == "here", "routes")

        assert envoy.stat("cluster.web.update_failure") == 0


def test_runtime_and_secrets_follow(tree: Path, tmp_path: Path) -> None:
    """RTDS and SDS are held while there is nothing to give, and follow their files."""
    write_file(tree / "cds.yaml", document([static_cluster("a")]))
    write_file(tree / "rtds.yaml", "name: live\nlayer: {example.key: 1}\n")
    with running(tree, tmp_path, runtime=True) as (_, envoy):

        def value() -> Any:
            return envoy.get_json("/runtime")["entries"]["example.key"]["final_value"]

        assert value() == "1"
        write_file(tree / "rtds.yaml", "name: live\nlayer: {example.key: 2}\n")
        wait_until(envoy, lambda: value() == "2", "the new value")

        assert envoy.stat("runtime.update_rejected") == 0


def test_a_rejected_version_does_not_loop_and_heals(tree: Path, tmp_path: Path) -> None:
    """What Envoy refuses is offered again with back-off only, is told with its file, and ends with the next version."""
    write_file(tree / "cds.yaml", document([static_cluster("a")]))
    with running(tree, tmp_path) as (server, envoy):
        began_s = time.monotonic()
        write_file(tree / "cds.yaml", document([static_cluster("new"), refused_cluster("bad")]))
        envoy.wait_stat(f"{CDS}.update_rejected", 1)
        time.sleep(2.5)

        # A server that only compares versions gets to about 25. The first rejection may be a lost response.
        assert envoy.stat(f"{CDS}.update_rejected") <= 1 + most_offers(began_s)
        nack = server.log_events("nack_received")[0]
        assert (nack["node"], nack["type"], nack["files"]) == ("edge-1", "cds", ["cds.yaml"])
        # It names none of them, so they are offered apart: the good one is taken.
        released = server.wait(lambda: server.log_events("versions_released"), "the good one")
        assert released[0]["resources"] == ["cds new"]
        wait_until(envoy, lambda: envoy.cluster_names(dynamic_only=True) == {"new"}, "the good one")
        accepted = envoy.stat(f"{CDS}.update_success")
        write_file(tree / "cds.yaml", document([static_cluster("a")]))
        wait_until(envoy, lambda: envoy.cluster_names(dynamic_only=True) == {"a"}, "a back")
        envoy.wait_stat(f"{CDS}.update_success", accepted + 1)


def test_a_first_config_that_is_rejected_does_not_loop(tree: Path, tmp_path: Path) -> None:
    """An Envoy that accepted nothing yet has no version to ask with; its rejections are backed off all the same."""
    write_file(tree / "cds.yaml", document([refused_cluster("bad")]))
    began_s = time.monotonic()
    with running(tree, tmp_path) as (_, envoy):
        envoy.wait_stat(f"{CDS}.update_rejected", 1)
        time.sleep(3)

        # The first may be those of new subscriptions, which have no version either.
        assert envoy.stat(f"{CDS}.update_rejected") <= PROMPT_RETURNS_ALLOWED + most_offers(began_s)
        write_file(tree / "cds.yaml", document([static_cluster("good")]))
        wait_until(envoy, lambda: envoy.cluster_names(dynamic_only=True) == {"good"}, "good")


def test_a_restart_of_the_server_makes_nobody_fetch_again(tree: Path, tmp_path: Path) -> None:
    """After a restart the same files have the same versions, so polls are held and nothing is applied again."""
    write_file(tree / "cds.yaml", document([static_cluster("a")]))
    with Server(tree, tmp_path) as server:
        port = server.port
        with Envoy(bootstrap(port, poll_s=2.0)) as envoy:
            before = envoy.subscription(CDS)
            server.stop()
            again = Server(tree, tmp_path, http=f"127.0.0.1:{port}")
            with again:
                attempts = envoy.stat(f"{CDS}.update_attempt")
                envoy.wait_stat(f"{CDS}.update_attempt", attempts + 2)

                after = envoy.subscription(CDS)
                assert after["version_text"] == before["version_text"]
                assert after["update_success"] == before["update_success"]


def test_a_restarted_server_with_a_broken_file_takes_nothing_away(tree: Path, tmp_path: Path) -> None:
    """What a file defined before the restart stays in Envoy, though the new process never saw it good."""
    write_file(tree / "a.clusters.yaml", document([static_cluster("a")]))
    write_file(tree / "b.clusters.yaml", document([static_cluster("b")]))
    with Server(tree, tmp_path) as server:
        port = server.port
        with Envoy(bootstrap(port, poll_s=2.0)) as envoy:
            server.stop()
            write_file(tree / "b.clusters.yaml", "resources: [")
            with Server(tree, tmp_path, http=f"127.0.0.1:{port}"):
                attempts = envoy.stat(f"{CDS}.update_attempt")
                envoy.wait_stat(f"{CDS}.update_attempt", attempts + 2)
                assert envoy.cluster_names(dynamic_only=True) == {"a", "b"}

                write_file(tree / "b.clusters.yaml", document([static_cluster("b2")]))
                wait_until(envoy, lambda: envoy.cluster_names(dynamic_only=True) == {"a", "b2"}, "mended")


def test_a_restarted_envoy_gets_everything_at_once(tree: Path, tmp_path: Path) -> None:
    """An Envoy that starts again asks without a version and is answered, whatever it was sent before."""
    write_file(tree / "cds.yaml", document([static_cluster("a")]))
    with Server(tree, tmp_path) as server:
        for _ in range(3):
            with Envoy(bootstrap(server.port)) as envoy:
                assert envoy.cluster_names(dynamic_only=True) == {"a"}


@pytest.mark.parametrize(
    "broken",
    ["resources: [", "", "resources:\n", "resourcs: []\n", "- name: x\n\tbad: tab\n", "\x00\x01"],
    ids=["syntax", "empty", "null", "typo", "tab", "binary"],
)
def test_a_broken_file_never_removes_a_cluster(tree: Path, tmp_path: Path, broken: str) -> None:
    """Its last good content stays, and its neighbours move on."""
    write_file(tree / "a.clusters.yaml", document([static_cluster("a")]))
    write_file(tree / "b.clusters.yaml", document([static_cluster("b")]))
    with running(tree, tmp_path) as (server, envoy):
        write_file(tree / "a.clusters.yaml", broken)
        server.wait(lambda: server.log_events("problem_found") or server.log_events("degraded"), "the problem")
        write_file(tree / "b.clusters.yaml", document([static_cluster("b2")]))
        wait_until(envoy, lambda: "b2" in envoy.cluster_names(dynamic_only=True), "the neighbour")

        assert envoy.cluster_names(dynamic_only=True) == {"a", "b2"}


def test_a_half_written_file_is_never_served(tree: Path, tmp_path: Path) -> None:
    """Two halves written 0.3 s apart through one open file never show as a file with fewer resources."""
    path = tree / "cds.yaml"
    write_file(path, document([static_cluster(name) for name in "abcd"]))
    with running(tree, tmp_path) as (_, envoy):
        removed = envoy.stat("cluster_manager.cluster_removed")
        for _ in range(3):
            # The first half is a whole document by itself, of two clusters.
            half, text = (document([static_cluster(name, port=11) for name in names]) for names in ("ab", "abcd"))
            with path.open("w") as file:
                file.write(half)
                file.flush()
                time.sleep(0.3)
                file.write(text.removeprefix(half))
        wait_until(envoy, lambda: envoy.endpoints("d") == {"127.0.0.1:11"}, "the whole file")

        assert envoy.stat("cluster_manager.cluster_removed") == removed


def test_a_config_map_swap_is_one_step(tree: Path, tmp_path: Path) -> None:
    """A `..data` flip reaches Envoy as one change."""
    for generation, names in (("..1", "ab"), ("..2", "bc")):
        write_file(tree / generation / "cds.yaml", document([static_cluster(name) for name in names]))
    (tree / "..data").symlink_to("..1")
    (tree / "cds.yaml").symlink_to("..data/cds.yaml")
    with running(tree, tmp_path) as (_, envoy):
        assert envoy.cluster_names(dynamic_only=True) == {"a", "b"}
        (tree / "..tmp").symlink_to("..2")
        (tree / "..tmp").replace(tree / "..data")
        wait_until(envoy, lambda: envoy.cluster_names(dynamic_only=True) == {"b", "c"}, "the new generation")

        assert envoy.stat(f"{CDS}.update_success") == 2


def test_stopping_the_server_answers_held_polls(tree: Path, tmp_path: Path) -> None:
    """SIGTERM ends the process long before they would end, with status 0; Envoy sees no failure but a lost server."""
    write_file(tree / "cds.yaml", document([static_cluster("a")]))
    with Server(tree, tmp_path) as server, Envoy(bootstrap(server.port, poll_s=NEVER_S)) as envoy:
        assert server.stop() == 0

        assert envoy.cluster_names(dynamic_only=True) == {"a"}
