"""How a node that polls stands with what it was sent, by the polls that it sends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsxds.model.resources import Snapshot
from fsxds.model.values import Nonce
from fsxds.protocol.messages import SyncState, WatchStatus, combined_state
from fsxds.protocol.polling_node import LEAST_PAUSE_S
from fsxds.protocol.subscription import Subscription, select, version_of
from tests.protocol.test_polling_node import BEFORE, CDS, LDS, Polls, eds
from tests.support.rollouts import tree_snapshot
from tests.support.snapshots import snapshot, type_url

FIRST, SECOND = snapshot({"CDS": {"a": "1"}}), replace(snapshot({"CDS": {"a": "2", "b": "1"}}), generation=2)
V1, V2 = version_of(FIRST, CDS), version_of(SECOND, CDS)
NAMES = Subscription.for_request(type_url("CDS"), ("a", "c"))
RDS = Subscription.for_request(type_url("RDS"), ("r",))
USED = tree_snapshot({"CDS": {"a": "1 EDS:a"}, "EDS": {"a": "1"}, "LDS": {"l": "1 RDS:r"}, "RDS": {"r": "1"}})


def watches(polls: Polls) -> tuple[WatchStatus, ...]:
    """Return what is told of the node."""
    status = polls.node.status(polls.served)
    return tuple(replace(watch, resources=tuple(watch.resources)) for watch in status.watches)


def state(polls: Polls) -> SyncState:
    """Return how the node stands with what is served."""
    return combined_state(polls.node.sync_states(polls.served))


def end(polls: Polls, subscription: Subscription) -> None:
    """Answer a held poll with nothing new."""
    polls.memory.receive_end(polls.request(subscription, None), polls.now_s, is_given_up=False)


def test_who_asks_and_was_not_answered_was_sent_nothing() -> None:
    """Names that do not exist are known before anything is sent: who looks for the reason of a held poll finds it."""
    polls = Polls(served=FIRST)
    polls.poll(secret := Subscription.for_request(type_url("SDS"), ("s",)), None)

    assert watches(polls) == (WatchStatus(secret.type_url, frozenset({"s"}), missing=("s",)),)
    assert state(polls) is SyncState.NOT_SENT


@pytest.mark.parametrize(
    "served",
    [
        replace(FIRST, withheld=frozenset({type_url("RDS")})),
        replace(FIRST, incomplete=frozenset({type_url("RDS")})),
    ],
)
def test_what_may_be_in_a_broken_file_is_not_said_to_be_missing(served: Snapshot) -> None:
    """Nobody knows yet."""
    polls = Polls(served=served)
    polls.poll(RDS, None)

    assert watches(polls) == (WatchStatus(RDS.type_url, frozenset({"r"})),)


def test_an_answer_is_sent_but_not_accepted_before_the_next_poll() -> None:
    """With its resources, and the names that do not exist. The next poll bears its version."""
    polls = Polls(served=FIRST)
    polls.poll(NAMES, None)
    selection = select(FIRST, NAMES)
    (watch,) = watches(polls)

    assert watch == WatchStatus(
        type_url("CDS"), NAMES.names, selection.version, resources=tuple(selection.resources), missing=("c",)
    )
    assert (watch.state, watch.since_s, [*watch.unconfirmed]) == (SyncState.STALE, 100.0, ["a"])

    polls.now_s += 1
    polls.poll(NAMES, selection.version)
    (watch,) = watches(polls)

    assert (watch.acked, watch.state, watch.since_s, watch.unconfirmed) == (
        selection.version,
        SyncState.SYNCED,
        101.0,
        frozenset(),
    )
    assert state(polls) is SyncState.SYNCED


def test_a_poll_with_another_version_accepts_nothing() -> None:
    """Another server may have sent that, and it is not known what the client holds."""
    polls = Polls(served=FIRST)
    polls.poll(CDS, None)
    polls.served = replace(FIRST, withheld=frozenset({type_url("CDS")}))
    polls.poll(CDS, "other")

    assert [(watch.acked, watch.state) for watch in watches(polls)] == [(None, SyncState.NOT_SENT)]


def test_a_client_that_holds_what_is_served_from_before_is_known_to_hold_it() -> None:
    """The server restarted: nothing is sent again, and the client is in step; not one that holds something else."""
    polls = Polls(served=FIRST)
    polls.poll(CDS, V1)
    (watch,) = watches(polls)

    assert (watch.sent, watch.acked, len(watch.resources), watch.state) == (V1, V1, 1, SyncState.SYNCED)

    other = Polls(served=FIRST)
    other.served = replace(SECOND, withheld=frozenset({type_url("CDS")}))
    other.poll(CDS, V1)

    assert watches(other) == (WatchStatus(type_url("CDS"), None),)


def test_a_rejection_is_known_until_something_is_accepted() -> None:
    """It keeps what was accepted before; all resources of the answer count as rejected, and none of what is sent after it."""
    polls = Polls(CDS, served=FIRST)
    polls.served = SECOND
    polls.poll(CDS, V1)
    polls.poll(CDS, V1, "bad")
    (watch,) = watches(polls)

    assert (watch.sent, watch.acked, watch.nacked, watch.reason, watch.state) == (V2, V1, V2, "bad", SyncState.NACK)
    assert watch.rejected == {"a", "b"}
    assert state(polls) is SyncState.NACK

    polls.served = replace(FIRST, generation=3)
    polls.poll(CDS, V1, "bad")
    (watch,) = watches(polls)

    assert (watch.sent, watch.nacked, watch.reason, watch.rejected) == (V1, V2, "bad", frozenset())
    assert state(polls) is SyncState.NACK

    polls.poll(CDS, V1)

    assert replace(watches(polls)[0], resources=()) == WatchStatus(type_url("CDS"), None, V1, V1)
    assert state(polls) is SyncState.SYNCED


def test_what_another_process_sent_and_is_rejected_is_a_rejection() -> None:
    """The nonce is the version that was sent."""
    polls = Polls(served=FIRST)
    polls.served = replace(FIRST, withheld=frozenset({type_url("CDS")}))
    polls.poll(CDS, None, "bad")
    request = replace(polls.request(CDS, None, "bad"), response_nonce=Nonce(V2))
    polls.memory.receive_request(request, polls.served, polls.now_s)

    assert [(watch.nacked, watch.reason) for watch in watches(polls)] == [(V2, "bad")]
    assert state(polls) is SyncState.NACK


def test_what_is_served_anew_makes_a_client_stale() -> None:
    """Until it has that."""
    polls = Polls(CDS, served=FIRST)
    polls.served = SECOND

    assert state(polls) is SyncState.STALE
    assert [watch.state for watch in watches(polls)] == [SyncState.SYNCED]


def test_polls_for_other_names_are_other_watches() -> None:
    """An Envoy polls for each cluster's endpoints apart."""
    polls = Polls(served=BEFORE)
    for subscription in (eds("a"), eds("b"), CDS):
        polls.poll(subscription, None)

    assert [watch.names for watch in watches(polls)] == [frozenset("a"), frozenset("b"), None]


