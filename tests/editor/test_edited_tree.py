"""A tree in an editor: what is typed counts, and the problems are those of `fsxds check`."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsxds.api.catalogue import Catalogue
from fsxds.lint.linter import linter_of
from fsxds.lint.reference_findings import with_undefined_names
from fsxds.server.loading_rules import load_once, scan_once
from fsxds.server.view_loading import ViewLoader
from fsxds.settings.options import Settings
from fsxds.settings.view_rules import ViewRule
from tests.editor.trees import CLUSTERS, FILES, ROUTES, Workbench, workbench, write

# Contents that make and break references, names and syntax in several files.
CONTENTS = (
    CLUSTERS,
    ROUTES,
    CLUSTERS.replace("web", "site"),
    CLUSTERS + "- name: extra\n  type: NONE\n",
    "a: [",
    "",
    "resources: []",
    ROUTES.replace("name: main", "name: other").replace("cluster: web", "cluster: extra"),
    "- name: web\n  type: STATIC\n",
    # A redirect, which leads somewhere as long as another file has that.
    "- {name: legacy, resource_name: {name: api}}\n",
)
NAMES = ("clusters.yaml", "routes.yaml", "more.cds.yaml", "x.yaml")


def check(directory: Path, catalogue: Catalogue) -> list[str]:
    """Return what `fsxds check` reports of a tree."""
    chosen = Settings()
    loaded = load_once(directory, chosen, catalogue, linter_of(chosen))
    return list(map(str, with_undefined_names(loaded.problems, chosen)))


EDITS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(CONTENTS)), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, catalogue: Catalogue) -> Workbench:
    """A tree that every example goes on with, as an editor does: what was typed before must make no difference."""
    return workbench(tmp_path_factory.mktemp("tree"), catalogue, FILES)


@given(EDITS)
@settings(max_examples=40)
def test_problems_are_those_of_check(
    shared: Workbench, tmp_path_factory: pytest.TempPathFactory, catalogue: Catalogue, edits: list[tuple[str, str]]
) -> None:
    """After any edits, saved or not, the problems are those that `fsxds check` finds in the same content."""
    texts = dict(FILES)
    for name, text in edits:
        texts[name] = text
        buffers = {PurePosixPath(path): content for path, content in texts.items()}
        view = shared.tree.load(buffers, is_disk_read=False)
    saved = tmp_path_factory.mktemp("saved")
    write(saved, texts)

    assert list(map(str, view.problems)) == check(saved, catalogue)


def test_ignored_files(tmp_path: Path, catalogue: Catalogue) -> None:
    """What `fsxds check` notes about files of other formats is noted here."""
    bench = workbench(tmp_path, catalogue, {**FILES, "notes.txt": "x"})

    assert list(map(str, bench.navigator.view.problems)) == check(tmp_path, catalogue)
    assert "ignored-file" in {problem.rule for problem in bench.navigator.view.problems}


def test_an_edit_breaks_other_files(tmp_path: Path, catalogue: Catalogue) -> None:
    """A cluster that is removed while routes name it is a problem of the routes."""
    bench = workbench(tmp_path, catalogue, FILES)
    view = bench.tree.load({PurePosixPath("clusters.yaml"): CLUSTERS.partition("- name: api")[0]}, is_disk_read=False)

    assert [(str(one.path), one.line, one.rule) for one in view.problems] == [("routes.yaml", 7, "no-cluster")]


def test_files_on_disk(tmp_path: Path, catalogue: Catalogue) -> None:
    """Changes and removals on disk are seen when they are looked for; what is open counts instead of what is saved."""
    bench = workbench(tmp_path, catalogue, FILES)
    routes, clusters = PurePosixPath("routes.yaml"), PurePosixPath("clusters.yaml")
    (tmp_path / "routes.yaml").unlink()
    write(tmp_path, {"clusters.yaml": "a: ["})

    assert routes in bench.tree.load({}, is_disk_read=False).files
    seen = bench.tree.load({clusters: CLUSTERS}, is_disk_read=True)
    assert set(seen.files) == {clusters}
    assert seen.text(clusters) == CLUSTERS
    assert {problem.rule for problem in bench.tree.load({}, is_disk_read=False).problems} == {"bad-syntax"}


def test_an_unsaved_file(tmp_path: Path, catalogue: Catalogue) -> None:
    """A file that was never saved belongs to the tree."""
    bench = workbench(tmp_path, catalogue, FILES)
    view = bench.tree.load({PurePosixPath("new/cds.yaml"): "- name: web\n  type: STATIC\n"}, is_disk_read=False)

    assert "duplicate-name" in {problem.rule for problem in view.problems}


@pytest.mark.parametrize(
    ("name", "belongs"),
    [
        ("a.yaml", True),
        ("not/there/b.json", True),
        (".hidden.yaml", False),
        (".git/a.yaml", False),
        ("README.yaml", False),
        ("a.txt", False),
        ("../a.yaml", False),
        ("", False),
    ],
)
def test_which_files_belong(tmp_path: Path, catalogue: Catalogue, name: str, *, belongs: bool) -> None:
    """Files of the tree are those that serving reads, whether they exist or not."""
    bench = workbench(tmp_path / "tree", catalogue, FILES)

    assert (bench.tree.path_of(tmp_path / "tree" / name) is not None) == belongs


def test_a_tree_behind_a_link(tmp_path: Path, catalogue: Catalogue) -> None:
    """A file is one of the tree by any of its paths."""
    bench = workbench(tmp_path / "tree", catalogue, FILES)
    (tmp_path / "link").symlink_to("tree")

    assert bench.tree.path_of(tmp_path / "link" / "cds.yaml") == PurePosixPath("cds.yaml")


def test_a_lost_tree(tmp_path: Path, catalogue: Catalogue) -> None:
    """Of a directory that is gone, what is open is left."""
    bench = workbench(tmp_path / "tree", catalogue, FILES)
    shutil.rmtree(tmp_path / "tree")
    view = bench.tree.load({PurePosixPath("cds.yaml"): "a: ["}, is_disk_read=True)

    assert [problem.rule for problem in view.problems] == ["bad-syntax"]


def test_large_and_unencodable_texts(tmp_path: Path, catalogue: Catalogue) -> None:
    """A text above the limit does not count; one that is no Unicode is a problem."""
    bench = workbench(tmp_path, catalogue, FILES, max_file_size_bytes=1000)
    path = PurePosixPath("clusters.yaml")

    assert bench.tree.load({path: "x" * 2000}, is_disk_read=False).text(path) == CLUSTERS
    problems = bench.tree.load({path: "a: \ud800"}, is_disk_read=False).problems
    assert "bad-encoding" in {problem.rule for problem in problems}


def test_parsed_files_are_reused(tmp_path: Path, catalogue: Catalogue) -> None:
    """An edit has its own file parsed, and no other."""
    bench = workbench(tmp_path, catalogue, FILES)
    before = bench.navigator.view
    after = bench.tree.load({PurePosixPath("clusters.yaml"): CLUSTERS + "# more\n"}, is_disk_read=False)

    routes, clusters = PurePosixPath("routes.yaml"), PurePosixPath("clusters.yaml")
    assert after.parsed[routes] is before.parsed[routes]
    assert after.parsed[clusters] is not before.parsed[clusters]


VIEWS = (
    ViewRule("edge", (("cluster", ("edge",)),), ("common", "edge", "nodes/{node.id}")),
    ViewRule("all", (), ("common",)),
)
LAYERED = (
    "common/clusters.yaml",
    "common/routes.yaml",
    "edge/more.cds.yaml",
    "nodes/a/x.routes.yaml",
    "lost/clusters.yaml",
)


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory, catalogue: Catalogue) -> Workbench:
    """A tree of layers that every example goes on with."""
    return workbench(tmp_path_factory.mktemp("tree"), catalogue, {}, views=VIEWS)


@given(st.lists(st.tuples(st.sampled_from(LAYERED), st.sampled_from(CONTENTS)), min_size=1, max_size=6))
@settings(max_examples=40)
def test_problems_of_views_are_those_of_check(
    layered: Workbench, tmp_path_factory: pytest.TempPathFactory, catalogue: Catalogue, edits: list[tuple[str, str]]
) -> None:
    """With views, the problems are those of all views that the settings can produce, after any edits."""
    chosen, saved, texts = Settings(views=VIEWS), tmp_path_factory.mktemp("saved"), dict[str, str]()
    for name, text in edits:
        texts[name] = text
        buffers = {PurePosixPath(path): content for path, content in texts.items()}
        view = layered.tree.load(buffers, is_disk_read=False)
    write(saved, texts)
    loader = ViewLoader(chosen, catalogue, linter_of(chosen))
    (loaded,) = loader.load((scan_once(saved, chosen),), lambda views, existing: views.possible(existing))

    assert list(map(str, with_undefined_names(loaded.problems, chosen))) == list(map(str, view.problems))
    assert {PurePosixPath(path) for path in texts} == set(view.parsed)
