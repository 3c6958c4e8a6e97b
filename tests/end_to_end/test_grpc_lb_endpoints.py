"""A real Envoy that gets the endpoints of a locality one by one, as a collection (LEDS)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.grpc_envoy import CDS, DELTA, DELTA_ADS, Fleet
from tests.support.resources import REST, eds_cluster

COLLECTION = "xdstp://fleet/envoy.config.endpoint.v3.LbEndpoint/web"


@pytest.fixture(params=[DELTA_ADS, DELTA], ids=str)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Fleet:
    """A tree with a cluster whose endpoints are a collection."""
    fleet = Fleet(tmp_path, request.param)
    fleet.write("cds.yaml", eds_cluster("web"))
    locality = {
        "locality": {"region": "here"},
        "load_balancing_weight": 1,
        "leds_cluster_locality_config": {
            "leds_config": yaml.safe_load(REST),
            "leds_collection_name": f"{COLLECTION}/*",
        },
    }
    assignment = {
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": "web",
        "endpoints": [locality],
    }
    fleet.write("eds.yaml", yaml.safe_dump([assignment]))
    return fleet


def member(name: str, port: int) -> str:
    """Return one endpoint of the collection, as a list item."""
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    wrapper = {
        "@type": "type.googleapis.com/envoy.service.discovery.v3.Resource",
        "name": f"{COLLECTION}/{name}",
        "resource": {
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint",
            "endpoint": {"address": address},
        },
    }
    return yaml.safe_dump([wrapper])


def test_members_come_change_and_go(fleet: Fleet) -> None:
    """Each endpoint is told by itself."""
    fleet.write("leds.yaml", member("a", 1001), member("b", 1002))
    with fleet.running() as (_, envoy):
        assert envoy.endpoints("web") == {"127.0.0.1:1001", "127.0.0.1:1002"}
        fleet.write("leds.yaml", member("a", 2001), member("c", 1003))
        envoy.until(lambda: envoy.endpoints("web") == {"127.0.0.1:2001", "127.0.0.1:1003"}, "the change")

        assert envoy.rejections() == {}


@pytest.mark.parametrize("fleet", [DELTA_ADS], ids=str, indirect=True)
def test_a_collection_that_is_empty_does_not_delay_the_start(fleet: Fleet) -> None:
    """A collection without members is told as such, and fills later."""
    fleet.write("leds.yaml")
    with fleet.running() as (_, envoy):
        assert envoy.endpoints("web") == set()
        fleet.write("leds.yaml", member("a", 1001))
        envoy.until(lambda: envoy.endpoints("web") == {"127.0.0.1:1001"}, "the first member")


def test_a_changed_cluster_is_warm_at_once(fleet: Fleet) -> None:
    """A cluster that changes gets its collection again, so that it does not warm until a time-out."""
    fleet.write("leds.yaml", member("a", 1001))
    with fleet.running() as (_, envoy):
        changes = envoy.stat(f"{CDS}.config_reload")
        fleet.write("cds.yaml", eds_cluster("web", "3s"))
        envoy.wait_stat(f"{CDS}.config_reload", changes + 1)
        envoy.until_warm()

        assert envoy.endpoints("web") == {"127.0.0.1:1001"}
