"""What is served of a tree when some of it is held back."""

from __future__ import annotations

from dataclasses import replace
from time import process_time

import pytest

from fsxds.model.resources import Key, Snapshot
from fsxds.model.values import Severity, Version
from fsxds.rollout.holding import NO_HOLDS, Composed, Hold, HoldingRules, HoldReason, Holds, Removal, compose
from tests.support.rollouts import Tree, marked, tree_of, tree_snapshot
from tests.support.snapshots import type_url

RULES = HoldingRules()
OLD: Tree = {"CDS": {"old": "1"}, "RDS": {"r": "1 CDS:old"}, "LDS": {"l": "1 RDS:r"}}
NEW: Tree = {"CDS": {"new": "1"}, "RDS": {"r": "2 CDS:new"}, "LDS": {"l": "1 RDS:r"}}
CLUSTERS_FIRST: Tree = {**OLD, "CDS": {"new": "1"}}
ROUTES_FIRST: Tree = {**OLD, "RDS": {"r": "2 CDS:new"}}
IN_USE, UNDEFINED, DEPENDS = HoldReason.IN_USE, HoldReason.UNDEFINED, HoldReason.DEPENDS


def key(word: str) -> Key:
    """Return the key of a resource: `CDS:a`."""
    short_name, _, name = word.partition(":")
    return type_url(short_name), name


def held_at(reason: HoldReason, tree: Snapshot, *names: str, base: Snapshot | None = None) -> Holds:
    """Return resources of a tree as held at what they are in another one, or at nothing."""
    return {
        (url, name): Hold(
            reason, None if base is None else base.resources(url).get(name), tree.resources(url).get(name)
        )
        for url, name in map(key, names)
    }


def with_good(holds: Holds, good: Snapshot) -> Holds:
    """Return rejected resources with what was good before."""
    return {one: replace(hold, good=good) for one, hold in holds.items()}


def reasons(composed: Composed) -> dict[str, tuple[HoldReason, str | None]]:
    """Return why each resource is held, by its name, with the name of the other one that matters."""
    return {name: (hold.reason, hold.other and hold.other[1]) for (_, name), hold in composed.holds.items()}


def both(routes: str) -> Tree:
    """Return a tree in which the old and the new cluster are served, and the routes are some."""
    return {**OLD, "CDS": {"new": "1", "old": "1"}, "RDS": {"r": routes}}


