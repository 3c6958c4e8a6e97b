"""Which trees an Envoy cannot get by REST alone."""

from __future__ import annotations

from typing import Any

import pytest

from fsxds.tools.doctor.bootstraps import find_stream_need
from tests.tools.doctor.examples import Doctor, eds_clusters, file_source, grpc_source, listener, rest_source

ADS: dict[str, Any] = {"resource_api_version": "V3", "ads": {}}


@pytest.mark.parametrize(
    ("source", "fact"),
    [
        (ADS, "asks for ADS"),
        (grpc_source("DELTA_GRPC"), "asks for a gRPC stream"),
        (rest_source(cluster_names=["cp"]), 'asks the cluster "cp", which is fsxds on streams alone'),
        (rest_source(), None),
        (file_source("/etc/eds.yaml"), None),
    ],
)
def test_sources(source: dict[str, Any], fact: str | None, doctor: Doctor) -> None:
    """ADS, gRPC and clusters that the bootstrap for REST lacks need a stream; REST from fsxds and paths do not."""
    found = find_stream_need(doctor.snapshot({"cds.yaml": eds_clusters(1, source)}), doctor.catalogue, "xds")

    assert (found[1].message if found else None) == fact


def test_source_within_an_any_is_found(doctor: Doctor) -> None:
    """The first that needs a stream is told with its resource and field, however deep."""
    tree = {
        "cds.yaml": eds_clusters(1),
        "lds.yaml": listener({"rds": {"route_config_name": "r", "config_source": ADS}}),
    }
    found = find_stream_need(doctor.snapshot(tree), doctor.catalogue, "xds")

    assert found is not None
    assert (found[0].name, found[1].field_path[-3:]) == ("l", ("rds", "config_source", "ads"))


def test_virtual_hosts_on_demand_need_a_stream(doctor: Doctor) -> None:
    """VHDS and LEDS have no REST form."""
    tree = {"vhds.yaml": "[{name: r/web, domains: [web.example.com]}]"}
    found = find_stream_need(doctor.snapshot(tree), doctor.catalogue, "xds")

    assert found is not None
    assert found[1].message == "is one of the virtual-hosts, which have no REST form"
