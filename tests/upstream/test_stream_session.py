"""A stream to a server: when one that says nothing is well, because it was told all that it would say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from fsxds.client.connection import Streaming, Wire
from fsxds.events.upstream_events import UpstreamConnected, UpstreamLost
from fsxds.protocol.subscription import WILDCARD
from fsxds.upstream.stream_session import _has_all_versions
from tests.client.scripted import CDS, cluster, delta, scripted, wrapped
from tests.upstream.linked import SETTINGS, linked, rule_of
from tests.upstream.made import NOW_S


async def test_a_server_has_nothing_to_add() -> None:
    """On a new connection it was told the versions of all that it is asked for, and is silent: it is connected, not lost."""
    settings = replace(SETTINGS, upstream_names="asked", upstream_patience_s=2.0)
    method = Streaming(Wire.DELTA).method
    async with scripted(method) as server, linked(rule_of(server.target), settings) as relay:
        relay.upstream.ask({CDS: frozenset({"a"})}, NOW_S)
        server.say(delta("1", wrapped(cluster("a"), "a", "v1")))
        await relay.until(lambda: relay.names == ["a"])
        server.say(None)
        await server.stream_ended()
        await relay.until(lambda: len(relay.recorder.of(UpstreamConnected)) == 2)

    assert not [lost.reason for lost in relay.recorder.of(UpstreamLost) if "no response" in lost.reason]


@pytest.mark.parametrize(
    ("names", "held", "has_all"),
    [
        ({"a"}, {"a": "1", "b": ""}, True),
        ({"a", "b"}, {"a": "1"}, False),
        ({"a"}, {"a": ""}, False),
        ({WILDCARD}, {"a": "1"}, True),
        ({WILDCARD}, {}, False),
        ({WILDCARD}, {"a": "1", "b": ""}, False),
        ({WILDCARD, "b"}, {"a": "1"}, False),
        (set(), {}, True),
    ],
)
def test_what_a_server_was_told(names: set[str], held: Mapping[str, str], has_all: bool) -> None:
    """All names with a version; of everything, something that is held, and all of it with a version."""
    assert _has_all_versions(names, held) == has_all
