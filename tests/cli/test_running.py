from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys

import pytest

from fsxds.cli.running import run, spinner
from fsxds.model.errors import FsxdsError, UsageError


async def fail(error: Exception) -> None:
    """End a task of a group within a group with an error."""
    async with asyncio.TaskGroup() as outer:
        outer.create_task(fail_in_group(error))


async def fail_in_group(error: Exception) -> None:
    """End a task of a group with an error."""

    async def raise_it() -> None:
        raise error

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(raise_it())


def test_errors_for_people_come_out_of_their_groups() -> None:
    """An error of ours in a task arrives with its text alone."""
    with pytest.raises(FsxdsError, match=r"^the port is taken$"):
        run(fail(UsageError("the port is taken")))


def test_bugs_stay_in_their_groups() -> None:
    """Any other exception arrives as it is, for a traceback."""
    with pytest.raises(ExceptionGroup):
        run(fail(ValueError("a bug")))


def test_no_spinner_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """Where stderr is no terminal, nothing is written."""
    with spinner("loading"):
        pass

    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("duration_s", "is_seen"), [(0.0, False), (1.6, True)])
def test_a_spinner_for_long_work_on_a_terminal(duration_s: float, is_seen: bool) -> None:
    """On a terminal, work that takes longer than a second shows a sign of life on stderr, shorter work does not."""
    code = f"import time\nfrom fsxds.cli.running import spinner\nwith spinner('loading'): time.sleep({duration_s})"
    terminal, their_end = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color"}
    subprocess.run([sys.executable, "-c", code], stderr=their_end, check=True, env=environment)
    os.set_blocking(terminal, False)
    try:
        seen = os.read(terminal, 100_000)
    except BlockingIOError:
        seen = b""
    os.close(their_end)
    os.close(terminal)

    assert is_seen == (b"loading" in seen)
