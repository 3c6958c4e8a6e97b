"""JSON files."""

import json

import pytest

from fsxds.formats.decoded import PlainDocument
from fsxds.formats.json_format import decode, encode
from tests.formats.reading import values_of


def faults_of(catalogue, content):
    """Return the faults of a file that is not read."""
    decoded = decode(content, catalogue, None)
    assert decoded.documents == ()
    return [(fault.rule, fault.line, fault.column) for fault in decoded.faults]


@pytest.mark.parametrize("content", [b'{"a": [1, "b"]}', b"{a: [1, 'b',],}"])
def test_strict_and_lenient(catalogue, content):
    """Strict JSON and Envoy's liberties give the same value."""
    assert decode(content, catalogue, None).documents == (PlainDocument({"a": [1, "b"]}, 1),)


def test_lines_of_a_lenient_file(catalogue):
    """Items and duplicates have their lines in a lenient file too."""
    decoded = decode(b"{resources: [\n{a: 1,},\n{b: 1,\nb: 2}]}", catalogue, None)

    assert [((2, 3), 4, ("resources", 1, "b"))] == [
        (document.item_lines, fault.line, fault.field_path)
        for document, fault in zip(decoded.documents, decoded.faults, strict=True)
    ]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"\xef\xbb\xbf{}", ("bad-encoding", 1, 1)),
        (b'{"a": "\xff"}', ("bad-encoding", 1, 8)),
        (b'{"a": 1\n // note\n}', ("bad-syntax", 2, 2)),
        (b'# note\n{"a": 1}', ("bad-syntax", 1, 1)),
        (b'{"a" 1}', ("bad-syntax", 1, 6)),
        (b'{"a": tru}', ("bad-syntax", 1, 7)),
        (b'{"a": "b\n"}', ("bad-syntax", 1, 9)),
        (b"a: 1", ("bad-syntax", 1, 1)),
        (b"{}{}", ("bad-syntax", 1, 3)),
        (b"{a: NaN}", ("bad-number", 1, 7)),
        (b"[" * 100_000, ("too-deep", 1, 101)),
    ],
)
def test_faults(catalogue, content, fault):
    """What is neither strict nor lenient JSON is told in json's words, at its place in the file."""
    assert [fault] == faults_of(catalogue, content)


def test_messages_do_not_repeat_values(catalogue):
    """A private key in a broken text stays there."""
    for content in (
        b'{"a": "SECRET}',
        b'{"a": SECRET}',
        b'{"a": "SECRET\\q"}',
        b"{'a': 'SECRET' 'SECRET'}",
        b'["SECRET"',
    ):
        (fault,) = decode(content, catalogue, None).faults

        assert "SECRET" not in fault.message + fault.remedy


def test_every_fault_of_syntax_has_a_remedy_of_its_own(catalogue):
    """The remedy fits the fault."""
    texts = (b"[1 2]", b"{1}", b'{"a"}', b"[tru]", b'["', b'["\t"]', b'["\\q"]', b"1 1", b"/**/")
    remedies = {fault.remedy for text in texts for fault in decode(text, catalogue, None).faults}

    assert len(texts) == len(remedies)
    assert "correct the JSON here" not in remedies


def test_encode(catalogue, printer):
    """A message is written for people, and as text that needs no escapes."""
    message = catalogue.message_class("envoy.config.cluster.v3.Cluster")(name="ä")
    message.per_connection_buffer_limit_bytes.value = 5

    content = encode(message, printer)

    assert content == '{\n  "name": "ä",\n  "per_connection_buffer_limit_bytes": 5\n}\n'.encode()
    assert json.loads(content) == values_of(decode(content, catalogue, None))[0]
