"""What upstreams hold is restored by the next process, and what changes is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.events.event import Event
from fsxds.events.upstream_events import UpstreamsRestored
from fsxds.history.state import State
from fsxds.history.state_writer import StateWriter
from fsxds.upstream.keeping import UpstreamKeeping
from fsxds.upstream.subscriptions import LINGER_S
from fsxds.upstream.upstream import Upstream
from tests.upstream.made import CDS, RDS, SERVER, came, cluster, routes, update, update_of, upstream_of


class Process:
    """What one process has: an upstream, and a state directory to keep it in."""

    def __init__(self, directory: Path, catalogue: Catalogue) -> None:
        """Hold the directory; nothing is restored yet."""
        self.events: list[Event] = []
        self.upstream: Upstream = upstream_of(catalogue)
        self.state = State.open(directory, self.events.append)
        self.writer = StateWriter(self.state, None, self.events.append)
        self.keeping = UpstreamKeeping([self.upstream], self.writer, self.events.append)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep what changes while the context lasts, and end then."""
        async with asyncio.TaskGroup() as tasks:
            works = (self.keeping.keep_noted(self.upstream), self.writer.keep_written())
            running = [tasks.create_task(work) for work in works]
            await asyncio.sleep(0)
            yield
            for task in running:
                task.cancel()
        self.state.close()


@pytest.fixture
def first(tmp_path: Path, catalogue: Catalogue) -> Process:
    """Return the first process that has a directory."""
    return Process(tmp_path / "state", catalogue)


def next_of(process: Process, catalogue: Catalogue, now_s: float) -> Process:
    """Return the next process with the same directory, which has restored what there is."""
    made = Process(process.state.path, catalogue)
    made.keeping.restore(None, now_s)
    return made


async def test_all_that_is_held_is_restored(first: Process, catalogue: Catalogue) -> None:
    """With the versions of the server; what changed then, or was removed, is there as it was last."""
    async with first.running():
        first.upstream.receive(update(CDS, {"a": cluster("a"), "b": cluster("b")}), SERVER, 100.0)
        first.upstream.receive(update_of(CDS, came(CDS, "a", cluster("a", timeout_s=9), "own")), SERVER, 200.0)
    second = next_of(first, catalogue, 300.0)
    assert second.upstream.held == first.upstream.held
    assert second.upstream.versions(SERVER, CDS) == first.upstream.versions(SERVER, CDS)
    assert second.upstream.status().last_update_s == 200.0
    (restored,) = second.events
    assert restored == UpstreamsRestored(first.state.path, {SERVER: 2}, 200.0)
    async with second.running():
        second.upstream.receive(update(CDS, {}, "b"), SERVER, 400.0)

    assert [*next_of(second, catalogue, 500.0).upstream.held[CDS]] == ["a"]


async def test_what_expired_meanwhile_goes(first: Process, catalogue: Catalogue) -> None:
    """A time to live goes on while no process runs, from when it was renewed last."""
    now_s = time.time()
    async with first.running():
        for name in ("renewed", "over"):
            first.upstream.receive(update_of(CDS, came(CDS, name, cluster(name), ttl_s=10.0)), SERVER, now_s)
        heartbeat = update(CDS, {})
        first.upstream.receive(
            type(heartbeat)(CDS, heartbeat.version, heartbeat.nonce, {}, (), False, ("renewed",)), SERVER, now_s + 8
        )
    second = next_of(first, catalogue, now_s + 15)
    assert [*second.upstream.held[CDS]] == ["renewed"]
    async with second.running():
        pass

    assert not next_of(second, catalogue, now_s + 30).upstream.held


async def test_what_clients_asked_for_is_asked_for_again(first: Process, catalogue: Catalogue) -> None:
    """As long as they have time to come back; what none of them asks for then is dropped, and what is held is never old."""
    async with first.running():
        first.upstream.ask({RDS: frozenset({"r", "q"})}, 100.0)
        first.upstream.receive(update(RDS, {"r": routes("r"), "q": routes("q")}), SERVER, 100.0)
    second = next_of(first, catalogue, 200.0).upstream
    assert second.wanted()[RDS] == {"r", "q"}
    assert second.versions(SERVER, RDS).keys() == {"r", "q"}
    second.ask({RDS: frozenset({"q"})}, 300.0)
    second.expire(200.0 + LINGER_S)

    assert second.wanted()[RDS] == {"q"}
    assert [*second.held[RDS]] == ["q"]


async def test_nothing_to_restore(first: Process) -> None:
    """A first start reports nothing, and holds nothing."""
    first.keeping.restore(None, 1.0)

    assert not first.upstream.held
    assert first.events == []
