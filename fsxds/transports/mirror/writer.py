"""Keeps a directory of files, for watching Envoys, in step with snapshots."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final, Never, Self, TypeVar

from fsxds.api.catalogue import Catalogue
from fsxds.api.secrets import CredentialFinder
from fsxds.events.event import Observer
from fsxds.events.file_events import FilesWritten, MirrorFailed, Remark
from fsxds.events.process_events import SnapshotSetAside
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL, RESOURCE_TYPES
from fsxds.model.resources import RowsChange, Snapshot
from fsxds.model.values import BackOff, TypeUrl
from fsxds.protocol.messages import ClientStatus, SyncState, WatchStatus, combined_state
from fsxds.protocol.subscription import WILDCARD
from fsxds.rollout import Step
from fsxds.rollout.step import Standing, StepKind
from fsxds.runtime.channels import Channel, Channels, end_wait
from fsxds.runtime.supervisor import Attempts
from fsxds.settings.options import Settings
from fsxds.settings.view_rules import MirrorRule
from fsxds.transports.mirror.directory import ForeignChanges, MirrorDirectory, MirrorRecords, Signature
from fsxds.transports.mirror.envoy_reader import NO_LISTS, UNKNOWN_AUDIENCE, Audience, EnvoyReader, FileRejection
from fsxds.transports.mirror.files import (
    COLLECTIONS,
    FileStep,
    MirrorEncoding,
    MirrorFile,
    Pause,
    Remove,
    Write,
    steps_to,
)
from fsxds.transports.mirror.layout import (
    LayoutMaker,
    ListenerFinder,
    MirrorConfigSources,
    ResourceLayoutMaker,
    by_name,
)

Value = TypeVar("Value")

BACK_OFF = BackOff()
# Between looks at an Envoy that should read new files, and at most while its page does not change.
READ_EVERY_S, READ_EVERY_AT_MOST_S = 0.05, 1.0

# One file per resource.
RESOURCES = "resources"
EVERYTHING = frozenset((WILDCARD,))
# With a wildcard subscription.
LISTED = tuple(row for row in RESOURCE_TYPES if row is not BY_SHORT_NAME["vhds"])


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """How files are written.

    Attributes:
        form: `pb`, `json`, `yaml` or `pb_text`.
        rewrite_config_sources: point them at the files.
        durable: sync each file before it replaces the old one.
        pause_s: for Envoy to read files before dependent ones.
        rescan_s: between checks for others' changes.
        layout: `envoy`, or `resources`: one file per resource.
    """

    form: str = "pb"
    rewrite_config_sources: bool = False
    durable: bool = True
    # ENVOY.md E26: with 20 ms between CDS and LDS none of 240 updates was rejected, with none up to 20 %; this is more.
    pause_s: float = 0.05
    rescan_s: float = 30.0
    finder: ListenerFinder = by_name
    layout: str = "envoy"
    authority: str = ""

    @classmethod
    def of(cls, settings: Settings, rule: MirrorRule, finder: ListenerFinder) -> MirrorOptions:
        """Return a directory's options from its rule, else the settings.

        Raises:
            UsageError: an option for Envoys, and a layout that is not.
        """
        layout = rule.layout or settings.mirror_layout
        of_envoy = _first(rule.config_sources, settings.mirror_config_sources) or rule.admin is not None
        if layout == RESOURCES and of_envoy:
            fact = f"{rule.directory}: no Envoy reads files of the layout {RESOURCES}"
            raise UsageError(f"{fact}; leave config_sources and admin out, or choose the layout envoy")
        return cls(
            form=rule.format or settings.mirror_format,
            rewrite_config_sources=_first(rule.config_sources, settings.mirror_config_sources),
            durable=_first(rule.durable, settings.mirror_durable),
            pause_s=_first(rule.pause_s, settings.mirror_pause_s),
            rescan_s=settings.rescan_s,
            finder=finder,
            layout=layout,
            authority=settings.authority,
        )


def _first(of_rule: Value | None, of_settings: Value) -> Value:
    return of_settings if of_rule is None else of_rule


class Mirror:
    """Holds one directory, as a context manager, and keeps its files equal to snapshots.

    Blocking; a lock serializes calls.
    """

    def __init__(self, root: Path, catalogue: Catalogue, options: MirrorOptions | None = None) -> None:
        self.options = options or MirrorOptions()
        # Envoy resolves relative paths by its own working directory.
        root = root.absolute()
        self._directory = MirrorDirectory(root, durable=self.options.durable)
        self._encoding = MirrorEncoding(catalogue, self.options.form)
        self._records = MirrorRecords(self._directory, self._encoding)
        target = PurePosixPath(root) if self.options.rewrite_config_sources else None
        suffix, sources = self._encoding.suffix, MirrorConfigSources(catalogue)
        self._layouts: LayoutMaker | ResourceLayoutMaker = (
            ResourceLayoutMaker(suffix, self.options.authority)
            if self.options.layout == RESOURCES
            else LayoutMaker(suffix, sources, target, self.options.finder)
        )
        self._credentials = CredentialFinder(catalogue)
        self.lists = NO_LISTS
        self._lock = threading.Lock()
        self._is_interrupted = threading.Event()
        # That others had changed when the last write ended.
        self._left_changed: dict[PurePosixPath, Signature | None] = {}

    def change(self, options: MirrorOptions) -> None:
        """Change options other than form and rewriting."""
        self.options = options
        if isinstance(self._layouts, LayoutMaker):
            self._layouts.finder = options.finder
        else:
            self._layouts = ResourceLayoutMaker(self._encoding.suffix, options.authority)
        self._directory.durable = options.durable

    @property
    def root(self) -> Path:
        """The directory."""
        return self._directory.root

    def has_changed(self) -> bool:
        """Whether others changed our files since writing. Raises OSError."""
        with self._lock:
            return self._records.changed_by_others() != self._left_changed

    def folders(self) -> frozenset[Path]:
        """Return the folders with our files."""
        with self._lock:
            return frozenset(self.root / folder for path in self._records.paths for folder in path.parents)

    def __enter__(self) -> Self:
        """Lock the directory. Raises UsageError if another process has it.

        If it cannot be made or read, each `write` tries again.
        """
        self._is_interrupted.clear()
        with self._lock, contextlib.suppress(OSError):
            self._take()
        return self

    def __exit__(self, *_: object) -> None:
        """Interrupt a write, await its end, and release the directory."""
        self.interrupt()
        with self._lock:
            self._directory.release()

    def interrupt(self) -> None:
        """End a write after its present file; allow none until entered again."""
        self._is_interrupted.set()

    def _take(self) -> None:
        if self._directory.hold():
            self._records.forget()
        self._records.load()

    def write(self, snapshot: Snapshot) -> FilesWritten:
        """Bring the files in step with a snapshot.

        Raises:
            OSError: some were not written; call again to continue.
            UsageError: another process has the directory.
        """
        with self._lock:
            started_s = time.monotonic()
            changed = self._records.changed_by_others()
            self._take()
            held = self._records.held(snapshot)
            layout = self._layouts.lay_out(snapshot, held)
            lists = [file for file in layout.files.values() if file.type_url in COLLECTIONS]
            self.lists = self.lists.after(frozenset(file.version for file in lists))
            steps = steps_to(layout, held)
            blocked = tuple(self._blocked(steps))
            paths = {PurePosixPath(remark.subject) for remark in blocked}
            work = _Work(tuple(step for step in steps if not isinstance(step, Write) or step.file.path not in paths))
            try:
                self._do(work)
            finally:
                self._records.save()
            # The next look detects others' changes during this write.
            self._left_changed = dict(self._records.changed_by_others().items() & changed.items())
            return FilesWritten(
                generation=snapshot.generation,
                written=tuple(work.written),
                removed=tuple(work.removed),
                unchanged=len(layout.files) - len({*work.written, *paths}),
                kept=(*layout.kept_resources, *work.kept),
                left_sources=layout.left_sources,
                blocked=blocked,
                restored=tuple(sorted(changed.keys() & set(work.written))),
                duration_s=time.monotonic() - started_s,
            )

    def _blocked(self, steps: Iterable[FileStep]) -> Iterator[Remark]:
        """Equal files are adopted."""
        for file in {step.file.path: step.file for step in steps if isinstance(step, Write)}.values():
            if (obstacle := self._directory.obstacle(file.path)) is not None:
                reason = f"{obstacle} was not written by fsxds, and stays; move it away to have this file written"
                yield Remark(str(file.path), reason)
            elif file.path not in self._records.paths and self._is_other(file):
                reason = "a file that fsxds did not write is there, and stays; move it away to have this one written"
                yield Remark(str(file.path), reason)

    def _is_other(self, file: MirrorFile) -> bool:
        present = self._directory.read(file.path)
        return present is not None and present != self._encoding.encode(file)

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
                    self._is_interrupted.wait(self.options.pause_s)
                    is_read = True
        self._directory.sync()

    def _put(self, file: MirrorFile, work: _Work) -> bool:
        content = self._encoding.encode(file)
        is_secret = BY_TYPE_URL[file.type_url].is_secret
        # Other users must not read a key inside a cluster either, which `fsxds export` would withhold.
        is_private = is_secret or any(self._credentials.are_in(one.type_url, one.body) for one in file.resources)
        signature = self._directory.signature(file.path)
        is_open = is_private and signature is not None and signature[3] & 0o077 != 0
        is_new = is_open or self._directory.read(file.path) != content
        if is_new:
            self._announce(work)
            if not is_secret:
                # The folder may also have files that others read.
                self._directory.make_folders(file.path)
            signature = self._directory.replace(file.path, content, is_private=is_private)
            work.written.append(file.path)
        self._records.record(file, content, signature)
        return is_new

    def _drop(self, path: PurePosixPath, work: _Work) -> None:
        if self._records.owns_content(path, self._directory.read(path)):
            self._announce(work)
            self._directory.remove(path)
            if path.parts[:-2]:
                self._directory.remove_empty_folders(path)
            work.removed.append(path)
        else:
            work.kept.append(Remark(str(path), "kept: it was changed since fsxds wrote it; remove it yourself"))
        self._records.drop(path)

    def _announce(self, work: _Work) -> None:
        if not work.is_announced:
            self._records.announce(step.file for step in work.steps if isinstance(step, Write))
            work.is_announced = True


class _Work:
    def __init__(self, steps: tuple[FileStep, ...]) -> None:
        self.steps = steps
        self.is_announced = False
        self.written: list[PurePosixPath] = []
        self.removed: list[PurePosixPath] = []
        self.kept: list[Remark] = []


def write_once(snapshot: Snapshot, mirror: Mirror) -> FilesWritten:
    """Write once and release the directory; raises as `Mirror.write`."""
    with mirror:
        return mirror.write(snapshot)


class Mirroring:
    """Keeps a directory in step with its node's channel; skips overtaken snapshots.

    Files that others change are written again at once, after a growing pause, or at the next rescan.

    A rollout step is taken when its files are written and `MirrorOptions.pause_s` has passed, or by its Envoy's answer, if
    a reader follows one.

    A full disk, a read-only or missing directory is reported and tried again after 1, 2, 4, ... 30 seconds, and with
    each newer snapshot. A snapshot that failed three times in a row by an error of fsxds is set aside.
    """

    transport: Final = "mirror"
    node_count = 1
    # It is here, and can always write files.
    has_returned = True
    is_away = False

    def __init__(
        self, channels: Channels, mirror: Mirror, observer: Observer, audience: Audience = UNKNOWN_AUDIENCE
    ) -> None:
        self._channels = channels
        # While `keep_mirrored` runs.
        self._channel: Channel
        self._mirror = mirror
        self._observer = observer
        self._attempts = Attempts(lambda error: observer(SnapshotSetAside("mirror", error)))
        # In the directory; generation 0 if the channel has served another snapshot since.
        self._written: Snapshot | None = None
        self._generation = 0
        # The difference to the files before, until the Envoy has answered.
        self._unanswered: Step | None = None
        # With a reported rejection; the rejection stays while the files are as rejected.
        self._rejected: Snapshot | None = None
        self._rejection: FileRejection | None = None
        self._since_s = self._reached_s = 0.0
        # A rollout waits for the Envoy.
        self._is_awaited = asyncio.Event()
        self._ask_for_everything()
        self._failures = 0
        # Rescheduled to look at another channel, or changed files.
        self._limit: asyncio.Timeout | None = None
        self._foreign = ForeignChanges(self._look_soon)
        self.root = mirror.root
        # Its own voter.
        self.name = self.identity = str(mirror.root)
        self.node = audience.node
        self.has_written = asyncio.Event()
        self._reader = audience.reader

    def standing(self, step: Step) -> Standing:
        """Return whether files are written and a known Envoy has answered."""
        return Standing.PENDING if self._generation < step.snapshot.generation else self._standing(step)

    def _standing(self, step: Step) -> Standing:
        if self._reader is None or self._written is None:
            return Standing.TAKEN
        standing = self._reader.standing(step, self._written)
        if standing is Standing.PENDING:
            self._is_awaited.set()
        if not isinstance(standing, FileRejection):
            return standing
        if self._rejected is not self._written:
            self._rejected, self._rejection = self._written, standing
            self._channel.on_nack(self, standing.nack(self._written))
        return Standing.TAKEN

    def _look_at_answer(self) -> None:
        if self._unanswered is not None and self._standing(self._unanswered) is Standing.TAKEN:
            self._unanswered = None

    def selected(self, _: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """All: files have everything."""
        return names

    reachable = selected

    def sync_state(self) -> SyncState:
        """Return how directory and Envoy compare to the snapshot."""
        served = self._channel.store.current
        return combined_state(
            SyncState.STALE
            if watch.state is SyncState.SYNCED and served is not None and self._generation != served.generation
            else watch.state
            for watch in self._watches()
        )

    def status(self) -> ClientStatus:
        """Return written types, with the Envoy's answer."""
        return ClientStatus(self.node, self.transport, self._watches(), self._since_s)

    def _watches(self) -> Iterator[WatchStatus]:
        written, unanswered, rejection = self._written, self._unanswered, self._rejection
        if written is None:
            return
        for type_url, rows in written.by_type.items():
            if type_url not in written.withheld and (rows or type_url not in written.undeclared):
                is_awaited = unanswered is not None and type_url in unanswered.changed
                rejected = rejection if rejection is not None and rejection.type_url == type_url else None
                state = SyncState.STALE if is_awaited else SyncState.SYNCED
                yield WatchStatus(
                    type_url,
                    None,
                    sent=rows.version,
                    acked=None if is_awaited or rejected else rows.version,
                    nacked=rows.version if rejected else None,
                    reason=rejected.reason if rejected else None,
                    resources=rows.everything,
                    state=SyncState.NACK if rejected else state,
                    since_s=self._reached_s,
                    generation=self._generation,
                )

    def wake(self) -> None:
        """Do nothing: `keep_mirrored` waits for new snapshots."""

    def follow(self, channel: Channel) -> None:
        """Follow another channel, already joined."""
        # Its snapshot may be older than the written one.
        self._channel, self._generation = channel, 0
        end_wait(self._limit, asyncio.get_running_loop().time())

    async def keep_mirrored(self) -> Never:
        """Write newer snapshots until cancelled, which ends a write after its present file.

        Raises:
            UsageError: another process has the directory.
            ProtocolError: the node has no view.
        """
        self._ask_for_everything()
        self._channel = await self._channels.channel_of(self.node, holds=True)
        self._since_s = asyncio.get_running_loop().time()
        self._channel.join(self)
        self._foreign.start()
        try:
            while True:
                snapshot = await self._next()
                if self._attempts.are_over(snapshot.generation):
                    self._reach(snapshot)
                    continue
                with self._attempts.on(snapshot.generation):
                    await self._write(snapshot)
        finally:
            self._channel.leave(self)
            self._channels.on_demand.forget(self)
            await self._foreign.stop()

    def _ask_for_everything(self) -> None:
        for row in LISTED:
            self._channels.on_demand.ask(self, row.type_url, EVERYTHING)

    async def keep_read(self, reader: EnvoyReader) -> Never:
        """Poll the Envoy while a rollout waits for it."""
        while True:
            await self._is_awaited.wait()
            self._is_awaited.clear()
            pause_s = READ_EVERY_S
            while not await reader.look():
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, READ_EVERY_AT_MOST_S)
            self._look_at_answer()
            self._channel.progressed(self)
            await asyncio.sleep(READ_EVERY_S)

    async def _next(self) -> Snapshot:
        while True:
            until_s = asyncio.get_running_loop().time() + self._mirror.options.rescan_s
            with contextlib.suppress(TimeoutError):
                return await self._newer_than(self._generation, self._foreign.due_s(until_s))
            self._foreign.begin_look()
            try:
                has_changed = await asyncio.to_thread(self._mirror.has_changed)
            except OSError:
                has_changed = True  # `write` reports the error.
            if has_changed and self._channel.store.current is not None:
                return self._channel.store.current

    def _look_soon(self) -> None:
        if not self._failures and self._limit is not None and (until_s := self._limit.when()) is not None:
            end_wait(self._limit, self._foreign.due_s(until_s))

    async def _newer_than(self, generation: int, until_s: float) -> Snapshot:
        async with asyncio.timeout_at(until_s) as limit:
            self._limit = limit
            try:
                return await self._channel.store.newer_than(generation)
            finally:
                self._limit = None

    async def _write(self, snapshot: Snapshot) -> None:
        changes = None if self._written is None else _changes(self._written, snapshot)
        if self._reader is not None:
            await self._reader.mark(changes)
        # Incomplete until other servers have answered, so that none of their resources is removed.
        unanswered = [row.type_url for row in LISTED if self._channels.on_demand.unanswered(row.type_url, EVERYTHING)]
        written = replace(snapshot, incomplete=snapshot.incomplete.union(unanswered)) if unanswered else snapshot
        try:
            report = await asyncio.to_thread(self._mirror.write, written)
        except asyncio.CancelledError:
            # The thread continues, but the process does not wait for ten thousand files.
            self._mirror.interrupt()
            raise
        except OSError as error:
            self._failures += 1
            retry_s = BACK_OFF.pause_s(self._failures)
            self._observer(MirrorFailed(error, retry_s))
            with contextlib.suppress(TimeoutError):
                await self._newer_than(snapshot.generation, asyncio.get_running_loop().time() + retry_s)
        else:
            self._failures = 0
            self.has_written.set()
            if self._reader is not None:
                self._reader.lists = self._mirror.lists
            self._observer(replace(report, pause_s=self._foreign.restored()) if report.restored else report)
            await self._foreign.watch(self._mirror.folders)
            if report.written or report.removed:
                await asyncio.sleep(self._mirror.options.pause_s)
            self._reach(snapshot)

    def _reach(self, snapshot: Snapshot) -> None:
        rejected = None if self._rejection is None else self._rejection.type_url
        if rejected and self._written and snapshot.versions[rejected] != self._written.versions[rejected]:
            self._rejection = None
        if self._reader is not None and self._written is not None:
            step, earlier = Step(StepKind.WHOLE, snapshot, _changes(self._written, snapshot)), self._unanswered
            self._unanswered = step if earlier is None else earlier.joined_with(step)
        self._written = snapshot
        self._generation = snapshot.generation if self._channel.store.current is snapshot else 0
        self._reached_s = asyncio.get_running_loop().time()
        self._look_at_answer()
        self._channel.progressed(self)


def _changes(before: Snapshot, after: Snapshot) -> dict[TypeUrl, RowsChange]:
    changes = {type_url: rows.changes_since(before.resources(type_url)) for type_url, rows in after.by_type.items()}
    return {type_url: change for type_url, change in changes.items() if change}
