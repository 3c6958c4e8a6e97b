"""Why a stream ended, as it is told."""

from __future__ import annotations

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.any_pb2 import Any as PackedAny
from xds.core.v3.resource_locator_pb2 import ResourceLocator
from xds.core.v3.resource_name_pb2 import ResourceName

from fsxds.client.updates import Update, UpdateContents, lost_by, read_wrapper, targets_of
from fsxds.model.values import Nonce, Version
from tests.support.snapshots import type_url

_ALL_FAILED = "failed to connect to all addresses; last error:"


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (
            f"{_ALL_FAILED} UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: connect: Connection refused (111)",
            "cannot connect: Connection refused (111)",
        ),
        (
            "errors resolving x:1: [field:hostname lookup error:address lookup failed for x:1: Domain name not found]",
            "cannot connect: Domain name not found",
        ),
        ("failed to connect to all addresses", 'the server ended the stream: UNAVAILABLE, "failed to connect'),
        ("", "the server ended the stream: UNAVAILABLE"),
        ("two\n  lines", 'the server ended the stream: UNAVAILABLE, "two lines"'),
    ],
)
def test_words_of_a_lost_connection(details: str, words: str) -> None:
    """Of gRPC's nested words, the innermost are told."""
    assert str(lost_by(grpc.StatusCode.UNAVAILABLE, details, "/s/m")).startswith(words)


def test_redirects_are_taken_in_with_where_they_lead() -> None:
    """A payload that is a locator or a name is a redirect; what it leads to is asked for next; a malformed one is a fault."""
    target = "xdstp://far/envoy.config.cluster.v3.Cluster/t"
    contents = UpdateContents(type_url("CDS"))
    fields = {"authority": "far", "resource_type": "envoy.config.cluster.v3.Cluster", "id": "t"}
    for name, payload in (("a", ResourceLocator(**fields)), ("b", ResourceName(**fields)), ("c", ResourceName())):
        packed = PackedAny()
        packed.Pack(payload)
        read_wrapper(discovery_pb2.Resource(name=name, version="1", resource=packed), contents)
    update = Update(contents.type_url, Version("1"), Nonce("1"), contents.frozen())

    assert {name: one.redirect for name, one in contents.resources.items()} == {"a": target, "b": target}
    assert list(targets_of(update)) == [target, target]
    assert len(contents.faults) == 1
