"""Keep the state directory in step with what is served, beside the event loop: the newest state wins, nothing is queued."""

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
from fsxds.events.state_events import StateFailed, StateIgnored, StateRecovered, StateRestored, StateWritten
from fsxds.history.rejection_rows import encode_rejections
from fsxds.history.rollout_rows import is_same_place
from fsxds.history.state import State
from fsxds.model.errors import StateError
from fsxds.model.resources import Snapshot
from fsxds.model.tree_trust import SeenManifest
from fsxds.model.values import BackOff, Layers
from fsxds.protocol.tombstones import Tombstones
from fsxds.rollout import Rejections, RolloutState
from fsxds.runtime.channels import ChannelKey
from fsxds.runtime.row_source import KeptUpstream, RestoredUpstreams

BACK_OFF = BackOff()

# What upstreams send is written so late at most where nothing else is: many responses make one write.
UPSTREAMS_WITHIN_S = 0.2

ReadState = Callable[[], RolloutState | None]
"""Returns the place of a rollout at this moment; None where it has none yet."""


class _Unwritten(NamedTuple):
    """What is to be written: places of rollouts, channels that are forgotten, removed members by view, all upstreams.

    `rejections` is what nodes reject, as text; None where that is written already. `by_clock` is the same with times that
    stay while nothing changes.
    """

    changed: Mapping[ChannelKey, RolloutState]
    forgotten: Collection[ChannelKey]
    removed: Mapping[Layers, Tombstones]
    upstreams: Collection[KeptUpstream]
    rejections: str | None
    by_clock: str | None


