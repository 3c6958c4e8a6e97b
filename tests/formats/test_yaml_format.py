"""YAML files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.formats.yaml_format import decode, encode
from tests.formats.reading import values_of

TRICKY = [
    *("yes", "y", "N", "off", "true", "null", "~", "", "1_000", "2024-01-01", "0755", "08", "1:30", "1e3", ".5", "1."),
    *("5", "-5", "+5", "0x1F", "3000000000", "9223372036854775808", ".inf", "1e400", "<<", "=", "a: b", "- a", "#x"),
    *(
        "x #y",
        "!foo",
        "&a",
        "*a",
        "%a",
        "@a",
        "`a",
        "{a}",
        "[a]",
        "?",
        "? a",
        ":",
        "a:",
        "---",
        "...",
        "|",
        ">",
        "'",
        '"',
    ),
    *(
        "\\",
        "a\nb",
        "a\n",
        "\n",
        "\n\n",
        "a\n\n",
        "\na",
        " a",
        "a ",
        "\t",
        "a\tb",
        "\r\n",
        "\u2028x",
        "\x85",
        "\x7f",
        "\x1b",
        "\ufeffx",
        "😀",
    ),
    *("-----BEGIN KEY-----\nabc\n-----END KEY-----\n", "a b " * 60, "x" * 300),
]


def struct_of(catalogue):
    """Return an empty Metadata and the struct in it that texts go into."""
    message = catalogue.message_class("envoy.config.core.v3.Metadata")()
    return message, message.filter_metadata["x"]


@pytest.mark.parametrize("text", TRICKY)
def test_texts_stay_texts(catalogue, printer, text):
    """Every text is quoted so that it is read back as that text, as a value and as a key."""
    message, struct = struct_of(catalogue)
    struct.fields[text].string_value = text

    decoded = decode(encode(message, printer), catalogue, None)

    assert {"filter_metadata": {"x": {text: text}}} == values_of(decoded)[0]
    assert type(values_of(decoded)[0]["filter_metadata"]["x"][text]) is str
    assert decoded.faults == ()


@given(texts=st.lists(st.text(), max_size=5))
def test_any_text_stays_itself(catalogue, printer, texts):
    """Whatever the text, it is read back."""
    message, struct = struct_of(catalogue)
    for number, text in enumerate(texts):
        struct.fields[str(number)].string_value = text

    (value,) = values_of(decode(encode(message, printer), catalogue, None))

    assert dict(enumerate(texts)) == {int(key): text for key, text in value["filter_metadata"]["x"].items()}


def test_whole_numbers_are_written_whole(catalogue, printer):
    """A number of a Struct without a fraction is one to Envoy only when it is written so."""
    message, struct = struct_of(catalogue)
    for name, number in (("a", 5.0), ("b", 0.5), ("c", -2147483647.0)):
        struct.fields[name].number_value = number

    assert encode(message, printer).decode().split() == [
        "filter_metadata:",
        "x:",
        "a:",
        "5",
        "b:",
        "0.5",
        "c:",
        "-2147483647",
    ]


def test_nothing_is_an_alias(catalogue, printer):
    """Equal parts are written twice, in the order of their fields."""
    message = catalogue.message_class("envoy.config.cluster.v3.Cluster")(name="a", alt_stat_name="a")
    message.connect_timeout.seconds = 1

    assert encode(message, printer) == b"name: a\nconnect_timeout: 1s\nalt_stat_name: a\n"


def test_a_byte_order_mark_is_fine(catalogue):
    """Envoy takes one in YAML."""
    assert values_of(decode(b"\xef\xbb\xbfa: 1", catalogue, None)) == [{"a": 1}]


def test_bytes_that_are_no_text(catalogue):
    """Bad UTF-8 is a fault with its place."""
    (fault,) = decode(b"a: \xff", catalogue, None).faults

    assert ("bad-encoding", 1, 4) == (fault.rule, fault.line, fault.column)
