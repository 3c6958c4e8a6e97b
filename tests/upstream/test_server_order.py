"""Which server of an upstream is asked, and when."""

from __future__ import annotations

from fsxds.upstream.server_order import LONGEST_PATIENCE, PAUSES, ServerOrder


def asked(order: ServerOrder, count: int = 3) -> list[int]:
    """Return the places of the servers that may be asked."""
    return [place for place in range(count) if order.may_ask(place)]


def test_the_next_server_is_asked_when_those_before_it_failed() -> None:
    """One after the other comes in, and those before it go on being asked."""
    order = ServerOrder(3)
    found = [asked(order)]
    for place in (0, 1):
        order.failed(place, 0.1)
        found.append(asked(order))

    assert [[0], [0, 1], [0, 1, 2]] == found


def test_those_after_a_server_that_answers_are_left() -> None:
    """An earlier server counts as soon as it answers."""
    order = ServerOrder(3)
    order.failed(0, 0.1)
    order.answered(1)
    before = asked(order), order.current
    order.answered(0)
    order.left(1)

    assert (([0, 1], 1), ([0], 0)) == (before, (asked(order), order.current))


def test_what_was_well_is_asked_again_before_another_is() -> None:
    """A server that is lost after a while may have been restarted; it fails when it is not there again."""
    order = ServerOrder(2)
    order.answered(0)
    order.failed(0, PAUSES.well_after_s)
    at_first = asked(order, 2)
    order.failed(0, 0.0)

    assert ([0], [0, 1]) == (at_first, asked(order, 2))


def test_a_server_that_is_lost_again_and_again_has_failed() -> None:
    """Less than a minute does not make a server one that is well: its pauses grow, and another one is asked."""
    order = ServerOrder(2)
    pauses = []
    for answered_s in (59.0, 59.0, 59.0, 60.0):
        order.answered(0)
        order.failed(0, answered_s)
        pauses.append(order.pause_s(0, 1.0))

    assert ([0], [0.5, 1.0, 2.0, 0.5]) == (asked(order, 2), pauses)


def test_a_server_that_restarts_again_and_again_is_asked_soon() -> None:
    """However often it failed before an answer, the pauses after the next eight failures are at most 4 s."""
    order = ServerOrder(1)
    bounds = []
    for _ in range(7):
        order.failed(0, 0.0)
    order.answered(0)
    for _ in range(10):
        order.failed(0, 1.0)
        bounds.append(order.pause_s(0, 1.0))

    assert [4.0] * 8 + [8.0, 16.0] == bounds


def test_a_server_that_is_left_is_as_well_as_before() -> None:
    """The one before it, which answers for moments, does not make it forget that it fails."""
    order = ServerOrder(2)
    pauses = []
    for _ in range(3):
        order.answered(1)
        order.failed(1, 1.0)
        pauses.append(order.pause_s(1, 1.0))
        order.answered(0)
        order.left(1)
        order.failed(0, 1.0)

    assert [0.5, 1.0, 2.0] == pauses


def test_a_first_failure_is_told_from_later_ones() -> None:
    """Of a server that never failed, and of one that was well: then others are asked soon."""
    order = ServerOrder(1)
    first = [order.failed(0, 0.0), order.failed(0, 0.0)]
    order.answered(0)
    first.append(order.failed(0, PAUSES.well_after_s))

    assert [True, False, True] == first


def test_pauses_are_random_up_to_a_bound_that_doubles() -> None:
    """Half a second at first, thirty at last; beside another server that answers up to five, without hope about thirty."""
    order = ServerOrder(2)
    bounds = []
    for _ in range(9):
        order.failed(0, 0.0)
        bounds.append(order.pause_s(0, 1.0))
    shares = [order.pause_s(0, share) for share in (0.0, 0.5)]
    final = [order.pause_s(0, share, is_final=True) for share in (0.0, 1.0)]
    order.answered(1)
    beside = [order.pause_s(0, share) for share in (0.0, 1.0)]

    assert [0.5, 1, 2, 4, 8, 16, 30, 30, 30] == bounds
    assert [0.0, 15.0] == shares
    assert [15.0, 45.0] == final
    assert [2.5, 5.0] == beside


def test_who_is_silent_is_given_more_time() -> None:
    """Twice as much each time, up to eight times as much, until it answers."""
    order = ServerOrder(1)
    given = []
    for _ in range(6):
        given.append(order.patience_s(0, 15))
        order.failed(0, 15, is_silent=True)
    order.answered(0)

    assert [15, 30, 60, 120, 120, 120] == given
    assert 120 == 15 * LONGEST_PATIENCE
    assert 15 == order.patience_s(0, 15)
