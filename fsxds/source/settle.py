"""Decides from file events whether a change is over: the inbox of a watcher.

The quiet time after the last event, until a change is complete:

| events within the last `--settle` | quiet time |
| --- | --- |
| one move of a file over a served one | 10 ms |
| one write in place of a served file, now not shorter and not beginning with its old content | 10 ms |
| more than one file, or save of a file | `--settle` |
| a created or removed file, an empty one, a directory, a link or its target; lost events | `--settle` |
| one save, while an unclosed file was just begun under a name that is not read | `--settle` |
| one save of a file that may be open, as the kernel does not say | `--settle` |
| a file open for writing | until it is closed, or `writer_patience` |
| any, while git locks its index | until git has finished, or `settle_cap` |

A move brings a finished file, as does a closed write in place, unless it is one of several: the first leaves the file
empty or shorter, others append. A created or removed file is often one of several: `git checkout` deletes and creates
each, up to 32 ms after the one before. `rsync` begins the next temporary file right after a move. A `--settle` below
10 ms applies to all rows.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from fsxds.model.values import SourceFile
from fsxds.source.listing import MANIFEST_NAMES, Exclusion, is_passed_over
from fsxds.source.notifications import FileEvent, FileEventType

# Replaced this often within so many seconds, a file is restless: no person edits as fast, and a tool that writes a tree
# touches each file once or twice.
_OFTEN_TIMES = 5
_OFTEN_WITHIN_S = 1.0

# So is an open file that is written for so long.
_LASTING_WRITER_S = 0.5

# More than between steps of one save; an event is up to 4 ms behind (p99).
SAVE_SETTLE_S = 0.01

_MODIFIED = FileEventType.MODIFIED
_SAVED = frozenset({FileEventType.CLOSED, FileEventType.MOVED})
_COMES_OR_GOES = frozenset({FileEventType.CREATED, FileEventType.DELETED})


@dataclass(frozen=True, slots=True)
class Save:
    """The real path's save is the only event; `is_move`: over it."""

    path: str
    is_move: bool

    def brings(self, file: SourceFile, before: SourceFile) -> bool:
        """Whether the new content can be complete, and no step of several."""
        if not file.size_bytes:
            return False
        return self.is_move or (file.size_bytes >= before.size_bytes and not file.begins_with(before))


