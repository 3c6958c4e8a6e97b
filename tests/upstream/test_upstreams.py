from __future__ import annotations

from typing import Any

import pytest

from fsxds.model.errors import UsageError
from fsxds.runtime.row_source import rules_of
from fsxds.settings.options import Settings
from fsxds.settings.upstream_rules import Authority, UpstreamRule


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"upstream": (UpstreamRule(("a:1", "b:1", "a:1")),)}, "a:1 names a server twice"),
        ({"authorities": {"one": Authority("", ("a:1", "a:1"))}}, "one names a server twice"),
        ({"upstream": (UpstreamRule(("a:1",)), UpstreamRule(("a:1", "b:1")))}, "a:1 is given twice"),
    ],
)
def test_rules_that_cannot_be_followed(settings: dict[str, Any], words: str) -> None:
    """A server that would follow itself, and two upstreams of one name, are mistakes."""
    with pytest.raises(UsageError, match=words):
        rules_of(Settings(**settings))
