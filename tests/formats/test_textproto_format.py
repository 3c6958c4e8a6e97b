"""Text format files."""

import pytest
from google.protobuf.text_format import MessageToString

from fsxds.formats.documents import PlainDocument
from fsxds.formats.textproto_format import decode, encode
from tests.formats.reading import messages_of

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
    (message,) = messages_of(decode(text.encode(), catalogue, hint))

    assert expected == message.DESCRIPTOR.full_name


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
        ("type: NONE", "wrong-value", (1, 7)),
        ('name: "a" name: "b"', "duplicate-field", (1, 17)),
        ("cluster_type {} type: EDS", "oneof-conflict", (1, 17)),
        ("connect_timeout { seconds: x }", "wrong-value", (1, 28)),
        ("connect_timeout: 5", "bad-syntax", (1, 18)),
        ("connect_timeout { seconds: 1", "bad-syntax", (1, 28)),
        ("respect_dns_ttl: maybe", "wrong-value", (1, 18)),
        ("{", "bad-syntax", (1, 1)),
        ("\n[a.b]: 1", "unknown-field", (2, 4)),
        ("load_assignment { policy { overprovisioning_factor { value: 99999999999 } } }", "wrong-value", (1, 61)),
        ('name: "\\377"', "wrong-value", (1, 13)),
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
        (
            "resources {\n [type.googleapis.com/envoy.config.cluster.v2.Cluster] {} }",
            None,
            2,
            f"did you mean {CLUSTER}?",
        ),
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


def test_a_message_that_cannot_be_packed(catalogue):
    """What text_format reads and protobuf cannot serialize is a fault."""
    text = "typed_config { [type.googleapis.com/google.protobuf.UninterpretedOption.NamePart] {} }"

    assert fault_of(catalogue, text, "envoy.config.core.v3.TypedExtensionConfig").rule == "bad-syntax"


def test_damaged_bytes_in_an_any_stay(catalogue):
    """An Any may be written as bytes; whether they are of its type is for others to judge."""
    text = f'resources {{ type_url: "type.googleapis.com/{CLUSTER}" value: "\\377" }}'

    (message,) = messages_of(decode(text.encode(), catalogue, None))

    assert message.resources[0].value == b"\xff"


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
    assert [response(catalogue)] == messages_of(decode(content, catalogue, None))


def test_equal_texts_make_equal_bytes(catalogue):
    """Maps inside of an Any are serialized in one order, whatever the order of the text."""
    entries = [f'filter_metadata {{ key: "k{n}" value {{}} }}' for n in range(30)]
    texts = [
        f"resources {{ [type.googleapis.com/envoy.config.core.v3.Metadata] {{ {' '.join(order)} }} }}"
        for order in (entries, reversed(entries))
    ]

    one, other = (messages_of(decode(text.encode(), catalogue, None))[0] for text in texts)

    assert one.resources[0].value == other.resources[0].value
    assert MessageToString(one, descriptor_pool=catalogue.pool) == MessageToString(
        other, descriptor_pool=catalogue.pool
    )
