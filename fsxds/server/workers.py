"""Processes that share a server's addresses: the first loads, publishes and decides, all serve (`--workers`).

They are a fleet (see `fleet/`) on one machine. Its store is in the first one's memory, at a unix socket; with `--fleet`
it is the fleet's etcd.

| rule | reason |
| --- | --- |
| The kernel gives each connection to one of them. | Nothing is between client and process. |
| A worker that ended, or whose event loop hangs, is started again. | Its clients reconnect to others. |
| A worker listens when it has the publication. | Others serve until then. |
| Workers end with the first one. | There would be no publisher, and the next server could not have the addresses. |

Rules: when a worker is started again, and which settings it does not get.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from typing import Never, Protocol

from fsxds.fleet.memory_engine import MemoryKeyValues, served
from fsxds.model.errors import FsxdsError, UsageError
from fsxds.observe.log import Log, open_log
from fsxds.runtime.supervisor import STOP_WITHIN_S
from fsxds.server.app import Application
from fsxds.server.event_loop import run
from fsxds.server.parse_worker import follow_parent, without_main
from fsxds.settings.forms import OFF, FleetRule, TcpAddress, UnixAddress, parse_address
from fsxds.settings.options import Settings
from fsxds.settings.reading import SettingsReader
from fsxds.transports.sockets import bind_tcp, close_all, explained

# Between signs of life; a worker silent at so many looks hangs.
CHECK_INTERVAL_S = 1.0
MOST_MISSED_HEARTBEATS = 20

# Another process may take a chosen port.
MOST_TRIES = 20


class WorkerEndedError(FsxdsError):
    """A worker ended unexpectedly, or hung."""


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """A worker's number (2 for the first), addresses and store."""

    number: int
    http: str
    grpc: str
    fleet: FleetRule

    def settings_of(self, settings: Settings) -> Settings:
        """Derive settings without sources, state and files."""
        authorities = {name: replace(each, upstream=()) for name, each in (settings.authorities or {}).items()}
        return replace(
            settings,
            workers=1,
            http=self.http,
            grpc=self.grpc,
            admin=admin_of(settings.admin, self.number),
            reuse_port=True,
            fleet=self.fleet,
            authorities=authorities or None,
            upstream=None,
            state=None,
            mirror=None,
            mirrors=None,
            ready_file=None,
            verify_with=None,
        )


def admin_of(written: str, number: int) -> str:
    """Return a worker's admin address: a port above, or a socket beside, the server's."""
    if written == OFF:
        return OFF
    address = parse_address(written)
    if isinstance(address, UnixAddress):
        return str(UnixAddress(address.path.with_name(f"{address.path.name}.{number}")))
    return str(replace(address, port=address.port + number - 1 if address.port else 0))


class ServeAsWorker(Protocol):
    """Serves as a worker."""

    def __call__(self, reader: SettingsReader, log: Log, beside: WorkerHeartbeat) -> Coroutine[object, object, None]:
        """Serve until SIGTERM."""


@asynccontextmanager
async def shared(
    settings: Settings, reader: SettingsReader, serve: ServeAsWorker
) -> AsyncIterator[tuple[Settings, Workers]]:
    """Hold a server's addresses and its fleet's store, within the context.

    Yields:
        The first process's settings, read by `reader` from now on, and unstarted workers.

    Raises:
        UsageError: an address is taken or unshareable, or a setting needs a single process.
    """
    async with AsyncExitStack() as stack:
        is_second = settings.reuse_port
        http = await _shared_address(stack, "http", settings.http, is_taken_over=is_second)
        grpc = await _shared_address(stack, "grpc", settings.grpc, is_taken_over=is_second)
        fleet = settings.fleet
        if fleet is None:
            directory = stack.enter_context(TemporaryDirectory(prefix="fsxds-", ignore_cleanup_errors=True))
            fleet = FleetRule((f"unix:{directory}/fleet",))
            await stack.enter_async_context(served(MemoryKeyValues(), fleet.targets[0]))
        places = [WorkerPlace(number, http, grpc, fleet) for number in range(2, settings.workers + 1)]
        workers = Workers(places, serve, reader, is_second=is_second)

        def of_first(read: Settings) -> Settings:
            return replace(read, http=http, grpc=grpc, reuse_port=True, fleet=fleet)

        reader.change(of_first)
        yield of_first(settings), workers


