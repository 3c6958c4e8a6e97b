"""Turn watchdog's thread of events into a stream of settled trees.

Whether the kernel is told of every change to a filesystem, or other machines change it unheard.

Choose what to watch around a tree, and whether notifications can be believed there.
"""

# ruff: noqa: PTH120
from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

from fsxds.errors import TreeLost
from fsxds.events import (
    ConfigurationMissing,
    FilesIgnored,
    Observer,
    QueueOverflowed,
    TreeDisappeared,
    TreeReturned,
    WatchStarted,
)
from fsxds.source.listing import Identity, Links, Signature, identity_of, is_passed_over, signature_of
from fsxds.source.notifications import Armed, Notifications
from fsxds.source.scan import Look, Scanner
from fsxds.source.settle import Activity, Patience, Writers, read_undisturbed
from fsxds.values import SourceFile, SourceTree

MOUNT_TABLE = Path("/proc/self/mountinfo")

# Other machines, or the host of a virtual machine, write to these without this kernel's inotify hearing of it.
_REMOTE_TYPES = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "drvfs", "fuse", "glusterfs", "gpfs", "lustre", "ncpfs",
        "nfs", "nfs4", "orangefs", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "wslfs",
    }
)  # fmt: skip


def remote_type(path: Path, mount_table: str) -> str | None:
    """Return the type (`nfs4`) of the filesystem that holds a path, None when all its changes are made on this machine.

    Args:
        path: absolute, without links.
        mount_table: the text of `/proc/self/mountinfo`; an empty text means that nothing is known.
    """
    found: tuple[int, str] = (-1, "")
    for row in mount_table.splitlines():
        # Source: proc(5), "/proc/pid/mountinfo": the fifth field is the mount point, the type follows a lone hyphen.
        fields, _, behind = row.partition(" - ")
        mount_point = Path(_unescaped(fields.split(" ")[4]))
        # A later mount on the same point covers the earlier one.
        if path.is_relative_to(mount_point) and len(mount_point.parts) >= found[0]:
            found = (len(mount_point.parts), behind.split(" ")[0])
    filesystem_type = found[1]
    is_remote = filesystem_type in _REMOTE_TYPES or filesystem_type.startswith("fuse.")
    return filesystem_type if is_remote else None


def read_mount_table(path: Path) -> str:
    """Return the text of the mount table, empty where this system has none."""
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return ""


def _unescaped(field: str) -> str:
    """Undo the octal escapes of space, tab, newline and backslash."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


@dataclass(frozen=True, slots=True)
class Where:
    """What is to be watched: the root as it was given, the mode that was asked for, the kernel's table of mounts."""

    root: Path
    mode: str
    mount_table: Path


