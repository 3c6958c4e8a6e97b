"""Which targets somebody has to approve."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rpds import HashTrieSet

from fsxds.rollout.guard import Removal, removals_to_approve
from tests.support.rollouts import Tree, tree_snapshot
from tests.support.snapshots import type_url

SIX: Tree = {"CDS": dict.fromkeys("abcdef", "1"), "EDS": dict.fromkeys("abcd", "1")}


@pytest.mark.parametrize(
    ("left", "max_removal", "removed"),
    [
        ("abcdef", 0.5, None),
        ("abc", 0.5, None),
        ("ab", 0.5, 4),
        ("abcde", 0.0, 1),
        ("a", 1.0, None),
        ("", 1.0, 6),
        ("", None, None),
        ("xyzabc", 0.5, None),
        ("uvwxyz", 0.5, 6),
    ],
)
def test_a_large_share_of_a_type_is_held(left: str, max_removal: float | None, removed: int | None) -> None:
    """More than the share, or all of it; what comes in its place does not count."""
    before = tree_snapshot(SIX)
    target = tree_snapshot({**SIX, "CDS": dict.fromkeys(left, "1")}, before)

    expected = () if removed is None else (Removal(type_url("CDS"), removed, 6),)
    assert expected == removals_to_approve(before, target, max_removal)


def test_few_resources_are_never_held() -> None:
    """Of four, one is a quarter."""
    before = tree_snapshot(SIX)

    assert () == removals_to_approve(before, tree_snapshot({**SIX, "EDS": {}}, before), 0.0)


def test_changed_resources_do_not_count() -> None:
    """They are there still."""
    before = tree_snapshot(SIX)

    assert () == removals_to_approve(before, tree_snapshot({**SIX, "CDS": dict.fromkeys("abcdef", "2")}, before), 0.0)


def test_what_was_let_go_does_not_count() -> None:
    """No upstream removed it: nobody asks for it any more, or its time is over."""
    before = tree_snapshot(SIX)
    target = tree_snapshot({**SIX, "CDS": {"a": "1"}}, before)

    gone = replace(target, let_go={type_url("CDS"): (HashTrieSet("bc"), HashTrieSet("def"))})
    assert () == removals_to_approve(before, gone, 0.0)
    half = replace(target, let_go={type_url("CDS"): (HashTrieSet("bc"),)})
    assert (Removal(type_url("CDS"), 3, 6),) == removals_to_approve(before, half, 0.0)
