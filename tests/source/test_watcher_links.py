"""Trees that are reached through links, or that hold some."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from fsxds.source.targets import WatchOptions
from tests.source.watching import point, watched, write

MODES = pytest.mark.parametrize(
    "options", [WatchOptions(), WatchOptions(mode="poll", poll_s=0.1)], ids=["inotify", "poll"]
)


def publish(volume: Path, generation: str, names: list[str]) -> None:
    """Do what kubelet does to a ConfigMap's volume: a new hidden directory, a flip of `..data`, and cleaning up."""
    write(volume / f"..{generation}", {name: f"{generation} {name}" for name in names})
    old = (volume / "..data").readlink() if (volume / "..data").is_symlink() else None
    point(volume / "..data", f"..{generation}")
    for name in names:
        if not (volume / name).is_symlink():
            (volume / name).symlink_to(f"..data/{name}")
    for link in volume.iterdir():
        if link.is_symlink() and not link.name.startswith("..") and link.name not in names:
            link.unlink()
    if old is not None:
        shutil.rmtree(volume / old)


@MODES
async def test_a_config_map_changes_in_one_step(tmp_path: Path, options: WatchOptions) -> None:
    """A flip of `..data` brings all new files at once, also when files come and go with it."""
    generations = {
        "2026_01": ["cds.yaml", "lds.yaml"],
        "2026_02": ["cds.yaml", "lds.yaml"],
        "2026_03": ["cds.yaml", "rds.yaml"],
    }
    expected = [{name: f"{generation} {name}" for name in names} for generation, names in generations.items()]
    publish(tmp_path, "2026_01", generations["2026_01"])
    async with watched(tmp_path, options) as record:
        for (generation, names), contents in list(zip(generations.items(), expected, strict=True))[1:]:
            await asyncio.to_thread(publish, tmp_path, generation, names)
            await record.until_contents(contents)
        await record.nothing_more()

        assert record.history == expected
        assert record.ignored == []


@MODES
async def test_a_root_that_is_a_link_flips_in_one_step(tmp_path: Path, options: WatchOptions) -> None:
    """git-sync lets a link lead to the next worktree and removes the old one; the tree goes from one to the other."""
    write(tmp_path / "worktrees/1/config", {"a.yaml": "1", "b.yaml": "1"})
    point(tmp_path / "current", "worktrees/1")
    async with watched(tmp_path / "current/config", options) as record:
        for number in ("2", "3"):
            write(tmp_path / f"worktrees/{number}/config", {"a.yaml": number, "b.yaml": number})
            point(tmp_path / "current", f"worktrees/{number}")
            shutil.rmtree(tmp_path / f"worktrees/{int(number) - 1}")
            await record.until_contents({"a.yaml": number, "b.yaml": number})
        write(tmp_path / "worktrees/3/config", {"b.yaml": "edited"})
        await record.until_contents({"a.yaml": "3", "b.yaml": "edited"})

        assert [len(set(contents.values())) for contents in record.history] == [1, 1, 1, 2]
        assert record.lost == []


async def test_linked_directories_and_files_are_watched_where_they_are(tmp_path: Path) -> None:
    """An edit behind a link is seen at once, as is the link's flip."""
    root = tmp_path / "tree"
    write(tmp_path / "shared", {"deep/a.yaml": "1"})
    write(tmp_path / "other", {"deep/a.yaml": "other"})
    write(tmp_path / "single", {"content": "1", "unrelated": "1"})
    root.mkdir()
    (root / "edge").symlink_to("../shared")
    (root / "one.yaml").symlink_to(tmp_path / "single/content")
    async with watched(root) as record:
        write(tmp_path / "shared", {"deep/a.yaml": "2"})
        await record.until_contents({"edge/deep/a.yaml": "2", "one.yaml": "1"})
        write(tmp_path / "single", {"content": "2"})
        await record.until_contents({"edge/deep/a.yaml": "2", "one.yaml": "2"})
        write(tmp_path / "single", {".next": "3"})
        (tmp_path / "single/.next").rename(tmp_path / "single/content")
        await record.until_contents({"edge/deep/a.yaml": "2", "one.yaml": "3"})
        point(root / "edge", "../other")
        await record.until_contents({"edge/deep/a.yaml": "other", "one.yaml": "3"})
        write(tmp_path / "other", {"new/b.yaml": "b"})
        await record.until_contents({"edge/deep/a.yaml": "other", "edge/new/b.yaml": "b", "one.yaml": "3"})

        assert len(record.settled) == 6


async def test_a_link_on_the_way_of_a_link_is_watched(tmp_path: Path) -> None:
    """A link in the tree that leads through another link outside follows when that one flips."""
    root = tmp_path / "tree"
    write(tmp_path / "releases", {"1/edge/a.yaml": "1", "2/edge/a.yaml": "2"})
    (tmp_path / "current").symlink_to("releases/1")
    root.mkdir()
    (root / "edge").symlink_to("../current/edge")
    (root / "b.yaml").symlink_to("../current/edge/a.yaml")
    async with watched(root) as record:
        point(tmp_path / "current", "releases/2")
        await record.until_contents({"edge/a.yaml": "2", "b.yaml": "2"})

        assert record.history == [{"edge/a.yaml": "1", "b.yaml": "1"}, {"edge/a.yaml": "2", "b.yaml": "2"}]


async def test_a_linked_directory_that_goes_away_is_told_and_comes_back(tmp_path: Path) -> None:
    """Files behind a link that leads nowhere are named as problems, not taken for deleted, and return by themselves."""
    root = tmp_path / "tree"
    write(tmp_path / "shared", {"a.yaml": "1"})
    write(root, {"b.yaml": "b"})
    (root / "edge").symlink_to("../shared")
    async with watched(root) as record:
        (tmp_path / "shared").rename(tmp_path / "away")
        await record.until(lambda: record.settled[-1].tree.problems)
        problems = [(str(problem.path), problem.rule) for problem in record.settled[-1].tree.problems]
        (tmp_path / "away").rename(tmp_path / "shared")
        await record.until_contents({"b.yaml": "b", "edge/a.yaml": "1"})

        assert problems == [("edge", "broken-link"), ("edge/a.yaml", "broken-link")]
        assert record.settled[-1].tree.problems == ()
