"""How a rollout goes from step to step."""

from __future__ import annotations

import pytest

from fsxds.model.resources import Snapshot, snapshot_id
from fsxds.rollout.holding import HoldingRules
from fsxds.rollout.machine import Rollout, RolloutOptions
from fsxds.rollout.planning import Lingering
from fsxds.rollout.step import Completed, LingeringEnded, RolloutEvent, Standing, Step, StepStarted, StepTimedOut
from fsxds.rollout.target import Target
from tests.support.rollouts import Tree, tree_of, tree_snapshot
from tests.support.snapshots import type_url

OLD: Tree = {"CDS": {"old": "1"}, "RDS": {"r": "1 CDS:old"}, "LDS": {"l": "1 RDS:r"}}
BOTH: Tree = {**OLD, "CDS": {"new": "1", "old": "1"}}
NEW: Tree = {"CDS": {"new": "1"}, "RDS": {"r": "2 CDS:new"}, "LDS": {"l": "1 RDS:r"}}
SWITCHED: Tree = {**NEW, "CDS": {"new": "1", "old": "1"}}


TIMED = RolloutOptions(step_timeout_s=5)


INLINE: Tree = {"CDS": {"a": "1"}, "LDS": {"l": "1 CDS:a"}}
INLINE_NEW: Tree = {"CDS": {"b": "1"}, "LDS": {"l": "2 CDS:b"}}
INLINE_BOTH: Tree = {"CDS": {"a": "1", "b": "1"}, "LDS": {"l": "2 CDS:b"}}


class Somebody:
    """A client of which nothing but its being counts."""

    def standing(self, step: Step) -> Standing:
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
    rollout.receive_taken(one, 3)
    assert NEW == served(rollout)
    rollout.receive_waiting(set(), 3)

    assert (None, None) == (rollout.step, rollout.timer_at_s)
    assert isinstance(rollout.take_events()[-1], Completed)


def test_a_step_that_clients_do_not_take_in_time_is_over() -> None:
    """The next one follows, and waits for whoever is waited for then."""
    rollout, first = at(OLD, TIMED)
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
    assert (SWITCHED, 11) == (served(rollout), rollout.timer_at_s)


def test_a_step_may_be_prolonged() -> None:
    """Its clients have as long again as from its beginning."""
    rollout, first = at(OLD, TIMED)
    rollout.receive_target(tree_snapshot(NEW, first), 1)
    rollout.receive_waiting({Somebody()}, 1)
    rollout.prolong(6)
    rollout.receive_timer(6)

    assert (BOTH, 11) == (served(rollout), rollout.timer_at_s)


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
    assert rollout.has_reached(target)


def test_a_rollout_that_is_turned_off_ends_with_the_next_target() -> None:
    """Nobody waits for the step that was under way."""
    rollout, first = at(OLD)
    second = tree_snapshot(NEW, first)
    rollout.receive_target(second, 1)
    rollout.options = RolloutOptions(is_on=False)

    rollout.receive_target(third := tree_snapshot({}, second), 1)

    assert (True, None) == (rollout.served is third, rollout.step)


FIVE: Tree = {"CDS": dict.fromkeys("abcde", "1"), "SDS": {"s": "1"}}
TWO: Tree = {"CDS": dict.fromkeys("ab", "1"), "SDS": {"s": "1"}}


def test_what_a_listener_used_lingers_from_when_it_was_taken() -> None:
    """Its time begins when all clients took the new listener, and ends with a step."""
    rollout, first = at(INLINE, RolloutOptions(linger_s=60))
    client, key = Somebody(), (type_url("CDS"), "a")
    rollout.receive_target(target := tree_snapshot(INLINE_NEW, first), 1)
    rollout.receive_waiting(set(), 1)
    rollout.receive_waiting({client}, 1)
    assert None is rollout.lingering[key].ends_at_s
    rollout.receive_taken(client, 3)

    assert (INLINE_BOTH, True, 63) == (served(rollout), rollout.has_reached(target), rollout.timer_at_s)
    assert Lingering(frozenset("l"), 63) == rollout.lingering[key]
    assert ["LingeringStarted", "Completed"] == names(rollout)
    rollout.receive_timer(62.9)
    assert INLINE_BOTH == served(rollout)
    rollout.receive_timer(63)
    assert (True, {}) == (rollout.served is target, rollout.lingering)
    assert [LingeringEnded(snapshot_id(target), frozenset((key,)))] == found(rollout, LingeringEnded)
    all_take(rollout, 64)
    assert rollout.timer_at_s is None


