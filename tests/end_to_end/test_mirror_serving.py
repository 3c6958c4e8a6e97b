"""From a directory of files to an Envoy that reads mirrored files, and one that polls over a unix socket."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.end_to_end.test_rest_envoy import CDS, bootstrap, wait_until
from tests.support.envoy import Envoy
from tests.support.resources import (
    cluster_route,
    direct_route,
    document,
    eds_cluster,
    endpoints,
    http_listener,
    static_cluster,
)
from tests.support.server import Server, write_file
from tests.support.settings_files import file_flags


def file_bootstrap(out: Path) -> dict[str, Any]:
    """Return the bootstrap of an Envoy that reads the mirror in `out`."""
    sources = {
        f"{name}_config": {"resource_api_version": "V3", "path_config_source": {"path": str(out / f"{name}.pb")}}
        for name in ("cds", "lds")
    }
    return {"node": {"id": "edge-1", "cluster": "edge"}, "dynamic_resources": sources}


@contextmanager
def mirroring(tree: Path, tmp_path: Path, *more: str) -> Iterator[tuple[Server, Envoy]]:
    """Serve a tree to a real Envoy by mirrored files alone."""
    out = tmp_path / "out"
    options = ("--mirror", str(out), "--mirror-config-sources", *more)
    with Server(tree, tmp_path, *options) as server, Envoy(file_bootstrap(out)) as envoy:
        yield server, envoy


def answer(envoy: Envoy, listener: str) -> str:
    """Return what Envoy answers at a listener."""
    with urllib.request.urlopen(f"http://127.0.0.1:{envoy.listener_ports()[listener]}/", timeout=30) as response:
        return str(response.read().decode())


def test_traffic_follows_the_files(tmp_path: Path) -> None:
    """A tree written for REST serves an Envoy by files: sources are rewritten, and every edit arrives."""
    tree = tmp_path / "tree"
    write_file(tree / "cds.yaml", document([eds_cluster("web")]))
    write_file(tree / "lds.yaml", document([http_listener("front", 0, "r1"), http_listener("back", 0, "back")]))
    write_file(tree / "rds.yaml", document([direct_route("r1", "one"), direct_route("back", "backend")]))
    write_file(tree / "eds.yaml", document([endpoints("web", 9)]))
    with mirroring(tree, tmp_path) as (_, envoy):
        assert answer(envoy, "front") == "one"
        back = envoy.listener_ports()["back"]
        write_file(tree / "eds.yaml", document([endpoints("web", back)]))
        write_file(tree / "rds.yaml", document([cluster_route("r1", "web"), direct_route("back", "backend")]))
        wait_until(envoy, lambda: answer(envoy, "front") == "backend", "the new route")

        assert envoy.endpoints("web") == {f"127.0.0.1:{back}"}
        assert envoy.stat(f"{CDS}.update_rejected") == 0


def test_what_others_do_to_the_files_is_undone_before_a_rescan(tmp_path: Path) -> None:
    """The Envoy that reads them follows: to a file of another program, back at once, and to the next edit of the tree."""
    tree, out = tmp_path / "tree", tmp_path / "out"
    write_file(tree / "lds.yaml", document([http_listener("front", 0, "r1")]))
    write_file(tree / "rds.yaml", document([direct_route("r1", "one")]))
    with mirroring(tree, tmp_path, *file_flags(rescan="1h")) as (server, envoy):
        assert answer(envoy, "front") == "one"
        good = (out / "rds/r1.pb").read_bytes()
        write_file(out / "rds/r1.pb", good.decode("latin-1").replace("one", "two"))
        wait_until(envoy, lambda: len(server.log_events("files_restored")) == 1, "the file")
        assert (out / "rds/r1.pb").read_bytes() == good
        wait_until(envoy, lambda: answer(envoy, "front") == "one", "the route")
        (out / "rds/r1.pb").unlink()
        wait_until(envoy, lambda: len(server.log_events("files_restored")) == 2, "the file")
        write_file(tree / "rds.yaml", document([direct_route("r1", "new")]))
        wait_until(envoy, lambda: answer(envoy, "front") == "new", "the edit")
        # Written in place, which Envoy does not notice; it notices the file that is moved over that.
        (out / "rds/r1.pb").write_bytes(b"broken")
        wait_until(envoy, lambda: len(server.log_events("files_restored")) == 3, "the file")

        assert answer(envoy, "front") == "new"
        assert [each["files"] for each in server.log_events("files_restored")] == [["rds/r1.pb"]] * 3


def test_a_config_map_swap_reaches_the_mirror_in_one_step(tmp_path: Path) -> None:
    """A `..data` flip of the tree is one update of Envoy's files, and a broken file takes nothing out of them."""
    tree = tmp_path / "tree"
    for generation, names in (("..1", "ab"), ("..2", "bc")):
        write_file(tree / generation / "cds.yaml", document([static_cluster(name) for name in names]))
    write_file(tree / "..3" / "cds.yaml", "resources: [")
    (tree / "..data").symlink_to("..1")
    (tree / "cds.yaml").symlink_to("..data/cds.yaml")
    write_file(tree / "lds.yaml", "resources: []\n")
    with mirroring(tree, tmp_path) as (server, envoy):
        assert envoy.cluster_names(dynamic_only=True) == {"a", "b"}
        for generation in ("..2", "..3"):
            (tree / "..tmp").symlink_to(generation)
            (tree / "..tmp").replace(tree / "..data")
            wait_until(envoy, lambda: envoy.cluster_names(dynamic_only=True) == {"b", "c"}, "the new generation")
        server.wait(lambda: server.log_events("degraded"), "the problem")

        assert envoy.cluster_names(dynamic_only=True) == {"b", "c"}


def test_a_restart_does_not_touch_the_files(tmp_path: Path) -> None:
    """Equal files are left alone by a new process, so that no Envoy reads them again."""
    tree = tmp_path / "tree"
    write_file(tree / "cds.yaml", document([static_cluster("a")]))
    write_file(tree / "lds.yaml", "resources: []\n")
    with mirroring(tree, tmp_path) as (server, envoy):
        before = envoy.subscription(CDS)
        server.stop()
        server.start()

        assert envoy.subscription(CDS) == before


def test_envoy_polls_over_a_unix_socket(tmp_path: Path) -> None:
    """A socket in the file system does as well as a port; it is there when the ready file is, and gone in the end."""
    tree, socket = tmp_path / "tree", tmp_path / "xds.sock"
    write_file(tree / "cds.yaml", document([static_cluster("a")]))
    with Server(tree, tmp_path, http=f"unix:{socket}") as server:
        polling = json.loads(json.dumps(bootstrap(1)))
        (cluster,) = polling["static_resources"]["clusters"]
        (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
        endpoint["endpoint"]["address"] = {"pipe": {"path": str(socket)}}
        with Envoy(polling) as envoy:
            assert envoy.cluster_names(dynamic_only=True) == {"a"}
            write_file(tree / "cds.yaml", document([static_cluster("b")]))
            wait_until(envoy, lambda: envoy.cluster_names(dynamic_only=True) == {"b"}, "the change")
        assert server.ready["http"] == f"unix:{socket}"

    assert not socket.exists()
