"""Wire the components together, and run them in one task group.

A transport is a line in `Application.serving` if it listens, else in `run`; a source is a line in `Application.run`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Never, cast

from fsxds.errors import FsxdsError, UsageError
from fsxds.events import (
    ApiFound,
    FilesWritten,
    Level,
    ListeningStarted,
    SettingsRejected,
    SettingsReloaded,
    StartDelayed,
)
from fsxds.formats.libyaml import require_libyaml
from fsxds.observe.clients import FORGOTTEN_AFTER_S, Clients
from fsxds.observe.log import Log
from fsxds.parsing import Parsing
from fsxds.protocol.ttl import TtlMode
from fsxds.readiness import ReadyFile, report_waits, reported_wait
from fsxds.reload import Loader, LoadingRules, Reload, cache_of, find_catalogue, load_once, scanner_of
from fsxds.resource_types import BY_TYPE_URL
from fsxds.settings.forms import OFF, Address, parse_address
from fsxds.settings.options import Settings
from fsxds.settings.reading import SettingsChange, SettingsReader
from fsxds.snapshots.check_protocol import Check
from fsxds.snapshots.load import Loaded
from fsxds.source.targets import WatchMode, WatchOptions
from fsxds.source.watcher import Settled, watch
from fsxds.store import Latest, SnapshotStore
from fsxds.supervisor import Supervisor, until_stopped, words_of
from fsxds.transports.client_status.status_service import ClientReports, client_status_handlers, client_status_paths
from fsxds.transports.config_sources import AdsConfigSources, Rewriting
from fsxds.transports.grpc_streams.discovery import GrpcServices
from fsxds.transports.grpc_streams.grpc_server import listening_grpc
from fsxds.transports.grpc_streams.stream import StreamContext
from fsxds.transports.mirror.writer import Mirror, Mirroring, MirrorOptions, write_once
from fsxds.transports.rest.application import HeldPolls, RestJson, make_application
from fsxds.transports.rest.http_server import listening, raise_open_files_limit
from fsxds.transports.sockets import until_lost
from fsxds.values import PlainValue

# A drain takes milliseconds, or as long as clients take what was handed to them; less than `supervisor.STOP_WITHIN_S`.
GRACE_S = 6.5

# What changes the check of files, beside the content of the bootstrap.
_CHECK_OPTIONS = frozenset({"rules", "bootstrap", "static_clusters"})

CheckOf = Callable[[Settings], Check]
"""Makes what judges files as the settings ask for; UsageError where they cannot be followed."""


def mirror_once(directory: Path, out: Path, settings: Settings, check: Check) -> tuple[Loaded, FilesWritten]:
    """Load a tree and write it as mirrored files, once."""
    reject_loop(directory, out)
    catalogue = find_catalogue(settings)
    loaded = load_once(directory, settings, catalogue, check)
    return loaded, write_once(loaded.snapshot, Mirror(out, catalogue, mirror_options(settings)))


async def serve(directory: Path, settings: Settings, log: Log, check_of: CheckOf, reader: SettingsReader) -> None:
    """Serve a tree until SIGTERM or Ctrl-C; SIGHUP has `reader` read the settings again.

    Raises:
        UsageError: the address is taken, or the mirror belongs to another process; alone or in an exception group.
        KeyboardInterrupt: it was ended by Ctrl-C.
    """
    if settings.mirror is not None:
        reject_loop(directory, settings.mirror)
    elif settings.http == settings.grpc == OFF:
        raise UsageError("there is nobody to serve: REST and gRPC are off; give --http, --grpc or --mirror")
    ready_file = None if settings.ready_file is None else ReadyFile(settings.ready_file)

    async def work() -> None:
        await run(Application(directory, settings, log, check_of), reader, ready_file)

    if ready_file is None:
        await until_stopped(work(), log.receive)
        return
    try:
        await until_stopped(work(), log.receive, ready_file.remove)
    finally:
        ready_file.remove()


async def run(application: Application, reader: SettingsReader, ready_file: ReadyFile | None) -> None:
    """Run all that `fsxds serve` has, until cancelled: the listeners, the mirror and the ready file of the settings."""
    out = application.settings.mirror
    async with AsyncExitStack() as stack:
        mirroring = None
        if out is not None:
            mirroring = stack.enter_context(application.mirroring(out, mirror_options(application.settings)))
        server = await stack.enter_async_context(application.serving())
        tasks = server.tasks
        if mirroring is not None:
            application.start(tasks, "mirror", mirroring.keep_mirrored)
        waits_for = partial(application.waits_for, mirroring)
        application.start(tasks, "start-up", partial(report_waits, waits_for, application.report_wait))
        application.start(tasks, "settings", partial(application.keep_settings, reader))
        if ready_file is not None:
            keep_ready_file = partial(_keep_ready_file, ready_file, application, server, mirroring)
            application.start(tasks, "ready file", keep_ready_file)
        tasks.create_task(application.run())
        # Cancelled here, all of them end side by side.
        await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class WatchRules:
    """What a watcher has to be restarted for when it changes."""

    options: WatchOptions
    exclude: tuple[str, ...]
    max_file_size_bytes: int

    @classmethod
    def of(cls, settings: Settings) -> WatchRules:
        """Return what the settings say."""
        options = WatchOptions(
            mode=cast("WatchMode", settings.watch),  # its form has these words alone
            settle_s=settings.settle_s,
            settle_cap_s=settings.settle_cap_s,
            writer_patience_s=settings.writer_patience_s,
            rescan_s=settings.rescan_s,
            poll_s=settings.poll_s,
        )
        return cls(options, settings.exclude, settings.max_file_size_bytes)


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that listens.

    Attributes:
        addresses: where, by transport (`REST`, `gRPC`); those that are off are not in it.
        tasks: the task group of the listeners, for what is to end together with them.
    """

    addresses: Mapping[str, str]
    tasks: asyncio.TaskGroup


