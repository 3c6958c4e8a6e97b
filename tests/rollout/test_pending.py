"""What is pending after a NACK, and when it is offered again."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from fsxds.rollout.pending import BACK_OFF, MOST_BATCHES, MOST_PARTS, Pending

LATE_S = 1e9

NAMES = st.frozensets(st.sampled_from("abcd"), min_size=1)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reject", "reject", "accept", "renew", "offer", "offer"]), NAMES, st.sampled_from([0.5, 1, 3])
    ),
    max_size=12,
)


def _due(pending: Pending[str], now_s: float, most: int = 100) -> list[set[str]]:
    return sorted(map(set, pending.due(now_s, most)), key=sorted)


def test_nothing_is_pending_at_first() -> None:
    """Without a rejection nothing is pending, and nothing is planned."""
    pending: Pending[str] = Pending()

    assert not pending.names
    assert pending.retry_at_s is None
    assert not pending.due(LATE_S, 1)


def test_back_off_grows_with_pending_in_a_row() -> None:
    """The same content is sent again after 1, 2, 4 … and at most 60 seconds."""
    pending, now_s, waits = Pending[str](), 100.0, []
    for _ in range(8):
        pending.nack(["a"], now_s)
        assert pending.retry_at_s is not None
        waits.append(pending.retry_at_s - now_s)
        now_s = pending.retry_at_s
        assert _due(pending, now_s - 0.01) == []
        assert _due(pending, now_s) == [{"a"}]
        pending.sent_again(["a"])

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_an_offer_awaits_its_verdict() -> None:
    """What was just sent again is pending still, and not sent again before the client answered it."""
    pending: Pending[str] = Pending()
    pending.nack(["a", "b"], 0.0)
    pending.sent_again(["a"])

    assert pending.names == {"a", "b"}
    assert _due(pending, LATE_S) == [{"b"}]


def test_other_content_begins_anew() -> None:
    """Other content has no back-off; what was rejected with the old one is due at once, and keeps its count."""
    pending: Pending[str] = Pending()
    for now_s in (0.0, 1.0):
        pending.nack(["a", "b"], now_s)
    pending.renew(["a"], 1.5)

    assert _due(pending, 1.5) == [{"b"}]

    pending.sent_again(["b"])
    pending.nack(["a"], 100.0)
    pending.nack(["b"], 100.0)
    assert _due(pending, 101.0) == [{"a"}]
    assert _due(pending, 104.0) == [{"a"}, {"b"}]


def test_acceptance_ends_it() -> None:
    """What is accepted is not pending; when it is rejected later, its back-off begins anew."""
    pending: Pending[str] = Pending()
    pending.nack(["a", "b"], 0.0)
    pending.forget(["a", "c"])

    assert (pending.names, pending.retry_at_s) == (frozenset("b"), 1.0)

    pending.forget(["b"])
    assert (pending.names, pending.retry_at_s) == (frozenset(), None)

    pending.nack(["b"], 10.0)
    assert pending.retry_at_s == 11.0


def test_each_name_counts_for_itself() -> None:
    """A name that is rejected once waits a second, whatever was rejected how often before it, with it and after it."""
    pending: Pending[str] = Pending()
    pending.nack(["x"], 0.0)
    for at in range(8):
        pending.nack([f"y{at}"], 0.1 * at)
    pending.nack(["y0", "z"], 0.9)

    assert _due(pending, 1.0)[0] == {"x"}
    assert {"z"} in _due(pending, 1.9)
    assert {"y0"} not in _due(pending, 2.8)
    assert {"y0"} in _due(pending, 2.9)


def test_the_culprit_is_found_at_the_third_offer() -> None:
    """Of a thousand names that were rejected for one of them, all others are accepted within a few seconds."""
    pending, names, now_s, responses = Pending[str](), [f"n{at:03}" for at in range(1000)], 0.0, 0
    pending.nack(names, now_s)
    while pending.names != {"n500"}:
        assert pending.retry_at_s is not None
        now_s = pending.retry_at_s
        for offer in pending.due(now_s, MOST_PARTS):
            responses += 1
            pending.sent_again(offer)
            if "n500" in offer:
                pending.nack(offer, now_s)
            else:
                pending.forget(offer)

    assert now_s <= 7.0
    assert responses <= 3 * MOST_PARTS


def test_a_client_that_rejects_everything_is_not_flooded() -> None:
    """However many names a client rejects, they are sent again in a bounded number of responses, and so is the memory."""
    pending, now_s = Pending[str](), 0.0
    pending.nack(map(str, range(2000)), now_s)
    for _ in range(60):
        assert pending.retry_at_s is not None
        now_s = max(now_s, pending.retry_at_s)
        for offer in pending.due(now_s, MOST_PARTS):
            pending.sent_again(offer)
            pending.nack(offer, now_s)

    assert len(pending.due(LATE_S, 10_000)) == MOST_BATCHES
    assert pending.names == {str(at) for at in range(2000)}

    pending.nack(["new"], now_s)
    assert {"new"} in map(set, pending.due(now_s + 1.0, 10_000))


def test_offers_go_out_a_few_at_a_time() -> None:
    """What waited longest is sent first, and no more of it than is asked for; the rest is not divided once more."""
    pending: Pending[str] = Pending()
    pending.nack(["late"], 0.5)
    pending.nack(map(str, range(32)), 0.0)

    assert [len(offer) for offer in pending.due(LATE_S, 3)] == [2, 2, 2]
    for _ in range(MOST_PARTS):
        (offer,) = pending.due(LATE_S, 1)
        assert len(offer) == 2
        pending.sent_again(offer)
    assert _due(pending, LATE_S) == [{"late"}]


def test_what_is_whole_is_offered_whole() -> None:
    """Where only one response can offer it, all that is pending shares one back-off, and other content begins anew."""
    pending: Pending[str] = Pending(is_whole=True)
    pending.nack(["a"], 0.0)
    pending.nack(["b", "c"], 0.5)

    assert _due(pending, 0.9) == []
    assert _due(pending, 1.0) == [{"a", "b", "c"}]

    pending.sent_again(["a", "b", "c"])
    pending.nack(["a", "b", "c"], 1.0)
    assert pending.retry_at_s == 3.0

    pending.renew(["a"], 2.0)
    pending.nack(["a", "b", "c"], 2.0)
    assert pending.retry_at_s == 3.0


def test_streams_share_the_names_of_one_response() -> None:
    """Thousands of clients that reject the same response have one set of its names."""
    names = frozenset(map(str, range(100)))
    pending: Pending[str] = Pending()
    pending.nack(names, 0.0)

    assert pending.names is names


@given(steps=STEPS)
def test_every_name_is_as_if_it_were_alone(steps: Iterable[tuple[str, frozenset[str], float]]) -> None:
    """Whatever happens to other names, a name is due when it would be if there were no others, or before."""
    pending, now_s = Pending[str](), 0.0
    alone: dict[str, tuple[int, float | None]] = {}
    for step, names, seconds in steps:
        now_s += seconds
        if step == "reject":
            pending.nack(names, now_s)
            for name in names:
                count = alone.get(name, (0, None))[0] + 1
                alone[name] = count, now_s + BACK_OFF.pause_s(count)
        elif step == "accept":
            pending.forget(names)
            for name in names:
                alone.pop(name, None)
        elif step == "renew":
            pending.renew(names, now_s)
            alone |= dict.fromkeys(names & alone.keys(), (0, None))
        else:
            for offer in pending.due(now_s, 1):
                pending.sent_again(offer)
                alone |= {name: (alone[name][0], None) for name in offer}

        due = frozenset().union(*pending.due(now_s, 100))
        assert pending.names == alone.keys()
        assert due >= {name for name, (_, at_s) in alone.items() if at_s is not None and at_s <= now_s}
        assert frozenset().union(*pending.due(LATE_S, 100)) == {
            name for name, (_, at_s) in alone.items() if at_s is not None
        }


def test_back_off_doubles_up_to_a_minute() -> None:
    """A version is kept from a client for 1, 2, 4 … and at most 60 seconds."""
    waits_s = [BACK_OFF.pause_s(pending) for pending in range(1, 10)]

    assert [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0] == waits_s


def test_back_off_of_very_many_pending_is_a_minute() -> None:
    """A client that rejects for years does not overflow the doubling."""
    assert BACK_OFF.pause_s(10**6) == 60.0


def test_back_off_is_never_below_the_first() -> None:
    """A back-off that is asked for without a rejection is the shortest one."""
    assert BACK_OFF.pause_s(0) == 1.0
