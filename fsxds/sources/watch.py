"""Turn watchdog's thread of events into a stream of settled trees."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol, TypeAlias

from watchdog.observers import Observer

from fsxds.sources.activity import Activity
from fsxds.sources.filesystem_kind import MOUNT_TABLE
from fsxds.sources.notifications import Notifications
from fsxds.sources.scan import Look, Scanner, TreeLost
from fsxds.sources.surroundings import Surroundings, Where
from fsxds.sources.writers import Patience, Writers
from fsxds.values import SourceTree

WatchMode: TypeAlias = Literal["auto", "inotify", "poll"]

# A notice is up to 4 ms behind its change (p99), so a change that began during a look is heard this long after it.
_ECHO_S = 0.005

# Between two looks at files that are being written, at least: a look at 10 000 files takes 35 ms.
_SHORTEST_REST_S = 0.05

# Threads of watchdog that do not end in this time are left behind; they are daemons.
_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How a tree is watched.

    `settle_s` of quiet end a burst, and `settle_cap_s` after its start it ends in any case. Whoever has a file open for
    writing is waited for until `writer_patience_s` after the last modification. `rescan_s` is the time between two
    looks without cause, `poll_s` the same where there are no notifications. `inotify` differs from `auto` in that it
    believes in notifications on network filesystems too; both poll when watches run out.
    """

    mode: WatchMode = "auto"
    settle_s: float = 0.05
    settle_cap_s: float = 10.0
    writer_patience_s: float = 2.0
    rescan_s: float = 30.0
    poll_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Settled:
    """A tree at rest; `noticed_s` is `time.monotonic()` of the first sign of the change that led to it."""

    tree: SourceTree
    noticed_s: float


class WatchObserver(Protocol):
    """Who is told how the watching goes."""

    def watching(self, mode: str, reason: str) -> None:
        """The tree is watched from now on by `inotify` or `poll`, because of `reason`."""

    def tree_lost(self, error: TreeLost) -> None:
        """The tree, or all its files, went away; what was served last stays."""

    def tree_found(self) -> None:
        """The tree is back."""

    def file_ignored(self, path: PurePosixPath) -> None:
        """No format claims this file; told once as long as it is there."""

    def queue_overflowed(self) -> None:
        """The kernel dropped notifications; the tree is looked at again."""


async def watch(
    scanner: Scanner,
    options: WatchOptions,
    observer: WatchObserver,
    *,
    mount_table: Path = MOUNT_TABLE,
) -> AsyncGenerator[Settled, None]:
    """Yield the tree as it is, then once for each burst of changes that left other content behind.

    A notification only means "look again", so a lost one costs a delay and not a wrong answer. A tree that goes away,
    or that loses all its files at once, yields nothing. Close the iterator (`contextlib.aclosing`) to stop watchdog's
    threads.
    """
    activity = Activity(scanner.is_read)
    loop = asyncio.get_running_loop()

    def receive_overflow(at_s: float) -> None:
        observer.queue_overflowed()
        activity.receive_overflow(at_s)

    notifications = Notifications(
        Observer,
        lambda notice: loop.call_soon_threadsafe(activity.receive, notice),
        lambda: loop.call_soon_threadsafe(receive_overflow, time.monotonic()),
    )
    where = Where(scanner.root, options.mode, mount_table)
    surroundings = Surroundings(where, notifications, activity, observer.watching)
    watcher = _Watcher(_Parts(scanner, options, observer, activity, surroundings))
    try:
        noticed_s = time.monotonic()
        while True:
            tree = await watcher.settle(noticed_s)
            if tree is not None:
                yield Settled(tree, noticed_s)
            noticed_s = await watcher.next_occasion()
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await asyncio.to_thread(notifications.stop)


@dataclass(frozen=True, slots=True)
class _Parts:
    scanner: Scanner
    options: WatchOptions
    observer: WatchObserver
    activity: Activity
    surroundings: Surroundings


