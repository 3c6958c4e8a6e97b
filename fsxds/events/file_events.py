"""Events of the files of a tree: how it is watched, read, parsed and published."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fsxds.events.event import Event
from fsxds.model.resources import Snapshot
from fsxds.model.values import HeldFile, Problem


@dataclass(frozen=True, slots=True)
class WatchStarted(Event):
    """The tree is watched by `inotify` or `poll` from now on, because of `reason`."""

    mode: str
    reason: str


@dataclass(frozen=True, slots=True)
class TreeDisappeared(Event):
    """The tree, or all its files, went away; what was served last stays."""

    reason: str


@dataclass(frozen=True, slots=True)
class TreeReturned(Event):
    """The tree is back."""


@dataclass(frozen=True, slots=True)
class FilesIgnored(Event):
    """No format claims these files; sent once as long as they are there."""

    paths: tuple[PurePosixPath, ...]


@dataclass(frozen=True, slots=True)
class ConfigurationMissing(Event):
    """Nothing in the tree is configuration so far; the first file that is will be served."""

    root: Path
    ignored: tuple[PurePosixPath, ...] = ()
    excluded: tuple[PurePosixPath, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueOverflowed(Event):
    """The kernel dropped file events; the whole tree is read again."""


@dataclass(frozen=True, slots=True)
class CacheRead(Event):
    """Of `count` files that were to be parsed, the results of `found` were known from an earlier process."""

    found: int
    count: int


@dataclass(frozen=True, slots=True)
class CacheFailed(Event):
    """A directory of kept results is not used any more; all files are parsed."""

    directory: Path
    reason: str


@dataclass(frozen=True, slots=True)
class TreeLoaded(Event):
    """A tree was loaded in `duration_s`: all its problems, and the files of which something older is served, or nothing."""

    problems: tuple[Problem, ...]
    held: tuple[HeldFile, ...]
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SnapshotPublished(Event):
    """A snapshot is served from now on; `detected_s` is the monotonic clock at the first sign of its change."""

    snapshot: Snapshot
    detected_s: float
