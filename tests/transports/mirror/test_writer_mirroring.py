"""A directory that is kept in step with the store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fsxds.events.event import Event, Level
from fsxds.events.file_events import FilesWritten, MirrorFailed
from fsxds.events.process_events import SnapshotSetAside
from fsxds.model.errors import UsageError
from fsxds.model.resources import RowsChange
from fsxds.model.values import BackOff
from fsxds.observe.mirror_lines import MirrorReports
from fsxds.protocol.messages import SyncState
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.rollout.rejections import Nack
from fsxds.rollout.step import Standing
from fsxds.runtime.channels import Channel, ChannelClient, ChannelKey
from fsxds.settings.forms import TcpAddress
from fsxds.transports.mirror import directory as directory_module
from fsxds.transports.mirror.envoy_reader import Audience, EnvoyPage, EnvoyReader
from fsxds.transports.mirror.writer import Mirror, Mirroring, MirrorOptions, write_once
from tests.support.channels import OneChannel
from tests.support.faulty_server import until
from tests.support.patience import NEVER_S
from tests.support.steps import step_between
from tests.support.this_envoy import this_envoy
from tests.transports.mirroring import assignment, files_in, read, snapshot, static, url


class Listener:
    """Remembers what it is told, and lets a test wait for it."""

    def __init__(self) -> None:
        self.reports: list[FilesWritten] = []
        self.failures: list[tuple[OSError, float]] = []
        self.set_aside: list[BaseException] = []
        self._told = asyncio.Event()

    def __call__(self, event: Event) -> None:
        """Remember."""
        match event:
            case FilesWritten():
                self.reports.append(event)
            case MirrorFailed():
                self.failures.append((event.error, event.retry_s))
            case SnapshotSetAside():
                self.set_aside.append(event.error)
        self._told.set()

    async def until_reported(self, count: int) -> None:
        """Wait until so many snapshots were written."""
        await self.until(lambda: len(self.reports) >= count)

    async def until(self, predicate: Callable[[], bool]) -> None:
        """Wait until it has been told enough."""
        async with asyncio.timeout(60):
            while not predicate():
                await self._told.wait()
                self._told.clear()


def mirror_in(root: Path) -> Mirror:
    return Mirror(root, this_envoy(), MirrorOptions(pause_s=0.0))


@asynccontextmanager
async def serving(root: Path, channel: Channel) -> AsyncIterator[Listener]:
    """Keep a directory in step while the block runs."""
    listener = Listener()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(Mirroring(OneChannel(channel), mirror_in(root), listener).keep_mirrored())
        yield listener
        task.cancel()


async def test_every_newer_snapshot_is_written(tmp_path: Path) -> None:
    """The first that the store gets, and each after it; nothing before there is one."""
    channel = Channel(ChannelKey())
    async with serving(tmp_path, channel) as listener:
        assert files_in(tmp_path) == set()
        channel.store.publish(snapshot(1, cds=[static("a")]))
        await listener.until(lambda: len(listener.reports) == 1)
        channel.store.publish(snapshot(2, cds=[static("b")]))
        await listener.until(lambda: len(listener.reports) == 2)

        assert [report.generation for report in listener.reports] == [1, 2]
        assert read(tmp_path, "cds.pb").names == ("b",)


async def test_what_somebody_removed_or_changed_is_written_again(tmp_path: Path) -> None:
    """Within the time of a rescan the files are as they were, also without our own folder, and foreign ones are left alone."""
    channel, listener, out = Channel(ChannelKey()), Listener(), tmp_path / "out"
    channel.store.publish(snapshot(1, cds=[static("a")], eds=[assignment("e", 1)]))
    mirror = Mirror(out, this_envoy(), MirrorOptions(pause_s=0.0, rescan_s=0.05))
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(Mirroring(OneChannel(channel), mirror, listener).keep_mirrored())
        await listener.until(lambda: len(listener.reports) == 1)
        (out / "eds/e.pb").unlink()
        await listener.until(lambda: len(listener.reports) == 2)
        (out / "foreign.pb").write_bytes(b"foreign")
        (out / "cds.pb").write_bytes(b"changed")
        await listener.until(lambda: len(listener.reports) == 3)
        out.rename(tmp_path / "away")
        await listener.until(lambda: len(listener.reports) == 4)
        (out / "link").symlink_to("foreign.pb")
        (out / "link").rename(out / "lds.pb")
        await listener.until(lambda: len(listener.reports) == 5)
        await asyncio.sleep(0.3)
        task.cancel()

    restored = [[str(path) for path in report.restored] for report in listener.reports]
    assert restored == [[], ["eds/e.pb"], ["cds.pb"], ["cds.pb", "eds/e.pb", "lds.pb", "srds.pb"], []]
    assert [remark.subject for remark in listener.reports[-1].blocked] == ["lds.pb"]
    assert read(out, "cds.pb").names == ("a",)
    assert read(out, "eds/e.pb").names == ("e",)


async def test_what_somebody_removed_or_changed_is_written_again_at_once(tmp_path: Path) -> None:
    """With no rescan, as soon as inotify tells: what is overwritten, removed, replaced, or moved away with its folder."""
    channel, listener, out = Channel(ChannelKey()), Listener(), tmp_path / "out"
    channel.store.publish(snapshot(1, cds=[static("a")]))
    mirror = Mirror(out, this_envoy(), MirrorOptions(pause_s=0.0, rescan_s=NEVER_S))

    def replace_it() -> None:
        (tmp_path / "other").write_bytes(b"other")
        (tmp_path / "other").rename(out / "cds.pb")

    changes: list[Callable[[], object]] = [
        lambda: (out / "cds.pb").write_bytes(b"changed"),
        (out / "eds/e.pb").unlink,
        replace_it,
        lambda: (out / "eds").rename(tmp_path / "eds"),
        lambda: out.rename(tmp_path / "away"),
        (out / "cds.pb").unlink,
    ]
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(Mirroring(OneChannel(channel), mirror, listener).keep_mirrored())
        await listener.until(lambda: len(listener.reports) == 1)
        # A folder that is new is watched too.
        channel.store.publish(snapshot(2, cds=[static("a")], eds=[assignment("e", 1)]))
        await listener.until(lambda: len(listener.reports) == 2)
        for change in changes:
            before = len(listener.reports)
            change()
            await listener.until_reported(before + 1)
            assert read(out, "cds.pb").names == ("a",)
            assert read(out, "eds/e.pb").names == ("e",)
        task.cancel()

    assert {thread.name for thread in threading.enumerate() if "otify" in thread.name} == set()


async def test_somebody_who_goes_on_is_let_go_on_for_longer_and_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two programs that write one file do not do so without end; a newer snapshot is written all the same."""
    monkeypatch.setattr(directory_module, "BACK_OFF", BackOff(first_s=0.01, longest_s=0.04))
    channel, listener, words = Channel(ChannelKey()), Listener(), MirrorReports()
    channel.store.publish(snapshot(1, cds=[static("a")]))
    mirror = Mirror(tmp_path, this_envoy(), MirrorOptions(pause_s=0.0, rescan_s=NEVER_S))
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(Mirroring(OneChannel(channel), mirror, listener).keep_mirrored())
        for count in range(1, 9):
            await listener.until_reported(count)
            (tmp_path / "cds.pb").unlink()
        await listener.until(lambda: len(listener.reports) == 9)
        monkeypatch.setattr(directory_module, "BACK_OFF", BackOff(first_s=NEVER_S, longest_s=NEVER_S))
        (tmp_path / "cds.pb").unlink()
        await listener.until(lambda: len(listener.reports) == 10)
        (tmp_path / "cds.pb").unlink()
        channel.store.publish(snapshot(2, cds=[static("b")]))
        await listener.until(lambda: len(listener.reports) == 11)
        task.cancel()

    assert [report.pause_s for report in listener.reports[:9]] == [0, 0, 0, 0, 0.01, 0.02, 0.04, 0.04, 0.04]
    assert read(tmp_path, "cds.pb").names == ("b",)
    lines = [
        line.text for report in listener.reports for line in words.lines(report, 0.0) if line.level is Level.WARNING
    ]
    assert lines == [
        *["mirror: another program removed or changed cds.pb; fsxds wrote them again"] * 3,
        (
            "mirror: another program keeps removing or changing cds.pb; let only one program write there; "
            "fsxds writes them again after longer and longer pauses"
        ),
    ]


