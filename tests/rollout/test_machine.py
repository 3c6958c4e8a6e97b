"""How a rollout goes from step to step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsxds.resources import Snapshot
from fsxds.rollout.lingering import Lingering
from fsxds.rollout.machine import Rollout
from fsxds.rollout.rollout_events import (
    Completed,
    LingeringEnded,
    RolledBack,
    RolloutEvent,
    StepStarted,
    StepTimedOut,
    Stopped,
)
from fsxds.rollout.rollout_state import OnNack, RolloutOptions
from fsxds.rollout.step import Rejection, Standing, Step, snapshot_id
from fsxds.values import Version
from tests.support.rollouts import Tree, tree_of, tree_snapshot
from tests.support.snapshots import type_url

OLD: Tree = {"CDS": {"old": "1"}, "RDS": {"r": "1 CDS:old"}, "LDS": {"l": "1 RDS:r"}}
BOTH: Tree = {**OLD, "CDS": {"new": "1", "old": "1"}}
NEW: Tree = {"CDS": {"new": "1"}, "RDS": {"r": "2 CDS:new"}, "LDS": {"l": "1 RDS:r"}}
SWITCHED: Tree = {**NEW, "CDS": {"new": "1", "old": "1"}}


INLINE: Tree = {"CDS": {"a": "1"}, "LDS": {"l": "1 CDS:a"}}
INLINE_NEW: Tree = {"CDS": {"b": "1"}, "LDS": {"l": "2 CDS:b"}}
INLINE_BOTH: Tree = {"CDS": {"a": "1", "b": "1"}, "LDS": {"l": "2 CDS:b"}}

NACK = Rejection(type_url("RDS"), Version("v"), frozenset("r"), "no such thing")


class Somebody:
    """A client of which nothing but its being counts."""

    def standing(self, step: Step) -> Standing | Rejection:
        """Say that it has nothing to do with a step."""
        return Standing.TAKEN


def served(rollout: Rollout) -> dict[str, dict[str, str]]:
    """Return what is served."""
    assert rollout.served is not None
    return tree_of(rollout.served)


def at(tree: Tree, options: RolloutOptions | None = None) -> tuple[Rollout, Snapshot]:
    """Return a rollout at rest that serves a tree, and the tree's snapshot."""
    rollout, first = Rollout(options or RolloutOptions()), tree_snapshot(tree)
    rollout.receive_target(first, 0)
    rollout.receive_waiting(set(), 0)
    rollout.take_events()
    return rollout, first


def all_take(rollout: Rollout, now_s: float) -> None:
    """Let everybody take all steps that there are, at once."""
    while rollout.step is not None:
        rollout.receive_waiting(set(), now_s)


def names(rollout: Rollout) -> list[str]:
    """Return what happened, but for steps that began."""
    return [type(event).__name__ for event in rollout.take_events() if not isinstance(event, StepStarted)]


def found(rollout: Rollout, wanted: type[RolloutEvent]) -> list[RolloutEvent]:
    """Return what happened of one class."""
    return [event for event in rollout.take_events() if type(event) is wanted]


def test_each_step_follows_when_clients_took_the_one_before() -> None:
    """Nothing moves until the last client has taken a step."""
    rollout, first = at(OLD)
    one, other = Somebody(), Somebody()

    rollout.receive_target(tree_snapshot(NEW, first), 1)
    assert BOTH == served(rollout)
    rollout.receive_waiting({one, other}, 1)
    rollout.receive_taken(one, 1)
    assert BOTH == served(rollout)
    rollout.receive_taken(other, 2)
    assert SWITCHED == served(rollout)
    rollout.receive_waiting({one}, 2)
    rollout.receive_gone(one, 3)
    assert NEW == served(rollout)
    rollout.receive_waiting(set(), 3)

    assert (None, None) == (rollout.step, rollout.timer_at_s)
    assert isinstance(rollout.take_events()[-1], Completed)


def test_nobody_waits_for_those_who_let_a_step_time_out() -> None:
    """The rollout goes on without them, until they take something again."""
    rollout, first = at(OLD, RolloutOptions(step_timeout_s=5))
    dead = Somebody()

    rollout.receive_target(tree_snapshot(NEW, first), 1)
    rollout.receive_waiting({dead}, 1)
    assert 6 == rollout.timer_at_s
    rollout.receive_timer(5.9)
    assert BOTH == served(rollout)
    rollout.receive_timer(6)
    assert SWITCHED == served(rollout)
    (timed_out,) = (event for event in rollout.take_events() if isinstance(event, StepTimedOut))
    assert {dead} == timed_out.clients
    rollout.receive_waiting({dead}, 6)
    assert NEW == served(rollout)
    rollout.receive_taken(dead, 7)
    rollout.receive_waiting({dead}, 7)
    assert rollout.step is not None


