"""Writes the served state beside the event loop: the newest wins, nothing is queued."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Never, Self

from fsxds.events.event import Observer
from fsxds.events.process_events import StateFailed, StateIgnored, StateRecovered, StateRestored, StateWritten
from fsxds.history.rejection_rows import encode_rejections
from fsxds.history.rollout_rows import is_same_place
from fsxds.history.state import State
from fsxds.model.errors import StateError
from fsxds.model.resources import Snapshot
from fsxds.model.tree_trust import SeenManifest
from fsxds.model.values import BackOff, Layers
from fsxds.protocol.absence import Tombstones
from fsxds.rollout.machine import RolloutState
from fsxds.rollout.rejections import Rejections
from fsxds.runtime.channels import ChannelKey
from fsxds.runtime.row_source import KeptUpstream, RestoredUpstreams

BACK_OFF = BackOff()

# The maximum delay of a write of upstream resources alone: many responses cause one write.
UPSTREAMS_WITHIN_S = 0.2

ReadState = Callable[[], RolloutState | None]
"""Returns a rollout's current place, or None."""


class _Unwritten(NamedTuple):
    """The data to write.

    `rejections` is None if already written; `by_clock` is the same with constant times.
    """

    changed: Mapping[ChannelKey, RolloutState]
    forgotten: Collection[ChannelKey]
    removed: Mapping[Layers, Tombstones]
    upstreams: Collection[KeptUpstream]
    rejections: str | None
    by_clock: str | None


