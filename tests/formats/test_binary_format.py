"""Binary files."""

import pytest

from fsxds.formats.binary_format import decode, encode
from tests.formats.reading import messages_of

RESPONSE = "envoy.service.discovery.v3.DiscoveryResponse"


def response(catalogue):
    """Return a response with two clusters."""
    message = catalogue.message_class(RESPONSE)(version_info="1")
    for name in ("a", "b"):
        cluster = catalogue.message_class("envoy.config.cluster.v3.Cluster")(name=name)
        message.resources.add().Pack(cluster)
    return message


def test_round_trip(catalogue, printer):
    """What is written is read back."""
    message = response(catalogue)

    decoded = decode(encode(message, printer), catalogue, None)

    assert ([message], ()) == (messages_of(decoded), decoded.faults)


def test_maps_are_written_in_one_order(catalogue, printer):
    """Equal messages have equal bytes, whatever the order in which they were filled."""
    metadata = catalogue.message_class("envoy.config.core.v3.Metadata")
    one, other = metadata(), metadata()
    names = [f"n{n}" for n in range(20)]
    for message, order in ((one, names), (other, reversed(names))):
        for name in order:
            message.filter_metadata[name].fields["x"].number_value = 1

    assert encode(one, printer) == encode(other, printer)


def test_an_empty_file_is_no_response(catalogue):
    """Envoy would delete everything."""
    decoded = decode(b"", catalogue, None)

    assert ((), ["empty-file"]) == (decoded.documents, [fault.rule for fault in decoded.faults])


def test_a_truncated_file_is_no_response(catalogue, printer):
    """A file that ends within a resource is refused, wherever it ends."""
    message = response(catalogue)
    content = encode(message, printer)
    first = len(content) - message.resources[1].ByteSize()

    for length in range(first, len(content)):
        assert decode(content[:length], catalogue, None).documents == ()


@pytest.mark.parametrize(
    "content", [b"garbage", b"\x9a\x06\x01a", b"\x08\x01", b"\0", b'{"resources": []}', b"resources {}"]
)
def test_other_bytes_are_no_response(catalogue, content):
    """Text, garbage and other messages are refused."""
    decoded = decode(content, catalogue, None)

    assert ((), ["bad-syntax"]) == (decoded.documents, [fault.rule for fault in decoded.faults])


def test_unknown_types_stay(catalogue):
    """What is inside of an Any is not this room's business."""
    message = catalogue.message_class(RESPONSE)()
    message.resources.add(type_url="type.googleapis.com/no.such.Type", value=b"x")

    assert [message] == messages_of(decode(message.SerializeToString(), catalogue, None))
