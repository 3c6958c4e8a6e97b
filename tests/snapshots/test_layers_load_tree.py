"""Which file is in which layer, as files and folders come and go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.values import Problem, Severity, SourceFile, SourceTree
from fsxds.runtime.views import Views
from fsxds.snapshots.layers_load import NO_LAYER, LayeredTree
from tests.support.trees import tree_of
from tests.support.views import rules_of

NAMES = frozenset({"a", "a/b", "a/b/c", "d"})
PATHS = st.sampled_from(["a/x", "a/y", "a/b/x", "a/b/c/x", "a/bc/x", "d/e/x", "x", "e/x", "a/b/c/d/x"])
STEPS = st.lists(
    st.tuples(st.dictionaries(PATHS, st.one_of(st.none(), st.integers(0, 2)), max_size=3), st.sets(PATHS, max_size=1)),
    min_size=1,
    max_size=6,
)
RULES = rules_of(*NAMES)


def test_innermost_layer() -> None:
    """A file is in the innermost folder that is a layer, by whole names of folders."""
    tree = LayeredTree.of(tree_of(dict.fromkeys(("a/x", "a/b/x", "a/b/c/d/x", "a/bc/x", "e/x", "x"), "")), RULES, None)

    assert tree.folders == {"a", "a/b", "a/b/c", "a/b/c/d", "a/bc", "e"}
    assert {name: [str(file.path) for file in source.files] for name, source in tree.by_layer.items()} == {
        "a": ["a/bc/x", "a/x"],
        "a/b": ["a/b/x"],
        "a/b/c": ["a/b/c/d/x"],
        NO_LAYER: ["e/x", "x"],
    }


def test_folder_that_cannot_be_read() -> None:
    """What cannot be read belongs to the layer that it is, or is in."""
    problems = [Problem.of_file(PurePosixPath(path), "unreadable-file", "no", "") for path in ("a", "a/b/x", "e/x")]
    tree = LayeredTree.of(tree_of({}, problems), RULES, None)

    assert {name: [str(one.path) for one in source.problems] for name, source in tree.by_layer.items()} == {
        "a": ["a"],
        "a/b": ["a/b/x"],
        NO_LAYER: ["e/x"],
    }


@given(steps=STEPS)
def test_division_follows_what_changes(steps: list[tuple[dict[str, int | None], set[str]]]) -> None:
    """A tree that is divided on top of the one before is divided as it is by itself; layers that stay are the same objects."""
    files: dict[PurePosixPath, SourceFile] = {}
    before: LayeredTree | None = None
    for edits, unreadable in steps:
        for path, content in edits.items():
            file = tree_of({path: str(content)}).files[0]
            files.pop(file.path, None)
            if content is not None:
                files[file.path] = file
        problems = tuple(Problem.of_file(PurePosixPath(path), "unreadable-file", "no", "") for path in unreadable)
        tree = SourceTree(tuple(sorted(files.values(), key=lambda file: file.path.parts)), problems)
        now, anew = LayeredTree.of(tree, RULES, before), LayeredTree.of(tree, RULES, None)

        assert (now.folders, now.names) == (anew.folders, anew.names)
        for name in now.by_layer.keys() | anew.by_layer.keys():
            assert now.source(name) == anew.source(name)
            if before is not None and before.names == now.names and before.source(name) == now.source(name):
                touched = any(path.startswith(f"{name}/") or name == NO_LAYER for path in edits)
                assert touched or now.by_layer.get(name) is before.by_layer.get(name)
        before = now


def lost_and_kept(tree: LayeredTree) -> tuple[dict[str, bool], list[str]]:
    """Return the places of lost layers, each with whether it is kept, and the paths of all files."""
    return {str(one.problem.path): one.is_kept for one in tree.lost}, [str(file.path) for file in tree.tree.files]


def rules(*layers: str) -> Views:
    """Return rules by which these are layers, of which those that are folders have to be there."""
    return rules_of(*layers, adjusted=lambda problem: problem)


def test_layer_whose_folder_goes_keeps_its_files() -> None:
    """All that a layer held stays, what could not be read of it too, until its folder has a file again."""
    some = rules("a", "d")
    unreadable = Problem.of_file(PurePosixPath("a/z"), "unreadable-file", "no", "")
    first = LayeredTree.of(tree_of({"a/x": "", "a/b/y": "", "d/x": ""}, [unreadable]), some, None)
    gone = LayeredTree.of(tree_of({"d/x": "1"}), some, first)
    later = LayeredTree.of(tree_of({"d/x": "2", "e/x": ""}), some, gone)
    back = LayeredTree.of(tree_of({"a/x": "1", "d/x": "2"}), some, later)

    assert lost_and_kept(first) == ({}, ["a/b/y", "a/x", "d/x"])
    assert lost_and_kept(gone) == ({"a": True}, ["a/b/y", "a/x", "d/x"])
    assert gone.source("a") == first.source("a")
    assert (gone.folders, gone.read.files) == (first.folders, tree_of({"d/x": "1"}).files)
    assert lost_and_kept(later) == ({"a": True}, ["a/b/y", "a/x", "d/x", "e/x"])
    assert later.tree.file_at(PurePosixPath("d/x")) == tree_of({"d/x": "2"}).files[0]
    assert lost_and_kept(back) == ({}, ["a/x", "d/x"])


def test_file_that_goes_from_a_layer_is_gone() -> None:
    """To delete some of its files is an edit; so is to delete a folder in it."""
    first = LayeredTree.of(tree_of({"a/x": "", "a/b/y": "", "a/z": ""}), rules("a"), None)

    assert lost_and_kept(LayeredTree.of(tree_of({"a/z": ""}), rules("a"), first)) == ({}, ["a/z"])


def test_layer_that_never_had_a_folder_cannot_be_read() -> None:
    """It is a file that cannot be read, and a layer; what else is wrong with the tree stays."""
    some = rules("a", "d")
    first = LayeredTree.of(tree_of({"d/x": ""}), some, None)
    later = LayeredTree.of(tree_of({"d/x": "", "d/y": ""}), some, first)

    for tree in (first, later):
        assert lost_and_kept(tree)[0] == {"a": False}
        assert [str(problem.path) for problem in tree.source("a").problems] == ["a"]
        assert tree.folders == tree.names == {"a", "d"}


def test_one_folder_of_a_template_may_go() -> None:
    """While others are left; when all of them go at once, all are kept. None has to be there."""
    some = rules("n/{node.id}", "common")
    first = LayeredTree.of(tree_of({"common/x": "", "n/a/x": "", "n/b/x": ""}), some, None)
    one = LayeredTree.of(tree_of({"common/x": "", "n/b/x": ""}), some, first)
    none = LayeredTree.of(tree_of({"common/x": ""}), some, first)

    assert lost_and_kept(one) == ({}, ["common/x", "n/b/x"])
    assert lost_and_kept(none) == ({"n/a": True}, ["common/x", "n/a/x", "n/b/x"])
    assert lost_and_kept(LayeredTree.of(tree_of({"common/x": "", "n/c/x": ""}), some, none)) == (
        {},
        ["common/x", "n/c/x"],
    )
    assert lost_and_kept(LayeredTree.of(tree_of({"common/x": ""}), some, None)) == ({}, ["common/x"])


def test_what_is_kept_follows_the_settings() -> None:
    """Other settings keep a lost layer that they name as well; with those that do not, its files are gone."""
    first = LayeredTree.of(tree_of({"a/x": "", "d/x": ""}), rules("a", "d"), None)
    gone = LayeredTree.of(tree_of({"d/x": ""}), rules("a", "d"), first)

    assert lost_and_kept(LayeredTree.of(tree_of({"d/x": ""}), rules("a"), gone)) == ({"a": True}, ["a/x", "d/x"])
    assert lost_and_kept(LayeredTree.of(tree_of({"d/x": ""}), rules("d"), gone)) == ({}, ["d/x"])


def test_rule_that_is_no_error_holds_nothing() -> None:
    """As a warning it is reported, and the layer is empty, as with other rules."""
    some = rules_of("a", "d", adjusted=lambda problem: replace(problem, severity=Severity.WARNING))
    first = LayeredTree.of(tree_of({"a/x": "", "d/x": ""}), some, None)
    gone = LayeredTree.of(tree_of({"d/x": ""}), some, first)

    assert lost_and_kept(gone) == ({"a": True}, ["d/x"])
    assert [one.held for one in gone.lost] == [None]
    assert gone.names == {"d"}
