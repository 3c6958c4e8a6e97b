"""What was heard of a tree since the last look, and which of its files are being written."""

from __future__ import annotations

import asyncio
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

from fsxds.sources.file_names import Exclusion, is_passed_over
from fsxds.sources.notifications import Happening, Notice

# A file that is replaced so often within so many seconds is restless: nobody edits as fast, and a tool that writes a
# whole tree touches each of its files once or twice.
_RESTLESS_TIMES = 5
_RESTLESS_S = 1.0

# And so is one that is open and has been written for so long.
_RESTLESS_WRITER_S = 0.5


class Activity:
    """The one inbox of a watcher: notices come in, and a look at the tree empties it. Used in the event loop only.

    `first_s` and `last_s` are the times of the first and the last notice, `calm_s` that of the last one about what is
    not restless; None where there is none. `touched` are the paths that the notices were about.
    """

    def __init__(self, is_read: Callable[[str], bool], exclusion: Exclusion | None = None) -> None:
        """Start with an empty inbox; `is_read` tells by a file's name whether its content matters, unless it is excluded."""
        self._exclusion = exclusion or Exclusion()
        self.first_s: float | None = None
        self.last_s: float | None = None
        self.calm_s: float | None = None
        self.touched: set[str] = set()
        self._is_read = is_read
        self._tops: tuple[str, ...] = ()
        self._points: frozenset[str] = frozenset()
        self._news = asyncio.Event()
        # {path: when it was first and last modified}, without those that were closed since
        self._modified: dict[str, tuple[float, float]] = {}
        # {path: when it was created}, without those that were closed since
        self._created: dict[str, float] = {}
        # {path: when it was last closed, moved into its place, or deleted, the latest last}
        self._replaced: dict[str, deque[float]] = {}

    def attend_to(self, tops: Iterable[str], points: frozenset[str]) -> None:
        """Say what matters: what is read below these directories, and what happens to these paths elsewhere."""
        self._tops = tuple(top.rstrip("/") + "/" for top in tops)
        self._points = points

    def receive(self, notice: Notice) -> None:
        """Take in one notice, unless it is about nothing that matters."""
        if not any(self._matters(path, notice) for path in notice.paths):
            return
        self._follow_writers(notice)
        path = notice.paths[-1]
        if notice.happening in {Happening.CLOSED, Happening.MOVED, Happening.DELETED}:
            self._replaced.setdefault(path, deque(maxlen=_RESTLESS_TIMES)).append(notice.at_s)
        self._mark(notice.at_s, is_calm=not self.is_restless(path, notice.at_s))
        self.touched.update(notice.paths)

    def receive_overflow(self, at_s: float) -> None:
        """Take in that notices were lost, so that anything may have happened."""
        self._mark(at_s, is_calm=True)

    def clear(self) -> None:
        """Empty the inbox, just before a look at the tree. Who is writing is not forgotten."""
        self.first_s = self.last_s = self.calm_s = None
        self.touched = set()
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
        from the last modification, and nobody waits for one that has been modifying for long.
        """
        self._forget(patience_s, now_s)
        modified = [last_s for first_s, last_s in self._modified.values() if last_s - first_s < _RESTLESS_WRITER_S]
        empty = [at_s for path, at_s in self._created.items() if _is_empty_file(path)]
        return max([*modified, *empty], default=-patience_s) + patience_s

    def is_written(self, path: str, patience_s: float, now_s: float) -> bool:
        """Tell whether a file was modified of late, or was created and is empty, and was not closed since."""
        self._forget(patience_s, now_s)
        return path in self._modified or (path in self._created and _is_empty_file(path))

    def _forget(self, patience_s: float, now_s: float) -> None:
        self._modified = {path: at for path, at in self._modified.items() if at[1] + patience_s > now_s}
        self._created = {path: at_s for path, at_s in self._created.items() if at_s + patience_s > now_s}
        self._replaced = {path: times for path, times in self._replaced.items() if times[-1] + _RESTLESS_S > now_s}

    def _matters(self, path: str, notice: Notice) -> bool:
        if path in self._points:
            return True
        below = [path[len(top) :] for top in self._tops if path.startswith(top)]
        if all(any(map(is_passed_over, inner.split("/"))) or self._exclusion.covers(inner) for inner in below):
            return False
        if notice.is_directory or self._has_content(path):
            return True
        # Of a file that is not read it matters whether it is a link, which could lead to a directory.
        has_come = notice.happening in {Happening.CREATED, Happening.MOVED} and path == notice.paths[-1]
        return has_come and os.path.islink(path)  # noqa: PTH114 - does not raise

    def _has_content(self, path: str) -> bool:
        return path in self._points or self._is_read(PurePosixPath(path).name)

    def is_restless(self, path: str, now_s: float) -> bool:
        """Tell whether a file is written all the time, so that nothing else waits for it."""
        times = self._replaced.get(path)
        if times is not None and len(times) == _RESTLESS_TIMES and now_s - times[0] < 2 * _RESTLESS_S:
            return times[-1] - times[0] < _RESTLESS_S
        first_s, last_s = self._modified.get(path, (0.0, 0.0))
        return last_s - first_s >= _RESTLESS_WRITER_S

    def _follow_writers(self, notice: Notice) -> None:
        path = notice.paths[0]
        if notice.happening is Happening.MODIFIED:
            self._modified[path] = self._modified.get(path, (notice.at_s, 0.0))[0], notice.at_s
        elif notice.happening is Happening.CREATED and self._has_content(path) and not notice.is_directory:
            self._created[path] = notice.at_s
        elif notice.happening in {Happening.CLOSED, Happening.DELETED}:
            self._modified.pop(path, None)
            self._created.pop(path, None)
        elif notice.happening is Happening.MOVED:
            self._created.pop(path, None)
            modified = self._modified.pop(path, None)
            if modified is not None and self._has_content(notice.paths[-1]):
                self._modified[notice.paths[-1]] = modified

    def _mark(self, at_s: float, *, is_calm: bool) -> None:
        self.first_s = at_s if self.first_s is None else self.first_s
        self.last_s = at_s
        if is_calm:
            self.calm_s = at_s
        self._news.set()


def _is_empty_file(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == 0
