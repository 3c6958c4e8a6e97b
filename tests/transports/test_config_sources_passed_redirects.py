"""What streams are served whose clients follow redirects themselves."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from envoy.service.discovery.v3 import discovery_pb2
from xds.core.v3.resource_locator_pb2 import ResourceLocator

from fsxds.model.resources import Resource, Rows, Snapshot
from fsxds.model.values import Nonce, Version
from fsxds.protocol.messages import DeltaResponse, SotwResponse
from fsxds.transports.config_sources import PassedRedirects
from fsxds.transports.grpc_streams.stream_responses import LOCATOR_TYPE_URL, RESOURCE_TYPE_URL, ResponseWriter
from tests.support.snapshots import resource, snapshot, type_url

CDS = type_url("CDS")
TARGET = "xdstp://far.example/envoy.config.cluster.v3.Cluster/a"


def leading(one: Resource, to: str) -> Resource:
    """Return a resource as a redirect."""
    return replace(one, redirect=to)


def served(*resources: Resource, unresolved: tuple[Resource, ...] = (), before: Snapshot | None = None) -> Snapshot:
    """Return a snapshot with these clusters, on top of another."""
    whole = before or snapshot({"CDS": {}})
    rows = whole.resources(CDS).with_changes(resources, whole.resources(CDS).keys() - {one.name for one in resources})
    wrong = {(CDS, one.name): one for one in unresolved}
    return replace(whole, generation=whole.generation + 1, by_type={**whole.by_type, CDS: rows}, unresolved=wrong)


def passed(rewriter: PassedRedirects, current: Snapshot) -> Rows:
    """Return the clusters for streams."""
    return asyncio.run(rewriter.rewrite(current)).resources(CDS)


def located(one: Resource) -> str:
    """Return the last part of where a locator leads."""
    return str(ResourceLocator.FromString(one.body).id)


def test_locators_come_in_place_of_content_and_unresolved_ones_too() -> None:
    """The version is that of the locator: the target may change without it. What is no redirect stays the same object."""
    rewriter, plain = PassedRedirects(), resource("CDS", "plain", "1")
    first = served(
        plain, leading(resource("CDS", "one", "1"), TARGET), unresolved=(leading(resource("CDS", "far", ""), TARGET),)
    )
    rows = passed(rewriter, first)

    assert rows["plain"] is plain
    assert [(name, located(rows[name])) for name in ("far", "one")] == [("far", "a"), ("one", "a")]

    second = served(plain, leading(resource("CDS", "one", "2"), TARGET), before=first)
    later = passed(rewriter, second)
    assert set(later) == {"plain", "one"}
    assert later["one"].version == rows["one"].version

    third = served(plain, resource("CDS", "one", "3"), before=second)
    assert passed(rewriter, third)["one"] is third.resources(CDS)["one"]


def test_rows_without_redirects_stay_the_same_object() -> None:
    """It costs nothing where there is none."""
    rewriter, current = PassedRedirects(), served(resource("CDS", "plain", "1"))

    assert passed(rewriter, current) is current.resources(CDS)
    assert passed(rewriter, current) is current.resources(CDS)


def test_streams_are_sent_the_locator_by_its_name() -> None:
    """Source: xRFC TP1, "Redirects": a `Resource` with the asked name, and the locator as payload; SotW wraps it for that."""
    one = leading(resource("CDS", "one", "1"), TARGET)
    (located_row,) = (row for row in passed(PassedRedirects(), served(one)).values())
    writer = ResponseWriter(passes_redirects=True)
    delta = discovery_pb2.DeltaDiscoveryResponse.FromString(
        writer.write(DeltaResponse(CDS, Version("1"), Nonce("1"), (located_row,)))
    )
    sotw = discovery_pb2.DiscoveryResponse.FromString(
        writer.write(SotwResponse(CDS, Version("1"), Nonce("1"), (located_row, resource("CDS", "x", "1"))))
    )

    (sent,) = delta.resources
    assert (sent.name, sent.resource.type_url) == ("one", LOCATOR_TYPE_URL)
    assert [each.type_url for each in sotw.resources] == [RESOURCE_TYPE_URL, CDS]
    wrapper = discovery_pb2.Resource.FromString(sotw.resources[0].value)
    assert (wrapper.name, wrapper.resource.type_url, wrapper.resource.value) == (
        "one",
        LOCATOR_TYPE_URL,
        located_row.body,
    )
