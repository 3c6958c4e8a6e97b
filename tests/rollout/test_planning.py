"""Which steps lead from what is served to a target."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from fsxds.model.resources import Snapshot
from fsxds.rollout import planning
from fsxds.rollout.planning import whole_step
from fsxds.rollout.step import Step, StepKind
from tests.support.rollouts import Tree, marked, tree_of, tree_snapshot
from tests.support.snapshots import type_url

OLD: Tree = {"CDS": {"old": "1"}, "RDS": {"r": "1 CDS:old"}, "LDS": {"l": "1 RDS:r"}}


def steps_between(old: Tree, new: Tree) -> list[Step]:
    """Return all steps from one tree to another, as if each were taken at once."""
    served = tree_snapshot(old)
    return steps_to(served, tree_snapshot(new, served))


def steps_to(served: Snapshot, target: Snapshot) -> list[Step]:
    """Return all steps from what is served to a target; nothing lingers that did not before."""
    planned = [*islice(planning.steps_between(served, target), 4)]
    assert len(planned) < 4, "a plan has three steps at most"
    assert [one.is_last for one in planned[:-1]] == [False] * (len(planned) - 1)
    assert all(one.is_last for one in planned[-1:])
    return [one.step for one in planned]


def story(steps: list[Step]) -> list[tuple[str, dict[str, dict[str, str]]]]:
    """Return what steps do, and what they serve."""
    return [(step.step_kind.value, tree_of(step.snapshot)) for step in steps]


def kinds(steps: list[Step]) -> list[str]:
    """Return what steps do."""
    return [step.step_kind.value for step in steps]


def test_a_route_that_moves_takes_three_steps() -> None:
    """The new cluster comes before the route moves, the old one goes after it."""
    new = {"CDS": {"new": "1"}, "RDS": {"r": "2 CDS:new"}, "LDS": {"l": "1 RDS:r"}}

    expected = [
        ("grow", {**OLD, "CDS": {"new": "1", "old": "1"}}),
        ("switch", {**new, "CDS": {"new": "1", "old": "1"}}),
        ("shrink", new),
    ]
    assert expected == story(steps_between(OLD, new))


def test_what_is_used_and_only_added_needs_no_shrink() -> None:
    """Without a removal, the second step is the last."""
    new = {"CDS": {"new": "1", "old": "1"}, "RDS": {"r": "2 CDS:new"}, "LDS": {"l": "1 RDS:r"}}

    assert ["grow", "switch"] == kinds(steps_between(OLD, new))


def test_what_is_only_removed_needs_no_grow() -> None:
    """Where nothing is added or changed that is used, users switch at once."""
    old = {**OLD, "CDS": {"new": "1", "old": "1"}}
    new = {"CDS": {"new": "1"}, "RDS": {"r": "2 CDS:new"}, "LDS": {"l": "1 RDS:r"}}

    assert ["switch", "shrink"] == kinds(steps_between(old, new))


def test_users_alone_change_in_one_step() -> None:
    """Listeners and routes that change together need no order, and the target is served as it is."""
    served = tree_snapshot(OLD)
    target = tree_snapshot({**OLD, "RDS": {"q": "1 CDS:old"}, "LDS": {"l": "2 RDS:q"}}, served)

    (step,) = steps_to(served, target)

    assert (StepKind.WHOLE, True) == (step.step_kind, step.snapshot is target)


def test_what_is_used_alone_changes_in_one_step() -> None:
    """A cluster that comes, one that changes and one that goes, of which no changed one knew, need no order."""
    old = {"CDS": {"a": "1", "b": "1 EDS:b"}, "EDS": {"b": "1"}}
    new = {"CDS": {"b": "2 EDS:b", "c": "1"}, "EDS": {"b": "2"}}

    assert ["whole"] == kinds(steps_between(old, new))


def test_endpoints_go_after_the_cluster_that_had_them() -> None:
    """A cluster that has its endpoints in itself now lets go of the others first."""
    old = {"CDS": {"a": "1 EDS:a"}, "EDS": {"a": "1"}}
    new = {"CDS": {"a": "2"}}

    assert [("grow", {**new, "EDS": {"a": "1"}}), ("shrink", new)] == story(steps_between(old, new))


def test_an_equal_target_needs_no_step() -> None:
    """Nothing is served again because it was loaded again."""
    assert [] == steps_between(OLD, OLD)


def test_the_first_target_is_one_step() -> None:
    """Where nothing was served, everything comes at once."""
    target = tree_snapshot(OLD)

    step = whole_step(None, target)

    assert step is not None
    assert (StepKind.WHOLE, True) == (step.step_kind, step.snapshot is target)
    assert {"old"} == step.changed[type_url("CDS")].fresh


def test_a_step_names_the_endpoints_that_its_clusters_need() -> None:
    """Those that exist, of clusters that are new or changed."""
    old = {"CDS": {"a": "1 EDS:a", "b": "1 EDS:b"}, "EDS": {"a": "1", "b": "1"}}
    new = {
        "CDS": {"a": "1 EDS:a", "b": "2 EDS:b", "c": "1 EDS:c", "d": "1 EDS:d"},
        "EDS": {"a": "2", "b": "1", "c": "1"},
    }

    (step,) = steps_between(old, new)

    assert {"b", "c"} == step.endpoints


def test_each_step_says_what_it_changes() -> None:
    """Only types that differ from what was served before, and each by name."""
    new = {"CDS": {"new": "1"}, "RDS": {"r": "2 CDS:new"}, "LDS": {"l": "1 RDS:r"}}

    steps = steps_between(OLD, new)

    assert [{type_url("CDS")}, {type_url("RDS")}, {type_url("CDS")}] == [set(step.changed) for step in steps]
    assert [{"new"}, {"r"}] == [next(iter(step.changed.values())).fresh for step in steps[:2]]
    assert {"old"} == steps[2].changed[type_url("CDS")].removed


def test_steps_share_what_does_not_change() -> None:
    """Rows of a type are those of what is served or of the target, where they are not of both."""
    served = tree_snapshot({**OLD, "SDS": {"s": "1"}})
    target = tree_snapshot(
        {"CDS": {"new": "1"}, "RDS": {"r": "2 CDS:new"}, "LDS": {"l": "1 RDS:r"}, "SDS": {"s": "1"}}, served
    )

    grow, switch, shrink = (step.snapshot.by_type for step in steps_to(served, target))

    cds, rds, lds, sds = map(type_url, ("CDS", "RDS", "LDS", "SDS"))
    assert grow[rds] is served.by_type[rds]
    assert switch[rds] is target.by_type[rds]
    assert grow[cds] is switch[cds]
    assert shrink == target.by_type
    assert all(rows[sds] is target.by_type[sds] and rows[lds] is target.by_type[lds] for rows in (grow, switch, shrink))


def test_the_version_of_an_author_is_that_of_what_it_was_written_for() -> None:
    """While there are old and new clusters, no author has a version for both."""
    served = replace(tree_snapshot(OLD), authored={type_url("CDS"): "c1", type_url("RDS"): "r1", type_url("LDS"): "l1"})
    new = {"CDS": {"new": "1"}, "RDS": {"r": "2 CDS:new"}, "LDS": {"l": "1 RDS:r"}}
    authored = {type_url("CDS"): "c2", type_url("RDS"): "r2", type_url("LDS"): "l1"}
    target = replace(tree_snapshot(new, served), authored=authored)

    found = [dict(step.snapshot.authored) for step in steps_to(served, target)]

    grown = {type_url("RDS"): "r1", type_url("LDS"): "l1"}
    assert [grown, {type_url("RDS"): "r2", type_url("LDS"): "l1"}, authored] == found


def test_a_version_of_an_author_alone_is_a_step() -> None:
    """It is served, and nobody has to take it."""
    served = tree_snapshot(OLD)
    target = replace(tree_snapshot(OLD, served), authored={type_url("CDS"): "2"})

    (step,) = steps_to(served, target)

    assert (True, {}) == (step.snapshot is target, step.changed)
    assert whole_step(served, target) is not None
    assert whole_step(target, target) is None


def test_a_redirect_without_a_target_alone_is_a_step() -> None:
    """It is served, and nobody has to take it."""
    served = tree_snapshot(OLD)
    redirect = replace(next(iter(served.resources(type_url("CDS")).values())), name="away", redirect="xdstp://b/c/new")
    target = replace(tree_snapshot(OLD, served), unresolved={(type_url("CDS"), "away"): redirect})

    (step,) = steps_to(served, target)

    assert (True, {}) == (step.snapshot is target, step.changed)


@pytest.mark.parametrize("mark", ["incomplete", "withheld", "undeclared"])
def test_no_step_says_of_a_type_what_its_rows_do_not_bear_out(mark: str) -> None:
    """Users that are served as they were are as certain as they were; types that have resources lack none for certain."""
    served = marked(tree_snapshot(OLD), mark, "ECDS")
    new = {"CDS": {"new": "1"}, "RDS": {"r": "2 CDS:new"}, "ECDS": {"x": "1"}, "LDS": {"l": "1 RDS:r"}}
    target = marked(tree_snapshot(new, served), mark, "SDS")

    grow, switch, shrink = steps_to(served, target)

    assert {type_url("ECDS"), type_url("SDS")} == getattr(grow.snapshot, mark)
    assert {type_url("SDS")} == getattr(switch.snapshot, mark) == getattr(shrink.snapshot, mark)
    # A file broke before the process began, and of the old clusters one is served on.
    target = marked(tree_snapshot({"LDS": {"l": "2"}}, served), mark, "CDS")
    switched = steps_to(served, target)[0].snapshot
    assert (type_url("CDS") in getattr(switched, mark)) is (mark == "incomplete")