async def test_a_failure_is_told_and_tried_again(tmp_path: Path) -> None:
    """What cannot be written now is written when it can be, without a newer snapshot."""
    blocker = tmp_path / "volume"
    blocker.write_text("not mounted yet")
    channel, listener = Channel(ChannelKey()), Listener()
    channel.store.publish(snapshot(1, cds=[static("a")]))
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(Mirroring(OneChannel(channel), mirror_in(blocker / "out"), listener).keep_mirrored())
        await listener.until(lambda: len(listener.failures) == 1)
        blocker.unlink()
        await listener.until(lambda: len(listener.reports) == 1)
        task.cancel()

    assert isinstance(listener.failures[0][0], NotADirectoryError)
    assert listener.failures[0][1] == 1.0
    assert read(blocker / "out", "cds.pb").names == ("a",)


async def test_a_newer_snapshot_ends_the_wait(tmp_path: Path) -> None:
    """Each is tried at once, the waits in between grow, and what was overtaken is never written."""
    blocker = tmp_path / "volume"
    blocker.write_text("not mounted yet")
    channel, listener = Channel(ChannelKey()), Listener()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(Mirroring(OneChannel(channel), mirror_in(blocker / "out"), listener).keep_mirrored())
        for generation in range(1, 8):
            channel.store.publish(snapshot(generation, eds=[assignment(f"e{generation}", 1)]))
            await listener.until(lambda count=generation: len(listener.failures) == count)  # type: ignore[misc]
        blocker.unlink()
        channel.store.publish(snapshot(8))
        await listener.until(lambda: len(listener.reports) == 1)
        task.cancel()

    assert [retry_s for _, retry_s in listener.failures] == [1, 2, 4, 8, 16, 30, 30]
    assert files_in(blocker / "out") == {"cds.pb", "lds.pb", "srds.pb"}


