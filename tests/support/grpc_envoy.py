"""A real Envoy that streams from a real fsxds, in each of the four variants of gRPC xDS."""

from __future__ import annotations

import http.client
import json
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fsxds.envoy.envoy_bootstrap import XDS_CLUSTER, BootstrapRequest, Identity, ads_bootstrap
from tests.support.envoy import Envoy
from tests.support.envoy_admin import EnvoyError
from tests.support.patience import PATIENCE_S
from tests.support.resources import document
from tests.support.server import Server, write_file

CDS, LDS = "cluster_manager.cds", "listener_manager.lds"
# Longer than all that a test allows for on a busy machine: who waits for it fails.
# Longer than tests wait, so that it is seen when an Envoy waits in vain.
INITIAL_FETCH_TIMEOUT = f"{2 * PATIENCE_S}s"
NODE = "edge-1"

VERDICTS = ("update_success", "update_rejected")


@dataclass(frozen=True, slots=True)
class Variant:
    """How an Envoy asks.

    Attributes:
        aggregated: by one stream for everything, not by one for each subscription.
        delta: for what changed, not for the state of the world.
        patience: how long its start waits for the first answer of each subscription.
    """

    aggregated: bool
    delta: bool
    patience: str = INITIAL_FETCH_TIMEOUT

    def __str__(self) -> str:
        """Name the test."""
        return f"{'delta' if self.delta else 'sotw'}-{'ads' if self.aggregated else 'per-type'}"

    def config_source(self) -> dict[str, Any]:
        """Return the config source of a resource."""
        source: dict[str, Any] = {"resource_api_version": "V3", "initial_fetch_timeout": self.patience}
        return source | ({"ads": {}} if self.aggregated else {"api_config_source": self._stream()})

    def adapted(self, text: str) -> str:
        """Return YAML whose REST config sources became config sources of this variant."""
        return yaml.safe_dump(self._replaced(yaml.safe_load(text)), sort_keys=False)

    def document(self, items: Iterable[str]) -> str:
        """Return items as a DiscoveryResponse, adapted."""
        return self.adapted(document(items))

    def bootstrap(self, address: str, *runtime_names: str, node: str = NODE) -> dict[str, Any]:
        """Return the bootstrap of an Envoy that asks the fsxds at `address`."""
        identity = Identity(node_id=node, node_cluster="edge", initial_fetch_timeout=self.patience)
        wanted = BootstrapRequest(clusters=True, listeners=True, runtime_names=runtime_names)
        bootstrap: dict[str, Any] = ads_bootstrap(address, wanted, identity, delta=self.delta)
        if self.aggregated:
            return bootstrap
        dynamic = dict.fromkeys(("cds_config", "lds_config"), self.config_source())
        replaced: dict[str, Any] = self._replaced(bootstrap | {"dynamic_resources": dynamic}, word="ads")
        return replaced

    def _stream(self) -> dict[str, Any]:
        return {
            "api_type": "DELTA_GRPC" if self.delta else "GRPC",
            "transport_api_version": "V3",
            "set_node_on_first_message_only": True,
            "grpc_services": [{"envoy_grpc": {"cluster_name": XDS_CLUSTER}}],
        }

    def _replaced(self, value: Any, word: str = "api_config_source") -> Any:
        if isinstance(value, list):
            return [self._replaced(one, word) for one in value]
        if not isinstance(value, dict):
            return value
        if word in value:
            return self.config_source()
        return {name: self._replaced(one, word) for name, one in value.items()}


SOTW_ADS, DELTA_ADS = Variant(aggregated=True, delta=False), Variant(aggregated=True, delta=True)
SOTW, DELTA = Variant(aggregated=False, delta=False), Variant(aggregated=False, delta=True)
VARIANTS = (SOTW_ADS, DELTA_ADS, SOTW, DELTA)


