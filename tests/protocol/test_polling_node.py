"""How a node that polls stands in a step of a rollout."""

from __future__ import annotations

import pytest

from fsxds.protocol.messages import Node
from fsxds.protocol.poll import Hold, PollMemory, PollRequest, Send
from fsxds.protocol.polling_node import LONGEST_PAUSE_S
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.resources import Snapshot
from fsxds.rollout import Rejection, Standing, Step
from fsxds.values import Version
from tests.support.snapshots import snapshot, type_url
from tests.support.steps import step_between

NODE = Node("n1")
CDS, LDS = Subscription(type_url("CDS")), Subscription(type_url("LDS"))
BEFORE = snapshot({"CDS": {"a": "1"}, "EDS": {"a": "1", "b": "1"}, "LDS": {"l": "1"}, "SDS": {"s": "1"}})
GROWN = snapshot(
    {"CDS": {"a": "1", "b": "1"}, "EDS": {"a": "2", "b": "1"}, "LDS": {"l": "1"}, "SDS": {"s": "2"}}, generation=2
)


def eds(*names: str) -> Subscription:
    """Return the subscription of a poll for endpoints."""
    return Subscription.for_request(type_url("EDS"), names)


class Polls:
    """The polls of one node, as a transport drives them."""

    def __init__(self, *held: Subscription, served: Snapshot = BEFORE) -> None:
        self.memory = PollMemory()
        self.served = served
        self.now_s = 100.0
        for subscription in held:
            self.poll(subscription, None)
            self.poll(subscription, version_of(served, subscription))

    def poll(self, subscription: Subscription, version: str | None, error_detail: str | None = None) -> bool:
        """Poll, and return whether that is answered at once."""
        request = self.request(subscription, version, error_detail)
        decision, _ = self.memory.receive_request(request, self.served, self.now_s)
        if isinstance(decision, Send):
            self.memory.receive_end(request, self.now_s, is_given_up=False)
        return isinstance(decision, Send)

    def look(self, subscription: Subscription, version: str | None) -> None:
        """Look again at a poll that is held, which is answered then."""
        request = self.request(subscription, version)
        decision = self.memory.receive_snapshot(request, self.served, self.now_s)
        assert isinstance(decision, Send)
        self.memory.receive_end(request, self.now_s, is_given_up=False)

    def give_up(self, subscription: Subscription) -> None:
        """Break off a poll that is held."""
        self.memory.receive_end(self.request(subscription, None), self.now_s, is_given_up=True)

    def request(self, subscription: Subscription, version: str | None, error_detail: str | None = None) -> PollRequest:
        """Make a poll."""
        return PollRequest(NODE, subscription, Version(version) if version else None, error_detail=error_detail)

    def begin(self, served: Snapshot = GROWN, endpoints: tuple[str, ...] = ()) -> Step:
        """Serve something newer."""
        step = step_between(self.served, served, endpoints)
        self.served = served
        self.standing(step)
        return step

    def take(self, subscription: Subscription, before: Snapshot = BEFORE) -> None:
        """Answer a held poll, and let the client accept that."""
        self.look(subscription, version_of(before, subscription))
        assert not self.poll(subscription, version_of(self.served, subscription))

    def standing(self, step: Step) -> Standing | Rejection:
        """Ask the node."""
        node = self.memory.node_of(NODE)
        assert node is not None
        return node.standing(step)


def test_a_step_is_taken_when_its_versions_came_back() -> None:
    """Each poll of what a step changes has to come back with the new version; others do not matter."""
    polls = Polls(CDS, eds("a"), LDS)
    step = polls.begin()
    polls.take(eds("a"))
    assert polls.standing(step) is Standing.PENDING
    polls.look(CDS, version_of(BEFORE, CDS))
    assert polls.standing(step) is Standing.PENDING
    polls.poll(CDS, version_of(GROWN, CDS))

    assert polls.standing(step) is Standing.TAKEN


