from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format

from fsxds.client.polls import plain_node
from fsxds.client.updates import node_message
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.protocol.messages import (
    LONGEST_ATTRIBUTE,
    MOST_ATTRIBUTE_BYTES,
    Node,
    attributes_of_json,
    attributes_of_message,
    metadata_of,
)
from fsxds.transports.grpc_streams.stream_requests import GrpcRequestReader
from fsxds.transports.rest.poll_requests import RestRequestReader
from tests.support.polls import envoy_catalogue

CATALOGUE = envoy_catalogue()

CDS = BY_SHORT_NAME["cds"]
METADATA: dict[str, Any] = {
    "tier": "gold",
    "weight": 3,
    "share": 0.5,
    "is_canary": True,
    "labels": {"app": {"name": "shop"}, "app.kubernetes.io/name": "shop"},
    "nothing": None,
    "empty": "",
    "several": ["a", "b"],
}
KNOWN = (
    ("metadata.is_canary", "true"),
    ("metadata.labels.app.kubernetes.io/name", "shop"),
    ("metadata.labels.app.name", "shop"),
    ("metadata.share", "0.5"),
    ("metadata.tier", "gold"),
    ("metadata.weight", "3"),
)


def as_message(node: dict[str, Any]) -> base_pb2.Node:
    """Return a node in JSON as protobuf."""
    return json_format.ParseDict(node, base_pb2.Node())


def read_both(node: dict[str, Any]) -> tuple[Node, Node]:
    """Return a node as it is read of a REST poll, and of a stream."""
    body = json.dumps({"node": node}).encode()
    polled = RestRequestReader(CATALOGUE).read(body, CDS, "", from_envoy=True).node
    request = discovery_pb2.DiscoveryRequest(node=as_message(node))
    streamed = GrpcRequestReader().sotw(request.SerializeToString(), CDS, "").node
    assert streamed is not None
    return polled, streamed


def test_metadata_of_both_forms() -> None:
    """Texts, numbers and truth values of metadata are known by their names, nested ones with dots."""
    assert KNOWN == attributes_of_json("", {}, METADATA)
    assert KNOWN == attributes_of_message(as_message({"metadata": METADATA}))


@pytest.mark.parametrize(
    "node",
    [
        {"id": "n", "cluster": "c", "metadata": METADATA, "user_agent_name": "envoy"},
        {"id": "n", "locality": {"region": "r", "zone": "z", "sub_zone": "s"}, "user_agent_version": "1.2"},
        {"id": "n", "user_agent_build_version": {"version": {"major_number": 1, "minor_number": 40, "patch": 2}}},
        {"id": "n", "user_agent_build_version": {"version": {"major_number": 1}}},
        {"id": "n"},
    ],
)
def test_transports_agree(node: dict[str, Any]) -> None:
    """A node has the same attributes on streams and polls."""
    polled, streamed = read_both(node)

    assert polled == streamed


def test_a_large_node_has_its_attributes() -> None:
    """Of a node that is too large to be kept, what rules match is known: long values and lists are not."""
    annotations = {f"last-applied-{number}": "x" * 30_000 for number in range(10)}
    polled, streamed = read_both({"id": "n", "metadata": {"annotations": annotations, **METADATA}})

    assert KNOWN == polled.attributes == streamed.attributes
    assert b"" == polled.serialized == streamed.serialized


def test_what_is_kept_is_small() -> None:
    """Of a hostile node a few kilobytes are kept: those that are less deep, and no long ones."""
    wide = {f"key{number}": {"a": "b" * 100} for number in range(1000)} | {"tier": "gold"}
    deep: dict[str, Any] = {"end": "x"}
    for _ in range(500):
        deep = {"d" * 10: deep}

    for metadata in (
        wide,
        {"x": {str(number): "y" for number in range(10_000)}},
        deep,
        {"k" * 2000: "v", "v": "k" * 2000},
    ):
        attributes = attributes_of_json("v" * 10_000, {"region": "r" * 10_000}, metadata)
        assert sum(len(name) + len(value) for name, value in attributes) <= MOST_ATTRIBUTE_BYTES
        assert all(len(value) <= LONGEST_ATTRIBUTE for _, value in attributes)


