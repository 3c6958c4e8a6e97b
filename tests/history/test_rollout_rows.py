from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from fsxds.events.event import Event
from fsxds.events.process_events import StateIgnored
from fsxds.history.rollout_rows import channel_key, channel_text
from fsxds.history.state import State
from fsxds.history.state_directory import DAMAGED, DATABASE
from fsxds.model.resources import Snapshot
from fsxds.model.values import Version
from fsxds.rollout import Step
from fsxds.rollout.holding import HoldingRules
from fsxds.rollout.machine import Rollout, RolloutOptions, RolloutState
from fsxds.rollout.planning import DrainingListener
from fsxds.rollout.step import Standing
from fsxds.rollout.target import Pin, Target
from fsxds.runtime.channels import ChannelKey
from fsxds.snapshots.encoding import DamagedBytesError, object_of
from tests.history.made import assert_same, check_database
from tests.support.rollouts import Tree, tree_of, tree_snapshot
from tests.support.snapshots import type_url

OLD: Tree = {"CDS": {"old": "1", "own": "1"}, "RDS": {"r": "1 CDS:old"}, "LDS": {"l": "1 RDS:r CDS:own"}}
NEW: Tree = {"CDS": {"new": "1"}, "RDS": {"r": "2 CDS:new"}, "LDS": {"l": "2 RDS:r CDS:new"}}
WHOLE = ChannelKey()


class OneClient:
    """A client of which nothing but its being counts."""

    def standing(self, step: Step) -> Standing:
        """Say that it has nothing to do with a step."""
        return Standing.TAKEN


def started(options: RolloutOptions | None = None) -> tuple[Rollout, Snapshot]:
    """Return a rollout that serves the old tree, and its snapshot."""
    rollout, first = Rollout(options or RolloutOptions(linger_s=100.0)), tree_snapshot(OLD)
    rollout.receive_target(first, 0.0)
    rollout.receive_waiting(set(), 0.0)
    return rollout, first


def after_restart(state: State, rollout: Rollout, passed_s: float = 0.0) -> RolloutState:
    """Return the state of a rollout as the next process has it, so long after it was kept."""
    assert rollout.state is not None
    state.save({WHOLE: rollout.state}, None, 1000.0)
    state.close()
    found = state.rollouts(1000.0 + passed_s)
    assert_same(rollout.state.served, found[WHOLE].served)
    assert_same(rollout.state.target, found[WHOLE].target)
    return found[WHOLE]


def finish(rollout: Rollout, target: Snapshot, now_s: float) -> list[dict[str, dict[str, str]]]:
    """Drive a restored rollout to its target, whatever the time is; return what is served on the way."""
    rollout.receive_target(target, now_s)
    served: list[dict[str, dict[str, str]]] = []
    for _ in range(20):
        assert rollout.served is not None
        if not served or tree_of(rollout.served) != served[-1]:
            served.append(tree_of(rollout.served))
        if rollout.step is not None and not rollout.is_resting:
            rollout.receive_waiting(set(), now_s)
        elif rollout.timer_at_s is None:
            return served
        else:
            now_s = max(now_s, rollout.timer_at_s)
            rollout.receive_timer(now_s)
    raise AssertionError(served)


@pytest.mark.parametrize("steps", range(4))
def test_rollout_goes_on_after_a_restart(state: State, steps: int) -> None:
    """At whichever step a process ended, the next one serves that step, and comes to the tree by the steps that are left."""
    client = OneClient()
    rollout, first = started()
    target = tree_snapshot(NEW, first)
    planned = [tree_of(first)]
    rollout.receive_target(target, 10.0)
    for _ in range(3):
        assert rollout.served is not None
        planned.append(tree_of(rollout.served))
        if len(planned) > steps or rollout.step is None:
            break
        rollout.receive_waiting({client}, 10.0)
        rollout.receive_taken(client, 10.0)

    restored = Rollout(RolloutOptions(linger_s=100.0), after_restart(state, rollout))
    # The tree is loaded anew: it is equal, and shares nothing.
    again = tree_snapshot(NEW)
    served = finish(restored, again, 500.0)

    assert served[0] == planned[-1]
    assert tree_of(again) == served[-1]
    assert restored.has_reached(again)


