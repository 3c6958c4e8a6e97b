"""Files on the disk: all of an import or nothing, and nobody else reads its secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.model.errors import UsageError
from fsxds.tools.importing.placing import Destination, write_import
from fsxds.tools.importing.plan import ImportPlan
from tests.tools.importing.planning import plan_of

TEXT = """\
static_resources:
  secrets: [{name: s, generic_secret: {secret: {inline_string: S3CR3T}}}]
  clusters: [{name: a}]
"""


@pytest.fixture
def plan(catalogue: Catalogue) -> ImportPlan:
    """A secret, a cluster, and no listener."""
    return plan_of(TEXT, catalogue)


def contents(directory: Path) -> dict[str, str]:
    """Return all files below a directory, hidden ones too."""
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


def test_files_and_their_modes(plan: ImportPlan, tmp_path: Path) -> None:
    """Everything is there, what holds secrets is for its owner alone, and nothing else is left."""
    before = os.umask(0o022)
    try:
        write_import(plan, Destination(tmp_path / "new" / "xds", tmp_path / "new" / "bootstrap.yaml"))
    finally:
        os.umask(before)
    modes = {str(p.relative_to(tmp_path)): p.stat().st_mode & 0o777 for p in tmp_path.rglob("*") if p.is_file()}

    assert {
        "new/bootstrap.yaml": 0o644,
        "new/xds/clusters/a.yaml": 0o644,
        "new/xds/listeners/none.yaml": 0o644,
        "new/xds/secrets/s.yaml": 0o600,
    } == modes


@pytest.mark.parametrize("taken", ["xds/clusters/b.yaml", "xds/notes.txt", "bootstrap.yaml", "xds"])
def test_what_is_there_is_in_the_way(taken: str, tmp_path: Path) -> None:
    """A directory that is not empty, a file in its place, or the bootstrap's: nothing is to be written."""
    (tmp_path / taken).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / taken).write_text("mine")

    with pytest.raises(UsageError, match=r"no file was written|is not a directory"):
        Destination(tmp_path / "xds", tmp_path / "bootstrap.yaml").require_free()


def test_an_empty_directory_is_free(tmp_path: Path) -> None:
    """So is one with hidden files, such as those of git."""
    (tmp_path / "xds" / ".git").mkdir(parents=True)

    Destination(tmp_path / "xds", tmp_path / "bootstrap.yaml").require_free()


def test_what_is_replaced_is_kept_beside(plan: ImportPlan, tmp_path: Path) -> None:
    """With force, folders and the bootstrap are moved to hidden names; other files stay."""
    tree, bootstrap = tmp_path / "xds", tmp_path / "bootstrap.yaml"
    for path in (tree / "clusters" / "old.yaml", tree / "routes.yaml", bootstrap):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    replaced = write_import(plan, Destination(tree, bootstrap))

    assert {tree / ".replaced-1-clusters", tmp_path / ".replaced-1-bootstrap.yaml"} == set(replaced)
    assert "mine" == (tree / ".replaced-1-clusters" / "old.yaml").read_text()
    assert "mine" == (tree / "routes.yaml").read_text()
    assert not (tree / "clusters" / "old.yaml").exists()


def test_a_step_that_fails_undoes_those_before_it(plan: ImportPlan, tmp_path: Path) -> None:
    """The bootstrap's place is a directory with files: the folders that are there already are taken back."""
    tree, bootstrap = tmp_path / "xds", tmp_path / "nowhere" / "bootstrap.yaml"
    (tree / "clusters").mkdir(parents=True)
    (tree / "clusters" / "old.yaml").write_text("mine")

    with pytest.raises(UsageError, match="not imported"):
        write_import(plan, Destination(tree, bootstrap))

    assert {"xds/clusters/old.yaml": "mine"} == contents(tmp_path)


def test_a_late_step_that_fails_undoes_those_before_it(plan: ImportPlan, tmp_path: Path) -> None:
    """The bootstrap is to go into a folder that is moved aside first: what is in place already is taken back."""
    tree = tmp_path / "xds"
    (tree / "clusters").mkdir(parents=True)
    (tree / "clusters" / "old.yaml").write_text("mine")

    with pytest.raises(UsageError, match="not imported"):
        write_import(plan, Destination(tree, tree / "clusters" / "bootstrap.yaml"))

    assert {"xds/clusters/old.yaml": "mine"} == contents(tmp_path)


def test_an_interrupted_import_leaves_what_was_there(
    plan: ImportPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while files are moved undoes the moves."""
    tree, rename = tmp_path / "xds", Path.rename
    (tree / "clusters").mkdir(parents=True)
    (tree / "clusters" / "old.yaml").write_text("mine")

    def interrupted(path: Path, target: Path) -> Path:
        if target.name == "bootstrap.yaml":
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_import(plan, Destination(tree, tmp_path / "bootstrap.yaml"))

    assert {"xds/clusters/old.yaml": "mine"} == contents(tmp_path)
