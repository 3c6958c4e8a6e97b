from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.any_pb2 import Any as PackedAny
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.resources import Origin, Resource, ResourceList
from fsxds.model.values import Nonce, TypeUrl, Version
from fsxds.protocol.messages import DeltaResponse, SotwResponse
from fsxds.transports.grpc_streams.stream_responses import LARGE_BYTES, RESOURCE_TYPE_URL, ResponseWriter
from tests.support.snapshots import resource, type_url

ORIGIN = Origin(PurePosixPath("a.yaml"), 1)
CDS = type_url("CDS")

# Lengths on both sides of 128 and of 16384, where a length takes one more byte.
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
bodies = st.binary(max_size=200) | st.integers(16_300, 16_500).map(bytes)
ttls = st.none() | st.integers(1, 10**15).map(lambda nanos: nanos / 1_000_000_000)


@st.composite
def resources(draw: Any, of: TypeUrl = CDS) -> Resource:
    """Draw one resource."""
    version = Version(draw(st.text("0123456789abcdef", min_size=1, max_size=40)))
    aliases = tuple(draw(st.lists(names, max_size=3)))
    return Resource(of, draw(names), draw(bodies), version, ORIGIN, aliases, draw(ttls))


collections = st.lists(resources(), max_size=8).map(tuple)


def packed(of: Resource) -> PackedAny:
    """Return a resource's content."""
    return PackedAny(type_url=of.type_url, value=of.body)


