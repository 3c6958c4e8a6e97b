from __future__ import annotations

import json
from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2
from hypothesis import given
from hypothesis import strategies as st

from fsxds.protocol.messages import MOST_KEPT_NODE_BYTES, Node
from fsxds.transports.client_status.contents import node_message
from fsxds.transports.rest.poll_requests import serialized_node
from tests.support.polls import REAL_REQUEST

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(), parts, max_size=3),
    max_leaves=8,
)
FIELDS = sorted({"clientFeatures", "userAgentVersion", *base_pb2.Node.DESCRIPTOR.fields_by_name})


def nested(levels: int) -> dict[str, Any]:
    """Make metadata of so many levels."""
    metadata: dict[str, Any] = {}
    for _ in range(levels):
        metadata = {"a": metadata}
    return metadata


def test_the_node_of_an_envoy_is_kept_without_its_extensions() -> None:
    """Some hundred bytes of 61 kB."""
    sent = json.loads(REAL_REQUEST.read_bytes())["node"]
    told = serialized_node(sent)
    message = base_pb2.Node.FromString(told)

    assert len(told) < 1000
    assert (message.id, message.cluster, message.user_agent_name) == ("n1", "c1", "envoy")
    assert dict(message.metadata.items()) == sent["metadata"]
    assert message.locality.zone == sent["locality"]["zone"]
    assert not message.extensions


def test_both_spellings_are_read() -> None:
    """As everywhere in proto JSON; what is unknown is left out."""
    told = serialized_node({"clientFeatures": ["a"], "user_agent_version": "1", "unknown": 1})

    assert base_pb2.Node.FromString(told) == base_pb2.Node(client_features=["a"], user_agent_version="1")


@pytest.mark.parametrize(
    "node",
    [{"metadata": []}, {"locality": 1}, {"metadata": nested(200)}, {"metadata": nested(100_000)}, {"id": "\ud800"}],
)
def test_what_cannot_be_read_is_not_kept(node: dict[str, Any]) -> None:
    """A poll is answered all the same."""
    assert serialized_node(node) == b""


def test_a_very_large_node_is_not_kept() -> None:
    """Thousands of clients are remembered."""
    fitting = {"id": "x" * (MOST_KEPT_NODE_BYTES - len(json.dumps({"id": ""})))}

    assert serialized_node(fitting)
    assert serialized_node({"id": f"{fitting['id']}x"}) == b""


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3))
def test_no_node_breaks_a_poll(node: dict[str, Any]) -> None:
    """Whatever JSON stands there, it is kept or not; and what is kept can be shown."""
    told = serialized_node(node)

    assert node_message(Node("x", serialized=told)).SerializeToString(deterministic=True) is not None


def test_a_node_is_shown_as_it_was_told() -> None:
    """All of it."""
    told = base_pb2.Node(id="a", user_agent_name="envoy")

    assert node_message(Node("a", serialized=told.SerializeToString())) == told


def test_a_node_of_which_nothing_was_kept_is_shown_as_it_is_known() -> None:
    """By its id, cluster and features."""
    expected = base_pb2.Node(id="a", cluster="c", client_features=["x", "y"])

    assert node_message(Node("a", "c", "10.0.0.1", frozenset({"y", "x"}))) == expected


def test_a_node_that_cannot_be_read_again_is_shown_as_it_is_known() -> None:
    """JSON allows more levels than protobuf reads."""
    told = serialized_node({"id": "a", "metadata": nested(45)})

    assert told
    assert node_message(Node("a", serialized=told)) == base_pb2.Node(id="a")