def test_what_comes_back_does_not_go() -> None:
    """A name that lingered and that the tree has again is the tree's, and nobody is informed that it goes."""
    rollout, first = at(INLINE, RolloutOptions(linger_s=60))
    rollout.receive_target(target := tree_snapshot(INLINE_NEW, first), 1)
    all_take(rollout, 1)
    assert rollout.lingering
    rollout.receive_target(tree_snapshot({**INLINE_NEW, "CDS": {"a": "9", **INLINE_NEW["CDS"]}}, target), 2)
    all_take(rollout, 2)

    assert ({}, []) == (rollout.lingering, found(rollout, LingeringEnded))


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
    assert (True, {}) == (rollout.served is fourth, rollout.lingering)
    rollout.receive_target(tree_snapshot({**INLINE_NEW, "CDS": {"b": "2"}}, fourth), 3)
    all_take(rollout, 3)
    assert {"a": "3", "b": "2"} == served(rollout)["CDS"]
    rollout.receive_timer(60)
    all_take(rollout, 60)

    assert {"b": "2"} == served(rollout)["CDS"]


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
    assert rollout.has_reached(again)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_restart_goes_on_where_it_was(steps: int) -> None:
    """What was served is served at once; the next step follows when clients had time to return."""
    rollout, first = at(OLD)
    rollout.receive_target(tree_snapshot(NEW, first), 1)
    for _ in range(steps):
        rollout.receive_waiting(set(), 1)
    state, before = rollout.state, served(rollout)

    again = Rollout(RolloutOptions(step_timeout_s=5), state)
    assert (before, 0) == (served(again), again.timer_at_s)
    again.receive_timer(1000)
    again.receive_target(target := tree_snapshot(NEW), 1001)
    assert (before, 1005) == (served(again), again.timer_at_s)
    again.receive_timer(1005)
    all_take(again, 1005)

    assert (NEW, True) == (served(again), again.has_reached(target))


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


def test_a_state_that_was_never_used_is_the_same_still() -> None:
    """A process that ends at once loses nothing."""
    rollout, first = at(INLINE)
    rollout.receive_target(tree_snapshot(INLINE_NEW, first), 100)
    all_take(rollout, 100)

    assert None is Rollout(RolloutOptions()).state
    assert rollout.state == Rollout(RolloutOptions(), rollout.state).state


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
    rollout, served_first = at(base, RolloutOptions())
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
    rollout, served_first = at(base, RolloutOptions())
    one = tree_snapshot({**base, **first}, served_first)

    rollout.receive_target(one, 1)
    rollout.receive_waiting({Somebody()}, 1)
    rollout.receive_target(tree_snapshot({**base, **first, **second}, one), 2)

    assert tree_of(one) == served(rollout)


def follow_edits(rollout: Rollout, edits: list[Snapshot], slow: Somebody) -> list[dict[str, dict[str, str]]]:
    """Return what is served after each edit, one a second, with a client that takes nothing until a step times out."""
    found = []
    for now_s, edit in enumerate(edits, 1):
        if rollout.timer_at_s is not None and rollout.timer_at_s <= now_s:
            rollout.receive_timer(now_s)
            # The late client is left behind.
            all_take(rollout, now_s)
        rollout.receive_target(edit, now_s)
        rollout.receive_waiting({slow}, now_s)
        found.append(served(rollout))
    return found


def test_frequent_targets_and_a_client_that_takes_nothing_do_not_put_off_what_follows() -> None:
    """Each edit adds a cluster, moves the route to it and removes the one before: the route moves when the time is up."""
    rollout, first = at({"CDS": {"c0": "1"}, "RDS": {"r": "1 CDS:c0"}}, TIMED)
    edits = [tree_snapshot({"CDS": {f"c{n}": "1"}, "RDS": {"r": f"{n} CDS:c{n}"}}, first) for n in range(1, 31)]

    found = follow_edits(rollout, edits, Somebody())

    assert {"c0", "c1", "c2"} == found[1]["CDS"].keys()
    assert [{"r": "1 CDS:c0"}] * 5 + [{"r": "5 CDS:c5"}] == [one["RDS"] for one in found[:6]]
    assert len({one["RDS"]["r"] for one in found}) > 4


