"""Introduce the rooms to one another and run them in one task group."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Never, cast

from fsxds.addresses import Address, parse_address
from fsxds.api.printing import Printer
from fsxds.clients import FORGOTTEN_AFTER_S, Clients
from fsxds.errors import UsageError
from fsxds.formats import require_libyaml
from fsxds.grpc_serving import listening_grpc
from fsxds.loading import acceptance, find_catalogue, load_once, parse_rules, scanner_of
from fsxds.operations.log import Log
from fsxds.operations.mirror_log import MirrorLog
from fsxds.option_forms import OFF
from fsxds.parsing import Parsing
from fsxds.protocol.time_to_live import TtlMode
from fsxds.reload import keep_current
from fsxds.resource_types import BY_TYPE_URL
from fsxds.serving import listening, raise_open_files_limit
from fsxds.settings import Settings
from fsxds.snapshots.load import Loaded
from fsxds.sources.watch import WatchMode, WatchOptions, watch
from fsxds.store import SnapshotStore
from fsxds.transports.ads_config_sources import AdsConfigSources, keep_rewritten
from fsxds.transports.client_status import ClientReports
from fsxds.transports.client_status_grpc import client_status_handlers
from fsxds.transports.failures import Failures
from fsxds.transports.file_mirror import Mirror, MirrorObserver, MirrorOptions, MirrorReport, serve_mirror, write_once
from fsxds.transports.grpc_streams import make_services
from fsxds.transports.rest_json import REST, make_application
from fsxds.values import Snapshot

# SIGTERM is followed by SIGKILL after ten seconds where containers run; a drain takes milliseconds.
GRACE_S = 1.0


def mirror_once(directory: Path, out: Path, settings: Settings) -> tuple[Loaded, MirrorReport]:
    """Load a tree and write it as mirrored files, once."""
    refuse_loop(directory, out)
    catalogue = find_catalogue(settings)
    loaded = load_once(directory, settings, catalogue)
    return loaded, write_once(loaded.snapshot, Mirror(out, catalogue, mirror_options(settings)))


async def serve(directory: Path, settings: Settings, log: Log) -> None:
    """Serve a tree until SIGTERM.

    Raises:
        UsageError: the address is taken, or the mirror belongs to another process; alone or in an exception group.
    """
    await until_sigterm(_serve(directory, settings, log), log)


async def _serve(directory: Path, settings: Settings, log: Log) -> None:
    if settings.mirror is not None:
        refuse_loop(directory, settings.mirror)
    if settings.ready_file is not None:
        settings.ready_file.unlink(missing_ok=True)
    async with rooms(directory, settings, log) as house, asyncio.TaskGroup() as tasks:
        mirrored = asyncio.Event()
        if settings.mirror is not None:
            mirror = Mirror(settings.mirror, house.catalogue, mirror_options(settings))
            tasks.create_task(keep_mirror(house.store, mirror, FirstWrite(MirrorLog(log.write), mirrored)))
        else:
            mirrored.set()
        if settings.ready_file is not None:
            tasks.create_task(_announce(settings.ready_file, house, settings.mirror, mirrored))
        await house.run()


class House:
    """The rooms that every lasting command needs, once they are introduced to one another.

    Attributes:
        store: what is served.
        streams: what is served on streams: the same, or with its config sources made ADS.
        clients: who is connected, and what each holds.
        address: where REST listens.
        grpc_address: where gRPC listens, empty where it is off.
    """

    def __init__(self, directory: Path, settings: Settings, log: Log) -> None:
        self.store = SnapshotStore()
        self.streams = SnapshotStore() if settings.ads_config_sources else self.store
        self.clients = Clients(FORGOTTEN_AFTER_S + settings.max_hold_s)
        self.address = ""
        self.grpc_address = ""
        self._directory = directory
        self._settings = settings
        self._log = log
        require_libyaml()
        self.catalogue = find_catalogue(settings)
        log.api_found(self.catalogue.description)

    async def run(self) -> None:
        """Watch, load, and tell, until cancelled; REST and gRPC are served beside it."""
        settings, log = self._settings, self._log
        rules = parse_rules(settings, self.catalogue)
        scanner = scanner_of(self._directory, settings)
        with Parsing(rules, settings.parse_apart_above_bytes) as parsing:
            async with aclosing(watch(scanner, _watch_options(settings), log)) as trees, asyncio.TaskGroup() as tasks:
                tasks.create_task(log.report_changes())
                tasks.create_task(keep_current(trees, self.store, parsing, acceptance(settings), log))
                if self.streams is not self.store:
                    sources = AdsConfigSources(self.catalogue)
                    tasks.create_task(keep_rewritten(self.store, self.streams, sources))

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[None]:
        """Serve REST and gRPC as long as the context lasts."""
        settings, log = self._settings, self._log
        reports = ClientReports(self.clients, self.catalogue)
        rest = make_application(self.store, Printer(self.catalogue), log, reports, max_hold_s=settings.max_hold_s)
        failures = rest[REST].failures
        async with AsyncExitStack() as servers:
            bound = await servers.enter_async_context(listening(rest, parse_address(settings.http), grace_s=GRACE_S))
            self.address = str(bound)
            log.listening("REST", self.address)
            if settings.grpc != OFF:
                self.grpc_address = str(await servers.enter_async_context(self._grpc(reports, failures)))
                log.listening("gRPC", self.grpc_address)
            async with asyncio.TaskGroup() as tasks:
                failing = tasks.create_task(failures.wait())
                yield
                failing.cancel()

    def _grpc(self, reports: ClientReports, failures: Failures) -> AbstractAsyncContextManager[Address]:
        status = client_status_handlers(reports, failures)
        services = make_services(self.streams, self._log, self.clients, TtlMode(self._settings.ttl), extra=status)
        return listening_grpc(services, parse_address(self._settings.grpc), grace_s=GRACE_S)


@asynccontextmanager
async def rooms(directory: Path, settings: Settings, log: Log) -> AsyncIterator[House]:
    """Build the house, and serve REST and gRPC as long as the context lasts."""
    house = House(directory, settings, log)
    raise_open_files_limit()
    async with house.listen():
        yield house


async def keep_mirror(store: SnapshotStore, mirror: Mirror, observer: MirrorObserver) -> Never:
    """Keep mirrored files in step with the store, and give the directory back in the end."""
    with mirror:
        await serve_mirror(store, mirror, observer)


class FirstWrite:
    """Passes on what the mirror tells, and sets `done` with its first snapshot."""

    def __init__(self, observer: MirrorObserver, done: asyncio.Event) -> None:
        self._observer = observer
        self._done = done

    def files_written(self, report: MirrorReport) -> None:
        """A snapshot is in the directory."""
        self._done.set()
        self._observer.files_written(report)

    def mirror_failed(self, error: OSError, retry_s: float) -> None:
        """The directory could not be written."""
        self._observer.mirror_failed(error, retry_s)


async def _announce(path: Path, house: House, mirror: Path | None, mirrored: asyncio.Event) -> None:
    """Write the ready file when the first snapshot is served."""
    snapshot = await house.store.newer_than(0)
    await mirrored.wait()
    await asyncio.to_thread(_write_ready_file, path, house, mirror, snapshot)


def _write_ready_file(path: Path, house: House, mirror: Path | None, snapshot: Snapshot) -> None:
    versions = {
        BY_TYPE_URL[type_url].short_name: snapshot.authored.get(type_url, version)
        for type_url, version in snapshot.versions.items()
        if type_url not in snapshot.withheld
    }
    content = {
        "http": house.address,
        "grpc": house.grpc_address or None,
        "mirror": None if mirror is None else str(mirror),
        "versions": versions,
        "pid": os.getpid(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content) + "\n")
    temporary.replace(path)


async def until_sigterm(work: Coroutine[object, object, None], log: Log) -> None:
    """Run `work` until it ends, or until SIGTERM, which ends it with grace and is no error."""
    loop = asyncio.get_running_loop()
    terminated = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, terminated.set)
    try:
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(work)
            waiting = tasks.create_task(terminated.wait())
            waiting.add_done_callback(lambda _: working.cancel())
            working.add_done_callback(lambda _: waiting.cancel())
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
    if terminated.is_set():
        log.stopping("SIGTERM")


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