class StateWriter:
    """Writes rollouts and upstream resources to a state directory.

    On disk, upstream resources are never behind snapshots that contain them.

    A full disk, a read-only or missing directory is reported and retried after 1, 2, 4, ... 30 seconds, and at each
    change; serving goes on.
    """

    def __init__(self, state: State, tree: Path | None, observer: Observer) -> None:
        """The directory is held; `tree` is for its git commit, or None."""
        self.state = state
        self.seen_manifests = SeenInState(state, observer)
        self._tree = tree
        self._observer = observer
        # Returns the current removed members of views.
        self.read_members: Callable[[], Mapping[Layers, Tombstones]] = dict
        # Returns the current places of nodes that are behind the others, each as a lane.
        self.read_behind: Callable[[], Mapping[ChannelKey, RolloutState]] = dict
        # The rejections of nodes, by the clock of the event loop.
        self.rejections: Rejections | None = None
        self._are_rejections_due = False
        # The rejections on the disk, by the clock; None if unknown.
        self._kept_rejections: str | None = None
        # Returns all upstreams and their current resources.
        self.read_upstreams: Callable[[], Collection[KeptUpstream]] = tuple
        self._are_upstreams_due = False
        self._due: dict[ChannelKey, ReadState] = {}
        self._readers: dict[ChannelKey, ReadState] = {}
        self._noted = asyncio.Event()
        # The states on the disk, and when they were written.
        self._kept: dict[ChannelKey, tuple[RolloutState, float]] = {}
        self._failures = 0
        # A write that a thread begins after the last one would take the directory again.
        self._lock = Lock()
        self._is_over = False

    @classmethod
    def open(cls, path: Path, tree: Path | None, observer: Observer) -> Self:
        """Raises UsageError as `State.open` does."""
        return cls(State.open(path, observer), tree, observer)

    @property
    def directory(self) -> Path:
        """The state directory."""
        return self.state.path

    def restored(self) -> dict[ChannelKey, RolloutState]:
        """Return and report the last written rollouts; blocking, for the start."""
        try:
            found = self.state.rollouts(time.time())
        except StateError as error:
            self._observer(StateIgnored(str(self.state.path), str(error)))
            return {}
        if found:
            lingering = sum(len(one.keys) + len(one.patterns) for rollout in found.values() for one in rollout.draining)
            self._observer(StateRestored(self.state.path, len(found), lingering))
        # Lanes, which are written along with any other change.
        self._kept = {key: (state, time.time()) for key, state in found.items() if key.lane}
        return found

    def restored_members(self) -> dict[Layers, Tombstones]:
        """Return the last written members; blocking, for the start."""
        try:
            return self.state.removed_members()
        except StateError:
            # `restored` reports the error.
            return {}

    def restored_upstreams(
        self, upstreams: Collection[KeptUpstream], near: Snapshot | None = None
    ) -> RestoredUpstreams:
        """Return the last written resources; report unusable ones; blocking, for the start."""
        try:
            found = self.state.restored_upstreams(upstreams, near)
        except StateError as error:
            self._observer(StateIgnored(str(self.state.path), str(error)))
            return RestoredUpstreams({})
        for name in found.dropped:
            self._observer(
                StateIgnored(f"upstream {name}", "it is no upstream any more; its stored resources were removed")
            )
        for name, count in found.damaged.items():
            self._observer(StateIgnored(f"upstream {name}", f"{count} of its resources are damaged, and removed"))
        return found

    def restore_rejections(self, rejections: Rejections) -> None:
        """Restore and keep the last written rejections; blocking, for the start."""
        self.rejections = rejections
        try:
            self.state.restore_rejections(rejections, time.monotonic(), time.time())
        except StateError:
            # `restored` reports the error.
            return

    def note_rejections(self) -> None:
        """Schedule a write, unless the rejections are on the disk."""
        self._are_rejections_due = True
        self._noted.set()

    def note_upstreams(self) -> None:
        """Schedule a write of the upstream resources."""
        if not self._are_upstreams_due:
            self._are_upstreams_due = True
            asyncio.get_running_loop().call_later(UPSTREAMS_WITHIN_S, self._noted.set)

    def save(self, key: ChannelKey, read: ReadState) -> None:
        """Schedule a write of a rollout."""
        self._readers[key] = self._due[key] = read
        self._noted.set()

    def forget(self, key: ChannelKey) -> None:
        """Schedule the removal of a rollout without clients."""
        self._readers.pop(key, None)
        self._kept.pop(key, None)
        self._due[key] = _no_state
        self._noted.set()

    async def keep_written(self) -> Never:
        """Write changes until cancelled, and then the remaining ones."""
        self._is_over = False
        # An earlier run may have failed on what was due.
        self._noted.set()
        try:
            while True:
                await self._noted.wait()
                self._noted.clear()
                await self._write()
        finally:
            with self._lock, suppress(StateError):
                self._is_over = True
                unwritten = self._unwritten(self._due)
                # The last change may not have been noted.
                if self._due or unwritten.upstreams or unwritten.rejections:
                    self._save(unwritten)

    async def _write(self) -> None:
        due, self._due = self._due, {}
        are_upstreams_due, self._are_upstreams_due = self._are_upstreams_due, False
        are_rejections_due = self._are_rejections_due
        is_done = False
        try:
            unwritten = self._unwritten(due)
            self._are_rejections_due = False
            if unwritten.changed or unwritten.forgotten or are_upstreams_due or unwritten.rejections is not None:
                on_disk = await asyncio.to_thread(self._save_in_turn, unwritten)
                self._take_kept(unwritten, on_disk)
                self._observer(StateWritten(self.state.path, len(unwritten.changed)))
            is_done = True
        except StateError as error:
            self._failures += 1
            retry_s = BACK_OFF.pause_s(self._failures)
            self._observer(StateFailed(self.state.path, str(error), retry_s))
            asyncio.get_running_loop().call_later(retry_s, self._noted.set)
        finally:
            if not is_done:
                self._due = due | self._due
                self._are_upstreams_due |= are_upstreams_due
                self._are_rejections_due |= are_rejections_due

    def _unwritten(self, due: Mapping[ChannelKey, ReadState]) -> _Unwritten:
        behind = self.read_behind()
        forgotten = [key for key, read in due.items() if read is _no_state]
        forgotten += [key for key in self._kept if key.lane and key not in behind]
        changed, rejections, by_clock = self._changed(due, behind), None, self._kept_rejections
        if self._are_rejections_due and self.rejections is not None:
            by_clock = encode_rejections(self.rejections, 0.0, 0.0)
        # The directory may have been removed: the rejections go along with every other write.
        if self.rejections is not None and (by_clock != self._kept_rejections or (changed and self.rejections.nodes)):
            rejections = encode_rejections(self.rejections, time.monotonic(), time.time())
        members, upstreams = dict(self.read_members()), tuple(self.read_upstreams())
        return _Unwritten(changed, forgotten, members, upstreams, rejections, by_clock)

    def _changed(
        self, due: Mapping[ChannelKey, ReadState], behind: Mapping[ChannelKey, RolloutState]
    ) -> dict[ChannelKey, RolloutState]:
        now_s = time.time()
        states = {**{key: read() for key, read in due.items()}, **behind}
        return {
            key: state
            for key, state in states.items()
            if state is not None and not (key in self._kept and is_same_place(*self._kept[key], state, now_s))
        }

    def _save_in_turn(self, unwritten: _Unwritten) -> frozenset[ChannelKey]:
        with self._lock:
            return frozenset() if self._is_over else self._save(unwritten)

    def _save(self, unwritten: _Unwritten) -> frozenset[ChannelKey]:
        self.state.keep_upstreams(unwritten.upstreams)
        if unwritten.rejections is not None:
            self.state.keep_rejections(unwritten.rejections)
        commit = None if self._tree is None else commit_of(self._tree)
        kept = self.state.save(unwritten.changed, commit, time.time(), unwritten.removed)
        if unwritten.forgotten:
            # After the removed members, which include the content of these channels.
            self.state.forget(unwritten.forgotten)
        return kept - frozenset(unwritten.forgotten)

    def _take_kept(self, written: _Unwritten, on_disk: frozenset[ChannelKey]) -> None:
        if self._failures:
            self._observer(StateRecovered(self.state.path))
        self._failures = 0
        now_s = time.time()
        self._kept.update((key, (state, now_s)) for key, state in written.changed.items())
        self._kept_rejections = written.by_clock
        # The directory was removed, or the database damaged.
        for key in self._kept.keys() - on_disk:
            del self._kept[key]
            if key in self._readers:
                self.save(key, self._readers[key])


