from __future__ import annotations

import pytest

from fsxds.protocol.patience import patience_s


@pytest.mark.parametrize(
    ("timeout_ms", "expected_s"),
    [
        (1000.0, 0.9),
        (2000.0, 1.9),
        (10_000.0, 9.5),
        (30_000.0, 28.5),
        (300.0, 0.2),
        (299.0, 0.0),
        (0.0, 0.0),
        (-5.0, 0.0),
        (100_000.0, 60.0),
    ],
)
def test_answer_comes_before_the_deadline(timeout_ms: float, expected_s: float) -> None:
    """A poll is held until 100 ms or 5 % before its deadline, not at all when that is too near, at most as allowed."""
    assert expected_s == pytest.approx(patience_s(timeout_ms, None, 60.0))


@pytest.mark.parametrize(("query_s", "expected_s"), [(5.0, 5.0), (0.0, 0.0), (-1.0, 0.0), (90.0, 60.0)])
def test_query_asks_for_a_hold(query_s: float, expected_s: float) -> None:
    """Without a deadline the request may say how long it waits, at most as allowed."""
    assert expected_s == patience_s(None, query_s, 60.0)


def test_deadline_beats_the_query() -> None:
    """The client's own deadline counts where a request has both."""
    assert patience_s(1000.0, 50.0, 60.0) == pytest.approx(0.9)


def test_hold_without_deadline_is_the_longest_allowed() -> None:
    """A request that says nothing is held as long as the operator allows."""
    assert patience_s(None, None, 60.0) == 60.0
