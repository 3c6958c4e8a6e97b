"""Times to live through a relay: they are renewed while their server lives, and what expires there goes."""

from __future__ import annotations

import json
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from tests.support.server import Server, write_file

TTL_S = 3
TREE = f"""\
resources:
- name: timed
  ttl: {TTL_S}s
  resource: {{"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: timed, connect_timeout: 1s}}
- {{"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: lasting, connect_timeout: 1s}}
"""


def clusters(server: Server) -> set[str]:
    """Return the names of the clusters that a poll is sent."""
    body = json.dumps({"node": {"id": "n"}}).encode()
    url = f"http://127.0.0.1:{server.port}/v3/discovery:clusters?timeout=0"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return {each["name"] for each in json.loads(response.read())["resources"]}


def test_what_expires_upstream_goes(tmp_path: Path) -> None:
    """Heartbeats keep a resource beyond its time to live; without its server it goes at the end, and nothing else does."""
    write_file(tmp_path / "tree" / "clusters.yaml", TREE)
    options = ("--log-format", "json", "--linger", "0s")
    with ExitStack() as stack:
        (tmp_path / "top").mkdir()
        (tmp_path / "relay").mkdir()
        top = stack.enter_context(Server(tmp_path / "tree", tmp_path / "top", *options))
        address = f"127.0.0.1:{top.grpc_port}"
        relay = stack.enter_context(Server(None, tmp_path / "relay", "--upstream", address, *options))
        relay.wait(lambda: clusters(relay) == {"timed", "lasting"}, "all that there is")
        ends_s = time.monotonic() + 1.5 * TTL_S
        while time.monotonic() < ends_s:
            assert clusters(relay) == {"timed", "lasting"}
            time.sleep(0.1)
        top.kill()
        relay.wait(lambda: relay.log_events("upstream_expired"), "the end of a time to live")
        relay.wait(lambda: clusters(relay) == {"lasting"}, "what is left")