@pytest.mark.parametrize(
    ("base", "tree", "served", "expected"),
    [
        pytest.param(OLD, NEW, NEW, {}, id="renamed in one save"),
        pytest.param(OLD, CLUSTERS_FIRST, both("1 CDS:old"), {"old": (IN_USE, "r")}, id="the cluster first"),
        pytest.param(both("1 CDS:old"), NEW, NEW, {}, id="then the route"),
        pytest.param(OLD, ROUTES_FIRST, OLD, {"r": (UNDEFINED, "new")}, id="the route first"),
        pytest.param(OLD, {**OLD, "CDS": {}}, OLD, {"old": (IN_USE, "r")}, id="removed in use"),
        pytest.param(OLD, {"LDS": {}}, {}, {}, id="removed with its users"),
        pytest.param(OLD, {**OLD, "RDS": {}}, OLD, {"r": (IN_USE, "l")}, id="routes of a listener"),
        pytest.param(
            OLD, {"LDS": OLD["LDS"]}, OLD, {"r": (IN_USE, "l"), "old": (IN_USE, "r")}, id="what stays uses more"
        ),
        pytest.param(
            {"CDS": {"a": "1 SDS:s"}, "SDS": {"s": "1"}},
            {"CDS": {"a": "1 SDS:s"}},
            {"CDS": {"a": "1 SDS:s"}, "SDS": {"s": "1"}},
            {"s": (IN_USE, "a")},
            id="a secret",
        ),
        pytest.param(
            {"LDS": {"l": "1 SRDS:*"}, "SRDS": {"s": "1", "t": "1"}},
            {"LDS": {"l": "1 SRDS:*"}},
            {"LDS": {"l": "1 SRDS:*"}, "SRDS": {"s": "1", "t": "1"}},
            {"s": (IN_USE, "l"), "t": (IN_USE, "l")},
            id="the last scopes",
        ),
        pytest.param(
            {"LDS": {"l": "1 SRDS:*"}, "SRDS": {"s": "1", "t": "1"}},
            {"LDS": {"l": "1 SRDS:*"}, "SRDS": {"s": "1"}},
            {"LDS": {"l": "1 SRDS:*"}, "SRDS": {"s": "1"}},
            {},
            id="one of several scopes",
        ),
        pytest.param(
            {"CDS": {"a": "1 EDS:e"}, "EDS": {"e": "1"}},
            {"CDS": {"a": "1 EDS:e"}},
            {"CDS": {"a": "1 EDS:e"}},
            {},
            id="a cluster without endpoints is a state of its own",
        ),
        pytest.param(
            OLD,
            {**OLD, "RDS": {"r": "1 CDS:old", "q": "1 CDS:none"}, "LDS": {"l": "1 RDS:r", "m": "1 RDS:q"}},
            OLD,
            {"q": (UNDEFINED, "none"), "m": (DEPENDS, "q")},
            id="new users of what is not there, and theirs",
        ),
        pytest.param(
            {**OLD, "RDS": {"r": "1 CDS:none"}},
            {**OLD, "RDS": {"r": "2 CDS:none", "q": "1 CDS:none"}},
            {**OLD, "RDS": {"r": "2 CDS:none", "q": "1 CDS:none"}},
            {},
            id="what was undefined before is no obstacle",
        ),
        pytest.param(
            OLD,
            {**OLD, "RDS": {"r": "2 CDS:none", "q": "1 CDS:old"}},
            {**OLD, "RDS": {"r": "1 CDS:old", "q": "1 CDS:old"}},
            {"r": (UNDEFINED, "none")},
            id="all else follows",
        ),
    ],
)
def test_references_that_a_tree_would_break(
    base: Tree, tree: Tree, served: Tree, expected: dict[str, tuple[HoldReason, str]]
) -> None:
    """What is served and in use stays, and a change that names what nothing defines waits for it."""
    before = tree_snapshot(base)
    target = tree_snapshot(tree, before)
    composed = compose(target, before, NO_HOLDS, RULES)

    assert (tree_of(tree_snapshot(served)), expected) == (tree_of(composed.snapshot), reasons(composed))
    assert (composed.snapshot is target) is (not expected)


@pytest.mark.parametrize(
    "rules",
    [HoldingRules(keeps_references=False), HoldingRules(is_static=lambda one: one == key("CDS:new"))],
    ids=["references are served as they are", "the bootstrap defines it"],
)
def test_names_that_need_not_be_defined(rules: HoldingRules) -> None:
    """Then the route moves at once."""
    before = tree_snapshot(OLD)

    assert ROUTES_FIRST == tree_of(compose(tree_snapshot(ROUTES_FIRST, before), before, NO_HOLDS, rules).snapshot)


def test_references_may_be_served_as_they_are() -> None:
    """With `--references warn`, what is removed goes whoever names it."""
    before, rules = tree_snapshot(OLD), HoldingRules(keeps_references=False)

    assert CLUSTERS_FIRST == tree_of(compose(tree_snapshot(CLUSTERS_FIRST, before), before, NO_HOLDS, rules).snapshot)


def test_a_first_tree_is_served_with_what_is_undefined() -> None:
    """Nothing was good before that could stay."""
    tree = tree_snapshot(ROUTES_FIRST)

    assert compose(tree, None, NO_HOLDS, RULES) == Composed(tree)