class Fleet:
    """A tree, the fsxds that serves it, and how to start Envoys on it."""

    def __init__(self, folder: Path, variant: Variant, *options: str) -> None:
        self.tree = folder / "tree"
        self.tree.mkdir(exist_ok=True)
        self.variant = variant
        self._folder = folder
        self.options = options

    def write(self, path: str, *items: str) -> None:
        """Write a file of resources, with config sources of the variant."""
        write_file(self.tree / path, self.variant.document(items))

    def server(self, grpc: str = "127.0.0.1:0") -> Server:
        """Return fsxds on the tree, to be started."""
        return Server(self.tree, self._folder, *self.options, grpc=grpc)

    def bootstrap(self, server: Server, *runtime_names: str) -> dict[str, Any]:
        """Return the bootstrap of an Envoy that asks `server`."""
        return self.variant.bootstrap(str(server.ready["grpc"]), *runtime_names)

    def wait_for_clients(self, server: Server, count: int) -> None:
        """Wait until so many streams are open, as CSDS tells."""
        server.wait(lambda: len(clients_of(server)) >= count, f"{count} clients")

    @contextmanager
    def running(self, *runtime_names: str) -> Iterator[tuple[Server, StreamingEnvoy]]:
        """Serve the tree to a real Envoy, which has to become live without waiting for any time-out."""
        with self.server() as server:
            began = time.monotonic()
            with StreamingEnvoy(self.bootstrap(server, *runtime_names)) as envoy:
                assert time.monotonic() - began < PATIENCE_S, envoy.log_tail()
                yield server, envoy


def clients_of(server: Server) -> list[dict[str, Any]]:
    """Return what fsxds tells of each client, as CSDS by REST does."""
    url, headers = f"http://127.0.0.1:{server.port}/v3/discovery:client_status", {"content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, b"{}", headers), timeout=30) as response:
        clients: list[dict[str, Any]] = json.load(response).get("config", [])
        return clients


class StreamingEnvoy(Envoy):
    """An Envoy with what these tests ask of it."""

    def verdicts(self) -> dict[str, int]:
        """Return how many responses each subscription took and refused."""
        stats = self.stats(rf"\.({'|'.join(VERDICTS)})$")
        return {name: int(count) for name, count in stats.items() if not name.startswith("cluster.xds")}

    def rejections(self) -> dict[str, int]:
        """Return the subscriptions that refused something."""
        return {name: count for name, count in self.verdicts().items() if count and name.endswith("update_rejected")}

    def is_connected(self) -> bool:
        """Say whether every stream is up, and so is what carries it."""
        streams = self.stats(r"control_plane\.connected_state$|^cluster\.xds\.upstream_cx_active$")
        return bool(streams) and all(streams.values())

    def until(self, predicate: Callable[[], Any], what: str, timeout: float = PATIENCE_S) -> None:
        """Wait until `predicate` holds, whatever the traffic that it causes runs into before.

        The time is less than `INITIAL_FETCH_TIMEOUT`, after which Envoy would get anywhere by itself.
        """

        def holds() -> bool:
            try:
                return bool(predicate())
            except (OSError, http.client.HTTPException, KeyError):
                return False

        self.wait(holds, timeout, what)

    def until_clusters(self, *names: str) -> None:
        """Wait until it has these clusters, beside that of fsxds."""
        self.until(lambda: self.cluster_names(dynamic_only=True) == set(names), f"the clusters {names}")

    def until_warm(self) -> None:
        """Wait until no cluster and no listener waits for anything."""
        gauges = ("cluster_manager.warming_clusters", "listener_manager.total_listeners_warming")
        self.until(lambda: not any(self.stat(gauge) for gauge in gauges), "nothing warming")

    def ask(self, listener: str, path: str = "/", **headers: str) -> Answer:
        """Return what a listener answers to one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.listener_ports()[listener], timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request("GET", path, headers=named)
            response = connection.getresponse()
            return Answer(response.status, response.read().decode(), dict(response.getheaders()))
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back over HTTP."""

    status: int
    body: str
    headers: Mapping[str, str]


__all__ = [
    "CDS",
    "DELTA",
    "DELTA_ADS",
    "LDS",
    "NODE",
    "SOTW",
    "SOTW_ADS",
    "VARIANTS",
    "Answer",
    "EnvoyError",
    "Fleet",
    "StreamingEnvoy",
    "Variant",
    "clients_of",
]
