"""The unit: what systemd says to it, and its very command line."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.test_compose import wait_until
from tests.support.dockerfile import TOP
from tests.support.fsxds_process import start_fsxds

UNIT = TOP / "docker/systemd/fsxds.service"

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")


def value(name: str) -> str:
    """Return the value of a key of the unit."""
    (found,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(found)


def local_unit(folder: Path) -> str:
    """Return the path of the unit with an executable that is here."""
    path = folder / UNIT.name
    path.write_text(UNIT.read_text().replace("/opt/fsxds/bin/fsxds", sys.executable))
    return str(path)


@needs_systemd
def test_systemd_knows_every_line(tmp_path: Path) -> None:
    """Verifying prints nothing."""
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", local_unit(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)

    assert (0, "") == (done.returncode, done.stdout + done.stderr)


@needs_systemd
def test_unit_is_exposed_to_little(tmp_path: Path) -> None:
    """As systemd counts it, of 10."""
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", local_unit(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)

    assert 0 == done.returncode, done.stdout[-500:] + done.stderr


def test_command_line_serves_at_sockets_for_the_group_and_reloads(tmp_path: Path) -> None:
    """Every option exists, what it writes is in directories that the unit makes, and SIGHUP does not end it."""
    places = {
        "/run/fsxds": "RuntimeDirectory",
        "/var/lib/fsxds": "StateDirectory",
        "/var/cache/fsxds": "CacheDirectory",
    }
    words = value("ExecStart").split()[1:]
    for place, key in places.items():
        assert "fsxds" == value(key)
        folder = tmp_path / place.strip("/")
        folder.mkdir(parents=True)
        folder.chmod(0o700 if key != "RuntimeDirectory" else 0o750)
        words = [word.replace(place, str(folder)) for word in words]
    words = [word.replace("/etc/fsxds/xds", str(TOP / "config/xds")) for word in words]
    ready_file = tmp_path / "run/fsxds/ready.json"
    log = tmp_path / "log"
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(60)
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "FSXDS_ADMIN": "127.0.0.1:0"}
    with log.open("wb") as file:
        process = start_fsxds(words, stdout=file, stderr=file, env=environment)
    try:
        assert "notify" == value("Type")
        with manager:
            while b"READY=1" not in manager.recv(4096).splitlines():
                pass
        wait_until(lambda: ready_file.exists() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        modes = {stat.S_IMODE((tmp_path / f"run/fsxds/{name}.sock").stat().st_mode) for name in ("rest", "grpc")}
        assert {0o660} == modes
        assert any((tmp_path / "var/lib/fsxds").iterdir())

        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "settings_reloaded" in log.read_text() or process.poll() is not None)
        assert json.loads(ready_file.read_text())["pid"] == process.pid

        process.terminate()
        assert 0 == process.wait(60)
    finally:
        process.kill()
