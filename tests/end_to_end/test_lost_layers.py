"""Layers whose folder goes, is renamed or never was there: nodes keep what they are served, and it is reported."""

from __future__ import annotations

import json
import os
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from envoy.config.core.v3 import base_pb2

from fsxds.settings.forms import parse_address
from tests.support.fsxds_process import run_fsxds
from tests.support.grpc_clients import DiscoveryClient, channel_to, method_path
from tests.support.server import Server, events_in, write_file

CLUSTERS = "[{{name: {name}, type: STATIC, connect_timeout: 1s}}]"
VIEWS = """\
settle: 10ms
views:
- {name: edge, match: {cluster: edge}, layers: [common, edge, "nodes/{node.id}"]}
- {name: inner, match: {cluster: inner}, layers: [common]}
"""


class Layered(Server):
    """A server of three layers."""

    def __init__(self, workdir: Path, *options: str) -> None:
        self.tree, self.settings = workdir / "tree", workdir / "fsxds.yaml"
        for layer, name in (("common", "common"), ("edge", "edge"), ("nodes/n1", "own")):
            write_file(self.tree / layer / "cds.yaml", CLUSTERS.format(name=name))
        self.settings.write_text(VIEWS)
        super().__init__(self.tree, workdir, "--settings", str(self.settings), "--step-timeout", "100ms", *options)

    def poll(self, node: str = "n1", cluster: str = "edge", version: str = "") -> tuple[int, list[str], str]:
        """Poll for clusters without being held; return the status, the names and the version."""
        body = json.dumps({"node": {"id": node, "cluster": cluster}, "version_info": version}).encode()
        url = f"http://127.0.0.1:{self.port}/v3/discovery:clusters?timeout=0"
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                answer = json.load(response)
                return response.status, sorted(row["name"] for row in answer["resources"]), answer["version_info"]
        except urllib.error.HTTPError as error:
            error.close()
            return error.code, [], ""

    def names(self, node: str = "n1", cluster: str = "edge") -> list[str]:
        """Return the clusters that a node gets."""
        return self.poll(node, cluster)[1]

    def held(self) -> list[str]:
        """Return what the log says is held back now."""
        lines = events_in(self.log_file.read_bytes())
        states = [line.get("held", []) for line in lines if line["event"] in ("degraded", "recovered")]
        return list(states[-1]) if states else []

    def apply(self, settings: str) -> None:
        """Send SIGHUP after other settings."""
        before = len(self.log_events("settings_reloaded"))
        write_file(self.settings, settings)
        os.kill(self.pid, signal.SIGHUP)
        self.wait(lambda: len(self.log_events("settings_reloaded")) > before, "the other settings")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Layered]:
    """A server that runs."""
    with Layered(tmp_path) as running:
        yield running


def test_layer_that_vanishes_is_served_on(server: Layered) -> None:
    """Also to a node that comes later, while other layers change; the log, status and check say so until it is back."""
    assert server.names() == ["common", "edge", "own"]
    shutil.rmtree(server.tree / "edge")
    server.wait(lambda: server.held() == ["edge"], "the lost layer")
    write_file(server.tree / "common" / "cds.yaml", CLUSTERS.format(name="common2"))
    server.wait(lambda: server.names() == ["common2", "edge", "own"], "the edit")

    assert server.names("n2") == ["common2", "edge"]
    found = [line for line in server.log_events("problem_found") if line["severity"] == "error"]
    assert [(line["path"], line["rule"]) for line in found] == [("edge", "missing-layer")]
    status = run_fsxds(["status", "--admin", server.admin])
    assert (status.returncode, "this folder is a layer of the view edge" in status.stdout) == (1, True), status
    assert run_fsxds(["check", "--no-envoy", "--settings", str(server.settings), str(server.tree)]).returncode == 1
    write_file(server.tree / "edge" / "cds.yaml", CLUSTERS.format(name="edge2"))
    server.wait(lambda: server.names() == ["common2", "edge2", "own"], "the layer")
    server.wait(lambda: server.held() == [], "the recovery")