class Surroundings:
    """Keeps the watches where the last look found the tree.

    `is_polling` says that there are no notifications at all, `is_remote` that other machines may write to the tree,
    `unwatched` which directories have to be looked at again and again although the others are watched.
    """

    def __init__(
        self, where: Where, notifications: Notifications, activity: Activity, tell: Callable[[str, str], object]
    ) -> None:
        """Start with no watches. `tell` hears mode and reason, when they are known and whenever they change."""
        self.is_polling = where.mode == "poll"
        self.is_remote = False
        self.unwatched: tuple[str, ...] = ()
        self._root = where.root
        self._mode = where.mode
        self._mount_table = where.mount_table
        self._notifications = notifications
        self._activity = activity
        self._tell = tell
        self._told: tuple[str, str] | None = None
        self._tops: tuple[str, ...] | None = None
        self._remote_reason: str | None = None
        self._points: frozenset[str] = frozenset()
        # {what cannot be watched: what was seen there}
        self._listings: dict[str, Listing] = {}

    async def attend_to(self, look: Look | None) -> bool:
        """Watch what the tree of this look depends on, or the way to a tree that is not there.

        Returns:
            Whether something is watched that was not until now, so that the tree has to be looked at again.
        """
        tops: tuple[str, ...] = ()
        listed: Mapping[str, Identity] = {}
        points = _way_to(self._root)
        if look is not None:
            tops, listed, points = look.tops, look.directories, look.turning_points
            await asyncio.to_thread(self._judge, tops)
        self._activity.attend_to(tops, points)
        self._points = points
        mode, reason = self._choose()
        if mode == "poll":
            self.unwatched = ()
            await self._become(mode, reason, reason)
            return False
        armed = await asyncio.to_thread(self._arm, tops, listed, points)
        if armed.is_deaf:
            self.unwatched = ()
            await self._become("poll", f"there is no inotify: {armed.reason}", armed.reason)
            return False
        # What changed there since this look is found by the next listing, which is the first to be compared.
        self.unwatched = armed.unwatched
        if armed.unwatched:
            count = f"{len(armed.unwatched)} of {armed.count} directories"
            reason = f"{count}, such as {armed.unwatched[0]}, can only be polled: {armed.reason}"
        await self._become(mode, reason, armed.reason)
        return armed.is_new

    async def parts_changed(self) -> bool:
        """Look at what cannot be watched; tell whether something there is other than when last looked at."""
        listings = await asyncio.to_thread(self._list_parts)
        before, self._listings = self._listings, listings
        return listings != before

    def _list_parts(self) -> dict[str, Listing]:
        parts = frozenset(self.unwatched)
        listings: dict[str, Listing] = {path: _listing_of(path) for path in parts}
        # A directory that may be passed through, but not listed, may still hold the root or a linked file.
        points = [point for point in self._points if os.path.dirname(point) in parts] if parts else []
        return listings | {point: _entry_of(point) for point in points}

    def _arm(self, tops: tuple[str, ...], listed: Mapping[str, Identity], points: frozenset[str]) -> Armed:
        """Watch the tops first, then the directories in which the outer points are, then all others."""
        above = {str(PurePosixPath(point).parent) for point in points} - listed.keys()
        wanted = {top: listed[top] for top in tops if top in listed}
        for path in sorted(above):
            with contextlib.suppress(OSError):
                wanted[path] = identity_of(path)
        wanted.update(listed)
        return self._notifications.arm(wanted)

    def _judge(self, tops: tuple[str, ...]) -> None:
        if tops == self._tops:
            return
        self._tops = tops
        table = read_mount_table(self._mount_table)
        remote = ((top, remote_type(Path(top), table)) for top in tops)
        found = next(((top, filesystem) for top, filesystem in remote if filesystem is not None), None)
        self.is_remote = found is not None
        self._remote_reason = found and f"{found[0]} is on {found[1]}, where other machines write unheard"

    def _choose(self) -> tuple[str, str]:
        if self._mode == "poll":
            return "poll", "asked for"
        if self._mode == "inotify":
            return "inotify", "asked for"
        if self._remote_reason is not None:
            return "poll", self._remote_reason
        return "inotify", "all changes are made on this machine"

    async def _become(self, mode: str, reason: str, cause: str) -> None:
        """Take up a mode, and tell of it unless it was told with the same cause."""
        self.is_polling = mode == "poll"
        if self._told != (mode, cause):
            if self.is_polling:
                await asyncio.to_thread(self._notifications.stop)
            self._told = mode, cause
            self._tell(mode, reason)


Listing: TypeAlias = frozenset[tuple[str, Signature]] | Signature | int
"""What is at a path: names and signatures, or a signature; or the number of the error that came of looking."""


def _listing_of(path: str) -> Listing:
    listing = set()
    try:
        with os.scandir(path) as entries:
            for direntry in entries:
                if not is_passed_over(direntry.name):
                    with contextlib.suppress(FileNotFoundError):
                        listing.add((direntry.name, signature_of(direntry.stat(follow_symlinks=False))))
    except OSError as error:
        return error.errno or 0
    return frozenset(listing)


def _entry_of(path: str) -> Listing:
    try:
        return signature_of(os.lstat(path))
    except OSError as error:
        return error.errno or 0


def _way_to(root: Path) -> frozenset[str]:
    """Return the paths whose appearance may bring back the root."""
    links = Links()
    real = links.resolve(str(root))
    return frozenset({*links.targets, *links.missing, *([] if real is None else [real])})


WatchMode: TypeAlias = Literal["auto", "inotify", "poll"]

# A notice is up to 4 ms behind its change (p99), so a change that began during a look is heard this long after it.
_ECHO_S = 0.005