def _no_state() -> None:
    """Stands for the reader of a forgotten rollout."""


_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

# HEAD names a branch, which may be a symbolic reference itself; more steps are a circle.
_MOST_STEPS = 5

# References, and `.git` files of worktrees and submodules, are one line.
_LONGEST_LINE = 4096


def commit_of(directory: Path) -> str | None:
    """Return a repository's checked-out commit: 40 or 64 hex digits.

    None without a repository or commit, and if the references are not files (reftable). Uncommitted changes go
    unnoticed.

    Source: gitrepository-layout(5), https://git-scm.com/docs/gitrepository-layout
    """
    # Any of these files may be unreadable, or not text.
    with suppress(OSError, ValueError):
        top = directory.resolve()
        for folder in (top, *top.parents):
            if (git := _git_directory(folder / ".git")) is not None:
                return _commit_in(git)
    return None


def _git_directory(path: Path) -> Path | None:
    if path.is_dir():
        return path if (path / "HEAD").exists() else None
    name = _first_line(path).removeprefix("gitdir: ")
    return path.parent / name if name else None


def _commit_in(git: Path) -> str | None:
    # A worktree has its own HEAD, and the references of its repository.
    common = git / (_first_line(git / "commondir") or ".")
    reference = "HEAD"
    for _ in range(_MOST_STEPS):
        found = _first_line(git / reference) or _first_line(common / reference) or _packed(common, reference)
        if _COMMIT.fullmatch(found):
            return found
        reference = found.removeprefix("ref: ")
        # Names of references have no `..`: the content of a repository must not lead elsewhere.
        if not found.startswith("ref: refs/") or ".." in reference:
            return None
    return None


def _packed(common: Path, reference: str) -> str:
    path = common / "packed-refs"
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8") as lines:
        rows = (line.rstrip("\n").partition(" ") for line in lines)
        return next((commit for commit, _, name in rows if name == reference), "")


def _first_line(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8") as file:
        return file.readline(_LONGEST_LINE).rstrip("\r\n")


class SeenInState:
    """Remembers manifests in a state directory. Blocks; for one caller at a time.

    An unwritten manifest stays in memory, and is written at the next read.
    """

    def __init__(self, state: State, observer: Observer) -> None:
        """The directory is held; `observer` receives failures."""
        self._state, self._observer = state, observer
        # By subject: the newest manifest, and whether it is on the disk.
        self._seen: dict[str, tuple[SeenManifest, bool]] = {}

    def newest(self, subject: str) -> SeenManifest | None:
        """Return the newest manifest, or None."""
        if subject not in self._seen:
            try:
                kept = self._state.newest_manifest(subject)
            except StateError as error:
                self._report("which manifests were seen cannot be read", error)
                return None
            if kept is None:
                return None
            self._seen[subject] = kept, True
        seen, is_kept = self._seen[subject]
        if not is_kept:
            self.keep(subject, seen)
        return seen

    def keep(self, subject: str, seen: SeenManifest) -> None:
        """Remember a newer manifest."""
        self._seen[subject] = seen, False
        try:
            self._state.keep_manifest(subject, seen)
            self._seen[subject] = seen, True
        except StateError as error:
            self._report("which manifest was seen cannot be written", error)

    def _report(self, fact: str, error: StateError) -> None:
        self._observer(StateIgnored(str(self._state.path), f"{fact}: {error}"))
