"""The reader of text format, held against protobuf's own."""

from __future__ import annotations

import random

import pytest
from google.protobuf import text_format

from fsxds.api.converter import Converter
from fsxds.api.fields import SPECIAL_JSON
from fsxds.formats.textproto_format import TextprotoReader
from fsxds.formats.textproto_tokens import Cursor
from tests.api.samples import SAMPLES

CLUSTER = "envoy.config.cluster.v3.Cluster"
PREFIX = "type.googleapis.com/"
# A text is a message with fields in JSON, too.
MESSAGES = [sample for sample in SAMPLES if str(sample["@type"]).removeprefix(PREFIX) not in SPECIAL_JSON]
STYLES: tuple[dict[str, bool], ...] = (
    {},
    {"as_one_line": True},
    {"pointy_brackets": True},
    {"use_short_repeated_primitives": True},
    {"as_utf8": True, "use_index_order": True},
)


def read(catalogue, text, message_type=CLUSTER):
    """Return the message of a text, or None."""
    cursor = Cursor(text)
    fields = TextprotoReader(cursor, catalogue).read(catalogue.descriptor(message_type))
    if fields is None or cursor.faults():
        return None
    return Converter(catalogue).convert(fields, message_type).message


def parse(catalogue, text, message_type=CLUSTER):
    """Do the same by protobuf's own reader."""
    message = catalogue.message_class(message_type)()
    try:
        text_format.Parse(text, message, descriptor_pool=catalogue.pool)
    except (text_format.ParseError, ValueError):
        return None
    return message


@pytest.mark.parametrize("style", STYLES, ids=str)
@pytest.mark.parametrize("sample", MESSAGES, ids=lambda sample: sample["@type"].rpartition(".")[2])
def test_what_protobuf_writes(catalogue, sample, style):
    """Every sample comes back from the text that protobuf makes of it, in each of its styles."""
    message = Converter(catalogue).convert_any(sample).message
    assert message is not None
    text = text_format.MessageToString(message, descriptor_pool=catalogue.pool, **style)

    assert message == read(catalogue, text, message.DESCRIPTOR.full_name)


@pytest.mark.parametrize(
    "text",
    [
        'name: "a" "b" \'c\'',
        'name: "\\141\\x62\\u00e4\\U0001F600\\n\\\\"',
        "connect_timeout { seconds: 1, nanos: 0x10; }",
        "connect_timeout: < seconds: 017 >",
        "connect_timeout {}",
        "connect_timeout { seconds: -1 nanos: -5 }",
        "type: EDS # a comment { \n lb_policy: 2",
        "respect_dns_ttl: t",
        "respect_dns_ttl: 0",
        "health_checks [{ timeout { seconds: 1 } }, {}] health_checks {}",
        "circuit_breakers { thresholds: [] }",
        "alt_stat_name: ''",
        'metadata { filter_metadata { key: "a" value { fields { key: "b" value { number_value: 1.5f } } } } }',
        'metadata { filter_metadata { key: "a" } filter_metadata { key: "a" value { fields { key: "b" value { string_value: "" } } } } }',
        'metadata { filter_metadata [{ key: "a" value { fields { key: "n" value { null_value: NULL_VALUE } } } }] }',
        "metadata { filter_metadata { value {} } }",
        f"transport_socket {{ typed_config {{ [{PREFIX}google.protobuf.UInt32Value] {{ value: 7 }} }} }}",
        f"transport_socket {{ typed_config {{ [{PREFIX}google.protobuf.Duration] {{ nanos: 1 }} }} }}",
        f'transport_socket {{ typed_config {{ type_url: "{PREFIX}google.protobuf.UInt32Value" value: "\\010\\007" }} }}',
        "common_lb_config { healthy_panic_threshold { value: 1e2 } }",
        "common_lb_config { healthy_panic_threshold { value: .5F } }",
        "common_lb_config { healthy_panic_threshold { value: 7 } }",
        "common_lb_config { healthy_panic_threshold { value: -inf } }",
        "per_connection_buffer_limit_bytes {}",
        "per_connection_buffer_limit_bytes { value: 0 }",
        "http2_protocol_options { max_concurrent_streams { value: 4294967295 } }",
        "lb_subset_config { subset_selectors { keys: ['a', 'b'] keys: 'c' } }",
    ],
)
def test_what_the_language_has(catalogue, text):
    """Every form of the language means what it means to protobuf."""
    expected = parse(catalogue, text)

    assert expected is not None
    assert expected == read(catalogue, text)


def test_broken_texts_are_refused_by_both(catalogue):
    """Of a thousand damaged texts, those that protobuf refuses are refused, and the others mean the same."""
    rng = random.Random(7)
    converted = [Converter(catalogue).convert_any(s).message for s in SAMPLES if s["@type"] == PREFIX + CLUSTER]
    texts = [text_format.MessageToString(m, descriptor_pool=catalogue.pool) for m in converted if m is not None]
    different = []
    for _ in range(1000):
        text = damaged(rng, rng.choice(texts))
        if parse(catalogue, text) != read(catalogue, text):
            different.append(text)

    assert [] == different


def damaged(rng, text):
    """Return a text with one to three characters removed, doubled, or replaced by others of it."""
    for _ in range(rng.randint(1, 3)):
        index = rng.randrange(len(text))
        text = text[:index] + rng.choice(("", text[index] * 2, rng.choice(text))) + text[index + 1 :]
    return text


def test_faults_are_bounded(catalogue):
    """A text of nothing but faults is read until it is enough."""
    cursor = Cursor("a: 1\n" * 100_000)

    TextprotoReader(cursor, catalogue).read(catalogue.descriptor(CLUSTER))

    assert 1000 == len(cursor.faults())