class Application:
    """The components that every lasting command needs, wired together: a directory is watched, loaded and served.

    Attributes:
        settings: those in use; what can change while running is replaced.
        catalogue: the message types of the Envoy in use.
        store: what is served.
        streams: what is served on streams: the same, or with its config sources made ADS.
        reload: loads trees, and knows what it loaded last.
        clients: who is connected, and what each holds.
        reports: answers requests for the status of clients.
        supervisor: runs all components.
    """

    def __init__(self, directory: Path, settings: Settings, log: Log, check_of: CheckOf) -> None:
        self.settings = settings
        self._directory = directory
        self._log = log
        self._check_of = check_of
        require_libyaml()
        with reported_wait("the API of Envoy to be read", self.report_wait):
            self.catalogue = find_catalogue(settings)
        log.receive(ApiFound(self.catalogue.description))
        self.store = SnapshotStore()
        self.streams = SnapshotStore() if settings.ads_config_sources else self.store
        self.reload = Reload(self.store, log.receive)
        self.clients = Clients(FORGOTTEN_AFTER_S + settings.max_hold_s)
        self.reports = ClientReports(self.clients, self.catalogue)
        self.supervisor = Supervisor(log.receive)
        self._trees: Latest[Settled | None] = Latest(None)
        self._loading = Latest(LoadingRules.of(settings, self.catalogue, check_of(settings)))
        self._watching = Latest(WatchRules.of(settings))
        self._mirrors: list[Mirror] = []

    def start(self, tasks: asyncio.TaskGroup, component: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run a component in a task of its own."""
        tasks.create_task(self.supervisor.run(component, work))

    async def run(self) -> None:
        """Watch, load, and report, until cancelled; `serving` and `mirroring` are run beside it."""
        async with asyncio.TaskGroup() as tasks:
            self.start(tasks, "log", self._log.report_changes)
            tasks.create_task(self._loading.run_with(self._load))
            watch_again = partial(self.supervisor.run, "watcher", self._watch)
            tasks.create_task(self._watching.run_with(lambda _: watch_again()))
            if self.streams is not self.store:
                sources = AdsConfigSources(self.catalogue)
                rewriting = Rewriting(self.store, self.streams, sources, self._log.receive)
                self.start(tasks, "ADS rewriting", rewriting.keep_rewritten)

    async def _load(self, rules: LoadingRules) -> None:
        """Load the newest tree by these rules, until cancelled; after other rules, each of its files is judged again."""
        limits = rules.limits
        if self.reload.loaded is not None:
            # There is no first load any more for which others would wait longer.
            limits = replace(limits, first_patience_s=limits.patience_s)
        cache = cache_of(self._directory, self.settings, rules.parsing, self._log.receive)
        with Parsing(rules.parsing, limits, self._load_again, cache) as parsing:
            self.reload.change_rules()
            self._load_again()
            loader = Loader(parsing, rules.acceptance)
            async with asyncio.TaskGroup() as tasks:
                self.start(tasks, "parser", parsing.keep_parsing)
                self.start(tasks, "parse cache", parsing.keep_written)
                self.start(tasks, "reload", partial(self.reload.keep_current, self._trees, loader))

    def _load_again(self) -> None:
        """Have the newest tree loaded again: more is known of its files, or other rules hold."""
        if self._trees.current is not None:
            self._trees.replace(replace(self._trees.current, detected_s=monotonic()))

    async def _watch(self) -> None:
        """Pass on each tree that settles and is another than the last one, even if another watcher passed that on."""
        scanner, options = scanner_of(self._directory, self.settings), self._watching.current.options
        last = None if self._trees.current is None else self._trees.current.tree
        async with aclosing(watch(scanner, options, self._log.receive, last=last)) as trees:
            async for settled in trees:
                self._trees.replace(settled)

    def report_wait(self, waits_for: str, elapsed_s: float) -> None:
        """Report what the start waits for."""
        self._log.receive(StartDelayed(waits_for, elapsed_s))

    @contextmanager
    def mirroring(self, out: Path, options: MirrorOptions) -> Iterator[Mirroring]:
        """Hold the lock on a directory of mirrored files, whose options follow the settings; `keep_mirrored` is to be run.

        Raises:
            UsageError: another process owns it.
        """
        mirror = Mirror(out, self.catalogue, options)
        self._mirrors.append(mirror)
        with mirror:
            yield Mirroring(self.store, mirror, self._log.receive)

    async def keep_settings(self, reader: SettingsReader) -> Never:
        """Apply what can change of the settings after each SIGHUP; if there is a mistake in them, the old ones stay."""
        while True:
            await reader.wanted()
            try:
                change, loading = await asyncio.to_thread(self._read_settings, reader)
            except FsxdsError as error:
                self._log.receive(SettingsRejected("; ".join(str(error).splitlines())))
            else:
                self._apply(change, loading)

    def _read_settings(self, reader: SettingsReader) -> tuple[SettingsChange, LoadingRules]:
        change = SettingsChange.between(self.settings, reader.read(), reader.command)
        return change, LoadingRules.of(change.settings, self.catalogue, self._check_of(change.settings))

    def _apply(self, change: SettingsChange, loading: LoadingRules) -> None:
        settings, changed = change.settings, change.changed
        before = self._loading.current
        if loading.parsing.check != before.parsing.check and _CHECK_OPTIONS.isdisjoint(changed):
            changed = (*changed, "bootstrap")  # another content
        self.settings = settings
        self._log.write_from(Level[settings.log_level.upper()])
        self.clients.polls.forgotten_after_s = FORGOTTEN_AFTER_S + settings.max_hold_s
        for mirror in self._mirrors:
            mirror.change(mirror_options(settings))
        if loading != before:
            self._loading.replace(loading)
        if (watching := WatchRules.of(settings)) != self._watching.current:
            self._watching.replace(watching)
        self._log.receive(SettingsReloaded(changed, change.needs_restart))

    def waits_for(self, mirroring: Mirroring | None = None) -> str:
        """Return what the first snapshot and its first mirrored files wait for; empty when they are there."""
        snapshot, settled, directory = self.store.current, self._trees.current, self._directory
        if settled is None:
            return f"{directory} to be read: it is not there, large, or written to all the time"
        count, size_bytes = len(settled.tree.files), sum(file.size_bytes for file in settled.tree.files)
        if snapshot is None:
            return f"{count} files of {size_bytes:,} bytes in all to be parsed"
        if len(snapshot.withheld) == len(BY_TYPE_URL):
            if not count:
                return f"the first file with configuration in {directory}"
            return f"the first file without a mistake: none of {count} in {directory} can be served"
        if mirroring is not None and not mirroring.has_written.is_set():
            return f"the first mirrored files in {mirroring.root}"
        return ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[RunningServer]:
        """Listen as long as the context lasts; in the end all listeners are drained side by side.

        Raises:
            UsageError: an address cannot be had.
        """
        raise_open_files_limit()
        listeners = {
            transport.name: Listener(parse_address(address), partial(transport.listen, self))
            for transport in TRANSPORTS
            if (address := transport.address_of(self.settings)) != OFF
        }
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self.supervisor.run(f"{name} listener", listener.serve))
                    for name, listener in listeners.items()
                ]
                for name, listener in listeners.items():
                    await listener.is_up.wait()
                    self._log.receive(ListeningStarted(name, str(listener.address)))
                self.supervisor.is_starting = False
                yield RunningServer({name: str(listener.address) for name, listener in listeners.items()}, tasks)
                for task in running:
                    task.cancel()
        except ExceptionGroup as group:
            if self.supervisor.is_starting and (words := words_of(group)):
                raise UsageError(words) from group
            raise

    def listen_rest(self, address: Address) -> AbstractAsyncContextManager[Address]:
        """Serve polls at an address."""
        held = HeldPolls(self.store, lambda: self.settings.max_hold_s)
        rest = RestJson(held, self.catalogue, self._log.receive, self.clients.polls)
        return listening(make_application(rest, client_status_paths(self.reports)), address, grace_s=GRACE_S)

    def listen_grpc(self, address: Address) -> AbstractAsyncContextManager[Address]:
        """Serve streams at an address."""
        shared = StreamContext(self.streams, self._log.receive, self.clients, TtlMode(self.settings.ttl))
        services = GrpcServices(shared, client_status_handlers(self.reports))
        return listening_grpc(services, address, self.supervisor, grace_s=GRACE_S)


@dataclass(frozen=True, slots=True)
class Transport:
    """One way to serve clients.

    Attributes:
        name: what users read of it.
        address_of: returns the setting of its address, or `off`.
        listen: serves what is current at an address while its context lasts, and yields the address that was bound.
    """

    name: str
    address_of: Callable[[Settings], str]
    listen: Callable[[Application, Address], AbstractAsyncContextManager[Address]]


TRANSPORTS: tuple[Transport, ...] = (
    Transport("REST", lambda settings: settings.http, Application.listen_rest),
    Transport("gRPC", lambda settings: settings.grpc, Application.listen_grpc),
)


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


async def _keep_ready_file(
    ready_file: ReadyFile, application: Application, server: RunningServer, mirroring: Mirroring | None
) -> Never:
    """Write the ready file when the first snapshot is served, and again whenever other components are degraded."""
    await application.store.newer_than(0)
    if mirroring is not None:
        await mirroring.has_written.wait()
    while True:
        degraded = application.supervisor.degraded.current
        await asyncio.to_thread(ready_file.write, _readiness(application, server, degraded))
        await application.supervisor.degraded.other_than(degraded)


def _readiness(application: Application, server: RunningServer, degraded: tuple[str, ...]) -> dict[str, PlainValue]:
    snapshot, mirror = application.store.current, application.settings.mirror
    versions: dict[str, PlainValue] = {
        BY_TYPE_URL[type_url].short_name: snapshot.authored.get(type_url, version)
        for type_url, version in (snapshot.versions.items() if snapshot else ())
        if snapshot and type_url not in snapshot.withheld
    }
    return {
        "http": server.addresses.get("REST"),
        "grpc": server.addresses.get("gRPC"),
        "mirror": None if mirror is None else str(mirror),
        "versions": versions,
        "degraded": [*degraded],
        "pid": os.getpid(),
    }


def reject_loop(directory: Path, out: Path) -> None:
    """Reject a mirror inside of the tree: fsxds would read what it writes.

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
