"""In which order files change, so that no reader ever misses what it needs.

Bring a directory of files in step with one snapshot after another.

Rewrite files atomically for Envoys that watch paths.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path, PurePosixPath
from typing import Never, Self

from fsxds.api.catalogue import Catalogue
from fsxds.events import FilesWritten, MirrorFailed, Observer, Remark, SnapshotSetAside
from fsxds.resource_types import BY_SHORT_NAME, BY_TYPE_URL
from fsxds.resources import Snapshot
from fsxds.rollout import Staged, staged_state
from fsxds.store import SnapshotStore
from fsxds.supervisor import Attempts
from fsxds.transports.mirror.directory import MirrorDirectory, Signature
from fsxds.transports.mirror.files import Content, Held, Layout, MirrorFile, united
from fsxds.transports.mirror.layout import ConfigSources, LayoutMaker
from fsxds.transports.mirror.manifest import MirrorRecords
from fsxds.values import BackOff


@dataclass(frozen=True, slots=True)
class Write:
    """Put this file in place of the one that is there, if any."""

    file: MirrorFile


@dataclass(frozen=True, slots=True)
class Pause:
    """Give Envoy time to read what was written, before what relies on it follows.

    Two files renamed at once race: Envoy then rejects up to a fifth of the listeners, and does not try again
    (ENVOY.md B4).
    """


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove this file of ours."""

    path: PurePosixPath


Step = Write | Pause | Remove


class Act(IntEnum):
    """The acts of a change, with a pause between any two of them.

    Make before break: clusters before the routes and listeners that use them; then what these may have left.
    """

    CLUSTERS = 0
    LISTENERS = 1
    LEFT_CLUSTERS = 2
    LEFT_FILES = 3


CLUSTERS = BY_SHORT_NAME["cds"]


def steps_to(layout: Layout, held: Held) -> tuple[Step, ...]:
    """Return the steps from what is held to a layout; none when all is as it should be."""
    changed = [file for path, file in layout.files.items() if path not in held or held[path].content != file]
    acts: dict[Act, list[Step]] = {act: [] for act in Act}
    is_in_use = any(_act(file, held) is Act.LISTENERS for file in changed)
    for file in sorted(changed, key=lambda file: (_rank(file, held), file.path)):
        staged = _staged_clusters(file, held) if is_in_use and file.type_url == CLUSTERS.type_url else Staged(file)
        if staged.make is not None:
            acts[_act(file, held)].append(Write(staged.make))
        if staged.removal is not None:
            acts[Act.LEFT_CLUSTERS].append(Write(staged.removal))
    acts[Act.LEFT_FILES] += [Remove(path) for path in _left_files(layout, held)]
    return tuple(_with_pauses(acts.values()))


def _rank(file: MirrorFile, held: Held) -> int:
    row = BY_TYPE_URL[file.type_url]
    return row.file_order if file.path in held or row.new_file_order is None else row.new_file_order


def _act(file: MirrorFile, held: Held) -> Act:
    if file.is_stand_in and file.path in held:
        return Act.LEFT_CLUSTERS
    return Act.LISTENERS if _rank(file, held) > CLUSTERS.file_order else Act.CLUSTERS


def _staged_clusters(file: MirrorFile, held: Held) -> Staged[MirrorFile]:
    """Keep the clusters that go until routes and listeners have changed: until then the file has old and new ones."""
    if file.path not in held:
        return Staged(file)
    before = held[file.path].content
    return staged_state(before, united(file, before), file)


def _left_files(layout: Layout, held: Held) -> list[PurePosixPath]:
    """Return what is to be removed, users first."""
    left = [path for path in held if path not in layout.files and path not in layout.kept]
    ranks = {path: BY_TYPE_URL[held[path].type_url].file_order for path in left}
    return sorted(left, key=lambda path: (-ranks[path], path))


def _with_pauses(acts: Iterable[list[Step]]) -> Iterable[Step]:
    is_first = True
    for steps in acts:
        if steps and not is_first:
            yield Pause()
        yield from steps
        is_first = is_first and not steps


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """How files are written.

    Attributes:
        form: `pb`, `json`, `yaml` or `pb_text`.
        rewrite_config_sources: point the config sources inside of resources at the files.
        durable: sync each file to the disk before it takes the place of the old one.
        pause_s: how long Envoy gets to read what was written before what relies on it follows.
        rescan_s: how often to look whether somebody removed or changed a file.
    """

    form: str = "pb"
    rewrite_config_sources: bool = False
    durable: bool = True
    # ENVOY.md B4: with 20 ms between CDS and LDS none of 240 updates was rejected, with none up to 20 %; this is more.
    pause_s: float = 0.05
    rescan_s: float = 30.0


