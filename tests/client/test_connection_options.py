"""What can be watched, and what no server could answer."""

from __future__ import annotations

from typing import Any

import pytest

from fsxds.api.converter import Converter
from fsxds.client.connection import ClientOptions, Wire, connecting
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.protocol.messages import Node
from tests.client.scripted import CDS, EDS, cluster, delta, scripted, sotw, wrapped
from tests.support.polls import envoy_catalogue, named, running

CLUSTERS, ENDPOINTS, HOSTS = (BY_SHORT_NAME[name] for name in ("cds", "eds", "vhds"))
NODE = Node("n1")


@pytest.mark.parametrize(
    ("address", "wire", "target"),
    [
        ("127.0.0.1:18000", Wire.SOTW, "127.0.0.1:18000"),
        (":18000", Wire.DELTA, "127.0.0.1:18000"),
        ("[::1]:18000", Wire.SOTW, "[::1]:18000"),
        ("unix:/run/s", Wire.SOTW, "unix:/run/s"),
        ("xds.example.com:18001", Wire.REST, "http://xds.example.com:18001"),
        ("https://xds.example.com/a", Wire.REST, "https://xds.example.com/a"),
        ("unix:/run/s", Wire.REST, "unix:/run/s"),
    ],
)
def test_targets(address: str, wire: Wire, target: str) -> None:
    """Addresses are those of other commands; over REST a port is a URL."""
    wanted = ClientOptions(address, (CLUSTERS,), wire=wire)
    wanted.check()

    assert target == wanted.target


@pytest.mark.parametrize(
    ("wanted", "remedy"),
    [
        (ClientOptions("127.0.0.1:0", (CLUSTERS,)), "give the port that the server listens on"),
        (ClientOptions("127.0.0.1", (CLUSTERS,)), "write 127.0.0.1:18001"),
        (ClientOptions("http://x", (CLUSTERS,), wire=Wire.DELTA), "write HOST:PORT, or leave --delta and --ads out"),
        (ClientOptions("x:1", (CLUSTERS,), wire=Wire.REST, is_aggregated=True), "leave --rest out"),
        (ClientOptions("x:1", (HOSTS,), wire=Wire.REST), "put --delta in place of --rest"),
        (ClientOptions("x:1", (HOSTS,)), "add --delta"),
        (ClientOptions("x:1", (CLUSTERS, ENDPOINTS)), "add --ads, or watch one --type"),
        (ClientOptions("x:1", (CLUSTERS, ENDPOINTS), ("a",), is_aggregated=True), "give one --type"),
    ],
)
def test_what_cannot_be(wanted: ClientOptions, remedy: str) -> None:
    """What no server could answer is refused with the remedy."""
    with pytest.raises(UsageError, match=remedy):
        wanted.check()


def test_title() -> None:
    """What is watched, in words."""
    ads = ClientOptions("x:1", (CLUSTERS, ENDPOINTS), wire=Wire.DELTA, is_aggregated=True)

    assert "clusters, endpoints at x:1 by Delta ADS" == ads.title
    assert "clusters a, b at http://x:1 by REST" == ClientOptions("x:1", (CLUSTERS,), ("a", "b"), Wire.REST).title


@pytest.mark.parametrize(
    ("wire", "response"),
    [(Wire.SOTW, sotw("1", cluster("a"))), (Wire.DELTA, delta("1", wrapped(cluster("a"), "a")))],
)
@pytest.mark.parametrize("is_aggregated", [True, False])
async def test_each_stream_has_its_method(wire: Wire, response: bytes, is_aggregated: bool) -> None:
    """One type is asked for at its own service or by ADS, in both variants."""
    noun = "AggregatedResources" if is_aggregated else "Clusters"
    service = (
        "envoy.service.discovery.v3.AggregatedDiscoveryService"
        if is_aggregated
        else "envoy.service.cluster.v3.ClusterDiscoveryService"
    )
    method = f"/{service}/{'Delta' if wire is Wire.DELTA else 'Stream'}{noun}"
    async with scripted(method) as script:
        wanted = ClientOptions(script.target, (CLUSTERS,), wire=wire, is_aggregated=is_aggregated)
        async with connecting(wanted, NODE, Converter(envoy_catalogue())) as client:
            script.say(response)

            assert ["a"] == list((await client.next()).resources)


async def test_several_types_on_one_stream() -> None:
    """By ADS each type is asked for with a request of its own."""
    async with scripted("/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources") as script:
        wanted = ClientOptions(script.target, (CLUSTERS, ENDPOINTS), is_aggregated=True)
        async with connecting(wanted, NODE, Converter(envoy_catalogue())) as client:
            script.say(sotw("1", type_url=EDS))
            await client.next()
            asked: list[Any] = [await script.requested() for _ in range(2)]

    assert [CDS, EDS] == [request.type_url for request in asked]


async def test_over_rest() -> None:
    """A type is polled for, by its names."""
    async with running() as server:
        server.publish(named("cds", "a"), named("cds", "b"))
        wanted = ClientOptions(str(server.address), (CLUSTERS,), ("b",), Wire.REST)
        async with connecting(wanted, NODE, Converter(envoy_catalogue())) as client:
            assert ["b"] == list((await client.next()).resources)
