from __future__ import annotations

from pathlib import PurePosixPath

from fsxds.model.tree_trust import nothing_of
from fsxds.model.values import Problem, SourceTree
from fsxds.server.reload import TreeTrust
from tests.support.trees import tree_of

FAULT = Problem.of_file(PurePosixPath("cds.yaml"), "bad-tree", "it is bad", "make it good")


class Distrusting:
    """Finds fault with trees of more than one file."""

    def faults(self, tree: SourceTree, now_s: float) -> tuple[Problem, ...]:
        """Return one, or none."""
        assert now_s == 7.0
        return (FAULT,) if len(tree.files) > 1 else ()


def test_what_was_trusted_last_stays() -> None:
    """A tree with a fault is not loaded; the next one without is."""
    trust, good, bad = TreeTrust(), tree_of({"a.yaml": ""}), tree_of({"a.yaml": "", "b/c.yaml": ""})
    found = [trust.decide(tree, Distrusting(), 7.0) for tree in (good, bad, good)]

    assert [one.tree for one in found] == [good, good, good]
    assert [one.faults for one in found] == [(), (FAULT,), ()]


def test_nothing_was_trusted_before() -> None:
    """Then all that may be in the tree counts as unknown: the folders as well, where they are layers."""
    bad = tree_of({"a.yaml": "", "b/c.yaml": ""})
    decision = TreeTrust().decide(bad, Distrusting(), 7.0, has_layers=True)

    assert (decision.tree, decision.has_last_good) == (nothing_of(bad, (FAULT,), has_layers=True), False)
    assert [str(one.path) for one in decision.tree.problems] == [".fsxds-manifest", "b", "cds.yaml"]


def test_without_a_judge_each_tree_is_trusted() -> None:
    """Its manifest is offered to relays all the same, if it has one."""
    trust, tree = TreeTrust(), tree_of({"a.yaml": ""})

    assert trust.offered == ()
    assert trust.decide(tree, None, 0.0).tree is tree
    assert trust.offered == tree.signed.offered == ()
