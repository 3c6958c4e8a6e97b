"""The steps of a rollout reach a real Envoy in order, over each transport."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.traffic.kinds import KINDS
from tests.end_to_end.traffic.running import Run, running, write_tree
from tests.support.grpc_envoy import VARIANTS, Fleet, Variant, clients_of
from tests.support.resources import eds_cluster, endpoints, static_cluster
from tests.support.server import Server, events_in, write_file

ACKS = ["grow starts", "cds taken", "switch starts", "rds taken", "shrink starts"]
FILES = ["grow starts", "files taken", "switch starts", "files taken", "shrink starts"]


@pytest.mark.parametrize(("transport", "order"), [("rest", ACKS), ("ads", ACKS), ("delta", ACKS), ("mirror", FILES)])
def test_each_step_waits_for_the_one_before(transport: str, order: list[str], tmp_path: Path) -> None:
    """Routes move when Envoy took the new cluster with its endpoints, and the old one goes when it took the routes."""
    with running(tmp_path, transport, 1, ["--linger", "1s", "--log-level", "debug"]) as run:
        run.write(KINDS["EDS clusters, one file"].tree(run.world, 1), "the first clusters with endpoints")
        run.server.wait(lambda: story(run)[-1:] == ["completed"], "the first change")
        told_before = len(story(run))
        write_tree(run.tree, KINDS["EDS clusters, one file"].tree(run.world, 2))
        run.server.wait(lambda: story(run)[told_before:][-1:] == ["completed"], "the change")
        told = story(run)[told_before:]

    following = iter(told)
    assert all(any(one == expected for one in following) for expected in order), told
    assert [one for one in told if one.endswith("starts")] == [one for one in order if one.endswith("starts")]
    assert "timed out" not in told
    assert not run.failures()


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_clusters_are_acked_when_they_are_warm_on_aggregated_streams(variant: Variant, tmp_path: Path) -> None:
    """While endpoints are missing, the ACK of their cluster is; an Envoy with a stream for each type ACKs at once."""
    fleet = Fleet(tmp_path, variant, "--log-level", "debug")
    fleet.write("cds.yaml", static_cluster("a"))
    # A file that may have the endpoints, so that nobody says that there are none.
    write_file(fleet.tree / "eds.yaml", "nonsense: [")
    with fleet.running() as (server, envoy):
        server.wait(lambda: acks(server) == ["cds"], "the first clusters")
        fleet.write("cds.yaml", static_cluster("a"), eds_cluster("late"))
        envoy.wait_stat("cluster_manager.warming_clusters", 1)
        server.wait(lambda: is_subscribed(server, "late"), "the request for endpoints")
        told = acks(server)
        fleet.write("eds.yaml", endpoints("late", 9))
        server.wait(lambda: sorted(acks(server)) == ["cds", "cds", "eds"], "the endpoints")
        after = acks(server)

    assert told == (["cds"] if variant.aggregated else ["cds", "cds"])
    assert after[:1] == ["cds"]


def acks(server: Server) -> list[str]:
    """Return the types that were ACKed, of clusters and endpoints, in turn."""
    return [str(each["type"]) for each in server.log_events("ack_received") if each["type"] in {"cds", "eds"}]


def is_subscribed(server: Server, name: str) -> bool:
    """Whether a client asked for endpoints."""
    return any(
        each["name"] == name
        for client in clients_of(server)
        for each in client.get("generic_xds_configs", ())
        if each["type_url"].endswith("ClusterLoadAssignment")
    )


def story(run: Run) -> list[str]:
    """Return what the log says so far of steps, and of what was taken."""
    told = []
    for event in events_in(run.server.log_file.read_bytes()):
        match event["event"]:
            case "step_started":
                told.append(f"{event['step']} starts")
            case "ack_received":
                told.append(f"{event['type']} taken")
            case "files_written":
                told.append("files taken")
            case "step_timed_out":
                told.append("timed out")
            case "rollout_completed":
                told.append("completed")
    return told