def test_what_another_server_may_define() -> None:
    """Of a type of which nothing is here, or of which some is served from elsewhere, nobody knows what exists."""
    base = {"CDS": {"a": "1"}, "LDS": {"l": "1"}}
    before = tree_snapshot(base)
    tree = tree_snapshot({**base, "LDS": {"l": "2 RDS:elsewhere"}}, before)
    assert not compose(tree, before, NO_HOLDS, RULES).holds

    mixed = {**base, "RDS": {"r": "1"}, "LDS": {"l": "1 RDS:elsewhere"}}
    before = tree_snapshot(mixed)
    tree = tree_snapshot({**mixed, "LDS": {"l": "2 RDS:other"}}, before)
    assert not compose(tree, before, NO_HOLDS, RULES).holds


def test_clusters_are_somebody_elses_where_nothing_here_has_any() -> None:
    """A tree of routes may name new ones, unless those of the bootstrap are known."""
    before = tree_snapshot({"RDS": {"r": "1 CDS:a"}})
    tree = tree_snapshot({"RDS": {"r": "2 CDS:b"}}, before)
    assert not compose(tree, before, NO_HOLDS, RULES).holds

    known = replace(RULES, is_static=lambda one: one == key("CDS:a"), knows_static=True)
    assert set(compose(tree, before, NO_HOLDS, known).holds) == {key("RDS:r")}


def test_secrets_of_a_server_of_their_own_are_not_held() -> None:
    """A listener whose secret is awaited of another server follows the tree; one whose secret has to be here is held."""
    served = {"SDS": {"s": "1"}, "LDS": {"l": "1"}}
    before = tree_snapshot(served)
    tree = tree_snapshot({**served, "LDS": {"l": "2 SDS:other"}}, before)
    assert not compose(tree, before, NO_HOLDS, RULES).holds

    listener = tree.resources(type_url("LDS"))["l"]
    (reference,) = listener.references
    here = replace(listener, version=Version("3"), references=(reference._replace(severity=Severity.ERROR),))
    rows = before.resources(type_url("LDS")).with_changes([here], ())
    tree = replace(tree, by_type={**tree.by_type, type_url("LDS"): rows})
    assert set(compose(tree, before, NO_HOLDS, RULES).holds) == {key("LDS:l")}


def test_what_would_move_to_a_rejected_resource_keeps_its_old_target() -> None:
    """The old one stays for it, and everything else of the change is served."""
    before = tree_snapshot(OLD)
    tree = tree_snapshot({**NEW, "CDS": {"new": "1", "other": "1"}, "SDS": {"s": "1"}}, before)
    composed = compose(tree, before, held_at(HoldReason.REJECTED, tree, "CDS:new"), RULES)

    expected = {**OLD, "CDS": {"old": "1", "other": "1"}, "SDS": {"s": "1"}}
    assert expected == tree_of(composed.snapshot)
    assert {
        "new": (HoldReason.REJECTED, None),
        "r": (DEPENDS, "new"),
        "old": (IN_USE, "r"),
    } == reasons(composed)


def test_what_names_a_rejected_resource_already_follows_the_tree() -> None:
    """It has a version that was good."""
    before = tree_snapshot(OLD)
    tree = tree_snapshot({**OLD, "CDS": {"old": "2"}, "RDS": {"r": "2 CDS:old"}}, before)
    composed = compose(tree, before, held_at(HoldReason.REJECTED, tree, "CDS:old", base=before), RULES)

    assert {**OLD, "RDS": {"r": "2 CDS:old"}} == tree_of(composed.snapshot)


def test_what_moved_to_a_resource_that_is_taken_back_moves_back() -> None:
    """To what it named before, which is there again for it."""
    good = tree_snapshot(OLD)
    reached = tree_snapshot(NEW, good)
    rejected = held_at(HoldReason.REJECTED, reached, "CDS:new")
    composed = compose(reached, reached, with_good(rejected, good), RULES)

    assert OLD == tree_of(composed.snapshot)