def test_a_target_that_comes_during_a_step_is_planned_from_what_is_served() -> None:
    """The newest wins, and what the step before added stays until users let go of it."""
    rollout, first = at(OLD)
    client = Somebody()
    second = tree_snapshot(NEW, first)
    third = tree_snapshot({**OLD, "CDS": {"old": "2"}}, second)

    rollout.receive_target(second, 1)
    rollout.receive_waiting({client}, 1)
    rollout.receive_target(tree_snapshot({}, second), 2)
    rollout.receive_target(third, 2)
    assert BOTH == served(rollout)
    rollout.receive_taken(client, 3)

    assert {**OLD, "CDS": {"old": "2"}} == served(rollout)


def test_without_rollout_every_target_is_served_at_once() -> None:
    """Nothing is waited for, and nothing lingers."""
    old = {"CDS": {"a": "1"}, "LDS": {"l": "1 CDS:a"}}
    rollout, first = at(old, RolloutOptions(is_on=False))

    target = tree_snapshot({}, first)
    rollout.receive_target(target, 1)

    assert (True, None, None) == (rollout.served is target, rollout.step, rollout.timer_at_s)
    assert rollout.has_completed(target)


def test_a_rollout_that_is_turned_off_ends_with_the_next_target() -> None:
    """Nobody waits for the step that was under way."""
    rollout, first = at(OLD)
    second = tree_snapshot(NEW, first)
    rollout.receive_target(second, 1)
    rollout.options = RolloutOptions(is_on=False)

    rollout.receive_target(third := tree_snapshot({}, second), 1)

    assert (True, None) == (rollout.served is third, rollout.step)


@pytest.mark.parametrize("steps", [0, 1])
def test_what_a_client_rejects_is_taken_back(steps: int) -> None:
    """What was good is served again by steps of its own, and the target is tainted."""
    rollout, first = at(OLD)
    client = Somebody()
    target = tree_snapshot(NEW, first)
    rollout.receive_target(target, 1)
    for _ in range(steps):
        rollout.receive_waiting(set(), 1)
    rollout.receive_waiting({client}, 1)
    rollout.receive_rejected(client, NACK, 2)

    (event,) = found(rollout, RolledBack)
    assert RolledBack(snapshot_id(target), snapshot_id(first), ((client, NACK),)) == event
    assert rollout.status.is_back
    assert snapshot_id(target) in rollout.status.tainted
    assert OLD["RDS"] == served(rollout)["RDS"]
    rollout.receive_waiting({client}, 2)
    assert BOTH == served(rollout) if steps else OLD == served(rollout)
    rollout.receive_taken(client, 3)
    all_take(rollout, 3)
    assert (OLD, True) == (served(rollout), rollout.has_completed(first))
    assert not rollout.has_completed(target)


def test_what_was_taken_back_comes_again_when_the_tree_asked_for_something_else() -> None:
    """Loading it again is no other tree."""
    rollout, first = at(OLD)
    target = tree_snapshot(NEW, first)
    rollout.receive_target(target, 1)
    rollout.receive_rejected(Somebody(), NACK, 1)
    all_take(rollout, 1)

    rollout.receive_target(tree_snapshot(NEW), 2)
    assert (OLD, None) == (served(rollout), rollout.step)
    rollout.receive_target(tree_snapshot({**OLD, "SDS": {"s": "1"}}, target), 3)
    all_take(rollout, 3)
    rollout.receive_target(tree_snapshot(NEW), 4)
    all_take(rollout, 4)

    assert NEW == served(rollout)


def test_a_rollback_is_not_taken_back() -> None:
    """A rejection of it counts as taken, and a new target waits for its end."""
    rollout, first = at(OLD)
    client = Somebody()
    target = tree_snapshot(NEW, first)
    rollout.receive_target(target, 1)
    rollout.receive_waiting(set(), 1)
    rollout.receive_waiting({client}, 1)
    rollout.receive_rejected(client, NACK, 1)
    rollout.receive_waiting({client}, 1)
    rollout.receive_target(tree_snapshot({**NEW, "SDS": {"s": "1"}}, target), 1)
    rollout.receive_rejected(client, NACK, 2)

    assert (OLD, True) == (served(rollout), rollout.status.is_back)
    rollout.receive_waiting(set(), 2)
    assert "new" in served(rollout)["CDS"]
    assert ["RolledBack", "Completed"] == names(rollout)


