from __future__ import annotations

from dataclasses import replace

import pytest

from fsxds.observe.clients import FORGOTTEN_AFTER_S, POLLING, Clients, ReportedPolls
from fsxds.protocol.messages import Acknowledgement, ClientStatus, Node, WatchStatus
from fsxds.protocol.poll import PollRequest
from fsxds.protocol.subscription import Subscription, select
from fsxds.resource_types import BY_SHORT_NAME
from fsxds.resources import Snapshot
from fsxds.values import TypeUrl, Version
from tests.support.polls import named, snapshot_of

CDS, EDS = BY_SHORT_NAME["cds"].type_url, BY_SHORT_NAME["eds"].type_url
A, B = named("cds", "a"), named("cds", "b")
FIRST, SECOND = snapshot_of(1, A), snapshot_of(2, A, B)
V1, V2 = FIRST.versions[CDS], SECOND.versions[CDS]


def poll(
    node: str = "edge-1", names: tuple[str, ...] = (), version: Version | None = None, type_url: TypeUrl = CDS
) -> PollRequest:
    """Make a poll."""
    return PollRequest(Node(node), Subscription.for_request(type_url, names), version)


def sent(polls: ReportedPolls, request: PollRequest, snapshot: Snapshot, now_s: float = 0.0) -> None:
    """Let a client poll and be answered."""
    polls.poll_received(request, snapshot, now_s)
    polls.response_sent(request, select(snapshot, request.subscription), now_s)


def watches(polls: ReportedPolls, now_s: float = 0.0) -> tuple[WatchStatus, ...]:
    """Return the watches of the only client."""
    [status] = polls.statuses(now_s)
    return tuple(replace(watch, resources=tuple(watch.resources)) for watch in status.watches)


# Streams


def test_a_stream_is_told_of_while_it_is_open() -> None:
    """As it is when somebody asks, and not after it was closed."""
    clients = Clients()
    watch = WatchStatus(CDS, None)
    status_rows = [ClientStatus(Node("edge-1"), "StreamClusters", (watch,))]
    token = clients.opened(lambda: status_rows[-1])
    status_rows.append(ClientStatus(Node("edge-1"), "StreamClusters", (replace(watch, sent=V1),)))

    assert list(clients.statuses(0)) == [status_rows[-1]]

    clients.closed(token)

    assert list(clients.statuses(0)) == []


def test_two_streams_that_tell_the_same_are_two() -> None:
    """Each is closed by what it was given when it opened; twice is once."""
    clients = Clients()
    status = ClientStatus(Node("edge-1"), "StreamClusters")
    first, _ = clients.opened(lambda: status), clients.opened(lambda: status)
    clients.closed(first)
    clients.closed(first)

    assert list(clients.statuses(0)) == [status]


def test_streams_may_come_and_go_while_they_are_told_of() -> None:
    """One that is gone is left out; a report that is being made does not break."""
    clients = Clients()
    one, two = ClientStatus(Node("one"), "StreamClusters"), ClientStatus(Node("two"), "StreamClusters")
    clients.opened(lambda: one)
    token = clients.opened(lambda: two)
    telling = clients.statuses(0)

    assert next(telling) == one

    clients.closed(token)
    clients.opened(lambda: two)

    assert list(telling) == []


def test_streams_come_before_polling_clients() -> None:
    """Both are clients."""
    clients = Clients()
    clients.polls.poll_received(poll(), FIRST, 0)
    clients.opened(lambda: ClientStatus(Node("edge-2"), "StreamClusters"))

    assert [status.service for status in clients.statuses(0)] == ["StreamClusters", POLLING]


# What a polling client holds


def test_who_asks_and_was_not_answered_was_sent_nothing() -> None:
    """There may be nothing to say yet."""
    polls = ReportedPolls()
    polls.poll_received(poll(names=("a",)), None, 0)

    assert watches(polls) == (WatchStatus(CDS, frozenset({"a"})),)


def test_names_that_do_not_exist_are_known_before_anything_is_sent() -> None:
    """A poll for them is held; who looks for the reason finds it."""
    polls = ReportedPolls()
    polls.poll_received(poll(names=("a", "c")), FIRST, 0)

    assert watches(polls) == (WatchStatus(CDS, frozenset({"a", "c"}), missing=("c",)),)


@pytest.mark.parametrize(
    "snapshot", [replace(FIRST, withheld=frozenset({CDS})), replace(FIRST, incomplete=frozenset({CDS}))]
)
def test_what_may_be_in_a_broken_file_is_not_said_to_be_missing(snapshot: Snapshot) -> None:
    """Nobody knows yet."""
    polls = ReportedPolls()
    polls.poll_received(poll(names=("a", "c")), snapshot, 0)

    assert watches(polls) == (WatchStatus(CDS, frozenset({"a", "c"})),)