def test_types_and_names_that_nobody_polls_are_taken() -> None:
    """A node that polls nothing of what a step changes has taken it."""
    polls = Polls(LDS, eds("b"))

    assert polls.standing(polls.begin()) is Standing.TAKEN


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_several_names_in_one_poll(order: tuple[str, ...]) -> None:
    """A poll for several names is one subscription, which changes with each of them."""
    polls = Polls(eds(*order), eds("c"), LDS)
    step = polls.begin()
    assert polls.standing(step) is Standing.PENDING
    polls.take(eds(*order))

    assert polls.standing(step) is Standing.TAKEN


def test_a_step_of_more_names_than_polls() -> None:
    """Where a step changes more names than the node has polls, it counts the same."""
    names = {f"n{number}": "1" for number in range(50)}
    polls = Polls(eds("a"))
    step = polls.begin(snapshot({"EDS": {**names, "a": "2"}}, generation=2))
    assert polls.standing(step) is Standing.PENDING
    polls.look(eds("a"), version_of(BEFORE, eds("a")))
    polls.poll(eds("a"), version_of(polls.served, eds("a")))

    assert polls.standing(step) is Standing.TAKEN


def test_endpoints_that_new_clusters_need_are_waited_for() -> None:
    """After its clusters a node polls their endpoints; only when it has these it has taken the step."""
    polls = Polls(CDS)
    step = polls.begin(endpoints=("b",))
    polls.take(CDS)
    assert polls.standing(step) is Standing.PENDING
    assert polls.poll(eds("b"), None)
    assert polls.standing(step) is Standing.PENDING
    polls.poll(eds("b"), version_of(GROWN, eds("b")))

    assert polls.standing(step) is Standing.TAKEN


def test_endpoints_that_were_polled_before_the_step_do_not_count() -> None:
    """A changed cluster polls its endpoints anew, so that a poll that is held already shows nothing."""
    polls = Polls(CDS, eds("b"))
    step = polls.begin(endpoints=("b",))
    polls.take(CDS)
    polls.give_up(eds("b"))
    assert polls.standing(step) is Standing.PENDING
    assert polls.poll(eds("b"), None)
    polls.poll(eds("b"), version_of(GROWN, eds("b")))

    assert polls.standing(step) is Standing.TAKEN


def test_a_node_without_clusters_needs_no_endpoints() -> None:
    """Whoever polls no clusters gets no new ones, and is not expected to ask for their endpoints."""
    polls = Polls(eds("a"))
    step = polls.begin(endpoints=("b",))
    polls.take(eds("a"))

    assert polls.standing(step) is Standing.TAKEN


def test_a_poll_that_was_given_up_is_not_waited_for() -> None:
    """Its cluster may be gone; when it comes back and is answered, its version has to come back as well."""
    polls = Polls(CDS, eds("a"))
    step = polls.begin()
    polls.take(CDS)
    polls.give_up(eds("a"))
    assert polls.standing(step) is Standing.TAKEN
    assert polls.poll(eds("a"), version_of(BEFORE, eds("a")))
    assert polls.standing(step) is Standing.PENDING
    polls.poll(eds("a"), version_of(GROWN, eds("a")))

    assert polls.standing(step) is Standing.TAKEN


def test_a_poll_that_was_given_up_before_the_step_is_not_waited_for() -> None:
    """What the client gave up and did not poll again is not a subscription any more."""
    polls = Polls(CDS, eds("a"))
    polls.give_up(eds("a"))
    step = polls.begin()
    polls.take(CDS)

    assert polls.standing(step) is Standing.TAKEN


def test_one_of_two_polls_for_the_same_is_given_up() -> None:
    """Two clusters may share their endpoints: while one of them polls, its poll is waited for."""
    polls = Polls(eds("a"))
    polls.poll(eds("a"), version_of(BEFORE, eds("a")))
    step = polls.begin()
    polls.give_up(eds("a"))

    assert polls.standing(step) is Standing.PENDING