def test_so_many_clients_have_to_reject_as_the_limit_says() -> None:
    """Each counts once, in all steps of a target together."""
    rollout, first = at(OLD, RolloutOptions(nack_limit=2))
    one, other = Somebody(), Somebody()
    rollout.receive_target(tree_snapshot(NEW, first), 1)
    rollout.receive_waiting({one, other}, 1)
    rollout.receive_rejected(one, NACK, 1)
    rollout.receive_rejected(one, NACK, 1)
    rollout.receive_taken(other, 1)
    assert SWITCHED == served(rollout)
    rollout.receive_waiting({one, other}, 1)
    rollout.receive_rejected(other, NACK, 1)

    assert rollout.status.is_back


def test_what_shrinks_is_not_taken_back() -> None:
    """Everybody has switched by then."""
    rollout, first = at(OLD)
    rollout.receive_target(tree_snapshot(NEW, first), 1)
    for _ in range(2):
        rollout.receive_waiting(set(), 1)
    client = Somebody()
    rollout.receive_waiting({client}, 1)
    rollout.receive_rejected(client, NACK, 1)

    assert (NEW, None) == (served(rollout), rollout.step)


def test_the_first_target_is_not_taken_back() -> None:
    """There is nothing to go back to."""
    rollout, client = Rollout(RolloutOptions()), Somebody()
    target = tree_snapshot(OLD)
    rollout.receive_target(target, 1)
    rollout.receive_waiting({client}, 1)
    rollout.receive_rejected(client, NACK, 1)

    assert (True, frozenset()) == (rollout.has_completed(target), rollout.status.tainted)


def test_rejections_may_be_ignored() -> None:
    """They count as taken."""
    rollout, first = at(OLD, RolloutOptions(on_nack=OnNack.CONTINUE))
    client = Somebody()
    rollout.receive_target(tree_snapshot(NEW, first), 1)
    rollout.receive_waiting({client}, 1)
    rollout.receive_rejected(client, NACK, 1)

    assert (SWITCHED, frozenset()) == (served(rollout), rollout.status.tainted)


def test_a_rejected_step_may_stay_until_somebody_decides() -> None:
    """Approved it goes on, aborted it goes back; another target comes after what was good, or nobody would be asked again."""
    rollout, first = at(OLD, RolloutOptions(on_nack=OnNack.HOLD))
    client, target = Somebody(), tree_snapshot(NEW, first)

    def stop() -> None:
        rollout.receive_target(target, 1)
        rollout.receive_waiting({client}, 1)
        rollout.receive_rejected(client, NACK, 1)
        assert [Stopped(snapshot_id(target), ((client, NACK),))] == found(rollout, Stopped)
        assert (BOTH, None, True) == (served(rollout), rollout.timer_at_s, rollout.status.is_stopped)

    stop()
    rollout.receive_timer(100)
    rollout.receive_target(tree_snapshot(NEW), 100)
    assert BOTH == served(rollout)
    assert not rollout.approve("other", 100)
    assert rollout.abort(100)
    all_take(rollout, 100)
    assert OLD == served(rollout)
    rollout.receive_target(first, 101)
    stop()
    assert rollout.approve(snapshot_id(target), 102)
    all_take(rollout, 102)
    assert NEW == served(rollout)
    rollout.receive_target(first, 103)
    all_take(rollout, 103)
    stop()
    rollout.receive_target(tree_snapshot({**NEW, "SDS": {"s": "1"}}, first), 104)
    assert (OLD, True) == (served(rollout), rollout.status.is_back)
    rollout.receive_waiting(set(), 104)
    assert rollout.step is not None
    assert {"new"} == rollout.step.changed[type_url("CDS")].fresh


def test_nothing_ends_while_a_rejected_step_stays() -> None:
    """What lingers is not asked for again before somebody decides."""
    rollout, first = at(INLINE, RolloutOptions(on_nack=OnNack.HOLD, linger_s=60))
    rollout.receive_target(second := tree_snapshot(INLINE_NEW, first), 0)
    all_take(rollout, 0)
    rollout.receive_target(target := tree_snapshot({**INLINE_NEW, "SDS": {"s": "1"}}, second), 1)
    rollout.receive_rejected(Somebody(), NACK, 1)
    rollout.receive_timer(100)
    assert (None, {"a": "1", "b": "1"}) == (rollout.timer_at_s, served(rollout)["CDS"])
    rollout.approve(snapshot_id(target), 101)

    assert {"b": "1"} == served(rollout)["CDS"]


def test_a_change_of_times_to_live_is_not_tainted() -> None:
    """It has the id of what is good."""
    rollout, first = at(OLD)
    rows = first.by_type[type_url("CDS")]
    rows = rows.with_changes([replace(rows["old"], ttl_s=5)], ())
    target = replace(first, by_type={**first.by_type, type_url("CDS"): rows})
    rollout.receive_target(target, 1)
    client = Somebody()
    rollout.receive_waiting({client}, 1)
    rollout.receive_rejected(client, NACK, 1)

    assert (None, frozenset()) == (rollout.step, rollout.status.tainted)
    assert rollout.served is target


