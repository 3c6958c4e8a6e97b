"""Clients of several servers: Envoys, clients of grpcio and relays that find each authority at a server of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from fsxds.envoy.envoy_bootstrap import grpc_cluster
from tests.support.server import Server

# What Envoy 1.40 does only when its runtime says so.
BY_AUTHORITY = "envoy.reloadable_features.xdstp_based_config_singleton_subscriptions"
FAILOVER = "envoy.restart_features.xds_failover_support"
INITIAL_FETCH_TIMEOUT = "60s"


def envoy_source(*clusters: str, api_type: str = "AGGREGATED_DELTA_GRPC", authorities: Iterable[str] = ()) -> Any:
    """Return a config source of Envoy that names these clusters of the bootstrap."""
    services = [{"envoy_grpc": {"cluster_name": name}} for name in clusters]
    source: dict[str, Any] = {
        "resource_api_version": "V3",
        "initial_fetch_timeout": INITIAL_FETCH_TIMEOUT,
        "api_config_source": {"api_type": api_type, "transport_api_version": "V3", "grpc_services": services},
    }
    return source | ({"authorities": [{"name": name} for name in authorities]} if authorities else {})


def envoy_bootstrap(servers: Mapping[str, str], *features: str, **more: Any) -> dict[str, Any]:
    """Return the bootstrap of an Envoy that knows servers.

    Args:
        servers: their addresses by the names of the clusters that lead to them.
        features: of the runtime, to be on.
        more: such as `dynamic_resources`.
    """
    clusters = []
    for name, address in servers.items():
        cluster: Any = grpc_cluster(address)
        cluster["name"] = cluster["load_assignment"]["cluster_name"] = name
        clusters.append(cluster)
    layers = [{"name": "features", "static_layer": dict.fromkeys(features, True)}]
    return {
        "node": {"id": "edge-1", "cluster": "edge"},
        "static_resources": {"clusters": clusters},
        "layered_runtime": {"layers": layers},
        **more,
    }


def aggregated(*clusters: str, **more: Any) -> dict[str, Any]:
    """Return `dynamic_resources` with one aggregated Delta stream; `more` is such as `cds_resources_locator`."""
    source: Any = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": INITIAL_FETCH_TIMEOUT}
    ads = envoy_source(*clusters, api_type="DELTA_GRPC")["api_config_source"]
    return {"ads_config": ads, "cds_config": source, **more}


def grpc_servers(*addresses: str) -> dict[str, Any]:
    """Return `xds_servers` of a bootstrap of gRPC, or of one of its `authorities`: the first that answers is asked."""
    credentials = [{"type": "insecure"}]
    servers = [{"server_uri": each, "channel_creds": credentials, "server_features": ["xds_v3"]} for each in addresses]
    return {"xds_servers": servers}


def relay(
    folder: Path,
    authorities: Mapping[str, Iterable[str]],
    *options: str,
    grpc: str = "127.0.0.1:0",
    tree: Path | None = None,
) -> Server:
    """Return an fsxds that asks the servers of authorities, to be started.

    Args:
        folder: for its settings, log and ready file; it is made.
        authorities: the servers of each.
        options: more of the command line.
        grpc: where it listens.
        tree: the directory of its own files; None for none.
    """
    folder.mkdir(exist_ok=True)
    settings = folder / "fsxds.yaml"
    named = {name: {"upstream": list(servers)} for name, servers in authorities.items()}
    settings.write_text(yaml.safe_dump({"authorities": named}))
    return Server(tree, folder, "--settings", str(settings), *options, grpc=grpc)
