from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.api.catalogue import Catalogue
from fsxds.api.secrets import Masker, is_secret_name, mask_error, mask_reason, mask_text
from fsxds.model.values import PlainValue
from tests.support.costs import cost_s

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
        ('inline_string: "c2\\n\\', "inline_string: <hidden>"),
        ('key: "x-mine" value: "c2\\', 'key: "x-mine" value: <hidden>'),
        ('{"inlineString": "c2VjcmV0"}', '{"inlineString": <hidden>}'),
        (r"{\"inline_string\":\"c2VjcmV0\",\"a\":1}", r"{\"inline_string\":<hidden>,\"a\":1}"),
        ("a.inline_string: a secret, changed", "a.inline_string: a secret, changed"),
        ("password=c2VjcmV0, a: 1", "password=<hidden>, a: 1"),
        ("{inline_string: 'c2VjcmV0'}", "{inline_string: <hidden>}"),
        ("INLINE_STRING = 'c2VjcmV0'", "INLINE_STRING = <hidden>"),
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


@pytest.mark.parametrize("mask", [mask_text, mask_reason, lambda text: mask_error(ValueError(text))])
def test_a_value_is_hidden_wherever_its_text_is_cut_off(mask: Callable[[str], str]) -> None:
    """Long texts are cut, perhaps within an escape."""
    for text in ('inline_string: "S3CR3T\\n\\"', "inline_string: 'S3CR3T\\"):
        assert all("S3CR3T" not in mask(text[:end]) for end in range(len(text) + 1))


@pytest.mark.parametrize("mask", [mask_text, mask_reason, lambda text: mask_error(ValueError(text))])
@pytest.mark.parametrize("part", ["'\\", '[string "', '"\\', "near '", 'key: "'])
def test_texts_are_masked_in_linear_time(mask: Callable[[str], str], part: str) -> None:
    """Eight times the text costs about eight times as much."""
    assert cost_s(lambda: mask(part * 16_000)) < 30 * cost_s(lambda: mask(part * 2000))


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://u:pw@a.b/c", "https://<hidden>@a.b/c"),
        ("see /a?x=1&token=abc&y=2", "see /a?x=1&token=<hidden>&y=2"),
        ("https://a.b/c?key=abc#d", "https://a.b/c?key=<hidden>#d"),
        ("Authorization is Bearer abcdefghi", "Authorization is Bearer <hidden>"),
        ('key: "x-mine" value: "abc"', 'key: "x-mine" value: <hidden>'),
        ('key: "accept" value: "abc"', 'key: "accept" value: "abc"'),
        ('cluster "token-service" of field password: expected text', 'cluster "token-service" of field password: expected text'),
        ("xdstp://a/b/c?d=e", "xdstp://a/b/c?d=e"),
        ("host_redirect: user:PW@a.b, x", "host_redirect: <hidden>@a.b, x"),
        ('"user:P@W@[::1]:80"', '"<hidden>@[::1]:80"'),
        ("clusters.yaml:3 of me@a.b, envoy:v1@sha256:0", "clusters.yaml:3 of me@a.b, envoy:v1@sha256:0"),
    ],
)  # fmt: skip
def test_parts_of_texts(text: str, masked: str) -> None:
    """User info and credentials of URIs, tokens, and values of headers are hidden; words of our own stay."""
    assert masked == mask_text(text)


def test_of_what_envoy_quotes_names_alone_stay() -> None:
    """Envoy prints the messages that it rejects."""
    reason = 'no such thing: name: "a" text: "b" cluster_name: "c" token: "1"'

    assert 'no such thing: name: "a" text: <hidden> cluster_name: "c" token: <hidden>' == mask_reason(reason)


@pytest.mark.parametrize(
    "reason",
    [
        'address: "192.0.2.1:80" port_value: 80 connect_timeout: "1.5s" type: STATIC weight: "7" stat_prefix: "in"',
        "missing ): ^/(a|b",
        "no argument for repetition operator: **",
        r"invalid escape sequence: \y",
        "line 3: '=' expected near 'end'",
        "line 3: 'end' expected near '<eof>'",
        "Envoy can't do it, and won't: try 'x'",
    ],
)
def test_what_explains_a_rejection_stays(reason: str) -> None:
    """Numbers, durations, addresses, names and enums; the marks and short words of an expression, and what is Lua's own."""
    assert mask_reason(reason) == reason


@pytest.mark.parametrize(
    ("reason", "masked"),
    [
        ("missing ): ^/hunter2/(a", "missing ): ^/<hidden>/(a"),
        ("""[string "local k = "hunter2""]:3: unexpected symbol near '"hunter2"'""", "line 3: unexpected symbol near <hidden>"),
        ("unexpected symbol near 'hunter2'", "unexpected symbol near <hidden>"),
        ('text: "hunter2" stat_prefix: "u:hunter2@a.b"', 'text: <hidden> stat_prefix: "<hidden>@a.b"'),
    ],
)  # fmt: skip
def test_what_may_be_a_credential_goes(reason: str, masked: str) -> None:
    """As long as a word of it may be one, where nobody knows which resource it is about."""
    assert mask_reason(reason) == masked


def test_a_part_of_a_known_secret_is_hidden() -> None:
    """Where the resource is known, its own secrets go, and all else of an expression stays."""
    assert mask_reason("missing ]: [a-hunter2", ["^Bearer [a-hunter2"]) == "missing ]: <hidden>"
    assert mask_reason("missing ]: [a-users", ["hunter2"]) == "missing ]: [a-users"


def test_names_of_credentials() -> None:
    """A name is that of a credential in any spelling, unless it ends with where that is, or how much of it there is."""
    secret = (
        "X-Api-Key",
        "db_password",
        "clientSecret",
        "set-cookie",
        "DB_PASS",
        "x-auth",
        "apikey",
        "id_token",
        "sig",
    )
    harmless = (
        "token_endpoint",
        "secret_name",
        "max_tokens",
        "tokens_per_fill",
        "authority",
        "compass",
        "x-request-id",
    )

    assert all(map(is_secret_name, secret))
    assert not any(map(is_secret_name, harmless))


def test_an_exception_does_not_repeat_the_data_that_it_met() -> None:
    """Its words stay, what it quotes goes."""
    assert mask_error(KeyError("hunter2")) == "<hidden>"
    assert mask_error(ValueError("no number: 'hunter2' at 3\nhunter2")) == "no number: <hidden> at 3"
    assert mask_error(ValueError("cut off: 'hunter2\\")) == "cut off: <hidden>"
    assert mask_error(ValueError("broken on purpose")) == "broken on purpose"
    assert mask_error(ValueError("it can't be: 'hunter2' isn't one")) == "it can't be: <hidden> isn't one"
    assert mask_error(ValueError("'it's hunter2', key'hunter2', b'hunter2")) == "<hidden>, key<hidden>, <hidden>"


@pytest.mark.parametrize(
    ("name", "is_hidden"),
    [("password", True), ("x_api_token", True), ("inline_code", True), ("colour", False), ("filename", False)],
)
def test_names_in_a_struct(catalogue: Catalogue, name: str, *, is_hidden: bool) -> None:
    """In metadata, whose fields have no types, a value is hidden by the name of its key alone."""
    metadata: PlainValue = {"filter_metadata": {"some.filter": {name: "S3CR3T"}}}
    cluster: dict[str, PlainValue] = {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": "a",
        "metadata": metadata,
    }

    assert ("S3CR3T" not in str(Masker(catalogue).masked(cluster))) is is_hidden