def test_what_was_rejected_before_holds_nothing_else_up() -> None:
    """An Envoy whose port is taken rejects each response that has the listener; that is not taken back for it."""
    old = {"LDS": {"bad": "1", "good": "1"}}
    rollout, first = at(old)
    client = Somebody()
    reason = "Error adding/updating listener(s) bad: cannot bind '0.0.0.0:80'"
    rejection = Rejection(type_url("LDS"), Version("v"), frozenset(("good",)), reason)
    rollout.receive_target(target := tree_snapshot({"LDS": {"bad": "1", "good": "2"}}, first), 1)
    rollout.receive_waiting({client}, 1)
    rollout.receive_rejected(client, rejection, 1)
    assert rollout.has_completed(target)

    rollout.receive_target(tree_snapshot({"LDS": {"bad": "2", "good": "2"}}, target), 2)
    rollout.receive_rejected(client, replace(rejection, names=frozenset(("bad",))), 2)
    assert rollout.served is target


FIVE: Tree = {"CDS": dict.fromkeys("abcde", "1"), "SDS": {"s": "1"}}
TWO: Tree = {"CDS": dict.fromkeys("ab", "1"), "SDS": {"s": "1"}}


def test_what_removes_much_waits_for_approval() -> None:
    """It is reported once, and served as soon as somebody approves just this."""
    rollout, first = at(FIVE)
    target = tree_snapshot(TWO, first)
    rollout.receive_target(target, 1)
    rollout.receive_target(tree_snapshot(TWO), 2)

    assert FIVE == served(rollout)
    assert ["Held"] == names(rollout)
    held = rollout.status.held
    assert held is not None
    assert (snapshot_id(target), False) == (held.snapshot_id, rollout.approve("other", 3))
    assert rollout.approve(held.snapshot_id, 3)
    assert (TWO, None) == (served(rollout), rollout.status.held)


def test_what_is_held_may_be_dropped() -> None:
    """Aborted it is not asked for again until the tree changes, and another target takes its place."""
    rollout, first = at(FIVE)
    target = tree_snapshot(TWO, first)
    rollout.receive_target(target, 1)
    assert rollout.abort(2)
    rollout.receive_target(tree_snapshot(TWO), 3)
    assert (None, True) == (rollout.status.held, snapshot_id(target) in rollout.status.tainted)
    rollout.receive_target(tree_snapshot({**FIVE, "SDS": {}}, first), 4)
    all_take(rollout, 4)
    rollout.receive_target(target, 5)

    assert rollout.status.held is not None


def test_it_may_be_aborted_while_it_is_under_way() -> None:
    """What was good is served again; there is nothing to abort when it is reached."""
    rollout, first = at(OLD)
    assert not rollout.abort(0)
    target = tree_snapshot(NEW, first)
    rollout.receive_target(target, 1)
    rollout.receive_waiting({Somebody()}, 1)

    assert rollout.abort(2)
    assert (OLD, True) == (served(rollout), snapshot_id(target) in rollout.status.tainted)
    assert not rollout.abort(2)
    all_take(rollout, 3)
    assert not rollout.abort(3)


def test_an_earlier_snapshot_is_served_until_the_tree_changes() -> None:
    """Or until somebody says so; what the tree asks for may remove much then."""
    rollout, first = at(FIVE)
    second = tree_snapshot(TWO, first)
    rollout.receive_target(second, 1)
    rollout.approve(snapshot_id(second), 1)
    all_take(rollout, 1)

    rollout.pin(first, 2)
    all_take(rollout, 2)
    rollout.receive_target(tree_snapshot(TWO), 3)
    assert (FIVE, True) == (served(rollout), rollout.status.is_pinned)
    assert rollout.resume(4)
    all_take(rollout, 4)
    assert (TWO, False) == (served(rollout), rollout.resume(4))
    rollout.pin(first, 5)
    all_take(rollout, 5)
    rollout.receive_target(tree_snapshot({**FIVE, "SDS": {}}, first), 6)
    all_take(rollout, 6)
    assert {"CDS": FIVE["CDS"]} == served(rollout)


def test_an_earlier_snapshot_that_is_rejected_is_no_more_asked_for() -> None:
    """What the tree asks for is served again."""
    rollout, first = at(OLD)
    rollout.receive_target(tree_snapshot(NEW, first), 1)
    all_take(rollout, 1)
    rollout.pin(first, 2)
    rollout.receive_waiting({client := Somebody()}, 2)
    rollout.receive_rejected(client, NACK, 2)
    all_take(rollout, 2)

    assert (NEW, False, True) == (
        served(rollout),
        rollout.status.is_pinned,
        snapshot_id(first) in rollout.status.tainted,
    )
    rollout.pin(first, 3)
    all_take(rollout, 3)
    assert (OLD, False) == (served(rollout), snapshot_id(first) in rollout.status.tainted)


