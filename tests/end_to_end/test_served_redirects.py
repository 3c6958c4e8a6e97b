"""Redirects in a running server: what streams get, what stays after a restart, and the order of removals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from envoy.config.cluster.v3.cluster_pb2 import Cluster

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.testing import serve
from tests.support.follower import Follower
from tests.support.server import Server, write_file

CLUSTERS = BY_SHORT_NAME["cds"].type_url


def cluster(name: str, seconds: int = 1) -> str:
    """Write a cluster."""
    return f"- {{name: {name}, type: STATIC, connect_timeout: {seconds}s}}\n"


def redirect(name: str, to: str) -> str:
    """Write a redirect."""
    return f"- {{name: {name}, resource_name: {{name: {to}}}}}\n"


def seconds(client: Follower, name: str) -> int:
    """Return the timeout of a cluster that a client holds."""
    return int(client.message(name, Cluster).connect_timeout.seconds)


class Steps(Follower):
    """A client that notes after each response how long `one` waits, and whether it still has `old`."""

    def _take(self, response: Any) -> None:
        super()._take(response)
        self.steps = [*getattr(self, "steps", ()), (seconds(self, "one"), "old" in self.held)]


def test_a_dangling_redirect_takes_nothing_away_across_a_restart(tmp_path: Path) -> None:
    """What the name stood for last is served on by the next process too, until the redirect leads somewhere, or goes."""
    tree = tmp_path / "tree" / "cds.yaml"
    write_file(tree, cluster("web", 3) + redirect("one", "web"))
    server = Server(
        tree.parent, tmp_path, "--state", str(tmp_path / "state"), "--settle", "10ms", "--step-timeout", "1s"
    )
    with server, Follower(f"127.0.0.1:{server.grpc_port}") as client:
        client.ask(CLUSTERS).until_held("web", "one")
        write_file(tree, cluster("new", 4) + redirect("one", "gone"))
        client.until_held("new", "one")
        assert seconds(client, "one") == 3

    with server, Follower(f"127.0.0.1:{server.grpc_port}") as client:
        client.ask(CLUSTERS).until_held("new", "one")
        assert seconds(client, "one") == 3
        write_file(tree, cluster("new", 4) + redirect("one", "new"))
        client.until(lambda: seconds(client, "one") == 4, "what the redirect leads to")
        write_file(tree, cluster("new", 4))
        client.until_held("new")


def test_the_target_goes_after_the_redirect_moved_on() -> None:
    """In one edit a redirect leads to another cluster, and the one that it led to is removed: that goes in a later response."""
    tree = {"cds.yaml": cluster("old", 1) + cluster("new", 2) + redirect("one", "old")}
    with serve(tree, rollout=True) as server, Steps(server.grpc) as client:
        client.ask(CLUSTERS).until_held("old", "new", "one")
        server.write("cds.yaml", cluster("new", 2) + redirect("one", "new"))
        client.until_held("new", "one")

        assert client.steps == [(1, True), (2, True), (2, False)]
