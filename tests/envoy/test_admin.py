"""The words of Envoy's admin page, as Envoy 1.40 writes them."""

from __future__ import annotations

import json

import aiohttp
import pytest

from fsxds.envoy.admin import AdminPage, Listening, parse_drain_time, parse_listeners, parse_statistics
from tests.support.ports import free_address


def test_statistics_are_numbers_and_texts() -> None:
    """Counters and gauges are numbers, text readouts are quoted; histograms are left out."""
    text = 'a.version_text: "83eb"\na.empty: ""\nb.update_rejected: 2\nc.gauge: -1\nd.time: P0(nan,1) P25(nan,1.2)\n\n'

    assert parse_statistics(text) == {"a.version_text": "83eb", "a.empty": "", "b.update_rejected": 2, "c.gauge": -1}


def test_listeners_are_told_by_name_and_address() -> None:
    """IP addresses, unix sockets, further addresses; a listener that only Envoy itself can reach is left out."""
    statuses = [
        {
            "name": "web",
            "local_address": {"socket_address": {"address": "0.0.0.0", "port_value": 80}},
            "additional_local_addresses": [{"socket_address": {"address": "::", "port_value": 80}}],
        },
        {"name": "socket", "local_address": {"pipe": {"path": "/run/web.sock"}}},
        {"name": "inner", "local_address": {"envoy_internal_address": {"server_listener_name": "inner"}}},
    ]
    expected = (Listening("socket", "unix:/run/web.sock"), Listening("web", "0.0.0.0:80"), Listening("web", "[::]:80"))

    assert parse_listeners(json.dumps({"listener_statuses": statuses})) == expected


def test_no_listeners() -> None:
    """An Envoy without listeners answers an empty object."""
    assert parse_listeners("{}") == ()


async def test_envoy_that_does_not_answer_is_none() -> None:
    """Nobody listens there: that is no error, because the end of the process is told elsewhere."""
    async with aiohttp.ClientSession() as session:
        admin = AdminPage(session, free_address())

        assert await admin.statistics() is None
        assert await admin.listeners() is None
        assert not await admin.is_live()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"command_line_options": {"drain_time": "600s"}}', 600.0),
        ('{"command_line_options": {"drain_time": "0.5s"}}', 0.5),
        ('{"command_line_options": {}}', None),
        ("[]", None),
        ("<html>", None),
    ],
)
def test_drain_time(text: str, expected: float | None) -> None:
    """It is among the options of the command line; what is none of Envoy's answers has none."""
    assert expected == parse_drain_time(text)
