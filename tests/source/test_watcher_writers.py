"""Files that are read while someone writes them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fsxds.source.targets import WatchOptions
from tests.source.watching import watched, write
from tests.support.patience import NEVER_S

MODES = pytest.mark.parametrize(
    "options",
    # A machine may stop for seconds between two halves.
    [WatchOptions(writer_patience_s=NEVER_S), WatchOptions(mode="poll", poll_s=0.1, writer_patience_s=NEVER_S)],
    ids=["inotify", "poll"],
)
# A local tree that is said to be on a network filesystem: there are no events, and nobody can be asked.
NFS_TABLE = "1 0 0:1 / / rw - nfs4 server:/export rw\n"


async def write_in_two_halves(path: Path, *, pause_s: float = 0.3) -> None:
    """Write `first second` through one open file, with a pause in between."""
    with path.open("w") as file:
        file.write("first ")
        file.flush()
        await asyncio.sleep(pause_s)
        file.write("second")


@MODES
async def test_half_a_file_is_never_yielded(tmp_path: Path, options: WatchOptions) -> None:
    """A file that is written in place in two halves goes from its old content to the whole new one."""
    write(tmp_path, {"a.yaml": "old", "b.yaml": "b"})
    async with watched(tmp_path, options) as record:
        await write_in_two_halves(tmp_path / "a.yaml")
        await record.until_contents({"a.yaml": "first second", "b.yaml": "b"})

        assert record.history == [{"a.yaml": "old", "b.yaml": "b"}, {"a.yaml": "first second", "b.yaml": "b"}]


@MODES
async def test_half_of_a_new_file_is_never_yielded(tmp_path: Path, options: WatchOptions) -> None:
    """A new file shows when its writer has closed it, although it was there, empty and then cut, before."""
    write(tmp_path, {"b.yaml": "b"})
    async with watched(tmp_path, options) as record:
        with (tmp_path / "a.yaml").open("w") as file:
            await asyncio.sleep(0.3)
            file.write("first ")
            file.flush()
            await asyncio.sleep(0.3)
            file.write("second")
        await record.until_contents({"a.yaml": "first second", "b.yaml": "b"})

        assert record.history == [{"b.yaml": "b"}, {"a.yaml": "first second", "b.yaml": "b"}]


@MODES
async def test_half_a_file_does_not_keep_the_rest(tmp_path: Path, options: WatchOptions) -> None:
    """While one file is written, its old content is taken with the new one of others, and never half of it."""
    write(tmp_path, {"a.yaml": "old", "b.yaml": "b"})
    async with watched(tmp_path, options) as record:
        with (tmp_path / "a.yaml").open("w") as file:
            file.write("first ")
            file.flush()
            write(tmp_path, {"b.yaml": "edited"})
            await record.until(lambda: record.history[-1]["b.yaml"] == "edited")
            file.write("second")
        await record.until_contents({"a.yaml": "first second", "b.yaml": "edited"})

        assert [contents["a.yaml"] for contents in record.history] == ["old", "old", "first second"]


async def test_half_a_file_is_never_yielded_where_nobody_can_be_asked(tmp_path: Path) -> None:
    """On a network filesystem a change is taken when two looks, one poll apart, found the same."""
    table = tmp_path / "mounts"
    table.write_text(NFS_TABLE)
    root = tmp_path / "tree"
    write(root, {"a.yaml": "old"})
    async with watched(root, WatchOptions(poll_s=2.0), table) as record:
        # Half of the file is there from 1.6 to 2.4 s after the first look, so that the second one meets it.
        await record.nothing_more(1.6)
        await write_in_two_halves(root / "a.yaml", pause_s=0.8)
        await record.until_contents({"a.yaml": "first second"})

        assert record.history == [{"a.yaml": "old"}, {"a.yaml": "first second"}]
        assert record.modes == [("poll", f"{root} is on nfs4, where other machines write without a notification")]


# Runs as a root that may not ask for leases on the files of others; says what came of a file that it may not ask about.
WITHOUT_LEASES = """
import asyncio, os, sys
from pathlib import Path
from fsxds.source.watcher import is_open_for_writing
from tests.source.test_watcher_writers import write_in_two_halves
from tests.source.watching import watched

async def main(path):
    print(is_open_for_writing(path))
    async with watched(path.parent) as record:
        await write_in_two_halves(path)
        await record.until_contents({"a.yaml": "first second"})
        print(record.history)

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can give a file away (and needs setpriv)"
)
async def test_events_alone_tell_who_writes(tmp_path: Path) -> None:
    """On the files of other users, which the kernel does not talk about, half a file is not yielded either."""
    path = tmp_path / "a.yaml"
    path.write_text("old")
    os.chown(path, 12345, 12345)
    outcome = await asyncio.to_thread(
        subprocess.run,
        ["setpriv", "--bounding-set=-lease", sys.executable, "-W", "error", "-c", WITHOUT_LEASES, str(path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )

    assert outcome.stderr == ""
    assert outcome.stdout.splitlines() == ["None", "[{'a.yaml': 'old'}, {'a.yaml': 'first second'}]"]


async def test_a_writer_from_before_the_start_is_waited_for(tmp_path: Path) -> None:
    """A file that someone has open for writing when the watch starts is not served by half."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write_in_two_halves(tmp_path / "a.yaml"))
        await asyncio.sleep(0.05)
        async with watched(tmp_path, WatchOptions(writer_patience_s=NEVER_S, settle_cap_s=NEVER_S)) as record:
            assert record.history == [{"a.yaml": "first second"}]


async def test_a_file_that_is_left_open_is_read_after_a_while(tmp_path: Path) -> None:
    """A writer that neither writes nor closes is waited for no longer than the patience."""
    write(tmp_path, {"a.yaml": "old"})
    async with watched(tmp_path, WatchOptions(writer_patience_s=0.5)) as record:
        with (tmp_path / "a.yaml").open("w") as file:
            file.write("new")
            file.flush()
            written_s = time.monotonic()
            await record.until_contents({"a.yaml": "new"})
            took_s = time.monotonic() - written_s

        assert took_s > 0.4
        assert record.history == [{"a.yaml": "old"}, {"a.yaml": "new"}]


async def test_a_writer_does_not_hold_up_what_was_closed(tmp_path: Path) -> None:
    """Files that are created and closed are yielded after the settle time, with no patience spent on them."""
    async with watched(tmp_path, WatchOptions(writer_patience_s=NEVER_S, settle_cap_s=NEVER_S)) as record:
        (tmp_path / "empty.yaml").touch()
        write(tmp_path, {"a.yaml": "1"})
        (tmp_path / "b.yaml").hardlink_to(tmp_path / "a.yaml")
        (tmp_path / "c.yaml").symlink_to("a.yaml")
        await record.until_contents({"a.yaml": "1", "b.yaml": "1", "c.yaml": "1", "empty.yaml": ""})
