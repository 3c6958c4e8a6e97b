"""The setting `authorities`."""

from __future__ import annotations

import pytest

from fsxds.settings.structured import MistakesFound
from fsxds.settings.upstream_rules import AUTHORITIES, Authority


def test_each_authority_has_a_base_url_without_a_slash_at_its_end():
    """A resource of another authority is at its base URL, with or without a slash at the end."""
    written = {"other.example": {"url": "https://xds.other.example:8443/base/"}, "": {"url": "http://[::1]:80"}}

    assert AUTHORITIES.read(written) == {
        "other.example": Authority("https://xds.other.example:8443/base"),
        "": Authority("http://[::1]:80"),
    }


@pytest.mark.parametrize(
    ("url", "fact"),
    [
        ("ftp://other.example", "is no URL of http or https"),
        ("other.example", "is no URL of http or https"),
        ("https://", "is no URL of http or https"),
        ("https://other.example:0", "is no URL of http or https"),
        ("https://other.example:port", "is no URL of http or https"),
        ("https://[::1", "is no URL of http or https"),
        ("https://other.example/a b", "is no URL of http or https"),
        ("https://other.example/\r\nx: y", "is no URL of http or https"),
        ("https://me:hunter2@other.example", "has a user or a password"),
        ("https://other.example?a=b", "has a query or a fragment"),
        ("https://other.example/#a", "has a query or a fragment"),
        ("", "is empty"),
        (7, "is a number"),
    ],
)
def test_what_is_no_base_of_urls_is_rejected_with_its_place_and_without_its_text(url, fact):
    """Clients are told the URL, so it may not hold a password, and the mistake does not show it."""
    with pytest.raises(MistakesFound) as raised:
        AUTHORITIES.read({"other.example": {"url": url}})

    (mistake,) = raised.value.mistakes
    assert mistake.path == ("other.example", "url")
    assert fact in mistake.fact
    assert "hunter2" not in mistake.fact


@pytest.mark.parametrize(
    ("written", "fact"), [([], "write a mapping"), ({"a": {}}, "has neither url nor upstream"), ({"a": 1}, "mapping")]
)
def test_what_is_no_mapping_of_authorities_is_rejected(written, fact):
    """Anything else than authorities with their URLs is a mistake."""
    with pytest.raises(MistakesFound, match=fact):
        AUTHORITIES.read(written)


def test_an_authority_may_have_servers_in_place_of_a_url():
    """Its resources come from these servers; a URL is for redirects over HTTP."""
    written = {
        "east": {"upstream": ["10.0.0.1:18000", "unix:/run/xds.sock"]},
        "west": {"url": "https://west", "upstream": ["a:1"]},
    }

    assert AUTHORITIES.read(written) == {
        "east": Authority("", ("10.0.0.1:18000", "unix:/run/xds.sock")),
        "west": Authority("https://west", ("a:1",)),
    }


@pytest.mark.parametrize(
    ("servers", "path"),
    [("a:1", ("east", "upstream")), ([], ("east", "upstream")), (["a:1", "b"], ("east", "upstream", 1))],
)
def test_mistakes_in_servers_of_an_authority_have_their_places(servers, path):
    """Servers are a list of addresses."""
    with pytest.raises(MistakesFound) as raised:
        AUTHORITIES.read({"east": {"upstream": servers}})

    assert [path] == [mistake.path for mistake in raised.value.mistakes]
