"""Operators and a real `fsxds serve`: what they see, and what they decide."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from fsxds.cli.main import main
from tests.support.fsxds_process import run_fsxds
from tests.support.grpc_clients import DiscoveryClient, method_path
from tests.support.server import Server, write_file

Run = pytest.CaptureFixture[str]

# No step ends by itself while a test looks at it.
PATIENT = ("--step-timeout", "600s")


def clusters(*names: str) -> str:
    """Return a file of clusters."""
    return json.dumps([{"name": name, "type": "STATIC", "connect_timeout": "1s"} for name in names])


def listeners(cluster: str, port: int = 18999) -> str:
    """Return a file with a listener that leads to a cluster."""
    proxy = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "web",
        "cluster": cluster,
    }
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    chains = [{"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}]}]
    return json.dumps([{"name": "web", "address": address, "filter_chains": chains}])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Six clusters, and a listener that leads to one of them."""
    tree = tmp_path / "tree"
    tree.mkdir()
    write_file(tree / "cds.json", clusters(*"abcdef"))
    write_file(tree / "lds.json", listeners("a"))
    return tree


def status(server: Server) -> dict[str, Any]:
    """Return what becomes of the one channel."""
    with urllib.request.urlopen(f"http://{server.admin}/api/rollout", timeout=30) as response:
        content: dict[str, Any] = json.load(response)
    return content["channels"][0]  # type: ignore[no-any-return]


def names(response: Any) -> list[str]:
    """Return the names of the clusters in a response."""
    from envoy.config.cluster.v3 import cluster_pb2

    return [cluster_pb2.Cluster.FromString(each.value).name for each in response.resources]


def poll(server: Server, node: str) -> None:
    """Poll for clusters once."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/v3/discovery:clusters?timeout=0",
        json.dumps({"node": {"id": node}}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.status == 200


@asynccontextmanager
async def stream(server: Server) -> AsyncIterator[DiscoveryClient]:
    """Open an aggregated stream."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield DiscoveryClient(channel, method_path("", "Stream"))


def test_a_removal_is_held_until_it_is_approved(tree: Path, tmp_path: Path, capsys: Run) -> None:
    """What removes much is not served before an operator wants it."""
    with Server(tree, tmp_path) as server:
        write_file(tree / "cds.json", clusters("a", "b"))
        held = server.wait(lambda: status(server)["approval"], "the removal to be held")
        assert main(["rollout", "status", "--admin", server.admin]) == 1
        assert f"fsxds rollout approve {held['id']}" in capsys.readouterr().out
        assert {(one["reason"], one["name"]) for one in status(server)["held"]} == {
            ("waits for approval", name) for name in "cdef"
        }

        assert main(["rollout", "approve", held["id"], "--admin", server.admin]) == 0
        server.wait(lambda: status(server)["is_done"], "the removal")
        assert main(["rollout", "status", "--admin", server.admin]) == 0
        assert [line["words"] for line in server.log_events("rollout_commanded")] == [{"id": held["id"]}]


async def test_a_step_that_waits_for_a_dead_client_is_aborted(tree: Path, tmp_path: Path, capsys: Run) -> None:
    """Status names the client; abort takes the change back from those who took it, and it is not offered again."""
    with Server(tree, tmp_path, *PATIENT) as server:
        async with stream(server) as dead:
            await dead.ask("CDS", node="envoy-7")
            await dead.take(await dead.answer())
            before = status(server)

            write_file(tree / "cds.json", clusters(*"abcdefg"))
            assert names(await dead.answer()) == [*"abcdefg"]
            step = await asyncio.to_thread(server.wait, lambda: status(server)["step"], "the step")
            assert [(each["client"], each["transport"]) for each in step["waits_for"]] == [("envoy-7", "gRPC")]
            assert await asyncio.to_thread(main, ["rollout", "status", "--admin", server.admin]) == 1
            assert "waits for envoy-7 (gRPC)" in capsys.readouterr().out

            assert (
                await asyncio.to_thread(main, ["rollout", "abort", "--node-id", "envoy-7", "--admin", server.admin])
                == 0
            )
            await asyncio.to_thread(
                server.wait, lambda: status(server)["served"] == before["served"], "what was served before"
            )
            after = status(server)
            assert after["pinned"] == 1

            write_file(tree / "cds.json", clusters(*"abcdefgh"))
            await asyncio.to_thread(
                server.wait, lambda: status(server)["asked"] not in {before["asked"], after["asked"]}, "the next change"
            )
            assert [(one["name"], one["reason"]) for one in status(server)["held"]] == [("g", "pinned")]