class Mirror:
    """Keeps the files of one directory equal to snapshots; a context manager that gives the directory back.

    Blocking: call it outside of the event loop. Calls take turns.
    """

    def __init__(self, root: Path, catalogue: Catalogue, options: MirrorOptions | None = None) -> None:
        self._options = options or MirrorOptions()
        # Envoy resolves relative paths by its own working directory.
        root = root.absolute()
        self._directory = MirrorDirectory(root, durable=self._options.durable)
        self._content = Content(catalogue, self._options.form)
        self._records = MirrorRecords(self._directory, self._content)
        target = PurePosixPath(root) if self._options.rewrite_config_sources else None
        self._layouts = LayoutMaker(self._content.suffix, ConfigSources(catalogue), target)
        self._turn = threading.Lock()
        self._is_interrupted = threading.Event()
        # What others did to our files, as the last write left it.
        self._left_changed: dict[PurePosixPath, Signature | None] = {}

    def change(self, options: MirrorOptions) -> None:
        """Be as durable and as patient as these options say from now on; form and config sources stay."""
        self._options = options
        self._directory.durable = options.durable

    @property
    def root(self) -> Path:
        """The directory."""
        return self._directory.root

    @property
    def rescan_s(self) -> float:
        """How often to ask whether something changed."""
        return self._options.rescan_s

    def has_changed(self) -> bool:
        """Tell whether somebody removed or changed a file of ours since the last write; OSError where nobody can tell."""
        with self._turn:
            return self._records.changed_by_others() != self._left_changed

    def __enter__(self) -> Self:
        """Take the directory at once; UsageError when another process has it.

        One that cannot be made or read yet is no error here: each `write` tries again.
        """
        self._is_interrupted.clear()
        with self._turn, contextlib.suppress(OSError):
            self._take()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the directory back, when a write that is under way has ended."""
        self.interrupt()
        with self._turn:
            self._directory.release()

    def interrupt(self) -> None:
        """Let a write that is under way end after its present file, and all others do nothing, until entered again."""
        self._is_interrupted.set()

    def _take(self) -> None:
        if self._directory.hold():
            self._records.forget()
        self._records.load()

    # -- one snapshot

    def write(self, snapshot: Snapshot) -> FilesWritten:
        """Bring the files in step with a snapshot, from whatever is there.

        Raises:
            OSError: some were not written; calling again goes on from there.
            UsageError: another process has the directory.
        """
        with self._turn:
            started_s = time.monotonic()
            changed = self._records.changed_by_others()
            self._take()
            held = self._records.held(snapshot)
            layout = self._layouts.lay_out(snapshot, held)
            steps = steps_to(layout, held)
            refused = tuple(self._refusals(steps))
            paths = {PurePosixPath(remark.subject) for remark in refused}
            work = _Work(tuple(step for step in steps if not isinstance(step, Write) or step.file.path not in paths))
            try:
                self._do(work)
            finally:
                self._records.save()
            self._left_changed = self._records.changed_by_others()
            return FilesWritten(
                generation=snapshot.generation,
                written=tuple(work.written),
                removed=tuple(work.removed),
                unchanged=len(layout.files) - len({*work.written, *paths}),
                kept=(*layout.kept_resources, *work.kept),
                left_sources=layout.left_sources,
                blocked=refused,
                restored=tuple(sorted(changed.keys() & set(work.written))),
                duration_s=time.monotonic() - started_s,
            )

    def _refusals(self, steps: Iterable[Step]) -> Iterator[Remark]:
        """Yield the files to write where something stands that fsxds did not write; what is equal is taken over."""
        for file in {step.file.path: step.file for step in steps if isinstance(step, Write)}.values():
            if (obstacle := self._directory.obstacle(file.path)) is not None:
                reason = f"{obstacle} is not what fsxds wrote, and stays; move it away to have this file written"
                yield Remark(str(file.path), reason)
            elif not self._records.owns(file.path) and self._is_other(file):
                reason = "a file that fsxds did not write is there, and stays; move it away to have this one written"
                yield Remark(str(file.path), reason)

    def _is_other(self, file: MirrorFile) -> bool:
        present = self._directory.read(file.path)
        return present is not None and present != self._content.encode(file)

    # -- what is done

    def _do(self, work: _Work) -> None:
        is_read = True
        for step in work.steps:
            if self._is_interrupted.is_set():
                break
            match step:
                case Write(file):
                    is_read = not self._put(file, work) and is_read
                case Remove(path):
                    self._drop(path, work)
                case Pause() if not is_read:
                    self._is_interrupted.wait(self._options.pause_s)
                    is_read = True
        self._directory.sync()

    def _put(self, file: MirrorFile, work: _Work) -> bool:
        """Write a file unless it holds these bytes already; tell whether it was written."""
        content = self._content.encode(file)
        is_private = BY_TYPE_URL[file.type_url].is_secret
        signature = self._directory.signature(file.path)
        is_open = is_private and signature is not None and signature[3] & 0o077 != 0
        is_new = is_open or self._directory.read(file.path) != content
        if is_new:
            self._announce(work)
            signature = self._directory.replace(file.path, content, is_private=is_private)
            work.written.append(file.path)
        self._records.record(file, content, signature)
        return is_new

    def _drop(self, path: PurePosixPath, work: _Work) -> None:
        """Remove a file of ours, unless somebody has put something else in its place."""
        if self._records.owns_content(path, self._directory.read(path)):
            self._announce(work)
            self._directory.remove(path)
            work.removed.append(path)
        else:
            work.kept.append(
                Remark(str(path), "kept: somebody has changed it since fsxds wrote it; remove it yourself")
            )
        self._records.drop(path)

    def _announce(self, work: _Work) -> None:
        if not work.is_announced:
            self._records.announce(step.file for step in work.steps if isinstance(step, Write))
            work.is_announced = True


class _Work:
    """The steps of one snapshot, and what came of them."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps
        self.is_announced = False
        self.written: list[PurePosixPath] = []
        self.removed: list[PurePosixPath] = []
        self.kept: list[Remark] = []


