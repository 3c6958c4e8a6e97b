from __future__ import annotations

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fsxds
from fsxds.model.errors import FsxdsError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.snapshots.load import Loaded
from tests.cli.trees import CLUSTERS, TYPO, write_tree


def test_load(tmp_path: Path) -> None:
    """A tree is loaded as it would be served: what is good, and what is wrong."""
    loaded = fsxds.load(write_tree(tmp_path, cds=CLUSTERS, more_clusters="", clusters=TYPO))

    assert isinstance(loaded, fsxds.Loaded)
    assert ["web"] == list(loaded.snapshot.resources(BY_SHORT_NAME["cds"].type_url))
    assert "unknown-field" in [problem.rule for problem in loaded.problems]


def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings are given, or come from the environment as for `fsxds check`."""
    tree = str(write_tree(tmp_path, cds=TYPO))
    given: Loaded = fsxds.load(tree, fsxds.Settings(unknown_fields="warn"))
    monkeypatch.setenv("FSXDS_UNKNOWN_FIELDS", "warn")

    assert ["warning"] == [problem.severity.value for problem in given.problems]
    assert given.problems == fsxds.load(tree).problems


def test_no_directory(tmp_path: Path) -> None:
    """A directory that is not there is an error of ours, in one line."""
    with pytest.raises(FsxdsError, match="the directory does not exist"):
        fsxds.load(tmp_path / "nosuch")


def test_names() -> None:
    """All public names are there, and no others."""
    assert all(getattr(fsxds, name) for name in fsxds.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'lood'"):
        _ = fsxds.lood


def test_importing_is_light() -> None:
    """`import fsxds` imports no room and no library; the worker process that parses begins with it."""
    code = "import sys; before = set(sys.modules); import fsxds; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True,
                          env={"PYTHONPATH": str(Path(__file__).parents[2])})  # fmt: skip
    loaded = {name.partition(".")[0] for name in done.stdout.split()}

    assert [name for name in done.stdout.split() if name.startswith("fsxds")] == ["fsxds"]
    assert loaded <= {"fsxds", *sys.stdlib_module_names}


def test_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the docstring does what it says."""
    monkeypatch.chdir(Path(__file__).parents[2])
    results = doctest.testmod(fsxds)

    assert (0, True) == (results.failed, results.attempted > 0)


def test_a_worker_does_not_run_the_script_that_started_it(tmp_path: Path) -> None:
    """Whoever calls `fsxds.load` needs no `if __name__ == "__main__"`."""
    script = tmp_path / "mine.py"
    lines = [
        "print('mine', flush=True)",
        "from fsxds.server.parse_worker import ParseRules, ParseWorker",
        "from fsxds.server.loading_rules import find_catalogue",
        "from fsxds.settings.options import Settings",
        "worker = ParseWorker.start(ParseRules(find_catalogue(Settings())))",
        "print(worker.is_alive, __import__('sys').modules['__main__'].__file__)",
    ]
    script.write_text("\n".join(lines))
    done = subprocess.run(
        [sys.executable, script],
        env=os.environ | {"PYTHONPATH": str(Path(fsxds.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.splitlines() == ["mine", f"True {script}"]
