"""Watches a tree, and yields it whenever it settled after a change.

Detects writers that cause no events: by leases, and by git's lock.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from fsxds.events.event import Observer
from fsxds.events.file_events import ConfigurationMissing, FilesIgnored, TreeDisappeared, TreeReturned
from fsxds.model.errors import TreeLost
from fsxds.model.values import SourceFile, SourceTree
from fsxds.source.scan import Scanner, ScanResult
from fsxds.source.settle import SAVE_SETTLE_S, Activity, Save
from fsxds.source.targets import WatchOptions, WatchTargets

# An event is up to 4 ms behind its change (p99).
_ECHO_S = 0.005

# Between looks at files that are being written: a look at 10 000 files takes 35 ms.
_SHORTEST_REST_S = 0.05

# Each check takes a few calls of `stat`.
_GIT_REST_S = 0.01

# If directories change all the time, some watch is always new; the next rescan finds the rest.
_MOST_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Settled:
    """A tree at rest; `detected_s`: monotonic time of its change's first sign."""

    tree: SourceTree
    detected_s: float


async def watch(
    scanner: Scanner, options: WatchOptions, observer: Observer, *, last: SourceTree | None = None
) -> AsyncGenerator[Settled, None]:
    """Yield the present tree, then one per burst of changes with other content.

    The first is skipped if it equals `last`, another watcher's. A lost notification costs a delay. A tree that
    disappears, or loses all files at once, yields nothing. Close the iterator (`contextlib.aclosing`) to stop
    watchdog's threads.
    """
    watcher = _Watcher(scanner, options, observer, last)
    try:
        detected_s = time.monotonic()
        while True:
            tree = await watcher.settle(detected_s)
            if tree is not None:
                yield Settled(tree, detected_s)
            detected_s = await watcher.next_occasion()
    finally:
        await watcher.stop()