class StateWriter:
    """Writes the places of rollouts and what upstreams hold to a state directory, each as it is when it comes to it.

    What upstreams hold is written before what is served of it: on the disk, it is never behind that.

    A full disk, a read-only or missing directory is reported and tried again after 1, 2, 4, … 30 seconds, and with each
    change. What is served never waits for it.

    Attributes:
        state: the directory.
        seen_manifests: remembers in it which manifests were trusted.
    """

    def __init__(self, state: State, tree: Path | None, observer: Observer) -> None:
        """Write to a directory that is held.

        Args:
            state: the directory.
            tree: the directory that is served, whose git commit is noted; None for none.
            observer: receives what fails.
        """
        self.state = state
        self.seen_manifests = SeenInState(state, observer)
        self._tree = tree
        self._observer = observer
        # Returns what was removed from views, at this moment.
        self.read_members: Callable[[], Mapping[Layers, Tombstones]] = dict
        # Returns where nodes are that are behind the others, at this moment, each place as a lane.
        self.read_behind: Callable[[], Mapping[ChannelKey, RolloutState]] = dict
        # Knows what nodes reject, by the clock of the event loop.
        self.rejections: Rejections | None = None
        self._are_rejections_due = False
        # As they are on the disk, by the clock; None where that is not known.
        self._kept_rejections: str | None = None
        # Returns all upstreams and what they hold, at this moment.
        self.read_upstreams: Callable[[], Collection[KeptUpstream]] = tuple
        self._are_upstreams_due = False
        self._due: dict[ChannelKey, ReadState] = {}
        self._readers: dict[ChannelKey, ReadState] = {}
        self._noted = asyncio.Event()
        # As they are on the disk, and when that was.
        self._kept: dict[ChannelKey, tuple[RolloutState, float]] = {}
        self._failures = 0
        # A write that a thread begins after the last one would take the directory again.
        self._turn = Lock()
        self._is_over = False

    @classmethod
    def open(cls, path: Path, tree: Path | None, observer: Observer) -> Self:
        """Hold a state directory; UsageError as `State.open`."""
        return cls(State.open(path, observer), tree, observer)

    @property
    def directory(self) -> Path:
        """The state directory."""
        return self.state.path

    def restored(self) -> dict[ChannelKey, RolloutState]:
        """Return the places of all rollouts when a process wrote them last, and report that; blocking, for the start."""
        try:
            found = self.state.rollouts(time.time())
        except StateError as error:
            self._observer(StateIgnored(str(self.state.path), str(error)))
            return {}
        if found:
            lingering = sum(len(one.keys) + len(one.patterns) for rollout in found.values() for one in rollout.draining)
            self._observer(StateRestored(self.state.path, len(found), lingering))
        # These are written whenever anything is.
        self._kept = {key: (state, time.time()) for key, state in found.items() if key.lane}
        return found

    def restored_members(self) -> dict[Layers, Tombstones]:
        """Return the members that were removed from views, as a process noted them last; blocking, for the start."""
        try:
            return self.state.removed_members()
        except StateError:
            # As `restored` reports.
            return {}

    def restored_upstreams(
        self, upstreams: Collection[KeptUpstream], near: Snapshot | None = None
    ) -> RestoredUpstreams:
        """Return what upstreams held, as a process wrote it last, and report what cannot be used; blocking, for the start.

        Args:
            upstreams: those of the settings; of others nothing is kept any more.
            near: a snapshot that has much in common with it.
        """
        try:
            found = self.state.restored_upstreams(upstreams, near)
        except StateError as error:
            self._observer(StateIgnored(str(self.state.path), str(error)))
            return RestoredUpstreams({})
        for name in found.dropped:
            self._observer(
                StateIgnored(f"upstream {name}", "it is no upstream any more; what was kept of it is removed")
            )
        for name, count in found.damaged.items():
            self._observer(StateIgnored(f"upstream {name}", f"{count} of its resources are damaged, and removed"))
        return found

    def restore_rejections(self, rejections: Rejections) -> None:
        """Have what nodes reject kept from now on, as when a process wrote it last; blocking, for the start."""
        self.rejections = rejections
        try:
            self.state.restore_rejections(rejections, time.monotonic(), time.time())
        except StateError:
            # As `restored` reports.
            return

    def note_rejections(self) -> None:
        """Have what nodes reject written soon, as it is then, unless that is on the disk already."""
        self._are_rejections_due = True
        self._noted.set()

    def note_upstreams(self) -> None:
        """Have what upstreams hold written soon, as it is then."""
        if not self._are_upstreams_due:
            self._are_upstreams_due = True
            asyncio.get_running_loop().call_later(UPSTREAMS_WITHIN_S, self._noted.set)

    def save(self, key: ChannelKey, read: ReadState) -> None:
        """Have the place of a rollout written soon, as it is then."""
        self._readers[key] = self._due[key] = read
        self._noted.set()

    def forget(self, key: ChannelKey) -> None:
        """Have the place of a rollout removed soon: nobody follows it any more."""
        self._readers.pop(key, None)
        self._kept.pop(key, None)
        self._due[key] = _nowhere
        self._noted.set()

    async def keep_written(self) -> Never:
        """Write what changes until cancelled; what is to be written then is still written."""
        self._is_over = False
        try:
            while True:
                await self._noted.wait()
                self._noted.clear()
                await self._write()
        finally:
            with self._turn, suppress(StateError):
                self._is_over = True
                unwritten = self._unwritten(self._due)
                # What came last may not have been noted.
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
        """Return what is to be written, all of it as of this moment."""
        behind = self.read_behind()
        forgotten = [key for key, read in due.items() if read is _nowhere]
        forgotten += [key for key in self._kept if key.lane and key not in behind]
        changed, rejections, by_clock = self._changed(due, behind), None, self._kept_rejections
        if self._are_rejections_due and self.rejections is not None:
            by_clock = encode_rejections(self.rejections, 0.0, 0.0)
        # Somebody may have removed the directory: they go along with what is written anyway.
        if self.rejections is not None and (by_clock != self._kept_rejections or (changed and self.rejections.nodes)):
            rejections = encode_rejections(self.rejections, time.monotonic(), time.time())
        members, upstreams = dict(self.read_members()), tuple(self.read_upstreams())
        return _Unwritten(changed, forgotten, members, upstreams, rejections, by_clock)

    def _changed(
        self, due: Mapping[ChannelKey, ReadState], behind: Mapping[ChannelKey, RolloutState]
    ) -> dict[ChannelKey, RolloutState]:
        """Return the places of rollouts that are not on the disk as they are."""
        now_s = time.time()
        states = {**{key: read() for key, read in due.items()}, **behind}
        return {
            key: state
            for key, state in states.items()
            if state is not None and not (key in self._kept and is_same_place(*self._kept[key], state, now_s))
        }

    def _save_in_turn(self, unwritten: _Unwritten) -> frozenset[ChannelKey]:
        with self._turn:
            return frozenset() if self._is_over else self._save(unwritten)

    def _save(self, unwritten: _Unwritten) -> frozenset[ChannelKey]:
        self.state.keep_upstreams(unwritten.upstreams)
        if unwritten.rejections is not None:
            self.state.keep_rejections(unwritten.rejections)
        commit = None if self._tree is None else commit_of(self._tree)
        kept = self.state.save(unwritten.changed, commit, time.time(), unwritten.removed)
        if unwritten.forgotten:
            # Behind what was served there, which is among what was removed.
            self.state.forget(unwritten.forgotten)
        return kept - frozenset(unwritten.forgotten)

    def _take_kept(self, written: _Unwritten, on_disk: frozenset[ChannelKey]) -> None:
        if self._failures:
            self._observer(StateRecovered(self.state.path))
        self._failures = 0
        now_s = time.time()
        self._kept.update((key, (state, now_s)) for key, state in written.changed.items())
        self._kept_rejections = written.by_clock
        # Somebody removed the directory, or it was damaged.
        for key in self._kept.keys() - on_disk:
            del self._kept[key]
            if key in self._readers:
                self.save(key, self._readers[key])


