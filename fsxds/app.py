"""Introduce the rooms to one another and run them in one task group."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Never, cast

from fsxds.api.catalogue import Catalogue
from fsxds.errors import FsxdsError, UsageError
from fsxds.events import (
    ApiFound,
    Event,
    FilesWritten,
    Level,
    ListeningStarted,
    Observer,
    SettingsRejected,
    SettingsReloaded,
    SnapshotSetAside,
    StartDelayed,
    StopRequested,
)
from fsxds.formats.libyaml import require_libyaml
from fsxds.live_settings import Changing, SettingsChange, SettingsReader
from fsxds.observe.clients import FORGOTTEN_AFTER_S, Clients
from fsxds.observe.log import Log
from fsxds.parse_worker import ParseLimits, ParseRules, Parsing
from fsxds.protocol.ttl import TtlMode
from fsxds.ready_file import ReadyFile
from fsxds.reload import NewestTree, Reload, acceptance, find_catalogue, load_once, parse_rules, scanner_of
from fsxds.resource_types import BY_TYPE_URL
from fsxds.settings.forms import OFF, Address, parse_address
from fsxds.settings.options import Settings
from fsxds.snapshots.check import Check
from fsxds.snapshots.load import Acceptance, Loaded
from fsxds.source.watch import WatchMode, WatchOptions, watch
from fsxds.store import SnapshotStore
from fsxds.supervisor import Supervisor, words_of
from fsxds.transports.client_status.service import ClientReports, client_status_handlers, client_status_paths
from fsxds.transports.config_sources import AdsConfigSources, Rewriting
from fsxds.transports.grpc_streams.server import listening_grpc
from fsxds.transports.grpc_streams.service import GrpcServices
from fsxds.transports.mirror.writer import Mirror, Mirroring, MirrorOptions, write_once
from fsxds.transports.rest.server import listening, raise_open_files_limit
from fsxds.transports.rest.service import RestJson, make_application
from fsxds.transports.sockets import leave_at_once, until_lost
from fsxds.values import PlainValue
from fsxds.waits import report_waits, reported_wait

# SIGTERM is followed by SIGKILL after ten seconds where containers run. A drain takes milliseconds, or as long as clients
# take what was handed to them.
GRACE_S = 6.5
STOP_WITHIN_S = 8.0
# What changes the check of files, beside the content of the bootstrap.
_JUDGED_BY = frozenset({"rules", "bootstrap", "static_clusters"})
# As shells count: 128 and the signal's number.
SIGNALLED = 128

CheckOf = Callable[[Settings], Check]
"""Makes what judges files as the settings ask for; UsageError where they cannot be followed."""


def mirror_once(directory: Path, out: Path, settings: Settings, check: Check) -> tuple[Loaded, FilesWritten]:
    """Load a tree and write it as mirrored files, once."""
    refuse_loop(directory, out)
    catalogue = find_catalogue(settings)
    loaded = load_once(directory, settings, catalogue, check)
    return loaded, write_once(loaded.snapshot, Mirror(out, catalogue, mirror_options(settings)))


async def serve(
    directory: Path, settings: Settings, log: Log, check_of: CheckOf, reader: SettingsReader | None = None
) -> None:
    """Serve a tree until SIGTERM or Ctrl-C; SIGHUP has `reader` read the settings again.

    Raises:
        UsageError: the address is taken, or the mirror belongs to another process; alone or in an exception group.
        KeyboardInterrupt: it was ended by Ctrl-C.
    """
    if settings.mirror is not None:
        refuse_loop(directory, settings.mirror)
    elif settings.http == settings.grpc == OFF:
        raise UsageError("there is nobody to serve: REST and gRPC are off; give --http, --grpc or --mirror")
    ready_file = None if settings.ready_file is None else ReadyFile(settings.ready_file)
    make_house = partial(House, directory, settings, log, check_of)
    try:
        await until_stopped(_serve(make_house, ready_file, reader), log, ready_file)
    finally:
        if ready_file is not None:
            ready_file.remove()


async def _serve(
    make_house: Callable[[], House], ready_file: ReadyFile | None, reader: SettingsReader | None = None
) -> None:
    house = make_house()
    settings, log = house.settings, house.log
    async with AsyncExitStack() as stack:
        mirrored = asyncio.Event()
        mirror = None
        if settings.mirror is not None:
            mirror = house.with_settings(Mirror(settings.mirror, house.catalogue, mirror_options(settings)))
            stack.enter_context(mirror)
        tasks = await stack.enter_async_context(house.serving())
        if mirror is not None:
            observer = noting_first_write(log.receive, mirrored)
            house.start(tasks, "mirror", Mirroring(house.store, mirror, observer).keep_mirrored)
        else:
            mirrored.set()
        waits_for = partial(what_start_waits_for, house, settings.mirror, mirrored)
        house.start(tasks, "start-up", partial(report_waits, waits_for, delays_to(log)))
        if reader is not None:
            house.start(tasks, "settings", partial(house.keep_settings, reader))
        if ready_file is not None:
            house.start(tasks, "ready file", partial(_keep_ready_file, ready_file, house, settings.mirror, mirrored))
        tasks.create_task(house.run())
        # Cancelled here, all of them end side by side.
        await asyncio.Event().wait()


def what_start_waits_for(house: House, out: Path | None, mirrored: asyncio.Event) -> str:
    """Return what the first snapshot and its first mirrored files wait for; empty when they are there."""
    if what := house.waits_for():
        return what
    return "" if out is None or mirrored.is_set() else f"the first mirrored files in {out}"


@dataclass(frozen=True, slots=True)
class Judging:
    """By what files are parsed and accepted."""

    rules: ParseRules
    limits: ParseLimits
    acceptance: Acceptance

    @classmethod
    def by(cls, settings: Settings, catalogue: Catalogue, check: Check) -> Judging:
        """Return what settings say."""
        limits = ParseLimits(settings.parse_apart_above_bytes, time_s=settings.parse_time_s)
        return cls(parse_rules(settings, catalogue, check), limits, acceptance(settings, check))


class House:
    """The rooms that every lasting command needs, once they are introduced to one another.

    Attributes:
        settings: those in use; what can change while running is replaced.
        store: what is served.
        streams: what is served on streams: the same, or with its config sources made ADS.
        clients: who is connected, and what each holds.
        supervisor: runs all components.
        log: is told what happens.
        address: where REST listens, empty where it is off.
        grpc_address: where gRPC listens, empty where it is off.
    """

    def __init__(self, directory: Path, settings: Settings, log: Log, check_of: CheckOf) -> None:
        self.store = SnapshotStore()
        self.streams = SnapshotStore() if settings.ads_config_sources else self.store
        self.clients = Clients(FORGOTTEN_AFTER_S + settings.max_hold_s)
        self.supervisor = Supervisor(log.receive)
        self.address = ""
        self.grpc_address = ""
        self.settings = settings
        self._directory = directory
        self.log = log
        self._check_of = check_of
        self._trees = NewestTree()
        self._reload: Reload | None = None
        self._changing = Changing()
        self._mirrors: list[Mirror] = []
        require_libyaml()
        with reported_wait("the API of Envoy to be read", delays_to(log)):
            self.catalogue = find_catalogue(settings)
        log.receive(ApiFound(self.catalogue.description))
        self._judging = Judging.by(settings, self.catalogue, check_of(settings))

    def start(self, tasks: asyncio.TaskGroup, component: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run a component in a task of its own."""
        tasks.create_task(self.supervisor.run(component, work))

    async def run(self) -> None:
        """Watch, load, and report, until cancelled; REST and gRPC are served beside it."""
        log = self.log
        async with asyncio.TaskGroup() as tasks:
            self.start(tasks, "log", log.report_changes)
            tasks.create_task(self._changing.run_with(lambda: self._judging, self._judge))
            watch_again = partial(self.supervisor.run, "watcher", self._watch)
            tasks.create_task(self._changing.run_with(self._watching, lambda _: watch_again()))
            if self.streams is not self.store:
                sources = AdsConfigSources(self.catalogue)
                rewriting = Rewriting(self.store, self.streams, sources, self._set_aside)
                self.start(tasks, "ADS rewriting", rewriting.keep_rewritten)

    async def _judge(self, judging: Judging) -> None:
        """Parse and load the newest tree by these rules; what is served stays, and what it holds is judged anew."""
        limits = judging.limits
        if self._reload is not None:
            # There is no first load any more for which others would wait longer.
            limits = replace(limits, first_patience_s=limits.patience_s)
        with Parsing(judging.rules, limits, self._trees.put_again) as parsing:
            if self._reload is None:
                self._reload = Reload(self.store, parsing, judging.acceptance, self.log.receive)
            else:
                self._reload.judge_by(parsing, judging.acceptance)
                self._trees.put_again()
            async with asyncio.TaskGroup() as tasks:
                self.start(tasks, "parser", parsing.keep_parsing)
                self.start(tasks, "reload", partial(self._reload.keep_current, self._trees))

    def _set_aside(self, error: BaseException) -> None:
        self.log.receive(SnapshotSetAside("ADS rewriting", error))

    def _watching(self) -> tuple[object, ...]:
        """Return what a watcher has to be started anew for."""
        return _watch_options(self.settings), self.settings.exclude, self.settings.max_file_size_bytes

    async def _watch(self) -> None:
        """Pass on each tree that settles and is another than the last one, also where another watcher passed that on."""
        scanner, options = scanner_of(self._directory, self.settings), _watch_options(self.settings)
        last = None if self._trees.current is None else self._trees.current.tree
        async with aclosing(watch(scanner, options, self.log.receive, last=last)) as trees:
            async for settled in trees:
                self._trees.put(settled)

    @property
    def loaded(self) -> Loaded | None:
        """The tree as it was loaded last; None before the first."""
        return None if self._reload is None else self._reload.loaded

    def with_settings(self, mirror: Mirror) -> Mirror:
        """Have a mirror change with the settings, and return it."""
        self._mirrors.append(mirror)
        return mirror

    async def keep_settings(self, reader: SettingsReader) -> Never:
        """Apply what can change of the settings after each SIGHUP; where there is a mistake in them, the old ones stay."""
        while True:
            await reader.wanted()
            try:
                change, judging = await asyncio.to_thread(self._read_settings, reader)
            except FsxdsError as error:
                self.log.receive(SettingsRejected("; ".join(str(error).splitlines())))
            else:
                self._apply(change, judging)

    def _read_settings(self, reader: SettingsReader) -> tuple[SettingsChange, Judging]:
        change = SettingsChange.between(self.settings, reader.read(), reader.command)
        return change, Judging.by(change.settings, self.catalogue, self._check_of(change.settings))

    def _apply(self, change: SettingsChange, judging: Judging) -> None:
        settings, changed = change.settings, change.changed
        if judging.rules.check != self._judging.rules.check and _JUDGED_BY.isdisjoint(changed):
            changed = (*changed, "bootstrap")  # another content
        self.settings, self._judging = settings, judging
        self.log.write_from(Level[settings.log_level.upper()])
        self.clients.polls.forgotten_after_s = FORGOTTEN_AFTER_S + settings.max_hold_s
        for mirror in self._mirrors:
            mirror.change(mirror_options(settings))
        self._changing.note()
        self.log.receive(SettingsReloaded(changed, change.needs_restart))

    def waits_for(self) -> str:
        """Return what the first snapshot with a resource waits for; empty when it is served."""
        snapshot, settled, directory = self.store.current, self._trees.current, self._directory
        if settled is None:
            return f"{directory} to be read: it is not there, large, or written to all the time"
        count, size_bytes = len(settled.tree.files), sum(len(file.content) for file in settled.tree.files)
        if snapshot is None:
            return f"{count} files of {size_bytes:,} bytes in all to be parsed"
        if len(snapshot.withheld) < len(BY_TYPE_URL):
            return ""
        if not count:
            return f"the first file with configuration in {directory}"
        return f"the first file without a mistake: none of {count} in {directory} can be served"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[asyncio.TaskGroup]:
        """Serve REST and gRPC as long as the context lasts; in the end both are drained side by side.

        Yields:
            The task group of the listeners, for what is to end together with them.

        Raises:
            UsageError: an address cannot be had.
        """
        raise_open_files_limit()
        settings, log = self.settings, self.log
        reports = ClientReports(self.clients, self.catalogue)
        wanted = {"REST": (settings.http, self._rest), "gRPC": (settings.grpc, self._grpc)}
        listeners = {
            name: Listener(parse_address(address), partial(listen, reports))
            for name, (address, listen) in wanted.items()
            if address != OFF
        }
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self.supervisor.run(f"{name} listener", listener.serve))
                    for name, listener in listeners.items()
                ]
                for name, listener in listeners.items():
                    await listener.is_up.wait()
                    log.receive(ListeningStarted(name, str(listener.address)))
                self.address, self.grpc_address = (
                    str(listeners[name].address) if name in listeners else "" for name in wanted
                )
                self.supervisor.is_starting = False
                yield tasks
                for task in running:
                    task.cancel()
        except ExceptionGroup as group:
            if self.supervisor.is_starting and (words := words_of(group)):
                raise UsageError(words) from group
            raise

    def _rest(self, reports: ClientReports, address: Address) -> AbstractAsyncContextManager[Address]:
        observer, polls = self.log.receive, self.clients.polls
        rest = RestJson(self.store, self.catalogue, observer, polls, lambda: self.settings.max_hold_s)
        return listening(make_application(rest, client_status_paths(reports)), address, grace_s=GRACE_S)

    def _grpc(self, reports: ClientReports, address: Address) -> AbstractAsyncContextManager[Address]:
        status = client_status_handlers(reports)
        services = GrpcServices(self.streams, self.log.receive, self.clients, TtlMode(self.settings.ttl), extra=status)
        return listening_grpc(services, address, self.supervisor, grace_s=GRACE_S)