class _Watcher:
    """Decides when to look, and whether what was seen is at rest."""

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts
        self._options = parts.options
        self._activity = parts.activity
        patience = Patience(
            writer_s=parts.options.writer_patience_s, git_s=parts.options.settle_cap_s, twice_s=parts.options.poll_s
        )
        self._writers = Writers(parts.scanner.root, patience)
        self._last: SourceTree | None = None
        self._is_lost = False
        self._told_ignored: frozenset[PurePosixPath] = frozenset()

    async def next_occasion(self) -> float:
        """Wait for a notice, or for the time of the next look without cause; returns when it was noticed."""
        # Nothing tells that a lost tree may be read again, and looking for it costs nothing.
        is_polling = self._parts.surroundings.is_polling or self._is_lost
        await self._activity.wait(self._options.poll_s if is_polling else self._options.rescan_s)
        return time.monotonic() if self._activity.first_s is None else self._activity.first_s

    async def settle(self, noticed_s: float) -> SourceTree | None:
        """Look until the tree is at rest; returns it, or None when it is lost or holds what was last returned."""
        deadline_s = noticed_s + self._options.settle_cap_s
        while True:
            await self._wait_for_quiet(deadline_s)
            look = await self._look()
            if look is None or look.tree == self._last:
                return None
            rest_s = await self._rest_s(look, deadline_s)
            if rest_s == 0.0:
                self._last = look.tree
                return look.tree
            await self._activity.wait_for_more(rest_s)

    async def _wait_for_quiet(self, deadline_s: float) -> None:
        """Return when nothing was heard for a while and nobody is known to write, or at the deadline."""
        while self._activity.last_s is not None:
            now_s = time.monotonic()
            quiet_s = min(self._activity.last_s + self._options.settle_s, deadline_s)
            written_s = min(self._activity.written_until_s(self._options.writer_patience_s, now_s), deadline_s)
            if now_s < quiet_s:
                await asyncio.sleep(quiet_s - now_s)
            elif now_s < written_s:
                await self._activity.wait_for_more(written_s - now_s)
            else:
                return

    async def _look(self) -> Look | None:
        """Look at the tree with all watches in place; None when it is lost."""
        while True:
            self._activity.clear()
            look, error = await self._look_once()
            # What changed between a look and the watches that it asked for was not heard.
            if not await self._parts.surroundings.attend_to(look):
                break
        if look is not None and self._lost_everything(look.tree):
            error = TreeLost(
                f"{self._parts.scanner.root}: all files are gone at once, what was served stays; to serve nothing on "
                "purpose write files with `resources: []`"
            )
        self._tell(look, error)
        return look if error is None else None

    async def _look_once(self) -> tuple[Look | None, TreeLost | None]:
        try:
            return await asyncio.to_thread(self._parts.scanner.look), None
        except TreeLost as error:
            return None, error

    def _lost_everything(self, tree: SourceTree) -> bool:
        return self._last is not None and bool(self._last.files) and not tree.files and not tree.problems

    def _tell(self, look: Look | None, error: TreeLost | None) -> None:
        if error is not None and not self._is_lost:
            self._parts.observer.tree_lost(error)
        if error is None and self._is_lost:
            self._parts.observer.tree_found()
        self._is_lost = error is not None
        if look is not None:
            ignored = frozenset(look.tree.ignored)
            for path in sorted(ignored - self._told_ignored):
                self._parts.observer.file_ignored(path)
            self._told_ignored = ignored

    async def _rest_s(self, look: Look, deadline_s: float) -> float:
        """Return how long the tree should be left alone before the next look, 0.0 when it is at rest."""
        if not look.is_steady:
            return _SHORTEST_REST_S
        if time.monotonic() >= deadline_s:
            return 0.0
        surroundings = self._parts.surroundings
        before = set() if self._last is None else set(map(id, self._last.files))
        changed = [file for file in look.tree.files if id(file) not in before]
        # The first tree is not looked at twice: there is nothing better to serve in the meantime.
        is_told = self._last is None or not surroundings.is_polling
        rest_s = await asyncio.to_thread(
            self._writers.rest_s, changed, time.monotonic(), can_ask=not surroundings.is_remote, is_told=is_told
        )
        if rest_s > 0.0 and not surroundings.is_remote:
            return min(rest_s, max(self._options.settle_s, _SHORTEST_REST_S))
        if rest_s == 0.0 and not surroundings.is_polling:
            await asyncio.sleep(_ECHO_S)
            return 0.0 if self._activity.first_s is None else self._options.settle_s
        return rest_s
