from __future__ import annotations

from fsxds.protocol.back_off import back_off_s


def test_back_off_doubles_up_to_a_minute() -> None:
    """A version is kept from a client for 1, 2, 4 … and at most 60 seconds."""
    waits_s = [back_off_s(rejections) for rejections in range(1, 10)]

    assert [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0] == waits_s


def test_back_off_of_very_many_rejections_is_a_minute() -> None:
    """A client that rejects for years does not overflow the doubling."""
    assert back_off_s(10**6) == 60.0


def test_back_off_is_never_below_the_first() -> None:
    """A back-off that is asked for without a rejection is the shortest one."""
    assert back_off_s(0) == 1.0
