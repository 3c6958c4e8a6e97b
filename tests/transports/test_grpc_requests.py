from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format
from google.rpc import status_pb2
from hypothesis import given
from hypothesis import strategies as st

from fsxds.errors import ProtocolError
from fsxds.protocol.streams import DeltaRequest, SotwRequest
from fsxds.resource_types import BY_SHORT_NAME
from fsxds.transports.grpc_requests import MOST_NODES, RequestReader, peer_of, without_field
from fsxds.values import Nonce, Version
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

    assert RequestReader().sotw(content, None, PEER) == SotwRequest(CDS.type_url, ("b", "a"), Version("v"), Nonce("3"))


def test_delta() -> None:
    """All that a DeltaDiscoveryRequest says of one subscription."""
    content = delta(
        type_url=CDS.type_url,
        resource_names_subscribe=["b", "a"],
        resource_names_unsubscribe=["c"],
        initial_resource_versions={"b": "1"},
        response_nonce="3",
    )

    assert RequestReader().delta(content, None, PEER) == DeltaRequest(
        CDS.type_url, ("b", "a"), ("c",), {"b": Version("1")}, Nonce("3")
    )


def test_what_is_empty_is_none() -> None:
    """An empty message says nothing but its type."""
    assert RequestReader().sotw(b"", CDS, PEER) == SotwRequest(CDS.type_url)
    assert RequestReader().delta(b"", CDS, PEER) == DeltaRequest(CDS.type_url)


@pytest.mark.parametrize("reason", ["no such filter", ""])
def test_a_rejection(reason: str) -> None:
    """An error_detail is one, also without words."""
    detail = {"code": 13, "message": reason}

    assert RequestReader().sotw(sotw(error_detail=detail), CDS, PEER).error_detail == reason
    assert RequestReader().delta(delta(error_detail=detail), CDS, PEER).error_detail == reason


def test_words_of_a_rejection_come_without_what_was_rejected() -> None:
    """Envoy prints the message that it refuses behind its reason, secrets included; nobody here gets to see it."""
    told = status_pb2.Status(message='no such file: goo.gle/debugproto  private_key { inline_string: "S3CR3T" }')

    assert RequestReader().sotw(sotw(error_detail=told), CDS, PEER).error_detail == "no such file"
    assert RequestReader().delta(delta(error_detail=told), CDS, PEER).error_detail == "no such file"


def test_a_real_envoys_node() -> None:
    """Who it is, what it can, and all else that it says of itself but its 516 extensions."""
    node = json_format.ParseDict(json.loads(REAL_REQUEST.read_bytes())["node"], base_pb2.Node())
    node.client_features.append("xds.config.supports-resource-ttl")
    assert len(node.extensions) > 500
    read = RequestReader().sotw(sotw(node=node), CDS, PEER).node
    assert read is not None

    assert (read.id, read.cluster, read.peer, read.agent) == (node.id, node.cluster, PEER, "envoy")
    assert read.features == {"xds.config.supports-resource-ttl"}
    told = base_pb2.Node.FromString(read.told)
    assert not told.extensions
    del node.extensions[:]
    assert told == node
    assert len(read.told) < 2000


def test_nodes_are_shared() -> None:
    """An Envoy that opens a stream for each of its clusters says the same node on all of them; it is kept once."""
    reader, node = RequestReader(), base_pb2.Node(id="n1")
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
        RequestReader().sotw(content, CDS, PEER)
    assert caught.value.code == "INVALID_ARGUMENT"
    with pytest.raises(ProtocolError, match=r"cannot be parsed; send a serialized .*\.DeltaDiscoveryRequest"):
        RequestReader().delta(content, CDS, PEER)


def test_the_type_of_a_method() -> None:
    """A method of one type takes no other; it may be left out."""
    reader = RequestReader()
    with pytest.raises(ProtocolError, match=r"type_url: is x, but this method serves .*\.Cluster; send that, or leave"):
        reader.sotw(sotw(type_url="x"), CDS, PEER)
    with pytest.raises(ProtocolError, match="this method serves"):
        reader.delta(delta(type_url=type_url("EDS")), CDS, PEER)

    assert reader.sotw(sotw(type_url=CDS.type_url), CDS, PEER).type_url == CDS.type_url


def test_the_type_on_an_aggregated_stream() -> None:
    """It has to be named there; which types are served is not decided here."""
    reader = RequestReader()
    with pytest.raises(ProtocolError, match="type_url: is empty; an aggregated stream"):
        reader.sotw(sotw(), None, PEER)

    assert reader.delta(delta(type_url="x"), None, PEER).type_url == "x"


def test_unknown_fields_are_ignored() -> None:
    """A newer client may say more."""
    assert RequestReader().sotw(b"\xfa\x3e\x01x", CDS, PEER) == SotwRequest(CDS.type_url)


# A node that was told before

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
nodes = st.none() | st.builds(base_pb2.Node, id=texts, cluster=texts)


@given(nodes, texts, st.lists(texts, max_size=3))
def test_a_node_that_is_not_looked_at(node: base_pb2.Node | None, version: str, names: list[str]) -> None:
    """All else that the message says is read as before."""
    reader = RequestReader()
    for content in (
        sotw(node=node, version_info=version, resource_names=names),
        sotw(node=node, resource_names=names, response_nonce=version),
    ):
        expected = replace(reader.sotw(content, CDS, PEER), node=None)
        assert reader.sotw(content, CDS, PEER, knows_node=True) == expected
    content = delta(node=node, resource_names_subscribe=names, response_nonce=version)
    assert reader.delta(content, CDS, PEER, knows_node=True) == replace(reader.delta(content, CDS, PEER), node=None)


@given(st.binary(max_size=20), st.integers(1, 2))
def test_bytes_that_may_be_no_message(content: bytes, field: int) -> None:
    """To look for a field in them is no error; what has none stays as it is."""
    shorter = without_field(content, field)

    assert len(shorter) <= len(content)
    assert shorter == content or content[:1] != b""


@pytest.mark.parametrize("content", [b"", b"\x12", b"\x12\x05abc", b"\x12\xff\xff\xff\xff\xff", b"\x08\x01\x12\x00"])
def test_what_is_cut_stays(content: bytes) -> None:
    """It is told by whoever parses it; so does what does not begin with strings or messages."""
    assert without_field(content, 2) == content


def test_the_node_of_an_envoy_is_not_parsed_again() -> None:
    """What is left of its 61 kB message takes no longer than any other."""
    node = json_format.ParseDict(json.loads(REAL_REQUEST.read_bytes())["node"], base_pb2.Node())

    assert without_field(sotw(node=node, version_info="1"), 2) == sotw(version_info="1")
    assert without_field(delta(node=node, response_nonce="1"), 1) == delta(response_nonce="1")