def test_what_moves_back_finds_endpoints_as_well() -> None:
    """What it named is there again with all that this names in turn, whoever had moved on from it."""
    old = {**OLD, "CDS": {"old": "1 EDS:old"}, "EDS": {"old": "1"}}
    good = tree_snapshot(old)
    reached = tree_snapshot(NEW, good)
    rejected = held_at(HoldReason.REJECTED, reached, "CDS:new")
    composed = compose(reached, reached, with_good(rejected, good), RULES)

    assert old == tree_of(composed.snapshot)


def test_a_removal_that_waits_keeps_what_does_not_need_what_is_taken_back() -> None:
    """A listener that stays until its removal is approved is the one before, if that of now names a rejected new cluster."""
    more = {f"l{number}": "1" for number in range(6)}
    old: Tree = {"CDS": {"old": "1"}, "LDS": {**more, "l": "1 CDS:old"}}
    new: Tree = {"CDS": {"new": "1"}, "LDS": {**more, "l": "2 CDS:new"}}
    good = tree_snapshot(old)
    reached = tree_snapshot(new, good)
    tree = tree_snapshot({"CDS": {"new": "1"}, "LDS": {"l0": "1"}}, reached)
    rejected = with_good(held_at(HoldReason.REJECTED, tree, "CDS:new"), good)
    composed = compose(tree, reached, rejected, RULES)

    assert old == tree_of(composed.snapshot)
    assert reasons(composed)["l"] == (HoldReason.REMOVAL, None)


def test_what_moved_to_another_version_does_not_move_back() -> None:
    """A version that was good takes the place of the one that is taken back."""
    good = tree_snapshot({**OLD, "CDS": {"old": "1", "new": "0"}})
    reached = tree_snapshot(NEW, good)
    rejected = held_at(HoldReason.REJECTED, reached, "CDS:new", base=good)
    composed = compose(reached, reached, with_good(rejected, good), RULES)

    assert {**NEW, "CDS": {"new": "0"}} == tree_of(composed.snapshot)


def test_what_is_pinned_is_served_with_what_it_names() -> None:
    """A route that was rolled back keeps the cluster that the tree has not any more; all else follows."""
    old, new = tree_snapshot(OLD), tree_snapshot(NEW)
    pinned = held_at(HoldReason.PINNED, new, "CDS:old", "CDS:new", "RDS:r", base=old)
    tree = tree_snapshot({**NEW, "SDS": {"s": "1"}}, new)
    composed = compose(tree, new, pinned, RULES)

    assert {**OLD, "SDS": {"s": "1"}} == tree_of(composed.snapshot)
    assert {one.reason for one in composed.holds.values()} == {HoldReason.PINNED}


def test_a_pin_to_nothing_takes_nothing_away_that_is_in_use() -> None:
    """What the rollback is to remove stays while a newer route names it."""
    base = {**NEW, "RDS": {"r": "2 CDS:new", "q": "1 CDS:new"}}
    before = tree_snapshot(base)
    composed = compose(before, before, held_at(HoldReason.PINNED, before, "CDS:new"), RULES)

    assert base == tree_of(composed.snapshot)
    assert composed.holds[key("CDS:new")].reason is IN_USE


MANY: Tree = {"CDS": dict.fromkeys("abcdef", "1"), "RDS": {name: f"1 CDS:{name}" for name in "abcdef"}, "SDS": {}}


def test_a_removal_of_much_waits_and_all_else_is_served() -> None:
    """What is removed stays, also what it names; a change beside it does not wait."""
    before = tree_snapshot(MANY)
    tree = tree_snapshot({"CDS": {"a": "2"}, "RDS": {"a": "2 CDS:a"}, "SDS": {"s": "1"}}, before)
    composed = compose(tree, before, NO_HOLDS, RULES)

    served = {"CDS": {**MANY["CDS"], "a": "2"}, "RDS": {**MANY["RDS"], "a": "2 CDS:a"}, "SDS": {"s": "1"}}
    assert served == tree_of(composed.snapshot)
    assert {(one.type_url, one.removed, one.before) for one in composed.removals} == {
        (type_url("CDS"), 5, 6),
        (type_url("RDS"), 5, 6),
    }
    assert {one.reason for one in composed.holds.values()} == {HoldReason.REMOVAL}

    assert composed.approval_id is not None
    rules = replace(RULES, approved=frozenset({composed.approval_id}))
    approved = compose(tree, before, NO_HOLDS, rules)
    assert (tree, (), None) == (approved.snapshot, approved.removals, approved.approval_id)
    assert not compose(tree, before, NO_HOLDS, replace(RULES, max_removal=None)).holds