def ttl_of(of: Resource) -> Duration | None:
    """Return a time to live as protobuf has it."""
    if of.ttl_s is None:
        return None
    nanos = round(of.ttl_s * 1_000_000_000)
    return Duration(seconds=nanos // 1_000_000_000, nanos=nanos % 1_000_000_000)


def wrapper(of: Resource, *, with_ttl: bool, aliases: tuple[str, ...] | None = None) -> Any:
    """Return a resource in its `Resource`."""
    return discovery_pb2.Resource(
        name=of.name,
        version=of.version,
        resource=packed(of),
        aliases=of.aliases if aliases is None else aliases,
        ttl=ttl_of(of) if with_ttl else None,
    )


def heartbeat(of: Resource) -> Any:
    """Return a `Resource` that holds nothing."""
    return discovery_pb2.Resource(name=of.name, version=of.version, ttl=ttl_of(of))


def unwrapped(found: PackedAny) -> Any:
    """Return the `Resource` that SotW carries in an Any, or the Any of a plain resource."""
    return discovery_pb2.Resource.FromString(found.value) if found.type_url == RESOURCE_TYPE_URL else found


def test_the_name_of_resource() -> None:
    """The type of wrapped resources is what protobuf calls it."""
    assert f"type.googleapis.com/{discovery_pb2.Resource.DESCRIPTOR.full_name}" == RESOURCE_TYPE_URL


@given(collections, st.booleans(), st.lists(resources(), max_size=2), st.text("0123456789", min_size=1, max_size=3))
def test_sotw_is_what_protobuf_reads(
    told: tuple[Resource, ...], with_ttl: bool, renewed: list[Resource], nonce: str
) -> None:
    """Every field of a DiscoveryResponse arrives; a resource with a time to live is wrapped where that is told."""
    response = SotwResponse(CDS, Version("7"), Nonce(nonce), told, with_ttl=with_ttl, heartbeats=tuple(renewed))
    found = discovery_pb2.DiscoveryResponse.FromString(ResponseWriter().write(response))

    expected = [wrapper(each, with_ttl=True) if with_ttl and each.ttl_s is not None else packed(each) for each in told]
    assert [unwrapped(each) for each in found.resources] == [*expected, *map(heartbeat, renewed)]
    del found.resources[:]
    assert found == discovery_pb2.DiscoveryResponse(
        version_info="7", type_url=CDS, nonce=nonce, control_plane={"identifier": "fsxds"}
    )


@given(collections, st.booleans(), st.lists(resources(), max_size=2), st.lists(names, max_size=2), st.booleans())
def test_delta_is_what_protobuf_reads(
    told: tuple[Resource, ...], with_ttl: bool, renewed: list[Resource], gone: list[str], by_alias: bool
) -> None:
    """Every field of a DeltaDiscoveryResponse arrives."""
    aliases = {each.name: ("r/asked",) for each in told[::2]} if by_alias else {}
    response = DeltaResponse(
        CDS,
        Version("7"),
        Nonce("1"),
        told,
        tuple(gone),
        with_ttl=with_ttl,
        heartbeats=tuple(renewed),
        aliases=aliases,
        unpopulated=("r/absent",),
    )

    assert discovery_pb2.DeltaDiscoveryResponse.FromString(
        ResponseWriter().write(response)
    ) == discovery_pb2.DeltaDiscoveryResponse(
        system_version_info="7",
        resources=[
            *(wrapper(each, with_ttl=with_ttl, aliases=aliases.get(each.name)) for each in told),
            *map(heartbeat, renewed),
            discovery_pb2.Resource(name="r/absent", aliases=["r/absent"]),
        ],
        removed_resources=gone,
        type_url=CDS,
        nonce="1",
        control_plane={"identifier": "fsxds"},
    )


def test_resources_of_several_types_are_each_of_its_own() -> None:
    """An Any bears the type of its resource."""
    told = (resource("EDS", "a"), resource("EDS", "b"))
    found = discovery_pb2.DiscoveryResponse.FromString(
        ResponseWriter().write(SotwResponse(type_url("EDS"), Version("1"), Nonce("1"), told))
    )

    assert [each.type_url for each in found.resources] == [type_url("EDS")] * 2


# What streams share


def many(count: int = 8, size: int = 10) -> ResourceList:
    """Return as many clusters as are worth to be kept."""
    return ResourceList(resource("CDS", f"c{index}", "x" * size) for index in range(count))


def test_a_collection_is_written_once() -> None:
    """Streams that are told the same share its bytes, whatever their nonces; where those are equal too, the message itself."""
    writer, told = ResponseWriter(), many()
    first, second, other = (writer.write(SotwResponse(CDS, Version("1"), Nonce(nonce), told)) for nonce in "112")

    assert writer.written == 1
    assert first is second
    assert discovery_pb2.DiscoveryResponse.FromString(other).nonce == "2"
    assert discovery_pb2.DiscoveryResponse.FromString(other).resources == (
        discovery_pb2.DiscoveryResponse.FromString(first).resources
    )


def test_what_differs_is_not_shared() -> None:
    """Equal resources in another version, form, or variant are other messages."""
    writer, told = ResponseWriter(), many()
    written = [
        writer.write(SotwResponse(CDS, Version("1"), Nonce("1"), told)),
        writer.write(SotwResponse(CDS, Version("2"), Nonce("1"), told)),
        writer.write(SotwResponse(CDS, Version("1"), Nonce("1"), told, with_ttl=True)),
        writer.write(DeltaResponse(CDS, Version("1"), Nonce("1"), told)),
        writer.write(DeltaResponse(CDS, Version("1"), Nonce("1"), told, with_ttl=True)),
    ]

    assert writer.written == 5
    assert len({id(message) for message in written}) == 5
    assert discovery_pb2.DiscoveryResponse.FromString(written[1]).version_info == "2"


def test_a_removal_beside_a_kept_collection() -> None:
    """What only one stream is told does not stay with what is shared."""
    writer, told = ResponseWriter(), many()
    with_removal = writer.write(DeltaResponse(CDS, Version("1"), Nonce("1"), told, ("gone",)))
    without = writer.write(DeltaResponse(CDS, Version("1"), Nonce("2"), told))

    assert list(discovery_pb2.DeltaDiscoveryResponse.FromString(with_removal).removed_resources) == ["gone"]
    assert not discovery_pb2.DeltaDiscoveryResponse.FromString(without).removed_resources
    assert writer.written == 1


def test_what_can_change_is_not_kept() -> None:
    """A list is written each time: its identity says nothing of what is in it."""
    writer, told = ResponseWriter(), list(many())
    writer.write(SotwResponse(CDS, Version("1"), Nonce("1"), told))
    told.pop()
    after = writer.write(SotwResponse(CDS, Version("1"), Nonce("1"), told))

    assert len(discovery_pb2.DiscoveryResponse.FromString(after).resources) == 7
    assert writer.written == 0


def test_what_is_kept_has_a_limit() -> None:
    """The collections that were used last stay; one that is larger than the limit is kept as long as it is the last."""
    writer = ResponseWriter(most_kept_bytes=3000)
    small, other, large = many(size=100), many(size=101), many(size=1000)
    for told in (small, other, small, large, large):
        writer.write(SotwResponse(CDS, Version("1"), Nonce("1"), told))

    assert writer.written == 3
    writer.write(SotwResponse(CDS, Version("1"), Nonce("1"), small))
    assert writer.written == 4
    writer.write(SotwResponse(CDS, Version("1"), Nonce("1"), small))
    assert writer.written == 4


def test_two_large_messages_of_a_type_are_kept() -> None:
    """A removal of clusters is told in two steps, so two are in use at a time; older ones are nobody's any more."""
    writer = ResponseWriter()
    one, two, three = (many(size=LARGE_BYTES // 8 + number) for number in range(3))
    endpoints = ResourceList(replace(each, type_url=type_url("EDS")) for each in one)
    for told in (one, two, one, two, three, two, three):
        writer.write(SotwResponse(CDS, Version("1"), Nonce("1"), told))
    writer.write(SotwResponse(type_url("EDS"), Version("1"), Nonce("1"), endpoints))
    assert writer.written == 4
    for told in (two, three):
        writer.write(SotwResponse(CDS, Version("1"), Nonce("1"), told))
    assert writer.written == 4
    writer.write(SotwResponse(CDS, Version("1"), Nonce("1"), one))
    assert writer.written == 5
