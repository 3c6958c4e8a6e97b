"""Which file is in which layer, as files and folders come and go."""

from __future__ import annotations

from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from fsxds.snapshots.layered_tree import NO_LAYER, LayeredTree
from fsxds.values import Problem, SourceFile, SourceTree
from tests.support.trees import tree_of

NAMES = frozenset({"a", "a/b", "a/b/c", "d"})
PATHS = st.sampled_from(["a/x", "a/y", "a/b/x", "a/b/c/x", "a/bc/x", "d/e/x", "x", "e/x", "a/b/c/d/x"])
STEPS = st.lists(
    st.tuples(st.dictionaries(PATHS, st.one_of(st.none(), st.integers(0, 2)), max_size=3), st.sets(PATHS, max_size=1)),
    min_size=1,
    max_size=6,
)


def names_of(folders: frozenset[str]) -> frozenset[str]:
    """Return which folders are layers."""
    return folders & NAMES


def test_innermost_layer() -> None:
    """A file is in the innermost folder that is a layer, by whole names of folders."""
    tree = LayeredTree.of(
        tree_of(dict.fromkeys(("a/x", "a/b/x", "a/b/c/d/x", "a/bc/x", "e/x", "x"), "")), names_of, None
    )

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
    tree = LayeredTree.of(tree_of({}, problems), names_of, None)

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
        now, anew = LayeredTree.of(tree, names_of, before), LayeredTree.of(tree, names_of, None)

        assert (now.folders, now.names) == (anew.folders, anew.names)
        for name in now.by_layer.keys() | anew.by_layer.keys():
            assert now.source(name) == anew.source(name)
            if before is not None and before.names == now.names and before.source(name) == now.source(name):
                touched = any(path.startswith(f"{name}/") or name == NO_LAYER for path in edits)
                assert touched or now.by_layer.get(name) is before.by_layer.get(name)
        before = now
