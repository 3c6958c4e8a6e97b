"""`fsxds serve --workers`: processes that share their addresses serve what one of them loads."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fsxds_process import run_fsxds
from tests.support.patience import PATIENCE_S
from tests.support.server import Server

ANY_PORT = "127.0.0.1:0"


def write(tree: Path, *names: str) -> Path:
    """Write a tree with clusters of these names."""
    tree.mkdir(exist_ok=True)
    (tree / "next").write_text(json.dumps([{"name": name, "connect_timeout": "1s"} for name in names]))
    (tree / "next").rename(tree / "clusters.yaml")
    return tree


@pytest.fixture
def server(tmp_path) -> Iterator[Server]:
    """A server of two processes, both of which listen."""
    tree = write(tmp_path / "tree", "a")
    settings = tmp_path / "settings.yaml"
    settings.write_text("nack_limit: 50%\n")
    with Server(tree, tmp_path, "--workers", "2", "--admin", ANY_PORT, "--settings", str(settings)) as running:
        await_worker(running, 1)
        yield running


def await_worker(server: Server, times: int) -> dict[str, Any]:
    """Wait until a worker listens, for the so-manieth time; return its last line about the admin address."""

    def listening() -> list[dict[str, Any]]:
        lines = [line for line in server.log_events("listening") if line.get("worker") == 2]
        admin = [line for line in lines if line["name"] == "admin"]
        return admin if len(admin) == times else []

    found: list[dict[str, Any]] = server.wait(listening, "the worker to listen")
    return found[-1]


def worker_of(server: Server) -> int:
    """Return the process id of the worker: the child that leads a session."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    (worker,) = [int(pid) for pid in children if os.getsid(int(pid)) == int(pid)]
    return worker


def nodes_at(admin: str) -> set[str]:
    """Return the ids of the nodes that a process serves."""
    with urllib.request.urlopen(f"http://{admin}/api/clients", timeout=PATIENCE_S) as response:
        return {row["node"] for row in json.load(response)["clients"]}


def poll(server: Server, node: str, version: str = "") -> dict[str, Any]:
    """Poll on a connection of its own, until the next version."""
    request = urllib.request.Request(
        f"http://{server.ready['http']}/v3/discovery:clusters",
        json.dumps({"node": {"id": node}, "version_info": version}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        found: dict[str, Any] = json.load(response)
        return found


def names_in(response: dict[str, Any]) -> list[str]:
    return [row["name"] for row in response["resources"]]


def is_listening(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == 0


def test_each_process_serves_its_clients(server, tmp_path) -> None:
    """The kernel gives connections to both; both answer held polls with the next edit, in the same version."""
    admins = [server.admin, await_worker(server, 1)["address"]]
    versions = set[str]()
    ends_s = time.monotonic() + PATIENCE_S
    while not all(map(nodes_at, admins)):
        assert time.monotonic() < ends_s
        versions.add(poll(server, f"node-{time.monotonic_ns()}")["version_info"])
    (version,) = versions

    answers: list[dict[str, Any]] = []
    held = [
        threading.Thread(target=lambda node=node: answers.append(poll(server, node, version)))
        for node in map(str, range(12))
    ]
    for each in held:
        each.start()
    server.wait(lambda: len(nodes_at(admins[0]) | nodes_at(admins[1])) >= 12, "the polls to be held")
    write(tmp_path / "tree", "a", "b")
    for each in held:
        each.join(PATIENCE_S)
    assert [names_in(answer) for answer in answers] == [["a", "b"]] * 12
    assert len({answer["version_info"] for answer in answers}) == 1


def test_a_worker_that_is_killed_is_started_again(server) -> None:
    """The other one serves on; the log says why, and the worker has what is published when it listens."""
    os.kill(worker_of(server), signal.SIGKILL)
    (line,) = server.wait(lambda: server.log_events("component_degraded"), "the end of the worker")
    assert line["component"] == "worker 2"
    assert "SIGKILL" in line["message"]
    for number in range(10):
        assert names_in(poll(server, f"n{number}")) == ["a"]
    await_worker(server, 2)


def test_settings_are_read_again_by_all(server, tmp_path) -> None:
    """SIGHUP to the first process reaches its worker; a mistake in the settings is named by both."""
    (tmp_path / "settings.yaml").write_text("nack_limit: 20%\n")
    os.kill(server.pid, signal.SIGHUP)

    def reloaded() -> list[object]:
        lines = [line.get("worker") for line in server.log_events("settings_reloaded")]
        return lines if len(lines) == 2 else []

    assert {*server.wait(reloaded, "both to reload")} == {None, 2}
    assert not server.log_events("settings_rejected")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_first_process(server, number) -> None:
    """Also if that is killed: else the next server could not have the address."""
    address, worker = server.ready["http"], worker_of(server)
    os.kill(server.pid, number)
    server.wait_for_end()
    ends_s = time.monotonic() + PATIENCE_S
    while is_listening(address) or Path(f"/proc/{worker}").exists():
        assert time.monotonic() < ends_s
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--http", "unix:{folder}/socket"], "cannot be shared by --workers; use HOST:PORT"),
        (["--http", "{taken}"], "is taken"),
    ],
)
def test_what_processes_cannot_share_is_named(options, words, tmp_path) -> None:
    """The server ends with status 2 before it does anything."""
    tree = write(tmp_path / "tree", "a")
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        written = [each.format(folder=tmp_path, taken=taken) for each in options]
        ends = run_fsxds(["serve", str(tree), "--workers", "2", "--grpc", "off", "--admin", "off", *written])
    assert ends.returncode == 2
    assert words in ends.stderr


def test_workers_have_upstreams_asked_for_names(tmp_path) -> None:
    """Whichever process a client comes to: the first one asks for the names of all."""
    upstream_folder, folder = tmp_path / "upstream", tmp_path / "relay"
    upstream_folder.mkdir()
    folder.mkdir()
    with Server(write(tmp_path / "tree", *map(str, range(20))), upstream_folder) as upstream:
        options = ("--upstream", upstream.ready["grpc"], "--upstream-names", "asked", "--log-level", "debug")
        with Server(None, folder, "--workers", "2", "--admin", ANY_PORT, *options) as relay:
            await_worker(relay, 1)
            for number in range(20):
                assert polled(relay, str(number)) == [str(number)]
            workers = {line.get("worker", 1) for line in relay.log_events("response_sent")}
            assert workers == {1, 2}


def polled(server: Server, name: str) -> list[str]:
    """Return the clusters that a server answers a poll for one name with, on a connection of its own."""
    request = urllib.request.Request(
        f"http://{server.ready['http']}/v3/discovery:clusters",
        json.dumps({"node": {"id": name}, "resource_names": [name]}).encode(),
        {"content-type": "application/json", "x-envoy-expected-rq-timeout-ms": "20000"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return [row["name"] for row in json.load(response)["resources"]]
