"""Locators as messages of the API."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from fsxds.api.locator_messages import RESOURCE_LOCATOR, fill_locator, locator_of
from fsxds.model.resource_names import FileName, Locator, MalformedName
from tests.model.test_resource_names import LOCATORS
from tests.support.this_envoy import this_envoy

LISTENER = "envoy.config.listener.v3.Listener"
LOCATOR: Any = this_envoy().message_class(RESOURCE_LOCATOR)


@given(LOCATORS)
def test_locators_both_ways(locator: Locator) -> None:
    """A locator is read from the message that it makes."""
    message = LOCATOR()
    fill_locator(message, locator)

    assert locator_of(message) == locator


def test_files_and_authorities() -> None:
    """A file has its path as `id`; a name without an authority gets that of the reader."""
    message = LOCATOR(scheme="FILE", id="/a b/lds.yaml")
    assert locator_of(message) == Locator(FileName("/a b/lds.yaml"))

    message = LOCATOR(id="web", resource_type=LISTENER)
    assert str(locator_of(message, "example.com")) == f"xdstp://example.com/{LISTENER}/web"


@pytest.mark.parametrize(
    ("fields", "fact"),
    [
        ({"id": "web"}, "has no type"),
        ({"resource_type": LISTENER}, "has no path"),
        ({"scheme": "HTTP", "id": "web", "resource_type": LISTENER}, "of the scheme HTTP"),
        ({"scheme": "FILE", "id": "lds.yaml"}, "has no absolute path"),
        ({"scheme": "FILE", "id": "/a/../../etc/passwd"}, "a part that is . or .."),
        ({"id": "a/../b", "resource_type": LISTENER}, "a part that is . or .."),
        ({"id": "web", "resource_type": "type.googleapis.com/x"}, "has no type"),
        ({"id": "web", "resource_type": LISTENER, "directives": [{"entry": "a"}, {"entry": "b"}]}, "two entries"),
        ({"id": "web", "resource_type": LISTENER, "directives": [{"entry": "ä"}]}, "an unknown directive"),
    ],
)
def test_malformed_messages(fields: dict[str, Any], fact: str) -> None:
    """What the text of a locator must not have, its message must not have."""
    with pytest.raises(MalformedName, match=fact):
        locator_of(LOCATOR(**fields))


def test_nested_too_deep() -> None:
    """Alternatives of alternatives end somewhere."""
    message = LOCATOR(id="web", resource_type=LISTENER)
    for _ in range(11):
        message = LOCATOR(id="web", resource_type=LISTENER, directives=[{"alt": message}])

    with pytest.raises(MalformedName, match="nested more than 10 deep"):
        locator_of(message)
