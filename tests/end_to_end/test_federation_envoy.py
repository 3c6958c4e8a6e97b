"""An Envoy that gets its clusters, listeners, routes and endpoints from the servers of two authorities."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from tests.support.authorities import BY_AUTHORITY, aggregated, envoy_bootstrap, envoy_source, relay
from tests.support.grpc_envoy import DELTA_ADS, Fleet, StreamingEnvoy
from tests.support.resources import cluster_route, eds_cluster, http_listener, static_cluster
from tests.support.server import Server, write_file
from tests.support.structured_names import structured

OURS, THEIRS = "ours.example", "theirs.example"
# What Envoy writes of its node into the names of collections.
PARAMS = "?xds.node.id=edge-1"
CLUSTERS = structured("Cluster", "edge/*", OURS)
LISTENERS = structured("Listener", "edge/*", THEIRS)
CLUSTER = structured("Cluster", f"edge/shop{PARAMS}", OURS)
LISTENER = structured("Listener", f"edge/web{PARAMS}", THEIRS)
ROUTE = structured("RouteConfiguration", "web", THEIRS)
ENDPOINTS = structured("ClusterLoadAssignment", "shop", THEIRS)


@contextmanager
def answering(*names: str) -> Iterator[list[int]]:
    """Run HTTP servers that answer with their names; yield their ports."""

    def handler_of(name: str) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-length", str(len(name)))
                self.end_headers()
                self.wfile.write(name.encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler_of(name)) for name in names]
    for server in servers:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield [server.server_address[1] for server in servers]
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def assigned() -> str:
    """Return the cluster, whose endpoints are the other authority's, as a list item."""
    (fields,) = yaml.safe_load(eds_cluster(CLUSTER))
    fields["eds_cluster_config"]["service_name"] = ENDPOINTS
    return yaml.safe_dump([fields], sort_keys=False)


def located() -> str:
    """Return the endpoints as a collection (LEDS), as a list item."""
    locality = {
        "locality": {"region": "here"},
        "load_balancing_weight": 1,
        "leds_cluster_locality_config": {
            "leds_config": envoy_source("theirs", api_type="DELTA_GRPC"),
            "leds_collection_name": structured("LbEndpoint", "shop/*", THEIRS),
        },
    }
    message_type = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    return yaml.safe_dump([{"@type": message_type, "cluster_name": ENDPOINTS, "endpoints": [locality]}])


def members(**ports: int) -> str:
    """Return the members of that collection, as list items."""
    return yaml.safe_dump([member(name, port) for name, port in ports.items()])


def member(name: str, port: int) -> dict[str, Any]:
    """Return one endpoint, with the name by which it is a member."""
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    message_type = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint"
    return {
        "@type": "type.googleapis.com/envoy.service.discovery.v3.Resource",
        "name": structured("LbEndpoint", f"shop/{name}{PARAMS}", THEIRS),
        "resource": {"@type": message_type, "endpoint": {"address": address}},
    }


def tree(folder: Path, **files: str) -> Fleet:
    """Return a tree in a folder of its own."""
    folder.mkdir()
    fleet = Fleet(folder, DELTA_ADS)
    for name, text in files.items():
        fleet.write(f"{name}.yaml", text)
    return fleet


def bootstrap(ours: Server, theirs: Server) -> dict[str, Any]:
    """Return the bootstrap of an Envoy that has a collection of each, and looks up endpoints and routes by their authority."""
    addresses = {name: str(server.ready["grpc"]) for name, server in (("ours", ours), ("theirs", theirs))}
    collections = {"cds_resources_locator": CLUSTERS, "lds_resources_locator": LISTENERS}
    dynamic = aggregated("ours", lds_config=envoy_source("theirs", api_type="DELTA_GRPC"), **collections)
    sources = [envoy_source(name, authorities=[each]) for name, each in (("ours", OURS), ("theirs", THEIRS))]
    more = {"config_sources": sources, "node_context_params": ["id"]}
    return envoy_bootstrap(addresses, BY_AUTHORITY, dynamic_resources=dynamic, **more)


@pytest.mark.parametrize("through_relay", [False, True], ids=["direct", "relay"])
def test_two_authorities_of_one_envoy(tmp_path: Path, *, through_relay: bool) -> None:
    """Collections, routes, endpoints and their members by authority; requests go on, and new Envoys start, while both are away."""
    ours = tree(tmp_path / "ours", cds=assigned())
    theirs = tree(tmp_path / "theirs", lds=http_listener(LISTENER, 0, ROUTE), rds=cluster_route(ROUTE, f'"{CLUSTER}"'))
    write_file(theirs.tree / "eds.yaml", located())
    with answering("one", "two") as (one, two), ours.server() as our_server, theirs.server() as their_server:
        theirs.write("leds.yaml", members(a=one))
        servers = [our_server, their_server]
        with ExitStack() as stack:
            if through_relay:
                authorities = {OURS: [str(our_server.ready["grpc"])], THEIRS: [str(their_server.ready["grpc"])]}
                servers = [stack.enter_context(relay(tmp_path / "relay", authorities))] * 2
            envoy = stack.enter_context(StreamingEnvoy(bootstrap(*servers)))
            envoy.until(lambda: envoy.ask(LISTENER).body == "one", "the first endpoint")
            theirs.write("leds.yaml", members(b=two))
            envoy.until(lambda: envoy.ask(LISTENER).body == "two", "the other endpoint")

            their_server.kill()
            our_server.kill()
            assert envoy.ask(LISTENER).body == "two"
            assert envoy.rejections() == {}
            if through_relay:
                another = stack.enter_context(StreamingEnvoy(bootstrap(*servers)))
                assert another.ask(LISTENER).body == "two"


def test_what_is_removed_meanwhile_is_removed_through_a_relay(tmp_path: Path) -> None:
    """Members of a collection that go while the server is away, or the relay, or both: Envoy does not say which it holds."""
    fleet = tree(tmp_path / "theirs")
    names = {each: structured("Cluster", f"edge/{each}", THEIRS) for each in "abc"}

    def write(*members: str) -> None:
        fleet.write("cds.yaml", *(static_cluster(names[each]) for each in members))

    write("a", "b")
    state = "--state", str(tmp_path / "state")
    with fleet.server() as server:
        above = {THEIRS: [str(server.ready["grpc"])]}
        with relay(tmp_path / "relay", above, *state) as relaying:
            at = str(relaying.ready["grpc"])
            dynamic = aggregated("relay", cds_resources_locator=structured("Cluster", "edge/*", THEIRS))
            with StreamingEnvoy(envoy_bootstrap({"relay": at}, dynamic_resources=dynamic)) as envoy:
                envoy.until_clusters(names["a"], names["b"])
                server.kill()
                write("b")
                with fleet.server(above[THEIRS][0]):
                    envoy.until_clusters(names["b"])
                    relaying.kill()
                    write("c")
                    with relay(tmp_path / "relay", above, *state, grpc=at):
                        envoy.until_clusters(names["c"])