# Between two looks at files that are being written, at least: a look at 10 000 files takes 35 ms.
_SHORTEST_REST_S = 0.05

# What is quiet is taken at least so often, however busy the rest is.
_SHARE_S = 0.5

# Between two looks for git's lock, each of which is a few calls of `stat`.
_GIT_REST_S = 0.01

# Where directories come and go all the time, some watch will always be new; the next rescan finds what was not heard.
_MOST_LOOKS = 5

# Threads of watchdog that do not end in this time are left behind; they are daemons.
_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How a tree is watched.

    `settle_s` of quiet end a burst. Whoever has a file open for writing is waited for until `writer_patience_s` after the
    last modification. Where something is never quiet the rest is taken every half second, and `settle_cap_s` after its
    start a burst ends in any case. `rescan_s` is the time between two looks without cause, `poll_s` the same where
    there are no notifications. `inotify` differs from `auto` in that it believes in notifications on network
    filesystems too; both poll those directories that cannot be watched.
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


async def watch(
    scanner: Scanner,
    options: WatchOptions,
    observer: Observer,
    *,
    last: SourceTree | None = None,
    mount_table: Path = MOUNT_TABLE,
) -> AsyncGenerator[Settled, None]:
    """Yield the tree as it is, then once for each burst of changes that left other content behind.

    Where another watcher yielded a tree before, `last`, the first one is yielded only when it differs from that.

    A notification only means "look again", so a lost one costs a delay and not a wrong answer. A tree that goes away,
    or that loses all its files at once, yields nothing. Close the iterator (`contextlib.aclosing`) to stop watchdog's
    threads.
    """
    activity = Activity(scanner.is_read, scanner.exclusion)
    loop = asyncio.get_running_loop()

    def receive_overflow(at_s: float) -> None:
        observer(QueueOverflowed())
        activity.receive_overflow(at_s)

    notifications = Notifications(
        lambda notice: loop.call_soon_threadsafe(activity.receive, notice),
        lambda: loop.call_soon_threadsafe(receive_overflow, time.monotonic()),
    )
    where = Where(scanner.root, options.mode, mount_table)
    surroundings = Surroundings(
        where, notifications, activity, lambda mode, reason: observer(WatchStarted(mode, reason))
    )
    watcher = _Watcher(_Parts(scanner, options, observer, activity, surroundings), last)
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
    observer: Observer
    activity: Activity
    surroundings: Surroundings


