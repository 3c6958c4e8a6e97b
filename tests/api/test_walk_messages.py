"""Walking messages."""

from __future__ import annotations

from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.walk import messages_in
from fsxds.model.values import pointer_of

CLUSTER = "envoy.config.cluster.v3.Cluster"


def paths(catalogue: Catalogue, value: Any, message_type: str = CLUSTER) -> list[str]:
    """Return the paths of all messages within one."""
    message = Converter(catalogue).convert(value, message_type).message
    assert message is not None
    return [pointer_of(path) for path, _ in messages_in(message, catalogue)]


def test_lists_maps_and_packed_messages(catalogue: Catalogue) -> None:
    """Each has its index or key; what is packed stands where its Any does."""
    tls = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
    value = {
        "name": "a",
        "health_checks": [{"timeout": "1s"}],
        "transport_socket": {"name": "t", "typed_config": {"@type": tls, "common_tls_context": {}}},
        "metadata": {"filter_metadata": {"m": {}}},
    }
    expected = {
        "", "health_checks[0]", "health_checks[0].timeout", "transport_socket", "transport_socket.typed_config",
        "transport_socket.typed_config.common_tls_context", "metadata", "metadata.filter_metadata.m",
    }  # fmt: skip

    assert expected == set(paths(catalogue, value))


def test_maps_of_scalars_hold_no_messages(catalogue: Catalogue) -> None:
    """They are passed over."""
    value = {"cluster_name": "a", "named_endpoints": {"n": {}}, "policy": {}}
    expected = ["", "named_endpoints.n", "policy"]

    assert expected == sorted(paths(catalogue, value, "envoy.config.endpoint.v3.ClusterLoadAssignment"))


def test_what_cannot_be_read_is_passed_over(catalogue: Catalogue) -> None:
    """An Any of an unknown type, or with broken bytes, has nothing within."""
    packed = catalogue.message_class("google.protobuf.Any")
    for type_url, value in (("type.googleapis.com/no.Such", b""), (f"type.googleapis.com/{CLUSTER}", b"\xff")):
        assert [] == list(messages_in(packed(type_url=type_url, value=value), catalogue))


def test_endless_nesting_ends(catalogue: Catalogue) -> None:
    """An Any within an Any, and so on, is left at some depth."""
    packed: Any = catalogue.message_class("google.protobuf.Any")
    message = packed()
    for _ in range(300):
        message = packed(type_url="type.googleapis.com/google.protobuf.Any", value=message.SerializeToString())

    assert [] == list(messages_in(message, catalogue))
