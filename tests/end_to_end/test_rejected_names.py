"""A real Envoy that asks for names of another type than its request, beside others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.grpc_envoy import DELTA, DELTA_ADS, SOTW_ADS, Fleet, Variant
from tests.support.resources import eds_cluster, endpoints
from tests.support.server import Server
from tests.support.structured_names import structured

CLUSTER = structured("Cluster", "odd")


class OddFleet(Fleet):
    """Envoys with a static cluster whose endpoints have the name of a cluster; of a tree, that would be a problem."""

    def bootstrap(self, server: Server, *runtime_names: str) -> dict[str, Any]:
        """Return the bootstrap with the cluster."""
        bootstrap = super().bootstrap(server, *runtime_names)
        source = {"service_name": CLUSTER, "eds_config": self.variant.config_source()}
        odd = {"name": "odd", "type": "EDS", "eds_cluster_config": source}
        bootstrap["static_resources"]["clusters"].append(odd)
        return bootstrap


@pytest.mark.parametrize("variant", [SOTW_ADS, DELTA_ADS, DELTA], ids=str)
def test_endpoints_by_the_name_of_a_cluster(tmp_path: Path, variant: Variant) -> None:
    """A name of another type is rejected alone: on Delta streams its end is told, and nothing else waits for it."""
    fleet = OddFleet(tmp_path, variant if variant.delta else replace(variant, patience="2s"), "--log-format", "json")
    fleet.write("cds.yaml", eds_cluster("web"))
    fleet.write("eds.yaml", endpoints("web", 1001))
    with fleet.running() as (server, envoy):
        assert envoy.endpoints("web") == {"127.0.0.1:1001"}
        (reason,) = {line["reason"] for line in server.log_events("request_rejected")}
        assert reason.startswith(f"resource_names: {CLUSTER!r} is a name of envoy.config.cluster.v3.Cluster, and the ")
        fleet.write("eds.yaml", endpoints("web", 1002), endpoints("more", 1003))
        envoy.until(lambda: envoy.endpoints("web") == {"127.0.0.1:1002"}, "the change")
        fleet.write("cds.yaml", eds_cluster("web"), eds_cluster("more"))
        envoy.until(lambda: envoy.endpoints("more") == {"127.0.0.1:1003"}, "another cluster")

        assert envoy.rejections() == {}
