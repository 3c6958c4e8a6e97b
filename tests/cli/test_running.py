from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from fsxds.cli.running import spinner


def test_no_spinner_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """Where stderr is no terminal, nothing is written."""
    with spinner("loading"):
        pass

    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("shown", ["spinner", "progress_bar"])
@pytest.mark.parametrize(("duration_s", "is_seen"), [(0.0, False), (1.6, True)])
def test_a_spinner_for_long_work_on_a_terminal(shown: str, duration_s: float, is_seen: bool) -> None:
    """On a terminal, work that takes longer than a second shows a sign of life on stderr, shorter work does not."""
    code = f"import time\nfrom fsxds.cli.running import {shown}\nwith {shown}('loading'): time.sleep({duration_s})"
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