async def test_a_directory_of_another_process_ends_it(tmp_path: Path) -> None:
    """That is a mistake of whoever started it, and no reason to wait."""
    channel = Channel(ChannelKey())
    channel.store.publish(snapshot(1))
    with mirror_in(tmp_path), pytest.raises(UsageError, match="another fsxds"):
        await Mirroring(OneChannel(channel), mirror_in(tmp_path), Listener()).keep_mirrored()


async def test_cancelling_does_not_wait_for_all_files(tmp_path: Path) -> None:
    """A write that is under way ends after its present file, so the process can end."""
    channel = Channel(ChannelKey())
    channel.store.publish(snapshot(1, cds=[static("a")]))
    with Mirror(tmp_path, this_envoy(), MirrorOptions(pause_s=600.0)) as mirror:
        task = asyncio.ensure_future(Mirroring(OneChannel(channel), mirror, Listener()).keep_mirrored())
        async with asyncio.timeout(60):
            while not (tmp_path / "cds.pb").exists():
                await asyncio.to_thread(lambda: None)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    assert files_in(tmp_path) == {"cds.pb"}


def test_writing_once_gives_the_directory_back(tmp_path: Path) -> None:
    """A command that writes and ends does not leave the directory locked, whether it worked or not."""
    assert write_once(snapshot(1), mirror_in(tmp_path)).generation == 1
    assert write_once(snapshot(2), mirror_in(tmp_path)).generation == 2


async def test_a_step_is_taken_when_its_files_were_written_and_could_be_read(tmp_path: Path) -> None:
    """Before, it is pending, and whoever waits for it is asked again; a step without other files is taken as well."""
    channel, progressed = Channel(ChannelKey()), asyncio.Event()
    channel.on_progress = lambda _: progressed.set()
    before, grown = snapshot(1, cds=[static("a")]), snapshot(2, cds=[static("a"), static("b")])
    async with serving(tmp_path, channel):
        await asyncio.sleep(0)
        for served in (before, grown, replace(grown, generation=3)):
            progressed.clear()
            channel.step = step_between(before, served)
            channel.store.publish(served)
            (mirroring,) = channel.clients
            assert mirroring.standing(channel.step) is Standing.PENDING
            await asyncio.wait_for(progressed.wait(), 60)
            assert mirroring.standing(channel.step) is Standing.TAKEN
            names = {resource.name for resource in read(tmp_path, "cds.pb").resources}
            assert names == set(served.resources(url("cds")))
    assert not channel.clients


async def test_a_step_that_cannot_be_written_is_pending(tmp_path: Path) -> None:
    """A directory that cannot be written holds the step up until others give up waiting."""
    (tmp_path / "mirror").write_text("a file")
    channel = Channel(ChannelKey())
    async with serving(tmp_path / "mirror", channel) as listener:
        channel.store.publish(snapshot(1, cds=[static("a")]))
        await listener.until(lambda: bool(listener.failures))
        (mirroring,) = channel.clients

        assert mirroring.standing(step_between(snapshot(0), snapshot(1, cds=[static("a")]))) is Standing.PENDING


def move(mirroring: ChannelClient, first: Channel, second: Channel) -> None:
    """Let a mirror leave a channel for another one, as its node does, before it hears of that."""
    second.join(mirroring)
    first.leave(mirroring)


async def test_another_channel_is_followed_at_once(tmp_path: Path) -> None:
    """A mirror whose view becomes another one has its files without waiting for the next look at them."""
    first, second = Channel(ChannelKey()), Channel(ChannelKey(is_canary=True))
    second.store.publish(snapshot(7, cds=[static("b")]))
    async with serving(tmp_path, first) as listener:
        first.store.publish(snapshot(1, cds=[static("a")]))
        await listener.until(lambda: len(listener.reports) == 1)
        (mirroring,) = first.clients
        move(mirroring, first, second)
        mirroring.follow(second)
        await listener.until(lambda: len(listener.reports) == 2)

    assert [report.generation for report in listener.reports] == [1, 7]
    assert not second.clients


