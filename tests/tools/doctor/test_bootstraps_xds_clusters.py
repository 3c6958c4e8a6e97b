"""The static cluster that configuration comes from."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.tools.doctor.examples import HTTP2, Doctor, eds_clusters, grpc_source, rest_source, xds_of

XDS = "static_resources.clusters[0]"
PROTOCOL = f"{XDS}.typed_extension_protocol_options.envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
WIDE = {"max_connections": 5000, "max_pending_requests": 5000, "max_requests": 5000}


def http2(**options: Any) -> dict[str, Any]:
    """Return protocol options that say HTTP/2."""
    changed = copy.deepcopy(HTTP2)
    (extension,) = changed.values()
    extension["explicit_http_config"]["http2_protocol_options"] = options
    return changed


@pytest.mark.parametrize(
    ("thresholds", "expected"),
    [
        (None, [f"few-connections {XDS}"]),
        ([{"max_connections": 5000}], [f"few-connections {XDS}.circuit_breakers.thresholds[0]"]),
        ([{"priority": "HIGH", **WIDE}], [f"few-connections {XDS}"]),
        ([{"priority": "HIGH"}, WIDE], []),
    ],
)
def test_each_eds_cluster_holds_a_connection(
    thresholds: list[dict[str, Any]] | None, expected: list[str], doctor: Doctor
) -> None:
    """ENVOY.md E5: more subscriptions than the limits of the default priority fail or wait."""
    edit = lambda value: thresholds and xds_of(value).update(circuit_breakers={"thresholds": thresholds})  # noqa: E731

    assert expected == doctor.rules(edit, {"cds.yaml": eds_clusters(1100)})


def test_few_subscriptions_need_no_circuit_breakers(doctor: Doctor) -> None:
    """Clusters and listeners of the bootstrap count as well: 1022 clusters are just enough for 1024 connections."""
    assert [] == doctor.rules(None, {"cds.yaml": eds_clusters(1022)})
    (fault,) = doctor.faults(None, {"cds.yaml": eds_clusters(1023)})
    assert fault.message.startswith("1025 subscriptions (1 cds, 1023 eds, 1 lds) hold a poll each, but max_conn")


@pytest.mark.parametrize(
    ("family", "host", "is_well"),
    [
        (None, "localhost", False),
        ("V6_ONLY", "localhost", False),
        ("V4_ONLY", "localhost", True),
        ("V4_PREFERRED", "localhost", True),
        (None, "xds.example.com", True),
    ],
)
def test_localhost(family: str | None, host: str, *, is_well: bool, doctor: Doctor) -> None:
    """Envoy takes `localhost` for `::1` unless told otherwise."""

    def edit(value: Any) -> None:
        xds = xds_of(value)
        xds["type"] = "STRICT_DNS"
        xds["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"][
            "address"
        ] = host
        if family:
            xds["dns_lookup_family"] = family

    assert ([] if is_well else [f"localhost-lookup {XDS}"]) == doctor.rules(edit)


def test_grpc_without_http2(doctor: Doctor) -> None:
    """A stream needs HTTP/2, also where a resource opens it."""
    tree = {"cds.yaml": eds_clusters(1, grpc_source())}

    assert [f"grpc-protocol {XDS}"] == doctor.rules(None, tree)


def stream_of(value: Any) -> None:
    """Turn a bootstrap to ADS."""
    value["dynamic_resources"] = {"ads_config": grpc_source()["api_config_source"], "cds_config": {"ads": {}}}


@pytest.mark.parametrize(
    "options",
    [
        {"http2_protocol_options": {}},
        {"typed_extension_protocol_options": http2()},
        {
            "typed_extension_protocol_options": {
                name: {"@type": content["@type"], "use_downstream_protocol_config": {}}
                for name, content in HTTP2.items()
            }
        },
        {
            "typed_extension_protocol_options": {
                name: {"@type": content["@type"], "explicit_http_config": {"http3_protocol_options": {}}}
                for name, content in HTTP2.items()
            }
        },
    ],
)
def test_grpc_with_http2(options: dict[str, Any], doctor: Doctor) -> None:
    """Either way to say so is well."""

    def edit(value: Any) -> None:
        stream_of(value)
        xds_of(value).update(options)

    assert [] == doctor.rules(edit)


def test_explicit_http1_is_no_http2(doctor: Doctor) -> None:
    """Protocol options may say HTTP/1.1, and may be of a type that nobody knows."""

    def edit(value: Any) -> None:
        stream_of(value)
        name, content = next(iter(HTTP2.items()))
        plain = {"@type": content["@type"], "explicit_http_config": {"http_protocol_options": {}}}
        xds_of(value)["typed_extension_protocol_options"] = {name: plain}

    assert [f"grpc-protocol {XDS}"] == doctor.rules(edit)


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"http2_protocol_options": {}}, f"{XDS}.http2_protocol_options"),
        (
            {"typed_extension_protocol_options": http2()},
            f"{PROTOCOL}.explicit_http_config.http2_protocol_options",
        ),
    ],
)
def test_rest_over_http2(options: dict[str, Any], place: str, doctor: Doctor) -> None:
    """Polls are answered by HTTP/1.1."""
    assert [f"rest-protocol {place}"] == doctor.rules(lambda value: xds_of(value).update(options))


@pytest.mark.parametrize(("interval", "is_well"), [("30s", False), ("330s", True)])
def test_pings(interval: str, *, is_well: bool, doctor: Doctor) -> None:
    """ENVOY.md E31: gRPC servers close connections that ping too often."""

    def edit(value: Any) -> None:
        stream_of(value)
        keepalive = {"interval": interval, "timeout": "5s"}
        xds_of(value)["typed_extension_protocol_options"] = http2(connection_keepalive=keepalive)

    place = f"{PROTOCOL}.explicit_http_config.http2_protocol_options.connection_keepalive.interval"
    assert ([] if is_well else [f"frequent-pings {place}"]) == doctor.rules(edit)


def test_clusters_that_serve_traffic_are_left_alone(doctor: Doctor) -> None:
    """Only where configuration comes from is looked at."""

    def edit(value: Any) -> None:
        other = copy.deepcopy(xds_of(value))
        other.update(name="web", type="STRICT_DNS")
        other["load_assignment"]["cluster_name"] = "web"
        value["static_resources"]["clusters"].append(other)

    assert [] == doctor.rules(edit, {"cds.yaml": eds_clusters(1, rest_source())})
