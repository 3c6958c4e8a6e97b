"""Which connections reset too many calls: by two looks at their counts. `end_to_end/test_limits.py` attacks a real server."""

from __future__ import annotations

import socket

import pytest

from fsxds.settings.options import Settings
from fsxds.transports.grpc_streams.grpc_server import MOST_RESETS, CallCounts, _close, offenders, options_of
from tests.support.patience import PATIENCE_S


def looked_at(**unanswered: int) -> dict[int, CallCounts]:
    """Return what a look finds: `n7=3` is connection 7, with three resets that were not answered."""
    return {
        int(name[1:]): CallCounts(("127.0.0.1", 1), ("192.0.2.1", int(name[1:])), count)
        for name, count in unanswered.items()
    }


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({}, {}, set()),
        ({"n7": 0}, {"n7": MOST_RESETS}, set()),
        ({"n7": 0}, {"n7": MOST_RESETS + 1}, {7}),
        # What it did long ago does not count, nor do many streams that were answered and end together.
        ({"n7": 10_000}, {"n7": 10_000 + MOST_RESETS}, set()),
        ({"n7": 10_000}, {"n7": 10_000 + MOST_RESETS + 1}, {7}),
        ({"n7": -10_000}, {"n7": -10_000 + 5 * MOST_RESETS}, set()),
        ({"n7": -10}, {"n7": MOST_RESETS + 1}, {7}),
        # New since the look before; and one that is older, but was not seen then.
        ({"n7": 0}, {"n7": 0, "n8": MOST_RESETS + 1}, {8}),
        ({"n7": 0}, {"n7": 0, "n6": MOST_RESETS + 1}, set()),
        ({"n7": 0, "n8": 0}, {"n8": 5 * MOST_RESETS}, {8}),
    ],
)
def test_who_resets_more_than_is_allowed_between_two_looks(
    before: dict[str, int], now: dict[str, int], expected: set[int]
) -> None:
    """Nobody else's connection is closed."""
    assert offenders(looked_at(**before), looked_at(**now)).keys() == expected


def test_grpc_counts_each_reset() -> None:
    """Else it stops reading only after a hundred times as many, and no look finds their counts; no argument is given twice."""
    arguments = options_of(Settings())
    found = dict(arguments)

    assert len(found) == len(arguments)
    assert (found["grpc.enable_channelz"], found["grpc.http2.ping_on_rst_stream_percent"]) == (1, 100)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_connection_is_found_by_its_ends(host: str) -> None:
    """Of either family; others stay."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        address = server.getsockname()[:2]
        with socket.create_connection(address, PATIENCE_S) as first, socket.create_connection(address) as second:
            accepted = [server.accept()[0] for _ in range(2)]
            _close({(address, first.getsockname()[:2])})
            second.setblocking(False)

            assert first.recv(1) == b""
            with pytest.raises(BlockingIOError):
                second.recv(1)
            for one in accepted:
                one.close()
