"""An Envoy that gets its clusters, listeners, routes and endpoints from the servers of two authorities."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import yaml

from tests.support.authorities import BY_AUTHORITY, aggregated, envoy_bootstrap, envoy_source
from tests.support.grpc_envoy import DELTA_ADS, Fleet, StreamingEnvoy
from tests.support.resources import cluster_route, eds_cluster, http_listener
from tests.support.structured_names import structured

OURS, THEIRS = "ours.example", "theirs.example"
# What Envoy writes of its node into the names of collections.
PARAMS = "?xds.node.id=edge-1"
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
    source: dict[str, Any] = {"ads": {}, "resource_api_version": "V3"}
    locality = {
        "locality": {"region": "here"},
        "load_balancing_weight": 1,
        "leds_cluster_locality_config": {
            "leds_config": source,
            "leds_collection_name": structured("LbEndpoint", "shop/*", THEIRS),
        },
    }
    message_type = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    return yaml.safe_dump([{"@type": message_type, "cluster_name": ENDPOINTS, "endpoints": [locality]}])