async def test_another_channel_may_be_followed_at_any_moment(tmp_path: Path) -> None:
    """Also while the wait for the one before ends: the moves of a view are those of all its clients."""
    first, second = Channel(ChannelKey()), Channel(ChannelKey(is_canary=True))
    second.store.publish(snapshot(7, cds=[static("b")]))
    async with serving(tmp_path, first) as listener:
        first.store.publish(snapshot(1, cds=[static("a")]))
        await listener.until(lambda: len(listener.reports) == 1)
        (mirroring,) = first.clients
        await until(lambda: mirroring.sync_state() is SyncState.SYNCED)
        move(mirroring, first, second)
        for _ in range(8):
            mirroring.follow(second)
            await asyncio.sleep(0)
        await listener.until(lambda: len(listener.reports) == 2)

    assert [report.generation for report in listener.reports] == [1, 7]


async def test_another_channel_is_followed_also_to_what_it_served_before(tmp_path: Path) -> None:
    """What a channel serves may be older than what a mirror wrote in the one before: its files are that, and it is behind till then."""
    first, second = Channel(ChannelKey(held=frozenset())), Channel(ChannelKey())
    older = snapshot(3, cds=[static("b")])
    second.store.publish(older)
    async with serving(tmp_path, first) as listener:
        first.store.publish(snapshot(5, cds=[static("a")]))
        await listener.until(lambda: len(listener.reports) == 1)
        (mirroring,) = first.clients
        await until(lambda: mirroring.sync_state() is SyncState.SYNCED)
        move(mirroring, first, second)
        mirroring.follow(second)

        assert mirroring.standing(step_between(snapshot(2), older)) is Standing.PENDING
        assert mirroring.sync_state() is SyncState.STALE
        await listener.until(lambda: len(listener.reports) == 2)

    assert read(tmp_path, "cds.pb").names == ("b",)


class Page(EnvoyPage):
    """The page of an Envoy that reads clusters, and rejects the next update when it is told to."""

    def __init__(self) -> None:
        super().__init__(TcpAddress("127.0.0.1", 1))
        self.counters = {"success": 1, "rejected": 0}
        self.version = ""

    async def statistics(self, _: str) -> dict[str, str]:
        """Return those of clusters."""
        scope = "cluster_manager.cds"
        counters = {f"{scope}.update_{name}": str(count) for name, count in self.counters.items()}
        return {**counters, f"{scope}.version_text": f'"{self.version}"'}


async def test_envoy_is_listened_to_also_where_no_step_waits_for_it(tmp_path: Path) -> None:
    """What is offered again to one Envoy may be in no step: it is behind until that took it, and heard when it rejects it."""
    nacks: list[Nack] = []
    channel, page = Channel(ChannelKey()), Page()
    channel.on_nack = lambda _, nack: nacks.append(nack)
    listener = Listener()
    reader = EnvoyReader(page)
    mirroring = Mirroring(OneChannel(channel), mirror_in(tmp_path), listener, Audience(reader=reader))
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(mirroring.keep_mirrored()), tasks.create_task(mirroring.keep_read(reader))]
        for generation, name in enumerate(("a", "b", "c"), 1):
            served = snapshot(generation, cds=[static(name)])
            channel.store.publish(served)
            await listener.until(lambda generation=generation: len(listener.reports) == generation)  # type: ignore[misc]
            if name == "a":
                continue
            assert mirroring.sync_state() is SyncState.STALE
            if name == "b":
                page.version = str(version_of(served, Subscription(url("cds"))))
                page.counters["success"] += 1
                await until(lambda: mirroring.sync_state() is SyncState.SYNCED)
            else:
                page.counters["rejected"] += 1
                await until(lambda: mirroring.sync_state() is SyncState.NACK)
        for task in running:
            task.cancel()

    assert [[key for key, _ in nack.versions] for nack in nacks] == [[(url("cds"), "c")]]


async def test_what_was_written_before_is_still_waited_for() -> None:
    """A write of other resources does not begin anew to count the updates of those before: Envoy may have read these by then."""
    page = Page()
    reader = EnvoyReader(page)
    before, after = snapshot(1, cds=[static("a")]), snapshot(2, cds=[static("b")])
    step = step_between(before, after)
    await reader.mark(step.changed)
    assert reader.standing(step, after) is Standing.PENDING
    page.version = str(version_of(after, Subscription(url("cds"))))
    page.counters["success"] += 1
    await reader.mark({url("lds"): RowsChange(fresh=frozenset({"front"}))})

    assert reader.standing(step, after) is Standing.TAKEN
    await reader.mark(step.changed)
    assert reader.standing(step, after) is Standing.PENDING
