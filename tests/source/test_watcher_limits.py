"""What the kernel's limits do to a watch."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from watchdog.observers.inotify_c import InotifyEvent, InotifyFD

from fsxds.source.targets import WatchOptions
from tests.source.watching import watched, write

# Runs in a user namespace of its own, whose limits are its own too: watches a directory, says in which mode,
# and says what it reads when its input says so.
LIMITED = """
import asyncio, sys
from pathlib import Path
from fsxds.source.targets import WatchOptions
from tests.source.watching import watched, write

async def main(root):
    Path("/proc/sys/user/{limit}").write_text("{value}")
    async with watched(root, WatchOptions(poll_s=0.1, rescan_s=0.5)) as record:
        for number in range(10):
            write(root, {{f"{{number}}/a.yaml": "edited"}})
            await record.until(lambda: record.history[-1][f"{{number}}/a.yaml"] == "edited")
        Path("/proc/sys/user/{limit}").write_text("100")
        await record.until(lambda: len(record.modes) > 1)
        write(root, {{"7/a.yaml": "edited again"}})
        await record.until(lambda: record.history[-1]["7/a.yaml"] == "edited again")
        for mode in record.modes:
            print(*mode, sep="; ")

asyncio.run(main(Path(sys.argv[1])))
"""


def can_make_user_namespaces() -> bool:
    try:
        return subprocess.run(["unshare", "-Ur", "true"], check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not can_make_user_namespaces(), reason="needs user namespaces (unshare -Ur)")
@pytest.mark.parametrize(
    ("limit", "value", "mode", "words"),
    [
        ("max_inotify_watches", 5, "inotify", ["7 of 12 directories", "max_user_watches"]),
        ("max_inotify_instances", 0, "poll", ["there is no inotify", "max_user_instances"]),
    ],
)
async def test_polling_takes_over_when_watches_run_out(
    tmp_path: Path, limit: str, value: int, mode: str, words: list[str]
) -> None:
    """Directories for which there is no watch are polled, reported once with the remedy, until there are watches again."""
    root = tmp_path / "tree"
    write(root, {f"{number}/a.yaml": "1" for number in range(10)})
    program = LIMITED.format(limit=limit, value=value)
    command = ["unshare", "-Ur", sys.executable, "-W", "error", "-c", program, str(root)]
    outcome = await asyncio.to_thread(
        subprocess.run, command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=30, check=False
    )

    assert outcome.stderr == ""
    polled, watched_again = outcome.stdout.splitlines()
    assert polled.startswith(f"{mode}; ")
    assert [word for word in words if word not in polled] == []
    assert watched_again == "inotify; all changes are made on this machine"


def longest_queue() -> int:
    """Return how many events the kernel keeps for a reader that is late."""
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


@contextmanager
def stopped_reader() -> Iterator[None]:
    """Stop the thread that empties the kernel's queue, at the first event that it takes."""
    go_on = threading.Event()
    handle = InotifyFD.handle_event

    def wait_and_handle(inotify: InotifyFD, event: InotifyEvent) -> None:
        go_on.wait(30.0)
        handle(inotify, event)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(InotifyFD, "handle_event", wait_and_handle)
        try:
            yield
        finally:
            go_on.set()


async def test_an_overflowing_queue_costs_nothing(tmp_path: Path) -> None:
    """When the kernel drops notifications the tree is looked at again at once, and new directories are watched."""
    most = longest_queue()
    if most > 100_000:
        pytest.skip(f"it would take {most} events to overflow this kernel's queue")
    root = tmp_path / "tree"
    write(root, {"a.yaml": "1"})
    async with watched(root, WatchOptions(rescan_s=1000.0)) as record:
        with stopped_reader():
            noisy = root / ".noise"
            other = root / ".noise2"
            noisy.touch()
            for _ in range(most // 2 + 100):
                noisy.rename(other)
                other.rename(noisy)
            write(root, {"late/b.yaml": "2"})
        await record.until_contents({"a.yaml": "1", "late/b.yaml": "2"})
        await record.until(lambda: record.overflows)
        write(root, {"late/b.yaml": "3"})
        await record.until_contents({"a.yaml": "1", "late/b.yaml": "3"})


async def test_what_nothing_told_is_found_by_the_next_rescan(tmp_path: Path) -> None:
    """Without any notification a change is found when the time of the next look has come."""
    root = tmp_path / "tree"
    write(root, {"a.yaml": "1"})
    async with watched(root, WatchOptions(rescan_s=0.5)) as record:
        with stopped_reader():
            write(root, {"a.yaml": "2"})
            await record.until_contents({"a.yaml": "2"})

        assert record.history == [{"a.yaml": "1"}, {"a.yaml": "2"}]
