"""Choose what to watch around a tree, and whether notifications can be believed there."""

# Paths are text here: making 10 000 Path objects would double the time of a look.
# ruff: noqa: PTH120

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from fsxds.sources.activity import Activity
from fsxds.sources.file_names import is_passed_over
from fsxds.sources.filesystem_kind import read_mount_table, remote_type
from fsxds.sources.links import Links
from fsxds.sources.notifications import Armed, Notifications
from fsxds.sources.scan import Look
from fsxds.sources.walk import Identity, Signature, identity_of, signature_of


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
        self, where: Where, notifications: Notifications, activity: Activity, tell: Callable[[str, str], None]
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