class _Watcher:
    def __init__(
        self, scanner: Scanner, options: WatchOptions, observer: Observer, last: SourceTree | None = None
    ) -> None:
        self._scanner = scanner
        self._options = options
        self._observer = observer
        self._activity = Activity(scanner.is_read, scanner.exclusion, settle_s=options.settle_s)
        self._targets = WatchTargets(scanner.root, options, self._activity, observer)
        patience = Patience(writer_s=options.writer_patience_s, git_s=options.settle_cap_s, twice_s=options.poll_s)
        self._writers = Writers(scanner.root, patience)
        self._last = last
        self._looked_s = 0.0
        # Of the whole tree, and whether every change since has had an event.
        self._looked_at_all_s = 0.0
        self._has_all_events = False
        # Of the last tree yielded without some files, and the first sign of their changes.
        self._shared_s = 0.0
        self._waiting_s: float | None = None
        self._is_lost = False
        self._is_waiting = False
        self._ignored: frozenset[PurePosixPath] = frozenset()

    async def stop(self) -> None:
        await self._targets.stop()

    async def next_occasion(self) -> float:
        targets = self._targets
        due_s = self._looked_at_all_s + self._options.rescan_s
        while (now_s := time.monotonic()) < due_s and self._activity.first_s is None:
            wait_s = due_s - now_s
            # A lost tree becomes readable without an event; looking costs nothing.
            if targets.is_polling or targets.unwatched or self._is_lost:
                wait_s = min(wait_s, self._options.poll_s)
            if self._waiting_s is not None:
                wait_s = min(wait_s, self._options.share_s)
            await self._activity.wait(wait_s)
            is_watched = not (targets.is_polling or self._is_lost or self._waiting_s is not None)
            if not is_watched or (targets.unwatched and await targets.parts_changed()):
                break
        return time.monotonic() if self._activity.first_s is None else self._activity.first_s

    async def settle(self, detected_s: float) -> SourceTree | None:
        """Look until the tree is at rest, or quiet files are due; None: lost or unchanged."""
        start_s = detected_s if self._waiting_s is None else min(detected_s, self._waiting_s)
        cap_s = start_s + self._options.settle_cap_s
        while True:
            # In a partial first tree, files would be missing.
            due_s = cap_s if self._last is None else min(cap_s, max(start_s, self._shared_s) + self._options.share_s)
            is_quiet = await self._wait_for_quiet(due_s)
            # Not after the look: events meanwhile may be half of a change.
            is_due = time.monotonic() >= due_s
            save, rested_s = self._early_save(), self._activity.last_s
            if time.monotonic() < cap_s and await asyncio.to_thread(self._writers.git_rest_s) > 0.0:
                # Git's changes are read as a whole, when it has finished.
                start_s = time.monotonic()
                await asyncio.sleep(_GIT_REST_S)
                continue
            look = await self._look()
            if look is None or look.tree == self._last:
                self._waiting_s = None
                return None
            if save is not None and rested_s is not None:
                is_alone = await asyncio.to_thread(self._has_no_writer, save, look)
                await asyncio.sleep(_ECHO_S)
                if is_alone and self._activity.first_s is None:
                    self._last = look.tree
                    return look.tree
                await self._activity.wait_for_more(rested_s + self._options.settle_s - time.monotonic())
                continue
            tree, rest_s = await self._share(look, is_quiet=is_quiet, is_due=is_due, cap_s=cap_s)
            if tree is not None and tree != self._last:
                self._waiting_s = start_s if rest_s > 0.0 else None
                self._shared_s = time.monotonic()
                self._last = tree
                return tree
            await self._activity.wait_for_more(max(rest_s, _SHORTEST_REST_S))

    def _early_save(self) -> Save | None:
        if not self._has_all_events or self._last is None or self._waiting_s is not None or self._is_lost:
            return None
        last_s, now_s = self._activity.last_s, time.monotonic()
        if last_s is None or now_s >= last_s + self._options.settle_s:
            return None
        return self._activity.lone_save()

    def _has_no_writer(self, save: Save, look: ScanResult) -> bool:
        before = self._last.files if self._last is not None else ()
        changed = [pair for pair in zip(look.tree.files, before, strict=False) if pair[0] is not pair[1]]
        if len(changed) != 1 or len(look.tree.files) != len(before) or not look.is_steady:
            return False
        ((file, old),) = changed
        is_it = file.path == old.path and look.paths[str(file.path)] == save.path
        is_whole = is_it and save.brings(file, old) and self._writers.has_no_writer(file.path)
        return is_whole and self._scanner.is_as_read(file.path, save.path)

    async def _wait_for_quiet(self, due_s: float) -> bool:
        """Wait for quiet without known writers, or until due; return whether it was quiet.

        Restless files alone are looked at every half second.
        """
        while self._activity.last_s is not None:
            now_s = time.monotonic()
            calm_s = self._activity.calm_s
            quiet_s = (self._activity.last_s if calm_s is None else calm_s) + self._options.settle_s
            if calm_s is None:
                quiet_s = min(quiet_s, self._looked_s + self._options.share_s)
            elif self._early_save() is not None:
                quiet_s = min(quiet_s, self._activity.last_s + SAVE_SETTLE_S - _ECHO_S)
            written_s = self._activity.written_until_s(self._options.writer_patience_s, now_s)
            if now_s >= max(quiet_s, written_s):
                return True
            if now_s >= due_s:
                return False
            if calm_s is not None and now_s < quiet_s:
                pause_s = SAVE_SETTLE_S / 2 if self._activity.is_about_one_file() else quiet_s - now_s
                await asyncio.sleep(min(pause_s, quiet_s - now_s, due_s - now_s))
            else:
                await self._activity.wait_for_more(min(max(quiet_s, written_s), due_s) - now_s)
        return True

    async def _look(self) -> ScanResult | None:
        """With all watches in place; None if the tree is lost."""
        look, error = None, None
        started_s = time.monotonic()
        for number in range(_MOST_LOOKS):
            touched = self._touched()
            self._activity.clear()
            self._looked_s = time.monotonic()
            if touched and (look := await asyncio.to_thread(self._scanner.look_at, touched)) is not None:
                break
            self._looked_at_all_s = self._looked_s
            self._activity.unlisted.clear()
            look, error = await self._look_once()
            # They had no event.
            is_new = await self._targets.follow(look)
            self._has_all_events = not (is_new or look is None or self._targets.can_miss)
            if not is_new or (number > 0 and time.monotonic() - started_s > self._options.share_s):
                break
        had_files = self._last is not None and bool(self._last.files)
        if look is not None and had_files and not look.tree.files and not look.tree.problems:
            error = TreeLost(
                f"{self._scanner.root}: all files are gone at once; to serve nothing on "
                "purpose write files with `resources: []`"
            )
        if error is not None and not self._is_lost:
            self._observer(TreeDisappeared(str(error)))
        if error is None and self._is_lost:
            self._observer(TreeReturned())
        self._is_lost = error is not None
        if look is not None:
            ignored = frozenset(look.tree.ignored)
            if ignored - self._ignored:
                self._observer(FilesIgnored(tuple(sorted(ignored - self._ignored))))
            self._ignored = ignored
            was_waiting, self._is_waiting = self._is_waiting, not look.tree.files and not look.tree.problems
            if error is None and self._is_waiting and not was_waiting:
                root, tree = self._scanner.root, look.tree
                self._observer(ConfigurationMissing(root, tree.ignored, tree.excluded))
        return look if error is None else None

    def _touched(self) -> frozenset[str]:
        """Empty if other files may have changed too."""
        touched = self._activity.touched
        is_fresh = time.monotonic() < self._looked_at_all_s + self._options.rescan_s
        is_all = self._has_all_events and is_fresh and self._waiting_s is None and not self._activity.unlisted
        return frozenset(touched or ()) if is_all else frozenset()

    async def _look_once(self) -> tuple[ScanResult | None, TreeLost | None]:
        try:
            return await asyncio.to_thread(self._scanner.look), None
        except TreeLost as error:
            return None, error

    async def _share(
        self, look: ScanResult, *, is_quiet: bool, is_due: bool, cap_s: float
    ) -> tuple[SourceTree | None, float]:
        """Return a tree or None, and in how many seconds to look at the rest (0.0: no rest)."""
        # Files behind links may be of two generations: they stay.
        if not look.is_steady and (self._last is None or not is_due):
            return None, _SHORTEST_REST_S
        is_over = time.monotonic() >= cap_s
        if is_over and self._last is None:
            return look.tree, 0.0
        targets = self._targets
        changed, git_s, rests_s = await asyncio.to_thread(self._ask_writers, look, is_over=is_over)
        if not targets.is_polling:
            await asyncio.sleep(_ECHO_S)
        now_s = time.monotonic()
        is_quiet = is_over or (is_quiet and self._activity.calm_s is None and git_s == 0.0)
        is_quiet = is_quiet and look.is_steady
        waits_s = [rest_s for real, rest_s in rests_s.items() if not self._activity.is_written_often(real, now_s)]
        if not is_over and (git_s > 0.0 or not (is_due or (is_quiet and not waits_s))):
            rest_s = min(waits_s, default=self._options.settle_s)
            if not targets.is_remote:
                rest_s = min(rest_s, max(self._options.settle_s, _SHORTEST_REST_S))
            return None, rest_s
        inbox = self._activity.touched
        touched = {changed[real].path: real for real in (changed if inbox is None else inbox & changed.keys())}
        others = await asyncio.to_thread(self._read_again, touched)
        if not (is_over and targets.is_remote):
            others |= {changed[real].path: None for real in rests_s}
        if not look.is_steady:
            top = look.tops[0].rstrip("/")
            others |= {file.path: None for real, file in changed.items() if real != f"{top}/{file.path}"}
        written = self._activity.written(self._options.writer_patience_s, now_s)
        others |= {changed[real].path: None for real in written & changed.keys()}
        if self._last is None and None in others.values():
            return None, _SHORTEST_REST_S
        compose = partial(_composed, look.tree, self._last, others, keeps_removed=not is_quiet)
        tree = await asyncio.to_thread(compose)
        is_whole = is_quiet and None not in others.values()
        return tree, 0.0 if is_whole else self._options.share_s

    def _ask_writers(self, look: ScanResult, *, is_over: bool) -> tuple[dict[str, SourceFile], float, dict[str, float]]:
        """Return changed files by real path, and waits for git and writers, in seconds.

        At the end, files changed since are not waited for.
        """
        # By identity: the scanner keeps unchanged objects, and hashing 10 000 paths takes longer than reading one.
        known = set(map(id, self._last.files)) if self._last is not None else set()
        changed = {look.paths[str(file.path)]: file for file in look.tree.files if id(file) not in known}
        # There is no better tree to serve in the meantime.
        is_reported = self._last is None or not (self._targets.is_polling or self._targets.unwatched)
        now_s, can_ask = time.monotonic(), not self._targets.is_remote
        rests_s = self._writers.rests_s(changed.values(), now_s, can_ask=can_ask, is_reported=is_reported)
        rests = {look.paths[str(path)]: rest_s for path, rest_s in rests_s.items()}
        # A writer may have had half of a file written at the read; its event may be late, or never come.
        others = {} if is_over else {real: file for real, file in changed.items() if real not in rests}
        rests |= {
            real: _SHORTEST_REST_S for real, file in others.items() if not self._scanner.is_as_read(file.path, real)
        }
        return changed, self._writers.git_rest_s(), rests

    def _read_again(self, touched: Mapping[PurePosixPath, str]) -> dict[PurePosixPath, SourceFile | None]:
        """Read files touched since the look began; None for files with a writer."""
        limit = self._scanner.bounds.max_file_size_bytes
        contents = {path: read_undisturbed(Path(real), limit) for path, real in touched.items()}
        return {path: None if content is None else SourceFile.of(path, content) for path, content in contents.items()}


