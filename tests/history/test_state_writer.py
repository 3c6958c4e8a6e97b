from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from fsxds.events.event import Event
from fsxds.events.process_events import StateFailed, StateIgnored, StateRecovered, StateRestored
from fsxds.history.state import State
from fsxds.history.state_directory import DATABASE
from fsxds.history.state_writer import StateWriter
from fsxds.model.errors import StateError
from fsxds.model.name_table import NameTable
from fsxds.model.values import Version
from fsxds.rollout.machine import RolloutState
from fsxds.rollout.rejections import Nack, Rejections
from fsxds.runtime.channels import ChannelKey
from fsxds.runtime.row_source import KeptUpstream
from fsxds.settings.rollout_forms import NackLimit
from fsxds.snapshots.upstream_content import HeldResource
from tests.history.made import CDS
from tests.support.rollouts import OneVoter, tree_of, tree_snapshot

WHOLE = ChannelKey()


class Writing:
    """A writer that runs, and the rollouts that it reads."""

    def __init__(self, directory: Path) -> None:
        """Hold a directory."""
        self.events: list[Event] = []
        self.happened = asyncio.Event()
        self.state = State.open(directory, self._observe)
        self.writer = StateWriter(self.state, directory, self._observe)
        self.served: dict[ChannelKey, RolloutState] = {}

    def _observe(self, event: Event) -> None:
        self.events.append(event)
        self.happened.set()

    def serve(self, content: str, key: ChannelKey = WHOLE) -> None:
        """Serve one cluster with this content."""
        snapshot = tree_snapshot({"CDS": {"a": content}})
        self.served[key] = RolloutState(snapshot, snapshot, snapshot)
        self.writer.save(key, lambda: self.served[key])

    def on_disk(self, key: ChannelKey = WHOLE) -> str | None:
        """Return the content that is on the disk."""
        found = self.state.rollouts(0.0).get(key)
        return None if found is None else tree_of(found.served)["CDS"]["a"]

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        while not is_so():  # noqa: ASYNC110 - the disk has no events
            await asyncio.sleep(0)

    async def until_reported(self, sort: type[Event]) -> None:
        """Wait for an event."""
        while not any(isinstance(event, sort) for event in self.events):
            self.happened.clear()
            await self.happened.wait()


@asynccontextmanager
async def running(writing: Writing) -> AsyncIterator[None]:
    """Run the writer."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(writing.writer.keep_written())
        # One that was never started ends without a word.
        await asyncio.sleep(0)
        yield
        task.cancel()


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    """Return a writer to a directory."""
    return Writing(tmp_path / "state")


async def test_newest_state_wins(writing: Writing) -> None:
    """What is served is on the disk soon; of what was overtaken, nothing is written."""
    async with running(writing):
        for number in range(100):
            writing.serve(str(number))
        await writing.until(lambda: writing.on_disk() == "99")

    assert [row.number for row in writing.state.entries()] == [1]


async def test_what_is_due_at_the_end_is_written(writing: Writing) -> None:
    """A process that ends leaves what it served last, also where nothing ran since."""
    async with running(writing):
        await asyncio.sleep(0)
        writing.serve("last")

    assert writing.on_disk() == "last"


async def test_nothing_is_written_again(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollout in which nothing changed but the time costs no write."""
    async with running(writing):
        writing.serve("1")
        await writing.until(lambda: writing.on_disk() == "1")
        monkeypatch.setattr(State, "save", _raise(AssertionError()))
        for _ in range(10):
            writing.writer.save(WHOLE, lambda: writing.served[WHOLE])
            await asyncio.sleep(0)


