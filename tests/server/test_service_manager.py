"""A service manager that is told how fsxds is: a real datagram socket, and a real `fsxds serve`."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fsxds.server.service_manager import ServiceManager
from tests.support.fsxds_process import start_fsxds
from tests.support.patience import PATIENCE_S


class Listener:
    """What systemd has: a datagram socket, and the messages that came so far, line by line."""

    def __init__(self, name: str) -> None:
        self.lines: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(name)
        self._socket.setblocking(False)

    def read(self) -> list[str]:
        """Return all lines."""
        while True:
            try:
                self.lines += self._socket.recv(65536).decode().splitlines()
            except BlockingIOError:
                return self.lines

    def wait(self, holds: Callable[[list[str]], bool]) -> None:
        """Wait until lines are there."""
        ends_at_s = time.monotonic() + PATIENCE_S
        while not holds(self.read()):
            assert time.monotonic() < ends_at_s, self.lines
            time.sleep(0.02)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    made = Listener(str(tmp_path / "notify"))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("environment", "has_one", "has_watchdog"),
    [
        ({}, False, False),
        ({"NOTIFY_SOCKET": "vsock:2:1"}, False, False),
        ({"NOTIFY_SOCKET": "/x"}, True, False),
        ({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "3000000"}, True, True),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, True, True),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, True, False),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"}, True, False),
    ],
)
def test_what_the_environment_says(environment: dict[str, str], has_one: bool, has_watchdog: bool) -> None:
    """A watchdog may be meant for another process."""
    manager = ServiceManager.of(environment)

    assert (manager is not None) == has_one
    assert manager is None or manager._has_watchdog == has_watchdog


async def test_what_is_told(listener: Listener, tmp_path: Path) -> None:
    """Why the start takes long, once; then that it is ready, how it is, each reload, and signs of life."""
    waits, status, reloads = ["a  file\nor two"], ["serving"], [0]
    manager = ServiceManager(str(tmp_path / "notify"), watchdog_s=0.03)

    async def until(line: str, count: int = 1) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while listener.read().count(line) < count:  # noqa: ASYNC110, a socket of the test
                await asyncio.sleep(0.005)

    async with asyncio.TaskGroup() as tasks:
        telling = tasks.create_task(manager.keep_notified(lambda: waits[0], lambda: status[0], lambda: reloads[0]))
        await until("WATCHDOG=1", 3)
        waits[0] = ""
        await until("STATUS=serving")
        reloads[0] += 1
        await until("READY=1", 2)
        status[0] = "serving; degraded: watcher"
        await until("STATUS=serving; degraded: watcher")
        telling.cancel()

    told = [line.partition("=")[0] if "USEC" in line else line for line in listener.lines if line != "WATCHDOG=1"]
    assert told == [
        *("STATUS=waiting for a file or two", "READY=1", "STATUS=serving"),
        *("RELOADING=1", "MONOTONIC_USEC", "READY=1", "STATUS=serving; degraded: watcher"),
    ]


def test_an_abstract_socket() -> None:
    """Containers have them."""
    name = f"@fsxds-test-{os.getpid()}"
    listener = Listener(f"\0{name[1:]}")
    ServiceManager(name).stop()

    assert listener.read() == ["STOPPING=1", "STATUS=ending"]
    listener.close()


def test_nobody_listens(tmp_path: Path) -> None:
    """A manager that is gone, or does not read, stops nothing."""
    ServiceManager(str(tmp_path / "none")).stop()
    listener = Listener(str(tmp_path / "full"))
    for _ in range(2000):
        ServiceManager(str(tmp_path / "full")).notify("WATCHDOG=1")

    assert set(listener.read()) == {"WATCHDOG=1"}
    listener.close()


def test_no_file_can_be_opened(listener: Listener, tmp_path: Path) -> None:
    """A process at its limit of open files stops nothing either."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        ServiceManager(str(tmp_path / "notify")).notify("WATCHDOG=1")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert listener.read() == []


def test_a_process_under_a_service_manager(listener: Listener, tmp_path: Path) -> None:
    """It waits for configuration, is ready, reloads on SIGHUP, and ends; its children know nothing of all this."""
    (tree := tmp_path / "tree").mkdir()
    addresses = ["--http", "127.0.0.1:0", "--grpc", "off", "--admin", "off"]
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
    with (tmp_path / "log").open("wb") as log:
        process = start_fsxds(["serve", str(tree), *addresses], stdout=log, stderr=log, env=environment)
    try:
        listener.wait(lambda lines: any("first file with configuration" in line for line in lines))
        assert "READY=1" not in listener.lines
        (tree / "cds.json").write_text('[{"name": "a", "connect_timeout": "1s"}]')
        listener.wait(lambda lines: "STATUS=serving" in lines)
        assert listener.lines.count("READY=1") == 1
        process.send_signal(signal.SIGHUP)
        listener.wait(lambda lines: lines.count("READY=1") == 2)
        assert "RELOADING=1" in listener.lines
        count = listener.lines.count("WATCHDOG=1")
        listener.wait(lambda lines: lines.count("WATCHDOG=1") > count + 2)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()

    assert "STOPPING=1" in listener.read()
