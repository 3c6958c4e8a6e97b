"""When all of the tree is looked at, and when only what had an event."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from fsxds.source.listing import TreeBounds
from fsxds.source.scan import Scanner, ScanResult
from fsxds.source.targets import WatchOptions
from fsxds.source.watcher import watch
from tests.source.watching import Watched, is_read, watched, write
from tests.support.patience import PATIENCE_S


class Counted(Scanner):
    """Counts the looks at all of the tree."""

    looks = 0

    def look(self) -> ScanResult:
        """Look at all of the tree."""
        self.looks += 1
        return super().look()


@contextlib.asynccontextmanager
async def counted(root: Path) -> AsyncIterator[tuple[Counted, Watched]]:
    """Watch a directory until the block ends; enters the block at the first tree."""
    scanner, record = Counted(root, is_read=is_read, bounds=TreeBounds(follows_outside=True)), Watched()

    async def follow() -> None:
        async with contextlib.aclosing(watch(scanner, WatchOptions(), record)) as trees:
            async for settled in trees:
                record.take(settled)

    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow())
        await record.until(lambda: record.settled)
        try:
            yield scanner, record
        finally:
            following.cancel()


async def test_files_that_had_an_event_are_looked_at_alone(tmp_path: Path) -> None:
    """Edits, new files and deleted ones, in place and by a move, alone and together, need no look at all of the tree."""
    write(tmp_path, {"a.yaml": "1", "deep/b.yaml": "1", "c.yaml": "1"})
    async with counted(tmp_path) as (scanner, record):
        looks = scanner.looks
        write(tmp_path, {"a.yaml": "2"})
        await record.until_contents({"a.yaml": "2", "c.yaml": "1", "deep/b.yaml": "1"})
        await asyncio.to_thread(subprocess.run, ["sed", "-i", "s/1/3/", "deep/b.yaml"], cwd=tmp_path, check=True)
        await record.until_contents({"a.yaml": "2", "c.yaml": "1", "deep/b.yaml": "3"})
        write(tmp_path, {"deep/d.yaml": "4", "a.yaml": "4"})
        (tmp_path / "c.yaml").unlink()
        await record.until_contents({"a.yaml": "4", "deep/b.yaml": "3", "deep/d.yaml": "4"})

        assert scanner.looks == looks


async def test_what_is_more_than_a_file_is_looked_for_in_all_of_the_tree(tmp_path: Path) -> None:
    """Directories and links that come, go or move, each need a look at all."""
    write(tmp_path, {"a.yaml": "1", "outside/b.yaml": "1", "tree/c.yaml": "1"})
    async with counted(tmp_path / "tree") as (scanner, record):
        tree, looks = tmp_path / "tree", [scanner.looks]
        write(tree, {"new/d.yaml": "1"})
        await record.until_contents({"c.yaml": "1", "new/d.yaml": "1"})
        looks.append(scanner.looks)
        (tree / "new").rename(tree / "moved")
        await record.until_contents({"c.yaml": "1", "moved/d.yaml": "1"})
        looks.append(scanner.looks)
        (tree / "a.yaml").symlink_to("../a.yaml")
        await record.until_contents({"a.yaml": "1", "c.yaml": "1", "moved/d.yaml": "1"})
        looks.append(scanner.looks)
        shutil.rmtree(tree / "moved")
        await record.until_contents({"a.yaml": "1", "c.yaml": "1"})
        looks.append(scanner.looks)

        assert looks == sorted(set(looks))


async def test_all_of_the_tree_is_looked_at_now_and_then(tmp_path: Path) -> None:
    """What changed without an event is found although other files are edited all the time."""
    root = tmp_path / "tree"
    write(root, {"a.yaml": "1", "b.yaml": "1"})
    # Written by its other name, a file has no event in the tree.
    (tmp_path / "other").hardlink_to(root / "b.yaml")
    async with watched(root, WatchOptions(rescan_s=0.5)) as record, asyncio.timeout(PATIENCE_S):
        (tmp_path / "other").write_text("2")
        number = 0
        while record.history[-1]["b.yaml"] == "1":
            number += 1
            write(root, {"a.yaml": f"{number}"})
            await asyncio.sleep(0.005)

        assert record.history[-1]["b.yaml"] == "2"