def test_an_answer_is_sent_but_not_accepted() -> None:
    """With its resources, and the names that do not exist."""
    polls = ReportedPolls()
    request = poll(names=("a", "c"))
    sent(polls, request, FIRST)
    selection = select(FIRST, request.subscription)

    assert watches(polls) == (
        WatchStatus(
            CDS, frozenset({"a", "c"}), selection.version, resources=tuple(selection.resources), missing=("c",)
        ),
    )
    assert list(selection.resources) == [A]


def test_the_next_poll_accepts() -> None:
    """It bears the version that was sent."""
    polls = ReportedPolls()
    sent(polls, poll(), FIRST)
    polls.poll_received(poll(version=V1), FIRST, 1)
    [watch] = watches(polls)

    assert (watch.sent, watch.acked, watch.names) == (V1, V1, None)


def test_a_poll_with_another_version_accepts_nothing() -> None:
    """Only what was sent last can be."""
    polls = ReportedPolls()
    sent(polls, poll(), FIRST)
    polls.poll_received(poll(version=Version("other")), FIRST, 1)

    assert watches(polls)[0].acked is None


def test_a_poll_that_rejects_accepts_nothing() -> None:
    """Whatever version it bears: a client with an error to report did not accept what it was sent."""
    polls = ReportedPolls()
    sent(polls, poll(), FIRST)
    polls.poll_received(replace(poll(version=V1), error_detail="bad"), FIRST, 1)

    assert watches(polls)[0].acked is None


def test_a_client_that_holds_what_is_current_from_before_is_known_to_hold_it() -> None:
    """The server restarted: nothing is sent again, and the client is in step."""
    polls = ReportedPolls()
    polls.poll_received(poll(version=V1), FIRST, 0)
    [watch] = watches(polls)

    assert (watch.sent, watch.acked, list(watch.resources)) == (V1, V1, [A])


def test_a_client_that_holds_something_else_from_before_was_sent_nothing() -> None:
    """What it holds is not known."""
    polls = ReportedPolls()
    polls.poll_received(poll(version=V1), SECOND, 0)
    polls.poll_received(poll("edge-2", version=V1), None, 0)

    for status in polls.statuses(0):
        assert tuple(status.watches) == (WatchStatus(CDS, None),)


def test_a_verdict_accepts_or_rejects() -> None:
    """A rejection keeps what was accepted before; all resources of the answer count as rejected."""
    polls = ReportedPolls()
    sent(polls, poll(), FIRST)
    polls.ack_received(poll(), Acknowledgement(V1, accepted=True), 1)
    sent(polls, poll(version=V1), SECOND, 2)
    polls.ack_received(poll(version=V1), Acknowledgement(V2, accepted=False, reason="bad"), 3)
    [watch] = watches(polls)

    assert (watch.sent, watch.acked, watch.nacked, watch.reason) == (V2, V1, V2, "bad")
    assert watch.rejected == {"a", "b"}


def test_what_is_sent_after_a_rejection_is_not_rejected() -> None:
    """The reason stays known until something is accepted."""
    polls = ReportedPolls()
    sent(polls, poll(), SECOND)
    polls.ack_received(poll(), Acknowledgement(V2, accepted=False, reason="bad"), 1)
    sent(polls, poll(), FIRST, 2)

    assert watches(polls)[0].rejected == frozenset()
    assert watches(polls)[0].reason == "bad"


@pytest.mark.parametrize("is_verdict", [True, False])
def test_accepting_ends_a_rejection(*, is_verdict: bool) -> None:
    """By an ACK, or by a poll that bears the version."""
    polls = ReportedPolls()
    sent(polls, poll(), FIRST)
    polls.ack_received(poll(), Acknowledgement(V1, accepted=False, reason="bad"), 1)
    if is_verdict:
        polls.ack_received(poll(), Acknowledgement(V1, accepted=True), 2)
    else:
        polls.poll_received(poll(version=V1), FIRST, 2)

    assert replace(watches(polls)[0], resources=()) == WatchStatus(CDS, None, V1, V1)


def test_polls_for_other_names_are_other_watches() -> None:
    """An Envoy polls for each cluster's endpoints apart; it is one client."""
    polls = ReportedPolls()
    for names in (("a",), ("b",)):
        polls.poll_received(poll(names=names, type_url=EDS), FIRST, 0)
    polls.poll_received(poll(), FIRST, 0)

    assert [watch.names for watch in watches(polls)] == [frozenset("a"), frozenset("b"), None]


def test_the_same_node_elsewhere_is_another_client() -> None:
    """Two Envoys may have been given one id."""
    polls = ReportedPolls()
    for peer in ("10.0.0.1", "10.0.0.2"):
        polls.poll_received(replace(poll(), node=Node("edge-1", peer=peer)), FIRST, 0)

    assert [status.node.peer for status in polls.statuses(0)] == ["10.0.0.1", "10.0.0.2"]


