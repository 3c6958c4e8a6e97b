"""What no decoder may do, whatever the bytes: raise, take long, or repeat a value."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fsxds.formats import FORMATS
from fsxds.formats.decoded import MAX_FAULTS, Decoded, shown
from tests.formats.reading import locate
from tests.support.costs import cost_s

PLAIN = {
    "version_info": "v1",
    "resources": [
        {
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "name": "web",
            "connect_timeout": "0.25s",
            "per_connection_buffer_limit_bytes": 32768,
            "metadata": {
                "filter_metadata": {"envoy.lb": {"canary": True, "weight": 1.5, "note": None, "text": "ä\n\"'\\"}}
            },
        }
    ],
}
YAML = """\
%YAML 1.1
---
version_info: 1.0 # a comment
resources:
- &a {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: web, !ignore x: [0755, yes]}
- <<: *a
  name: |
    text
  other: "\\u00e4\\n"
---
- ! 5
- !!str 5
...
"""
TEXT = """\
# proto-message: envoy.service.discovery.v3.DiscoveryResponse
version_info: "1"
resources {
  [type.googleapis.com/envoy.config.cluster.v3.Cluster] {
    name: 'we' "b\\n\\303\\244"
    connect_timeout < seconds: 5 >
    typed_extension_protocol_options { key: "a" value { [type.googleapis.com/google.protobuf.Empty] {} } }
  }
};
"""
SAMPLES = (json.dumps(PLAIN).encode(), json.dumps(PLAIN, indent=2).encode(), YAML.encode(), TEXT.encode())
MARKS = [
    b'"',
    b"'",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b"<",
    b">",
    b":",
    b",",
    b"\n",
    b"\t",
    b" ",
    b"- ",
    b"? ",
    b"#",
    b"&a ",
]
MARKS += [
    b"*a ",
    b"!",
    b"%",
    b"@",
    b"|",
    b"\0",
    b"\xff",
    b"\xc3",
    b"\xef\xbb\xbf",
    b"---\n",
    b"<<: ",
    b"NaN",
    b"1e999",
    b"\\ud800",
]


@st.composite
def mutations(draw):
    """A sample, cut, with pieces of it moved and marks strewn in."""
    content = bytearray(draw(st.sampled_from(SAMPLES)))
    for _ in range(draw(st.integers(1, 5))):
        start, length = draw(st.integers(0, len(content))), draw(st.integers(0, 20))
        match draw(st.sampled_from(["cut", "drop", "repeat", "mark"])):
            case "cut":
                del content[start:]
            case "drop":
                del content[start : start + length]
            case "repeat":
                content[start:start] = content[start : start + length] * draw(st.integers(1, 120))
            case "mark":
                content[start:start] = draw(st.sampled_from(MARKS))
    return bytes(content)


def check_promises(decoded):
    """A file without documents has a fault; every fault has words and a place that counts from 1."""
    assert isinstance(decoded, Decoded)
    assert decoded.documents or decoded.faults
    for fault in decoded.faults:
        assert fault.rule
        assert fault.message
        assert fault.remedy
        assert fault.line is None or (fault.line >= 1 and (fault.column or 1) >= 1)


@pytest.mark.parametrize("row", FORMATS, ids=lambda row: row.name)
@pytest.mark.parametrize("message_type", [None, "envoy.config.cluster.v3.Cluster"])
@given(content=mutations() | st.binary(max_size=60))
def test_broken_files_are_faults(catalogue, row, message_type, content):
    """No bytes make a decoder raise."""
    check_promises(row.decode(content, catalogue, message_type))


@example(b"%YAML 1.1\n---", 0, [])
@given(mutations(), st.integers(0, 2), st.lists(st.sampled_from(["resources", "name", "a", 0, 1]), max_size=6))
def test_places_are_found_in_anything(content, document, path):
    """No bytes make the search for a place raise, and a place is always within the text."""
    line, column = locate(content, document, tuple(path))

    assert 1 <= line <= content.count(b"\n") + 1
    assert column >= 1


def hard(size: int) -> dict[str, bytes]:
    """Return files that are made to be slow, of about so many bytes."""
    return {
        "brackets": b"[" * size,
        "braces": b"{" * size,
        "maps": b"{a: " * (size // 4),
        "lists": b"- " * (size // 2),
        "keys": b"? " * (size // 2),
        "quotes": b'"' * size,
        "apostrophes": b"'a\n" * (size // 3),
        "anchors": b"[" + b",".join(b"&a%d x" % number for number in range(size // 10)) + b"]",
        "aliases": b"a: &a [1]\nb: [" + b"*a, " * (size // 4) + b"]",
        "bomb": b"a0: &a0 [x, x]\n" + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (n + 1, n + 1, n, n) for n in range(60)),
        "commas": b"[" + b"," * size,
        "blanks": b"[,   " * (size // 5),
        "duplicates": b"{" + b'"a":1,' * (size // 6) + b'"a":1}',
        "deep duplicates": b'{"a":' * 90 + b"{" + b'"a":1,' * (size // 8) + b'"a":1}' + b"}" * 90,
        "documents": b"---\n" * (size // 4),
        "backslashes": b'["' + b"\\\\" * (size // 2) + b'"]',
        "halves": b'["' + b"\\ud800" * (size // 6) + b'"]',
        "words": b"{" + b"a " * (size // 2),
        "one word": b"{" + b"a" * size,
        "digits": b"[" + b"9" * size + b"]",
        "text": b'name: "' + b"a" * size + b'"',
        "texts": b"name: " + b'"a" ' * (size // 4),
        "types": b"[a/" * (size // 3),
        "fields": b"resources { }\n" * (size // 14),
    }


HUGE, LESS = hard(1 << 16), hard(1 << 13)


@pytest.mark.parametrize("row", FORMATS, ids=lambda row: row.name)
@pytest.mark.parametrize("name", HUGE)
def test_hard_files_are_quick(catalogue, row, name):
    """64 KiB made to be slow take no time that grows with its square: eight times as much would be 64 times."""

    def decode(content):
        locate(content, 0, ("a", 0, "b"))
        return row.decode(content, catalogue, "envoy.config.cluster.v3.Cluster")

    decoded = decode(HUGE[name])

    assert cost_s(lambda: decode(HUGE[name])) < 24 * cost_s(lambda: decode(LESS[name]))
    assert len(decoded.faults) <= 2 * MAX_FAULTS + 1


def test_shown_names_are_short_and_printable():
    """A name is repeated up to a length, without control characters."""
    assert ['"a"', f'"{"b" * 39}…"', '"?c"'] == [shown("a"), shown("b" * 41), shown("\x1bc")]
