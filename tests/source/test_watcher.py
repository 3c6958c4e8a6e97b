from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Collection
from itertools import count
from pathlib import Path

import pytest

from fsxds.model.values import SourceTree
from fsxds.source.scan import Scanner, ScanResult
from fsxds.source.targets import WatchOptions
from fsxds.source.watcher import watch
from tests.source.watching import ONLY_AT_ONCE, UNHURRIED, Contents, Watched, contents_of, is_read, watched, write
from tests.support.patience import NEVER_S, PATIENCE_S

POLL = WatchOptions(mode="poll", poll_s=0.1)
MODES = pytest.mark.parametrize("options", [WatchOptions(), POLL], ids=["inotify", "poll"])


async def test_an_empty_tree_is_yielded_at_once(tmp_path: Path) -> None:
    """The first tree comes without a change and without a wait, even when it is empty."""
    async with watched(tmp_path, ONLY_AT_ONCE) as record:
        assert record.history == [{}]
        assert record.modes == [("inotify", "all changes are made on this machine")]


@MODES
async def test_changes_of_all_kinds_are_seen(tmp_path: Path, options: WatchOptions) -> None:
    """Files and directories that are written, made, renamed, moved in, moved out and deleted show in the tree."""
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    write(tree, {"a.yaml": "1"})
    write(outside, {"deep/down/d.yaml": "d"})
    async with watched(tree, options) as record:
        write(tree, {"a.yaml": "22"})
        await record.until_contents({"a.yaml": "22"})
        write(tree, {"new/dir/b.yaml": "b"})
        await record.until_contents({"a.yaml": "22", "new/dir/b.yaml": "b"})
        (tree / "new").rename(tree / "renamed")
        await record.until_contents({"a.yaml": "22", "renamed/dir/b.yaml": "b"})
        (tree / "a.yaml").rename(tree / "c.yaml")
        await record.until_contents({"c.yaml": "22", "renamed/dir/b.yaml": "b"})
        (outside / "deep").rename(tree / "deep")
        await record.until_contents({"c.yaml": "22", "deep/down/d.yaml": "d", "renamed/dir/b.yaml": "b"})
        write(tree, {"deep/down/d.yaml": "dd"})
        await record.until_contents({"c.yaml": "22", "deep/down/d.yaml": "dd", "renamed/dir/b.yaml": "b"})
        (tree / "renamed").rename(outside / "renamed")
        await record.until_contents({"c.yaml": "22", "deep/down/d.yaml": "dd"})
        shutil.rmtree(tree / "deep")
        await record.until_contents({"c.yaml": "22"})


@MODES
async def test_a_touched_file_is_no_change(tmp_path: Path, options: WatchOptions) -> None:
    """Times and permissions that change under the same content yield nothing."""
    write(tmp_path, {"a.yaml": "1"})
    async with watched(tmp_path, options) as record:
        (tmp_path / "a.yaml").touch()
        (tmp_path / "a.yaml").chmod(0o600)
        write(tmp_path, {"a.yaml": "1", "b.yaml.tmp": "2", ".c.yaml": "3"})
        await record.nothing_more()

        assert record.history == [{"a.yaml": "1"}]


async def test_reading_is_not_heard(tmp_path: Path) -> None:
    """The watch's own looks cause no further looks."""
    write(tmp_path, {"a.yaml": "1"})
    looks = 0

    class Counted(Scanner):
        def look(self) -> ScanResult:
            nonlocal looks
            looks += 1
            return super().look()

    async with asyncio.TaskGroup() as tasks:

        async def follow() -> None:
            async with contextlib.aclosing(
                watch(Counted(tmp_path, is_read=is_read), WatchOptions(), Watched())
            ) as trees:
                async for _ in trees:
                    pass

        following = tasks.create_task(follow())
        await asyncio.sleep(0.5)
        following.cancel()

    assert looks == 2  # with and without watches in place


