"""Views of trees that are loaded once, as commands do."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from fsxds.lint.linter import Linter
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import SourceFile, SourceTree
from fsxds.server.loading_rules import scan_once
from fsxds.server.view_loading import ViewLoader
from fsxds.settings.options import Settings
from fsxds.settings.view_rules import ViewRule
from fsxds.snapshots.loaded_views import LoadedViews, only_view
from tests.support.polls import envoy_catalogue

CLUSTERS = BY_SHORT_NAME["cds"].type_url
CLUSTER = "- {{name: {name}, type: STATIC, connect_timeout: {seconds}s}}\n"


def tree_of(**clusters: int) -> SourceTree:
    """Return a tree of folders, each of which has a cluster `web` with this timeout."""
    texts = {f"{folder}/cds.yaml": CLUSTER.format(name="web", seconds=seconds) for folder, seconds in clusters.items()}
    files = (SourceFile.of(PurePosixPath(path), text.encode()) for path, text in sorted(texts.items()))
    return SourceTree(tuple(files), ignored=(PurePosixPath("notes.txt"),))


def load(tree: SourceTree, *rules: ViewRule) -> LoadedViews:
    """Load every view that the rules can produce."""
    loader = ViewLoader(Settings(views=rules or None, cache_dir=None), envoy_catalogue(), Linter())
    (loaded,) = loader.load((tree,), lambda views, existing: views.possible(existing))
    return loaded


def test_without_views_the_whole_tree_is_loaded() -> None:
    """Where the settings have no views there is one, with all that is wrong."""
    loaded = load(tree_of(a=1))

    assert [()] == list(loaded.by_layers)
    assert loaded.problems == only_view(loaded).problems


def test_each_view_has_its_layers() -> None:
    """Every view is loaded once, from its layers alone."""
    rules = ViewRule("one", (("id", ("1",)),), ("a", "{node.cluster}")), ViewRule("two", (), ("a",))
    loaded = load(tree_of(a=1, b=2), *rules)
    rows = {layers: view.snapshot.by_type.values() for layers, view in loaded.by_layers.items()}

    assert {("a",), ("a", "b")} == set(rows)
    assert all(["web"] == [name for row in types for name in row] for types in rows.values())


def test_what_is_ignored_is_noted_once() -> None:
    """A file that no format claims is one note, however many views there are."""
    rules = ViewRule("one", (("id", ("1",)),), ("a",)), ViewRule("two", (), ("b",))

    assert ["ignored-file"] == [
        one.rule for one in load(tree_of(a=1, b=2), *rules).problems if one.rule == "ignored-file"
    ]


def test_one_view_has_all_that_is_wrong() -> None:
    """The one view that a command asked for has the problems of the tree."""
    loaded = load(tree_of(a=1, b=1), ViewRule("one", (), ("a",)))

    assert {"no-layer", "ignored-file"} <= {one.rule for one in only_view(loaded).problems}


def test_layer_that_is_a_link(tmp_path: Path) -> None:
    """A folder that is a link to another one, in the tree or outside, is a layer by its own name; one into itself ends."""
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    for folder, name in ((tree / "common", "web"), (tree / "nodes", "lost"), (outside, "out")):
        folder.mkdir(parents=True)
        (folder / "cds.yaml").write_text(CLUSTER.format(name=name, seconds=1))
    (tree / "nodes" / "a").symlink_to(outside)
    (tree / "nodes" / "b").symlink_to("../common")
    (tree / "nodes" / "loop").symlink_to(".")
    loaded = load(scan_once(tree, Settings(follow_outside=True)), ViewRule("one", (), ("common", "nodes/{node.id}")))

    names = {
        layers: sorted(name for rows in view.snapshot.by_type.values() for name in rows)
        for layers, view in loaded.by_layers.items()
    }
    assert names["common", "nodes/a"] == ["out", "web"]
    assert names["common",] == ["web"]
    assert not loaded.held


def test_redirects_are_followed_in_each_view() -> None:
    """What a redirect of a shared layer leads to is that of the view; a problem says in which it leads nowhere."""
    shared = SourceFile.of(PurePosixPath("z/cds.yaml"), b"- {name: one, resource_name: {name: web}}\n")
    other = SourceFile.of(PurePosixPath("c/cds.yaml"), CLUSTER.format(name="other", seconds=3).encode())
    a, b = tree_of(a=1, b=2).files
    loaded = load(
        SourceTree((a, b, other, shared)), *(ViewRule(name, (("id", (name,)),), ("z", name)) for name in "abc")
    )
    rows = {layers[-1]: snapshot.resources(CLUSTERS) for layers, snapshot in loaded.served.items()}

    assert {name: sorted(of_view) for name, of_view in rows.items()} == {
        "a": ["one", "web"],
        "b": ["one", "web"],
        "c": ["other"],
    }
    assert rows["a"]["one"].version != rows["b"]["one"].version
    (found,) = (problem for problem in loaded.problems if problem.rule == "dangling-redirect")
    assert found.message.endswith("(in z + c)")
