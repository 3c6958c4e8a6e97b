"""Where a node that polls is with the steps of a rollout, and what it rejects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsxds.model.resources import Snapshot
from fsxds.model.values import Version
from fsxds.protocol.messages import ENVOY, Node
from fsxds.protocol.poll import PollMemory, PollRequest, Send, Wait
from fsxds.protocol.polling_node import LEAST_PAUSE_S, PollingNode
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.rollout import Step
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import Nack
from fsxds.rollout.step import Standing
from tests.support.rollouts import Tree, tree_snapshot
from tests.support.snapshots import snapshot, type_url
from tests.support.steps import step_between

NODE = Node("n1", agent=ENVOY)
CDS, LDS = Subscription(type_url("CDS")), Subscription(type_url("LDS"))
BEFORE = snapshot({"CDS": {"a": "1"}, "EDS": {"a": "1", "b": "1"}, "LDS": {"l": "1"}, "SDS": {"s": "1"}})
GROWN = replace(
    tree_snapshot(
        {"CDS": {"a": "1", "b": "1 EDS:b"}, "EDS": {"a": "2", "b": "1"}, "LDS": {"l": "1"}, "SDS": {"s": "2"}}
    ),
    generation=2,
)


def eds(*names: str) -> Subscription:
    """Return the subscription of a poll for endpoints."""
    return Subscription.for_request(type_url("EDS"), names)


class Polls:
    """The polls of one node, as a transport drives them."""

    def __init__(self, *held: Subscription, served: Snapshot = BEFORE, node: Node = NODE) -> None:
        self.memory = PollMemory()
        self.described = node
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
        return PollRequest(
            self.described, subscription, Version(version) if version else None, error_detail=error_detail
        )

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

    def standing(self, step: Step) -> Standing:
        """Ask the node."""
        return self.node.standing(step)

    def nack(self) -> Nack | None:
        """Return what it rejected with its last poll, once."""
        nack, self.node.nack = self.node.nack, None
        return nack

    @property
    def node(self) -> PollingNode:
        """What is known of it."""
        node = self.memory.node_of(self.described)
        assert node is not None
        return node


def resource_version(served: Snapshot, short_name: str, name: str) -> ResourceVersion:
    """Return the version of a resource."""
    key = type_url(short_name), name
    return key, served.resources(key[0])[name].version


def test_who_loses_its_connection_in_a_step_has_not_taken_it() -> None:
    """It gives all its polls up, one after the other, and comes back with what it had: routes before clusters would fail."""
    polls = Polls(CDS, LDS, eds("a"))
    step = polls.begin()
    polls.give_up(CDS)

    assert (polls.node.is_polling, polls.standing(step)) == (True, Standing.PENDING)

    polls.give_up(LDS)
    polls.give_up(eds("a"))

    assert (polls.node.is_polling, polls.standing(step)) == (False, Standing.PENDING)


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
    before = tree_snapshot({"CDS": {"a": "1 EDS:a"}, "EDS": {"a": "1"}})
    grown = tree_snapshot({"CDS": {"a": "1 EDS:a", "b": "1 EDS:b"}, "EDS": {"a": "2", "b": "1"}}, before)
    polls = Polls(CDS, served=before)
    step = polls.begin(grown, endpoints=("b",))
    polls.take(CDS, before)
    assert polls.standing(step) is Standing.PENDING
    assert polls.poll(eds("b"), None)
    assert polls.standing(step) is Standing.PENDING
    polls.poll(eds("b"), version_of(grown, eds("b")))

    assert polls.standing(step) is Standing.TAKEN


def test_endpoints_of_clusters_that_were_taken_back_are_not_waited_for() -> None:
    """A node that rejected a cluster is served those before: it has nothing to poll the endpoints for."""
    before = tree_snapshot({"CDS": {"a": "1 EDS:a"}, "EDS": {"a": "1"}})
    grown = tree_snapshot({"CDS": {"a": "1 EDS:a", "b": "1 EDS:b"}, "EDS": {"a": "1", "b": "1"}}, before)
    polls = Polls(CDS, served=before)
    polls.begin(grown, endpoints=("b",))
    back = tree_snapshot({"CDS": {"a": "2 EDS:a"}, "EDS": {"a": "1", "b": "1"}}, grown)
    step = polls.begin(back)
    assert polls.standing(step) is Standing.PENDING
    polls.take(CDS, before)

    assert polls.standing(step) is Standing.TAKEN


@pytest.mark.parametrize("has_scopes", [False, True])
def test_routes_of_listeners_that_are_gone_are_not_waited_for(*, has_scopes: bool) -> None:
    """Their polls are answered in the same moment as those for listeners, and are not sent again. Scopes may name them still."""
    rds, scopes = Subscription.for_request(type_url("RDS"), ("r",)), Subscription(type_url("SRDS"))
    kept: Tree = {"SRDS": {"s": "1 RDS:r"}, "CDS": {"c": "1"}}
    before = tree_snapshot({**kept, "RDS": {"r": "1"}, "LDS": {"l": "1 RDS:r", "k": "1"}})
    polls = Polls(LDS, rds, *([scopes] if has_scopes else []), served=before)
    step = polls.begin(tree_snapshot({**kept, "RDS": {"r": "2"}, "LDS": {"k": "1"}}, before))
    polls.look(rds, version_of(before, rds))
    assert polls.standing(step) is Standing.PENDING
    polls.take(LDS, before)

    assert polls.standing(step) is (Standing.PENDING if has_scopes else Standing.TAKEN)


def test_routes_of_a_listener_that_is_not_taken_yet_are_waited_for() -> None:
    """So that a node has taken a step when it has both, whichever it takes first."""
    rds = Subscription.for_request(type_url("RDS"), ("r",))
    before = tree_snapshot({"RDS": {"r": "1"}, "LDS": {"l": "1 RDS:r"}})
    polls = Polls(LDS, rds, served=before)
    step = polls.begin(tree_snapshot({"RDS": {"r": "2"}, "LDS": {"l": "2 RDS:r"}}, before))
    polls.look(rds, version_of(before, rds))
    polls.take(LDS, before)
    assert polls.standing(step) is Standing.PENDING
    polls.poll(rds, version_of(polls.served, rds))

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
    polls.now_s += LEAST_PAUSE_S + 1
    polls.poll(CDS, version_of(BEFORE, CDS))
    step = polls.begin()
    polls.take(CDS)

    assert polls.standing(step) is Standing.TAKEN


def test_a_pause_between_two_polls_is_waited_out() -> None:
    """A client that has just been answered will poll again, for endpoints that a cluster of it needs."""
    served = tree_snapshot({"CDS": {"a": "1 EDS:a"}, "EDS": {"a": "1"}})
    polls = Polls(CDS, served=served)
    polls.poll(eds("a"), None)
    polls.now_s += LEAST_PAUSE_S - 1
    polls.poll(CDS, version_of(served, CDS))
    step = polls.begin(tree_snapshot({"CDS": {"a": "2 EDS:a"}, "EDS": {"a": "2"}}, served))
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


def test_two_nacks_in_a_row_are_a_rejection() -> None:
    """One may be a response that was lost; what is rejected is answered, and not waited for in the next step either."""
    polls = Polls(CDS, LDS)
    step = polls.begin()
    polls.look(CDS, version_of(BEFORE, CDS))
    polls.poll(CDS, version_of(BEFORE, CDS))
    assert (polls.standing(step), polls.nack()) == (Standing.PENDING, None)
    polls.now_s += 1
    polls.look(CDS, version_of(BEFORE, CDS))
    polls.poll(CDS, version_of(BEFORE, CDS))

    assert polls.standing(step) is Standing.TAKEN
    assert polls.nack() == Nack(frozenset({resource_version(GROWN, "CDS", "b")}))
    again = polls.begin(replace(GROWN, generation=3))
    assert polls.standing(again) is Standing.TAKEN


def test_what_was_rejected_before_is_rejected_at_once() -> None:
    """A client that NACKs a response with a resource that it rejected did not lose it."""
    polls = Polls(CDS)
    polls.begin()
    for _ in range(2):
        polls.look(CDS, version_of(BEFORE, CDS))
        polls.poll(CDS, version_of(BEFORE, CDS))
        polls.now_s += 2
    assert polls.nack() is not None
    polls.begin(replace(tree_snapshot({"CDS": {"a": "1", "b": "1 EDS:b", "c": "1"}}), generation=3))
    polls.look(CDS, version_of(BEFORE, CDS))
    polls.poll(CDS, version_of(BEFORE, CDS))

    names = {resource_version(polls.served, "CDS", name) for name in "bc"}
    assert polls.nack() == Nack(frozenset(names))


def test_a_nack_with_an_error_is_a_rejection_at_once() -> None:
    """A client that says why did not lose the response; what it had before is no suspect."""
    polls = Polls(eds("a", "b"))
    step = polls.begin()
    polls.look(eds("a", "b"), version_of(BEFORE, eds("a", "b")))
    polls.poll(eds("a", "b"), version_of(BEFORE, eds("a", "b")), "no such thing")

    assert polls.standing(step) is Standing.TAKEN
    assert polls.nack() == Nack(frozenset({resource_version(GROWN, "EDS", "a")}), words="no such thing")


def test_a_node_has_returned_when_it_polled_after_an_answer() -> None:
    """Of this process, or of another one; one that comes once has not, however many types it polls."""
    polls = Polls()
    found = []
    for subscription, version in ((CDS, None), (LDS, None), (eds("a"), None), (CDS, version_of(BEFORE, CDS))):
        polls.poll(subscription, version)
        found.append(polls.node.has_returned)
    other = Polls()
    other.poll(CDS, "of another process")

    assert found == [False, False, False, True]
    assert other.node.has_returned


def test_a_dashboard_polls_no_endpoints() -> None:
    """Whoever polls clusters alone, and is no Envoy, is not waited for to ask for what these need."""
    polls = Polls(CDS, node=Node("dashboard"))
    step = polls.begin(endpoints=("b",))
    polls.take(CDS)
    assert polls.standing(step) is Standing.TAKEN

    follower = Polls(CDS, eds("a"), node=Node("resolver"))
    step = follower.begin(endpoints=("b",))
    follower.take(CDS)
    follower.take(eds("a"))
    assert follower.standing(step) is Standing.PENDING


def test_what_a_step_waited_for_in_vain_is_waited_for_in_the_next() -> None:
    """Also where that changes something else."""
    polls = Polls(CDS, LDS)
    polls.begin()
    step = polls.begin(
        snapshot({"CDS": {"a": "1", "b": "1"}, "EDS": {"a": "2", "b": "1"}, "LDS": {"l": "2"}}, generation=3)
    )
    polls.take(LDS)
    assert polls.standing(step) is Standing.PENDING
    polls.take(CDS)

    assert polls.standing(step) is Standing.TAKEN


def test_what_a_client_has_nothing_of_is_waited_for_when_it_polls_again() -> None:
    """Since it got that a name does not exist, it may have given up on that."""
    polls = Polls()
    polls.poll(eds("new"), None)
    step = polls.begin(snapshot({"EDS": {"a": "1", "b": "1", "new": "1"}}, generation=2))

    assert polls.standing(step) is Standing.TAKEN


@pytest.mark.parametrize(
    ("short_name", "name", "expected"),
    [("CDS", "x", True), ("EDS", "a", True), ("EDS", "b", False), ("LDS", "l", False)],
)
def test_what_a_node_subscribes_to(short_name: str, name: str, *, expected: bool) -> None:
    """Its vote counts for that alone."""
    assert (Polls(CDS, eds("a", "c")).node.selected(type_url(short_name), frozenset((name,))) == {name}) is expected


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
        assert not isinstance(decision, Wait)

    assert polls.memory.node_of(NODE) is None
    assert not node.is_polling
    assert node.standing(step) is Standing.TAKEN
    polls.give_up(CDS)