def test_what_the_tree_asks_for_may_remove_much_of_an_earlier_snapshot() -> None:
    """It was served before, so nobody has to approve it again."""
    rollout, _ = at(TWO)
    rollout.pin(tree_snapshot(FIVE), 1)
    all_take(rollout, 1)
    rollout.resume(2)
    all_take(rollout, 2)

    assert (TWO, None) == (served(rollout), rollout.status.held)


def test_a_target_that_comes_during_the_last_step_follows_one_that_was_reached() -> None:
    """So that is what it is taken back to."""
    rollout, first = at(OLD)
    rollout.receive_target(second := tree_snapshot(NEW, first), 1)
    for _ in range(2):
        rollout.receive_waiting(set(), 1)
    rollout.receive_target(tree_snapshot({**NEW, "SDS": {"s": "1"}}, second), 1)
    rollout.receive_waiting(set(), 1)
    assert ["Completed"] == names(rollout)
    rollout.receive_rejected(Somebody(), NACK, 1)

    assert NEW == served(rollout)


def test_an_earlier_snapshot_waits_for_the_step_under_way() -> None:
    """It comes also when clients reject that."""
    rollout, first = at(OLD)
    rollout.receive_target(second := tree_snapshot(NEW, first), 1)
    all_take(rollout, 1)
    rollout.receive_target(tree_snapshot({**NEW, "SDS": {"s": "1"}}, second), 2)
    rollout.pin(first, 2)
    rollout.receive_rejected(Somebody(), NACK, 2)
    all_take(rollout, 2)

    assert (OLD, True) == (served(rollout), rollout.status.is_pinned)


def test_what_a_listener_used_lingers_from_when_it_was_taken() -> None:
    """Its time begins when all clients took the new listener, and ends with a step."""
    rollout, first = at(INLINE, RolloutOptions(linger_s=60))
    client, key = Somebody(), (type_url("CDS"), "a")
    rollout.receive_target(target := tree_snapshot(INLINE_NEW, first), 1)
    rollout.receive_waiting(set(), 1)
    rollout.receive_waiting({client}, 1)
    assert None is rollout.status.lingering[key].ends_at_s
    rollout.receive_taken(client, 3)

    assert (INLINE_BOTH, True, 63) == (served(rollout), rollout.has_completed(target), rollout.timer_at_s)
    assert Lingering(frozenset("l"), 63) == rollout.status.lingering[key]
    assert ["LingeringStarted", "Completed"] == names(rollout)
    rollout.receive_timer(62.9)
    assert INLINE_BOTH == served(rollout)
    rollout.receive_timer(63)
    assert (True, {}) == (rollout.served is target, rollout.status.lingering)
    assert [LingeringEnded(snapshot_id(target), frozenset((key,)))] == found(rollout, LingeringEnded)
    all_take(rollout, 64)
    assert rollout.timer_at_s is None


def test_what_comes_back_does_not_go() -> None:
    """A name that lingered and that the tree has again is the tree's, and nobody is informed that it goes."""
    rollout, first = at(INLINE, RolloutOptions(linger_s=60))
    rollout.receive_target(target := tree_snapshot(INLINE_NEW, first), 1)
    all_take(rollout, 1)
    assert rollout.status.lingering
    rollout.receive_target(tree_snapshot({**INLINE_NEW, "CDS": {"a": "9", **INLINE_NEW["CDS"]}}, target), 2)
    all_take(rollout, 2)

    assert ({}, []) == (rollout.status.lingering, found(rollout, LingeringEnded))


def test_what_is_drained_goes_earlier() -> None:
    """Where an Envoy says so."""
    rollout, first = at(INLINE)
    rollout.receive_target(tree_snapshot(INLINE_NEW, first), 1)
    all_take(rollout, 1)
    rollout.receive_drained(["other"], 2)
    assert INLINE_BOTH == served(rollout)
    rollout.receive_drained(["l"], 2)

    assert INLINE_NEW == served(rollout)


def test_nothing_lingers_where_listeners_do_not_drain() -> None:
    """With no time for it, old clusters go when all have switched."""
    rollout, first = at(INLINE, RolloutOptions(linger_s=0))
    rollout.receive_target(tree_snapshot(INLINE_NEW, first), 1)
    all_take(rollout, 1)

    assert INLINE_NEW == served(rollout)
    assert ["Completed"] == names(rollout)


