from __future__ import annotations

import gc
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format
from google.rpc import status_pb2
from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.errors import ProtocolError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import Nonce, Version
from fsxds.protocol.messages import DeltaRequest, SotwRequest
from fsxds.transports.exchange import peer_of
from fsxds.transports.grpc_streams.stream_requests import (
    MOST_NAMES,
    MOST_NODE_BYTES,
    MOST_NODES,
    DeltaDiscoveryRequest,
    DiscoveryRequest,
    GrpcRequestReader,
)
from tests.support.polls import REAL_REQUEST
from tests.support.snapshots import type_url

CDS = BY_SHORT_NAME["cds"]
PEER = "192.0.2.7"


def sotw(**fields: Any) -> bytes:
    """Return a serialized DiscoveryRequest."""
    return bytes(discovery_pb2.DiscoveryRequest(**fields).SerializeToString())


def delta(**fields: Any) -> bytes:
    """Return a serialized DeltaDiscoveryRequest."""
    return bytes(discovery_pb2.DeltaDiscoveryRequest(**fields).SerializeToString())


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("ipv4:192.0.2.7:4711", "192.0.2.7"),
        ("ipv6:%5B::1%5D:4711", "::1"),
        ("ipv6:[2001:db8::1]:4711", "2001:db8::1"),
        ("unix:", ""),
        ("unix:/run/x.sock", ""),
        ("", ""),
    ],
)
def test_peers(peer: str, expected: str) -> None:
    """Of what gRPC calls a peer, the IP address is taken; a unix socket has none."""
    assert peer_of(peer) == expected


def test_sotw() -> None:
    """All that a DiscoveryRequest says of one subscription."""
    content = sotw(type_url=CDS.type_url, resource_names=["b", "a"], version_info="v", response_nonce="3")

    assert GrpcRequestReader().sotw(content, None, PEER) == SotwRequest(
        CDS.type_url, ("b", "a"), Version("v"), Nonce("3")
    )


def test_delta() -> None:
    """All that a DeltaDiscoveryRequest says of one subscription."""
    content = delta(
        type_url=CDS.type_url,
        resource_names_subscribe=["b", "a"],
        resource_names_unsubscribe=["c"],
        initial_resource_versions={"b": "1"},
        response_nonce="3",
    )

    assert GrpcRequestReader().delta(content, None, PEER) == DeltaRequest(
        CDS.type_url, ("b", "a"), ("c",), {"b": Version("1")}, Nonce("3")
    )


CLUSTER = "xdstp://x/envoy.config.cluster.v3.Cluster"


def test_structured_names() -> None:
    """Names have their canonical form; what is malformed or of another type is refused, and the others are not."""
    reader = GrpcRequestReader(authority=lambda: "x")
    written = ["web", "udpa:///envoy.config.cluster.v3.Cluster/a", f"{CLUSTER}/b c", "xdstp://bad"]
    read = reader.sotw(sotw(type_url=CDS.type_url, resource_names=written), None, PEER)
    assert read.names == ("web", f"{CLUSTER}/a", f"{CLUSTER}/b%20c", "xdstp://bad")
    assert [*read.rejected_names] == ["xdstp://bad"]

    content = delta(resource_names_subscribe=written[:2], resource_names_unsubscribe=written[2:])
    asked = reader.delta(content, CDS, PEER)
    assert (asked.subscribe, asked.unsubscribe) == (tuple(written[:2]), tuple(written[2:]))
    assert asked.canonical == {written[1]: f"{CLUSTER}/a", written[2]: f"{CLUSTER}/b%20c"}
    assert [*asked.rejected_names] == ["xdstp://bad"]


def test_names_are_shared() -> None:
    """Streams may subscribe to ten thousand names each: they hold the same strings, whatever else they subscribe to."""
    reader, name = GrpcRequestReader(), "service-000001.prod.example"
    (one, _), (other, _) = (
        reader.sotw(sotw(type_url=CDS.type_url, resource_names=[name, own]), None, PEER).names for own in "ab"
    )
    (third,) = reader.delta(delta(type_url=CDS.type_url, resource_names_subscribe=[name]), None, PEER).subscribe

    assert one is other is third


def test_what_is_empty_is_none() -> None:
    """An empty message says nothing but its type."""
    assert GrpcRequestReader().sotw(b"", CDS, PEER) == SotwRequest(CDS.type_url)
    assert GrpcRequestReader().delta(b"", CDS, PEER) == DeltaRequest(CDS.type_url)


