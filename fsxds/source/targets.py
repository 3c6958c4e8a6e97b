"""Chooses paths to watch, and whether notifications are reliable."""

# Paths are text here: making 10 000 Path objects would double the time of a look.
# ruff: noqa: PTH120

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

from fsxds.events.event import Observer
from fsxds.events.file_events import QueueOverflowed, WatchStarted
from fsxds.source.listing import MANIFEST_NAMES, Identity, Links, Signature, identity_of, is_passed_over, signature_of
from fsxds.source.notifications import Armed, Notifications
from fsxds.source.scan import ScanResult
from fsxds.source.settle import Activity

WatchMode: TypeAlias = Literal["auto", "inotify", "poll"]

_STOP_S = 5.0

MOUNT_TABLE = Path("/proc/self/mountinfo")

# Other machines, or a virtual machine's host, write without a notification.
_REMOTE_TYPES = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "drvfs", "fuse", "glusterfs", "gpfs", "lustre", "ncpfs",
        "nfs", "nfs4", "orangefs", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "wslfs",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How a tree is watched.

    Mode `inotify`, unlike `auto`, relies on notifications on network filesystems, too; both poll unwatchable
    directories. `settle_s` is the quiet time that ends a burst, `settle_cap_s` its maximum; `share_s` between takes of
    quiet files; `writer_patience_s` for an open file, since its last change; `rescan_s` between looks without cause,
    `poll_s` without notifications.
    """

    mode: WatchMode = "auto"
    settle_s: float = 0.05
    settle_cap_s: float = 10.0
    share_s: float = 0.5
    writer_patience_s: float = 2.0
    rescan_s: float = 30.0
    poll_s: float = 1.0
    mount_table: Path = MOUNT_TABLE


class WatchTargets:
    """Keeps watches at the last look's places.

    `is_remote`: other machines may write; `unwatched` directories are polled.
    """

    def __init__(self, root: Path, options: WatchOptions, activity: Activity, observer: Observer) -> None:
        """Start without watches; mode and mount table of `options` matter, `observer` receives their changes."""
        self.is_polling = options.mode == "poll"
        self.is_remote = False
        self.unwatched: tuple[str, ...] = ()
        self._root = root
        self._options = options
        self._activity = activity
        self._observer = observer
        loop = asyncio.get_running_loop()
        self._notifications = Notifications(
            lambda event: loop.call_soon_threadsafe(activity.receive, event),
            lambda: loop.call_soon_threadsafe(self._receive_overflow, time.monotonic()),
        )
        self._reported: tuple[str, str] | None = None
        self._tops: tuple[str, ...] | None = None
        self._remote_reason: str | None = None
        self._points: frozenset[str] = frozenset()
        # {path that cannot be watched: its listing}
        self._listings: dict[str, Listing] = {}

    @property
    def can_miss(self) -> bool:
        """Whether a change may have no event."""
        return self.is_polling or self.is_remote or bool(self.unwatched)

    async def stop(self) -> None:
        """Stop all watches; slow threads stay behind, as daemons."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await asyncio.to_thread(self._notifications.stop)

    def _receive_overflow(self, at_s: float) -> None:
        self._observer(QueueOverflowed())
        self._activity.receive_overflow(at_s)

    async def follow(self, look: ScanResult | None) -> bool:
        """Watch a look's directories, or the path to a missing tree; return whether any is new: look again."""
        tops: tuple[str, ...] = ()
        listed: Mapping[str, Identity] = {}
        links = Links()
        real = links.resolve(str(self._root))
        points = frozenset({*links.targets, *links.missing, *([] if real is None else [real])})
        if look is not None:
            tops, listed, points = look.tops, look.directories, look.link_paths
            await asyncio.to_thread(self._find_remote, tops)
        self._activity.follow(tops, points)
        self._points = points
        mode, reason = self._choose()
        if mode == "poll":
            self.unwatched = ()
            await self._become(mode, reason, reason)
            return False
        armed = await asyncio.to_thread(self._arm, tops, listed, points)
        if armed.has_failed:
            self.unwatched = ()
            await self._become("poll", f"there is no inotify: {armed.reason}", armed.reason)
            return False
        # The next listing, the first to be compared, finds changes since this look.
        self.unwatched = armed.unwatched
        if armed.unwatched:
            count = f"{len(armed.unwatched)} of {armed.count} directories"
            reason = f"{count}, such as {armed.unwatched[0]}, can only be polled: {armed.reason}"
        await self._become(mode, reason, armed.reason)
        return armed.is_new

    async def parts_changed(self) -> bool:
        """List unwatchable directories; return whether any changed."""
        listings = await asyncio.to_thread(self._list_parts)
        before, self._listings = self._listings, listings
        return listings != before

    def _list_parts(self) -> dict[str, Listing]:
        parts = frozenset(self.unwatched)
        listings: dict[str, Listing] = {path: _listing_of(path) for path in parts}
        # Not listable, but maybe with the root or a linked file.
        points = [point for point in self._points if os.path.dirname(point) in parts] if parts else []
        return listings | {point: _entry_of(point) for point in points}

    def _arm(self, tops: tuple[str, ...], listed: Mapping[str, Identity], points: frozenset[str]) -> Armed:
        above = {str(PurePosixPath(point).parent) for point in points} - listed.keys()
        wanted = {top: listed[top] for top in tops if top in listed}
        for path in sorted(above):
            with contextlib.suppress(OSError):
                wanted[path] = identity_of(path)
        wanted.update(listed)
        return self._notifications.arm(wanted)

    def _find_remote(self, tops: tuple[str, ...]) -> None:
        if tops == self._tops:
            return
        self._tops = tops
        table = read_mount_table(self._options.mount_table)
        remote = ((top, remote_type(Path(top), table)) for top in tops)
        found = next(((top, filesystem) for top, filesystem in remote if filesystem is not None), None)
        self.is_remote = found is not None
        self._remote_reason = (
            found and f"{found[0]} is on {found[1]}, where other machines write without a notification"
        )

    def _choose(self) -> tuple[str, str]:
        if self._options.mode == "poll":
            return "poll", "asked for"
        if self._options.mode == "inotify":
            return "inotify", "asked for"
        if self._remote_reason is not None:
            return "poll", self._remote_reason
        return "inotify", "all changes are made on this machine"

    async def _become(self, mode: str, reason: str, cause: str) -> None:
        """Reported unless the cause is the same."""
        self.is_polling = mode == "poll"
        if self._reported != (mode, cause):
            if self.is_polling:
                await asyncio.to_thread(self._notifications.stop)
            self._reported = mode, cause
            self._observer(WatchStarted(mode, reason))