def test_frequent_endpoints_and_clients_that_take_their_time_in_turn_do_not_put_off_routes() -> None:
    """Each client takes every other step before the next edit, so that nobody is late, and somebody is always waited for."""
    base: Tree = {"CDS": {"c0": "1", "x": "1 EDS:e"}, "EDS": {"e": "0"}, "RDS": {"r": "1 CDS:c0"}}
    rollout, first = at(base, TIMED)
    clients = [Somebody(), Somebody()]
    found = []
    tree: Tree = {}
    for n in range(1, 5):
        step = rollout.step
        tree = {"CDS": {"c1": "1", "x": "1 EDS:e"}, "EDS": {"e": str(n)}, "RDS": {"r": "1 CDS:c1"}}
        rollout.receive_target(tree_snapshot(tree, first), n)
        if rollout.step is not step:
            rollout.receive_waiting(set(clients), n)
        rollout.receive_taken(clients[n % 2], n)
        found.append((served(rollout)["RDS"]["r"], served(rollout)["EDS"]["e"]))
    all_take(rollout, 5)

    assert [("1 CDS:c0", "1"), ("1 CDS:c0", "2"), ("1 CDS:c0", "3"), ("1 CDS:c1", "3")] == found
    assert {**tree, "EDS": {"e": "4"}} == served(rollout)
    assert "StepTimedOut" not in names(rollout)


def test_endpoints_that_a_newer_target_has_are_not_removed_with_the_present_one() -> None:
    """Only the switch comes before it."""
    tree: Tree = {"CDS": {"c": "1"}, "RDS": {"r": "1 CDS:c"}, "EDS": {"e": "1"}}
    rollout, first = at(tree, TIMED)
    rollout.receive_target(tree_snapshot({"CDS": {"c": "1"}, "RDS": {"r": "2 CDS:c"}}, first), 1)
    rollout.receive_waiting({Somebody()}, 1)
    rollout.receive_target(tree_snapshot({**tree, "RDS": {"r": "2 CDS:c"}}, first), 2)
    rollout.receive_timer(6)

    assert {**tree, "RDS": {"r": "2 CDS:c"}} == served(rollout)


@pytest.mark.parametrize("later", [{"RDS": {"r": "1 CDS:c0"}}, {"CDS": {"c1": "2"}}])
def test_a_newer_target_with_more_than_other_endpoints_comes_first(later: Tree) -> None:
    """A version may have been rejected meanwhile."""
    rollout, first = at({"CDS": {"c0": "1"}, "RDS": {"r": "1 CDS:c0"}}, TIMED)
    tree: Tree = {"CDS": {"c1": "1"}, "RDS": {"r": "1 CDS:c1"}}
    rollout.receive_target(tree_snapshot(tree, first), 1)
    rollout.receive_waiting({Somebody()}, 1)
    rollout.receive_target(tree_snapshot({**tree, **later}, first), 4)
    rollout.receive_timer(6)

    assert {"r": "1 CDS:c0"} == served(rollout)["RDS"]


def test_the_others_of_a_step_have_their_time_when_a_client_is_late() -> None:
    """The late one took nothing since the first of two joined steps; a newcomer has no more time than that."""
    rollout, first = at({"CDS": {"c0": "1"}, "RDS": {"r": "1 CDS:c0"}}, TIMED)
    one, other, newcomer = Somebody(), Somebody(), Somebody()
    for n in (1, 3):
        rollout.receive_target(tree_snapshot({"CDS": {f"c{n}": "1"}, "RDS": {"r": f"{n} CDS:c{n}"}}, first), n)
        rollout.receive_waiting({one, other}, n)
        if n == 1:
            rollout.receive_taken(other, n)
    rollout.receive_late(newcomer, 4)
    assert rollout.timer_at_s == 6
    rollout.take_events()
    rollout.receive_timer(6)
    assert [{one, newcomer}] == [one.clients for one in rollout.take_events() if isinstance(one, StepTimedOut)]
    assert (rollout.timer_at_s, {"r": "1 CDS:c0"}) == (8, served(rollout)["RDS"])
    rollout.receive_timer(8)

    assert {"r": "3 CDS:c3"} == served(rollout)["RDS"]


def test_a_client_that_takes_nothing_holds_up_no_target_of_one_step() -> None:
    """Nothing waits for the step, so that nothing is put off."""
    rollout, first = at({"EDS": {"e": "0"}}, TIMED)
    edits = [tree_snapshot({"EDS": {"e": str(n)}}, first) for n in range(1, 13)]

    assert [{"EDS": {"e": str(n)}} for n in range(1, 13)] == follow_edits(rollout, edits, Somebody())


