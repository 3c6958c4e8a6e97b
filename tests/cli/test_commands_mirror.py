from __future__ import annotations

from pathlib import Path

import pytest

from fsxds.cli.main import main
from tests.cli.trees import CLUSTERS, SECRETS, TYPO, write_tree
from tests.support.settings_files import file_flags


def test_a_tree_is_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`fsxds mirror` writes the files of a tree and says how many; a second time nothing is to be done."""
    tree, out = write_tree(tmp_path, cds=CLUSTERS, sds=SECRETS), tmp_path / "out"

    assert main(["mirror", str(tree), str(out), *file_flags(mirror_pause="0")]) == 0
    assert {"cds.pb", "web.pb"} <= {path.name for path in out.rglob("*.pb")}
    assert f"{out}: " in capfd.readouterr().out
    assert main(["mirror", str(tree), str(out), *file_flags(mirror_pause="0")]) == 0
    assert f"{out}: 0 files written, 0 removed, " in capfd.readouterr().out


def test_a_directory_that_cannot_be_made_is_wrong_use(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One line names the directory, the reason and the remedy."""
    assert main(["mirror", str(write_tree(tmp_path, cds=CLUSTERS)), "/proc/no/such"]) == 2
    fact = "fsxds: /proc/no: cannot be written: No such file or directory"
    assert capfd.readouterr().err == f"{fact}; make it writable and large enough, and mirror again: it goes on there\n"


def test_problems_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file with a mistake is told and ends with status 1; the good ones are written."""
    tree, out = write_tree(tmp_path, cds=TYPO, sds=SECRETS), tmp_path / "out"

    assert main(["mirror", str(tree), str(out)]) == 1
    assert (out / "sds" / "web.pb").exists()
    assert f"{tree}/cds.yaml:3:3: error: " in capfd.readouterr().err
