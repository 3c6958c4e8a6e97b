"""What `fsxds bootstrap` prints, started: a real Envoy comes up on each transport and holds what there is."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.sources.envoy_api import find_api
from tests.end_to_end.test_sample_tree import PORTS, Running, copy_with_ports, free_ports
from tests.support.ads_server import ads_server
from tests.support.envoy import Envoy
from tests.support.server import Server


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    """The types of the real Envoy."""
    return find_api(envoy=None, descriptors=None, cache_dir=None)


def printed(*arguments: str) -> dict[str, Any]:
    """Return what `fsxds bootstrap` prints."""
    command = [sys.executable, "-m", "fsxds", "bootstrap", *arguments, "--node", "n-7", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
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


@pytest.mark.parametrize("socket", ["127.0.0.1:0", "unix"])
@pytest.mark.parametrize(("transport", "word"), [("ads", ""), ("delta", "Delta")])
async def test_streams_come_up(transport: str, word: str, socket: str, catalogue: Catalogue, tmp_path: Path) -> None:
    """Envoy opens one stream, tells its node once, asks for each type, and is live."""
    tree = copy_with_ports(tmp_path, dict(zip(PORTS, PORTS, strict=True)))
    wanted = f"unix:{tmp_path}/ads.sock" if socket == "unix" else socket
    async with ads_server(catalogue, wanted) as (ads, address):
        bootstrap = await asyncio.to_thread(printed, str(tree), "--transport", transport, "--address", address)
        envoy = Envoy(bootstrap)
        try:
            await asyncio.to_thread(envoy.start)  # waits until it is live
        finally:
            await asyncio.to_thread(envoy.stop)

    assert ads.nodes == ["n-7"]
    assert {(word, name) for name in ("Cluster", "Listener", "Runtime")} == ads.asked
    assert ads.messages > ads.nodes_told