def test_what_lingers_stays_through_later_changes() -> None:
    """It is a part of every step, does not hold anything up, and is taken over when it comes back."""
    rollout, first = at(INLINE, RolloutOptions(linger_s=60))
    second = tree_snapshot(INLINE_NEW, first)
    rollout.receive_target(second, 0)
    all_take(rollout, 0)
    third = tree_snapshot({**INLINE_NEW, "CDS": {"b": "2"}}, second)
    rollout.receive_target(third, 1)
    assert {"a": "1", "b": "2"} == served(rollout)["CDS"]
    all_take(rollout, 1)
    rollout.receive_target(fourth := tree_snapshot({**INLINE_NEW, "CDS": {"a": "3", "b": "2"}}, third), 2)
    all_take(rollout, 2)
    assert (True, {}) == (rollout.served is fourth, rollout.status.lingering)
    rollout.receive_target(tree_snapshot({**INLINE_NEW, "CDS": {"b": "2"}}, fourth), 3)
    all_take(rollout, 3)
    assert {"a": "3", "b": "2"} == served(rollout)["CDS"]
    rollout.receive_timer(60)
    all_take(rollout, 60)

    assert {"b": "2"} == served(rollout)["CDS"]


def test_what_lingered_is_as_it_was_after_a_rollback() -> None:
    """What clients rejected does not stay in its place."""
    rollout, first = at(INLINE, RolloutOptions(linger_s=60))
    second = tree_snapshot(INLINE_NEW, first)
    rollout.receive_target(second, 0)
    all_take(rollout, 0)
    rollout.receive_target(tree_snapshot({**INLINE_NEW, "CDS": {"a": "bad", "b": "1"}}, second), 1)
    rollout.receive_rejected(Somebody(), NACK, 1)
    assert {"a": "1", "b": "1"} == served(rollout)["CDS"]
    all_take(rollout, 1)
    rollout.receive_timer(60)

    assert (INLINE_NEW, True) == (served(rollout), rollout.has_completed(second))


def test_another_target_takes_the_place_of_one_that_is_not_reached() -> None:
    """That is reported; nothing new is, when it is of equal content."""
    rollout, first = at(OLD)
    target = tree_snapshot(NEW, first)
    rollout.receive_target(target, 1)
    rollout.receive_target(tree_snapshot(NEW), 1)
    rollout.receive_waiting(set(), 1)
    assert SWITCHED == served(rollout)
    rollout.receive_target(first, 1)
    all_take(rollout, 1)

    assert ["Superseded", "Completed"] == names(rollout)
    assert OLD == served(rollout)


def test_a_target_of_equal_content_changes_nothing() -> None:
    """Nothing is served again, and nothing reported."""
    rollout, first = at(OLD)
    rollout.receive_target(again := tree_snapshot(OLD), 1)

    assert (True, None, ()) == (rollout.served is first, rollout.step, rollout.take_events())
    assert rollout.has_completed(again)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_restart_goes_on_where_it_was(steps: int) -> None:
    """What was served is served at once; the next step follows when clients had time to return."""
    rollout, first = at(OLD)
    rollout.receive_target(target := tree_snapshot(NEW, first), 1)
    for _ in range(steps):
        rollout.receive_waiting(set(), 1)
    state, before = rollout.state, served(rollout)

    again = Rollout(RolloutOptions(step_timeout_s=5), state)
    assert (before, 0) == (served(again), again.timer_at_s)
    again.receive_timer(1000)
    again.receive_target(tree_snapshot(NEW), 1001)
    assert (before, 1005) == (served(again), again.timer_at_s)
    again.receive_timer(1005)
    all_take(again, 1005)

    assert (NEW, True) == (served(again), again.has_completed(target))


def test_a_restart_remembers_what_lingers_and_for_how_long() -> None:
    """As seconds left, because clocks of processes begin anywhere."""
    rollout, first = at(INLINE, RolloutOptions(linger_s=60))
    rollout.receive_target(tree_snapshot(INLINE_NEW, first), 100)
    all_take(rollout, 100)
    rollout.receive_timer(120)

    again = Rollout(RolloutOptions(linger_s=60), rollout.state)
    again.receive_target(tree_snapshot(INLINE_NEW), 5000)
    again.receive_timer(5039)
    assert (INLINE_BOTH, 5040) == (served(again), again.timer_at_s)
    again.receive_timer(5040)
    assert INLINE_NEW == served(again)


