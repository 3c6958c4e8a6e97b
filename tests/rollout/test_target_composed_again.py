"""An edit that has no part in what is held holds the same as before; `compose` would say the same."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from fsxds.model.resources import Snapshot
from fsxds.rollout.holding import NO_HOLDS, Composed, HoldingRules, compose
from fsxds.rollout.target import composed_again
from tests.support.rollouts import Tree, marked, tree_of, tree_snapshot

RULES = HoldingRules(max_removal=0.5)
CLUSTERS = dict.fromkeys("abcdef", "1")
BEFORE: Tree = {
    "CDS": CLUSTERS,
    "RDS": {"r": "1 CDS:a", "s": "1 CDS:f"},
    "LDS": {"l": "1 @80", "m": "1 @81"},
    "LCDS": {"c": "1"},
}
# Five of six clusters go, which waits for approval; the sixth is in use.
REMOVED: Tree = {**BEFORE, "CDS": {"a": "1"}}

SEEDS = 300


def composed_after(before: Composed, tree: Snapshot, base: Snapshot) -> Composed:
    """Return what is served of a tree after another one, as the target of a channel does."""
    return composed_again(before, tree, base, RULES) or compose(tree, base, NO_HOLDS, RULES)


def held_twice() -> tuple[Snapshot, Composed]:
    """Return a tree of which a removal waits that was composed on top of what is served of it."""
    base = tree_snapshot(BEFORE)
    tree = tree_snapshot(REMOVED, base)
    return tree, compose(tree, compose(tree, base, NO_HOLDS, RULES).snapshot, NO_HOLDS, RULES)


@pytest.mark.parametrize(
    ("edit", "is_apart"),
    [
        pytest.param({"CDS": {"a": "2"}}, True, id="content"),
        pytest.param({"RDS": {"r": "2 CDS:a", "s": "1 CDS:f"}}, True, id="content of a user"),
        pytest.param({"RDS": {"r": "2 CDS:b", "s": "1 CDS:f"}}, False, id="another name"),
        pytest.param({"RDS": {"r": "1 CDS:a"}}, False, id="a removal"),
        pytest.param({"EDS": {"a": "1"}}, False, id="a new resource"),
        pytest.param({"CDS": {"a": "1", "b": "2"}}, False, id="of what is held"),
        pytest.param({"LCDS": {"c": "2"}}, False, id="a list, of which the guard counts the entries"),
        pytest.param({"LDS": {"l": "1 @82", "m": "1 @81"}}, False, id="another claim"),
    ],
)
def test_which_edits_have_no_part_in_what_is_held(edit: Tree, is_apart: bool) -> None:
    """Of these, what was held is held without another look; of all, the same is served as after a look."""
    tree, held = held_twice()
    edited: Tree = {**REMOVED, **edit}
    found = composed_after(held, tree_snapshot(edited, tree), held.snapshot)

    assert (found.holds is held.holds) is is_apart
    assert found == compose(tree_snapshot(edited, tree), held.snapshot, NO_HOLDS, RULES)


def test_what_is_held_is_worked_out_anew_by_other_rules() -> None:
    """Also if these say the same: names that the bootstrap defines are known by a function."""
    tree, held = held_twice()

    assert composed_again(held, tree, held.snapshot, RULES) == held
    assert composed_again(held, tree, held.snapshot, HoldingRules(max_removal=0.5)) is None


def test_what_is_held_is_worked_out_anew_when_it_was_another_version() -> None:
    """What was reached meanwhile is what stays, whatever was kept before."""
    tree, held = held_twice()
    reached = tree_snapshot({**BEFORE, "CDS": {**CLUSTERS, "b": "2"}}, held.snapshot)
    found = composed_after(held, tree, reached)

    assert {**CLUSTERS, "b": "2"} == tree_of(found.snapshot)["CDS"]


@pytest.mark.parametrize("mark", ["withheld", "undeclared"])
def test_what_is_held_is_worked_out_anew_when_files_are_no_longer_known(mark: str) -> None:
    """What a type lacks by mistake is known of each tree by itself."""
    tree, held = held_twice()
    unknown = marked(tree, mark, "EDS")
    found = composed_after(held, unknown, held.snapshot)

    assert found == compose(unknown, held.snapshot, NO_HOLDS, RULES)
    assert found.holds is not held.holds


def random_trees(number: random.Random) -> Iterator[Tree]:
    """Yield trees of few resources, each of which differs a little from the one before."""
    tree: dict[str, dict[str, str]] = {"CDS": {}, "RDS": {}, "LDS": {}}
    for _ in range(12):
        for _ in range(number.choice((1, 1, 1, 3, 8))):
            short_name = number.choice(("CDS", "CDS", "RDS", "LDS"))
            name = number.choice("abcdefgh")
            if number.random() < 0.3:
                tree[short_name].pop(name, None)
                continue
            words = [number.choice("12")]
            if short_name == "RDS" and number.random() < 0.8:
                words.append(f"CDS:{number.choice('abcdefgh')}")
            if short_name == "LDS":
                words += [f"RDS:{number.choice('abcd')}", f"@{number.choice('12345678')}"]
            tree[short_name][name] = " ".join(words)
        yield {short_name: dict(each) for short_name, each in tree.items()}


@pytest.mark.parametrize("part", range(3))
def test_a_memory_of_what_was_held_makes_no_difference(part: int) -> None:
    """In random histories, of which each tree is reached, or only later ones."""
    used = 0
    for seed in range(part * SEEDS, (part + 1) * SEEDS):
        number = random.Random(seed)
        tree = base = tree_snapshot({})
        before: Composed | None = None
        for asked in random_trees(number):
            tree = tree_snapshot(asked, tree)
            anew = compose(tree, base, NO_HOLDS, RULES)
            found = anew if before is None else composed_after(before, tree, base)
            assert found == anew, seed
            assert tree_of(found.snapshot) == tree_of(anew.snapshot), seed
            used += before is not None and bool(found.holds) and found.holds is before.holds
            before = found
            if number.random() < 0.8:
                base = found.snapshot

    assert used > SEEDS / 10
