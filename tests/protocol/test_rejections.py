"""What is owed after a rejection, and when it is offered again."""

from __future__ import annotations

from fsxds.protocol.rejections import Rejections


def test_nothing_is_owed_at_first() -> None:
    """Without a rejection nothing is owed, and nothing is planned."""
    rejections = Rejections()

    assert not rejections.names
    assert rejections.retry_at_s is None
    assert not rejections.is_due(1e9)


def test_back_off_grows_with_rejections_in_a_row() -> None:
    """The same content is offered again after 1, 2, 4 … and at most 60 seconds."""
    rejections, now_s, waits = Rejections(), 100.0, []
    for _ in range(8):
        rejections.reject(["a"], now_s)
        assert rejections.retry_at_s is not None
        waits.append(rejections.retry_at_s - now_s)
        now_s = rejections.retry_at_s
        assert rejections.is_due(now_s)
        assert not rejections.is_due(now_s - 0.01)
        rejections.offered()

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_an_offer_awaits_its_verdict() -> None:
    """What was just sent again is owed still, and not sent again before the client says what it makes of it."""
    rejections = Rejections()
    rejections.reject(["a"], 0.0)
    rejections.offered()

    assert rejections.names == {"a"}
    assert rejections.retry_at_s is None
    assert not rejections.is_due(1e9)


def test_other_content_begins_anew() -> None:
    """An offer of other content than was rejected begins without a back-off of its own."""
    rejections = Rejections()
    for now_s in (0.0, 1.0):
        rejections.reject(["a"], now_s)
        rejections.offered()
    rejections.offered(is_other=True)
    rejections.reject(["a"], 100.0)

    assert rejections.retry_at_s == 101.0


def test_acceptance_ends_it() -> None:
    """What is accepted is not owed; when nothing is owed any more, the back-off begins anew."""
    rejections = Rejections()
    rejections.reject(["a", "b"], 0.0)
    rejections.accept(["a", "c"])

    assert (rejections.names, rejections.retry_at_s) == (frozenset("b"), 1.0)

    rejections.accept(["b"])
    assert (rejections.names, rejections.retry_at_s) == (frozenset(), None)

    rejections.reject(["a"], 10.0)
    assert rejections.retry_at_s == 11.0


def test_names_add_up() -> None:
    """Names of several rejections are owed together."""
    rejections = Rejections()
    rejections.reject(["a"], 0.0)
    rejections.reject(["b"], 0.5)

    assert rejections.names == {"a", "b"}
    assert rejections.retry_at_s == 2.5


def test_streams_share_the_names_of_one_response() -> None:
    """Thousands of clients that reject the same response have one set of its names."""
    names = frozenset(map(str, range(100)))
    rejections = Rejections()
    for now_s in (0.0, 1.0):
        rejections.reject(names, now_s)

    assert rejections.names is names