class Listener:
    """A server at an address: a component, which is bound again where it was bound when it has to start again.

    Attributes:
        address: where it is bound, once `is_up` is set.
    """

    def __init__(self, address: Address, listen: Callable[[Address], AbstractAsyncContextManager[Address]]) -> None:
        self.address = address
        self.is_up = asyncio.Event()
        self._listen = listen

    async def serve(self) -> Never:
        """Listen until cancelled, or until nobody can connect any more, which is a UsageError."""
        async with self._listen(self.address) as self.address:
            self.is_up.set()
            await until_lost(self.address)
            raise UsageError(f"{self.address}: the socket was removed or replaced")


@asynccontextmanager
async def rooms(directory: Path, settings: Settings, log: Log, check_of: CheckOf) -> AsyncIterator[House]:
    """Build the house, and serve REST and gRPC as long as the context lasts."""
    house = House(directory, settings, log, check_of)
    async with house.serving():
        yield house


def delays_to(log: Log) -> Callable[[str, float], None]:
    """Return what receives what the start waits for, and the seconds so far."""
    return lambda what, elapsed_s: log.receive(StartDelayed(what, elapsed_s))


def noting_first_write(observer: Observer, done: asyncio.Event) -> Observer:
    """Return an observer that passes all events on, and sets `done` with the first snapshot that is written."""

    def receive(event: Event) -> None:
        if isinstance(event, FilesWritten):
            done.set()
        observer(event)

    return receive


