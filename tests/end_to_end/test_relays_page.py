"""The page about relays: its commands run as they are written, on ports that are free."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.project.test_readme import blocks
from tests.support.fsxds_process import FsxdsProcess, start_fsxds
from tests.support.grpc_envoy import StreamingEnvoy
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.structured_names import structured

TOP = Path(__file__).parents[2]
PORT = re.compile(r"\b(?:180\d\d|10001)\b")


class Shell:
    """A copy of `config/`, in which commands run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(TOP / "config", folder / "config")
        self._ports: defaultdict[str, str] = defaultdict(lambda: str(free_port()))
        for path in [path for path in (folder / "config").rglob("*") if path.is_file()]:
            path.write_text(self.moved(path.read_text()))
        defaults = {"FSXDS_GRPC": "127.0.0.1:18000", "FSXDS_HTTP": "127.0.0.1:18001", "FSXDS_ADMIN": "127.0.0.1:18002"}
        self._environment = {**os.environ, **{name: self.moved(value) for name, value in defaults.items()}}
        self._running: dict[str, FsxdsProcess] = {}

    def moved(self, text: str) -> str:
        """Return a text with ports that are free."""
        return PORT.sub(lambda port: self._ports[port[0]], text)

    def start(self, line: str) -> None:
        """Run a command that goes on."""
        name, *arguments = shlex.split(self.moved(line))
        assert name == "fsxds"
        with (self.folder / "fsxds.log").open("ab") as log:
            self._running[line] = start_fsxds(arguments, stdout=log, stderr=log, cwd=self.folder, env=self._environment)

    def kill(self, *lines: str) -> None:
        """End commands that go on, by SIGKILL."""
        for line in lines:
            process = self._running.pop(line)
            process.kill()
            process.wait(PATIENCE_S)

    def run(self, line: str) -> str:
        """Run a command to its end, and return what it prints; empty where it fails."""
        name, *arguments = shlex.split(self.moved(line))
        if name == "curl":
            return self._get(arguments)
        assert name == "fsxds"
        printed = self.folder / "printed"
        with printed.open("wb") as output:
            process = start_fsxds(arguments, stdout=output, stderr=output, cwd=self.folder, env=self._environment)
        try:
            return printed.read_text() if process.wait(PATIENCE_S) == 0 else ""
        except subprocess.TimeoutExpired:
            process.kill()
            raise

    def until(self, line: str, expected: str) -> None:
        """Run a command until this is in what it prints."""
        deadline = time.monotonic() + PATIENCE_S
        while expected not in (printed := self.run(line)):
            assert time.monotonic() < deadline, (line, printed, (self.folder / "fsxds.log").read_text()[-4000:])
            time.sleep(0.1)

    def end(self) -> None:
        """End all that goes on."""
        self.kill(*self._running)

    def _get(self, arguments: list[str]) -> str:
        """Do what curl does."""
        *options, url = [each for each in arguments if each != "-s"]
        headers = dict(each.split(": ") for each in options if each != "-H")
        with suppress(OSError):
            request = urllib.request.Request(f"http://{url}", headers=headers)
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return str(answer.read().decode())
        return ""


def lines_of(marker: str) -> list[str]:
    """Return the commands of a block of the page."""
    (block,) = [block for block in blocks("sh") if block.marker == f"relays: {marker}"]
    return block.text.splitlines()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Where the commands run."""
    made = Shell(tmp_path)
    yield made
    made.end()


def test_the_relay_of_the_page(shell: Shell) -> None:
    """It serves what both control planes have; without them too, and after a restart, also to the Envoy of the page."""
    *control_planes, relay = lines_of("servers")
    cluster = structured("Cluster", "edge/shop")
    expected = dict(zip(lines_of("asked"), ("backend", cluster, shell.moved("10001"), "backend"), strict=True))
    for line in (*control_planes, relay):
        shell.start(line)
    for line, text in expected.items():
        shell.until(line, text)

    shell.kill(*control_planes)
    assert all(text in shell.run(line) for line, text in expected.items())

    shell.kill(relay)
    shell.start(relay)
    for line, text in expected.items():
        shell.until(line, text)
    bootstrap = yaml.safe_load((shell.folder / "config/relays/envoy.yaml").read_text())
    with StreamingEnvoy(bootstrap) as envoy:
        envoy.until_clusters(cluster)
        assert {"127.0.0.1:8080"} == envoy.endpoints(cluster)