async def test_a_tree_that_did_not_hold_still_is_looked_at_again(tmp_path: Path) -> None:
    """What may mix generations is not yielded, not even at the cap."""
    write(tmp_path, {"a.yaml": "1"})
    looks = 0

    class Unsteady(Scanner):
        def look(self) -> ScanResult:
            nonlocal looks
            looks += 1
            return dataclasses.replace(super().look(), is_steady=looks > 5)

    trees = watch(Unsteady(tmp_path, is_read=is_read), WatchOptions(settle_cap_s=0.01), Watched())
    async with contextlib.aclosing(trees):
        first = await anext(trees)

    assert (contents_of(first.tree), looks) == ({"a.yaml": "1"}, 6)


async def test_a_watch_goes_on_where_another_ended(tmp_path: Path) -> None:
    """What that one yielded is not yielded again; and where no file of it is left, the tree is lost."""
    write(tmp_path, {"a.yaml": "1"})
    scanner, record = Scanner(tmp_path, is_read=is_read), Watched()
    last = scanner.scan()

    async def follow(last: SourceTree) -> None:
        async with contextlib.aclosing(watch(scanner, WatchOptions(), record, last=last)) as trees:
            async for settled in trees:
                record.take(settled)

    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow(last))
        await record.until(lambda: record.modes)
        write(tmp_path, {"b.yaml": "2"})
        await record.until_contents({"a.yaml": "1", "b.yaml": "2"})
        following.cancel()
    assert len(record.settled) == 1

    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).unlink()
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow(record.settled[0].tree))
        await record.until(lambda: record.lost)
        following.cancel()
    assert len(record.settled) == 1


async def follow_changing(scanner: Scanner, record: Watched, options: WatchOptions | None = None) -> None:
    async with contextlib.aclosing(watch(scanner, options or WatchOptions(), record)) as trees:
        async for settled in trees:
            record.take(settled)


@MODES
@pytest.mark.parametrize("before", [{}, {"a.yaml": "old"}], ids=["new", "changed"])
async def test_what_was_closed_since_it_was_read_is_read_again(
    tmp_path: Path, options: WatchOptions, before: Contents
) -> None:
    """A look may read half of a file whose writer is done before anybody asks who writes: the half is never yielded."""
    path, record = tmp_path / "a.yaml", Watched()
    write(tmp_path, {"b.yaml": "b", **before})

    class Overtaken(Scanner):
        def look(self) -> ScanResult:
            found = super().look()
            self.finish()
            return found

        def look_at(self, paths: Collection[str]) -> ScanResult | None:
            found = super().look_at(paths)
            self.finish()
            return found

        def finish(self) -> None:
            """Write the rest behind the back of who looks."""
            if path.exists() and path.read_text() == "half":
                path.write_text("half and half")

    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow_changing(Overtaken(tmp_path, is_read=is_read), record, options))
        await record.until(lambda: record.settled)
        path.write_text("half")
        await record.until_contents({"a.yaml": "half and half", "b.yaml": "b"})
        following.cancel()

    assert record.history == [{"b.yaml": "b", **before}, {"a.yaml": "half and half", "b.yaml": "b"}]


async def test_links_that_never_hold_still_keep_only_what_they_lead_to(tmp_path: Path) -> None:
    """What may mix generations stays as it was, and the files that no link leads to go on."""
    write(tmp_path, {"a.yaml": "1", ".1/b.yaml": "1"})
    (tmp_path / "linked.yaml").symlink_to(".1/b.yaml")
    record = Watched()

    class Unsteady(Scanner):
        def look(self) -> ScanResult:
            return dataclasses.replace(super().look(), is_steady=not record.settled)

    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow_changing(Unsteady(tmp_path, is_read=is_read), record))
        await record.until_contents({"a.yaml": "1", "linked.yaml": "1"})
        write(tmp_path, {"a.yaml": "2", ".1/b.yaml": "2"})
        await record.until_contents({"a.yaml": "2", "linked.yaml": "1"})
        following.cancel()