def test_a_node_that_gave_up_everything_does_not_poll() -> None:
    """An Envoy that ends breaks off all that it had open; its endpoints will not be polled any more."""
    polls = Polls(CDS)
    step = polls.begin(endpoints=("b",))
    polls.take(CDS)
    node = polls.memory.node_of(NODE)
    assert node is not None
    was_polling = node.is_polling
    polls.give_up(CDS)

    assert (was_polling, node.is_polling) == (True, False)
    assert polls.standing(step) is Standing.TAKEN


def test_a_poll_that_did_not_come_back_for_long_is_not_waited_for() -> None:
    """A cluster that goes between two polls of its endpoints leaves no other sign."""
    polls = Polls(CDS)
    polls.poll(eds("a"), None)
    polls.now_s += LONGEST_PAUSE_S + 1
    polls.poll(CDS, version_of(BEFORE, CDS))
    step = polls.begin()
    polls.take(CDS)

    assert polls.standing(step) is Standing.TAKEN


def test_a_pause_between_two_polls_is_waited_out() -> None:
    """A client that has just been answered will poll again."""
    polls = Polls(CDS)
    polls.poll(eds("a"), None)
    polls.now_s += LONGEST_PAUSE_S - 1
    polls.poll(CDS, version_of(BEFORE, CDS))
    step = polls.begin()
    polls.take(CDS)

    assert polls.standing(step) is Standing.PENDING


def test_names_that_go_are_not_waited_for() -> None:
    """Endpoints that do not exist any more: what used them has gone, or keeps what it has."""
    polls = Polls(eds("a"))
    step = polls.begin(snapshot({"EDS": {"b": "1"}}, generation=2))

    assert type_url("EDS") in step.changed
    assert polls.standing(step) is Standing.TAKEN


def test_names_that_go_are_not_waited_for_when_their_poll_is_answered() -> None:
    """An Envoy that drops a cluster polls its endpoints no more, though the last poll for them was answered."""
    polls = Polls(CDS, eds("a"), eds("b"), served=GROWN)
    step = polls.begin(snapshot({"CDS": {"a": "1"}, "EDS": {"a": "2"}}, generation=3))
    polls.look(eds("b"), version_of(GROWN, eds("b")))
    polls.take(CDS, before=GROWN)

    assert polls.standing(step) is Standing.TAKEN


def test_a_held_poll_for_what_did_not_exist_is_waited_for() -> None:
    """A first poll that could not be answered is answered by the step that brings its name."""
    secret = Subscription.for_request(type_url("SDS"), ["new"])
    polls = Polls()
    assert not polls.poll(secret, None)
    step = polls.begin(snapshot({"SDS": {"s": "1", "new": "1"}}, generation=2))
    assert polls.standing(step) is Standing.PENDING
    polls.look(secret, None)
    polls.poll(secret, version_of(polls.served, secret))

    assert polls.standing(step) is Standing.TAKEN


def test_what_may_take_something_away_is_not_waited_for() -> None:
    """A client of a process before, which is sent nothing while a file may define more, holds nobody up."""
    polls = Polls(served=snapshot({"CDS": {"a": "1"}}, incomplete=["CDS"]))
    assert not polls.poll(CDS, "of another process")

    assert (
        polls.standing(polls.begin(snapshot({"CDS": {"a": "2"}}, incomplete=["CDS"], generation=2))) is Standing.TAKEN
    )


def test_the_version_before_counts_only_when_it_was_sent_again() -> None:
    """A client that NACKed a version polls with the one before; that may be in use in part only, also where it is the target."""
    polls = Polls(CDS)
    polls.begin()
    polls.look(CDS, version_of(BEFORE, CDS))
    back = snapshot(
        {"CDS": {"a": "1"}, "EDS": {"a": "1", "b": "1"}, "LDS": {"l": "1"}, "SDS": {"s": "1"}}, generation=3
    )
    step = polls.begin(back)
    assert polls.poll(CDS, version_of(BEFORE, CDS))
    assert polls.standing(step) is Standing.PENDING
    polls.poll(CDS, version_of(BEFORE, CDS))

    assert polls.standing(step) is Standing.TAKEN


