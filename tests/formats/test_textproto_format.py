"""Text format files."""

import pytest

from fsxds.api.converter import Converter
from fsxds.formats.decoded import PlainDocument
from fsxds.formats.textproto_format import decode, encode
from tests.formats.reading import values_of

CLUSTER = "envoy.config.cluster.v3.Cluster"
RESPONSE = "envoy.service.discovery.v3.DiscoveryResponse"
WRAPPER = "envoy.service.discovery.v3.Resource"
ANY_CLUSTER = f'[type.googleapis.com/{CLUSTER}] {{ name: "a" }}'


def fault_of(catalogue, text, message_type=CLUSTER):
    """Return the one fault of a text that is not read."""
    decoded = decode(text.encode(), catalogue, message_type)
    (fault,) = decoded.faults
    assert decoded.documents == ()
    return fault


@pytest.mark.parametrize(
    ("text", "hint", "expected"),
    [
        ('name: "a"', CLUSTER, CLUSTER),
        (f'# proto-message: {CLUSTER}\nname: "a"', None, CLUSTER),
        (f'# a\n#proto-message:{CLUSTER}\nname: "a"', "envoy.config.listener.v3.Listener", CLUSTER),
        (f"resources {{ {ANY_CLUSTER} }}", None, RESPONSE),
        (f"resources: {{ {ANY_CLUSTER} }}", CLUSTER, RESPONSE),
        (f"resources: [{{ {ANY_CLUSTER} }}]", CLUSTER, RESPONSE),
        ('version_info: "1"', CLUSTER, RESPONSE),
        ('type_url: "a"', None, RESPONSE),
        ('version_info: "1"', "no.such.Type", RESPONSE),
        (f'name: "a"\nresource {{ {ANY_CLUSTER} }}', CLUSTER, WRAPPER),
        (f"resource < {ANY_CLUSTER} >", None, WRAPPER),
    ],
)
def test_which_message_it_is(catalogue, text, hint, expected):
    """The header names the message, else fields that are a response's or a wrapper's, else the file's name."""
    (value,) = values_of(decode(text.encode(), catalogue, hint))
    unnamed = RESPONSE if "resources" in value else WRAPPER

    assert expected == value.get("@type", unnamed).removeprefix("type.googleapis.com/")


def test_lines(catalogue):
    """The document and its `resources` blocks know their lines."""
    text = f'# a\n\nversion_info: "resources {{"\nresources {{\n {ANY_CLUSTER}\n}} resources {{}}\n\nresources: <>\n'

    (document,) = decode(text.encode(), catalogue, None).documents

    assert (3, (4, 6, 8)) == (document.line, document.item_lines)


@pytest.mark.parametrize("text", ["", "\n \n", "# nothing\n  # here"])
def test_empty_files(catalogue, text):
    """A file without fields is a document without a value."""
    assert decode(text.encode(), catalogue, CLUSTER).documents == (PlainDocument(None, 1),)


@pytest.mark.parametrize(
    ("text", "rule", "place"),
    [
        ('nam: "a"', "unknown-field", (1, 1)),
        ('name: "a"\nconnect_timeout { secs: 1 }', "unknown-field", (2, 19)),
        ("name: a", "wrong-value", (1, 7)),
        ('name: "a', "bad-syntax", (1, 7)),
        ('name: "a" name: "b"', "duplicate-field", (1, 17)),
        ("connect_timeout { seconds: x }", "wrong-value", (1, 28)),
        ("connect_timeout: 5", "bad-syntax", (1, 18)),
        ("connect_timeout { seconds: 1", "bad-syntax", (1, 29)),
        ("respect_dns_ttl: maybe", "wrong-value", (1, 18)),
        ("{", "bad-syntax", (1, 1)),
        ("\n[a.b]: 1", "unknown-field", (2, 1)),
        ('name: "\\377"', "wrong-value", (1, 7)),
        ('name: "\\q"', "bad-syntax", (1, 7)),
        ("connect_timeout { seconds: {} }", "wrong-value", (1, 28)),
        ("metadata { filter_metadata { key: 1 } }", "wrong-value", (1, 35)),
        ("a {" * 200, "too-deep", (1, 303)),
        ("\x00", "bad-encoding", (1, 1)),
    ],
)
def test_faults(catalogue, text, rule, place):
    """A fault has a rule, a place and a remedy."""
    fault = fault_of(catalogue, text)

    assert (rule, *place) == (fault.rule, fault.line, fault.column)
    assert fault.remedy