__all__ = ["Mirror", "MirrorOptions", "Mirroring", "write_once"]

BACK_OFF = BackOff()


def write_once(snapshot: Snapshot, mirror: Mirror) -> FilesWritten:
    """Write one snapshot and give the directory back; raises as `Mirror.write`."""
    with mirror:
        return mirror.write(snapshot)


class Mirroring:
    """Keeps a directory in step with the store; a snapshot that was overtaken is skipped.

    What somebody removes or changes of the files is written again, when the time to look for it has come.

    A full disk, a read-only or missing directory is reported and tried again after 1, 2, 4, … 30 seconds, and with each
    newer snapshot. A snapshot on which it failed three times in a row by an error of fsxds is set aside: the files stay as
    they are until the next one.

    Attributes:
        root: the directory.
        has_written: is set when the first snapshot is in the directory.
    """

    def __init__(self, store: SnapshotStore, mirror: Mirror, observer: Observer) -> None:
        self._store = store
        self._mirror = mirror
        self._observer = observer
        self._attempts = Attempts(lambda error: observer(SnapshotSetAside("mirror", error)))
        self._generation = 0
        self._failures = 0
        self.root = mirror.root
        self.has_written = asyncio.Event()

    async def keep_mirrored(self) -> Never:
        """Write each newer snapshot until cancelled, which ends a write after its present file.

        UsageError, when another process has the directory, is the caller's.
        """
        while True:
            snapshot = await self._next()
            if self._attempts.are_over(snapshot.generation):
                self._generation = snapshot.generation
                continue
            with self._attempts.on(snapshot.generation):
                await self._write(snapshot)

    async def _next(self) -> Snapshot:
        """Return the next snapshot to write: a newer one, or the same again when somebody removed or changed a file."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._mirror.rescan_s):
                    return await self._store.newer_than(self._generation)
            try:
                has_changed = await asyncio.to_thread(self._mirror.has_changed)
            except OSError:
                has_changed = True  # Writing will tell what is wrong.
            if has_changed and self._store.current is not None:
                return self._store.current

    async def _write(self, snapshot: Snapshot) -> None:
        try:
            report = await asyncio.to_thread(self._mirror.write, snapshot)
        except asyncio.CancelledError:
            # The thread goes on; the process shall not wait for ten thousand files.
            self._mirror.interrupt()
            raise
        except OSError as error:
            self._failures += 1
            retry_s = BACK_OFF.pause_s(self._failures)
            self._observer(MirrorFailed(error, retry_s))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry_s):
                    await self._store.newer_than(snapshot.generation)
        else:
            self._generation, self._failures = snapshot.generation, 0
            self.has_written.set()
            self._observer(report)