def test_time_that_passed_counts(state: State) -> None:
    """What lingers goes when its listeners are drained, by the time of day; a clock that was set back prolongs nothing."""
    rollout, first = started()
    rollout.receive_target(tree_snapshot(NEW, first), 10.0)
    while rollout.step is not None:
        rollout.receive_waiting(set(), 10.0)
    (key,) = rollout.lingering

    for passed_s, left_s in ((0.0, 100.0), (70.0, 30.0), (200.0, 0.0), (-50.0, 100.0)):
        found = after_restart(state, rollout, passed_s)
        (draining,) = found.draining
        assert draining == DrainingListener("l", frozenset((key,)), ends_at_s=left_s)


def test_snapshots_of_a_rollout_share_what_is_equal(state: State) -> None:
    """What is served and the target are one object where they are equal; so nobody compares them."""
    rollout, _ = started()
    found = after_restart(state, rollout)

    assert found.served is found.target is found.good
    assert (found.pins, found.pinned_at_s, found.before, found.nodes) == ({}, None, {}, frozenset())


def test_everything_of_a_rollout_is_kept(state: State) -> None:
    """What is rolled back, what was good before rejected versions, and who is behind, for each channel on its own."""
    first, second, third = tree_snapshot(OLD), tree_snapshot(NEW), tree_snapshot({"CDS": {"x": "1"}})
    key, gone = (type_url("CDS"), "old"), (type_url("CDS"), "new")
    kept = first.resources(key[0])["old"]
    pins = {
        key: Pin(kept, frozenset((None, Version("5")))),
        gone: Pin(None, frozenset((second.resources(gone[0])["new"].version,))),
    }
    before = {(gone, Version("1")): first, (gone, Version("2")): second, (key, Version("3")): first}
    whole = RolloutState(first, second, third, pins=pins, pinned_at_s=7.0, before=before, held_for_s={key: 30.0})
    lane = ChannelKey(("common",), held=frozenset({(gone, Version("1"))}), lane=3)
    keys = (WHOLE, ChannelKey(("common", "nodes/a"), is_canary=True), lane)
    nodes = frozenset({("n1", "edge"), ("n2", "")})
    state.save({keys[0]: whole, keys[1]: RolloutState(second, second)}, "c0ffee", 1.0)
    state.save({keys[2]: RolloutState(third, first, third, nodes=nodes)}, "c0ffee", 1.0)
    state.close()

    found = state.rollouts(2.0)

    assert set(found) == set(keys)
    restored = found[WHOLE]
    assert (restored.pinned_at_s, found[lane].nodes) == (7.0, nodes)
    # A second passed.
    assert restored.held_for_s == {key: 31.0}
    assert {each: pin.asked for each, pin in restored.pins.items()} == {each: pin.asked for each, pin in pins.items()}
    assert (restored.pins[key].kept, restored.pins[gone].kept) == (kept, None)
    assert restored.before.keys() == before.keys()
    for version, snapshot in before.items():
        assert_same(snapshot, restored.before[version])
    for expected, snapshot_found in ((first, restored.served), (second, restored.target), (third, restored.good)):
        assert_same(expected, snapshot_found)
    assert found[keys[1]].good is None

    state.forget([WHOLE, ChannelKey(("unknown",))])
    assert set(state.rollouts(2.0)) == set(keys[1:])
    state.close()
    check_database(state.path)


def test_a_rollback_of_the_first_form_is_taken_over(state: State) -> None:
    """It has a snapshot as a whole; when it was decided is not known, but when it was written."""
    old, new = tree_snapshot(OLD), tree_snapshot(NEW)
    state.save({WHOLE: RolloutState(old, old, old, pinned=old)}, None, 7.0)
    state.close()
    with closing(sqlite3.connect(state.path / DATABASE)) as connection:
        (text,) = connection.execute("SELECT facts FROM rollouts").fetchone()
        facts = {name: value for name, value in json.loads(text).items() if name in {"saved_s", "snapshots"}}
        facts |= {"format": 1, "asked_id": "0" * 12, "tainted": ["0" * 12], "is_back": False, "is_stopped": False}
        connection.execute("UPDATE rollouts SET facts = ?", (json.dumps({**facts, "draining": []}),))
        connection.commit()
    found = state.rollouts(9.0)[WHOLE]
    assert found.pinned is not None
    assert_same(old, found.pinned)
    target = Target(found.pins, found.pinned_at_s, found.before, found.target)
    target.pinned = found.pinned
    target.receive_tree(new)

    assert tree_of(target.compose(found.good, (), HoldingRules()) or new) == OLD
    assert target.pinned_at_s == 7.0
    assert set(target.pins) == {
        (type_url(short), name)
        for short, name in (("CDS", "old"), ("CDS", "own"), ("CDS", "new"), ("RDS", "r"), ("LDS", "l"))
    }


