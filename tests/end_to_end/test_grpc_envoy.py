"""A real Envoy that streams from a real server, in all four variants: start, update, removal, rejection, restart."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_rest_named_types import HEADERS_FILTER
from tests.support.back_off import most_offers
from tests.support.certificates import make_pair
from tests.support.grpc_envoy import (
    CDS,
    DELTA_ADS,
    LDS,
    NODE,
    SOTW_ADS,
    VARIANTS,
    Fleet,
    StreamingEnvoy,
    Variant,
    clients_of,
)
from tests.support.patience import PATIENCE_S
from tests.support.resources import (
    cluster_route,
    direct_route,
    eds_cluster,
    endpoints,
    http_listener,
    refused_cluster,
    static_cluster,
)
from tests.support.server import Server, write_file

# Envoy backs off by itself, each stream for its own, the longer the more often it failed.
RECONNECTING_S = PATIENCE_S


@pytest.fixture(params=VARIANTS, ids=str)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Fleet:
    """A tree of files for Envoys of one variant."""
    return Fleet(tmp_path, request.param)


# What does not depend on how streams are cut is tried on the two that carry everything.
on_ads = pytest.mark.parametrize("fleet", [SOTW_ADS, DELTA_ADS], ids=str, indirect=True)


def write_web(fleet: Fleet) -> None:
    """Write a tree in which all of CDS, EDS, LDS and RDS are used."""
    fleet.write("cds.yaml", eds_cluster("web"), eds_cluster("other"))
    fleet.write("eds.yaml", endpoints("web", 9), endpoints("other", 9))
    fleet.write("lds.yaml", http_listener("front", 0, "r1"), http_listener("back", 0, "back"))
    fleet.write("rds.yaml", direct_route("r1", "one"), direct_route("back", "backend"))


def test_clusters_come_change_and_go(fleet: Fleet) -> None:
    """Clusters that appear, change and vanish in files appear, change and vanish in Envoy."""
    fleet.write("cds.yaml", static_cluster("a"), static_cluster("b"))
    with fleet.running() as (server, envoy):
        assert envoy.cluster_names(dynamic_only=True) == {"a", "b"}

        fleet.write("cds.yaml", static_cluster("a", port=10))
        envoy.until_clusters("a")
        envoy.until(lambda: envoy.endpoints("a") == {"127.0.0.1:10"}, "a changed")
        fleet.write("more/cds.yaml", static_cluster("c"))
        envoy.until_clusters("a", "c")
        (fleet.tree / "more" / "cds.yaml").unlink()
        envoy.until_clusters("a")

        assert envoy.rejections() == {}
        assert server.log_events("nack_received") == []


def test_named_resources_reach_traffic(fleet: Fleet) -> None:
    """Endpoints and routes follow their files, traffic follows them, and neighbours are not told again."""
    write_web(fleet)
    with fleet.running() as (_, envoy):
        assert envoy.ask("front").body == "one"

        before = envoy.stat("cluster.other.update_success")
        back = envoy.listener_ports()["back"]
        fleet.write("eds.yaml", endpoints("web", back), endpoints("other", 9))
        envoy.until(lambda: envoy.endpoints("web") == {f"127.0.0.1:{back}"}, "new endpoint")
        fleet.write("rds.yaml", cluster_route("r1", "web"), direct_route("back", "backend"))
        envoy.until(lambda: envoy.ask("front").body == "backend", "new route")

        assert envoy.stat("cluster.other.update_success") == before
        assert envoy.rejections() == {}


@on_ads
def test_listeners_come_and_go(fleet: Fleet) -> None:
    """A listener that is added serves, one that is changed serves anew, and one that is removed ends."""
    write_web(fleet)
    with fleet.running() as (_, envoy):
        fleet.write("lds.yaml", http_listener("front", 0, "back"), http_listener("third", 0, "r1"))
        envoy.until(lambda: envoy.listener_names() == {"front", "third"}, "third there, back gone")
        envoy.until(lambda: envoy.ask("front").body == "backend", "front changed")

        assert envoy.ask("third").body == "one"
        assert envoy.rejections() == {}


def test_a_changed_cluster_is_warm_at_once(fleet: Fleet) -> None:
    """A modified EDS cluster gets its endpoints again in time, so that it does not warm until a time-out."""
    write_web(fleet)
    with fleet.running() as (_, envoy):
        for number in range(2, 5):
            changes = envoy.stat(f"{CDS}.config_reload")
            fleet.write("cds.yaml", eds_cluster("web", f"{number}s"), eds_cluster("other"))
            envoy.wait_stat(f"{CDS}.config_reload", changes + 1)
            envoy.until_warm()
            assert envoy.endpoints("web") == {"127.0.0.1:9"}
        assert envoy.stat("cluster.web.assignment_use_cached") == 0
        assert envoy.stat("cluster.web.init_fetch_timeout") == 0


@on_ads
def test_names_that_do_not_exist_yet_spring_up(fleet: Fleet) -> None:
    """Envoy waits for endpoints and routes that nobody wrote yet, and goes on as soon as they are there."""
    fleet.write("cds.yaml", eds_cluster("web"))
    fleet.write("lds.yaml", http_listener("front", 0, "r1"))
    with fleet.server() as server, StreamingEnvoy(fleet.bootstrap(server), wait="admin") as envoy:
        envoy.wait_stat(f"{CDS}.update_success", 1)
        fleet.write("eds.yaml", endpoints("web", 9))
        envoy.until(lambda: envoy.endpoints("web") == {"127.0.0.1:9"}, "endpoints")
        envoy.wait_stat(f"{LDS}.update_success", 1)
        fleet.write("rds.yaml", direct_route("r1", "here"))
        envoy.until(lambda: envoy.ask("front").body == "here", "routes")

        assert envoy.server_info()["state"] == "LIVE"
        assert envoy.rejections() == {}


def states_of(server: Server, message: str) -> list[dict[str, Any]]:
    """Return what fsxds tells of each resource of a type, whoever was sent it."""
    told = (one for client in clients_of(server) for one in client.get("generic_xds_configs", []))
    return [one for one in told if one["type_url"].endswith(f".{message}")]


def states_by_name(server: Server) -> dict[str, str | None]:
    """Return what became of each cluster."""
    return {one["name"]: one.get("client_status") for one in states_of(server, "Cluster")}


def test_a_rejected_version_does_not_loop_and_heals(fleet: Fleet) -> None:
    """What Envoy refuses is offered again with back-off only, is told with its file, and ends with the next version."""
    fleet.options = ("--nack-limit", "off")
    fleet.write("cds.yaml", static_cluster("a"))
    with fleet.running() as (server, envoy):
        began_s = time.monotonic()
        fleet.write("cds.yaml", static_cluster("new"), refused_cluster("bad"))
        envoy.wait_stat(f"{CDS}.update_rejected", 1)
        time.sleep(1.5)

        assert envoy.stat(f"{CDS}.update_rejected") <= most_offers(began_s)
        nack = server.log_events("nack_received")[0]
        assert (nack["node"], nack["type"], nack["files"]) == (NODE, "cds", ["cds.yaml"])
        assert "/nowhere/ca.pem" in server.log_file.read_text()
        # What was rejected with the culprit is served without it.
        server.wait(lambda: states_by_name(server) == {"new": "ACKED"}, "the verdict")
        assert envoy.cluster_names(dynamic_only=True) == {"new"}
        fleet.write("cds.yaml", static_cluster("a"))
        envoy.until_clusters("a")
        accepted = envoy.stat(f"{CDS}.update_success")
        fleet.write("cds.yaml", static_cluster("a"), static_cluster("b"))
        envoy.until_clusters("a", "b")

        assert envoy.stat(f"{CDS}.update_success") == accepted + 1


@on_ads
def test_a_listener_that_cannot_be_made_harms_no_other(fleet: Fleet) -> None:
    """A listener on a taken port is refused, told with its file and offered with back-off; the others go on serving."""
    write_web(fleet)
    with fleet.running() as (server, envoy):
        began_s = time.monotonic()
        fleet.write("taken.lds.yaml", http_listener("taken", server.port, "r1"))
        envoy.wait_stat(f"{LDS}.update_rejected", 1)
        time.sleep(1.5)

        assert envoy.stat(f"{LDS}.update_rejected") <= most_offers(began_s)
        nack = server.log_events("nack_received")[0]
        assert (nack["type"], nack["files"]) == ("lds", ["taken.lds.yaml"])
        assert (envoy.ask("front").body, envoy.ask("back").body) == ("one", "backend")
        fleet.write("taken.lds.yaml", http_listener("taken", 0, "r1"))
        envoy.until(lambda: envoy.ask("taken").body == "one", "the listener on another port")

        assert (envoy.ask("front").body, envoy.ask("back").body) == ("one", "backend")


@on_ads
def test_what_was_rejected_is_offered_again(fleet: Fleet, tmp_path: Path) -> None:
    """An update that Envoy refused for a reason of its own is taken once that is mended, with no change in any file."""
    authority = tmp_path / "ca.pem"
    fleet.options = ("--nack-limit", "off")
    fleet.write("cds.yaml", static_cluster("a"))
    with fleet.running() as (server, envoy):
        late = refused_cluster("late").replace("/nowhere/ca.pem", str(authority))
        fleet.write("cds.yaml", static_cluster("a"), late)
        envoy.wait_stat(f"{CDS}.update_rejected", 1)
        write_file(authority, make_pair("ca").chain)
        envoy.until_clusters("a", "late")

        envoy.until(lambda: {one["client_status"] for one in states_of(server, "Cluster")} == {"ACKED"}, "the verdict")


@pytest.mark.parametrize("variant", [SOTW_ADS, DELTA_ADS], ids=str)
def test_names_that_nobody_writes_do_not_hold_up_the_start_for_good(variant: Variant, tmp_path: Path) -> None:
    """Envoy goes on without a route configuration and an extension config that do not exist, as it was told to."""
    fleet = Fleet(tmp_path, replace(variant, patience="1s"))
    fleet.write("lds.yaml", http_listener("front", 0, "missing"), http_listener("back", 0, "r1", HEADERS_FILTER))
    fleet.write("rds.yaml", direct_route("r1", "one"))
    with fleet.running() as (_, envoy):
        assert envoy.ask("front").status == 404
        # A filter without its config fails each request.
        assert envoy.ask("back").status == 500


@on_ads
def test_a_first_config_that_is_rejected_heals(fleet: Fleet) -> None:
    """An Envoy that accepted nothing yet is offered what it refused with back-off, and takes what follows."""
    fleet.write("cds.yaml", refused_cluster("bad"))
    began_s = time.monotonic()
    with fleet.running() as (_, envoy):
        envoy.wait_stat(f"{CDS}.update_rejected", 1)
        fleet.write("cds.yaml", static_cluster("good"))
        envoy.until_clusters("good")

        assert envoy.stat(f"{CDS}.update_rejected") <= most_offers(began_s)


def test_a_restart_of_the_server_sends_nothing_again(fleet: Fleet) -> None:
    """After a restart on the same files Envoy asks again for everything, and is sent nothing that it has."""
    write_web(fleet)
    with fleet.server() as server:
        address = str(server.ready["grpc"])
        with StreamingEnvoy(fleet.bootstrap(server)) as envoy:
            before = envoy.verdicts()
            server.stop()
            envoy.until(lambda: not envoy.is_connected(), "the loss")
            with fleet.server(address):
                envoy.until(envoy.is_connected, "the streams", RECONNECTING_S)
                time.sleep(0.5)

                assert envoy.verdicts() == before
                fleet.write("rds.yaml", direct_route("r1", "after"), direct_route("back", "backend"))
                envoy.until(lambda: envoy.ask("front").body == "after", "what changes after the restart")
                assert envoy.rejections() == {}


@on_ads
def test_what_changes_while_the_server_is_down_is_told(fleet: Fleet) -> None:
    """Changes and removals that nobody could tell Envoy about are told when the server is back."""
    write_web(fleet)
    fleet.write("more.cds.yaml", static_cluster("going"))
    with fleet.server() as server:
        address = str(server.ready["grpc"])
        with StreamingEnvoy(fleet.bootstrap(server)) as envoy:
            server.stop()
            (fleet.tree / "more.cds.yaml").unlink()
            fleet.write("eds.yaml", endpoints("web", 11), endpoints("other", 9))
            fleet.write("rds.yaml", direct_route("r1", "two"), direct_route("back", "backend"))
            # Else what is gone stays on Delta for as long as connections of old listeners might use it.
            fleet.options = (*fleet.options, "--linger", "0s")
            with fleet.server(address):
                envoy.until_clusters("web", "other")
                envoy.until(lambda: envoy.endpoints("web") == {"127.0.0.1:11"}, "endpoints")
                envoy.until(lambda: envoy.ask("front").body == "two", "a route")
                assert envoy.rejections() == {}


@on_ads
def test_a_cluster_that_changes_while_the_server_is_down_is_warm_at_once(fleet: Fleet) -> None:
    """Its endpoints did not change, but are sent again, because Envoy waits for them."""
    write_web(fleet)
    with fleet.server() as server:
        address = str(server.ready["grpc"])
        with StreamingEnvoy(fleet.bootstrap(server)) as envoy:
            changes = envoy.stat(f"{CDS}.config_reload")
            server.stop()
            fleet.write("cds.yaml", eds_cluster("web", "3s"), eds_cluster("other"))
            with fleet.server(address):
                envoy.wait_stat(f"{CDS}.config_reload", changes + 1)
                envoy.until_warm()

                assert envoy.endpoints("web") == {"127.0.0.1:9"}
                assert envoy.stat("cluster.web.assignment_use_cached") == 0


@on_ads
def test_a_restarted_server_with_a_broken_file_takes_nothing_away(fleet: Fleet) -> None:
    """What a file defined before the restart stays in Envoy, though the new process never saw it good."""
    fleet.write("a.clusters.yaml", static_cluster("a"))
    fleet.write("b.clusters.yaml", static_cluster("b"))
    with fleet.server() as server:
        address = str(server.ready["grpc"])
        with StreamingEnvoy(fleet.bootstrap(server)) as envoy:
            server.stop()
            write_file(fleet.tree / "b.clusters.yaml", "resources: [")
            envoy.until(lambda: not envoy.is_connected(), "the loss")
            with fleet.server(address):
                envoy.until(envoy.is_connected, "the streams", RECONNECTING_S)
                time.sleep(0.5)
                assert envoy.cluster_names(dynamic_only=True) == {"a", "b"}

                fleet.write("b.clusters.yaml", static_cluster("b2"))
                envoy.until_clusters("a", "b2")


@on_ads
def test_a_stop_is_quick_and_takes_nothing_away(fleet: Fleet) -> None:
    """SIGTERM ends the process while streams are open, with status 0; Envoy keeps what it has and complains of nothing."""
    write_web(fleet)
    with fleet.running() as (server, envoy):
        warnings = envoy.log_lines(r"\]\[(warning|error|critical)\]")
        assert server.stop() == 0

        assert envoy.cluster_names(dynamic_only=True) == {"web", "other"}
        assert envoy.ask("front").body == "one"
        assert envoy.log_lines(r"\]\[(warning|error|critical)\]") == warnings
        assert "Traceback" not in server.log_file.read_text()


@on_ads
def test_an_empty_tree_starts_at_once_and_fills(fleet: Fleet) -> None:
    """Types that are there on purpose, but empty, end Envoy's wait, and what is added later arrives."""
    fleet.write("cds.yaml")
    fleet.write("lds.yaml")
    with fleet.running() as (_, envoy):
        assert envoy.cluster_names(dynamic_only=True) == set()
        fleet.write("cds.yaml", static_cluster("a"))
        envoy.until_clusters("a")
        fleet.write("cds.yaml")
        envoy.until_clusters()