def test_a_restart_remembers_what_was_taken_back() -> None:
    """And goes on with it, until the tree asks for something else."""
    rollout, first = at(OLD)
    rollout.receive_target(target := tree_snapshot(NEW, first), 1)
    rollout.receive_waiting(set(), 1)
    rollout.receive_rejected(Somebody(), NACK, 1)

    again = Rollout(RolloutOptions(), rollout.state)
    again.receive_target(tree_snapshot(NEW), 10)
    again.receive_timer(20)
    assert again.status.is_back
    all_take(again, 20)
    assert (OLD, True) == (served(again), snapshot_id(target) in again.status.tainted)
    again.receive_target(tree_snapshot({**NEW, "SDS": {"s": "1"}}), 30)
    all_take(again, 30)
    assert "new" in served(again)["CDS"]


def test_a_restart_remembers_an_earlier_snapshot_that_was_asked_for() -> None:
    """It is served until the tree asks for something else than before."""
    rollout, first = at(OLD)
    rollout.receive_target(target := tree_snapshot(NEW, first), 1)
    all_take(rollout, 1)
    rollout.pin(first, 2)

    again = Rollout(RolloutOptions(), rollout.state)
    again.receive_target(tree_snapshot(NEW), 10)
    again.receive_timer(20)
    all_take(again, 20)
    assert (OLD, True) == (served(again), again.status.is_pinned)
    again.resume(30)
    all_take(again, 30)
    assert (NEW, True) == (served(again), again.has_completed(target))


def test_a_restart_remembers_that_somebody_has_to_decide() -> None:
    """A step that clients rejected stays, and goes on when it is approved."""
    rollout, first = at(OLD, RolloutOptions(on_nack=OnNack.HOLD))
    rollout.receive_target(target := tree_snapshot(NEW, first), 1)
    rollout.receive_rejected(Somebody(), NACK, 1)

    again = Rollout(RolloutOptions(), rollout.state)
    again.receive_target(tree_snapshot(NEW), 10)
    again.receive_timer(20)
    assert (BOTH, None, True) == (served(again), again.step, again.status.is_stopped)
    assert again.approve(snapshot_id(target), 21)
    all_take(again, 21)
    assert NEW == served(again)
    again = Rollout(RolloutOptions(step_timeout_s=5), rollout.state)
    again.receive_target(tree_snapshot(OLD), 10)
    assert 15 == again.timer_at_s
    again.receive_timer(15)
    all_take(again, 15)
    assert OLD == served(again)


def test_a_state_that_was_never_used_is_the_same_still() -> None:
    """A process that ends at once loses nothing."""
    rollout, first = at(INLINE)
    rollout.receive_target(tree_snapshot(INLINE_NEW, first), 100)
    all_take(rollout, 100)

    assert None is Rollout(RolloutOptions()).state
    assert rollout.state == Rollout(RolloutOptions(), rollout.state).state


def test_a_broken_file_takes_nothing_away_at_a_start() -> None:
    """What the process before served stays until it is certain that it is meant to go."""
    rollout, _ = at({**OLD, "SDS": {"s": "1"}})
    again = Rollout(RolloutOptions(), rollout.state)
    incomplete = replace(tree_snapshot({**NEW, "CDS": {"new": "1"}}), incomplete=frozenset((type_url("CDS"),)))
    again.receive_target(incomplete, 10)
    again.receive_timer(20)
    all_take(again, 20)
    assert (SWITCHED, True) == (served(again), again.has_completed(incomplete))
    again.receive_target(tree_snapshot(NEW), 30)
    all_take(again, 30)
    assert NEW == served(again)


