"""What stays after a restart although the tree does not show it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsxds.rollout.target import Restored
from tests.support.rollouts import Tree, marked, tree_of, tree_snapshot
from tests.support.snapshots import type_url

CDS, LDS = type_url("CDS"), type_url("LDS")
BEFORE: Tree = {"CDS": {"a": "1", "b": "1"}, "LDS": {"l": "1"}}
NOW: Tree = {"CDS": {"a": "2"}}


@pytest.mark.parametrize("mark", ["incomplete", "withheld", "undeclared"])
def test_what_may_be_missing_by_mistake_stays(mark: str) -> None:
    """Of an uncertain type, what the target does not have; it has resources then, so it is neither withheld nor undeclared."""
    target = replace(marked(tree_snapshot(NOW), mark, "CDS"), authored={CDS: "1"})

    complete = Restored(tree_snapshot(BEFORE)).complete(target)

    assert {"CDS": {"a": "2", "b": "1"}} == tree_of(complete)
    assert (CDS in getattr(complete, mark), complete.authored) == (mark == "incomplete", {})


def test_what_is_certain_goes() -> None:
    """The target is served as it is."""
    target = tree_snapshot(NOW)

    assert target is Restored(tree_snapshot(BEFORE)).complete(target)
    assert target is Restored().complete(target)


def test_what_was_there_or_certain_once_is_forgotten() -> None:
    """From then on the target alone counts."""
    restored = Restored(tree_snapshot(BEFORE))
    restored.complete(replace(tree_snapshot(NOW), incomplete=frozenset((CDS,))))

    later = restored.complete(replace(tree_snapshot({}), incomplete=frozenset((CDS, LDS)), authored={LDS: "1"}))
    last = restored.complete(tree_snapshot({}))

    assert ({"CDS": {"b": "1"}}, {LDS: "1"}, {}) == (tree_of(later), later.authored, tree_of(last))
    assert {} == tree_of(restored.complete(replace(tree_snapshot({}), incomplete=frozenset((CDS,)))))


def test_what_a_redirect_stood_for_stays_while_it_leads_nowhere() -> None:
    """Of a type that is certain, this name alone; it goes when the redirect does."""
    restored = Restored(tree_snapshot(BEFORE))
    unresolved = {(CDS, "b"): tree_snapshot(BEFORE).resources(CDS)["b"]}

    complete = restored.complete(replace(tree_snapshot({}), unresolved=unresolved))

    assert {"CDS": {"b": "1"}} == tree_of(complete)
    assert {} == tree_of(restored.complete(tree_snapshot({})))
