"""Keep watchdog's watches on the places that matter, and hand on what its threads hear."""

from __future__ import annotations

import errno
import logging
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from watchdog.events import (
    DirAttribEvent,
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileAttribEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers.api import BaseObserver, ObservedWatch

# Opened and ClosedNoWrite are left out: fsxds' own reading would be heard. DirModified only repeats what happened
# inside.
_EVENTS: list[type[FileSystemEvent]] = [
    FileAttribEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    DirAttribEvent,
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
]

# watchdog 7.1 tells no handler that the kernel's queue ran over and events are lost; this warning is the only sign.
_OVERFLOW_LOGGER = "watchdog.observers.inotify_c"
_OVERFLOW_TEXT = "queue overflowed"

# What watchdog 7.1 says when directories are made and moved faster than it follows, and when it is stopped while an
# event is under way. Neither does harm: the watch is there, and the event concerns nobody any more.
_HARMLESS_WARNING = r"Callback with id .* (already exists|does not exist) for watch"
_HARMLESS_LOGGER = "watchdog.observers.inotify"
_HARMLESS_TEXT = "called when the thread is inactive"


class Happening(Enum):
    """What an event said of a file; `OTHER` includes all that concerns directories."""

    CREATED = "created"
    MODIFIED = "modified"
    CLOSED = "closed"
    DELETED = "deleted"
    MOVED = "moved"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Notice:
    """One event: `paths` are one, or two (from, to) for a move. `at_s` is `time.monotonic()` when it was heard."""

    at_s: float
    happening: Happening
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A directory to watch, itself or with all directories below it."""

    path: str
    is_recursive: bool


_HAPPENINGS: dict[type[FileSystemEvent], Happening] = {
    FileCreatedEvent: Happening.CREATED,
    FileModifiedEvent: Happening.MODIFIED,
    FileClosedEvent: Happening.CLOSED,
    FileDeletedEvent: Happening.DELETED,
    FileMovedEvent: Happening.MOVED,
}


class Notifications:
    """One watchdog observer and its watches. `arm` and `stop` block, so they are called in a thread."""

    def __init__(
        self,
        new_observer: Callable[[], BaseObserver],
        tell: Callable[[Notice], object],
        tell_overflow: Callable[[], object],
    ) -> None:
        """Prepare; nothing runs before the first `arm`. Both `tell` are called in threads of watchdog."""
        self._new_observer = new_observer
        self._handler = _Teller(tell)
        self._overflow_handler = _OverflowHandler(tell_overflow)
        self._observer: BaseObserver | None = None
        # {place: (its watch, device and inode of the directory when it was watched)}
        self._armed: dict[Place, tuple[ObservedWatch, tuple[int, int]]] = {}

    def arm(self, places: frozenset[Place]) -> bool:
        """Watch exactly these places; returns whether one was not watched until now, so that changes may have passed.

        Raises:
            OSError: watches or inotify instances ran out.
        """
        observer = self._observer or self._start()
        self._observer = observer
        finished = {emitter.watch for emitter in observer.emitters if not emitter.is_alive()}
        for place, (watch, identity) in list(self._armed.items()):
            # A directory that was deleted, moved or replaced leaves a watch behind that is deaf or hears the wrong one.
            if place not in places or watch in finished or _identity(place.path) != identity:
                observer.unschedule(watch)
                del self._armed[place]
        # watchdog says nothing when a sub-directory finds no free watch, only when a place itself does. The places
        # that are not recursive come last, so that one of them meets the limit that sub-directories ran into.
        missing = sorted(places - self._armed.keys(), key=lambda place: (not place.is_recursive, place.path))
        newly_watched = [self._watch(observer, place) for place in missing]
        return any(newly_watched)

    def stop(self) -> None:
        """Stop watching and wait for the observer's threads, which takes up to 0.5 s when a move is being paired."""
        logging.getLogger(_OVERFLOW_LOGGER).removeHandler(self._overflow_handler)
        self._armed.clear()
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()
            self._observer = None
        logging.getLogger(_HARMLESS_LOGGER).removeFilter(_is_worth_telling)

    def _start(self) -> BaseObserver:
        observer = self._new_observer()
        observer.start()
        warnings.filterwarnings("ignore", _HARMLESS_WARNING, RuntimeWarning, r"watchdog\.")
        logging.getLogger(_HARMLESS_LOGGER).addFilter(_is_worth_telling)
        logging.getLogger(_OVERFLOW_LOGGER).addHandler(self._overflow_handler)
        return observer

    def _watch(self, observer: BaseObserver, place: Place) -> bool:
        identity = _identity(place.path)
        if identity is None:
            return False
        try:
            watch = observer.schedule(self._handler, place.path, recursive=place.is_recursive, event_filter=_EVENTS)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR}:
                return False  # it went away just now, which its parent's watch or the next look will show
            raise
        self._armed[place] = (watch, identity)
        return True


class _Teller(FileSystemEventHandler):
    def __init__(self, tell: Callable[[Notice], object]) -> None:
        self._tell = tell

    def on_any_event(self, event: FileSystemEvent) -> None:
        happening = _HAPPENINGS.get(type(event), Happening.OTHER)
        paths = tuple(os.fsdecode(path) for path in (event.src_path, event.dest_path) if path)
        self._tell(Notice(time.monotonic(), happening, paths))


class _OverflowHandler(logging.Handler):
    def __init__(self, tell: Callable[[], object]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        if _OVERFLOW_TEXT in record.getMessage():
            self._tell()


def _is_worth_telling(record: logging.LogRecord) -> bool:
    return _HARMLESS_TEXT not in record.getMessage()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