def _nowhere() -> None:
    """Return the place of a rollout that is forgotten."""


_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

# HEAD names a branch, which may be a symbolic reference itself; more are a circle.
_MOST_STEPS = 5

# References, and `.git` files of worktrees and submodules, are one line.
_LONGEST_LINE = 4096


def commit_of(directory: Path) -> str | None:
    """Return the commit that is checked out where a directory is: 40 or 64 hex digits.

    None where it is in no repository, where nothing was committed yet, and where the references are in another form than
    files (reftable). That files were changed since is not seen.

    Source: gitrepository-layout(5), https://git-scm.com/docs/gitrepository-layout
    """
    # Any of these files may be somebody's that this process cannot read, or be no text.
    with suppress(OSError, ValueError):
        top = directory.resolve()
        for folder in (top, *top.parents):
            if (git := _git_directory(folder / ".git")) is not None:
                return _commit_in(git)
    return None


def _git_directory(path: Path) -> Path | None:
    """Return the repository that `.git` is, or that it names, as in a worktree."""
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
        # Names of references have no `..`: what a repository says must not lead anywhere else.
        if not found.startswith("ref: refs/") or ".." in reference:
            return None
    return None


def _packed(common: Path, reference: str) -> str:
    """Return the commit of a reference that has no file of its own; empty where there is none."""
    path = common / "packed-refs"
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8") as lines:
        rows = (line.rstrip("\n").partition(" ") for line in lines)
        return next((commit for commit, _, name in rows if name == reference), "")


def _first_line(path: Path) -> str:
    """Return the first line of a file; empty where there is none."""
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8") as file:
        return file.readline(_LONGEST_LINE).rstrip("\r\n")


class SeenInState:
    """Remembers in a state directory. Blocks; for one caller at a time.

    What cannot be written is remembered as long as the process lasts, and written with the next one: serving goes on.
    """

    def __init__(self, state: State, observer: Observer) -> None:
        """Remember in a directory that is held; `observer` receives what fails."""
        self._state, self._observer = state, observer
        # {subject: the newest one, and whether it is on the disk}
        self._seen: dict[str, tuple[SeenManifest, bool]] = {}

    def newest(self, subject: str) -> SeenManifest | None:
        """Return the newest one; None for a subject of which none was seen."""
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
        """Remember a newer one."""
        self._seen[subject] = seen, False
        try:
            self._state.keep_manifest(subject, seen)
            self._seen[subject] = seen, True
        except StateError as error:
            self._report("which manifest was seen cannot be written", error)

    def _report(self, fact: str, error: StateError) -> None:
        self._observer(StateIgnored(str(self._state.path), f"{fact}: {error}"))
