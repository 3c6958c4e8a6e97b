"""What became of responses: which request answers which, what is pending then, and what a poll shows of the one before it."""

from __future__ import annotations

import pytest

from fsxds.model.resources import ResourceList
from fsxds.model.values import Nonce, Version
from fsxds.protocol.acks import MOST_UNANSWERED, Acks, PolledVersion, PollEvidence, PollState, Sent
from fsxds.protocol.messages import SyncState
from fsxds.rollout.rejections import Nack
from tests.support.snapshots import resource, type_url

CDS = type_url("CDS")
ONE, TWO, THREE = map(Nonce, "123")
SENT, ACKED, NACKED, UNKNOWN = PollState.SENT, PollState.ACKED, PollState.NACKED, PollState.UNKNOWN
NACKED_BEFORE, FORGOTTEN = PollState.NACKED_BEFORE, PollState.FORGOTTEN


def sent(*names: str, fresh: str = "", generation: int = 1) -> Sent:
    """Return a response with these clusters."""
    resources = ResourceList(tuple(resource("CDS", name) for name in names))
    return Sent(Version("".join(names)), resources, fresh=frozenset(fresh), generation=generation)


def nack(name: str, words: str | None = "no") -> Nack:
    """Return the NACK of a cluster."""
    return Nack(frozenset({((CDS, name), resource("CDS", name).version)}), words=words)


def test_an_ack_answers_all_before_it() -> None:
    """Those that were never answered count as ACKed; what was answered is not answered again."""
    acks = Acks()
    for nonce, name in ((ONE, "a"), (TWO, "b"), (THREE, "c")):
        acks.record(nonce, sent(name), 0.0)
    answer = acks.receive(TWO, None, 1.0)

    assert answer is not None
    assert (answer.acknowledgement.version, answer.acknowledgement.accepted) == ("b", True)
    assert acks.in_flight == {"c"}
    assert (acks.acked, acks.state) == ("b", SyncState.STALE)
    assert [acks.receive(nonce, None, 1.0) for nonce in (ONE, TWO, None, Nonce("x"))] == [None] * 4
    assert acks.receive(THREE, None, 2.0) is not None
    assert (acks.state, acks.since_s) == (SyncState.SYNCED, 2.0)


@pytest.mark.parametrize(("is_full_state", "pending"), [(False, {"a", "b"}), (True, {"a", "b", "c"})])
def test_a_nack_leaves_names_pending_and_says_what_it_is_about(*, is_full_state: bool, pending: set[str]) -> None:
    """Of a full state, all of it; it is about what was new for the client."""
    acks = Acks(is_full_state=is_full_state)
    first = sent("a", "b", "c", fresh="a") if is_full_state else sent("a", "b")
    acks.record(ONE, first, 0.0)
    answer = acks.receive(ONE, "no", 1.0)

    assert answer is not None
    expected = nack("a") if is_full_state else Nack(nack("a").versions | nack("b").versions, words="no")
    assert answer.acknowledgement.nack == expected
    assert answer.rejected == pending == acks.pending.names
    assert acks.state is SyncState.NACK
    assert (acks.reason, acks.retry_at_s) == ("no", 2.0)
    acks.record(TWO, first, 2.0)
    acks.receive(TWO, None, 2.0)
    assert (acks.pending.names, acks.reason, acks.state) == (frozenset(), None, SyncState.SYNCED)


def test_what_a_later_response_has_again_is_answered_with_that() -> None:
    """A NACK of the one before it leaves it in flight."""
    acks = Acks()
    acks.record(ONE, sent("a", "b"), 0.0)
    acks.record(TWO, sent("b"), 0.0)
    acks.receive(ONE, "no", 1.0)

    assert acks.pending.names == {"a"}
    assert acks.in_flight == {"b"}


def test_a_client_that_never_answers_is_assumed_to_ack() -> None:
    """What is older than so many responses."""
    acks = Acks()
    for number in range(MOST_UNANSWERED + 1):
        acks.record(Nonce(str(number)), sent("a"), 0.0)

    assert acks.receive(Nonce("0"), "no", 1.0) is None
    assert acks.receive(Nonce("1"), "no", 1.0) is not None