async def _keep_ready_file(ready_file: ReadyFile, house: House, mirror: Path | None, mirrored: asyncio.Event) -> Never:
    """Write the ready file when the first snapshot is served, and again when other components are degraded."""
    await house.store.newer_than(0)
    await mirrored.wait()
    while True:
        degraded = house.supervisor.degraded
        await asyncio.to_thread(ready_file.write, _readiness(house, mirror))
        if degraded == house.supervisor.degraded:
            await house.supervisor.changed()


def _readiness(house: House, mirror: Path | None) -> dict[str, PlainValue]:
    snapshot = house.store.current
    versions: dict[str, PlainValue] = {
        BY_TYPE_URL[type_url].short_name: snapshot.authored.get(type_url, version)
        for type_url, version in (snapshot.versions.items() if snapshot else ())
        if snapshot and type_url not in snapshot.withheld
    }
    return {
        "http": house.address or None,
        "grpc": house.grpc_address or None,
        "mirror": None if mirror is None else str(mirror),
        "versions": versions,
        "degraded": [*house.supervisor.degraded],
        "pid": os.getpid(),
    }


async def until_stopped(work: Coroutine[object, object, None], log: Log, ready_file: ReadyFile | None = None) -> None:
    """Run `work` until it ends, or until SIGTERM or Ctrl-C, which end it with grace.

    A second signal ends the process at once, and so does an end that takes too long.

    Raises:
        KeyboardInterrupt: it was Ctrl-C; SIGTERM is no error.
    """
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []

    def leave(status: int) -> None:
        if ready_file is not None:
            ready_file.remove()
        leave_at_once(status)

    def receive(number: signal.Signals) -> None:
        received.append(number)
        if len(received) > 1:
            leave(SIGNALLED + number)
        log.receive(StopRequested(number.name if number is signal.SIGTERM else "Ctrl-C"))
        if ready_file is not None:
            ready_file.remove()
        # In a thread: the event loop may be what takes too long.
        limit = threading.Timer(STOP_WITHIN_S, leave, (0 if number is signal.SIGTERM else SIGNALLED + number,))
        limit.daemon = True
        limit.start()
        working.cancel()

    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(work)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, receive, number)
    if signal.SIGINT in received:
        raise KeyboardInterrupt


def refuse_loop(directory: Path, out: Path) -> None:
    """Refuse a mirror inside of the tree: fsxds would read what it writes.

    Raises:
        UsageError: it is.
    """
    tree, mirror = directory.resolve(), out.resolve()
    if tree == mirror or tree in mirror.parents:
        raise UsageError(f"{out}: the mirror is inside of the tree {directory}; choose a directory outside of it")


def mirror_options(settings: Settings) -> MirrorOptions:
    """Return how files are mirrored."""
    return MirrorOptions(
        form=settings.mirror_format,
        rewrite_config_sources=settings.mirror_config_sources,
        durable=settings.mirror_durable,
        pause_s=settings.mirror_pause_s,
        rescan_s=settings.rescan_s,
    )


def _watch_options(settings: Settings) -> WatchOptions:
    return WatchOptions(
        mode=cast("WatchMode", settings.watch),  # its form has these words alone
        settle_s=settings.settle_s,
        settle_cap_s=settings.settle_cap_s,
        writer_patience_s=settings.writer_patience_s,
        rescan_s=settings.rescan_s,
        poll_s=settings.poll_s,
    )
