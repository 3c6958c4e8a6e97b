"""What the kernel's limits do to a watch."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsxds.sources.watch import WatchOptions
from tests.sources.watching import watched, write

# Runs in a user namespace of its own, whose limits are its own too: watches a directory, says in which mode,
# and says what it reads when its input says so.
LIMITED = """
import asyncio, sys
from pathlib import Path
from fsxds.sources.watch import WatchOptions
from tests.sources.watching import watched, write

async def main(root):
    Path("/proc/sys/user/{limit}").write_text("{value}")
    async with watched(root, WatchOptions(poll_s=0.1)) as record:
        write(root, {{"7/a.yaml": "edited"}})
        await record.until(lambda: record.history[-1]["7/a.yaml"] == "edited")
        print(*record.modes[-1], sep="; ")

asyncio.run(main(Path(sys.argv[1])))
"""


def can_make_user_namespaces() -> bool:
    try:
        return subprocess.run(["unshare", "-Ur", "true"], check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not can_make_user_namespaces(), reason="needs user namespaces (unshare -Ur)")
@pytest.mark.parametrize(("limit", "value"), [("max_inotify_watches", 5), ("max_inotify_instances", 0)])
async def test_polling_takes_over_when_watches_run_out(tmp_path: Path, limit: str, value: int) -> None:
    """A tree with more directories than watches, or a user without a free inotify instance, is polled, and told so."""
    write(tmp_path, {f"{number}/a.yaml": "1" for number in range(10)})
    program = LIMITED.format(limit=limit, value=value)
    command = ["unshare", "-Ur", sys.executable, "-W", "error", "-c", program, str(tmp_path)]
    outcome = await asyncio.to_thread(
        subprocess.run, command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=30, check=False
    )

    assert outcome.stderr == ""
    assert outcome.stdout.startswith("poll; the kernel gives no more watches: inotify")


def longest_queue() -> int:
    """Return how many events the kernel keeps for a reader that is late."""
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


@contextmanager
def stopped_reader() -> Iterator[None]:
    """Stop the thread that empties the kernel's queue: it waits in the log record that it writes for each event."""
    go_on = threading.Event()
    logger = logging.getLogger("watchdog.observers.inotify_move_event_grouper")

    class Stopper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            go_on.wait(30.0)

    stopper = Stopper()
    level = logger.level
    logger.addHandler(stopper)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(stopper)
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
            noisy = root / "noise.txt"
            other = root / "noise2.txt"
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
