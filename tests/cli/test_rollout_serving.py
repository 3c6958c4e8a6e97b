"""What operators see and decide while something is held back or rolled back: the commands, a real server, nodes that poll."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fsxds.cli.main import main
from tests.support.server import Server, write_file

Run = pytest.CaptureFixture[str]
SETTINGS = """\
settle: 10ms
step_timeout: 1s
max_removal: off
views:
- {name: edge, match: {id: "edge-*"}, layers: [common, edge]}
- {name: rest, layers: [common]}
"""
CLUSTER = "- {name: %s, type: STATIC, connect_timeout: %ds}\n"


@dataclass
class PollingNode:
    """A node that polls for clusters, one poll after the other, and rejects a cluster with some time-outs.

    Attributes:
        node_id: its id.
        rejects: the time-outs of the cluster `a` that it rejects.
        held: the time-outs of what it has taken, by the names of clusters.
    """

    node_id: str
    port: int
    rejects: set[str] = field(default_factory=set)
    held: dict[str, str] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Poll until the end."""
        answer: dict[str, Any] = {}
        while not self._ended.is_set():
            try:
                content = self._poll(answer)
            except (OSError, http.client.HTTPException):
                # The server starts again.
                time.sleep(0.05)
                continue
            if content is None:
                continue
            found = {each["name"]: each["connect_timeout"] for each in content.get("resources", ())}
            if found.get("a") in self.rejects:
                message = "Error adding/updating cluster(s) a: too slow"
                answer |= {"response_nonce": content["nonce"], "error_detail": {"code": 13, "message": message}}
            else:
                answer, self.held = {"version_info": content["version_info"]}, found

    def end(self) -> None:
        """Poll no more."""
        self._ended.set()

    def _poll(self, answer: dict[str, Any]) -> dict[str, Any] | None:
        url = f"http://127.0.0.1:{self.port}/v3/discovery:clusters?timeout=0.5s"
        body = json.dumps({"node": {"id": self.node_id}, **answer}).encode()
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                content: dict[str, Any] = json.loads(response.read())
                return content
        except urllib.error.HTTPError as error:
            if error.code not in (304, 503):
                raise
            time.sleep(0.05)
            return None


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two clusters for all nodes, and one for those of a view."""
    write_file(tmp_path / "tree" / "common" / "a.cds.yaml", CLUSTER % ("a", 1))
    write_file(tmp_path / "tree" / "common" / "b.cds.yaml", CLUSTER % ("b", 1))
    write_file(tmp_path / "tree" / "edge" / "e.cds.yaml", CLUSTER % ("e", 1))
    return tmp_path / "tree"


@pytest.fixture
def server(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that keeps a history, and whose admin address the commands know."""
    (tmp_path / "fsxds.yaml").write_text(SETTINGS)
    options = "--settings", str(tmp_path / "fsxds.yaml"), "--state", str(tmp_path / "state")
    with Server(tree, tmp_path, *options) as server:
        monkeypatch.setenv("FSXDS_ADMIN", server.admin)
        yield server


@contextmanager
def polling(server: Server, *node_ids: str) -> Iterator[list[PollingNode]]:
    """Have nodes poll, each in a thread of its own, until they hold something."""
    nodes = [PollingNode(node_id, server.port) for node_id in node_ids]
    threads = [threading.Thread(target=node.run) for node in nodes]
    for thread in threads:
        thread.start()
    try:
        server.wait(lambda: all(node.held for node in nodes), "the first answers")
        yield nodes
    finally:
        for node in nodes:
            node.end()
        for thread in threads:
            thread.join(60)


def said(capsys: Run, *command: str) -> tuple[int, str]:
    """Return the exit status of a command, and what it printed."""
    capsys.readouterr()
    status = main([*command])
    return status, " ".join(capsys.readouterr().out.split())