def test_what_lingers_is_shown(tree: Path, tmp_path: Path, capsys: Run) -> None:
    """It has the listeners whose connections it is kept for, and does not count as unfinished."""
    with Server(tree, tmp_path, "--linger", "100s") as server:
        write_file(tree / "lds.json", listeners("b"))
        write_file(tree / "cds.json", clusters(*"bcdef"))
        [kept] = server.wait(lambda: status(server)["lingering"], "the cluster to linger")
        assert (kept["type"], kept["name"], kept["listeners"]) == ("cds", "a", ["web"])
        server.wait(lambda: status(server)["is_done"], "the end")
        assert 0 < status(server)["lingering"][0]["left_s"] <= 105

        assert main(["rollout", "status", "--admin", server.admin]) == 0
        out = capsys.readouterr().out
        assert "whole tree: keeps clusters a for open connections of listeners web, for " in out
        assert status(server)["served"] == status(server)["asked"]


def test_rollback_and_resume(tree: Path, tmp_path: Path, capsys: Run) -> None:
    """The history has what was served; an earlier snapshot is served until the tree is followed again, or changes."""
    state = tmp_path / "state"

    def served() -> list[str]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.port}/v3/discovery:clusters?timeout=0",
            b"{}",
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return [each["name"] for each in json.load(response)["resources"]]

    def run(*arguments: str) -> int:
        return main([*arguments, "--admin", server.admin])

    with Server(tree, tmp_path, "--state", str(state), "--linger", "0s") as server:
        write_file(tree / "cds.json", clusters(*"abcdefg"))
        server.wait(lambda: "g" in served(), "the second snapshot")
        server.wait(lambda: run("history", "@2") == 0, "it to be kept")
        capsys.readouterr()
        assert run("history", "--format", "json") == 0
        snapshots = json.loads(capsys.readouterr().out)["snapshots"]
        assert [each["number"] for each in snapshots] == [2, 1]
        assert snapshots[0]["changes"] == {
            "cds": {
                name: {"count": n, "names": ["g"] * n} for name, n in (("added", 1), ("changed", 0), ("removed", 0))
            }
        }
        assert run("diff", "@1", "@now") == 1
        assert "+ g  @now:cds.json:" in capsys.readouterr().out

        assert run("rollback", "@1") == 0
        server.wait(lambda: served() == [*"abcdef"], "the first snapshot")
        assert run("rollout", "status") == 1
        assert "rolled back" in capsys.readouterr().out
        assert run("rollout", "resume") == 0
        server.wait(lambda: served() == [*"abcdefg"], "the tree")
        server.wait(lambda: run("rollout", "status") == 0, "the end")

        assert run("rollback", "@1") == 0
        server.wait(lambda: served() == [*"abcdef"], "the first snapshot again")
        write_file(tree / "cds.json", clusters(*"abcdefgh"))
        # What was rolled back stays so until it changes itself.
        server.wait(lambda: served() == [*"abcdefh"], "the edit")
        assert run("rollback", "@99") == 1
    with Server(tree, tmp_path, "--state", str(state)) as server:
        assert run("history") == 0
        server.wait(lambda: run("rollback", "@1") == 0, "nodes, or the tree")
        server.wait(lambda: served() == [*"abcdef"], "the first snapshot after a restart")


def test_views_have_their_names(tmp_path: Path, capsys: Run) -> None:
    """Each set of layers that nodes have is listed with the view that it is of."""
    tree, settings = tmp_path / "tree", tmp_path / "fsxds.yaml"
    write_file(tree / "common" / "cds.json", clusters("a"))
    write_file(tree / "edge" / "cds.json", clusters("b"))
    rules = [{"name": "edge", "match": {"id": "edge-*"}, "layers": ["common", "edge"]}]
    settings.write_text(json.dumps({"views": [*rules, {"name": "everyone", "layers": ["common"]}]}))
    with Server(tree, tmp_path, "--settings", str(settings)) as server:
        for node in ("edge-1", "other"):
            poll(server, node)
        assert main(["rollout", "status", "--admin", server.admin]) == 0
        rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
        assert ["edge", "common+edge"] in rows
        assert ["everyone", "common"] in rows
        assert main(["rollout", "status", "--view", "edge", "--admin", server.admin]) == 0
        assert "everyone" not in capsys.readouterr().out
        assert main(["rollout", "status", "--node-id", "other", "--admin", server.admin]) == 0
        assert "edge" not in capsys.readouterr().out


