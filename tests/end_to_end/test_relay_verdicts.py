"""What nodes of a real relay reject is rejected at the server above it as well, on each wire, until it has something better."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_status import AT_ONCE, ask, clusters, poll
from tests.support.ports import free_port
from tests.support.server import Server, write_file

WORDS = "no such thing"


def rejected_by(server: Server) -> list[Any]:
    """Return the problems of what clients of a server reject."""
    return [one for one in ask(server, "status")["problems"] if one["rule"] == "rejected-by-client"]


def names_of(response: Any) -> list[str]:
    """Return the names of the clusters in a response."""
    return [each["name"] for each in response["resources"]]


@pytest.mark.parametrize("wire", ["delta", "rest"])
def test_the_server_above_a_relay_hears_what_nodes_reject(tmp_path: Path, wire: str) -> None:
    """It takes that back, with the words of the node; it is not offered again and again, and a corrected version is taken."""
    tree = tmp_path / "tree"
    for folder in (tree, tmp_path / "top", tmp_path / "relay"):
        folder.mkdir()
    write_file(tree / "cds.yaml", clusters("web", "api"))
    with Server(tree, tmp_path / "top", *AT_ONCE, grpc=f"127.0.0.1:{free_port()}") as top:
        address = f"http://127.0.0.1:{top.port}" if wire == "rest" else f"127.0.0.1:{top.grpc_port}"
        with Server(None, tmp_path / "relay", "--upstream", address) as relay:
            relay.wait(lambda: ask(relay, "status")["upstreams"][0]["resources"], "the clusters")
            taken = poll(relay, "edge-1")["version_info"]
            poll(relay, "edge-1", taken)
            write_file(tree / "new.yaml", clusters("fresh"))
            relay.wait(lambda: poll(relay, "edge-1", taken), "the new cluster")
            write_file(tree / "other.yaml", clusters("other"))
            relay.wait(lambda: "other" in names_of(poll(relay, "edge-2")), "a later response, which is taken")
            poll(relay, "edge-1", taken, error_detail={"code": 13, "message": f"{WORDS}: fresh"})
            top.wait(lambda: rejected_by(top), "the late NACK")

            (problem,) = rejected_by(top)
            assert (problem["path"], problem["severity"]) == ("new.yaml", "error")
            assert f"node edge-1: Error adding/updating cluster(s) fresh: {WORDS}" in problem["message"]
            relay.wait(lambda: names_of(poll(relay, "edge-3")) == ["api", "other", "web"], "what was good")
            time.sleep(4.0)
            assert len(rejected_by(top)) == 1
            assert len(top.log_events("versions_held")) == 1

            write_file(tree / "new.yaml", clusters("fresh").replace("1s", "2s"))
            top.wait(lambda: not rejected_by(top), "the corrected version")
            relay.wait(lambda: "fresh" in names_of(poll(relay, "edge-4")), "the corrected version")


def test_a_server_that_was_away_hears_it_when_it_is_back(tmp_path: Path) -> None:
    """The relay does not say that it holds what its nodes reject: so it is sent that again, and NACKs it."""
    tree = tmp_path / "tree"
    for folder in (tree, tmp_path / "top", tmp_path / "relay"):
        folder.mkdir()
    write_file(tree / "cds.yaml", clusters("web", "fresh"))
    address = f"127.0.0.1:{free_port()}"
    with (
        Server(tree, tmp_path / "top", *AT_ONCE, grpc=address) as top,
        Server(None, tmp_path / "relay", "--upstream", address) as relay,
    ):
        relay.wait(lambda: ask(relay, "status")["upstreams"][0]["resources"], "the clusters")
        taken = poll(relay, "edge-1")["version_info"]
        poll(relay, "edge-1", taken)
        write_file(tree / "cds.yaml", clusters("web") + clusters("fresh").partition("\n")[2].replace("1s", "2s"))
        relay.wait(lambda: poll(relay, "edge-1", taken), "the changed cluster")
        top.stop()
        relay.wait(lambda: ask(relay, "status")["upstreams"][0]["state"] != "connected", "the outage")
        poll(relay, "edge-1", taken, error_detail={"code": 13, "message": f"{WORDS}: fresh"})
        relay.wait(lambda: rejected_by(relay), "the hold")
        top.start()
        top.wait(lambda: rejected_by(top), "the NACK")

        (problem,) = rejected_by(top)
        assert f"node edge-1: Error adding/updating cluster(s) fresh: {WORDS}" in problem["message"]
        assert [each["was_sent"] for each in relay.log_events("upstream_nacked")] == [False]
