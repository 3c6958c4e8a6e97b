"""What was heard of a tree since the last look, and which of its files are being written."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import PurePosixPath

from fsxds.sources.notifications import Happening, Notice


class Activity:
    """The one inbox of a watcher: notices come in, and a look at the tree empties it. Used in the event loop only.

    `first_s` and `last_s` are the times of the first and the last notice, None when there is none.
    """

    def __init__(self, is_read: Callable[[str], bool]) -> None:
        """Start with an empty inbox; `is_read` tells by a file's name whether its content matters."""
        self.first_s: float | None = None
        self.last_s: float | None = None
        self._is_read = is_read
        self._inside: tuple[str, ...] = ()
        self._points: frozenset[str] = frozenset()
        self._news = asyncio.Event()
        # {path: when it was last modified}, without those that were closed since
        self._modified: dict[str, float] = {}
        # {path: when it was created}, without those that were closed since
        self._created: dict[str, float] = {}

    def attend_to(self, directories: tuple[str, ...], points: frozenset[str]) -> None:
        """Say what matters: all that happens in these directories, and what happens to these paths elsewhere."""
        self._inside = tuple(directory.rstrip("/") + "/" for directory in directories)
        self._points = points

    def receive(self, notice: Notice) -> None:
        """Take in one notice, unless it is about nothing that matters."""
        if not any(self._matters(path, notice.happening) for path in notice.paths):
            return
        self._follow_writers(notice)
        self._mark(notice.at_s)

    def receive_overflow(self, at_s: float) -> None:
        """Take in that notices were lost, so that anything may have happened."""
        self._mark(at_s)

    def clear(self) -> None:
        """Empty the inbox, just before a look at the tree. Who is writing is not forgotten."""
        self.first_s = self.last_s = None
        self._news.clear()

    async def wait(self, timeout_s: float) -> None:
        """Return when there is a notice in the inbox, or after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return

    async def wait_for_more(self, timeout_s: float) -> None:
        """Return when another notice comes in, or after `timeout_s`."""
        self._news.clear()
        await self.wait(timeout_s)

    def written_until_s(self, patience_s: float, now_s: float) -> float:
        """Return the time until which writers are to be waited for; a time that has passed means that there are none.

        A writer is one who modified a file, or created one that is still empty, and did not close it. Patience counts
        from the last modification.
        """
        self._modified = {path: at_s for path, at_s in self._modified.items() if at_s + patience_s > now_s}
        self._created = {path: at_s for path, at_s in self._created.items() if at_s + patience_s > now_s}
        empty = [at_s for path, at_s in self._created.items() if _is_empty_file(path)]
        return max([*self._modified.values(), *empty], default=-patience_s) + patience_s

    def _matters(self, path: str, happening: Happening) -> bool:
        if path in self._points:
            return True
        if not path.startswith(self._inside):
            return False
        # A log that grows beside the files is not heard. Its creation is: it could be a link that leads to a directory.
        return happening not in {Happening.MODIFIED, Happening.CLOSED} or self._has_content(path)

    def _has_content(self, path: str) -> bool:
        return path in self._points or self._is_read(PurePosixPath(path).name)

    def _follow_writers(self, notice: Notice) -> None:
        path = notice.paths[0]
        if notice.happening is Happening.MODIFIED:
            self._modified[path] = notice.at_s
        elif notice.happening is Happening.CREATED and self._has_content(path):
            self._created[path] = notice.at_s
        elif notice.happening in {Happening.CLOSED, Happening.DELETED}:
            self._modified.pop(path, None)
            self._created.pop(path, None)
        elif notice.happening is Happening.MOVED:
            self._created.pop(path, None)
            modified_s = self._modified.pop(path, None)
            if modified_s is not None and self._has_content(notice.paths[-1]):
                self._modified[notice.paths[-1]] = modified_s

    def _mark(self, at_s: float) -> None:
        self.first_s = at_s if self.first_s is None else self.first_s
        self.last_s = at_s
        self._news.set()


def _is_empty_file(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == 0
