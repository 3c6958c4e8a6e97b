"""What clients may take: how it is counted, and what becomes of those who want more."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from fsxds.model.errors import LimitError
from fsxds.settings.options import Settings
from fsxds.transports.limits import BURST_S, MOST_PEERS, Limiter, network_of


def limit_of(error: pytest.ExceptionInfo[LimitError]) -> tuple[str, bool]:
    """Return the option, and whether the message names it."""
    return error.value.limit, error.value.limit.replace("-", "_") in str(error.value)


def test_streams_are_counted_in_all_and_by_peer() -> None:
    """Those that ended make room again; a unix socket has no peer."""
    limiter = Limiter(Settings(max_streams=3, max_streams_per_peer=2))
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(limiter.stream("192.0.2.1"))
        with pytest.raises(LimitError) as of_peer, limiter.stream("192.0.2.1"):
            pass
        stack.enter_context(limiter.stream(""))
        with pytest.raises(LimitError) as of_all, limiter.stream(""):
            pass

        assert limit_of(of_peer) == ("max-streams-per-peer", True)
        assert limit_of(of_all) == ("max-streams", True)
    assert limiter.streams == 0
    with limiter.stream("192.0.2.1"):
        assert limiter.streams == 1


def test_requests_of_one_peer() -> None:
    """A burst of ten seconds' requests is fine, then as many as the option says; others do not notice."""
    now_s = 0.0
    limiter = Limiter(Settings(max_requests_per_peer=2), lambda: now_s)
    for _ in range(BURST_S * 2):
        limiter.admit_request("192.0.2.1")
    with pytest.raises(LimitError) as error:
        limiter.admit_request("192.0.2.1")
    limiter.admit_request("192.0.2.2")
    limiter.admit_request("")
    now_s = 0.5
    limiter.admit_request("192.0.2.1")
    with pytest.raises(LimitError):
        limiter.admit_request("192.0.2.1")

    assert limit_of(error) == ("max-requests-per-peer", True)


def test_requests_are_not_counted_by_default() -> None:
    """A thousand Envoys may share one address, and each polls for every cluster when it starts."""
    limiter = Limiter()
    for _ in range(100_000):
        limiter.admit_request("192.0.2.1")

    assert len(limiter._buckets) == 0


def test_peers_are_forgotten() -> None:
    """As many are remembered as there is room for."""
    limiter = Limiter(Settings(max_requests_per_peer=1), lambda: 0.0)
    for number in range(MOST_PEERS + 10):
        limiter.admit_request(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")

    assert len(limiter._buckets) == MOST_PEERS


def test_names_of_one_and_of_all() -> None:
    """Fewer names are always fine; what was rejected is not counted."""
    limiter = Limiter(Settings(max_names=5, max_all_names=8))
    limiter.hold_names(5)
    with pytest.raises(LimitError) as of_one:
        limiter.hold_names(6, 5)
    with pytest.raises(LimitError) as of_all:
        limiter.hold_names(4)
    limiter.hold_names(3)
    limiter.hold_names(2, 3)

    assert limit_of(of_one) == ("max-names", True)
    assert limit_of(of_all) == ("max-all-names", True)
    assert limiter.names == 7
    limiter.release_names(7)
    assert limiter.names == 0


def test_bodies_of_all() -> None:
    """What was received of one makes room when it is read, or given up."""
    limiter = Limiter(Settings(max_all_bodies_bytes=10))
    with limiter.receiving() as first, limiter.receiving() as second:
        first(6)
        second(4)
        with pytest.raises(LimitError) as error:
            first(1)
    with limiter.receiving() as third:
        third(10)

    assert limit_of(error) == ("max-all-bodies", True)
    assert limiter.body_bytes == 0


def test_held_polls_and_views() -> None:
    """One more than allowed is rejected."""
    limiter = Limiter(Settings(max_held_polls=2, max_views=3))
    limiter.admit_view(2)
    with limiter.holding(1), limiter.holding(1):
        for reject, limit in (
            (lambda: limiter.holding(1).__enter__(), "max-held-polls"),
            (lambda: limiter.admit_view(3), "max-views"),
        ):
            with pytest.raises(LimitError) as error:
                reject()
            assert limit_of(error) == (limit, True)
    with limiter.holding(1), limiter.holding(1):
        pass

    assert (limiter.held, limiter.names) == (0, 0)


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("odd:address", "odd:address"),
    ],
)
def test_what_an_address_counts_as(peer: str, network: str) -> None:
    """Whoever has one IPv6 address has 2**64 of them."""
    assert network_of(peer) == network