Listing: TypeAlias = frozenset[tuple[str, Signature]] | Signature | int
"""A directory's entries, a file's signature, or the number of the error."""


def _listing_of(path: str) -> Listing:
    listing = set()
    try:
        with os.scandir(path) as entries:
            for direntry in entries:
                if not is_passed_over(direntry.name) or direntry.name in MANIFEST_NAMES:
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


def remote_type(path: Path, mount_table: str) -> str | None:
    """Return a path's remote filesystem type (`nfs4`), or None.

    `path` is absolute, without links; `mount_table` is `/proc/self/mountinfo`, or empty.
    """
    found: tuple[int, str] = (-1, "")
    for row in filter(None, mount_table.split("\n")):
        # Source: proc(5), "/proc/pid/mountinfo": the fifth field is the mount point, the type follows a lone hyphen.
        fields, _, behind = row.partition(" - ")
        # Octal escapes of space, tab, newline and backslash.
        mount_point = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields.split(" ")[4]))
        # A later mount covers an earlier one.
        if path.is_relative_to(mount_point) and len(mount_point.parts) >= found[0]:
            found = (len(mount_point.parts), behind.split(" ")[0])
    filesystem_type = found[1]
    is_remote = filesystem_type in _REMOTE_TYPES or filesystem_type.startswith("fuse.")
    return filesystem_type if is_remote else None


def read_mount_table(path: Path) -> str:
    """Return the mount table; empty without one."""
    try:
        return os.fsdecode(path.read_bytes())
    except OSError:
        return ""