def test_what_stays_because_of_its_users_is_no_removal() -> None:
    """The guard counts what would go."""
    base: Tree = {"CDS": dict.fromkeys("abcdef", "1"), "RDS": {"r": "1 CDS:a CDS:b CDS:c CDS:d"}}
    before = tree_snapshot(base)
    composed = compose(tree_snapshot({"RDS": base["RDS"]}, before), before, NO_HOLDS, RULES)

    assert composed.removals == ()
    assert list("abcd") == sorted(composed.snapshot.resources(type_url("CDS")))


def test_exchanged_names_are_served() -> None:
    """Of generated clusters that get new names, none waits for approval."""
    before = tree_snapshot({"CDS": {f"v1-{number}": "1" for number in range(150)}})
    tree = tree_snapshot({"CDS": {f"v2-{number}": "1" for number in range(150)}}, before)

    assert compose(tree, before, NO_HOLDS, RULES).snapshot is tree


@pytest.mark.parametrize("mark", ["withheld", "undeclared"])
def test_a_type_of_which_something_is_held_has_resources(mark: str) -> None:
    """So it is neither withheld nor undeclared, and an author's version is for what the tree has."""
    before = tree_snapshot(OLD)
    tree = replace(
        marked(tree_snapshot({**OLD, "CDS": {}}, before), mark, "CDS", "SDS"), authored={type_url("CDS"): "7"}
    )
    served = compose(tree, before, NO_HOLDS, RULES).snapshot

    assert ({type_url("SDS")}, {}) == (getattr(served, mark), served.authored)


@pytest.mark.parametrize("mark", ["withheld", "undeclared"])
def test_a_type_of_which_all_is_held_is_what_it_was(mark: str) -> None:
    """The first routes of a tree, which nobody is served: clients that hold some of another server are not told to drop them."""
    before = marked(tree_snapshot({"CDS": {"old": "1"}}), mark, "RDS", "SDS")
    tree = marked(tree_snapshot({"CDS": {"old": "1"}, "RDS": {"r": "1 CDS:new"}}, before), mark, "SDS")
    served = compose(tree, before, NO_HOLDS, RULES).snapshot

    assert getattr(served, mark) == {type_url("RDS"), type_url("SDS")}


def test_removals_have_names() -> None:
    """So that each can be looked up."""
    before = tree_snapshot(MANY)
    (removal,) = compose(tree_snapshot({**MANY, "RDS": {}}, before), before, NO_HOLDS, RULES).removals

    assert removal == Removal(type_url("RDS"), 6, 6, frozenset((type_url("RDS"), name) for name in "abcdef"))


def test_many_undefined_names_cost_little_more_than_one() -> None:
    """Listeners that were saved before their routes are each looked up once, and not each in all that is served."""

    def spent_s(count: int) -> float:
        names = [str(number) for number in range(3000)]
        base: Tree = {"RDS": dict.fromkeys(names, "1"), "LDS": {name: f"1 RDS:{name}" for name in names}}
        before = tree_snapshot(base)
        more = {f"new {number}": f"1 RDS:none{number}" for number in range(count)}
        tree = tree_snapshot({**base, "LDS": {**base["LDS"], **more}}, before)
        compose(tree, before, NO_HOLDS, RULES)
        began_s = process_time()
        composed = compose(tree, before, NO_HOLDS, RULES)
        assert len(composed.holds) == count
        return process_time() - began_s

    one_s = min(spent_s(1) for _ in range(3))

    assert min(spent_s(100) for _ in range(3)) < 15 * one_s
