"""The process of an Envoy of our own: its log, and that it never outlives us."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fsxds.envoy.envoy_log import EnvoyLogLine
from fsxds.envoy.follow import LINES_KEPT, LONGEST_LINE_BYTES, EnvoyLog, LocalEnvoy, running_envoy
from tests.support.envoy import find_envoy
from tests.support.patience import PATIENCE_S

# Prints the pid of an Envoy and waits.
STARTER = f"""
import asyncio
from pathlib import Path
from fsxds.envoy.follow import running_envoy

async def main():
    async with running_envoy(Path({find_envoy()!r}), {{}}) as envoy:
        print(envoy.pid, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_log_keeps_the_last_lines() -> None:
    """What came since a moment is known as far as it is kept."""
    log = EnvoyLog()
    for number in range(LINES_KEPT + 5):
        log.append(f"info main {number}")

    assert [line.message for line in log.since(LINES_KEPT + 3)] == [str(LINES_KEPT + 3), str(LINES_KEPT + 4)]
    assert len(log.since(0)) == LINES_KEPT
    assert log.since(log.length) == ()


class Lines:
    """Collects lines, and tells when a certain one is there."""

    def __init__(self, awaited: str = "") -> None:
        self.all: list[EnvoyLogLine] = []
        self._awaited = awaited
        self.is_there = asyncio.Event()

    def append(self, line: EnvoyLogLine) -> None:
        """Take one more line."""
        self.all.append(line)
        if self._awaited in line.message:
            self.is_there.set()


@asynccontextmanager
async def running(executable: Path, lines: Lines) -> AsyncIterator[LocalEnvoy]:
    """Run a process whose log is read to the end."""
    async with (
        asyncio.timeout(PATIENCE_S),
        asyncio.TaskGroup() as tasks,
        running_envoy(executable, {}, lines.append) as envoy,
    ):
        tasks.create_task(envoy.read_log())
        yield envoy


def fake_envoy(path: Path, script: str) -> Path:
    """Write a program that stands in for Envoy."""
    path.write_text(script)
    path.chmod(0o755)
    return path


async def test_every_line_of_the_log_is_told() -> None:
    """From the first line on, each with its level and its logger."""
    lines = Lines("starting main dispatch loop")
    async with running(Path(find_envoy()), lines):
        await lines.is_there.wait()

    assert any(line.level == "info" and line.logger == "main" for line in lines.all)


async def test_line_without_end_is_cut(tmp_path: Path) -> None:
    """A process that prints megabytes in one line does not fill the memory, and the next line is read."""
    script = f"#!{sys.executable}\nprint('x' * 5_000_000)\nprint('warning config after')\n"
    lines = Lines()
    async with running(fake_envoy(tmp_path / "envoy", script), lines) as envoy:
        assert await envoy.ended() == 0

    assert len(lines.all[0].message) <= LONGEST_LINE_BYTES
    assert lines.all[1] == EnvoyLogLine("warning", "config", "after")


async def test_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """The end does not wait for ever."""
    script = "#!/bin/sh\ntrap '' TERM\necho ready\nwhile :; do sleep 0.05; done\n"
    lines = Lines("ready")
    async with running(fake_envoy(tmp_path / "envoy", script), lines) as envoy:
        await lines.is_there.wait()

    assert await envoy.ended() == -signal.SIGKILL


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv of util-linux")
def test_envoy_ends_when_its_starter_is_killed() -> None:
    """No Envoy is left behind by a process that had no time to end it."""
    with subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        starter.kill()
    deadline = time.monotonic() + PATIENCE_S
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Return whether a process runs; one that only waits to be collected does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