async def test_full_disk_is_reported_and_tried_again(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be written, that is reported, and with the next change or after a while it is tried again."""
    async with running(writing):
        with monkeypatch.context() as full:
            full.setattr("fsxds.history.state.object_of", _raise(OSError(28, "No space left on device")))
            writing.serve("1")
            await writing.until_reported(StateFailed)
        # The first retry comes by itself.
        await writing.until_reported(StateRecovered)
        assert writing.on_disk() == "1"
        writing.serve("2")
        await writing.until(lambda: writing.on_disk() == "2")

    failed = [event for event in writing.events if isinstance(event, StateFailed)]
    assert (failed[0].directory, failed[0].reason, failed[0].retry_s) == (
        writing.state.path,
        "No space left on device",
        1.0,
    )


async def test_removed_directory_is_filled_again(writing: Writing) -> None:
    """When somebody removes the directory, the next change writes the places of all rollouts, not its own alone."""
    other = ChannelKey(("other",))
    async with running(writing):
        writing.serve("1")
        writing.serve("2", other)
        await writing.until(lambda: writing.on_disk(other) == "2")
        shutil.rmtree(writing.state.path)
        writing.serve("3", other)
        await writing.until(lambda: (writing.on_disk(), writing.on_disk(other)) == ("1", "3"))


async def test_forgotten_rollout_is_removed(writing: Writing) -> None:
    """A rollout that nobody follows any more is not restored; it may come back later. Its history stays."""
    other = ChannelKey(("other",))
    async with running(writing):
        writing.serve("1")
        writing.serve("2", other)
        await writing.until(lambda: writing.on_disk(other) == "2")
        writing.writer.forget(other)
        await writing.until(lambda: writing.on_disk(other) is None)
        assert len(writing.state.entries(("other",))) == 1
        writing.serve("2", other)
        await writing.until(lambda: writing.on_disk(other) == "2")
    assert writing.on_disk() == "1"


async def test_error_within_loses_nothing(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of fsxds ends the component, and the next run of it writes what was due."""
    with monkeypatch.context() as failing:
        failing.setattr("fsxds.history.state.object_of", _raise(ZeroDivisionError()))
        writing.serve("1")
        with suppress(ZeroDivisionError):
            await writing.writer.keep_written()
    async with running(writing):
        writing.serve("2", ChannelKey(("other",)))
        await writing.until(lambda: writing.on_disk() == "1")


async def test_error_within_delays_no_upstream_for_good(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error of fsxds, the next run writes resources of upstreams that were due, and later ones."""
    upstreams = [upstream_of("1")]
    writing.writer.read_upstreams = lambda: upstreams
    with monkeypatch.context() as failing:
        failing.setattr(writing.state, "keep_upstreams", _raise(ZeroDivisionError()))
        writing.writer.note_upstreams()
        with pytest.raises(ZeroDivisionError):
            await writing.writer.keep_written()
    async with running(writing):
        await writing.until(lambda: version_on_disk(writing) == "1")
        upstreams[0] = upstream_of("2")
        writing.writer.note_upstreams()
        await writing.until(lambda: version_on_disk(writing) == "2")


async def test_restart_is_reported(writing: Writing) -> None:
    """What an earlier process served comes back with a line of the log; of an empty or unreadable directory, nothing."""
    assert writing.writer.restored() == {}
    async with running(writing):
        writing.serve("1")
    assert set(writing.writer.restored()) == {WHOLE}
    assert writing.events == [StateRestored(writing.state.path, 1, 0)]

    writing.events.clear()
    writing.state.close()
    (writing.state.path / DATABASE).unlink()
    writing.state.path.chmod(0o777)
    assert writing.writer.restored() == {}
    (event,) = writing.events
    assert isinstance(event, StateIgnored)
    assert "others can write to it" in event.reason


def _raise(error: Exception) -> Callable[..., object]:
    def fail(*_: object) -> object:
        raise error

    return fail


def upstream_of(content: str) -> KeptUpstream:
    """Return an upstream that holds one cluster with this content."""
    cluster = tree_snapshot({"CDS": {"a": content}}).resources(CDS)["a"]
    table = NameTable({"a": HeldResource(cluster, content, "up:1", 1.0)})
    return KeptUpstream("up:1", ("up:1",), {CDS: table})


def version_on_disk(writing: Writing) -> str | None:
    """Return the version of the cluster that is on the disk as that of the upstream."""
    held = State.restored_upstreams(writing.state, [KeptUpstream("up:1", ("up:1",))]).held
    return held["up:1"][CDS]["a"].version if held else None


async def test_upstreams_are_written_soon(writing: Writing) -> None:
    """What upstreams hold is on the disk soon after it was noted, and what is noted at the end is, too."""
    upstreams = [upstream_of("1")]
    writing.writer.read_upstreams = lambda: upstreams
    async with running(writing):
        writing.writer.note_upstreams()
        await writing.until(lambda: version_on_disk(writing) == "1")
        upstreams[0] = upstream_of("2")
        writing.writer.note_upstreams()

    assert version_on_disk(writing) == "2"


async def test_upstreams_are_never_behind_what_is_served(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is served of an upstream is not written without what it holds: a process that is killed between them goes on from there."""
    writing.writer.read_upstreams = lambda: [upstream_of("1")]
    async with running(writing):
        with monkeypatch.context() as full:
            full.setattr(State, "keep_upstreams", _raise(StateError("no space")))
            writing.serve("1")
            await writing.until_reported(StateFailed)
            assert writing.on_disk() is None
        await writing.until(lambda: writing.on_disk() == "1")
        assert version_on_disk(writing) == "1"


async def test_what_is_restored_of_upstreams(writing: Writing) -> None:
    """What they held is returned; what is dropped, damaged or cannot be read is reported, and a start goes on."""
    writing.state.keep_upstreams([upstream_of("1"), upstream_of("2")._replace(name="b", servers=("b",))])
    writing.state.close()
    with closing(sqlite3.connect(writing.state.path / DATABASE)) as connection:
        connection.execute("UPDATE held_resources SET version = 'x' WHERE upstream = 1")
        connection.commit()
    found = writing.writer.restored_upstreams([KeptUpstream("up:1", ("up:1",))])
    assert not found.held
    reported = [event for event in writing.events if isinstance(event, StateIgnored)]
    assert [event.subject for event in reported] == ["upstream b", "upstream up:1"]
    writing.state.path.chmod(0o777)
    writing.state.close()
    assert not writing.writer.restored_upstreams([]).held
    assert "others can write" in str(writing.events[-1])
    writing.state.path.chmod(0o700)


async def test_rejections_are_written_when_they_differ(writing: Writing) -> None:
    """A node that goes on with what it rejects costs no write at each decision; a NACK, an offer and the end are one each."""
    rejections, version = Rejections(NackLimit()), ((CDS, "a"), Version("1"))
    voter = OneVoter("edge-1", "edge-1")
    writing.writer.restore_rejections(rejections)

    def nack() -> None:
        rejections.receive_nack(("edge-1", ""), voter, Nack(frozenset({version})), 1000.0)

    async def decide(change: Callable[[], object]) -> int:
        change()
        writes = 0
        for _ in range(10):
            before = len(writing.events)
            writing.writer.note_rejections()
            # A write takes a thread; none takes a turn.
            for _ in range(100):
                await asyncio.sleep(0.0005)
                if len(writing.events) > before:
                    break
            writes += len(writing.events) - before
        return writes

    async with running(writing):
        assert await decide(nack) == 1
        assert await decide(lambda: rejections.offer(2000.0)) == 1
        assert await decide(nack) == 1
        assert await decide(lambda: rejections.forget([version])) == 1
        assert await decide(nack) == 1
        shutil.rmtree(writing.state.path)
        writing.serve("1")
        await writing.until(lambda: writing.on_disk() == "1")
        again = Rejections(NackLimit())

        def is_restored() -> bool:
            writing.state.restore_rejections(again, 0.0, 0.0)
            return bool(again.nodes)

        await writing.until(is_restored)
