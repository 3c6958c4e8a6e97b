"""What a real `fsxds serve` says of itself at its admin address: files, views, and clients of each transport."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc.aio
import pytest

from fsxds.settings.rollout_forms import is_in_share
from tests.end_to_end.test_rollback_envoy import second_listener, taken_port, tree_of
from tests.end_to_end.traffic.running import running, write_tree
from tests.support.grpc_clients import DiscoveryClient, method_path
from tests.support.server import Server, write_file
from tests.support.settings_files import file_flags

# What is rejected stays, so that a test can look at it.
AT_ONCE = ("--rollout", "off")
# Of the nodes, Envoy is a canary, and this one is none.
CANARIES = 0.9
OTHER = next(node for node in map("other-{}".format, count()) if not is_in_share(node, CANARIES))


def clusters(*names: str, extra: str = "") -> str:
    """Return a file of clusters."""
    return "resources:\n" + "".join(
        f'- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster\n'
        f"  name: {name}\n  type: STATIC\n  connect_timeout: 1s\n{extra}"
        for name in names
    )


def ask(server: Server, path: str) -> Any:
    """Return what the admin address answers."""
    with urllib.request.urlopen(f"http://{server.admin}/api/{path}", timeout=30) as response:
        return json.load(response)


def states(server: Server) -> dict[str, str]:
    """Return the state of each client."""
    return {each["node"]: each["state"] for each in ask(server, "clients")["clients"]}


def poll(server: Server, node: str, version: str = "", **more: object) -> Any:
    """Poll for clusters once."""
    content = {"node": {"id": node}, "version_info": version, **more}
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/v3/discovery:clusters?timeout=0",
        json.dumps(content).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        # Nothing new.
        if error.code != 304:
            raise
        return None


@asynccontextmanager
async def stream(server: Server, word: str = "Stream") -> AsyncIterator[DiscoveryClient]:
    """Open an aggregated stream."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield DiscoveryClient(channel, method_path("", word))


async def test_clients_of_each_transport(tmp_path: Path) -> None:
    """A poll, streams of both variants and a mirror: synced, then stale, and one that rejects."""
    tree, mirror = tmp_path / "tree", tmp_path / "mirror"
    write_file(tree / "cds.yaml", clusters("a", "b"))
    with Server(tree, tmp_path, "--mirror", str(mirror), *AT_ONCE) as server:
        async with stream(server) as sotw, stream(server, "Delta") as delta:
            await sotw.ask("CDS", node="sotw-1")
            await sotw.take(await sotw.answer())
            await delta.ask("CDS", node="delta-1")
            await delta.take(await delta.answer())
            version = (await asyncio.to_thread(poll, server, "poll-1"))["version_info"]
            await asyncio.to_thread(poll, server, "poll-1", version)
            all_synced = dict.fromkeys(("sotw-1", "delta-1", "poll-1", str(mirror)), "SYNCED")
            await asyncio.to_thread(server.wait, lambda: states(server) == all_synced, "all to be synced")
            status = ask(server, "status")
            before = [each["current"] for each in ask(server, "clients/sotw-1")["clients"][0]["types"]]

            write_file(tree / "cds.yaml", clusters("a", "c"))
            await sotw.answer()
            nacked = await delta.answer()
            await delta.take(nacked, nack="hunter: cannot be")
            await asyncio.to_thread(server.wait, lambda: states(server)["delta-1"] == "NACK", "the NACK")
            later = states(server)
            stale, rejecting = (ask(server, f"clients/{node}")["clients"][0] for node in ("sotw-1", "delta-1"))
            mirrored = ask(server, f"clients/{quote(str(mirror), safe='')}")["clients"][0]

    assert {(each["transport"], each["state"], each["count"]) for each in status["clients"]} == {
        ("REST", "SYNCED", 1), ("gRPC", "SYNCED", 2), ("mirror", "SYNCED", 1),
    }  # fmt: skip
    assert (status["is_ready"], status["files"]) == (True, {"good": 1, "held": 0, "broken": 0})
    assert [each["name"] for each in status["listeners"]] == ["REST", "gRPC", "admin"]
    assert status["views"][0]["clients"] == 4
    assert status["views"][0]["types"] == [{"type": "cds", "version": before[0], "resources": 2}]
    assert (later["sotw-1"], later["poll-1"]) == ("STALE", "STALE")
    assert stale["types"][0]["outdated"]["names"] == ["c"]
    assert rejecting["types"][0]["reason"] == "hunter: cannot be"
    assert rejecting["types"][0]["outdated"]["names"] == ["c"]
    assert rejecting["types"][0]["surplus"]["names"] == ["b"]
    assert mirrored["transport"] == "mirror"