def metric(server: Server, name: str) -> float:
    """Return the sum of a metric over its labels; 0 where there is none."""
    with urllib.request.urlopen(f"http://{server.admin}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def test_what_all_nodes_reject(server: Server, tree: Path, capsys: Run) -> None:
    """It is held back with its reason, alone, also after a restart; offered again on demand; and then all is good."""
    with polling(server, "edge-1", "batch-1") as nodes:
        server.wait(lambda: said(capsys, "status")[0] == 0, "all is good")
        for node in nodes:
            node.rejects = {"2s"}
        write_file(tree / "common" / "a.cds.yaml", CLUSTER % ("a", 2))
        server.wait(lambda: server.log_events("versions_held"), "the hold")
        write_file(tree / "common" / "b.cds.yaml", CLUSTER % ("b", 5))
        server.wait(lambda: [node.held.get("b") for node in nodes] == ["5s", "5s"], "an edit of something else")
        assert [node.held["a"] for node in nodes] == ["1s", "1s"]

        (held,) = server.log_events("versions_held")
        assert (held["resources"], held["reason"]) == (["cds a"], "Error adding/updating cluster(s) a: too slow")
        assert said(capsys, "status")[0] == 1
        status, words = said(capsys, "rollout", "status")
        assert status == 1
        assert "common/a.cds.yaml:1: batch-1, edge-1 reject cluster a: Error adding/updating cluster(s) a: too" in words
        assert "correct it; until then no node is served it, or run `fsxds rollout retry a`" in words
        assert [metric(server, f"fsxds_{name}") for name in ("held_versions", "rejecting_nodes")] == [1, 2]
        assert metric(server, "fsxds_version_holds_total") == 1
        assert metric(server, "fsxds_held_resources") >= 1

        assert server.stop() == 0
        server.start()
        server.wait(lambda: len(server.log_events("versions_held")) == 2, "the hold, logged again at the start")
        assert server.log_events("versions_held")[1]["resources"] == ["cds a"]
        assert said(capsys, "rollout", "retry", "a") == (0, "1 version that nodes reject: offered to all nodes again")
        server.wait(lambda: server.log_events("versions_released"), "the offer")
        server.wait(lambda: len(server.log_events("versions_held")) == 3, "the hold, since they reject it still")
        for node in nodes:
            node.rejects = set()
        # They are offered it again anyway, after a while.
        main(["rollout", "retry"])
        server.wait(lambda: [node.held["a"] for node in nodes] == ["2s", "2s"], "what was held back")
        assert server.log_events("versions_released")[-1]["resources"] == ["cds a"]
        server.wait(lambda: said(capsys, "status")[0] == said(capsys, "rollout", "status")[0] == 0, "all is good again")
        assert metric(server, "fsxds_held_versions") == 0
        assert said(capsys, "rollout", "retry")[0] == 1


def test_what_one_node_of_many_rejects(server: Server, tree: Path, capsys: Run) -> None:
    """It keeps what it has; all others are served it, and the exit status says that something is rejected."""
    with polling(server, "edge-1", "edge-2", "edge-3") as nodes:
        nodes[0].rejects = {"2s"}
        write_file(tree / "common" / "a.cds.yaml", CLUSTER % ("a", 2))
        server.wait(lambda: [node.held["a"] for node in nodes[1:]] == ["2s", "2s"], "the others have it")
        server.wait(lambda: metric(server, "fsxds_rejecting_nodes") == 1, "the rejection")
        write_file(tree / "common" / "b.cds.yaml", CLUSTER % ("b", 5))
        server.wait(lambda: [node.held["b"] for node in nodes] == ["5s"] * 3, "an edit of something else")

        assert nodes[0].held["a"] == "1s"
        assert not server.log_events("versions_held")
        status, words = said(capsys, "rollout", "status")
        assert status == 1
        assert "edge-1 rejects cluster a: Error adding/updating cluster(s) a: too slow" in words
        assert said(capsys, "status")[0] == 1


def test_a_rollback_of_all_views(server: Server, tree: Path, capsys: Run) -> None:
    """It holds what differs in each view, also after a restart; what changes follows the tree, all of it after `resume`."""
    with polling(server, "edge-1", "batch-1") as nodes:
        server.wait(lambda: said(capsys, "status")[0] == 0, "all is good")
        server.wait(lambda: len(history(capsys)) >= 2, "a history of both views")
        good_s = max(time.time(), *(each["time_s"] for each in history(capsys))) + 0.01
        time.sleep(max(good_s - time.time(), 0) + 0.1)
        write_file(tree / "common" / "a.cds.yaml", CLUSTER % ("a", 2))
        write_file(tree / "edge" / "e.cds.yaml", CLUSTER % ("e", 2))
        server.wait(lambda: [node.held["a"] for node in nodes] == ["2s", "2s"], "the edit")
        server.wait(lambda: nodes[0].held["e"] == "2s", "the edit of one view")

        status, words = said(capsys, "rollback", "--all-views", str(good_s))
        assert (status, words.startswith(f"serving the content of {good_s} in 2 channels, each")) == (0, True)
        server.wait(lambda: [node.held["a"] for node in nodes] == ["1s", "1s"], "the rollback")
        server.wait(lambda: nodes[0].held["e"] == "1s", "the rollback of one view")
        status, words = said(capsys, "rollout", "status")
        assert status == 1
        assert "edge: 2 resources rolled back for " in words
        assert "rest: 1 resource rolled back for " in words
        assert "cds a; each until it changes in the tree, or: fsxds rollout resume" in words
        assert said(capsys, "status")[0] == 1
        assert (
            time.time() - 600
            < metric(server, 'fsxds_rollback_timestamp_seconds{cohort="main",view="edge"}')
            <= time.time()
        )

        write_file(tree / "common" / "b.cds.yaml", CLUSTER % ("b", 5))
        server.wait(lambda: [node.held["b"] for node in nodes] == ["5s", "5s"], "an edit of something else")
        assert [node.held["a"] for node in nodes] == ["1s", "1s"]
        assert server.stop() == 0
        server.start()
        server.wait(lambda: len(server.log_events("rolled_back")) >= 4, "the rollback, logged again at the start")
        server.wait(lambda: said(capsys, "rollout", "status")[0] == 1, "the rollback after a restart")
        write_file(tree / "edge" / "e.cds.yaml", CLUSTER % ("e", 3))
        server.wait(lambda: nodes[0].held["e"] == "3s", "a resource that changed in the tree")
        assert [node.held["a"] for node in nodes] == ["1s", "1s"]

        assert said(capsys, "rollout", "resume") == (0, "the tree is followed again, in 2 channels")
        server.wait(lambda: [node.held["a"] for node in nodes] == ["2s", "2s"], "the tree")
        server.wait(lambda: said(capsys, "status")[0] == said(capsys, "rollout", "status")[0] == 0, "all is good again")
        assert {line["layers"][-1] for line in server.log_events("rollback_ended")} == {"common", "edge"}


def history(capsys: Run) -> list[dict[str, Any]]:
    """Return the history."""
    capsys.readouterr()
    main(["history", "--format", "json"])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["snapshots"]
    return found
