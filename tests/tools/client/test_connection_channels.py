"""The paths of the methods."""

from __future__ import annotations

from fsxds.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.tools.client.connection import method_of


def test_every_type_has_its_method() -> None:
    """The table knows the methods of all types."""
    assert "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters" == method_of(
        BY_SHORT_NAME["cds"], is_delta=False
    )
    assert "/envoy.service.route.v3.VirtualHostDiscoveryService/DeltaVirtualHosts" == method_of(
        BY_SHORT_NAME["vhds"], is_delta=True
    )
    assert len({method_of(row, is_delta=True) for row in RESOURCE_TYPES}) == len(RESOURCE_TYPES)
