from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fsxds.cli.main import main
from tests.support.checkout import offline_environment

TOP = Path(__file__).parent.parent.parent
SAMPLE = ["fsxds.yaml", "xds/clusters.yaml", "xds/listeners.yaml"]


def files_in(directory: Path) -> list[str]:
    """Return the paths of the files within a directory, sorted."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("flags", [[], ["--empty"]])
def test_what_is_written_is_clean(flags: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The tree and its settings file pass the check at once, notes included."""
    assert main(["init", str(tmp_path / "new" / "config"), *flags]) == 0
    out = capfd.readouterr().out
    directory = tmp_path / "new" / "config"
    check = ["check", str(directory / "xds"), "--settings", str(directory / "fsxds.yaml"), "--severity", "note"]

    assert SAMPLE == files_in(directory)
    assert [str(directory / path) for path in SAMPLE] == out.splitlines()[:3]
    assert f"  fsxds check {directory}/xds\n  fsxds dev {directory}/xds\n" in out
    assert main(check) == 0


def test_the_sample_serves_requests(tmp_path: Path) -> None:
    """The sample has what its Envoy asks for, and the empty tree has nothing."""
    main(["init", str(tmp_path / "sample")])
    main(["init", str(tmp_path / "empty"), "--empty"])

    assert main(["diff", str(tmp_path / "empty" / "xds"), str(tmp_path / "sample" / "xds")]) == 1
    assert main(["doctor", str(tmp_path / "sample" / "xds"), "--severity", "note"]) == 0


@pytest.mark.parametrize("path", SAMPLE)
def test_nothing_is_overwritten(path: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Where one of the files exists, none is written; other files do no harm."""
    (tmp_path / "xds").mkdir()
    (tmp_path / "README.md").touch()
    (tmp_path / path).write_text("mine")

    assert main(["init", str(tmp_path)]) == 2
    assert (
        capfd.readouterr().err
        == f"fsxds: {tmp_path / path}: exists already, no file was written; give a new directory\n"
    )
    assert sorted(["README.md", path]) == files_in(tmp_path)


def test_a_file_in_the_way(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What cannot be written is an error in one line."""
    (tmp_path / "file").touch()

    assert main(["init", str(tmp_path / "file")]) == 2
    assert "cannot be written: File exists; give another" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["check", "serve", "show"])
def test_who_has_no_tree_learns_of_it(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A directory that does not exist is where a new user stands."""
    assert main([command, "no/such"]) == 2
    assert "`fsxds init DIR`" in capfd.readouterr().err


def test_a_wheel_has_it(tmp_path: Path) -> None:
    """An installed fsxds writes the same tree as the checkout."""
    source, wheel = tmp_path / "source", tmp_path / "wheel"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(TOP / name, source)
    shutil.copytree(TOP / "fsxds", source / "fsxds", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", str(wheel), str(source)]
    subprocess.run(pip, check=True, capture_output=True, env=offline_environment(tmp_path))
    (made,) = wheel.glob("*.whl")
    shutil.unpack_archive(made, tmp_path / "installed", "zip")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    for name in ("sample", "empty"):
        command = [
            sys.executable,
            "-m",
            "fsxds",
            "init",
            str(tmp_path / name),
            *(["--empty"] if name == "empty" else []),
        ]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)

        assert [(TOP / "fsxds" / "cli" / name / path).read_bytes() for path in SAMPLE] == [
            (tmp_path / name / path).read_bytes() for path in SAMPLE
        ]
