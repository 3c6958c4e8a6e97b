"""What the pages show of `fsxds dev` is what it writes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.patience import PATIENCE_S

TOP = Path(__file__).parents[2]

# What differs from run to run: times, ports, durations.
NUMBERS = re.compile(r"\d+")


def shown(page: str) -> list[str]:
    """Return the lines that a page shows as the output of `fsxds dev`, without numbers."""
    text = (TOP / page).read_text(encoding="utf-8")
    (block,) = re.findall(r"^<!-- dev-output -->\n```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return masked(block)


def masked(text: str) -> list[str]:
    """Return lines without numbers."""
    return NUMBERS.sub("0", text).splitlines()


class Dev:
    """A running `fsxds dev` on a copy of the sample tree, with ports that nobody else uses."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "xds"
        shutil.copytree(TOP / "config" / "xds", self.tree)
        for path in self.tree.glob("listeners/*.yaml"):
            path.write_text(re.sub(r"port_value: 1\d{4}", "port_value: 0", path.read_text()))
        self._output = folder / "output"
        command = [
            sys.executable,
            "-m",
            "fsxds",
            "dev",
            str(self.tree),
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
        ]
        environment = {**os.environ, "PYTHONPATH": str(TOP), "FSXDS_LOG_FORMAT": "human"}
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=folder)

    @property
    def lines(self) -> list[str]:
        """What it wrote so far."""
        return self._output.read_text(encoding="utf-8").splitlines()

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace the first `old` in a file."""
        path = self.tree / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def wait_for(self, line: str) -> str:
        """Wait until a line like this was written after those that were waited for before, and return it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for written in self.lines:
                if masked(written) == [line]:
                    return written
            assert time.monotonic() < deadline, f"no line {line!r} in\n" + "\n".join(self.lines)
            time.sleep(0.1)


def test_the_output_on_the_pages_is_written(tmp_path: Path) -> None:
    """The start in README, and an edit, a mistake, its correction and a NACK in `fsxds/cli/README.md`."""
    took, served, found, held, fixed, recovered, nacked = shown("fsxds/cli/README.md")
    dev = Dev(tmp_path)
    try:
        start = [dev.wait_for(line) for line in shown("README.md")]
        dev.edit("routes.yaml", "the new page", "the newer page")
        for line in (took, served):
            dev.wait_for(line)
        dev.edit("clusters.yaml", "connect_timeout", "conect_timeout")
        for line in (found, held):
            dev.wait_for(line)
        dev.edit("clusters.yaml", "conect_timeout", "connect_timeout")
        for line in (fixed, recovered):
            dev.wait_for(line)
        dev.edit("listeners/web.yaml", "port_value: 0", f"port_value: {start[0].rpartition(':')[2]}")
        dev.wait_for(nacked)
    finally:
        dev.process.send_signal(signal.SIGTERM)
        dev.process.wait(PATIENCE_S)
