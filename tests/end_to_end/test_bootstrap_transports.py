"""What `fsxds bootstrap` prints, started: a real Envoy comes up on each transport and holds what there is."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_rest_envoy import wait_until
from tests.end_to_end.test_sample_tree import PORTS, Running, copy_with_ports, free_ports
from tests.support.envoy import Envoy
from tests.support.fsxds_process import run_fsxds
from tests.support.server import Server


def printed(*arguments: str) -> dict[str, Any]:
    """Return what `fsxds bootstrap` prints."""
    done = run_fsxds(["bootstrap", *arguments, "--node", "n-7", "--format", "json"])
    assert done.returncode == 0, done.stderr
    bootstrap: dict[str, Any] = json.loads(done.stdout)
    return bootstrap


@pytest.mark.parametrize("socket", ["tcp", "unix", "name"])
def test_rest_converges(socket: str, tmp_path: Path) -> None:
    """Envoy polls, gets the sample tree, and answers; by TCP, by a unix socket, and by a name of DNS."""
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    tree = copy_with_ports(tmp_path, ports)
    http = f"unix:{tmp_path}/xds.sock" if socket == "unix" else "127.0.0.1:0"
    with Server(tree, tmp_path, http=http) as server:
        address = f"xds.localhost:{server.port}" if socket == "name" else server.ready["http"]
        with Envoy(printed(str(tree), "--transport", "rest", "--address", address)) as envoy:
            assert Running(tree, ports, envoy).get("/") == "hello from fsxds\n"
            assert Running(tree, ports, envoy).get("/new") == "the new page\n"


def test_files_converge(tmp_path: Path) -> None:
    """Envoy reads the mirrored sample tree, and answers."""
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    tree, mirror = copy_with_ports(tmp_path, ports), tmp_path / "mirror"
    with (
        Server(tree, tmp_path, "--mirror", str(mirror), "--mirror-config-sources"),
        Envoy(printed(str(tree), "--transport", "files", "--mirror", str(mirror))) as envoy,
    ):
        assert Running(tree, ports, envoy).get("/") == "hello from fsxds\n"
        assert Running(tree, ports, envoy).get("/new") == "the new page\n"


@pytest.mark.parametrize("socket", ["tcp", "unix"])
@pytest.mark.parametrize("transport", ["ads", "delta"])
def test_streams_converge(transport: str, socket: str, tmp_path: Path) -> None:
    """Envoy opens one stream, gets the sample tree, whose sources are REST as written, by it alone, and answers."""
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    tree = copy_with_ports(tmp_path, ports)
    grpc = f"unix:{tmp_path}/ads.sock" if socket == "unix" else "127.0.0.1:0"
    with Server(tree, tmp_path, "--ads-config-sources", grpc=grpc) as server:
        address = server.ready["grpc"]
        with Envoy(printed(str(tree), "--transport", transport, "--address", address)) as envoy:
            assert Running(tree, ports, envoy).get("/") == "hello from fsxds\n"
            assert Running(tree, ports, envoy).get("/new") == "the new page\n"
            # Traffic flows as soon as the listeners are there; the last ACK may still be on its way.
            wait_until(envoy, lambda: statuses(server) == {"ACKED"}, "the last ACK")
            clients = client_status(server)

    (client,) = clients["config"]
    word = "Delta" if transport == "delta" else "Stream"
    assert (client["node"]["id"], client["client_scope"]) == ("n-7", f"{word}AggregatedResources")


def statuses(server: Server) -> set[str | None]:
    """Return the status of each resource of all clients; None for one that is not ACKed yet."""
    return {
        one.get("client_status") for client in client_status(server)["config"] for one in client["generic_xds_configs"]
    }


def client_status(server: Server) -> dict[str, Any]:
    """Return what fsxds tells of its clients, by REST."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/v3/discovery:client_status", b"{}", {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        content: dict[str, Any] = json.load(response)
    return content
