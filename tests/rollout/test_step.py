"""What one step changes, and which steps need no order between them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsxds.model.resources import RowsChange, snapshot_id
from tests.support.rollouts import Tree, tree_snapshot
from tests.support.snapshots import type_url
from tests.support.steps import step_between

BASE: Tree = {"CDS": {"a": "1"}, "EDS": {"e": "1"}, "RDS": {"r": "1"}, "LDS": {"l": "1"}}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param({"EDS": {"e": "2"}}, {"EDS": {"e": "3"}}, True, id="what is used changes twice"),
        pytest.param({"CDS": {"a": "2"}}, {"EDS": {"e": "2", "f": "1"}}, True, id="what is used comes"),
        pytest.param({"RDS": {"r": "2"}}, {"LDS": {}}, True, id="users, which may go"),
        pytest.param({"CDS": {"a": "2"}}, {"RDS": {"r": "2"}}, False, id="users after what they use"),
        pytest.param({"RDS": {"r": "2"}}, {"CDS": {"a": "2"}}, False, id="what is used after its users"),
        pytest.param({"EDS": {"e": "2"}}, {"EDS": {}}, False, id="what is used goes"),
        pytest.param({"EDS": {}}, {"CDS": {"a": "2"}}, False, id="what is used went"),
    ],
)
def test_steps_between_which_no_order_counts(first: Tree, second: Tree, *, expected: bool) -> None:
    """Both change users alone, or add and change what is used alone."""
    base = tree_snapshot(BASE)
    one = tree_snapshot({**BASE, **first}, base)
    two = tree_snapshot({**BASE, **first, **second}, one)

    assert step_between(base, one).needs_no_order_with(step_between(one, two)) is expected


def test_clusters_that_wait_for_endpoints_are_waited_for_by_themselves() -> None:
    """A client may poll these only when it has taken the clusters."""
    base = tree_snapshot(BASE)
    one = tree_snapshot({**BASE, "CDS": {"a": "2"}}, base)
    two = tree_snapshot({**BASE, "CDS": {"a": "3"}}, one)

    assert not step_between(base, one, ["e"]).needs_no_order_with(step_between(one, two))


def test_steps_that_are_joined_have_the_names_of_both() -> None:
    """What came and went is gone, what went and came is there, and what changed back is among them."""
    base = tree_snapshot({"EDS": {"stays": "1", "goes": "1", "comes back": "1", "changes back": "1"}})
    one = tree_snapshot({"EDS": {"stays": "1", "goes": "2", "changes back": "2", "passes": "1"}}, base)
    two = tree_snapshot({"EDS": {"stays": "1", "comes back": "1", "changes back": "1"}, "CDS": {"a": "1"}}, one)
    joined = step_between(base, one).joined_with(step_between(one, two))

    endpoints = joined.changed[type_url("EDS")]
    assert endpoints.fresh == {"comes back", "changes back"}
    assert endpoints.removed == {"goes", "passes"}
    assert joined.changed[type_url("CDS")].fresh == {"a"}
    assert joined.snapshot is two


def test_times_to_live_that_are_renewed_are_joined() -> None:
    """A resource that goes has none."""
    base = tree_snapshot(BASE)
    step = step_between(base, tree_snapshot({**BASE, "CDS": {"a": "2"}}, base))
    url = type_url("EDS")
    earlier, later = (
        replace(step, changed={url: RowsChange(renewed=frozenset(renewed), removed=frozenset(removed))})
        for renewed, removed in (("ag", ""), ("b", "g"))
    )

    assert {"a", "b"} == earlier.joined_with(later).changed[url].renewed


def test_equal_content_has_one_id() -> None:
    """It has 12 digits, and other content has another one."""
    one, same, other = tree_snapshot(BASE), tree_snapshot(BASE), tree_snapshot({**BASE, "CDS": {"a": "2"}})

    assert snapshot_id(one) == snapshot_id(same) != snapshot_id(other)
    assert 12 == len(snapshot_id(one))