async def _shared_address(stack: AsyncExitStack, option: str, written: str, *, is_taken_over: bool) -> str:
    """The port is reserved until `stack` ends."""
    if written == OFF:
        return OFF
    address = parse_address(written)
    if isinstance(address, UnixAddress):
        raise UsageError(f"--{option}: {address} cannot be shared by --workers; use HOST:PORT")
    with explained(address, option):
        for _ in range(MOST_TRIES):
            port = address.port if is_taken_over and address.port else await _free_port(address)
            try:
                # Not listening, so the kernel gives them no connection.
                kept = await bind_tcp(replace(address, port=port), is_shared=True)
            except OSError:
                if address.port:
                    raise
                continue
            stack.callback(close_all, kept)
            return str(replace(address, port=port))
    raise UsageError(f"--{option}: there is no free port; use another one than 0")


async def _free_port(address: TcpAddress) -> int:
    bound = await bind_tcp(address)
    port: int = bound[0].getsockname()[1]
    close_all(bound)
    return port


class Workers:
    """A server's workers, each a component.

    `reader` reads the server's settings; handled SIGHUPs are forwarded. `is_second`: until this one takes over, another
    server listens.
    """

    def __init__(
        self,
        places: list[WorkerPlace],
        serve: ServeAsWorker,
        reader: SettingsReader,
        *,
        is_second: bool,
    ) -> None:
        self.is_second = is_second
        self._places = places
        self._read = reader.read
        self._serve = serve
        self._reader = reader

    def start(self, application: Application, tasks: asyncio.TaskGroup) -> None:
        """Start all workers."""
        for place in self._places:
            application.start(tasks, f"worker {place.number}", partial(self._keep, place))

    async def _keep(self, place: WorkerPlace) -> Never:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(place, self._read, self._serve, theirs, gc.get_threshold()))
        with without_main():
            process.start()
        theirs.close()
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(process.sentinel, ended.set)
        try:
            await self._watch(process.pid or 0, ours, ended)
            process.join()
            status = process.exitcode or 0
            raise WorkerEndedError(f"it ended with status {status if status >= 0 else signal.Signals(-status).name}")
        finally:
            process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_WITHIN_S):
                    await ended.wait()
            asyncio.get_running_loop().remove_reader(process.sentinel)
            process.kill()
            process.join()
            process.close()
            ours.close()

    async def _watch(self, pid: int, heartbeats: Connection, ended: asyncio.Event) -> None:
        """Forwards SIGHUPs. WorkerEndedError: it hung, and was killed."""
        answered, silent, has_begun = self._reader.count, 0, False
        while not ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_INTERVAL_S):
                    await ended.wait()
            # Before a worker handles this signal, it would end it.
            if has_begun and answered != self._reader.count:
                answered = self._reader.count
                os.kill(pid, signal.SIGHUP)
            # A start takes any time.
            silent += has_begun
            with suppress(EOFError, OSError):
                while heartbeats.poll():
                    heartbeats.recv_bytes()
                    silent, has_begun = 0, True
            if silent >= MOST_MISSED_HEARTBEATS:
                os.kill(pid, signal.SIGKILL)
                raise WorkerEndedError(f"it did nothing for {silent * CHECK_INTERVAL_S:g} s, and was killed")


class WorkerHeartbeat:
    """A worker's reports that its event loop runs."""

    is_second = True

    def __init__(self, heartbeats: Connection) -> None:
        self._heartbeats = heartbeats

    def start(self, application: Application, tasks: asyncio.TaskGroup) -> None:
        """Begin to report."""
        application.start(tasks, "signs of life", self._keep_alive)

    async def _keep_alive(self) -> Never:
        while True:
            # Without a reader, a pipe is full after hours.
            with suppress(OSError):
                self._heartbeats.send_bytes(b".")
            await asyncio.sleep(CHECK_INTERVAL_S)


def _work(
    place: WorkerPlace,
    read: Callable[[], Settings],
    serve: ServeAsWorker,
    heartbeats: Connection,
    collect_after: tuple[int, int, int],
) -> None:
    gc.set_threshold(*collect_after)
    # The first process ends its workers at Ctrl-C.
    os.setsid()
    follow_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    reader = SettingsReader("serve", read)
    reader.change(place.settings_of)
    try:
        settings = reader.read()
        with open_log(settings.log_format, settings.log_level, place.number) as log:
            run(serve(reader, log, WorkerHeartbeat(heartbeats)))
    except FsxdsError as error:
        sys.stderr.write(f"worker {place.number}: {error}\n")
        sys.exit(2)
