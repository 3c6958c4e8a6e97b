"""Which removals wait for approval."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf import text_format
from rpds import HashTrieSet

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Resource, Snapshot, version_of_body
from fsxds.rollout.holding import COLLECTIONS, Removal, approval_id, removals_to_approve
from tests.support.polls import ORIGIN, envoy_catalogue, snapshot_of
from tests.support.rollouts import Tree, tree_snapshot
from tests.support.snapshots import type_url

CDS = type_url("CDS")

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
        ("uvwxyz", 0.5, None),
        ("uv", 0.5, 6),
    ],
)
def test_a_type_that_shrinks_much_is_held(left: str, max_removal: float | None, removed: int | None) -> None:
    """By more than the share, or to nothing; names that were exchanged do not count. All that goes is said."""
    before = tree_snapshot(SIX)
    target = tree_snapshot({**SIX, "CDS": dict.fromkeys(left, "1")}, before)

    gone = frozenset((CDS, name) for name in "abcdef" if name not in left)
    expected = () if removed is None else (Removal(CDS, removed, 6, gone),)
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

    gone = replace(target, released={type_url("CDS"): (HashTrieSet("bc"), HashTrieSet("def"))})
    assert () == removals_to_approve(before, gone, 0.0)
    half = replace(target, released={type_url("CDS"): (HashTrieSet("bc"),)})
    left = frozenset((CDS, name) for name in "def")
    assert (Removal(CDS, 3, 6, left),) == removals_to_approve(before, half, 0.0)


def collection(entries: int) -> Snapshot:
    """Return the snapshot of a list collection with so many entries."""
    listed = "".join(f'entries {{inline_entry {{name: "listener number {number}"}}}}' for number in range(entries))
    message: Any = envoy_catalogue().message_class("envoy.config.listener.v3.ListenerCollection")()
    text_format.Parse(listed, message, descriptor_pool=envoy_catalogue().pool)
    row = BY_SHORT_NAME["lcds"]
    body = message.SerializeToString(deterministic=True)
    return snapshot_of(1, Resource(row.type_url, "all", body, version_of_body(row.type_url, body), ORIGIN))


@pytest.mark.parametrize(
    ("before", "after", "removed"),
    [(10, 4, 6), (10, 5, None), (10, 0, 10), (10, 12, None), (4, 0, None), (200, 90, 110)],
)
def test_a_list_collection_that_shrinks_much_is_held(before: int, after: int, removed: int | None) -> None:
    """It is one resource, which changes, whatever becomes of the listeners in it."""
    expected = () if removed is None else (Removal(COLLECTIONS, removed, before, frozenset({(COLLECTIONS, "all")})),)

    assert expected == removals_to_approve(collection(before), collection(after), 0.5)


def test_an_approval_is_for_a_removal_whatever_else_changes() -> None:
    """Equal removals have one id, and other names, or another number of entries, have another one."""
    before = tree_snapshot(SIX)

    def approved(tree: Tree) -> str:
        return approval_id(removals_to_approve(before, tree_snapshot(tree, before), 0.5))

    one = approved({**SIX, "CDS": {"a": "1", "b": "1"}})
    assert one == approved({"CDS": {"a": "2", "b": "1"}, "EDS": {}, "SDS": {"s": "1"}})
    assert one != approved({**SIX, "CDS": {"a": "1", "c": "1"}})
    half, none = (approval_id(removals_to_approve(collection(10), collection(left), 0.5)) for left in (4, 0))
    assert half != none
    assert len(one) == len(half) == 12
