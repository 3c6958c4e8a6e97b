"""A real fsxds that may have little memory."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from tests.support.server import Server, write_file

# The address space of the server, and that of each process that parses, in kB.
LIMITED = ("sh", "-c", 'ulimit -v 400000; exec "$@"', "sh")
LARGE_BYTES = 20_000_000


def clusters(server: Server) -> set[str]:
    """Return the names of the clusters that are served."""
    body = json.dumps({"node": {"id": "edge-1"}}).encode()
    headers = {"content-type": "application/json"}
    url = f"http://127.0.0.1:{server.port}/v3/discovery:clusters"
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=120) as response:
        return {each["name"] for each in json.load(response)["resources"]}


def test_a_file_for_which_there_is_no_memory_keeps_nothing_from_being_served(tmp_path: Path) -> None:
    """It is reported; other edits are served meanwhile, and the file itself once it is smaller."""
    tree = tmp_path / "tree"
    cluster = "- {name: %s, type: STATIC, connect_timeout: 1s}\n"
    write_file(tree / "cds.yaml", cluster % "a")
    with Server(tree, tmp_path, wrapped=LIMITED) as server:
        assert clusters(server) == {"a"}
        large = "".join(cluster % f"c{number}" for number in range(LARGE_BYTES // len(cluster)))
        write_file(tree / "large.cds.yaml", large)
        server.wait(lambda: server.log_events("problem_found"), "the report")
        write_file(tree / "cds.yaml", cluster % "b")
        server.wait(lambda: clusters(server) == {"b"}, "another edit")
        write_file(tree / "large.cds.yaml", cluster % "small")
        server.wait(lambda: clusters(server) == {"b", "small"}, "the file that is smaller")

        assert server.is_running
        assert server.log_events("internal_error") == []
