"""`--state DIR`: what was served is served after a restart, however the process ended; only one process has the directory."""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from fsxds.history.entries import History
from fsxds.history.state_directory import DATABASE
from tests.end_to_end.killing import CDS, CHANNEL_OPTIONS, LDS, RDS, StreamFollower, run, tree_of
from tests.support.fsxds_process import run_fsxds
from tests.support.grpc_clients import SILENCE_S
from tests.support.patience import PATIENCE_S
from tests.support.server import Server, write_file

FLAGS = ("--admin", "off", "--linger", "0s", "--settle", "10ms", "--log-format", "json")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Return a server with a state directory, which is started by whoever wants it."""
    write_file(tmp_path / "tree" / "all.yaml", tree_of(0))
    server = Server(tmp_path / "tree", tmp_path, "--state", str(tmp_path / "state"), *FLAGS)
    yield server
    server.stop()


def crash(server: Server) -> None:
    """End a server by SIGKILL."""
    assert server._process is not None
    server._process.kill()
    server._process.wait(60)


def poll(server: Server, word: str, version: str = "", **fields: Any) -> tuple[int, str]:
    """Poll once, without being held; return the status, and the version of what is new."""
    body = json.dumps({"version_info": version, "node": {"id": "n"}, **fields}).encode()
    url = f"http://127.0.0.1:{server.port}/v3/discovery:{word}?timeout=0"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read())["version_info"]
    except urllib.error.HTTPError as error:
        error.close()
        return error.code, ""


def until_kept(server: Server, tmp_path: Path, count: int) -> None:
    """Wait until so many snapshots are in the history."""

    def is_kept() -> bool:
        if not (tmp_path / "state" / DATABASE).exists():
            return False
        with History.opened(tmp_path / "state") as history:
            return len(history.entries()) == count

    server.wait(is_kept, f"{count} snapshots")


async def new_resources(server: Server, follower: StreamFollower, count: int) -> list[str]:
    """Return the types of what a client is sent on a new stream: so many responses, and what follows at once."""
    received: asyncio.Queue[str] = asyncio.Queue()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=CHANNEL_OPTIONS) as channel:
        reading = asyncio.ensure_future(follower.follow_on(channel, received.put_nowait))
        async with asyncio.timeout(PATIENCE_S):
            types = [await received.get() for _ in range(count)]
        await asyncio.wait({reading}, timeout=SILENCE_S)
        reading.cancel()
    return types + [received.get_nowait() for _ in range(received.qsize())]


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_no_client_fetches_again(server: Server, tmp_path: Path, end: str) -> None:
    """After a restart, polls with the versions of the process before are 304, and streams that name theirs are sent nothing."""
    server.start()
    versions = {word: poll(server, word)[1] for word in ("clusters", "listeners")}
    named = poll(server, "routes", resource_names=["r"])[1]
    follower = StreamFollower(is_delta=True, rng=random.Random(1))
    assert sorted(asyncio.run(new_resources(server, follower, 3))) == sorted((CDS, LDS, RDS))
    until_kept(server, tmp_path, 1)
    crash(server) if end == "killed" else server.stop()
    # Nothing but the state has it now.
    write_file(tmp_path / "tree" / "all.yaml", "nonsense: [")

    server.start()

    assert {word: poll(server, word, version) for word, version in versions.items()} == dict.fromkeys(
        versions, (304, "")
    )
    assert poll(server, "routes", named, resource_names=["r"]) == (304, "")
    assert {word: poll(server, word) for word in versions} == {
        word: (200, version) for word, version in versions.items()
    }
    assert asyncio.run(new_resources(server, follower, 0)) == []
    server.wait(lambda: server.log_events("degraded"), "the broken file")
    assert {word: poll(server, word, version) for word, version in versions.items()} == dict.fromkeys(
        versions, (304, "")
    )
    write_file(tmp_path / "tree" / "all.yaml", tree_of(1))
    server.wait(lambda: poll(server, "clusters", versions["clusters"])[0] == 200, "the new tree")
    until_kept(server, tmp_path, 2)


def test_changes_meanwhile_are_rolled_out(server: Server, tmp_path: Path) -> None:
    """What changed while no process ran is served after a restart, and is in the history, with numbers that go on."""
    server.start()
    until_kept(server, tmp_path, 1)
    server.stop()
    write_file(tmp_path / "tree" / "all.yaml", tree_of(1))
    server.start()
    until_kept(server, tmp_path, 2)
    server.stop()

    with History.opened(tmp_path / "state") as history:
        newest, oldest = history.entries()
        assert (newest.number, oldest.number) == (2, 1)
        assert newest.changes["cds"].added.names == ("cluster-2-x", "cluster-3-x")
        assert newest.changes["cds"].removed.names == ("cluster-0-x", "cluster-1-x")
        assert newest.changes["rds"].changed.names == ("r",)
        assert sorted(oldest.changes) == ["cds", "lds", "rds"]


def test_two_processes_do_not_share_a_directory(server: Server, tmp_path: Path) -> None:
    """The second one ends with one line that names the first; a directory that others can write to is a mistake as well."""
    server.start()
    flags = ["serve", str(tmp_path / "tree"), "--http", "127.0.0.1:0", "--grpc", "off", "--admin", "off", "--state"]
    second = run_fsxds([*flags, str(tmp_path / "state")])
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    shared = run_fsxds([*flags, str(tmp_path / "shared")])

    assert (second.returncode, shared.returncode) == (2, 2)
    assert f"another fsxds (process {server.pid}) keeps its state in this directory" in second.stderr
    assert "others can write to it (mode 777)" in shared.stderr
    assert poll(server, "clusters")[0] == 200


def test_rollback_survives_a_restart(tmp_path: Path) -> None:
    """`POST /api/rollback` serves an earlier snapshot with its versions, also after a restart, until the tree is to be followed again."""
    write_file(tmp_path / "tree" / "all.yaml", tree_of(0))
    flags = ("--admin", "127.0.0.1:0", *FLAGS[2:], "--step-timeout", "100ms", "--max-removal", "off")
    with Server(tmp_path / "tree", tmp_path, "--state", str(tmp_path / "state"), *flags) as server:
        first = poll(server, "clusters")[1]
        until_kept(server, tmp_path, 1)
        write_file(tmp_path / "tree" / "all.yaml", tree_of(1))
        until_kept(server, tmp_path, 2)
        second = poll(server, "clusters")[1]
        assert first != second

        order(server, "rollback", number=1)
        server.wait(lambda: poll(server, "clusters") == (200, first), "the first snapshot")
        until_kept(server, tmp_path, 3)
        # Where single nodes are is written a little later.
        time.sleep(1.0)
        crash(server)
        server.start()
        assert poll(server, "clusters", first)[0] == 304
        server.wait(lambda: server.log_events("watching"), "the tree")
        order(server, "resume")
        server.wait(lambda: poll(server, "clusters") == (200, second), "the tree again")


def order(server: Server, path: str, **fields: Any) -> None:
    """Send an order to the admin address."""
    body = json.dumps(fields).encode()
    request = urllib.request.Request(
        f"http://{server.ready['admin']}/api/{path}", body, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        assert response.status == 200


def test_damaged_state_keeps_nobody_from_serving(server: Server, tmp_path: Path) -> None:
    """A database that is none is set aside with a line of the log, and the tree is served as at a first start."""
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / DATABASE).write_bytes(b"nonsense" * 1000)
    server.start()

    assert poll(server, "clusters")[0] == 200
    (line,) = server.log_events("state_ignored")
    assert line["subject"].endswith(f"{DATABASE}.damaged")
    until_kept(server, tmp_path, 1)


def test_end_without_a_state_directory_says_what_it_ends(tmp_path: Path) -> None:
    """Without `--state`, what lingers is reported when the process ends: connections that use it will fail."""
    write_file(tmp_path / "tree" / "all.yaml", tree_of(0))
    flags = ("--admin", "off", "--linger", "600s", "--settle", "10ms", "--log-format", "json")
    with Server(tmp_path / "tree", tmp_path, *flags) as server:
        write_file(tmp_path / "tree" / "all.yaml", tree_of(1))
        server.wait(lambda: server.log_events("lingering_started"), "what lingers")
    assert [line["count"] for line in server.log_events("lingering_dropped")] == [1]


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Each time the process is killed during a rollout, what is on the disk is a planned step, and the next process completes it."""
    counts = asyncio.run(run(tmp_path, 6, 2))

    assert counts.total() == 6