async def test_directories_that_come_all_the_time_keep_nobody_waiting(tmp_path: Path) -> None:
    """Where each look finds a directory that was not watched, the tree is taken after a few looks."""
    write(tmp_path, {"a.yaml": "1"})
    record = Watched()

    class Growing(Scanner):
        def look(self) -> ScanResult:
            (tmp_path / str(time.monotonic_ns())).mkdir()
            return super().look()

    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow_changing(Growing(tmp_path, is_read=is_read), record))
        await record.until_contents({"a.yaml": "1"})
        write(tmp_path, {"a.yaml": "2"})
        await record.until_contents({"a.yaml": "2"})
        following.cancel()


async def test_a_burst_is_one_tree(tmp_path: Path) -> None:
    """Many files written one after another within the settle time are yielded together, detected at the first."""
    expected: Contents = {f"{number:03}.yaml": "x" for number in range(200)}
    async with watched(tmp_path, UNHURRIED) as record:
        before_s = time.monotonic()
        write(tmp_path, dict(list(expected.items())[:1]))
        # The event of the first arrives meanwhile.
        await asyncio.sleep(0.5)
        others_s = time.monotonic()
        write(tmp_path, expected)
        await record.until_contents(expected)

        assert len(record.history) == 2
        assert before_s <= record.settled[-1].detected_s < others_s


async def test_a_burst_that_does_not_end_is_cut(tmp_path: Path) -> None:
    """While changes never pause, what is whole is yielded every half second, and what was removed is kept up to the cap."""
    options = WatchOptions(settle_s=1.0, settle_cap_s=3.0)
    write(tmp_path, {"a.yaml": "1", "gone.yaml": "1"})
    async with watched(tmp_path, options) as record:
        (tmp_path / "gone.yaml").unlink()
        started_s = time.monotonic()
        took_s: list[float] = []
        async with asyncio.timeout(PATIENCE_S):
            while "gone.yaml" in record.history[-1]:
                write(tmp_path, {f"{time.monotonic_ns()}.yaml": "x"})
                await asyncio.sleep(0.02)
                if len(record.settled) > 1 + len(took_s):
                    took_s.append(time.monotonic() - started_s)

        assert len(took_s) > 1
        assert took_s[-1] > 2.5
        assert all(text for contents in record.history for text in contents.values())


async def test_a_log_beside_the_files_keeps_nobody_waiting(tmp_path: Path) -> None:
    """A file that is not read may be written without end, and the tree settles all the same."""
    write(tmp_path, {"a.yaml": "1"})
    with (tmp_path / "access.log").open("w") as log:
        options = WatchOptions(settle_s=0.1, settle_cap_s=NEVER_S, share_s=NEVER_S)
        async with watched(tmp_path, options) as record:
            write(tmp_path, {"a.yaml": "2"})
            async with asyncio.timeout(PATIENCE_S):
                while len(record.settled) < 2:
                    log.write("GET /\n")
                    log.flush()
                    await asyncio.sleep(0.01)

            assert record.ignored == ["access.log"]


async def test_a_rename_is_yielded_within_the_settle_time_and_little_more(tmp_path: Path) -> None:
    """From the rename to the tree it takes the settle time and a few milliseconds, unless the machine is busy."""
    took_s = PATIENCE_S
    async with watched(tmp_path, WatchOptions(settle_s=0.05)) as record, asyncio.timeout(PATIENCE_S):
        for number in count():
            write(tmp_path, {".next": str(number)})
            renamed_s = time.monotonic()
            (tmp_path / ".next").rename(tmp_path / "a.yaml")
            await record.until_contents({"a.yaml": str(number)})
            took_s = min(took_s, time.monotonic() - renamed_s)
            # An idle machine takes 57 ms.
            if number > 1 and took_s < 0.05 + 0.03:
                break