def test_a_client_that_left_out_a_cluster_is_in_step_without_its_endpoints() -> None:
    """An Envoy does not say that it polls no more for the endpoints of a cluster, nor for the routes of a listener."""
    polls = Polls(CDS, eds("a"), LDS, RDS, served=USED)
    assert [watch.type_url for watch in watches(polls)] == [CDS.type_url, type_url("EDS"), LDS.type_url, RDS.type_url]
    for each in (eds("a"), RDS):
        end(polls, each)
    polls.served = replace(
        tree_snapshot({"CDS": {"a": "2"}, "EDS": {"a": "2"}, "LDS": {"l": "2"}, "RDS": {"r": "2"}}), generation=2
    )
    for each in (CDS, LDS):
        polls.poll(each, version_of(USED, each))

    # What it was sent, it has not accepted.
    assert [watch.type_url for watch in watches(polls)] == [type_url("EDS"), RDS.type_url, CDS.type_url, LDS.type_url]
    assert state(polls) is SyncState.STALE

    for each in (CDS, LDS):
        polls.poll(each, version_of(polls.served, each))

    assert [watch.type_url for watch in watches(polls)] == [CDS.type_url, LDS.type_url]
    assert state(polls) is SyncState.SYNCED


def test_a_client_that_was_told_that_endpoints_are_gone_is_in_step() -> None:
    """It did not poll for them again."""
    polls = Polls(CDS, eds("a"), served=USED)
    polls.served = replace(snapshot({"CDS": {"b": "1"}}), generation=2)
    polls.look(eds("a"), version_of(USED, eds("a")))
    polls.look(CDS, version_of(USED, CDS))
    polls.poll(CDS, version_of(polls.served, CDS))

    assert [watch.type_url for watch in watches(polls)] == [CDS.type_url]
    assert state(polls) is SyncState.SYNCED


def test_a_poll_that_was_given_up_or_is_overdue_is_none() -> None:
    """While others of the client come."""
    polls = Polls(LDS, eds("a"), eds("b"), served=BEFORE)
    polls.give_up(eds("a"))
    end(polls, eds("b"))
    assert [watch.names for watch in watches(polls)] == [None, frozenset("b")]

    polls.now_s += LEAST_PAUSE_S + 1
    polls.poll(LDS, version_of(BEFORE, LDS))

    assert [watch.names for watch in watches(polls)] == [None]


def test_a_client_is_not_behind_with_what_does_not_exist() -> None:
    """It polls for endpoints that are gone, and there is nothing for it."""
    polls = Polls(eds("a"), served=USED)
    polls.served = replace(FIRST, generation=2)

    assert state(polls) is SyncState.NOT_SENT


def test_a_client_is_there_since_its_first_poll() -> None:
    """However many follow, for whatever."""
    polls = Polls(CDS, served=FIRST)
    polls.now_s += 5
    polls.poll(CDS, V1)

    assert polls.node.status(FIRST).since_s == 100.0
    assert (polls.node.status(None).service, polls.node.status(None).node) == ("REST", polls.described)
