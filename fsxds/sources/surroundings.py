"""Choose what to watch around a tree, and whether notifications can be believed there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fsxds.sources.activity import Activity
from fsxds.sources.filesystem_kind import read_mount_table, remote_type
from fsxds.sources.links import Links
from fsxds.sources.notifications import Notifications, Place
from fsxds.sources.scan import Look


@dataclass(frozen=True, slots=True)
class Where:
    """What is to be watched: the root as it was given, the mode that was asked for, the kernel's table of mounts."""

    root: Path
    mode: str
    mount_table: Path


class Surroundings:
    """Keeps the watches where the last look found the tree.

    `is_polling` says that there are no notifications, `is_remote` that other machines may write to the tree.
    """

    def __init__(
        self, where: Where, notifications: Notifications, activity: Activity, tell: Callable[[str, str], None]
    ) -> None:
        """Start with no watches. `tell` hears mode and reason, when they are known and whenever they change."""
        self.is_polling = where.mode == "poll"
        self.is_remote = False
        self._root = where.root
        self._mode = where.mode
        self._mount_table = where.mount_table
        self._notifications = notifications
        self._activity = activity
        self._tell = tell
        self._told: tuple[str, str] | None = None
        self._exhausted: str | None = None
        self._directories: tuple[str, ...] | None = None
        self._remote_reason: str | None = None

    async def attend_to(self, look: Look | None) -> bool:
        """Watch what the tree of this look depends on, or the way to a tree that is not there.

        Returns:
            Whether something is watched that was not until now, so that the tree has to be looked at again.
        """
        directories: tuple[str, ...] = ()
        points = _way_to(self._root)
        if look is not None:
            directories, points = _outermost(look.directories), look.turning_points.union(look.files)
            await asyncio.to_thread(self._judge, directories)
        self._activity.attend_to(directories, points)
        mode, reason = self._choose()
        is_new = False
        if mode == "inotify":
            try:
                is_new = await asyncio.to_thread(self._notifications.arm, _places(directories, points))
            except OSError as error:
                self._exhausted = f"the kernel gives no more watches: {error.strerror or error}"
                mode, reason = self._choose()
        await self._become(mode, reason)
        return is_new

    def _judge(self, directories: tuple[str, ...]) -> None:
        if directories == self._directories:
            return
        self._directories = directories
        table = read_mount_table(self._mount_table)
        remote = ((directory, remote_type(Path(directory), table)) for directory in directories)
        found = next(((directory, filesystem) for directory, filesystem in remote if filesystem is not None), None)
        self.is_remote = found is not None
        self._remote_reason = found and f"{found[0]} is on {found[1]}, where other machines write unheard"

    def _choose(self) -> tuple[str, str]:
        if self._mode == "poll":
            return "poll", "asked for"
        if self._exhausted is not None:
            return "poll", self._exhausted
        if self._mode == "inotify":
            return "inotify", "asked for"
        if self._remote_reason is not None:
            return "poll", self._remote_reason
        return "inotify", "all changes are made on this machine"

    async def _become(self, mode: str, reason: str) -> None:
        self.is_polling = mode == "poll"
        if self._told == (mode, reason):
            return
        if self.is_polling:
            await asyncio.to_thread(self._notifications.stop)
        self._told = (mode, reason)
        self._tell(mode, reason)


def _way_to(root: Path) -> frozenset[str]:
    """Return the paths whose appearance may bring back the root."""
    links = Links()
    real = links.resolve(str(root))
    return frozenset({*links.targets, *links.missing, *([] if real is None else [real])})


def _outermost(directories: Iterable[str]) -> tuple[str, ...]:
    """Leave out directories inside others, which are watched with them."""
    found: list[str] = []
    for directory in sorted(set(directories)):
        if not _is_inside(directory, found):
            found.append(directory)
    return tuple(found)


def _places(directories: tuple[str, ...], points: frozenset[str]) -> frozenset[Place]:
    """Return the directories themselves, and those in which the outer points are entries."""
    trees = {Place(directory, is_recursive=True) for directory in directories}
    above = {str(PurePosixPath(point).parent) for point in points}
    return frozenset(trees | {Place(path, is_recursive=False) for path in above if not _is_inside(path, directories)})


def _is_inside(path: str, directories: Iterable[str]) -> bool:
    return path in directories or any(path.startswith(directory.rstrip("/") + "/") for directory in directories)