@pytest.mark.parametrize("first", [{"CDS": {"new": "1 EDS:n", "old": "1"}}, {"CDS": {"new": "1 EDS:n"}, "EDS": {}}])
def test_endpoints_that_clusters_of_a_step_wait_for_follow_at_once(first: Tree) -> None:
    """An Envoy ACKs the clusters when it has their endpoints; all else of the target waits for that ACK."""
    base: Tree = {"CDS": {"old": "1"}, "EDS": {"e": "1"}}
    rollout, before = at(base)
    one = tree_snapshot({**base, **first}, before)
    two = tree_snapshot({"CDS": {"new": "1 EDS:n"}, "EDS": {"n": "1"}, "RDS": {"r": "1 CDS:new"}}, one)
    slow = Somebody()
    rollout.receive_target(one, 1)
    rollout.receive_waiting({slow}, 1)
    ends_at_s = rollout.timer_at_s

    rollout.receive_target(two, 2)

    assert served(rollout) == {**tree_of(one), "EDS": {**tree_of(one).get("EDS", {}), "n": "1"}}
    assert rollout.step is not None
    assert {type_url("CDS"), type_url("EDS")} == set(rollout.step.changed)
    assert {"n"} == rollout.step.endpoints
    assert ends_at_s == rollout.timer_at_s
    rollout.receive_waiting({slow}, 2)
    rollout.receive_taken(slow, 3)
    all_take(rollout, 3)
    assert tree_of(two) == served(rollout)
    assert rollout.has_reached(two)


def test_a_target_whose_users_were_taken_is_good() -> None:
    """Clients have what it asks for, although the next one came before what it removes had gone."""
    rollout, first = at(OLD)
    second = tree_snapshot(NEW, first)
    third = tree_snapshot({**NEW, "CDS": {"new": "1", "more": "1"}, "RDS": {"r": "3 CDS:more"}}, second)

    rollout.receive_target(second, 1)
    for _ in range(2):
        assert rollout.good is first
        rollout.receive_waiting(set(), 1)
    rollout.receive_waiting({Somebody()}, 1)
    rollout.receive_target(third, 2)
    rollout.receive_waiting(set(), 2)

    assert rollout.good is second


def test_reports_of_clients_that_nobody_waits_for_change_nothing() -> None:
    """Not before there is a target, nor when all is done, nor before it is known who has to take a step."""
    rollout, client = Rollout(RolloutOptions()), Somebody()

    def report() -> None:
        rollout.receive_taken(client, 0)
        rollout.receive_timer(0)
        rollout.receive_drained(["l"], 0)

    report()
    rollout.receive_waiting({client}, 0)
    assert (None, None, "", {}) == (rollout.served, rollout.timer_at_s, rollout.target_id, rollout.lingering)
    rollout.receive_target(first := tree_snapshot(OLD), 0)
    report()
    assert rollout.step is not None
    all_take(rollout, 0)
    report()
    rollout.receive_waiting({client}, 0)
    rollout.receive_target(tree_snapshot(NEW, first), 0)
    report()
    assert BOTH == served(rollout)


def test_a_rollout_that_is_split_goes_on_from_the_same_step() -> None:
    """Its clients are asked anew, have the whole time again, and hold nobody of the other rollout up."""
    rollout, first = at(OLD, TIMED)
    slow = Somebody()
    rollout.receive_target(tree_snapshot(NEW, first), 1)
    rollout.receive_waiting({slow}, 1)
    made = rollout.split(RolloutOptions(step_timeout_s=9), 3)
    rollout.receive_taken(slow, 3)

    assert (SWITCHED, BOTH) == (served(rollout), served(made))
    assert (None, 12, ()) == (made.waiting, made.timer_at_s, made.take_events())
    made.receive_waiting(set(), 4)
    assert made.serves_the_same(rollout)
    assert not made.serves_the_same(Rollout(RolloutOptions()))


@pytest.mark.parametrize(
    ("own", "other", "is_near"),
    [
        pytest.param(OLD, OLD, True, id="the same"),
        pytest.param(BOTH, OLD, True, id="what is only added"),
        pytest.param({**OLD, "RDS": {"r": "2 CDS:old"}}, OLD, True, id="users alone"),
        pytest.param(NEW, OLD, False, id="three steps"),
        pytest.param(SWITCHED, BOTH, True, id="a switch"),
        pytest.param(NEW, BOTH, False, id="a switch, and what goes after it"),
    ],
)
def test_clients_may_be_served_at_once_what_takes_one_step(own: Tree, other: Tree, *, is_near: bool) -> None:
    """Else they need the steps between."""
    assert at(own)[0].is_near(at(other)[0]) is is_near
    assert not Rollout(RolloutOptions()).is_near(at(other)[0])


