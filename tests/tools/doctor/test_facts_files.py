"""Files on a real disk, as the doctor sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsxds.tools.doctor.facts import FileFacts, look_at


def config_map(mount: Path) -> Path:
    """Lay out a volume as Kubernetes does."""
    generation = mount / "..2026_11_20"
    generation.mkdir(parents=True)
    (generation / "cds.yaml").write_text("resources: []")
    (mount / "..data").symlink_to("..2026_11_20")
    (mount / "cds.yaml").symlink_to("..data/cds.yaml")
    return mount / "cds.yaml"


def test_plain_file(tmp_path: Path) -> None:
    """A file has a head; nothing is swapped."""
    file = tmp_path / "cds.yaml"
    file.write_text("resources: []" + " " * 100)
    facts = look_at(str(file))

    assert facts.exists
    assert facts.swapped_in is None
    assert facts.head.startswith(b"resources: []")
    assert len(facts.head) == 64


@pytest.mark.parametrize("path", ["none", "a\0b"])
def test_missing_file(path: str, tmp_path: Path) -> None:
    """What is not there, or can be nowhere, does not exist."""
    assert FileFacts(exists=False) == look_at(str(tmp_path / path))


def test_directory(tmp_path: Path) -> None:
    """A directory exists and has no head."""
    assert FileFacts(exists=True) == look_at(str(tmp_path))


def test_config_map(tmp_path: Path) -> None:
    """Below a directory with `..data` the mount is what must be watched, also for a path by way of `..data`."""
    file = config_map(tmp_path / "mount")
    for path in (file, tmp_path / "mount" / "..data" / "cds.yaml"):
        facts = look_at(str(path))

        assert (str(tmp_path / "mount"), True) == (facts.swapped_in, facts.is_config_map)


def test_missing_file_of_a_config_map(tmp_path: Path) -> None:
    """A file that is not there yet is still in a volume."""
    config_map(tmp_path / "mount")

    assert look_at(str(tmp_path / "mount" / "lds.yaml")).is_config_map


def test_generations(tmp_path: Path) -> None:
    """A link to a neighbour is one that will be swapped."""
    (tmp_path / "gen1").mkdir()
    (tmp_path / "current").symlink_to("gen1")

    assert FileFacts(exists=False, swapped_in=str(tmp_path)) == look_at(str(tmp_path / "current" / "cds.yaml"))


def test_links_of_the_system(tmp_path: Path) -> None:
    """A link that leads elsewhere stays as it is."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run").symlink_to(tmp_path / "a")

    assert look_at(str(tmp_path / "b" / "run" / "cds.yaml")).swapped_in is None


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are seen from the current directory, and told as they are written."""
    config_map(tmp_path / "mount")
    monkeypatch.chdir(tmp_path)

    assert look_at("mount/cds.yaml").swapped_in == "mount"
    monkeypatch.chdir(tmp_path / "mount")
    assert look_at("cds.yaml").swapped_in == "."