def test_folders_of_a_template(server: Layered) -> None:
    """While another one is left, one that is deleted is gone; when none is left, what they held stays."""
    write_file(server.tree / "nodes" / "n2" / "cds.yaml", CLUSTERS.format(name="own2"))
    server.wait(lambda: server.names("n2") == ["common", "edge", "own2"], "the second node")
    assert server.names("n1") == ["common", "edge", "own"]
    shutil.rmtree(server.tree / "nodes" / "n2")
    server.wait(lambda: server.names("n2") == ["common", "edge"], "the folder that is gone")
    shutil.rmtree(server.tree / "nodes")
    server.wait(lambda: server.held() == ["nodes/n1"], "the lost layer")

    assert server.names("n1") == ["common", "edge", "own"]


@pytest.mark.parametrize("is_tree_first", [True, False])
async def test_layer_that_is_renamed(server: Layered, *, is_tree_first: bool) -> None:
    """The folder and the settings, in either order within a second: its nodes are sent nothing."""
    settings = VIEWS.replace("[common, edge,", "[common, east,")
    async with channel_to(parse_address(f"127.0.0.1:{server.grpc_port}")) as channel:
        stream = DiscoveryClient(channel, method_path("", "Delta"))
        await stream.ask("CDS", node=base_pb2.Node(id="n1", cluster="edge"))
        first = await stream.answer()
        await stream.take(first)
        if is_tree_first:
            (server.tree / "edge").rename(server.tree / "east")
            server.wait(lambda: server.held() == ["edge"], "the lost layer")
            server.apply(settings)
        else:
            server.apply(settings)
            (server.tree / "edge").rename(server.tree / "east")
        write_file(server.tree / "east" / "eds.yaml", "[{cluster_name: edge}]")
        server.wait(lambda: server.names("n3") == ["common", "edge"] and server.held() == [], "the renamed layer")

        assert len(first.resources) == 3
        assert await stream.is_silent()


async def test_stream_of_a_node_without_a_rule(server: Layered) -> None:
    """It goes on with what it has, though the settings name a layer of it no more; who comes anew is rejected."""
    async with channel_to(parse_address(f"127.0.0.1:{server.grpc_port}")) as channel:
        stream = DiscoveryClient(channel, method_path("", "Stream"))
        await stream.ask("CDS", node=base_pb2.Node(id="n1", cluster="edge"))
        first = await stream.answer()
        await stream.take(first)
        server.apply("settle: 10ms\nviews: [{name: inner, match: {cluster: inner}, layers: [common]}]\n")
        server.wait(lambda: server.poll()[0] == 404, "the rejection")
        write_file(server.tree / "common" / "cds.yaml", CLUSTERS.format(name="common2"))
        server.wait(lambda: server.names("n1", "inner") == ["common2"], "the edit")

        assert len(first.resources) == 3
        assert await stream.is_silent()


@pytest.mark.parametrize("has_state", [True, False])
def test_restart_without_a_layer(tmp_path: Path, *, has_state: bool) -> None:
    """Who holds something keeps it; who comes anew gets the other layers, and with a state directory what was served before."""
    server = Layered(tmp_path, *(("--state", str(tmp_path / "state")) if has_state else ()))
    with server:
        version = server.poll("n2")[2]
    shutil.rmtree(server.tree / "edge")
    with server:
        server.wait(lambda: server.held() == ["edge"], "the lost layer")

        assert server.poll("n2", version=version)[0] == 304
        assert server.names("n3") == (["common", "edge"] if has_state else ["common"])
        write_file(server.tree / "edge" / "cds.yaml", CLUSTERS.format(name="edge2"))
        server.wait(lambda: server.names("n2") == ["common", "edge2"], "the layer")


def test_layer_that_is_not_there_yet(tmp_path: Path) -> None:
    """Settings before the tree: everybody is served meanwhile, it is reported with a similar name, and served when it comes."""
    server = Layered(tmp_path)
    (server.tree / "edge").rename(server.tree / "edges")
    with server:
        assert server.names() == ["common", "own"]
        assert server.names("n1", "inner") == ["common"]
        (found,) = [line for line in server.log_events("problem_found") if line["severity"] == "error"]
        assert (found["path"], "did you mean edges? Else create it" in found["message"]) == ("edge", True)
        (server.tree / "edges").rename(server.tree / "edge")
        server.wait(lambda: server.names() == ["common", "edge", "own"], "the layer")