def test_files(tmp_path: Path) -> None:
    """A file that is held has its problem with lines around it; of a file with secrets there are none."""
    tree = tmp_path / "tree"
    write_file(tree / "cds.yaml", clusters("a"))
    with Server(tree, tmp_path) as server:
        write_file(tree / "cds.yaml", clusters("a", extra="  lb_policy: CANARY-SECRET\n"))
        server.wait(lambda: ask(server, "status")["files"]["held"] == 1, "the file to be held")
        write_file(tree / "broken.yaml", "static: {private_key: [CANARY-SECRET\n")
        server.wait(lambda: ask(server, "status")["files"]["broken"] == 1, "the broken file")
        status, files = ask(server, "status"), ask(server, "files")
        few = ask(server, "files?state=held&search=CDS&limit=1")

    assert "CANARY-SECRET" not in json.dumps(status)
    assert [(each["path"], each["state"]) for each in files["files"]] == [
        ("broken.yaml", "broken"),
        ("cds.yaml", "held"),
    ]
    assert [each["resources"] for each in files["files"]] == [0, 1]
    assert (few["total"], [each["path"] for each in few["files"]]) == (1, ["cds.yaml"])
    held = next(each for each in status["problems"] if each["path"] == "cds.yaml")
    assert (held["state"], held["line"], held["severity"]) == ("held", 6, "error")
    assert held["source"][0] == {"line": 4, "text": "  type: STATIC"}
    assert [each["source"] for each in status["problems"] if each["path"] == "broken.yaml"] == [[]]


def test_what_a_real_envoy_rejects(tmp_path: Path) -> None:
    """Its node, the type and its own words are shown, and the names that it may not have."""
    with taken_port() as port, running(tmp_path, "ads", 600, list(AT_ONCE)) as run:
        run.write(tree_of(run.world, 1), "good")
        write_tree(run.tree, tree_of(run.world, 2, second_listener(run.world, port)))
        run.server.wait(lambda: states(run.server) == {"edge-1": "NACK"}, "the NACK")
        [envoy] = ask(run.server, "clients/edge-1")["clients"]

    types = {each["type"]: each for each in envoy["types"]}
    assert {name: each["state"] for name, each in types.items()} == {"cds": "SYNCED", "lds": "NACK", "rds": "SYNCED"}
    assert "Address already in use" in types["lds"]["reason"]
    assert types["lds"]["outdated"]["names"] == ["front", "second"]


@pytest.mark.parametrize("transport", ["rest", "ads", "delta"])
def test_a_real_envoy_that_let_go_of_a_cluster_is_in_step(transport: str, tmp_path: Path) -> None:
    """It does not say that it asks no more for the endpoints; as a canary, it takes the change for the others."""
    canary = ("--canary", f"nodes={CANARIES:.0%}", *file_flags(bake="0.1s"))
    with running(tmp_path, transport, 600, ["--linger", "0s", "--max-removal", "off", *canary]) as run:
        for number in range(2):
            run.change("EDS clusters, one file", number)
        run.server.wait(lambda: states(run.server) == {"edge-1": "SYNCED"}, "Envoy to be in step")
        run.server.wait(lambda: _others_have(run.server, "c1"), "the others to get what the canary took")
        [envoy] = ask(run.server, "clients/edge-1")["clients"]

    assert {each["type"]: each["subscriptions"] for each in envoy["types"]} == dict.fromkeys(
        ("cds", "eds", "lds", "rds"), 1
    )
    assert run.failures() == []


def _others_have(server: Server, cluster: str) -> bool:
    """Whether nodes that are no canaries are served a cluster."""
    answer = poll(server, OTHER)
    return cluster in [each["name"] for each in answer["resources"]]
