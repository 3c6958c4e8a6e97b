"""What a message makes Envoy subscribe to."""

from __future__ import annotations

from typing import Any

import pytest

from fsxds.api.converter import Converter
from fsxds.tools.doctor.facts import ConfigSourceUse, subscriptions_of
from tests.tools.doctor.examples import Doctor, file_source, grpc_source, rest_source

MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3"
RDS = {"route_config_name": "r", "config_source": rest_source()}


def asked(doctor: Doctor, message_type: str, value: Any) -> list[ConfigSourceUse]:
    """Return the subscriptions of a message at the path `x`."""
    message = Converter(doctor.catalogue).convert(value, message_type).message
    return list(subscriptions_of(message, ("x",)))


@pytest.mark.parametrize(
    ("message_type", "value", "expected"),
    [
        (f"{MANAGER}.Rds", RDS, ("rds", "r")),
        (f"{MANAGER}.ScopedRds", {"scoped_rds_config_source": rest_source()}, ("srds", "('x',)")),
        ("envoy.config.core.v3.ExtensionConfigSource", {"config_source": rest_source()}, ("ecds", "('x',)")),
        (
            "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig",
            {"name": "s", "sds_config": rest_source()},
            ("sds", "s"),
        ),
    ],
)
def test_each_kind(message_type: str, value: Any, expected: tuple[str, str], doctor: Doctor) -> None:
    """Each subscription is told from others by type and name."""
    assert [ConfigSourceUse("xds", True, expected)] == asked(doctor, message_type, value)


def test_streams(doctor: Doctor) -> None:
    """A gRPC source has a stream for each service that is a cluster."""
    source = grpc_source()
    source["api_config_source"]["grpc_services"].append({"google_grpc": {"target_uri": "x", "stat_prefix": "x"}})

    assert [ConfigSourceUse("xds", False, ("rds", "r"))] == asked(
        doctor, f"{MANAGER}.Rds", {**RDS, "config_source": source}
    )


@pytest.mark.parametrize("source", [{"ads": {}}, file_source("/rds.pb")])
def test_what_holds_nothing(source: Any, doctor: Doctor) -> None:
    """The stream of ADS is one for all, and a file holds no connection."""
    assert [] == asked(doctor, f"{MANAGER}.Rds", {**RDS, "config_source": source})


@pytest.mark.parametrize(
    "message_type", ["envoy.config.cluster.v3.Cluster", "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig"]
)
def test_no_source(message_type: str, doctor: Doctor) -> None:
    """Neither a cluster nor a secret needs one."""
    assert [] == asked(doctor, message_type, {"name": "a"})
