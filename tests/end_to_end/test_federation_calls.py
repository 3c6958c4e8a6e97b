"""grpcio's own xDS client that finds each authority at an fsxds of its own, and goes on when one of them dies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml

from tests.end_to_end.test_grpc_resolver import api_listener, call_until, located
from tests.support.authorities import grpc_servers, relay
from tests.support.grpc_envoy import SOTW_ADS, Fleet
from tests.support.resources import cluster_route, eds_cluster
from tests.support.server import Server, write_file
from tests.support.structured_names import structured
from tests.support.xds_resolver import XdsCaller, backends

OURS, THEIRS = "ours.example", "theirs.example"
LISTENER, ROUTE = structured("Listener", "web", OURS), structured("RouteConfiguration", "web", OURS)


@pytest.fixture
def ports() -> Iterator[list[int]]:
    """Three backends."""
    with backends("one", "two", "three") as ports:
        yield ports


def cluster(name: str, authority: str = THEIRS) -> str:
    """Return the name of a cluster."""
    return structured("Cluster", name, authority)


def endpoints(name: str, *ports: int, authority: str = THEIRS) -> str:
    """Return the endpoints of a cluster of an authority, as a list item."""
    return located(structured("ClusterLoadAssignment", name, authority), *ports)


def assigned(name: str, authority: str = THEIRS) -> str:
    """Return a cluster that has the endpoints of its name, as a list item."""
    (fields,) = yaml.safe_load(eds_cluster(cluster(name, authority)))
    fields["eds_cluster_config"]["service_name"] = structured("ClusterLoadAssignment", name, authority)
    return yaml.safe_dump([fields], sort_keys=False)


def tree(folder: Path) -> Fleet:
    """Return an empty tree in a folder of its own."""
    folder.mkdir()
    return Fleet(folder, SOTW_ADS)


def with_routes(folder: Path, to: str) -> Fleet:
    """Return the tree of the authority that has the listener, and a route to a cluster of the other authority."""
    ours = tree(folder)
    ours.write("lds.yaml", api_listener(LISTENER, ROUTE))
    ours.write("rds.yaml", cluster_route(ROUTE, cluster(to)))
    return ours


def with_clusters(folder: Path, ports: Mapping[str, int]) -> Fleet:
    """Return a tree of the other authority: clusters with a port each."""
    theirs = tree(folder)
    theirs.write("cds.yaml", *map(assigned, ports))
    theirs.write("eds.yaml", *(endpoints(name, port) for name, port in ports.items()))
    return theirs


def address(server: Server) -> str:
    """Return where it streams."""
    return str(server.ready["grpc"])


def test_calls_by_two_authorities_outlive_both(tmp_path: Path, ports: list[int]) -> None:
    """The listener of one leads to the cluster of the other; calls move with both, and go on while either is away."""
    one, two, three = ports
    ours = with_routes(tmp_path / "ours", "blue")
    theirs = with_clusters(tmp_path / "theirs", {"blue": one, "green": three})
    with ours.server() as our_server, theirs.server() as their_server:
        authorities = {OURS: grpc_servers(address(our_server)), THEIRS: grpc_servers(address(their_server))}
        with XdsCaller(f"xds://{OURS}/web", "127.0.0.1:1", tmp_path, {"authorities": authorities}) as caller:
            assert caller.call() == "one"
            theirs.write("eds.yaml", endpoints("blue", two), endpoints("green", three))
            call_until(caller, lambda answer: answer == "two")

            again = address(their_server)
            their_server.kill()
            assert caller.call() == "two"
            theirs.write("eds.yaml", endpoints("blue", one), endpoints("green", three))
            with theirs.server(again):
                call_until(caller, lambda answer: answer == "one")
                our_server.kill()
                theirs.write("eds.yaml", endpoints("blue", two), endpoints("green", three))
                call_until(caller, lambda answer: answer == "two")
                ours.write("rds.yaml", cluster_route(ROUTE, cluster("green")))
                with ours.server(address(our_server)):
                    call_until(caller, lambda answer: answer == "three")


def test_the_next_server_of_an_authority(tmp_path: Path, ports: list[int]) -> None:
    """Grpcio asks it when the first is away and it needs what it does not hold; then it has all of it, until the first is back."""
    one, two, three = ports
    ours = with_routes(tmp_path / "ours", "blue")
    first = with_clusters(tmp_path / "first", {"blue": one, "green": one})
    second = with_clusters(tmp_path / "second", {"blue": two, "green": two})
    with ours.server() as our_server, first.server() as first_server, second.server() as second_server:
        authorities = {
            OURS: grpc_servers(address(our_server)),
            THEIRS: grpc_servers(address(first_server), address(second_server)),
        }
        with XdsCaller(f"xds://{OURS}/web", "127.0.0.1:1", tmp_path, {"authorities": authorities}) as caller:
            assert caller.call() == "one"
            first_server.kill()
            # All that it needs it holds: it asks nobody.
            second.write("eds.yaml", endpoints("blue", three), endpoints("green", two))
            second_server.wait(lambda: len(second_server.log_events("snapshot_published")) > 1, "the change")
            assert caller.call() == "one"
            ours.write("rds.yaml", cluster_route(ROUTE, cluster("green")))
            call_until(caller, lambda answer: answer == "two")
            second.write("eds.yaml", endpoints("blue", two), endpoints("green", three))
            call_until(caller, lambda answer: answer == "three")
            with first.server(address(first_server)):
                call_until(caller, lambda answer: answer == "one")
                second_server.kill()
                assert caller.call() == "one"


def test_calls_through_a_relay(tmp_path: Path, ports: list[int]) -> None:
    """One relay for all authorities: calls move with both, and clients that start while both are away find all of it."""
    one, two, three = ports
    ours = with_routes(tmp_path / "ours", "blue")
    theirs = with_clusters(tmp_path / "theirs", {"blue": one, "green": three})
    with ours.server() as our_server, theirs.server() as their_server:
        direct = {OURS: address(our_server), THEIRS: address(their_server)}
        with relay(tmp_path / "relay", {name: [each] for name, each in direct.items()}) as relaying:
            by_relay: dict[str, dict[str, object]] = {OURS: {}, THEIRS: {}}
            with calling(tmp_path / "early", address(relaying), by_relay) as caller:
                assert caller.call() == "one"
                theirs.write("eds.yaml", endpoints("blue", two), endpoints("green", three))
                call_until(caller, lambda answer: answer == "two")
                ours.write("rds.yaml", cluster_route(ROUTE, cluster("green")))
                call_until(caller, lambda answer: answer == "three")
                our_server.kill()
                their_server.kill()
                assert caller.call() == "three"

            first_direct = by_relay | {THEIRS: grpc_servers(direct[THEIRS], address(relaying))}
            with calling(tmp_path / "late", address(relaying), first_direct) as late:
                assert late.call() == "three"
                theirs.write("eds.yaml", endpoints("blue", two), endpoints("green", one))
                with theirs.server(direct[THEIRS]):
                    call_until(late, lambda answer: answer == "one")


def test_a_relay_that_no_client_asked_before(tmp_path: Path, ports: list[int]) -> None:
    """It has what a redirect in a file leads to, with all that this refers to, and nothing else of an authority that is away."""
    theirs = with_clusters(tmp_path / "theirs", {"blue": ports[0], "green": ports[1]})
    listener, route = structured("Listener", "web", THEIRS), structured("RouteConfiguration", "web", THEIRS)
    theirs.write("lds.yaml", api_listener(listener, route))
    theirs.write("rds.yaml", cluster_route(route, cluster("blue")))
    own = tree(tmp_path / "own")
    kept = {"name": structured("Listener", "kept", OURS), "resource_name": {"name": listener}}
    write_file(own.tree / "lds.yaml", yaml.safe_dump([kept]))
    with theirs.server() as direct:
        servers = grpc_servers(address(direct))
        with relay(tmp_path / "relay", {THEIRS: [address(direct)]}, "--log-level", "debug", tree=own.tree) as relaying:
            relaying.wait(
                lambda: kept_types(relaying) >= {"lds", "rds", "cds", "eds"}, "all that the listener leads to"
            )
            direct.kill()
            servers["xds_servers"] += grpc_servers(address(relaying))["xds_servers"]
            with XdsCaller(f"xds://{THEIRS}/web", "127.0.0.1:1", tmp_path, {"authorities": {THEIRS: servers}}) as late:
                assert late.call() == "one"
            assert status_of(relaying, cluster("blue")) == 200
            assert status_of(relaying, cluster("green")) == 503


def kept_types(relaying: Server) -> set[str]:
    """Return the types of which something came from an upstream."""
    return {of_type for line in relaying.log_events("upstream_changed") for of_type in line["changes"]}


def status_of(server: Server, name: str) -> int:
    """Return the status of a resource that is read over HTTP, at once."""
    authority, _, path = name.removeprefix("xdstp://").partition("/")
    request = Request(f"http://127.0.0.1:{server.port}/{path}?wait=0s", headers={"host": authority})
    try:
        with urlopen(request, timeout=30) as response:
            return int(response.status)
    except HTTPError as error:
        error.close()
        return error.code


def calling(folder: Path, server: str, authorities: Mapping[str, Mapping[str, object]]) -> XdsCaller:
    """Return a client with a folder of its own."""
    folder.mkdir()
    return XdsCaller(f"xds://{OURS}/web", server, folder, {"authorities": authorities})


@pytest.mark.parametrize("author", ["cloud", "premises"])
def test_cloud_and_premises(author: str, tmp_path: Path, ports: list[int]) -> None:
    """A client whose relay falls back from a cloud to its own premises, whichever of them relays the other."""
    one, two, three = ports
    written = with_clusters(tmp_path / "tree", {"blue": one})
    written.write("lds.yaml", api_listener(LISTENER, ROUTE))
    written.write("rds.yaml", cluster_route(ROUTE, cluster("blue")))
    with written.server() as first, follower(tmp_path / "follower", first) as second:
        cloud, premises = (first, second) if author == "cloud" else (second, first)
        at = address(cloud)
        with (
            follower(tmp_path / "edge", cloud, premises) as edge,
            calling(tmp_path / "caller", address(edge), {OURS: {}, THEIRS: {}}) as caller,
        ):
            assert caller.call() == "one"
            cloud.kill()
            edge.wait(lambda: edge.log_events("upstream_failed_over"), "the other server")
            assert caller.call() == "one"
            written.write("eds.yaml", endpoints("blue", two))
            if author == "premises":
                call_until(caller, lambda answer: answer == "two")
            with written.server(at) if author == "cloud" else follower(tmp_path / "follower", premises, grpc=at):
                call_until(caller, lambda answer: answer == "two")
                written.write("eds.yaml", endpoints("blue", three))
                call_until(caller, lambda answer: answer == "three")


def follower(folder: Path, *servers: Server, grpc: str = "127.0.0.1:0") -> Server:
    """Return an fsxds that relays the first of these servers that answers, to be started."""
    folder.mkdir(exist_ok=True)
    return Server(None, folder, "--upstream", ",".join(map(address, servers)), grpc=grpc)