class _Watcher:
    """Decides when to look, and whether what was seen is at rest."""

    def __init__(self, parts: _Parts, last: SourceTree | None = None) -> None:
        self._parts = parts
        self._options = parts.options
        self._activity = parts.activity
        patience = Patience(
            writer_s=parts.options.writer_patience_s, git_s=parts.options.settle_cap_s, twice_s=parts.options.poll_s
        )
        self._writers = Writers(parts.scanner.root, patience)
        self._last = last
        self._looked_s = 0.0
        # When the last tree was yielded from which something was left out, and when what was left out was noticed first.
        self._shared_s = 0.0
        self._waiting_s: float | None = None
        self._is_lost = False
        self._is_waiting = False
        self._told_ignored: frozenset[PurePosixPath] = frozenset()

    async def next_occasion(self) -> float:
        """Wait for a notice, or for the time of the next look without cause; returns when it was noticed."""
        surroundings = self._parts.surroundings
        due_s = time.monotonic() + self._options.rescan_s
        while (now_s := time.monotonic()) < due_s and self._activity.first_s is None:
            wait_s = due_s - now_s
            # Nothing tells that a lost tree may be read again, and looking for it costs nothing.
            if surroundings.is_polling or surroundings.unwatched or self._is_lost:
                wait_s = min(wait_s, self._options.poll_s)
            if self._waiting_s is not None:
                wait_s = min(wait_s, _SHARE_S)
            await self._activity.wait(wait_s)
            is_watched = not (surroundings.is_polling or self._is_lost or self._waiting_s is not None)
            if not is_watched or (surroundings.unwatched and await surroundings.parts_changed()):
                break
        return time.monotonic() if self._activity.first_s is None else self._activity.first_s

    async def settle(self, noticed_s: float) -> SourceTree | None:
        """Look until the tree is at rest, or what is quiet is due; None when it is lost or holds what was last returned."""
        start_s = noticed_s if self._waiting_s is None else min(noticed_s, self._waiting_s)
        cap_s = start_s + self._options.settle_cap_s
        while True:
            # The first tree is not shared out: what is left out of it would be missing.
            due_s = cap_s if self._last is None else min(cap_s, max(start_s, self._shared_s) + _SHARE_S)
            is_quiet = await self._wait_for_quiet(due_s)
            # Not after the look: however long that takes, what happened meanwhile may be half of something.
            is_due = time.monotonic() >= due_s
            if time.monotonic() < cap_s and await asyncio.to_thread(self._writers.git_rest_s) > 0.0:
                # What git did is to be looked at when it is done with it, and as a whole.
                start_s = time.monotonic()
                await asyncio.sleep(_GIT_REST_S)
                continue
            look = await self._look()
            if look is None or look.tree == self._last:
                self._waiting_s = None
                return None
            tree, rest_s = await self._share(look, is_quiet=is_quiet, is_due=is_due, cap_s=cap_s)
            if tree is not None and tree != self._last:
                self._waiting_s = start_s if rest_s > 0.0 else None
                self._shared_s = time.monotonic()
                self._last = tree
                return tree
            await self._activity.wait_for_more(max(rest_s, _SHORTEST_REST_S))

    async def _wait_for_quiet(self, due_s: float) -> bool:
        """Return when nothing was heard for a while and nobody is known to write, or else when a look is due.

        What is restless does not keep the rest from being quiet; alone, it is looked at every half second at least.

        Returns:
            Whether it was quiet.
        """
        while self._activity.last_s is not None:
            now_s = time.monotonic()
            calm_s = self._activity.calm_s
            quiet_s = (self._activity.last_s if calm_s is None else calm_s) + self._options.settle_s
            if calm_s is None:
                quiet_s = min(quiet_s, self._looked_s + _SHARE_S)
            written_s = self._activity.written_until_s(self._options.writer_patience_s, now_s)
            if now_s >= max(quiet_s, written_s):
                return True
            if now_s >= due_s:
                return False
            if calm_s is not None and now_s < quiet_s:
                await asyncio.sleep(min(quiet_s, due_s) - now_s)
            else:
                await self._activity.wait_for_more(min(max(quiet_s, written_s), due_s) - now_s)
        return True

    async def _look(self) -> Look | None:
        """Look at the tree with all watches in place; None when it is lost."""
        look, error = None, None
        started_s = time.monotonic()
        for number in range(_MOST_LOOKS):
            self._activity.clear()
            self._looked_s = time.monotonic()
            look, error = await self._look_once()
            # What changed between a look and the watches that it asked for was not heard.
            is_new = await self._parts.surroundings.attend_to(look)
            if not is_new or (number > 0 and time.monotonic() - started_s > _SHARE_S):
                break
        if look is not None and self._lost_everything(look.tree):
            error = TreeLost(
                f"{self._parts.scanner.root}: all files are gone at once; to serve nothing on "
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
            self._parts.observer(TreeDisappeared(str(error)))
        if error is None and self._is_lost:
            self._parts.observer(TreeReturned())
        self._is_lost = error is not None
        if look is not None:
            ignored = frozenset(look.tree.ignored)
            if ignored - self._told_ignored:
                self._parts.observer(FilesIgnored(tuple(sorted(ignored - self._told_ignored))))
            self._told_ignored = ignored
            was_waiting, self._is_waiting = self._is_waiting, not look.tree.files and not look.tree.problems
            if error is None and self._is_waiting and not was_waiting:
                root, tree = self._parts.scanner.root, look.tree
                self._parts.observer(ConfigurationMissing(root, tree.ignored, tree.excluded))

    async def _share(
        self, look: Look, *, is_quiet: bool, is_due: bool, cap_s: float
    ) -> tuple[SourceTree | None, float]:
        """Return what of a look can be taken now, None for nothing yet, and after how long the rest should be looked at.

        The rest is 0.0 s when all of it can be taken.
        """
        # What links lead to may be of two generations when they did not hold still: it stays as it was.
        if not look.is_steady and (self._last is None or not is_due):
            return None, _SHORTEST_REST_S
        is_over = time.monotonic() >= cap_s
        if is_over and self._last is None:
            return look.tree, 0.0
        surroundings = self._parts.surroundings
        known = set() if self._last is None else set(map(id, self._last.files))
        changed = {file.path: look.paths[str(file.path)] for file in look.tree.files if id(file) not in known}
        git_s, rests_s = await asyncio.to_thread(self._ask_writers, look, known)
        if not surroundings.is_polling:
            await asyncio.sleep(_ECHO_S)
        now_s = time.monotonic()
        is_quiet = is_over or (is_quiet and self._activity.calm_s is None and git_s == 0.0)
        is_quiet = is_quiet and look.is_steady
        waits_s = [rest_s for path, rest_s in rests_s.items() if not self._activity.is_restless(changed[path], now_s)]
        if not is_over and (git_s > 0.0 or not (is_due or (is_quiet and not waits_s))):
            return None, self._pace(min(waits_s, default=self._options.settle_s))
        touched = {path: real for path, real in changed.items() if real in self._activity.touched}
        others = await asyncio.to_thread(self._read_again, touched)
        if not (is_over and surroundings.is_remote):
            others |= dict.fromkeys(rests_s)
        if not look.is_steady:
            top = look.tops[0]
            others |= {path: None for path, real in changed.items() if real != f"{top.rstrip('/')}/{path}"}
        patience_s = self._options.writer_patience_s
        others |= {path: None for path, real in changed.items() if self._activity.is_written(real, patience_s, now_s)}
        if self._last is None and None in others.values():
            return None, _SHORTEST_REST_S
        tree = _composed(look.tree, self._last, others, keeps_removed=not is_quiet)
        is_whole = is_quiet and None not in others.values()
        return tree, 0.0 if is_whole else _SHARE_S

    def _ask_writers(self, look: Look, known: set[int]) -> tuple[float, dict[PurePosixPath, float]]:
        """Return how long git, and how long the writer of each changed file should be waited for."""
        surroundings = self._parts.surroundings
        changed = [file for file in look.tree.files if id(file) not in known]
        # The first tree is not looked at twice: there is nothing better to serve in the meantime.
        is_told = self._last is None or not (surroundings.is_polling or surroundings.unwatched)
        rests_s = self._writers.rests_s(changed, time.monotonic(), can_ask=not surroundings.is_remote, is_told=is_told)
        return self._writers.git_rest_s(), rests_s

    def _read_again(self, touched: Mapping[PurePosixPath, str]) -> dict[PurePosixPath, SourceFile | None]:
        """Read files that were touched since the look began; None for those that somebody writes."""
        limit = self._parts.scanner.max_file_size_bytes
        contents = {path: read_undisturbed(Path(real), limit) for path, real in touched.items()}
        return {path: None if content is None else SourceFile.of(path, content) for path, content in contents.items()}

    def _pace(self, rest_s: float) -> float:
        if self._parts.surroundings.is_remote:
            return rest_s
        return min(rest_s, max(self._options.settle_s, _SHORTEST_REST_S))


def _composed(
    tree: SourceTree,
    last: SourceTree | None,
    others: Mapping[PurePosixPath, SourceFile | None],
    *,
    keeps_removed: bool,
) -> SourceTree:
    """Return a tree with other files in the place of some.

    Args:
        tree: the tree as it was seen.
        last: the tree that was taken last.
        others: what to take instead; None for what was taken last, if anything.
        keeps_removed: files that are not there any more stay as they were taken last.
    """
    if not others and not keeps_removed:
        return tree
    before = {file.path: file for file in last.files} if last is not None else {}
    files: dict[PurePosixPath, SourceFile | None] = {}
    if keeps_removed:
        files.update(before)
        for problem in tree.problems:
            files.pop(problem.path, None)
    files.update({file.path: file for file in tree.files})
    files.update({path: file or before.get(path) for path, file in others.items()})
    taken = sorted((file for file in files.values() if file is not None), key=lambda file: file.path.parts)
    return replace(tree, files=tuple(taken))
