"""The paths of the methods."""

from __future__ import annotations

import pytest

from fsxds.client.connection import Streaming, Wire
from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES


def test_every_type_has_its_method() -> None:
    """The table knows the methods of all types."""
    clusters = Streaming(Wire.SOTW, BY_SHORT_NAME["cds"])
    virtual_hosts = Streaming(Wire.DELTA, BY_SHORT_NAME["vhds"])

    assert "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters" == clusters.method
    assert "/envoy.service.route.v3.VirtualHostDiscoveryService/DeltaVirtualHosts" == virtual_hosts.method
    of_services = [row for row in RESOURCE_TYPES if row.grpc]
    assert len({Streaming(Wire.DELTA, row).method for row in of_services}) == len(of_services)


@pytest.mark.parametrize(("wire", "verb"), [(Wire.SOTW, "Stream"), (Wire.DELTA, "Delta")])
def test_all_types_have_a_method(wire: Wire, verb: str) -> None:
    """ADS is one method for all types."""
    service = "envoy.service.discovery.v3.AggregatedDiscoveryService"

    assert f"/{service}/{verb}AggregatedResources" == Streaming(wire).method
