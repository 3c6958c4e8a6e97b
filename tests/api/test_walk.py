"""Messages that did not come through the converter are looked into, however deep."""

from __future__ import annotations

from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import MAX_DEPTH, Unreadable, unreadable_parts

PREFIX = "type.googleapis.com/"
TLS = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
SOCKET = "envoy.config.core.v3.TransportSocket"


def cluster(catalogue: Catalogue, type_url: str, value: bytes) -> Any:
    """Return a cluster with an Any in a field and in a map."""
    message: Any = catalogue.message_class("envoy.config.cluster.v3.Cluster")()
    message.transport_socket_matches.add().transport_socket.typed_config.type_url = type_url
    message.transport_socket_matches[0].transport_socket.typed_config.value = value
    message.typed_extension_protocol_options["a"].type_url = type_url
    message.typed_extension_protocol_options["a"].value = value
    return message


def nested(catalogue: Catalogue, depth: int) -> Any:
    """Return a transport socket in an Any in a transport socket, and so on."""
    message: Any = catalogue.message_class(SOCKET)(name="inmost")
    for _ in range(depth):
        outer: Any = catalogue.message_class(SOCKET)()
        outer.typed_config.type_url = PREFIX + SOCKET
        outer.typed_config.value = message.SerializeToString()
        message = outer
    return message


def test_what_can_be_read_is_passed(catalogue: Catalogue) -> None:
    """Known types with whole bytes are no matter."""
    assert [] == list(unreadable_parts(cluster(catalogue, PREFIX + TLS, b""), catalogue))
    assert [] == list(unreadable_parts(nested(catalogue, 30), catalogue))


def test_unknown_and_damaged_parts_are_told_with_their_place(catalogue: Catalogue) -> None:
    """Both in lists and in maps."""
    places = [
        ("transport_socket_matches", 0, "transport_socket", "typed_config"),
        ("typed_extension_protocol_options", "a"),
    ]
    unknown = sorted(unreadable_parts(cluster(catalogue, "a/no.Such", b""), catalogue), key=str)
    damaged = sorted(unreadable_parts(cluster(catalogue, PREFIX + TLS, b"\xff"), catalogue), key=str)

    assert sorted((Unreadable(place, "no.Such", is_known=False) for place in places), key=str) == unknown
    assert sorted((Unreadable(place, TLS, is_known=True) for place in places), key=str) == damaged


def test_what_nests_without_end_is_damaged(catalogue: Catalogue) -> None:
    """An Any in an Any in an Any ends at a depth, and not with the stack."""
    (part,) = unreadable_parts(nested(catalogue, 10 * MAX_DEPTH), catalogue)

    assert part.is_known
