"""Keeps inotify watches on directories; passes on events."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import time

# The lower half of watchdog: its observers take a thread per directory, or watch a whole subtree, and report neither a
# sub-directory without a free watch nor lost events.
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import reduce

from watchdog.observers.inotify_c import CallbackId, InotifyConstants, InotifyEvent, InotifyFD, Mask, WatchDescriptor

from fsxds.source.listing import Identity

# Not opening, reading and closing unread, as fsxds does.
_MASK: Mask = reduce(
    lambda one, other: Mask(one | other),
    [
        InotifyConstants.IN_MODIFY,
        InotifyConstants.IN_ATTRIB,
        InotifyConstants.IN_CLOSE_WRITE,
        InotifyConstants.IN_MOVED_FROM,
        InotifyConstants.IN_MOVED_TO,
        InotifyConstants.IN_CREATE,
        InotifyConstants.IN_DELETE,
        InotifyConstants.IN_DELETE_SELF,
        InotifyConstants.IN_MOVE_SELF,
        InotifyConstants.IN_ONLYDIR,
    ],
)

# watchdog leaks an inotify instance if there is no descriptor for its pipe.
_DESCRIPTORS = 3

_REMEDIES = {
    errno.ENOSPC: "raise fs.inotify.max_user_watches with sysctl",
    errno.EMFILE: "raise fs.inotify.max_user_instances with sysctl, or the limit of open files (ulimit -n)",
    errno.EACCES: "let fsxds read it",
}


class FileEventType(Enum):
    """`OTHER` includes changed permissions."""

    CREATED = "created"
    MODIFIED = "modified"
    CLOSED = "closed"
    DELETED = "deleted"
    MOVED = "moved"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class FileEvent:
    """An event, with two paths (from, to) for a move; `at_s` is monotonic."""

    at_s: float
    event_type: FileEventType
    paths: tuple[str, ...]
    is_directory: bool = False


@dataclass(frozen=True, slots=True)
class Armed:
    """The result of arming watches.

    `is_new`: an unwatched directory may have changed without event. `reason`: why some are; `has_failed`: no inotify.
    """

    is_new: bool
    count: int
    unwatched: tuple[str, ...] = ()
    reason: str = ""
    has_failed: bool = False


class Notifications:
    """One inotify instance. `arm` and `stop` block: use a thread."""

    def __init__(self, receive: Callable[[FileEvent], object], receive_overflow: Callable[[], object]) -> None:
        """Prepare; watchdog's thread calls both functions."""
        self._receiver = _Receiver(receive, receive_overflow)
        self._inotify: InotifyFD | None = None
        # {directory: (watch, identity when watched)}
        self._armed: dict[str, tuple[CallbackId, WatchDescriptor, Identity]] = {}
        self._ids = map(CallbackId, itertools.count())

    def arm(self, directories: Mapping[str, Identity]) -> Armed:
        """Watch exactly these directories, not recursively; the first win if watches run out."""
        if self._inotify is not None and not self._inotify.is_alive():
            self.stop()
        try:
            inotify = self._inotify or self._start()
        except (OSError, RuntimeError) as error:  # RuntimeError if no thread can be started
            return Armed(
                is_new=False,
                count=len(directories),
                unwatched=tuple(directories),
                reason=_reason_of(error),
                has_failed=True,
            )
        # A deleted, moved or replaced directory has no events, or wrong ones.
        stale = [
            directory
            for directory, (_, watch, identity) in self._armed.items()
            if directories.get(directory) != identity or watch not in self._receiver.paths
        ]
        for directory in stale:
            number, watch, _ = self._armed.pop(directory)
            self._receiver.paths.pop(watch, None)
            inotify.remove_callbacks([(watch, number)])
        is_new = False
        unwatched: list[str] = []
        reason = ""
        for directory in [directory for directory in directories if directory not in self._armed]:
            try:
                self._watch(inotify, directory, directories[directory])
                is_new = True
            except (FileNotFoundError, NotADirectoryError):
                continue  # it was just removed, which its parent's watch or the next look will show
            except OSError as error:
                unwatched.append(directory)
                reason = reason or _reason_of(error)
        return Armed(is_new, len(directories), tuple(unwatched), reason)

    def stop(self) -> None:
        """Stop watching, and wait for watchdog's thread."""
        self._armed.clear()
        inotify, self._inotify = self._inotify, None
        if inotify is not None:
            inotify.stop()
            inotify.join()

    def _start(self) -> InotifyFD:
        with contextlib.ExitStack() as spare:
            for _ in range(_DESCRIPTORS):
                spare.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        # It warns of an overflow, which we log ourselves.
        logging.getLogger("watchdog").addHandler(logging.NullHandler())
        inotify = InotifyFD()
        inotify.start()
        self._inotify = inotify
        return inotify

    def _watch(self, inotify: InotifyFD, directory: str, identity: Identity) -> None:
        number = next(self._ids)
        watch = inotify.add_callback(os.fsencode(directory), _MASK, self._receiver, number)
        if watch < 0:  # watchdog does not raise this one
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        self._receiver.paths[watch] = directory
        self._armed[directory] = number, watch, identity


class _Receiver:
    """watchdog's callbacks, in its thread."""

    def __init__(self, receive: Callable[[FileEvent], object], receive_overflow: Callable[[], object]) -> None:
        self.paths: dict[WatchDescriptor, str] = {}
        """Of each watch."""
        self._receive = receive
        self._receive_overflow = receive_overflow
        self._left: tuple[int, str] = (0, "")

    def on_event(self, event: InotifyEvent) -> None:
        directory = self.paths.get(event.wd)
        if directory is None:
            return
        path = os.path.join(directory, os.fsdecode(event.name)) if event.name else directory  # noqa: PTH118
        paths: tuple[str, ...] = (path,)
        event_type = _type_of(event)
        if event.is_moved_from:
            self._left = event.cookie, path
        elif event.is_moved_to and self._left[0] == event.cookie:
            paths = (self._left[1], path)
        self._receive(FileEvent(time.monotonic(), event_type, paths, event.is_directory or not event.name))

    def on_watch_deleted(self, watch: WatchDescriptor) -> None:
        self.paths.pop(watch, None)

    def on_queue_overflow(self) -> None:
        self.paths.clear()  # The events of removed watches may be among the lost ones.
        self._receive_overflow()


def _type_of(event: InotifyEvent) -> FileEventType:
    if event.is_modify:
        return FileEventType.MODIFIED
    if event.is_close_write:
        return FileEventType.CLOSED
    if event.is_create:
        return FileEventType.CREATED
    if event.is_delete:
        return FileEventType.DELETED
    return FileEventType.MOVED if event.is_moved_to else FileEventType.OTHER


def _reason_of(error: OSError | RuntimeError) -> str:
    if isinstance(error, RuntimeError):
        return f"{error}; raise the limit of processes (ulimit -u)"
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{error.strerror or error}{f'; {remedy}' if remedy else ''}"