def _composed(
    tree: SourceTree,
    last: SourceTree | None,
    others: Mapping[PurePosixPath, SourceFile | None],
    *,
    keeps_removed: bool,
) -> SourceTree:
    """Return a tree with files replaced by `others` (None: as in `last`); `keeps_removed`: also removed ones."""
    if not others and not keeps_removed:
        return tree
    before = {file.path: file for file in last.files} if last is not None else {}
    files: dict[PurePosixPath, SourceFile | None] = {}
    if keeps_removed:
        files.update(before)
        for problem in tree.problems:
            files.pop(problem.path, None)
    files.update({file.path: file for file in tree.files})
    files.update({path: file or before.get(path) for path, file in others.items()})
    taken = sorted((file for file in files.values() if file is not None), key=lambda file: file.path.parts)
    return replace(tree, files=tuple(taken))


# A key, and a path.
_MOST_GITDIR_BYTES = 8 + 4096

# After a git command.
_MOMENT_S = 0.001


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for writers, in seconds.

    `writer_s`: for an open file, since its last change; `git_s`: since a git command began; `twice_s`: until another
    look.
    """

    writer_s: float
    git_s: float
    twice_s: float


class Writers:
    """Remembers since when changed files are unchanged."""

    def __init__(self, root: Path, patience: Patience) -> None:
        self._root = root
        self._patience = patience
        # When git's index was written, and its inode.
        self._index: tuple[int, int] | None = None
        # {path: (file, when this content was first seen)}
        self._since: dict[PurePosixPath, tuple[SourceFile, float]] = {}

    def rests_s(
        self, changed: Iterable[SourceFile], now_s: float, *, can_ask: bool, is_reported: bool
    ) -> dict[PurePosixPath, float]:
        """Return the seconds to wait for changed files' writers, if any.

        `now_s` is `time.monotonic()` of their look. `can_ask`: this kernel knows all openers; `is_reported`: ends of
        writing have events.
        """
        since = self._since
        self._since = {
            file.path: since[file.path] if file.path in since and since[file.path][0] is file else (file, now_s)
            for file in changed
        }
        waits = {}
        for path, (_, seen_s) in self._since.items():
            is_open = is_open_for_writing(self._root / path) if can_ask else None
            if is_open and not _is_old(self._root / path, self._patience.writer_s):
                waits[path] = seen_s + self._patience.writer_s - now_s
            elif is_open is None and not is_reported:
                waits[path] = seen_s + self._patience.twice_s - now_s
        return {path: wait_s for path, wait_s in waits.items() if wait_s > 0.0}

    def has_no_writer(self, path: PurePosixPath) -> bool:
        """Whether certainly nobody writes to a file, nor git."""
        return is_open_for_writing(self._root / path) is False and self.git_rest_s() == 0.0

    def git_rest_s(self) -> float:
        """Return the seconds to wait for git; 0.0 for none.

        Git locks its index while it replaces files; after a command that ended since the last call, a moment is
        returned.
        """
        for directory in (self._root, *self._root.parents):
            if (git := _git_directory(directory)) is not None:
                index = _times_of(git / "index")
                index_before, self._index = self._index, index
                lock = _times_of(git / "index.lock")
                rest_s = 0.0 if lock is None else self._patience.git_s - abs(time.time() - lock[0] / 1e9)
                return max(0.0, rest_s, _MOMENT_S if index != index_before else 0.0)
        return 0.0


def _git_directory(directory: Path) -> Path | None:
    """None: no top of a repository, worktree or submodule.

    Source: gitrepository-layout(5): `.git` may be a file with the line `gitdir: PATH`.
    """
    path = directory / ".git"
    # Unlike Path.is_dir, false without permission.
    if os.path.isdir(path):  # noqa: PTH112
        return path
    try:
        # A pipe would make us wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            key, _, target = os.fsdecode(os.read(descriptor, _MOST_GITDIR_BYTES)).strip().partition(": ")
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return directory / target if key == "gitdir" and "\0" not in target else None


def _times_of(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def is_open_for_writing(path: Path) -> bool | None:
    """Return whether any process has a file open for writing; None: unknown.

    A read lease is granted only if none has; not on others' files (unless to root), nor by all filesystems.

    Source: fcntl(2), "Leases".
    """
    try:
        descriptor = _open_with_lease(path)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    os.close(descriptor)
    return False


def read_undisturbed(path: Path, max_size_bytes: int) -> bytes | None:
    """Return a file's content; None: open for writing, larger, or unknown.

    Meanwhile, processes that open it for writing wait.
    """
    try:
        descriptor = _open_with_lease(path)
        try:
            content = os.read(descriptor, max_size_bytes + 1)
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return content if len(content) <= max_size_bytes else None


def _open_with_lease(path: Path) -> int:
    """The lease ends on close; OSError with EAGAIN if open for writing."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # The kernel sends a signal if the file is opened for writing right now. The default, SIGIO, would end the
        # process; SIGURG is ignored.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_old(path: Path, age_s: float) -> bool:
    try:
        return time.time() - path.stat().st_mtime > age_s
    except OSError:
        return True
