"""What the machine does: a clock that jumps, no inotify left, processes that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.faults.faulty_system import FaultySystem
from tests.faults.site import Site

HOUR_S, YEAR_S = 3600.0, 365 * 86400.0
_JUMPS_S = (HOUR_S, -HOUR_S, 10 * YEAR_S, -10 * YEAR_S, 1.0, -1.0, 86400.0)


async def clock_jumps(folder: Path, rng: Random, times: int) -> None:
    """The time of day jumps by up to ten years, either way: polls stay held, streams open, and edits arrive."""
    system = FaultySystem.here()
    system.reset()
    site = Site(folder, preloaded=system.libraries)
    async with site.running():
        for number in range(times):
            await site.until_all()
            closed, answers = len(site.server.log_events("stream_closed")), site.polls.answers.total()
            system.jump(rng.choice(_JUMPS_S))
            site.edit()
            await site.until_all()
            # No poll is answered without something new, and no stream ends.
            assert site.polls.answers.total() - answers <= 4, site.polls.answers
            assert len(site.server.log_events("stream_closed")) == closed
            if number % 5 == 4:
                await asyncio.to_thread(site.server.kill)
                system.jump(rng.choice(_JUMPS_S))
                site.edit()
                await asyncio.to_thread(site.server.start)
    system.reset()


async def inotify_exhausted(folder: Path, _rng: Random, times: int) -> None:
    """No instance of inotify is left: the tree is polled, the log says why, and inotify is used again when it can be."""
    # In a user namespace of its own, whose limits are its own too.
    site = Site(folder, wrapped=("unshare", "-Ur"))
    async with site.running():
        for number in range(times):
            _allow_inotify(site, 0)
            # What is watched stays so; a watcher that has to start again finds no instance.
            seen = len(site.server.log_events("watching"))
            site.write_settings(f"settle_cap: {2 + number % 2}s\n")
            os.kill(site.server.pid, signal.SIGHUP)
            line = await site.until_logged("watching", seen, mode="poll")
            assert "fs.inotify.max_user_instances" in line["message"], line
            site.edit()
            await site.until_all()
            _allow_inotify(site, 128)
            await site.until_logged("watching", seen, mode="inotify")
            site.edit()
            await site.until_all()


def _allow_inotify(site: Site, instances: int) -> None:
    write = f"echo {instances} > /proc/sys/user/max_inotify_instances"
    command = ["nsenter", "--user", "--preserve-credentials", "--target", str(site.server.pid), "sh", "-c", write]
    subprocess.run(command, check=True)


async def workers_killed(folder: Path, rng: Random, times: int) -> None:
    """The processes that parse are killed while they do: the edit is served all the same, and by new ones."""
    site = Site(folder)
    site.write_settings("parse_apart_above: 0B\n")
    killed = 0
    async with site.running():
        for _ in range(times):
            await site.until_all()
            site.edit()
            for _ in range(rng.randrange(1, 4)):
                await asyncio.sleep(rng.random() * 0.1)
                workers = descendants(site.server.pid)
                if workers:
                    with suppress(ProcessLookupError):
                        os.kill(rng.choice(workers), signal.SIGKILL)
                        killed += 1
    assert killed


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that they did."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children = list(map(int, (task / "children").read_text().split()))
            found += children
            for child in children:
                found += descendants(child)
    return found