def test_a_client_is_what_it_said_last() -> None:
    """Its metadata may change with a restart."""
    polls = ReportedPolls()
    polls.poll_received(poll(), FIRST, 0)
    polls.poll_received(replace(poll(), node=Node("edge-1", serialized=b"new")), FIRST, 1)
    [status] = polls.statuses(1)

    assert status.node.serialized == b"new"


# Which polling clients are forgotten


def test_a_client_that_does_not_poll_is_forgotten() -> None:
    """After ten minutes, not before."""
    polls = ReportedPolls()
    polls.poll_received(poll(), FIRST, 0)

    assert [*polls.statuses(FORGOTTEN_AFTER_S)]
    assert not [*polls.statuses(FORGOTTEN_AFTER_S + 1)]


def test_a_client_that_is_forgotten_while_others_are_told_of_is_left_out() -> None:
    """A report that is being made does not break."""
    polls = ReportedPolls(most_clients=2)
    for node in ("one", "two"):
        polls.poll_received(poll(node), FIRST, 0)
    telling = polls.statuses(0)
    next(telling)
    for node in ("three", "four"):
        polls.poll_received(poll(node), FIRST, 0)

    assert list(telling) == []


def test_how_long_is_the_callers_choice() -> None:
    """Who lets polls be held for longer says so."""
    clients = Clients(forgotten_after_s=1000)
    clients.polls.poll_received(poll(), FIRST, 0)

    assert [*clients.statuses(1000)]
    assert not [*clients.statuses(1001)]


def test_each_subscription_is_forgotten_by_itself() -> None:
    """A cluster that is gone is polled for no more; its client is still there."""
    polls = ReportedPolls()
    polls.poll_received(poll(names=("a",), type_url=EDS), FIRST, 0)
    polls.poll_received(poll(), FIRST, 1)
    polls.poll_received(poll(), FIRST, 500)
    polls.poll_received(poll("edge-2"), FIRST, 601)

    assert [[watch.type_url for watch in status.watches] for status in polls.statuses(601)] == [[CDS], [CDS]]


@pytest.mark.parametrize("event", ["poll_received", "response_sent", "poll_ended", "ack_received"])
def test_every_sign_of_a_client_counts(event: str) -> None:
    """A poll that is held for long and ends is one too."""
    polls = ReportedPolls()
    polls.poll_received(poll(), FIRST, 0)
    arguments = {
        "poll_received": (FIRST,),
        "response_sent": (select(FIRST, Subscription(CDS)),),
        "poll_ended": (),
        "ack_received": (Acknowledgement(V1, accepted=True),),
    }
    getattr(polls, event)(poll(), *arguments[event], FORGOTTEN_AFTER_S)

    assert [*polls.statuses(2 * FORGOTTEN_AFTER_S)]


def test_the_longest_silent_client_makes_room() -> None:
    """When there are too many."""
    polls = ReportedPolls(most_clients=2)
    for node in ("one", "two", "one", "three"):
        polls.poll_received(poll(node), FIRST, 0)

    assert [status.node.id for status in polls.statuses(0)] == ["one", "three"]


def test_a_client_of_many_subscriptions_goes_whole_to_make_room() -> None:
    """However many it has, there is one client too many until it is gone."""
    polls = ReportedPolls(most_clients=1)
    for name in "abc":
        polls.poll_received(poll(names=(name,), type_url=EDS), FIRST, 0)
    polls.poll_received(poll("edge-2"), FIRST, 0)

    assert [status.node.id for status in polls.statuses(0)] == ["edge-2"]


def test_the_longest_silent_subscription_makes_room() -> None:
    """One client cannot fill the memory with names."""
    polls = ReportedPolls(most_clients=1)
    for name in "abcdefghijak":
        polls.poll_received(poll(names=(name,), type_url=EDS), FIRST, 0)

    assert [watch.names for watch in watches(polls)] == [frozenset(name) for name in "cdefghijak"]


def test_what_was_forgotten_makes_room_once() -> None:
    """The count of subscriptions follows what is there."""
    polls = ReportedPolls(most_clients=1)
    for at_s in (0, 10_000, 20_000):
        for name in "abcdefghij":
            polls.poll_received(poll(names=(name,), type_url=EDS), FIRST, at_s)

    assert len(watches(polls, 20_000)) == 10


def test_many_or_long_names_count_as_several_subscriptions() -> None:
    """A client that names a megabyte leaves no more than that behind."""
    polls = ReportedPolls(most_clients=1)
    polls.poll_received(poll(names=("a",), type_url=EDS), FIRST, 0)
    polls.poll_received(poll(names=("b" * 9000,), type_url=EDS), FIRST, 0)
    polls.poll_received(poll(names=("c",), type_url=EDS), FIRST, 0)

    assert [watch.names for watch in watches(polls)] == [frozenset(("b" * 9000,)), frozenset("c")]
