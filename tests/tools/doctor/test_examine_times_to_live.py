from __future__ import annotations

from typing import Any

import pytest

from tests.tools.doctor.examples import Doctor, Edit, grpc_source

TTL, WRAPPED = "xds.config.supports-resource-ttl", "xds.config.supports-resource-in-sotw"
TREE = {"cds.yaml": "{resource: {name: c, connect_timeout: 1s, type: STATIC}, ttl: 5s}"}


def streaming(api_type: str, *features: str, is_aggregated: bool = True) -> Edit:
    """Let the resources of the bootstrap come by streams, and its node announce these features."""

    def edit(value: Any) -> None:
        source = grpc_source(api_type)
        ads = {"ads": {}, "resource_api_version": "V3"}
        dynamic = value["dynamic_resources"]
        dynamic["cds_config"] = dynamic["lds_config"] = ads if is_aggregated else source
        if is_aggregated:
            dynamic["ads_config"] = source["api_config_source"]
        value["node"]["client_features"] = list(features)

    return edit


def told(doctor: Doctor, edit: Edit | None) -> list[str]:
    """Return what is said of a time to live: its remedies."""
    return [fault.remedy for fault in doctor.faults(edit, TREE) if fault.rule == "ttl-without-effect"]


def test_by_rest(doctor: Doctor) -> None:
    """ENVOY.md E19: a ttl has no effect there."""
    assert ["ttl-without-effect "] == doctor.rules(None, TREE)
    assert ["remove it, or serve by gRPC"] == told(doctor, None)


@pytest.mark.parametrize("is_aggregated", [True, False])
@pytest.mark.parametrize(
    ("api_type", "features", "missing"),
    [
        ("DELTA_GRPC", (), TTL),
        ("DELTA_GRPC", (TTL,), None),
        ("GRPC", (), f"{TTL} and {WRAPPED}"),
        ("GRPC", (TTL,), WRAPPED),
        ("GRPC", (TTL, WRAPPED), None),
    ],
)
def test_by_streams(
    api_type: str, features: tuple[str, ...], missing: str | None, *, is_aggregated: bool, doctor: Doctor
) -> None:
    """A ttl is told to an Envoy whose bootstrap announces that it understands one."""
    expected = [f"add {missing} to node.client_features, or remove the ttl"] if missing else []

    assert expected == told(doctor, streaming(api_type, *features, is_aggregated=is_aggregated))