def test_what_is_assumed_to_be_acked_is_not_sent_again() -> None:
    """Names that were NACKed wait for an answer no more when the oldest of too many responses had them again."""
    acks = Acks()
    acks.record(ONE, sent("a"), 0.0)
    acks.receive(ONE, "no", 0.0)
    acks.record(TWO, sent("a"), 1.0)
    for number in range(MOST_UNANSWERED):
        assert acks.pending.names == {"a"}
        acks.record(Nonce(f"later {number}"), sent("b"), 1.0)

    assert not acks.pending.names


@pytest.mark.parametrize(
    ("generation", "selects", "expected"),
    [(1, True, True), (2, False, False), (2, True, False), (3, False, True), (3, True, False)],
)
def test_what_of_a_snapshot_is_answered(generation: int, *, selects: bool, expected: bool) -> None:
    """All that it was sent since; for what is no change to it, also what is in flight from before does not count."""
    acks = Acks()
    acks.record(ONE, sent("a", generation=1), 0.0)
    acks.receive(ONE, None, 0.0)
    if generation > 1:
        acks.record(TWO, sent("a", generation=2), 0.0)

    assert acks.has_answered(generation, selects=selects) is expected


def test_a_heartbeat_is_not_waited_for() -> None:
    """It brings nothing."""
    acks = Acks()
    acks.record(ONE, sent("a", generation=0), 0.0)

    assert acks.has_answered(5, selects=True)
    assert (acks.state, acks.unconfirmed) == (SyncState.SYNCED, frozenset())


@pytest.mark.parametrize(
    ("nonce", "is_stale", "is_answered"),
    [(ONE, True, True), (TWO, False, True), (Nonce("x"), True, False), (None, False, False)],
)
def test_stale_requests(nonce: Nonce | None, *, is_stale: bool, is_answered: bool) -> None:
    """Those with another nonce than the last response's; the one that was answered last is known."""
    acks = Acks()
    acks.record(ONE, sent("a"), 0.0)
    acks.receive(ONE, None, 0.0)
    acks.record(TWO, sent("a"), 0.0)

    assert (acks.is_stale(nonce), acks.is_answered(nonce)) == (is_stale, is_answered)


@pytest.mark.parametrize(
    ("before", "at_ack", "at_nack", "at_nothing"),
    [
        (SENT, ACKED, NACKED, UNKNOWN),
        (ACKED, ACKED, NACKED, UNKNOWN),
        (NACKED, ACKED, NACKED, UNKNOWN),
        (UNKNOWN, ACKED, UNKNOWN, UNKNOWN),
        (NACKED_BEFORE, FORGOTTEN, NACKED_BEFORE, FORGOTTEN),
    ],
)
def test_what_a_poll_shows_of_a_version(
    before: PollState, at_ack: PollState, at_nack: PollState, at_nothing: PollState
) -> None:
    """As the table says; only a change is reported, and what is from elsewhere is forgotten."""
    evidence = {
        PollEvidence.ACK: at_ack,
        PollEvidence.NACK: at_nack,
        PollEvidence.NOTHING: at_nothing,
        PollEvidence.ELSEWHERE: FORGOTTEN,
    }
    for shown, expected in evidence.items():
        polled = PolledVersion(Version("1"), 0.0, 0.0, before)
        assert polled.receive(shown) is (expected is not before)
        assert polled.state is expected


def test_the_back_off_of_a_version() -> None:
    """It grows with the NACKs in a row that are more than are allowed, and a lost response ends it."""
    polled = PolledVersion(Version("1"), 100.0, 100.0)
    waits_s = []
    for _ in range(3):
        polled.state = SENT
        polled.receive(PollEvidence.NACK)
        waits_s.append((polled.retry_at_s(0) - 100.0, polled.retry_at_s(1) - 100.0))

    assert waits_s == [(1.0, 0.0), (2.0, 1.0), (4.0, 2.0)]
    polled.receive_lost()
    assert (polled.nacks, polled.state) == (0, UNKNOWN)
