"""What nodes bring along from another view, and was held for them there."""

from __future__ import annotations

import pytest

from fsxds.model.resources import Snapshot
from fsxds.rollout.holding import HoldingRules, HoldReason
from fsxds.rollout.target import Target
from tests.support.mentions import load_mentions
from tests.support.snapshots import type_url

CDS, RDS = type_url("CDS"), type_url("RDS")


def tree(text: str) -> Snapshot:
    """Return what a file with these resources holds."""
    return load_mentions({"a": text}).snapshot


def held_in(asked: Snapshot, base: Snapshot | None, before: Target | None = None) -> Target:
    """Return what a channel is to serve of a tree, beginning with what another one holds."""
    target = Target()
    if before is not None:
        target.begin_with(before)
    target.receive_tree(asked)
    target.compose(base, (), HoldingRules())
    return target


def served(target: Target) -> tuple[list[str], list[str]]:
    """Return the clusters that are to be served, and what is held and why."""
    assert target.composed is not None
    held = [f"{name}: {hold.reason.value}" for (_, name), hold in sorted(target.holds.items())]
    return list(target.composed.snapshot.resources(CDS)), held


@pytest.fixture
def in_use() -> Target:
    """A view in which a cluster was removed that a route still names."""
    return held_in(tree("CDS d\nRDS r CDS:c"), tree("CDS c\nCDS d\nRDS r CDS:c"))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("CDS d\nCDS e\nRDS r CDS:c", (["c", "d", "e"], ["c: in use"])),
        # Nothing names it there.
        ("CDS d\nRDS r CDS:d", (["d"], [])),
        # It is there.
        ("CDS c\nCDS d\nRDS r CDS:c", (["c", "d"], [])),
    ],
)
def test_a_removed_cluster_in_use(in_use: Target, asked: str, expected: tuple[list[str], list[str]]) -> None:
    """It stays in the other view as long as something names it there, and nothing has its name."""
    assert served(in_use) == (["c", "d"], ["c: in use"])
    assert served(held_in(tree(asked), None, in_use)) == expected


def test_a_route_to_an_undefined_cluster() -> None:
    """It keeps its target until the other view defines the new one."""
    held = held_in(tree("CDS c\nRDS r CDS:new"), tree("CDS c\nRDS r CDS:c"))
    assert served(held)[1] == ["r: names an undefined resource"]

    assert served(held_in(tree("CDS c\nCDS e\nRDS r CDS:new"), None, held))[1] == ["r: names an undefined resource"]
    assert served(held_in(tree("CDS c\nCDS new\nRDS r CDS:new"), None, held))[1] == []


def test_a_removal_that_waits_for_approval() -> None:
    """It waits in the other view, too; what that view never had is no removal."""
    many = "".join(f"CDS c{number}\n" for number in range(6))
    held = held_in(tree("CDS c0"), tree(many))

    assert served(held_in(tree("CDS c0"), None, held))[0] == [f"c{number}" for number in range(6)]
    assert held_in(tree("CDS c0\nCDS x"), None, held_in(tree(many), tree(many))).holds == {}


def test_all_else_is_served_as_at_a_first_start() -> None:
    """What another view names and nobody defines is no obstacle: nothing of it was held before."""
    assert served(held_in(tree("CDS d\nRDS other CDS:static"), None, held_in(tree("CDS d"), tree("CDS d")))) == (
        ["d"],
        [],
    )


def test_what_is_served_already_is_not_mixed_with_it(in_use: Target) -> None:
    """A channel that serves something goes on from there, whoever joins it."""
    target = held_in(tree("CDS d\nRDS r CDS:c"), None)
    target.begin_with(in_use)
    target.compose(tree("CDS d\nRDS r CDS:c"), (), HoldingRules())

    assert served(target) == (["d"], [])
    assert HoldReason.IN_USE in {hold.reason for hold in in_use.holds.values()}
