"""What one channel is to serve: the tree, except for what was rolled back, rejected, or waits for approval."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from fsxds.model.resources import Snapshot
from fsxds.rollout.holding import HoldingRules, HoldReason
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.target import Target
from tests.support.rollouts import Tree, tree_of, tree_snapshot
from tests.support.snapshots import type_url

RULES = HoldingRules()
OLD: Tree = {"CDS": {"a": "1", "b": "1"}, "RDS": {"r": "1 CDS:a", "q": "1 CDS:b"}}
NEW: Tree = {"CDS": {"a": "2", "b": "1"}, "RDS": {"r": "2 CDS:a", "q": "1 CDS:b"}}
SIX: Tree = {"CDS": dict.fromkeys("abcdef", "1"), "RDS": {"r": "1"}}


def version(snapshot: Snapshot, short_name: str, name: str) -> ResourceVersion:
    """Return the version of a resource in a snapshot."""
    key = type_url(short_name), name
    return key, snapshot.resources(key[0])[name].version


class Served:
    """A target whose trees are reached at once."""

    def __init__(self, tree: Tree) -> None:
        self.target, self.base, self.rules = Target(), None, RULES  # type: tuple[Target, Snapshot | None, HoldingRules]
        self.rejected: Collection[ResourceVersion] = ()
        self.tree = tree_snapshot(tree)
        self.save(tree)

    def save(self, tree: Tree) -> Snapshot:
        """Save a tree; return its snapshot."""
        self.tree = tree_snapshot(tree, self.tree)
        self.target.receive_tree(self.tree)
        self.compose()
        return self.tree

    def compose(self) -> dict[str, dict[str, str]]:
        """Return what is to be served, which clients have then."""
        composed = self.target.compose(self.base, self.rejected, self.rules)
        self.target.forget_past(self.base)
        assert composed is not None
        self.base = composed
        return tree_of(composed)

    def reject(self, *versions: ResourceVersion) -> dict[str, dict[str, str]]:
        """Have these versions, and no others, rejected; return what is to be served."""
        self.target.remember(versions, self.base)
        self.rejected = versions
        return self.compose()


def test_without_anything_to_hold_it_is_the_tree() -> None:
    """Nothing is copied; before the first tree there is nothing to serve."""
    served = Served(OLD)

    assert served.base is served.tree
    assert served.target.holds == {}
    assert Target().compose(None, (), RULES) is None
    assert Target().holds == {}


def test_a_rejected_version_is_replaced_by_what_was_good() -> None:
    """All else of the change is served, and a correction at once."""
    served = Served(OLD)
    tree = tree_snapshot(NEW, served.tree)
    served.target.remember([bad := version(tree, "CDS", "a")], served.base)
    served.rejected = [bad]
    served.save(NEW)
    assert served.compose() == {**NEW, "CDS": {"a": "1", "b": "1"}}
    assert served.target.holds[bad[0]].reason is HoldReason.REJECTED
    served.save({**NEW, "CDS": {"a": "3", "b": "2"}})

    assert served.compose() == {**NEW, "CDS": {"a": "3", "b": "2"}}


def test_a_rejected_version_that_is_new_is_not_served() -> None:
    """Nor what names it."""
    served = Served(OLD)
    more: Tree = {"CDS": {**OLD["CDS"], "c": "1"}, "RDS": {**OLD["RDS"], "p": "1 CDS:c"}}
    tree = tree_snapshot(more, served.tree)
    served.target.remember([bad := version(tree, "CDS", "c")], served.base)
    served.rejected = [bad]
    served.save(more)

    assert served.compose() == OLD


def test_where_nobody_knows_what_was_good_clients_keep_what_they_have() -> None:
    """They are not told to remove it."""
    served = Served(OLD)

    assert served.reject(version(served.tree, "CDS", "a")) == OLD


def test_the_newest_version_that_nobody_rejects_is_served() -> None:
    """Of several that were rejected one after the other."""
    served = Served({"CDS": {"a": "1"}})
    bad = []
    for content in "23":
        tree = tree_snapshot({"CDS": {"a": content}}, served.tree)
        bad.append(version(tree, "CDS", "a"))
        served.target.remember(bad[-1:], served.base)
        served.save({"CDS": {"a": content}})

    served.rejected = bad
    assert served.compose() == {"CDS": {"a": "1"}}
    assert set(served.target.held_of(bad)) == set(bad)


def test_what_is_served_still_keeps_its_rejecter_apart() -> None:
    """It may be in use, or linger; a node that rejects it, and never had it, is not to be sent it then."""
    served = Served({"CDS": {"z": "1"}})
    target, before = served.target, served.tree
    tree = served.save({"CDS": {"z": "1", "d": "1"}})
    bad = version(tree, "CDS", "d")
    target.remember([bad], before)
    assert target.replaced_for({bad}, tree) == {bad}
    served.save({"CDS": {"z": "1"}})

    assert target.held_of({bad}) == []
    assert target.replaced_for({bad}, tree) == {bad}
    assert target.replaced_for({bad}, served.base) == target.replaced_for({bad}, None) == frozenset()


def test_what_was_good_is_forgotten_with_its_version() -> None:
    """When neither the tree nor what is served has it."""
    served = Served(OLD)
    tree = tree_snapshot(NEW, served.tree)
    served.target.remember([bad := version(tree, "CDS", "a")], served.base)
    served.rejected = [bad]
    served.save(NEW)
    assert set(served.target.before) == {bad}
    served.rejected = ()
    served.save({**NEW, "CDS": {"a": "3", "b": "1"}})
    served.compose()

    assert not served.target.before


def test_what_was_good_is_known_while_an_earlier_tree_is_served() -> None:
    """A version of that is rejected when a newer tree has come, and then the newer one, too: the route before both is good."""
    target, trees = (
        Target(),
        [tree_snapshot({"RDS": {"r": f"{number} CDS:a"}, "CDS": {"a": "1"}}) for number in range(3)],
    )
    first, second, third = (version(tree, "RDS", "r") for tree in trees)
    for tree in trees:
        target.receive_tree(tree)
        target.compose(trees[0], (), RULES)
    target.remember([second], trees[0])
    target.forget_past(trees[0], trees[1])
    # Clients took what else that has.
    target.remember([third], trees[1])
    composed = target.compose(trees[1], [second, third], RULES)

    assert composed is not None
    assert version(composed, "RDS", "r") == first


def test_what_a_rejecter_has_is_what_was_good() -> None:
    """Of what is served, with those versions taken out that it did not take."""
    served = Served(OLD)
    tree = tree_snapshot(NEW, served.tree)
    served.target.remember([bad := version(tree, "CDS", "a")], served.base)

    assert tree_of(served.target.without(tree, [bad])) == {**NEW, "CDS": OLD["CDS"]}
    assert served.target.without(tree, []) is tree


def test_a_rollback_pins_what_it_reverts() -> None:
    """Other files are served on; a resource follows the tree again when its own content changes there."""
    served = Served(OLD)
    old = served.tree
    served.save(NEW)
    assert served.target.pin(old, 7.0)
    assert served.compose() == OLD
    assert served.target.pinned_at_s == 7.0
    served.save({**NEW, "CDS": {"a": "2", "b": "2"}})
    assert served.compose() == {**OLD, "CDS": {"a": "1", "b": "2"}}
    served.save({**NEW, "CDS": {"a": "3", "b": "2"}})
    assert served.compose() == {**OLD, "CDS": {"a": "3", "b": "2"}}
    assert set(served.target.pins) == {(type_url("RDS"), "r")}
    served.save({**NEW, "CDS": {"a": "3", "b": "2"}, "RDS": {"r": "3 CDS:a", "q": "1 CDS:b"}})

    assert served.compose() == tree_of(served.tree)
    assert not served.target.pins
    assert served.target.pinned_at_s is None


def test_a_rollback_to_what_is_served_pins_nothing() -> None:
    """There is nothing to revert."""
    served = Served(OLD)

    assert not served.target.pin(tree_snapshot(OLD), 7.0)
    assert not served.target.resume(served.base, RULES)


def test_a_rollback_is_also_of_what_waits_to_be_served() -> None:
    """What waits for canaries is held when it comes; what it mends anyway follows the tree then."""
    served = Served({"CDS": {"bad": "2", "mended": "2"}})
    earlier = tree_snapshot({"CDS": {"bad": "1", "mended": "1", "next": "1"}})
    wanted = {"CDS": {"bad": "2", "mended": "1", "next": "2"}}
    waiting = tree_snapshot(wanted)
    assert served.target.pin(earlier, 7.0, waiting)
    assert served.compose() == tree_of(earlier)
    assert {key[1] for key in served.target.pins} == {"bad", "mended", "next"}
    served.save(wanted)

    assert served.compose() == tree_of(earlier)
    assert {key[1] for key in served.target.pins} == {"bad", "next"}


def test_a_rollback_to_what_is_served_holds_what_waits_also_if_something_else_comes_first() -> None:
    """Canaries may have lived with that for long enough."""
    earlier: Tree = {"CDS": {"good": "1", "other": "1"}}
    served = Served(earlier)
    assert served.target.pin(tree_snapshot(earlier), 7.0, tree_snapshot({"CDS": {"good": "2", "other": "2"}}))
    served.save({"CDS": {"good": "1", "other": "2"}})
    served.save({"CDS": {"good": "2", "other": "2"}})

    assert served.compose() == earlier


def test_a_rollback_before_the_first_tree_pins_what_differs_there() -> None:
    """A view that nobody followed yet is loaded a moment later."""
    target = Target()
    assert target.pin(tree_snapshot({"CDS": {"a": "1", "b": "1"}}), 7.0)
    assert target.is_rolled_back
    target.receive_tree(tree_snapshot({"CDS": {"a": "2", "b": "1"}}))

    composed = target.compose(None, (), RULES)
    assert composed is not None
    assert tree_of(composed) == {"CDS": {"a": "1", "b": "1"}}
    assert [key[1] for key in target.pins] == ["a"]
    assert target.resume(None, RULES)
    assert not target.is_rolled_back


def test_resume_follows_the_tree() -> None:
    """Whatever that removes: it was served before."""
    served = Served(SIX)
    whole, one = served.tree, {**SIX, "CDS": {"a": "1"}}
    served.rules = replace(RULES, max_removal=None)
    served.save(one)
    served.rules = RULES
    served.target.pin(whole, 7.0)
    assert served.compose() == SIX
    assert served.target.resume(served.base, RULES)

    assert served.compose() == one
    assert not served.target.pins


def test_a_removal_waits_until_it_is_approved() -> None:
    """By its id, and once: when it was served, an equal one waits again."""
    served, one = Served(SIX), {**SIX, "CDS": {"a": "1"}}
    served.save(one)
    assert served.compose() == SIX
    assert served.target.composed is not None
    wanted = served.target.composed.approval_id
    assert wanted is not None
    assert not served.target.approve("0" * 12, served.base)
    assert served.target.approve(wanted, served.base)
    assert served.compose() == one
    assert not served.target.approve(wanted, served.base)
    served.save(SIX)
    served.compose()
    served.save(one)

    assert served.compose() == SIX


def test_an_approval_in_the_settings_is_for_good() -> None:
    """As long as it is there."""
    served, one = Served(SIX), {**SIX, "CDS": {"a": "1"}}
    served.save(one)
    assert served.target.composed is not None
    approved = frozenset((served.target.composed.approval_id or "",))
    served.rules = replace(RULES, approved=approved)

    for tree in (one, SIX, one):
        served.save(tree)
        assert served.compose() == tree


def test_a_broken_file_takes_nothing_away_at_a_start() -> None:
    """What the process before served stays until it is certain that it is meant to go."""
    target = Target(restored=tree_snapshot(OLD))
    broken = replace(tree_snapshot({**OLD, "CDS": {"b": "2"}}), incomplete=frozenset((type_url("CDS"),)))
    target.receive_tree(broken)
    first = target.compose(tree_snapshot(OLD), (), RULES)
    assert first is not None
    assert tree_of(first) == {**OLD, "CDS": {"a": "1", "b": "2"}}
    target.receive_tree(tree_snapshot({"CDS": {"b": "2"}, "RDS": {"q": "1 CDS:b"}}))
    second = target.compose(first, (), RULES)

    assert second is not None
    assert tree_of(second) == {"CDS": {"b": "2"}, "RDS": {"q": "1 CDS:b"}}


@pytest.mark.parametrize("is_pinned", [False, True])
def test_a_channel_that_is_split_goes_on_by_itself(*, is_pinned: bool) -> None:
    """With the same pins, and what was good; what it remembers later is its own."""
    served = Served(OLD)
    old = served.tree
    served.save(NEW)
    if is_pinned:
        served.target.pin(old, 7.0)
    made = served.target.split()
    made.remember([bad := version(served.tree, "CDS", "a")], old)

    assert made.pins == served.target.pins
    assert (set(made.before), set(served.target.before)) == ({bad}, set())
    found = made.compose(served.base, [] if is_pinned else [bad], RULES)
    assert found is not None
    assert tree_of(found)["CDS"] == OLD["CDS"]


def test_what_was_good_before_is_no_suspect() -> None:
    """It is served again in place of what was rejected, in one response with what is offered again."""
    run = Served(OLD)
    good = version(run.tree, "CDS", "a")
    bad = version(run.save({**OLD, "CDS": {"a": "bad", "b": "bad"}}), "CDS", "a")
    other = version(run.tree, "CDS", "b")
    run.base = tree_snapshot(OLD)
    run.reject(bad)

    assert run.target.suspects(frozenset((good, other)), {bad}, None) == {other}
    assert run.target.suspects(frozenset((good,)), {bad}, None) == {good}
    assert run.target.suspects(frozenset((good, other)), (), None) == {good, other}


def test_what_was_taken_before_is_no_suspect_beside_what_is_new() -> None:
    """A node may have it from a process before; but not if it rejects that by now, or nothing is new."""
    run = Served(OLD)
    taken, base = version(run.tree, "CDS", "a"), run.tree
    new = version(run.save({**OLD, "CDS": {**OLD["CDS"], "new": "1"}}), "CDS", "new")

    assert run.target.suspects(frozenset((taken, new)), (), base) == {new}
    assert run.target.suspects(frozenset((taken, new)), {taken}, base) == {taken, new}
    assert run.target.suspects(frozenset((taken,)), (), base) == {taken}
