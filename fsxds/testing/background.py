"""The rooms of a server on an event loop of their own, in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from fsxds.app import rooms
from fsxds.operations.log import Log, Paper
from fsxds.operations.log_lines import Level
from fsxds.settings import Settings
from fsxds.snapshots.load import Loaded

# Starting takes a second where the API has to be read from an executable first.
START_PATIENCE_S = 60.0


class Background:
    """One server in a thread. `start` it once, and `stop` it in the end.

    What the thread tells is read under `changed`, which is notified of everything new.

    Attributes:
        loaded: the tree as it was loaded last; None before the first.
        is_lost: the directory is gone, or lost all its files: what was served last stays.
        log: the lines of the log.
        error: what ended the server though nobody asked for it.
    """

    def __init__(self, directory: Path, settings: Settings) -> None:
        self.changed = threading.Condition()
        self.loaded: Loaded | None = None
        self.is_lost = False
        self.log: list[str] = []
        self.error: BaseException | None = None
        self._directory = directory
        self._settings = settings
        self._addresses: Future[tuple[str, str]] = Future()
        self._end: Callable[[], object] = lambda: None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fsxds server")

    def start(self) -> tuple[str, str]:
        """Return the addresses of REST and gRPC when the first snapshot is served; raises what kept it from being served."""
        work = self._thread.submit(lambda: asyncio.run(self._serve()))
        work.add_done_callback(self._ended)
        futures.wait({self._addresses}, START_PATIENCE_S)
        if not self._addresses.done():
            raise TimeoutError(f"the server did not start within {START_PATIENCE_S:g} s")
        # Where it did not start, its thread is at its end.
        self._thread.shutdown(wait=self._addresses.exception() is not None)
        return self._addresses.result()

    def stop(self) -> None:
        """End the server, and wait until it is gone; raises what ended it before, where that was not asked for."""
        # RuntimeError: the loop is closed, for the server ended by itself.
        with suppress(RuntimeError):
            self._end()
        self._thread.shutdown()
        if self.error is not None:
            raise self.error

    def _ended(self, work: Future[None]) -> None:
        error = work.exception()
        if error is not None and not self._addresses.done():
            self._addresses.set_exception(error)
            return
        with self.changed:
            self.error = error
            self.changed.notify_all()

    async def _serve(self) -> None:
        loop, ending = asyncio.get_running_loop(), asyncio.Event()
        log = _HearingLog(self, loop)
        async with rooms(self._directory, self._settings, log) as house, asyncio.TaskGroup() as tasks:
            running = tasks.create_task(house.run())
            await house.store.newer_than(0)
            self._end = lambda: loop.call_soon_threadsafe(ending.set)
            self._addresses.set_result((house.address, house.grpc_address))
            await ending.wait()
            running.cancel()


class _HearingLog(Log):
    """A log that keeps its lines, and passes on what was loaded."""

    def __init__(self, background: Background, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(Paper(lambda line, _: line.text, self._keep, Level.INFO))
        self._background = background
        self._loop = loop

    def problems_found(self, loaded: Loaded) -> None:
        """Pass on a tree once it is served: it is published in the step of the loop in which this is called."""
        super().problems_found(loaded)
        self._loop.call_soon(self._pass_on, loaded)

    def tree_lost(self, error: Exception) -> None:
        """Pass on that there is no tree any more."""
        super().tree_lost(error)
        with self._background.changed:
            self._background.is_lost = True
            self._background.changed.notify_all()

    def _pass_on(self, loaded: Loaded) -> None:
        with self._background.changed:
            self._background.loaded, self._background.is_lost = loaded, False
            self._background.changed.notify_all()

    def _keep(self, line: str) -> None:
        with self._background.changed:
            self._background.log.append(line)
            self._background.changed.notify_all()
