"""Bring a directory of files in step with one snapshot after another."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Self

from fsxds.api.catalogue import Catalogue
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Snapshot
from fsxds.transports.mirror_config_sources import ConfigSources
from fsxds.transports.mirror_content import Content
from fsxds.transports.mirror_directory import MirrorDirectory, Signature
from fsxds.transports.mirror_files import MirrorFile, Remark
from fsxds.transports.mirror_layout import LayoutMaker
from fsxds.transports.mirror_records import MirrorRecords
from fsxds.transports.mirror_steps import Pause, Remove, Step, Write, steps_to


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """What one snapshot did to the directory.

    `written` are in order, and a bundle is twice in it that let clusters go. `unchanged` counts the files that were as
    they should be. `kept` tells what stays although the snapshot does not have it, `left_sources` which config sources
    were not pointed at a file, `refused` which files of somebody else stood in the way. `restored` are those of the
    written files that somebody had removed or changed.
    """

    generation: int
    written: tuple[PurePosixPath, ...]
    removed: tuple[PurePosixPath, ...]
    unchanged: int
    kept: tuple[Remark, ...]
    left_sources: tuple[Remark, ...]
    refused: tuple[Remark, ...]
    restored: tuple[PurePosixPath, ...]
    duration_s: float


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

    def write(self, snapshot: Snapshot) -> MirrorReport:
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
            return MirrorReport(
                generation=snapshot.generation,
                written=tuple(work.written),
                removed=tuple(work.removed),
                unchanged=len(layout.files) - len({*work.written, *paths}),
                kept=(*layout.kept_resources, *work.kept),
                left_sources=layout.left_sources,
                refused=refused,
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