class Activity:
    """A watcher's inbox of file events until a look. For the event loop.

    `first_s` and `last_s` are of the first and last event, `calm_s` of the last beside restless files; None: none.
    `touched` None: events were lost. `unlisted` are new unread files, for a look at the whole tree.
    """

    def __init__(
        self, is_read: Callable[[str], bool], exclusion: Exclusion | None = None, *, settle_s: float = 0.05
    ) -> None:
        """Start empty.

        `is_read`: a name matters; `settle_s`: events this far apart are different changes.
        """
        self._exclusion = exclusion or Exclusion()
        self._settle_s = settle_s
        self.first_s: float | None = None
        self.last_s: float | None = None
        self.calm_s: float | None = None
        self.touched: set[str] | None = set()
        self.unlisted: set[str] = set()
        self._is_read = is_read
        self._tops: tuple[str, ...] = ()
        self._points: frozenset[str] = frozenset()
        self._is_filled = asyncio.Event()
        # {path: first and last modification}, until closed
        self._modified: dict[str, tuple[float, float]] = {}
        # {path: creation}, until closed
        self._created: dict[str, float] = {}
        # {path: when closed, moved into place, or deleted}, the latest last
        self._replaced: dict[str, deque[float]] = {}
        # Each event at most the settle time before the last, also before a look.
        self._burst: deque[FileEvent] = deque()
        # {path of an unread file: creation}, until closed or moved
        self._begun: dict[str, float] = {}

    def follow(self, tops: Iterable[str], points: frozenset[str]) -> None:
        """Receive events below `tops`, and of `points`."""
        self._tops = tuple(top.rstrip("/") + "/" for top in tops)
        self._points = points

    def receive(self, event: FileEvent) -> None:
        """Record an event, if relevant."""
        touched = tuple(path for path in event.paths if self._matters(path, event))
        self._follow_gone(event)
        if not touched:
            self._follow_unread(event)
            return
        self._follow_burst(event, touched)
        self._follow_writers(event)
        path = event.paths[-1]
        if event.event_type in {FileEventType.CLOSED, FileEventType.MOVED, FileEventType.DELETED}:
            self._replaced.setdefault(path, deque(maxlen=_OFTEN_TIMES)).append(event.at_s)
        self._mark(event.at_s, is_calm=not self.is_written_often(path, event.at_s))
        if self.touched is not None:
            self.touched.update(touched)

    def receive_overflow(self, at_s: float) -> None:
        """Record lost events: any path may have changed."""
        self._follow_burst(FileEvent(at_s, FileEventType.OTHER, ("",)), ("",))
        self._mark(at_s, is_calm=True)
        self.touched = None

    def is_about_one_file(self) -> bool:
        """Whether the last settle time's events are of one file, neither new, removed nor restless."""
        if not self._burst or self.calm_s is None:
            return False
        paths = self._burst[-1].paths
        is_one = all(event.paths == paths and event.event_type not in _COMES_OR_GOES for event in self._burst)
        return is_one and len(paths) == 1 and paths[0] not in self._points

    def lone_save(self) -> Save | None:
        """Return the last settle time's only save; None if there was more, or it may be incomplete."""
        if not self.is_about_one_file():
            return None
        last = self._burst[-1]
        saved = [event.event_type for event in self._burst if event.event_type in _SAVED]
        if len(saved) != 1 or any(at_s + self._settle_s > last.at_s for at_s in self._begun.values()):
            return None
        return Save(last.paths[0], saved[0] is FileEventType.MOVED)

    def clear(self) -> None:
        """Empty the inbox before a look; keep writers."""
        self.first_s = self.last_s = self.calm_s = None
        self.touched = set()
        self._is_filled.clear()

    async def wait(self, timeout_s: float) -> None:
        """Return at an event, or after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_filled.wait()
        except TimeoutError:
            return

    async def wait_for_more(self, timeout_s: float) -> None:
        """Return at another event, or after `timeout_s`."""
        self._is_filled.clear()
        await self.wait(timeout_s)

    def written_until_s(self, patience_s: float, now_s: float) -> float:
        """Return until when to wait for writers; a past time for none.

        A writer modified a file, or created an empty one, without closing it. Patience counts from the last change,
        except for restless ones.
        """
        self._forget(patience_s, now_s)
        modified = [last_s for first_s, last_s in self._modified.values() if last_s - first_s < _LASTING_WRITER_S]
        empty = [at_s for path, at_s in self._created.items() if _is_empty_file(path)]
        return max([*modified, *empty], default=-patience_s) + patience_s

    def written(self, patience_s: float, now_s: float) -> frozenset[str]:
        """Return modified, or new and empty, files not closed since."""
        self._forget(patience_s, now_s)
        return frozenset({*self._modified, *filter(_is_empty_file, self._created)})

    def _forget(self, patience_s: float, now_s: float) -> None:
        self._modified = {path: at for path, at in self._modified.items() if at[1] + patience_s > now_s}
        self._created = {path: at_s for path, at_s in self._created.items() if at_s + patience_s > now_s}
        self._replaced = {path: times for path, times in self._replaced.items() if times[-1] + _OFTEN_WITHIN_S > now_s}

    def _matters(self, path: str, event: FileEvent) -> bool:
        if path in self._points:
            return True
        if not self._is_listed(path):
            return False
        if event.is_directory or self._has_content(path):
            return True
        # An unread link matters: it could lead to a directory.
        has_come = event.event_type in {FileEventType.CREATED, FileEventType.MOVED} and path == event.paths[-1]
        return has_come and os.path.islink(path)  # noqa: PTH114 - does not raise

    def _is_listed(self, path: str) -> bool:
        below = [path[len(top) :] for top in self._tops if path.startswith(top)]
        return any(
            (inner in MANIFEST_NAMES or not any(map(is_passed_over, inner.split("/"))))
            and not self._exclusion.covers(inner)
            for inner in below
        )

    def _has_content(self, path: str) -> bool:
        name = PurePosixPath(path).name
        return path in self._points or name in MANIFEST_NAMES or self._is_read(name)

    def is_written_often(self, path: str, now_s: float) -> bool:
        """Whether a file is always written, so that nothing waits for it."""
        times = self._replaced.get(path)
        if times is not None and len(times) == _OFTEN_TIMES and now_s - times[0] < 2 * _OFTEN_WITHIN_S:
            return times[-1] - times[0] < _OFTEN_WITHIN_S
        first_s, last_s = self._modified.get(path, (0.0, 0.0))
        return last_s - first_s >= _LASTING_WRITER_S

    def _follow_burst(self, event: FileEvent, touched: tuple[str, ...]) -> None:
        while self._burst and self._burst[0].at_s + self._settle_s <= event.at_s:
            self._burst.popleft()
        before = self._burst[-1] if self._burst else None
        if before is not None and before.paths == touched and event.event_type is before.event_type is _MODIFIED:
            self._burst.pop()  # A large file is written in many steps.
        # A move to an unread name removes it.
        event_type = event.event_type if event.paths[-1:] == touched[-1:] else FileEventType.DELETED
        self._burst.append(FileEvent(event.at_s, event_type, touched, event.is_directory))

    def _follow_unread(self, event: FileEvent) -> None:
        path = event.paths[-1]
        if event.event_type is FileEventType.CREATED:
            self._begun = {path: at_s for path, at_s in self._begun.items() if at_s + self._settle_s > event.at_s}
            self._begun[path] = event.at_s
        if event.event_type in {FileEventType.CREATED, FileEventType.MOVED} and self._is_listed(path):
            self.unlisted.add(path)

    def _follow_gone(self, event: FileEvent) -> None:
        """Forget a file that is not read once it is finished or gone."""
        path = event.paths[0]
        if event.event_type not in {FileEventType.CREATED, _MODIFIED}:
            self._begun.pop(path, None)
            if path in self.unlisted and not os.path.lexists(path):
                self.unlisted.discard(path)

    def _follow_writers(self, event: FileEvent) -> None:
        path = event.paths[0]
        if event.event_type is FileEventType.MODIFIED:
            self._modified[path] = self._modified.get(path, (event.at_s, 0.0))[0], event.at_s
        elif event.event_type is FileEventType.CREATED and self._has_content(path) and not event.is_directory:
            self._created[path] = event.at_s
        elif event.event_type in {FileEventType.CLOSED, FileEventType.DELETED}:
            self._modified.pop(path, None)
            self._created.pop(path, None)
        elif event.event_type is FileEventType.MOVED:
            self._created.pop(path, None)
            modified = self._modified.pop(path, None)
            if modified is not None and self._has_content(event.paths[-1]):
                self._modified[event.paths[-1]] = modified

    def _mark(self, at_s: float, *, is_calm: bool) -> None:
        self.first_s = at_s if self.first_s is None else self.first_s
        self.last_s = at_s
        if is_calm:
            self.calm_s = at_s
        self._is_filled.set()


def _is_empty_file(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == 0