def test_those_less_deep_come_first() -> None:
    """A value at the top is known, whatever stands before it further down."""
    metadata = {"labels": {f"label{number}": "x" * 100 for number in range(1000)}, "tier": "gold"}

    assert "gold" == dict(attributes_of_json("", {}, metadata))["metadata.tier"]
    nested = {"own": {"tier": "gold"}, "others": {"labels": metadata["labels"]}}
    assert "gold" == dict(attributes_of_json("", {}, nested))["metadata.own.tier"]


def test_equal_attributes_are_shared() -> None:
    """Nodes that differ in their ids alone hold the same attributes once."""
    one, two = attributes_of_json("", {}, {"a": "b"}), attributes_of_json("", {}, {"a": "b"})

    assert one is two


def test_attributes_are_not_logged() -> None:
    """What an operator writes into metadata may be a secret: a node is shown without."""
    assert "hush" not in repr(Node("n", attributes=(("metadata.token", "hush"),)))


@pytest.mark.parametrize(
    "node",
    [
        {"metadata": 5, "locality": "x"},
        {"locality": {"region": 5}},
        {"user_agent_build_version": {"version": {"patch": "x"}}},
    ],
)
def test_what_is_no_node_has_no_attributes(node: dict[str, Any]) -> None:
    """A poll of a strange node is answered as ever."""
    body = json.dumps({"node": {"id": "n", "user_agent_name": "envoy", **node}}).encode()
    found = RestRequestReader(CATALOGUE).read(body, CDS, "", from_envoy=True).node.attributes

    assert found in ((), (("locality.region", "5"),))


@pytest.mark.parametrize(
    "metadata", [{}, {"tier": "gold"}, {"labels": {"app": "shop", "tier": {"name": "x"}}, "a": "b"}]
)
def test_clients_send_the_metadata_of_their_node(metadata: dict[str, Any]) -> None:
    """What a client of ours says of its node is what the server reads of it, on streams and polls."""
    node = Node("n", "c", agent="me", attributes=attributes_of_json("", {}, metadata))
    request = discovery_pb2.DiscoveryRequest(node=node_message(node))
    body = json.dumps({"node": plain_node(node)}).encode()

    assert metadata == metadata_of(node.attributes)
    assert node == replace(
        GrpcRequestReader().sotw(request.SerializeToString(), CDS, "").node or Node(""), serialized=b""
    )
    assert node == RestRequestReader(CATALOGUE).read(body, CDS, "", from_envoy=False).node


def test_keys_that_contradict_each_other() -> None:
    """A value that is an object too stays a value."""
    assert {"a": "1"} == metadata_of([("metadata.a", "1"), ("metadata.a.b", "2"), ("locality.region", "r")])


def test_keys_that_are_no_text() -> None:
    """JSON may write half of a surrogate pair; a name with one cannot be encoded, and is left out."""
    assert (("metadata.b.c", "2"),) == attributes_of_json("", {}, {"\ud800": "1", "b": {"\ud800": "1", "c": "2"}})


def test_no_client_can_name_its_view() -> None:
    """What chooses a view outright is no attribute that a client can send."""
    polled, streamed = read_both({"id": "n", "metadata": {"view": "edge"}, "locality": {"region": "view"}})

    assert {"metadata.view", "locality.region"} == set(dict(polled.attributes)) == set(dict(streamed.attributes))


def test_values_that_are_not_set() -> None:
    """A client may send a value of no kind, at any depth; it is left out, and the others are there."""
    node = base_pb2.Node()
    node.metadata.fields["deep"].struct_value.fields["unset"].SetInParent()
    node.metadata.fields["deep"].struct_value.fields["tier"].string_value = "edge"
    node.metadata.fields["deep"].struct_value.fields["list"].list_value.values.add()
    node.metadata.fields["none"].SetInParent()

    assert dict(attributes_of_message(node)) == {"metadata.deep.tier": "edge"}