@pytest.mark.parametrize(
    ("text", "hint", "line", "remedy"),
    [
        ("# proto-message: no.such.Type\na: 1", None, 1, "--envoy"),
        ("# a\n# proto-message: envoy.config.cluster.v2.Cluster\na: 1", None, 2, f"did you mean {CLUSTER}?"),
        ("a: 1", "no.such.Type", 1, "--envoy"),
    ],
)
def test_unknown_types(catalogue, text, hint, line, remedy):
    """A type that the API lacks is named with its line, and with the one that was meant."""
    fault = fault_of(catalogue, text, hint)

    assert ("unknown-type", line) == (fault.rule, fault.line)
    assert remedy in fault.remedy


def test_a_message_that_nothing_names(catalogue):
    """Without header, telling fields or a telling name the message is not guessed."""
    assert fault_of(catalogue, '\nname: "a"', None).rule == "missing-type"


@pytest.mark.parametrize(
    "text",
    [
        *(
            'name: "SECRET',
            'name: "SECRET" x: 1',
            "name: SECRET",
            'connect_timeout { seconds: "SECRET" }',
            'x "SECRET"',
        ),
        *('name: "SECRET" name: "SECRET"', 'name: "SECRET" }', 'type: "SECRET"', 'respect_dns_ttl: "SECRET"'),
        *('name: "SECRET\\377"', '"SECRET"', 'name "SECRET"', 'transport_socket { typed_config { ["SECRET"] {} } }'),
    ],
)
def test_messages_do_not_repeat_values(catalogue, text):
    """A private key in a broken text stays there."""
    fault = fault_of(catalogue, text)

    assert "SECRET" not in fault.message + fault.remedy


def test_damaged_bytes_in_an_any(catalogue):
    """An Any may be written as bytes, which must be a message of its type."""
    text = f'resources {{ type_url: "type.googleapis.com/{CLUSTER}" value: "\\377" }}'

    assert "broken-message" == fault_of(catalogue, text, None).rule


def test_all_faults_are_told(catalogue):
    """Reading goes on behind a fault."""
    text = 'nmae: "a"\ntype: { }\n'
    more = 'nmae: [{ a: 1 }, 2]\nrespect_dns_ttl: 7\nname: "a"\nname: "b"\n'

    assert ["unknown-field", "wrong-value"] == [
        fault.rule for fault in decode(text.encode(), catalogue, CLUSTER).faults
    ]
    assert [("unknown-field", 1), ("wrong-value", 2), ("duplicate-field", 4)] == [
        (fault.rule, fault.line) for fault in decode(more.encode(), catalogue, CLUSTER).faults
    ]


def response(catalogue):
    """Return a response with a cluster that has messages inside of Any, two deep."""
    cluster = catalogue.message_class(CLUSTER)(name="ä\n")
    socket = catalogue.message_class("envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer")()
    cluster.transport_socket.typed_config.Pack(socket)
    message = catalogue.message_class(RESPONSE)(version_info="1")
    message.resources.add().Pack(cluster)
    return message


def test_round_trip(catalogue, printer):
    """What is written is read back, and messages inside of Any are written out."""
    content = encode(response(catalogue), printer)

    assert b"\xc3\xa4" in content
    assert b"[type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer]" in content
    assert content.endswith(b"\n")
    assert [response(catalogue)] == [
        Converter(catalogue).convert(value, RESPONSE).message for value in values_of(decode(content, catalogue, None))
    ]
