"""The cluster of fsxds, for each kind of address."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fsxds.envoy.envoy_bootstrap import Section, grpc_cluster, rest_cluster


def plain(section: Section) -> Any:
    """Return the same as untyped JSON, which is easier to look into."""
    return json.loads(json.dumps(section))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", ":1", "localhost:1", "unix:/run/fsxds.sock"])
def test_addresses_are_static(address: str) -> None:
    """What needs no DNS is not looked up; `localhost` is where fsxds listens, not `::1`."""
    cluster = plain(rest_cluster(address))

    assert cluster["type"] == "STATIC"
    assert "dns_lookup_family" not in cluster


@pytest.mark.parametrize("cluster_of", [rest_cluster, grpc_cluster])
def test_names_are_looked_up_as_ipv4(cluster_of: Any) -> None:
    """ENVOY.md E7: without V4_ONLY, Envoy tries an IPv6 address first."""
    cluster = plain(cluster_of("xds.example.com:443"))

    assert ("STRICT_DNS", "V4_ONLY") == (cluster["type"], cluster["dns_lookup_family"])


def test_grpc_speaks_http2_and_pings_seldom() -> None:
    """ENVOY.md E31: a gRPC server closes connections that ping more than once in five minutes."""
    cluster = plain(grpc_cluster("127.0.0.1:18000"))
    (options,) = cluster["typed_extension_protocol_options"].values()
    pings = options["explicit_http_config"]["http2_protocol_options"]["connection_keepalive"]

    assert float(pings["interval"].removesuffix("s")) > 300


@pytest.mark.parametrize(("address", "is_probed"), [("127.0.0.1:1", True), ("unix:/run/fsxds.sock", False)])
def test_tcp_keepalive_is_for_tcp(address: str, *, is_probed: bool) -> None:
    """A unix socket has no machine behind it that could vanish."""
    assert is_probed == ("upstream_connection_options" in grpc_cluster(address))