def test_reports_of_clients_that_nobody_waits_for_change_nothing() -> None:
    """Not before there is a target, nor when all is done, nor before it is known who has to take a step."""
    rollout, client = Rollout(RolloutOptions()), Somebody()

    def report() -> None:
        rollout.receive_taken(client, 0)
        rollout.receive_gone(client, 0)
        rollout.receive_timer(0)
        rollout.receive_drained(["l"], 0)
        assert not rollout.approve("1", 0)
        assert not rollout.resume(0)

    report()
    rollout.receive_waiting({client}, 0)
    rollout.receive_rejected(client, NACK, 0)
    assert (None, None, False) == (rollout.served, rollout.timer_at_s, rollout.abort(0))
    rollout.receive_target(first := tree_snapshot(OLD), 0)
    report()
    assert rollout.step is not None
    all_take(rollout, 0)
    report()
    rollout.receive_waiting({client}, 0)
    rollout.receive_rejected(client, NACK, 0)
    rollout.receive_target(tree_snapshot(NEW, first), 0)
    report()
    assert BOTH == served(rollout)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"EDS": {"e": "2", "f": "1"}}, {"EDS": {"e": "2", "f": "2"}}, id="endpoints"),
        pytest.param({"CDS": {"old": "2"}}, {"EDS": {"e": "2", "f": "1"}}, id="clusters and endpoints"),
        pytest.param({"RDS": {"r": "2 CDS:old"}}, {"LDS": {"l": "2 RDS:r"}}, id="routes and listeners"),
        pytest.param({"RDS": {"r": "2 CDS:old"}}, {"RDS": {}}, id="routes that change and go"),
    ],
)
def test_a_target_between_which_and_the_step_no_order_counts_follows_at_once(first: Tree, second: Tree) -> None:
    """A slow client holds up nobody else, and is waited for until it has all of both."""
    base: Tree = {**OLD, "EDS": {"e": "1", "f": "1"}}
    rollout, served_first = at(base, RolloutOptions(max_removal=None))
    slow = Somebody()
    one = tree_snapshot({**base, **first}, served_first)
    two = tree_snapshot({**base, **first, **second}, one)

    rollout.receive_target(one, 1)
    rollout.receive_waiting({slow}, 1)
    rollout.receive_target(two, 2)

    assert tree_of(two) == served(rollout)
    assert rollout.step is not None
    assert {type_url(short) for short in (*first, *second)} == set(rollout.step.changed)
    rollout.receive_waiting({slow}, 2)
    rollout.receive_taken(slow, 3)
    assert ["Superseded", "Completed"] == names(rollout)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"CDS": {"old": "1", "new": "1"}}, {"RDS": {"r": "2 CDS:new"}}, id="routes after clusters"),
        pytest.param({"RDS": {"r": "2 CDS:old"}}, {"CDS": {"old": "2"}}, id="clusters after routes"),
        pytest.param({"EDS": {"e": "2", "f": "1"}}, {"EDS": {"e": "2"}}, id="what is used goes"),
        pytest.param({"CDS": {"old": "2 EDS:e"}}, {"EDS": {"e": "2", "f": "1"}}, id="clusters that need endpoints"),
    ],
)
def test_a_target_whose_order_after_the_step_counts_waits_for_it(first: Tree, second: Tree) -> None:
    """What a client does not have yet may be what the next step relies on."""
    base: Tree = {**OLD, "EDS": {"e": "1", "f": "1"}}
    rollout, served_first = at(base, RolloutOptions(max_removal=None))
    one = tree_snapshot({**base, **first}, served_first)

    rollout.receive_target(one, 1)
    rollout.receive_waiting({Somebody()}, 1)
    rollout.receive_target(tree_snapshot({**base, **first, **second}, one), 2)

    assert tree_of(one) == served(rollout)


def test_a_target_waits_for_a_step_that_somebody_rejected() -> None:
    """What becomes of it depends on what the others say."""
    rollout, first = at(OLD, RolloutOptions(nack_limit=2))
    one = tree_snapshot({**OLD, "RDS": {"r": "2 CDS:old"}}, first)
    rejecting, other = Somebody(), Somebody()

    rollout.receive_target(one, 1)
    rollout.receive_waiting({rejecting, other}, 1)
    rollout.receive_rejected(rejecting, NACK, 1)
    rollout.receive_target(tree_snapshot({**OLD, "RDS": {"r": "3 CDS:old"}}, one), 2)

    assert tree_of(one) == served(rollout)


def test_what_removes_much_does_not_follow_before_it_is_approved() -> None:
    """A target that is held leaves the step that is waited for as it is."""
    routes = {str(number): "1 CDS:old" for number in range(6)}
    rollout, first = at({**OLD, "RDS": routes})
    one = tree_snapshot({**OLD, "RDS": {**routes, "0": "2 CDS:old"}}, first)

    rollout.receive_target(one, 1)
    rollout.receive_waiting({Somebody()}, 1)
    rollout.receive_target(tree_snapshot({**OLD, "RDS": {}}, one), 2)

    assert tree_of(one) == served(rollout)
    assert rollout.step is not None


def test_a_target_whose_users_were_taken_is_what_the_next_one_goes_back_to() -> None:
    """It is good, although the next one came before what it removes had gone."""
    rollout, first = at(OLD)
    second = tree_snapshot(NEW, first)
    third = tree_snapshot({**NEW, "CDS": {"new": "1", "more": "1"}, "RDS": {"r": "3 CDS:more"}}, second)
    client = Somebody()

    rollout.receive_target(second, 1)
    rollout.receive_waiting(set(), 1)
    assert SWITCHED == served(rollout)
    rollout.receive_waiting({client}, 1)
    rollout.receive_target(third, 2)
    rollout.receive_taken(client, 3)
    while rollout.step is not None and tree_of(third)["RDS"] != served(rollout)["RDS"]:
        rollout.receive_waiting(set(), 3)
    rollout.receive_waiting({client}, 3)
    rollout.receive_rejected(client, NACK, 4)
    all_take(rollout, 4)

    assert NEW == served(rollout)