def test_two_servers_with_one_address(tree: Path, tmp_path: Path) -> None:
    """The second one ends with the option that chooses another address."""
    with Server(tree, tmp_path) as server:
        done = run_fsxds(["serve", str(tree), "--http", "127.0.0.1:0", "--grpc", "off", "--admin", server.admin])

        assert done.returncode == 2
        assert f"{server.admin} is taken: Address already in use; use --admin HOST:PORT" in done.stderr


def test_no_page_of_a_browser_can_ask(tree: Path, tmp_path: Path) -> None:
    """A request of another origin is rejected, and the log says why."""
    with Server(tree, tmp_path) as server:
        request = urllib.request.Request(
            f"http://{server.admin}/api/rollout/abort",
            b"{}",
            {"Origin": "http://evil.example", "Content-Type": "application/json"},
        )
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request, timeout=30)
        server.wait(lambda: server.log_events("request_rejected"), "the log")


def test_an_address_that_others_reach_needs_a_token(tree: Path, tmp_path: Path) -> None:
    """Otherwise nothing starts; without the address there is nobody to ask."""
    with Server(tree, tmp_path, "--admin", f"unix:{tmp_path}/admin.sock") as server:
        assert server.admin == f"unix:{tmp_path}/admin.sock"
        assert main(["rollout", "status", "--admin", server.admin]) == 0
    with Server(tree, tmp_path, "--admin", "off") as server:
        assert server.ready["admin"] is None
    exposed = Server(tree, tmp_path, "--admin", "0.0.0.0:0").start(wait=False)
    assert exposed.wait_for_end() == 2
    assert "give --admin-token FILE" in exposed.log_file.read_text().splitlines()[-1]
    (tmp_path / "admin-token").write_text("0123456789abcdef0123456789abcdef")
    with Server(tree, tmp_path, "--admin", "0.0.0.0:0", "--admin-token", f"{tmp_path}/admin-token") as server:
        assert server.admin


REQUEST = "{} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{}\r\n{}"
POLL = "POST /v3/discovery:clusters"
CHUNKED = "content-type: application/json\r\ntransfer-encoding: chunked\r\n"
CLUSTER = "GET /envoy.config.cluster.v3.Cluster/a"


@pytest.mark.parametrize(
    ("listener", "asked", "status"),
    [
        ("REST", REQUEST.format(POLL, CHUNKED, "2\r\n{}\r\n0\r\n\r\n"), 200),
        ("REST", REQUEST.format(CLUSTER, "", ""), 200),
        ("REST", REQUEST.format(CLUSTER, "if-none-match: *\r\n", ""), 304),
        ("REST", REQUEST.format("OPTIONS *", "", ""), 204),
        ("REST", REQUEST.format("GET /nowhere", "", ""), 404),
        ("REST", REQUEST.format(CLUSTER, "expect: more\r\n", ""), 417),
        ("REST", REQUEST.format(POLL, CHUNKED, "zz\r\n{}\r\n"), 400),
        ("REST", "\x16\x03\x01\r\n\r\n", 400),
        ("admin", REQUEST.format("GET /metrics", "", ""), 200),
        ("admin", REQUEST.format("GET /nowhere", "", ""), 404),
        ("admin", REQUEST.format("GET /", "x y: 1\r\n", ""), 400),
    ],
)
def test_no_answer_names_its_server(listener: str, asked: str, status: int, tree: Path, tmp_path: Path) -> None:
    """Whoever makes it, it has no header `Server`; it is counted with its status, and as rejected if it is an error."""
    with Server(tree, tmp_path) as server:

        def metrics() -> list[str]:
            with urllib.request.urlopen(f"http://{server.admin}/metrics", timeout=30) as response:
                lines: list[str] = response.read().decode().splitlines()
            return lines

        host, _, port = (server.admin if listener == "admin" else server.ready["http"]).rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(asked.encode())
            head = connection.makefile("rb").read().decode().partition("\r\n\r\n")[0]

        assert int(head.split()[1]) == status
        assert "\r\nserver:" not in head.lower()
        # An admin address may have been asked before.
        assert any(
            line.startswith(f'fsxds_requests_total{{listener="{listener}",status="{status}"}}') for line in metrics()
        )
        assert (f'fsxds_requests_rejected_total{{status="{status}"}} 1.0' in metrics()) is (status >= 400)