def test_what_drains_is_taken_along() -> None:
    """Clients that follow another rollout keep there what their draining listeners use; it is not near before it has that."""
    rollout, first = at(INLINE, RolloutOptions(linger_s=60))
    rollout.receive_target(tree_snapshot(INLINE_NEW, first), 1)
    all_take(rollout, 1)
    other, _ = at(INLINE_BOTH, RolloutOptions(linger_s=60))
    gone, _ = at(INLINE_NEW)
    assert (True, False) == (other.is_near(rollout), gone.is_near(rollout))

    other.receive_clients_of(rollout, 2)
    other.receive_target(tree_snapshot(INLINE_NEW), 3)
    all_take(other, 3)
    assert (INLINE_BOTH, 61) == (served(other), other.timer_at_s)
    other.receive_timer(61)
    assert INLINE_NEW == served(other)


def test_clients_have_a_target_when_they_took_its_users() -> None:
    """What goes after that names nothing any more, and a resource that comes back is new to them."""
    rollout, first = at(OLD)
    rollout.receive_target(target := tree_snapshot(NEW, first), 1)
    taken = []
    while rollout.step is not None:
        taken.append(rollout.taken)
        rollout.receive_waiting(set(), 1)

    assert taken == [first, first, target]
    assert (rollout.taken, Rollout(RolloutOptions()).taken) == (target, None)


def test_a_start_with_nothing_is_no_good_target() -> None:
    """What is served first is kept from then on: a tree that breaks its references takes nothing back, whoever has it."""
    (rollout, empty), client = at({}), Somebody()
    first: Tree = {"CDS": {"a": "1 EDS:a"}, "EDS": {"a": "1"}, "RDS": {"r": "1 CDS:a"}, "LDS": {"l": "1 RDS:r"}}
    wanted = tree_snapshot(first, empty)
    rollout.receive_target(wanted, 1.0)
    rollout.receive_waiting({client}, 1.0)
    rollout.receive_taken(client, 2.0)
    rollout.receive_waiting({client}, 2.0)
    assert served(rollout) == first
    target = Target()
    target.receive_tree(tree_snapshot({**first, "RDS": {"r": "2 CDS:b"}, "CDS": {}}, wanted))
    composed = target.compose(rollout.taken, (), HoldingRules())

    assert composed is not None
    assert tree_of(composed) == first


def test_new_resources_of_a_step_under_way_are_kept_like_others() -> None:
    """A tree that breaks their references, before clients took them, takes nothing back that is served; else it is followed."""
    (rollout, before), client, rules = at({"CDS": {"z": "1"}}), Somebody(), HoldingRules()
    wanted: Tree = {
        "CDS": {"z": "1", "a": "1 EDS:a"},
        "EDS": {"a": "1"},
        "RDS": {"r": "1 CDS:a"},
        "LDS": {"l": "1 RDS:r"},
    }
    rollout.receive_target(first := tree_snapshot(wanted, before), 1.0)
    rollout.receive_waiting({client}, 1.0)
    target = Target()
    target.receive_tree(tree_snapshot({**wanted, "RDS": {"r": "2 CDS:b"}, "CDS": {"z": "1"}}, first))

    assert {url: [one.name for one in new] for url, new in rollout.begun.items() if new} == {
        type_url(short): ["a"] for short in ("CDS", "EDS")
    }
    before_routes = target.compose(rollout.taken, (), rules, rollout.begun)
    assert before_routes is not None
    assert tree_of(before_routes) == {"CDS": {"z": "1"}, "EDS": {"a": "1"}}

    rollout.receive_taken(client, 2.0)
    rollout.receive_waiting({client}, 2.0)
    assert served(rollout) == wanted
    composed = target.compose(rollout.taken, (), rules, rollout.begun)
    assert composed is not None
    assert tree_of(composed) == wanted
    all_take(rollout, 3.0)
    assert rollout.begun == {}


def test_what_is_taken_along_to_a_rollout_at_rest_ends() -> None:
    """No step ends there that would say when."""
    rollout, first = at(INLINE, RolloutOptions(linger_s=60))
    rollout.receive_target(tree_snapshot(INLINE_NEW, first), 1)
    rollout.receive_waiting(set(), 1)
    rollout.receive_waiting({Somebody()}, 1)
    other, _ = at(INLINE_BOTH, RolloutOptions(linger_s=60))
    other.receive_clients_of(rollout, 2)

    assert other.timer_at_s == 62
