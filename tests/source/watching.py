"""Run a real watch and record its events, for the tests of fsxds/source."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from fsxds.events.event import Event
from fsxds.events.file_events import (
    ConfigurationMissing,
    FilesIgnored,
    QueueOverflowed,
    TreeDisappeared,
    TreeReturned,
    WatchStarted,
)
from fsxds.model.values import SourceTree
from fsxds.source.listing import TreeBounds
from fsxds.source.scan import Scanner
from fsxds.source.targets import WatchOptions
from fsxds.source.watcher import Settled, watch
from tests.support.patience import NEVER_S, PATIENCE_S

Contents: TypeAlias = dict[str, str]

# What is not known to be complete before the settle time is over is not seen within the patience of a test.
ONLY_AT_ONCE = WatchOptions(settle_s=NEVER_S, settle_cap_s=NEVER_S, share_s=NEVER_S)

# Steps of one change may be so far apart, on a machine that is busy otherwise too.
UNHURRIED = WatchOptions(settle_s=2.0, settle_cap_s=NEVER_S, share_s=NEVER_S)

# As long as a tree needs to settle, and as much again for a busy machine.
QUIET_S = 0.3


def is_read(name: str) -> bool:
    """Stand in for the formats' own rule."""
    return name.endswith((".yaml", ".json"))


def contents_of(tree: SourceTree) -> Contents:
    """Return the text of each file by its path."""
    return {str(file.path): file.content.decode() for file in tree.files}


def write(directory: Path, contents: Contents) -> None:
    """Write files below a directory, in place."""
    for name, text in contents.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def point(link: Path, target: str) -> None:
    """Let a link lead elsewhere in one step, as kubelet and git-sync do."""
    beside = link.with_name(link.name + "_tmp")
    beside.symlink_to(target)
    beside.replace(link)


class Watched:
    """What a running watch has reported so far; it is the watch's observer as well."""

    def __init__(self) -> None:
        self.settled: list[Settled] = []
        self.modes: list[tuple[str, str]] = []
        self.lost: list[str] = []
        self.found = 0
        self.ignored: list[str] = []
        self.waits: list[ConfigurationMissing] = []
        self.overflows = 0
        self._news = asyncio.Event()

    @property
    def history(self) -> list[Contents]:
        """The contents of every tree so far."""
        return [contents_of(settled.tree) for settled in self.settled]

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait until something is so, which is looked at whenever the watch reports something."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                self._news.clear()
                await self._news.wait()

    async def until_contents(self, contents: Contents) -> None:
        """Wait until the latest tree has exactly these contents."""
        await self.until(lambda: self.settled and self.history[-1] == contents)

    async def nothing_more(self, seconds: float = QUIET_S) -> None:
        """Wait so long that whatever was still to come has come."""
        await asyncio.sleep(seconds)

    def take(self, settled: Settled) -> None:
        """Record a tree."""
        self.settled.append(settled)
        self._news.set()

    def __call__(self, event: Event) -> None:
        """Record an event."""
        match event:
            case WatchStarted():
                self.modes.append((event.mode, event.reason))
            case TreeDisappeared():
                self.lost.append(event.reason)
            case TreeReturned():
                self.found += 1
            case FilesIgnored():
                self.ignored.extend(map(str, event.paths))
            case ConfigurationMissing():
                self.waits.append(event)
            case QueueOverflowed():
                self.overflows += 1
        self._news.set()


@contextlib.asynccontextmanager
async def watched(
    root: Path, options: WatchOptions | None = None, mount_table: Path = Path("/proc/self/mountinfo")
) -> AsyncIterator[Watched]:
    """Watch a directory until the block ends; enters the block at the first tree, or when there is none."""
    record = Watched()

    async def follow() -> None:
        trees = watch(
            Scanner(root, is_read=is_read, bounds=TreeBounds(follows_outside=True)),
            replace(options or WatchOptions(), mount_table=mount_table),
            record,
        )
        async with contextlib.aclosing(trees):
            async for settled in trees:
                record.take(settled)

    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow())
        try:
            await record.until(lambda: record.settled or record.lost)
            yield record
        finally:
            following.cancel()
