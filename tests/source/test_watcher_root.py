"""Roots that are replaced, moved away, deleted, emptied, or not there yet."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from fsxds.source.targets import WatchOptions
from tests.source.watching import watched, write

MODES = pytest.mark.parametrize(
    "options", [WatchOptions(), WatchOptions(mode="poll", poll_s=0.1)], ids=["inotify", "poll"]
)


@MODES
async def test_a_replaced_root_is_followed(tmp_path: Path, options: WatchOptions) -> None:
    """A new directory in the old one's place is read in one step, and edits in it are seen."""
    root = tmp_path / "tree"
    write(root, {"a.yaml": "1"})
    write(tmp_path / "next", {"a.yaml": "2", "b.yaml": "2"})
    async with watched(root, options) as record:
        root.rename(tmp_path / "old")
        (tmp_path / "next").rename(root)
        await record.until_contents({"a.yaml": "2", "b.yaml": "2"})
        write(root, {"b.yaml": "3"})
        await record.until_contents({"a.yaml": "2", "b.yaml": "3"})
        write(tmp_path / "old", {"a.yaml": "no longer read"})
        await record.nothing_more()

        assert record.history == [{"a.yaml": "1"}, {"a.yaml": "2", "b.yaml": "2"}, {"a.yaml": "2", "b.yaml": "3"}]
        assert record.lost == []


@MODES
async def test_a_root_that_is_moved_away_and_back_loses_nothing(tmp_path: Path, options: WatchOptions) -> None:
    """While the root is away its last tree stays, reported once; when it is back, edits are seen again."""
    root = tmp_path / "parent/tree"
    write(root, {"a.yaml": "1"})
    async with watched(root, options) as record:
        root.rename(tmp_path / "away")
        await record.until(lambda: record.lost)
        await record.nothing_more()
        (tmp_path / "away").rename(root)
        await record.until(lambda: record.found)
        write(root, {"a.yaml": "2"})
        await record.until_contents({"a.yaml": "2"})

        assert record.history == [{"a.yaml": "1"}, {"a.yaml": "2"}]
        assert record.lost == [f"{root}: the directory does not exist; create it, or name another one"]
        assert record.found == 1


@MODES
async def test_a_root_that_is_deleted_and_made_anew_is_followed(tmp_path: Path, options: WatchOptions) -> None:
    """Even when its parent goes too, a root that is made anew is read and watched."""
    root = tmp_path / "parent/tree"
    write(root, {"a.yaml": "1"})
    async with watched(root, options) as record:
        for text in ("2", "3"):
            await asyncio.to_thread(shutil.rmtree, tmp_path / "parent")
            await record.until(lambda: len(record.lost) > record.found)
            write(root, {"a.yaml": text})
            await record.until_contents({"a.yaml": text})
        write(root, {"a.yaml": "4"})
        await record.until_contents({"a.yaml": "4"})

        assert record.history == [{"a.yaml": text} for text in "1234"]
        assert (len(record.lost), record.found) == (2, 2)


async def test_a_directory_that_got_the_inode_of_the_old_root_is_watched(tmp_path: Path) -> None:
    """Filesystems give the number of a deleted directory to the next one, which is a different directory still."""
    root = tmp_path / "tree"
    write(root, {"a.yaml": "0"})
    async with watched(root) as record:
        for number in range(1, 4):
            shutil.rmtree(root)
            write(root, {"a.yaml": f"{number}"})
            await record.until_contents({"a.yaml": f"{number}"})
            write(root, {"a.yaml": f"{number} edited"})
            await record.until_contents({"a.yaml": f"{number} edited"})

        assert record.lost == []


@MODES
async def test_all_files_gone_at_once_is_taken_for_a_loss(tmp_path: Path, options: WatchOptions) -> None:
    """A tree that is emptied is not yielded; what came before stays until there is a file again."""
    write(tmp_path, {"a.yaml": "1", "b.yaml": "1"})
    async with watched(tmp_path, options) as record:
        (tmp_path / "a.yaml").unlink()
        (tmp_path / "b.yaml").unlink()
        await record.until(lambda: record.lost)
        await record.nothing_more()
        write(tmp_path, {"c.yaml": "3"})
        await record.until_contents({"c.yaml": "3"})

        assert record.history == [{"a.yaml": "1", "b.yaml": "1"}, {"c.yaml": "3"}]
        assert len(record.lost) == 1
        assert "resources: []" in record.lost[0]
        assert record.found == 1


async def test_files_that_cannot_be_read_are_no_loss_of_the_tree(tmp_path: Path) -> None:
    """A tree of which no file can be read any more is yielded with its problems, so that each of them can be seen."""
    write(tmp_path, {"a.yaml": "1"})
    async with watched(tmp_path) as record:
        (tmp_path / "a.yaml").unlink()
        (tmp_path / "a.yaml").mkdir()
        await record.until(lambda: record.settled[-1].tree.problems)

        assert [problem.rule for problem in record.settled[-1].tree.problems] == ["not-a-file"]
        assert record.lost == []


@MODES
async def test_a_root_that_is_not_there_yet_is_waited_for(tmp_path: Path, options: WatchOptions) -> None:
    """A watch may start before its root exists."""
    root = tmp_path / "some/where/tree"
    async with watched(root, options) as record:
        assert record.settled == []
        write(root, {"a.yaml": "1"})
        await record.until_contents({"a.yaml": "1"})

        assert record.found == 1


async def test_a_file_in_the_place_of_the_root_is_a_loss(tmp_path: Path) -> None:
    """A root that became a file is reported as what it is."""
    root = tmp_path / "tree"
    write(root, {"a.yaml": "1"})
    async with watched(root) as record:
        shutil.rmtree(root)
        root.write_text("")
        await record.until(lambda: any("is not a directory" in text for text in record.lost) or len(record.lost) > 1)
        root.unlink()
        write(root, {"a.yaml": "2"})
        await record.until_contents({"a.yaml": "2"})