async def test_the_tree_ends_up_as_the_disk_is(tmp_path: Path) -> None:
    """Whatever is done to the tree, and in whatever order, the last tree is what is on the disk."""
    choose = random.Random(20240229)
    names = [f"{directory}{name}.yaml" for directory in ("", "one/", "one/two/", "three/") for name in "ab"]
    root = tmp_path / "tree"
    write(root, {"stays.yaml": "0"})
    async with watched(root, WatchOptions(settle_s=0.02)) as record:
        for step in range(150):
            name, other = choose.sample(names, 2)
            with contextlib.suppress(OSError):
                match choose.randrange(6):
                    case 0 | 1:
                        write(root, {name: str(step)})
                    case 2:
                        (root / name).unlink()
                    case 3:
                        (root / name).replace(root / other)
                    case 4:
                        shutil.rmtree((root / name).parent) if "/" in name else None
                    case 5:
                        (root / name).parent.rename((root / other).parent) if "/" in name else None
            await asyncio.sleep(choose.choice((0, 0, 0.001, 0.03)))
        expected = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*.yaml")}

        await record.until_contents(expected)


async def test_git_checkouts_are_seen_whole(tmp_path: Path) -> None:
    """A checkout of 500 files to and fro yields the one commit or the other, and never a mixture."""
    one: Contents = {f"{number % 7}/{number}.yaml": "one " * 50 for number in range(500)}
    two: Contents = {f"{number % 7}/{number}.yaml": "two " * 60 for number in range(3, 503)}

    async def git(*arguments: str) -> None:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *arguments]
        await asyncio.to_thread(subprocess.run, command, cwd=tmp_path, check=True, capture_output=True)

    await git("init", "-b", "main")
    write(tmp_path, one)
    await git("add", ".")
    await git("commit", "-m", "one")
    await git("tag", "one")
    await git("rm", "-r", "-q", ".")
    write(tmp_path, two)
    await git("add", ".")
    await git("commit", "-m", "two")
    async with watched(tmp_path) as record:
        for _ in range(3):
            await git("checkout", "one")
            await record.until_contents(one)
            await git("checkout", "main")
            await record.until_contents(two)
        await record.nothing_more()

        assert record.history == [two, one, two, one, two, one, two]


async def test_cancelling_leaves_no_thread_behind(tmp_path: Path) -> None:
    """When the watch is cancelled, watchdog's threads have ended."""
    write(tmp_path, {"a.yaml": "1"})
    before = set(threading.enumerate())
    async with watched(tmp_path) as record:
        during = set(threading.enumerate()) - before
        assert any("watchdog" in type(thread).__module__ for thread in during)
        assert record.history == [{"a.yaml": "1"}]

    left = [
        thread for thread in threading.enumerate() if "watchdog" in type(thread).__module__ and thread not in before
    ]
    assert left == []


async def test_a_tree_without_files_is_waited_for(tmp_path: Path) -> None:
    """That nothing is configuration is reported once, with what is there, and the first file is served."""
    write(tmp_path, {"a.txt": ""})
    async with watched(tmp_path) as record:
        write(tmp_path, {"a.yaml": "1"})
        await record.until_contents({"a.yaml": "1"})

        assert [(wait.root, [str(path) for path in wait.ignored]) for wait in record.waits] == [(tmp_path, ["a.txt"])]


async def test_ignored_files_are_told_once(tmp_path: Path) -> None:
    """A file that no format claims is reported when it is first seen; hidden and temporary ones are not worth a word."""
    write(tmp_path, {"README.md": "", "a.yaml~": "", ".a.yaml.swp": "", "b.tmp": "", "#a.yaml#": "", "4913": ""})
    async with watched(tmp_path) as record:
        write(tmp_path, {"a.yaml": "1", "notes.txt": ""})
        await record.until_contents({"a.yaml": "1"})
        write(tmp_path, {"a.yaml": "2", "notes.txt": "2"})
        await record.until_contents({"a.yaml": "2"})

        assert record.ignored == ["README.md", "notes.txt"]
