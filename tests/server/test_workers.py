"""The processes of a server that share its addresses."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fsxds.server import workers
from fsxds.server.workers import WorkerEndedError, WorkerPlace, Workers, admin_of
from fsxds.settings.forms import OFF, FleetRule
from fsxds.settings.options import Settings
from fsxds.settings.reading import SettingsReader
from tests.support.patience import PATIENCE_S

FLEET = FleetRule(("unix:/run/fleet",))


@pytest.mark.parametrize(
    ("written", "expected"),
    [("127.0.0.1:18002", "127.0.0.1:18004"), ("[::1]:0", "[::1]:0"), ("unix:/run/a", "unix:/run/a.3"), (OFF, OFF)],
)
def test_admin_addresses(written, expected) -> None:
    """That of a worker is a port above that of the server, or a socket beside it."""
    assert admin_of(written, 3) == expected


def test_settings_of_a_worker() -> None:
    """It has no source and keeps nothing: the first process does."""
    place = WorkerPlace(2, "127.0.0.1:1", OFF, FLEET)
    settings = Settings(workers=4, state=Path("state"), mirror=Path("out"), ready_file=Path("ready"), settle_s=3.0)
    changed = place.settings_of(settings)
    assert (changed.workers, changed.http, changed.grpc, changed.fleet) == (1, "127.0.0.1:1", OFF, FLEET)
    assert (changed.state, changed.mirror, changed.ready_file) == (None, None, None)
    assert changed.reuse_port
    assert changed.settle_s == 3.0


@dataclass(slots=True)
class Components:
    """Takes the components of an application, and runs none."""

    works: dict[str, Any] = field(default_factory=dict)

    def start(self, _tasks: object, component: str, work: object) -> None:
        """Note a component."""
        self.works[component] = work


async def begin(folder: Path, _reader: object, _log: object, _beside: object) -> None:
    """Be a worker that starts for ever, and writes its process id."""
    (folder / "pid").write_text(str(os.getpid()))
    await asyncio.Event().wait()


async def live(folder: Path, _reader: object, _log: object, beside: Any) -> None:
    """Be a worker that says that it lives, and its process id."""
    components = Components()
    beside.start(components, None)
    (folder / "pid").write_text(str(os.getpid()))
    await components.works["signs of life"]()


async def pid_in(folder: Path) -> int:
    """Return the process id that a worker wrote."""
    async with asyncio.timeout(PATIENCE_S):
        while not (pid := await asyncio.to_thread(_read, folder / "pid")):  # noqa: ASYNC110, a file has no event
            await asyncio.sleep(0.02)
    return int(pid)


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


@pytest.fixture
def components(tmp_path) -> Components:
    """The component that keeps a worker."""
    reader = SettingsReader("serve", Settings)
    place = WorkerPlace(2, "127.0.0.1:1", OFF, FLEET)
    made = Workers([place], partial(live, tmp_path), reader, is_second=False)
    kept = Components()
    made.start(kept, None)  # type: ignore[arg-type]
    return kept


async def test_a_worker_that_hangs_is_killed(components, tmp_path, monkeypatch) -> None:
    """It says nothing for some time, while its process is there; the component fails, and is started again."""
    monkeypatch.setattr(workers, "CHECK_INTERVAL_S", 0.2)
    async with asyncio.timeout(PATIENCE_S):
        keeping = asyncio.create_task(components.works["worker 2"]())
        pid = await pid_in(tmp_path)
        # It has said so once.
        await asyncio.sleep(1)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(WorkerEndedError, match="was killed"):
            await keeping
    assert not await asyncio.to_thread(Path(f"/proc/{pid}").exists)


async def test_settings_are_reloaded_while_a_worker_starts(tmp_path, monkeypatch) -> None:
    """It has no handler of SIGHUP yet, which would end it: it reads the new settings anyway, or hears of them later."""
    monkeypatch.setattr(workers, "CHECK_INTERVAL_S", 0.05)
    reader = SettingsReader("serve", Settings)
    components = Components()
    place = WorkerPlace(2, "127.0.0.1:1", OFF, FLEET)
    Workers([place], partial(begin, tmp_path), reader, is_second=False).start(components, None)  # type: ignore[arg-type]
    keeping = asyncio.create_task(components.works["worker 2"]())
    try:
        while not (children := multiprocessing.active_children()):  # noqa: ASYNC110, a process has no event
            await asyncio.sleep(0)
        reader.count += 1
        await pid_in(tmp_path)
        assert not keeping.done()
        assert children[0].is_alive()
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])


async def test_a_worker_that_lives_is_left_alone(components, tmp_path, monkeypatch) -> None:
    """It is there after more looks than a silent one has; it ends when its component is cancelled."""
    monkeypatch.setattr(workers, "MOST_MISSED_HEARTBEATS", 6)
    keeping = asyncio.create_task(components.works["worker 2"]())
    try:
        pid = await pid_in(tmp_path)
        await asyncio.sleep(9)
        assert not keeping.done()
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
    assert not await asyncio.to_thread(Path(f"/proc/{pid}").exists)