@pytest.mark.parametrize("fleet", [SOTW_ADS], ids=str, indirect=True)
def test_all_variants_follow_one_tree(fleet: Fleet) -> None:
    """Envoys of every variant hang on one server at once, and all of them follow."""
    fleet.write("cds.yaml", static_cluster("a"))
    with fleet.server() as server:
        envoys = [
            StreamingEnvoy(variant.bootstrap(str(server.ready["grpc"]), node=str(variant))) for variant in VARIANTS
        ]
        try:
            for envoy in envoys:
                envoy.start()
            fleet.write("cds.yaml", static_cluster("b"))
            for envoy in envoys:
                envoy.until_clusters("b")
        finally:
            for envoy in envoys:
                envoy.stop()


@pytest.mark.parametrize("variant", [SOTW_ADS], ids=str)
def test_a_unix_socket_serves(variant: Variant, tmp_path: Path) -> None:
    """Envoy streams through a unix socket, which is gone after the stop."""
    fleet = Fleet(tmp_path, variant)
    fleet.write("cds.yaml", static_cluster("a"))
    socket = tmp_path / "xds.sock"
    with fleet.server(f"unix:{socket}") as server, StreamingEnvoy(fleet.bootstrap(server)) as envoy:
        assert envoy.cluster_names(dynamic_only=True) == {"a"}
        server.stop()
        assert not socket.exists()


def test_frequent_pings_keep_the_stream(tmp_path: Path) -> None:
    """An Envoy that pings every 100 ms is not sent away, as gRPC's own limits would do."""
    fleet = Fleet(tmp_path, SOTW_ADS)
    fleet.write("cds.yaml", static_cluster("a"))
    with fleet.server() as server:
        bootstrap = fleet.bootstrap(server)
        (xds,) = bootstrap["static_resources"]["clusters"]
        (options,) = xds["typed_extension_protocol_options"].values()
        keepalive = options["explicit_http_config"]["http2_protocol_options"]["connection_keepalive"]
        keepalive |= {"interval": "0.1s", "timeout": "5s"}
        with StreamingEnvoy(bootstrap) as envoy:
            time.sleep(2)
            assert envoy.stat("cluster.xds.upstream_cx_total") == 1
            assert envoy.stat("cluster.xds.upstream_rq_total") == 1
