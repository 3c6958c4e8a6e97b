from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.api.secrecy import SECRET_FIELDS
from fsxds.operations.secrets import mask_text, mask_value
from fsxds.values import PlainValue

KEY = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\nc2VjcmV0\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"key {KEY}end", "key <hidden>\nend"),
        ("cut off: -----BEGIN RSA PRIVATE KEY-----\nc2Vjc", "cut off: <hidden>"),
        (r"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n.", r"<hidden>\n."),
        ('inline_string: "c2VjcmV0" name: "x"', 'inline_string: <hidden> name: "x"'),
        (r'inline_string: "c2\"Vjc" name', "inline_string: <hidden> name"),
        ('inline_bytes: "c2Vjc', "inline_bytes: <hidden>"),
        ('{"inlineString": "c2VjcmV0"}', '{"inlineString": <hidden>}'),
        (r"{\"inline_string\":\"c2VjcmV0\",\"a\":1}", r"{\"inline_string\":<hidden>,\"a\":1}"),
        ("inline_string: c2VjcmV0, a: 1", "inline_string: <hidden>, a: 1"),
        ("{inline_string: 'c2VjcmV0'}", "{inline_string: <hidden>}"),
        ("INLINE_STRING = c2VjcmV0", "INLINE_STRING = <hidden>"),
        ("nothing to hide: inline", "nothing to hide: inline"),
    ],
)
def test_texts(text: str, masked: str) -> None:
    """PEM blocks and inline values are hidden in a text, also where it was cut or quoted once more."""
    assert masked == mask_text(text)


@given(st.text(), st.text(alphabet=st.characters(codec="ascii", exclude_categories=["C"])))
def test_an_inline_value_is_never_seen(before: str, value: str) -> None:
    """Whatever stands around it, a quoted inline value is hidden."""
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    marker = f"S3CR3T{quoted}S3CR3T"

    assert "S3CR3T" not in mask_text(f'{before}inline_string: "{marker}" more')


def test_a_secret_message() -> None:
    """All inline values of a Secret are hidden, and nothing else of it."""
    secret: PlainValue = {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        "name": "web",
        "tls_certificate": {
            "certificate_chain": {"inline_string": "chain"},
            "private_key": {"inline_bytes": "a2V5"},
            "password": {"filename": "/etc/password"},
        },
    }

    assert mask_value(secret) == {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        "name": "web",
        "tls_certificate": {
            "certificate_chain": {"inline_string": "<hidden>"},
            "private_key": {"inline_bytes": "<hidden>"},
            "password": {"filename": "/etc/password"},
        },
    }


def test_secrets_within_other_messages() -> None:
    """Private keys, passwords and PEM blocks are hidden wherever they stand; other inline values stay."""
    listener: PlainValue = {
        "name": "web",
        "filters": [
            {"private_key": {"inline_string": "key"}, "body": {"inline_string": "hello"}},
            {"password": "open sesame", "text": f"a {KEY}"},
            {"session_ticket_keys": {"keys": [{"inline_bytes": "a2V5"}]}},
        ],
        "weight": 3,
    }

    assert mask_value(listener) == {
        "name": "web",
        "filters": [
            {"private_key": {"inline_string": "<hidden>"}, "body": {"inline_string": "hello"}},
            {"password": "<hidden>", "text": "a <hidden>\n"},
            {"session_ticket_keys": {"keys": [{"inline_bytes": "<hidden>"}]}},
        ],
        "weight": 3,
    }


@pytest.mark.parametrize("name", sorted(SECRET_FIELDS))
def test_no_text_below_a_secret_field_is_shown(name: str) -> None:
    """Plain texts, inline values, lists and maps are hidden; where a secret comes from is not."""
    values: list[PlainValue] = [
        "c2VjcmV0",
        {"inline_string": "c2VjcmV0"},
        [{"key": "c2VjcmV0"}],
        {"a": {"inline_bytes": "c2VjcmV0"}},
    ]
    for value in values:
        assert "c2VjcmV0" not in str(mask_value({"outer": {name: value}}))

    source: PlainValue = {name: {"filename": "/etc/key"}}
    assert source == mask_value(source)