@pytest.mark.parametrize("reason", ["no such filter", ""])
def test_a_rejection(reason: str) -> None:
    """An error_detail is one, also without words."""
    detail = {"code": 13, "message": reason}

    assert GrpcRequestReader().sotw(sotw(error_detail=detail), CDS, PEER).error_detail == reason
    assert GrpcRequestReader().delta(delta(error_detail=detail), CDS, PEER).error_detail == reason


def test_words_of_a_rejection_come_without_what_was_rejected() -> None:
    """Envoy prints the message that it refuses behind its reason, secrets included; nobody here gets to see it."""
    told = status_pb2.Status(message='no such file: goo.gle/debugproto  private_key { inline_string: "S3CR3T" }')

    assert GrpcRequestReader().sotw(sotw(error_detail=told), CDS, PEER).error_detail == "no such file"
    assert GrpcRequestReader().delta(delta(error_detail=told), CDS, PEER).error_detail == "no such file"


def test_a_real_envoys_node() -> None:
    """Who it is, what it can, and all else that it says of itself but its 516 extensions."""
    node = json_format.ParseDict(json.loads(REAL_REQUEST.read_bytes())["node"], base_pb2.Node())
    node.client_features.append("xds.config.supports-resource-ttl")
    assert len(node.extensions) > 500
    read = GrpcRequestReader().sotw(sotw(node=node), CDS, PEER).node
    assert read is not None

    assert (read.id, read.cluster, read.peer, read.agent) == (node.id, node.cluster, PEER, "envoy")
    assert read.features == {"xds.config.supports-resource-ttl"}
    told = base_pb2.Node.FromString(read.serialized)
    assert not told.extensions
    del node.extensions[:]
    assert told == node
    assert len(read.serialized) < 2000


def test_nodes_are_shared() -> None:
    """An Envoy that opens a stream for each of its clusters says the same node on all of them; it is kept once."""
    reader, node = GrpcRequestReader(), base_pb2.Node(id="n1")
    first = reader.sotw(sotw(node=node), CDS, PEER).node

    assert reader.delta(delta(node=node), CDS, PEER).node is first
    assert reader.sotw(sotw(node=node), CDS, "192.0.2.8").node is not first
    for index in range(MOST_NODES):
        reader.sotw(sotw(node=base_pb2.Node(id=f"other-{index}")), CDS, PEER)
    assert reader.sotw(sotw(node=node), CDS, PEER).node is not first


@pytest.mark.parametrize("content", [b"\xff\xff", b"\x0a\x05abc", b"\x0a\x01\xff"])
def test_what_is_no_message(content: bytes) -> None:
    """Bytes that are no message, a message that is cut, a string that is no UTF-8."""
    with pytest.raises(ProtocolError, match=r"cannot be parsed; send a serialized .*\.DiscoveryRequest") as caught:
        GrpcRequestReader().sotw(content, CDS, PEER)
    assert caught.value.code == "INVALID_ARGUMENT"
    with pytest.raises(ProtocolError, match=r"cannot be parsed; send a serialized .*\.DeltaDiscoveryRequest"):
        GrpcRequestReader().delta(content, CDS, PEER)


def test_the_type_of_a_method() -> None:
    """A method of one type takes no other; it may be left out."""
    reader = GrpcRequestReader()
    with pytest.raises(
        ProtocolError, match=r"type_url: is no type URL, but this method serves .*\.Cluster; send that, or leave"
    ):
        reader.sotw(sotw(type_url="x"), CDS, PEER)
    with pytest.raises(ProtocolError, match="this method serves"):
        reader.delta(delta(type_url=type_url("EDS")), CDS, PEER)

    assert reader.sotw(sotw(type_url=CDS.type_url), CDS, PEER).type_url == CDS.type_url


def test_the_type_on_an_aggregated_stream() -> None:
    """It has to be named there; which types are served is not decided here."""
    reader = GrpcRequestReader()
    with pytest.raises(ProtocolError, match="type_url: is empty; an aggregated stream"):
        reader.sotw(sotw(), None, PEER)

    assert reader.delta(delta(type_url="x"), None, PEER).type_url == "x"


def test_unknown_fields_are_ignored() -> None:
    """A newer client may say more."""
    assert GrpcRequestReader().sotw(b"\xfa\x3e\x01x", CDS, PEER) == SotwRequest(CDS.type_url)


# A node that was told before

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
nodes = st.none() | st.builds(base_pb2.Node, id=texts, cluster=texts)


@given(nodes, texts, st.lists(texts, max_size=3))
def test_a_node_that_is_not_looked_at(node: base_pb2.Node | None, version: str, names: list[str]) -> None:
    """All else that the message says is read as before."""
    reader = GrpcRequestReader()
    for content in (
        sotw(node=node, version_info=version, resource_names=names),
        sotw(node=node, resource_names=names, response_nonce=version),
    ):
        expected = replace(reader.sotw(content, CDS, PEER), node=None)
        assert reader.sotw(content, CDS, PEER, knows_node=True) == expected
    content = delta(node=node, resource_names_subscribe=names, response_nonce=version)
    assert reader.delta(content, CDS, PEER, knows_node=True) == replace(reader.delta(content, CDS, PEER), node=None)