def test_two_nacks_in_a_row_reject_a_step() -> None:
    """One may be a response that was lost; a step that is rejected says what it changed."""
    polls = Polls(CDS, LDS)
    step = polls.begin()
    polls.look(CDS, version_of(BEFORE, CDS))
    polls.poll(CDS, version_of(BEFORE, CDS))
    assert polls.standing(step) is Standing.PENDING
    polls.now_s += 1
    polls.look(CDS, version_of(BEFORE, CDS))
    polls.poll(CDS, version_of(BEFORE, CDS))

    rejection = Rejection(CDS.type_url, version_of(GROWN, CDS), frozenset("b"), None)
    assert polls.standing(step) == rejection
    polls.now_s += 2
    polls.look(CDS, version_of(BEFORE, CDS))
    assert polls.standing(step) == rejection
    polls.poll(CDS, version_of(GROWN, CDS))
    assert polls.standing(step) is Standing.TAKEN


@pytest.mark.parametrize("reason", [None, "no such thing"])
def test_what_was_rejected_before_a_step_does_not_reject_it(reason: str | None) -> None:
    """Where the client says nothing, it may be the same that it rejects again; a client that says why rejects the step."""
    polls = Polls(CDS)
    polls.served = snapshot({"CDS": {"a": "2"}, "LDS": {"l": "1"}}, generation=2)
    for _ in range(3):
        polls.now_s += 10
        polls.poll(CDS, version_of(BEFORE, CDS))
    step = polls.begin(snapshot({"CDS": {"a": "2", "b": "1"}, "LDS": {"l": "1"}}, generation=3))
    polls.poll(CDS, version_of(BEFORE, CDS))
    assert polls.standing(step) is Standing.PENDING
    for _ in range(2):
        polls.now_s += 10
        polls.poll(CDS, version_of(BEFORE, CDS), reason)

    assert isinstance(polls.standing(step), Rejection) is (reason is not None)
    assert polls.standing(step) is not Standing.PENDING


def test_a_nack_with_an_error_rejects_a_step_at_once() -> None:
    """A client that says why did not lose the response."""
    polls = Polls(eds("a", "b"))
    step = polls.begin()
    polls.look(eds("a", "b"), version_of(BEFORE, eds("a", "b")))
    polls.poll(eds("a", "b"), version_of(BEFORE, eds("a", "b")), "no such thing")

    rejection = Rejection(type_url("EDS"), version_of(GROWN, eds("a", "b")), frozenset("a"), "no such thing")
    assert polls.standing(step) == rejection
    polls.give_up(eds("a", "b"))
    assert polls.standing(step) is Standing.TAKEN


def test_a_nack_of_something_before_is_none_of_the_step() -> None:
    """What a client rejected before a step, and the step does not change, does not reject it."""
    polls = Polls(CDS, served=GROWN)
    polls.poll(CDS, "old", "no")
    changed = snapshot({"CDS": {"a": "1", "b": "1"}, "LDS": {"l": "2"}}, generation=3)
    step = polls.begin(changed)
    polls.poll(CDS, "old", "no")

    assert polls.standing(step) is Standing.TAKEN


def test_what_is_forgotten_is_not_waited_for() -> None:
    """A client that others push out of the memory holds nobody up."""
    polls = Polls()
    polls.memory = PollMemory(lambda: 2)
    polls.poll(eds("a"), None)
    polls.poll(CDS, None)
    step = polls.begin()
    node = polls.memory.node_of(NODE)
    assert node is not None
    for other in ("n2", "n3"):
        decision, _ = polls.memory.receive_request(PollRequest(Node(other), CDS), polls.served, 0.0)
        assert not isinstance(decision, Hold)

    assert polls.memory.node_of(NODE) is None
    assert not node.is_polling
    assert node.standing(step) is Standing.TAKEN
    polls.give_up(CDS)