@pytest.mark.parametrize(
    "key",
    [
        WHOLE,
        ChannelKey(("a", "b")),
        ChannelKey(("a",), is_canary=True),
        ChannelKey(lane=7),
        ChannelKey(held=frozenset()),
        ChannelKey(held=frozenset(), is_shared=True),
        ChannelKey(("a",), held=frozenset({((type_url("CDS"), "x"), Version("1"))}), lane=2),
    ],
)
def test_channels_as_text(key: ChannelKey) -> None:
    """A text stands for one channel; that of most is as it always was."""
    text = channel_text(key)

    assert channel_key(text.encode()) == key
    assert (len(json.loads(text)) == 2) is key.is_main
    with pytest.raises(DamagedBytesError):
        channel_key(text.encode()[:-1])


def test_what_was_reached_is_in_the_history(state: State) -> None:
    """Each target that a rollout reached is recorded once, and none that it did not reach; of canaries only what is theirs alone."""
    first, second = tree_snapshot(OLD), tree_snapshot(NEW)
    canary, others, own = ChannelKey((), is_canary=True), WHOLE, ChannelKey(("edge",), is_canary=True)
    state.save({canary: RolloutState(first, first, first), others: RolloutState(first, first, first)}, None, 1.0)
    state.save({canary: RolloutState(second, second, second)}, None, 2.0)
    state.save({others: RolloutState(second, second, first)}, None, 3.0)
    assert [row.number for row in state.entries(())] == [1]
    state.save({others: RolloutState(second, second, second), own: RolloutState(first, second, first)}, "c0ffee", 4.0)
    state.save({others: RolloutState(second, first, second)}, None, 5.0)

    assert [(row.number, row.time_s) for row in state.entries(())] == [(2, 4.0), (1, 1.0)]
    assert [(row.number, row.commit) for row in state.entries(("edge",))] == [(3, "c0ffee")]
    assert_same(second, state.snapshot((), 2))


def test_state_of_another_form_is_ignored(state: State, events: list[Event]) -> None:
    """What another version of fsxds wrote is reported and left, and the others are restored."""
    one, other = ChannelKey(("one",)), ChannelKey(("other",))
    state.save({key: RolloutState(tree_snapshot(OLD), tree_snapshot(OLD)) for key in (one, other)}, None, 1.0)
    state.close()
    with closing(sqlite3.connect(state.path / DATABASE)) as connection:
        connection.execute("""UPDATE rollouts SET facts = '{"format": 3}' WHERE channel LIKE '%one%'""")
        connection.commit()

    assert set(state.rollouts(1.0)) == {other}
    assert events == [StateIgnored('[["one"], false]', "its form is 3, and not 2")]


@pytest.mark.parametrize("damage", ["content = zeroblob(20)", "content = content || 'x'", "content = ''"])
def test_damaged_snapshot_is_set_aside(state: State, events: list[Event], damage: str) -> None:
    """A snapshot of which a bit is wrong is not restored; those that are whole are, and everything is kept anew."""
    good, bad = tree_snapshot(OLD), tree_snapshot({"CDS": {"bad": "1"}})
    keys = ChannelKey(("bad",)), ChannelKey(("good",))
    state.save({keys[0]: RolloutState(bad, bad), keys[1]: RolloutState(good, good)}, None, 1.0)
    state.close()
    with closing(sqlite3.connect(state.path / DATABASE)) as connection:
        connection.execute(f"UPDATE objects SET {damage} WHERE digest = ?", (object_of(bad).digest,))
        connection.commit()

    found = state.rollouts(1.0)

    assert set(found) == {keys[1]}
    assert_same(good, found[keys[1]].served)
    (event,) = events
    assert isinstance(event, StateIgnored)
    assert event.subject == f"{state.path / DATABASE}{DAMAGED}"
    state.save({keys[0]: RolloutState(bad, bad)}, None, 1.0)
    state.close()
    assert_same(bad, state.rollouts(1.0)[keys[0]].served)
