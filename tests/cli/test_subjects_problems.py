"""What commands say of a directory in which nothing is configuration, and of one in which nothing can be read."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fsxds.cli.main import main
from tests.cli.trees import TYPO, write_tree


@pytest.mark.parametrize("command", ["show", "doctor", "mirror", "bootstrap", "diff"])
def test_a_tree_without_configuration_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str) -> None:
    """Who names the wrong directory learns of it, whatever the command goes on to do."""
    tree = tmp_path / "tree"
    tree.mkdir()
    others = {"mirror": [str(tmp_path / "out")], "diff": [str(tree)]}.get(command, [])

    assert main([command, str(tree), *others]) == 0
    assert "is configuration\n" in capfd.readouterr().err


def test_a_bootstrap_asks_for_what_broken_files_may_hold(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An Envoy that did not ask for clusters while a mistake was in their file would never ask."""
    assert main(["bootstrap", str(write_tree(tmp_path, cds=TYPO))]) == 0
    out, err = capfd.readouterr()
    assert list(yaml.safe_load(out)["dynamic_resources"]) == ["cds_config"]
    assert "1 file cannot be read, and may hold more types" in err