def test_a_node_that_is_no_message() -> None:
    """It is refused where it is looked at, and only there."""
    content = b"\x12\x01\xff" + sotw(version_info="1")
    with pytest.raises(ProtocolError, match=r"cannot be parsed; send a serialized .*\.DiscoveryRequest"):
        GrpcRequestReader().sotw(content, CDS, PEER)

    assert GrpcRequestReader().sotw(content, CDS, PEER, knows_node=True).version_info == "1"


# Large messages


def test_the_messages_are_those_of_the_api() -> None:
    """What requests are read as has the fields of the API's own messages, by name and number."""
    for ours, theirs in (
        (DiscoveryRequest, discovery_pb2.DiscoveryRequest),
        (DeltaDiscoveryRequest, discovery_pb2.DeltaDiscoveryRequest),
    ):
        of_the_api = {field.name: (field.number, field.is_repeated) for field in theirs.DESCRIPTOR.fields}

        assert ours.DESCRIPTOR.full_name == theirs.DESCRIPTOR.full_name
        for field in ours.DESCRIPTOR.fields:
            assert of_the_api[field.name] == (field.number, field.is_repeated)


def test_a_node_that_is_too_large() -> None:
    """It is refused before it is parsed, with its size."""
    node = base_pb2.Node(id="x" * MOST_NODE_BYTES)
    with pytest.raises(
        ProtocolError, match=f"node: takes 5.* bytes, more than {MOST_NODE_BYTES}; shorten its metadata"
    ):
        GrpcRequestReader().sotw(sotw(node=node), CDS, PEER)


def test_a_large_node_is_not_kept() -> None:
    """Who says more of itself than is shown is known by its name; it is the same on all its streams."""
    reader, node = GrpcRequestReader(), base_pb2.Node(id="n1", user_agent_version="1" * 20_000)
    first = reader.sotw(sotw(node=node), CDS, PEER).node

    assert first is not None
    assert (first.id, first.serialized) == ("n1", b"")
    assert reader.delta(delta(node=node), CDS, PEER).node is first


@pytest.mark.parametrize("field", ["resource_names_subscribe", "resource_names_unsubscribe"])
def test_too_many_names(field: str) -> None:
    """A message of very many short names is refused before it is parsed: it would take twenty times its size."""
    names = [f"n{number:x}" for number in range(MOST_NAMES + 1)]
    fits = delta(**{field: names[:-1]})
    assert len(getattr(GrpcRequestReader().delta(fits, CDS, PEER), field.removeprefix("resource_names_"))) == MOST_NAMES
    with pytest.raises(
        ProtocolError, match=f"has more than {MOST_NAMES} names; ask for less, or have the setting max_names raised"
    ):
        GrpcRequestReader().delta(delta(**{field: names}), CDS, PEER)


def test_too_many_names_in_other_messages() -> None:
    """The same of a state-of-the-world request, and of the versions that a client brings."""
    names = [f"n{number:x}" for number in range(MOST_NAMES + 1)]
    for read, content in (
        (GrpcRequestReader().sotw, sotw(resource_names=names)),
        (GrpcRequestReader().delta, delta(initial_resource_versions=dict.fromkeys(names, "1"))),
    ):
        with pytest.raises(ProtocolError, match="names"):
            read(content, CDS, PEER)


MIB = 1024 * 1024


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(b"\x3a\x00", id="locators"),
        pytest.param(b"\x52\x00", id="unknown-fields"),
        pytest.param(b"\x0a\x01v", id="versions"),
        pytest.param(b"\x32\x02\x1a\x00", id="details-of-a-rejection"),
        pytest.param(b"\x12\x03\x4a\x01x", id="nodes"),
        pytest.param(b"\x1a" + bytes([61]) + b"n" * 61, id="names"),
    ],
)
def test_what_a_large_message_takes(part: bytes, size: Callable[[int, int], int]) -> None:
    """A message takes a few times its size, whatever stands in it, or is refused for its names; by night just under the limit."""
    content = part * ((size(4, 16) * MIB - 100) // len(part))
    start = Path("/proc/self/clear_refs")
    gc.collect()
    start.write_text("5")
    before = _peak_bytes()
    with suppress(ProtocolError):
        GrpcRequestReader().sotw(content, CDS, PEER)

    assert _peak_bytes() - before < 5 * len(content)


def _peak_bytes() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
