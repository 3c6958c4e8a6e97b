from __future__ import annotations

from dataclasses import replace

import pytest

from fsxds.model.values import Version
from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.poll import PollMemory, PollRequest, Send, Unavailable, Wait, nonce_of, patience_s
from fsxds.protocol.polling_node import PollingNode
from fsxds.protocol.subscription import Subscription
from fsxds.rollout.step import Standing
from tests.support.rollouts import marked
from tests.support.snapshots import snapshot, type_url
from tests.support.steps import step_between

CDS = Subscription(type_url("CDS"))
CURRENT = snapshot({"CDS": {"a": "1"}})
OFFERED = CURRENT.versions[CDS.type_url]


def poll(node: str, version: str | None = None) -> PollRequest:
    return PollRequest(Node(node), CDS, None if version is None else Version(version))


def rejects(memory: PollMemory, node: str) -> bool:
    """Poll with the version before: whether `memory` takes that for a rejection of what it sent before."""
    decision, _ = memory.receive_request(poll(node, "old"), CURRENT, 0.0)
    return isinstance(decision, Wait)


def test_nonce_is_the_version() -> None:
    """Equal answers have equal nonces, so that their bytes are equal."""
    assert nonce_of(Version("abc")) == "abc"


def test_hold_tells_when_to_look_again() -> None:
    """A poll that waits out a back-off is to be looked at when that ends, any other only when there is an update."""
    memory = PollMemory()
    memory.receive_request(poll("n1", "old"), CURRENT, 10.0)

    rejected, _ = memory.receive_request(poll("n1", "old"), CURRENT, 10.5)
    held, _ = memory.receive_request(poll("n2", OFFERED), CURRENT, 10.5)

    assert Wait(11.0) == rejected
    assert Wait(None) == held


def test_a_first_response_can_be_rejected_without_its_nonce() -> None:
    """There is no version to poll with, and whoever leaves out the nonce would get the same again at once, for ever."""
    memory = PollMemory()
    memory.receive_request(poll("n1"), CURRENT, 10.0)
    decision, acknowledgement = memory.receive_request(replace(poll("n1"), error_detail="bad"), CURRENT, 10.1)

    assert decision == Wait(11.0)
    assert acknowledgement == Acknowledgement(OFFERED, accepted=False, reason="bad")


def test_a_held_poll_is_recognized_when_what_its_client_holds_is_served_at_last() -> None:
    """After a restart, an upstream may answer later than clients come back: they have what they hold, and a step waits for none."""
    known: list[PollingNode] = []
    memory = PollMemory(recognized=known.append)
    first = marked(snapshot({"LDS": {}, "CDS": {}}), "withheld", "CDS")
    decision, _ = memory.receive_request(poll("n1", OFFERED), first, 0.0)
    node = memory.node_of(Node("n1"))
    assert node is not None
    step = step_between(first, CURRENT)

    assert decision == Wait()
    assert node.standing(step) is Standing.PENDING
    assert memory.receive_snapshot(poll("n1", OFFERED), CURRENT, 1.0) == Wait()
    assert known == [node]
    assert node.standing(step) is Standing.TAKEN


def test_unavailable_says_why() -> None:
    """Where there is no answer, the reason is for users."""
    memory = PollMemory()
    nothing, _ = memory.receive_request(poll("n1"), None, 0.0)
    broken = snapshot({"LDS": {}, "CDS": {"a": "1"}}, incomplete=["CDS"])
    named = PollRequest(Node("n1"), Subscription.for_request(CDS.type_url, ["b"]))
    missing, _ = memory.receive_request(named, broken, 0.0)

    assert isinstance(nothing, Unavailable)
    assert "no good content is loaded yet" in nothing.reason
    assert isinstance(missing, Unavailable)
    assert "never good" in missing.reason


def test_client_is_forgotten_when_many_others_came_after_it() -> None:
    """Memory is bounded: the client that polled longest ago is forgotten, and counts as never seen."""
    memory = PollMemory(lambda: 2)
    for node in ("n1", "n2", "n3"):
        memory.receive_request(poll(node, "old"), CURRENT, 0.0)

    assert not rejects(memory, "n1")
    assert rejects(memory, "n3")


def test_client_that_polls_is_not_forgotten() -> None:
    """What counts is the last poll, not the last answer."""
    memory = PollMemory(lambda: 2)
    for node, version in (("n1", "old"), ("n2", None), ("n1", OFFERED), ("n3", None)):
        memory.receive_request(poll(node, version), CURRENT, 0.0)

    assert rejects(memory, "n1")


def test_client_that_is_answered_is_not_forgotten() -> None:
    """An answer to a held poll counts as well."""
    memory = PollMemory(lambda: 2)
    memory.receive_request(poll("n1", OFFERED), CURRENT, 0.0)
    memory.receive_request(poll("n2", OFFERED), CURRENT, 0.0)
    changed = snapshot({"CDS": {"a": "2"}}, generation=2)
    memory.receive_snapshot(poll("n1", OFFERED), changed, 0.0)
    memory.receive_request(poll("n3"), changed, 0.0)

    decision, acknowledgement = memory.receive_request(poll("n1", OFFERED), changed, 0.0)

    assert Wait(1.0) == decision
    assert acknowledgement is not None
    assert not acknowledgement.accepted


def test_deadline_of_an_unknown_client_changes_nothing() -> None:
    """The end of a poll that was never answered is not remembered: the client still counts as never seen."""
    memory = PollMemory()
    memory.receive_deadline(poll("n1", "old"), 5.0)

    decision, acknowledgement = memory.receive_request(poll("n1", "old"), CURRENT, 5.0)

    assert isinstance(decision, Send)
    assert acknowledgement is None


def test_lost_answer_of_an_unknown_client_changes_nothing() -> None:
    """An answer that is lost to a client that is not remembered leaves it unknown."""
    memory = PollMemory()
    memory.receive_lost(poll("n1", "old"))

    assert not rejects(memory, "n1")


EDS, RDS = type_url("EDS"), type_url("RDS")


@pytest.mark.parametrize(
    ("other", "subscription"),
    [
        (Node("n2", "c", "p"), Subscription.for_request(EDS, ["a"])),
        (Node("n1", "d", "p"), Subscription.for_request(EDS, ["a"])),
        (Node("n1", "c", "q"), Subscription.for_request(EDS, ["a"])),
        (Node("n1", "c", "p"), Subscription.for_request(EDS, ["b"])),
        (Node("n1", "c", "p"), Subscription.for_request(EDS, ["a", "b"])),
        (Node("n1", "c", "p"), Subscription.for_request(EDS, [])),
        (Node("n1", "c", "p"), Subscription.for_request(RDS, ["a"])),
    ],
)
def test_clients_are_told_apart(other: Node, subscription: Subscription) -> None:
    """A client is its node id, cluster and address, and what it asks for; another one's answer is not its own."""
    memory = PollMemory()
    current = snapshot({"EDS": {"a": "1"}, "RDS": {"a": "1"}})
    first = PollRequest(Node("n1", "c", "p"), Subscription.for_request(EDS, ["a"]), Version("old"))
    memory.receive_request(first, current, 0.0)

    decision, acknowledgement = memory.receive_request(PollRequest(other, subscription, Version("old")), current, 0.0)

    assert isinstance(decision, Send)
    assert acknowledgement is None


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
