"""A server for tests, in a thread."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Never, Self, TypeAlias, TypedDict, Unpack

from fsxds.events.event import Event, Level
from fsxds.events.file_events import TreeDisappeared
from fsxds.events.rollout_events import HoldsChanged
from fsxds.lint.linter import linter_of
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL
from fsxds.model.resources import Snapshot
from fsxds.model.values import WHOLE_TREE, Problem, SourceTree
from fsxds.observe.log import Log, LogOutput
from fsxds.server.app import Application
from fsxds.server.loading_rules import scan_once
from fsxds.settings.forms import OFF
from fsxds.settings.options import Settings
from fsxds.settings.reading import read_settings
from fsxds.settings.upstream_rules import UPSTREAMS
from fsxds.snapshots.load import Loaded
from fsxds.snapshots.loaded_views import LoadedViews

Tree: TypeAlias = str | PathLike[str] | Mapping[str, str | bytes]
"""A directory, or the contents of files by path."""

PATIENCE_S = 10.0

ANY_PORT = "127.0.0.1:0"

# Starting takes a second if the API has to be read from an executable first.
START_PATIENCE_S = 60.0

# A test writes whole files and waits for each, so there are no bursts of changes.
SETTLE_S = 0.005
# If the loaded tree is not that on the disk, the disk is read again: it may have changed meanwhile.
_LOOK_AGAIN_S = 0.5
# The maximum delay after a missed change.
_ASK_AGAIN_S = 0.05


class ServeOptions(TypedDict, total=False):
    """The options of a test server.

    Attributes:
        settings: as for `fsxds serve`; None for its defaults, with the `FSXDS_...` variables, and a shorter pause after
            a change.
        http: of REST: any free port, or `unix:PATH`.
        grpc: the same for gRPC, or `off`.
        rollout: serve changes in steps, which wait for clients.
        upstream: xDS servers, such as `other.grpc`, asked when the context begins; `wait_for` waits for their resources.
    """

    settings: Settings | None
    http: str
    grpc: str
    rollout: bool
    upstream: str | Sequence[str]


def serve(tree: Tree | None = None, **options: Unpack[ServeOptions]) -> Server:
    """Create a server, which runs within its context: `with` or `async with`.

        >>> from fsxds.testing import serve
        >>> with serve("config/xds") as server:
        ...     server.names("cds")
        ('backend', 'secure-web')

    Args:
        tree: a directory, or contents by path, written to a temporary directory; None if there is an upstream.
        options: see `ServeOptions`.
    """
    settings = options.get("settings") or replace(read_settings({}), settle_s=SETTLE_S)
    if upstream := options.get("upstream"):
        addresses = [upstream] if isinstance(upstream, str) else [*upstream]
        settings = replace(settings, upstream=UPSTREAMS.read(addresses))
    http, grpc = options.get("http", ANY_PORT), options.get("grpc", ANY_PORT)
    rollout = options.get("rollout", False)
    return Server(tree, replace(settings, http=http, grpc=grpc, admin=OFF, rollout=rollout))


class Server:
    """A running fsxds, in a thread with its event loop. Created by `serve`; a context manager.

    Its methods block, so from a coroutine call them by `asyncio.to_thread`:

        >>> import asyncio
        >>> from fsxds.testing import serve
        >>> async def test() -> tuple[str, ...]:
        ...     async with serve({"cds.yaml": "resources: []"}) as server:
        ...         await asyncio.to_thread(server.write, "cds.yaml", "[{name: web, connect_timeout: 1s}]")
        ...         return server.names("cds")
        >>> asyncio.run(test())
        ('web',)

    Attributes:
        directory: the served tree; meaningless without one.
        address: of REST: `127.0.0.1:41234`, or `unix:` and a path.
        grpc: of gRPC, likewise; empty if it is off.
    """

    def __init__(self, tree: Tree | None, settings: Settings) -> None:
        """Store the arguments; nothing runs yet."""
        self.directory = Path()
        self.address = ""
        self.grpc = ""
        self._tree = tree
        self._settings = settings
        self._is_ours = isinstance(tree, Mapping)
        self._ending = ExitStack()
        self._background: Background | None = None

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            directory = None if self._tree is None else self._directory(starting, self._tree)
            self.directory = directory or Path()
            background = Background(directory, self._settings)
            self.address, self.grpc = background.start()
            self._background = background
            starting.callback(background.stop)
            self._ending = starting.pop_all()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._ending.close)

    @property
    def http(self) -> str:
        """The base URL of REST, such as `http://127.0.0.1:41234`, or the Unix socket."""
        return self.address if self.address.startswith("unix:") else f"http://{self.address}"

    @property
    def port(self) -> int:
        """The port of REST."""
        return int(self.address.rpartition(":")[2])

    @property
    def loaded(self) -> Loaded:
        """The last loaded tree; with views, see `views`.

        Raises:
            KeyError: no node sees the whole tree.
        """
        views = self.views
        loaded, served = views.by_layers[WHOLE_TREE], views.served[WHOLE_TREE]
        return loaded if served is loaded.snapshot else replace(loaded, snapshot=served)

    @property
    def views(self) -> LoadedViews:
        """The views used so far, or the whole tree."""
        background = self._running()
        with background.changed:
            if background.views is None:
                raise RuntimeError("the first tree is loaded before the server is handed out")
            return background.views

    @property
    def snapshot(self) -> Snapshot:
        """The served snapshot, held resources in their previous version."""
        loaded, background = self.views.served[WHOLE_TREE], self._running()
        with background.changed:
            return background.read_served() or loaded

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The tree's problems, including holds."""
        views, background = self.views, self._running()
        with background.changed:
            return tuple(sorted({*views.problems, *background.held}))

    @property
    def log(self) -> tuple[str, ...]:
        """The log's lines, without times."""
        background = self._running()
        with background.changed:
            return tuple(background.log)

    @property
    def versions(self) -> dict[str, str]:
        """The versions for clients, by short names such as `cds`.

        Types in no file, or never good, are missing.
        """
        snapshot = self.snapshot
        return {
            BY_TYPE_URL[type_url].short_name: snapshot.authored.get(type_url, version)
            for type_url, version in snapshot.versions.items()
            if type_url not in snapshot.withheld | snapshot.undeclared
        }

    def names(self, short_name: str) -> tuple[str, ...]:
        """Return a type's sorted names; KeyError for an unknown type."""
        return tuple(self.snapshot.resources(BY_SHORT_NAME[short_name].type_url))

    def write(self, path: str, content: str | bytes) -> None:
        """Write a file atomically; wait until it is loaded, good or bad.

        Only for a tree given as contents: change a given directory yourself, and call `settle`.

        Raises:
            UsageError: the tree is a directory, or the path outside.
            TimeoutError: the server did not load it.
        """
        self._put(path, content)
        self.settle()

    def remove(self, path: str) -> None:
        """Remove a file; wait until the tree is loaded without it.

        The last file's resources stay: a lost tree removes nothing. Raises as `write` does.
        """
        self._own_path(path).unlink()
        self.settle()

    def settle(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until all files are loaded. Raises as `wait_for` does."""
        deadline_s = time.monotonic() + patience_s
        while time.monotonic() < deadline_s:
            tree = scan_once(self.directory, self._settings)
            rest_s = min(_LOOK_AGAIN_S, max(0.0, deadline_s - time.monotonic()))
            if self._wait(partial(self._has_loaded, tree), rest_s):
                return
        raise TimeoutError(f"the server did not load {self.directory} within {patience_s:g} s")

    def wait_for(self, holds: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        """Wait for a condition, such as `lambda: "web" in server.names("cds")`.

        It is checked after each served change.

        Raises:
            TimeoutError: not within `patience_s` seconds.
        """
        deadline_s = time.monotonic() + patience_s
        # Without the lock: a condition that calls the server would wait for it, and the server for the lock.
        while not holds():
            rest_s = deadline_s - time.monotonic()
            if rest_s <= 0:
                raise TimeoutError(f"the served content did not meet the condition within {patience_s:g} s")
            background = self._running()
            with background.changed:
                background.changed.wait(min(_ASK_AGAIN_S, rest_s))
                if background.error is not None:
                    raise RuntimeError("the server ended") from background.error

    def wait_log(self, words: str, patience_s: float = PATIENCE_S) -> str:
        """Wait for a log line with `words`, such as `NACK`; return the first. Raises as `wait_for` does."""
        if not self._wait(lambda: any(words in line for line in self.log), patience_s):
            raise TimeoutError(f"the log had no line with {words!r} within {patience_s:g} s")
        return next(line for line in self.log if words in line)

    def _wait(self, holds: Callable[[], bool], patience_s: float) -> bool:
        background = self._running()
        with background.changed:
            background.changed.wait_for(lambda: background.error is not None or holds(), patience_s)
            if background.error is not None:
                raise RuntimeError("the server ended") from background.error
            return holds()

    def _has_loaded(self, tree: SourceTree) -> bool:
        if not tree.files and self._running().is_lost:
            return True
        views = self.views
        if views.memory is not None:
            return views.memory.read.files == tree.files
        records = self.loaded.records.values()
        found = {record.parsed.path: record.parsed.digest for record in records if record.parsed}
        return found == {file.path: file.digest for file in tree.files}

    def _running(self) -> Background:
        if self._background is None:
            raise RuntimeError("the server does not run yet; write `with serve(…) as server`")
        return self._background

    def _directory(self, stack: ExitStack, tree: Tree) -> Path:
        if not isinstance(tree, Mapping):
            directory = Path(tree)
            if not directory.is_dir():
                raise UsageError(f"{directory}: there is no such directory; give one, or the contents of files")
            return directory
        self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fsxds-testing-")))
        for path, content in tree.items():
            self._put(path, content)
        return self.directory

    def _put(self, path: str, content: str | bytes) -> None:
        target = self._own_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        # A name that is never read, so that no partial file is read.
        temporary = target.with_name(f".{target.name}.new")
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(target)

    def _own_path(self, path: str) -> Path:
        if not self._is_ours:
            raise UsageError(f"{self.directory}: the directory is yours; change the file yourself, then call settle()")
        inside = PurePosixPath(path)
        if inside.is_absolute() or ".." in inside.parts or not inside.parts:
            raise UsageError(f"{path!r}: is no path within the tree")
        return self.directory / inside


class Background:
    """A server in a thread. `start` it once, and `stop` it in the end.

    Read its attributes under `changed`, which is notified of changes.

    Attributes:
        views: the last loaded tree; None before.
        is_lost: the directory or all its files were removed.
        read_served: None if no node sees the whole tree.
        error: ended the server before `stop`.
    """

    def __init__(self, directory: Path | None, settings: Settings) -> None:
        self.changed = threading.Condition()
        self.views: LoadedViews | None = None
        self.is_lost = False
        self.held: tuple[Problem, ...] = ()
        self.read_served: Callable[[], Snapshot | None] = lambda: None
        self.log: list[str] = []
        self.error: BaseException | None = None
        self._directory = directory
        self._settings = settings
        self._addresses: Future[tuple[str, str]] = Future()
        self._end: Callable[[], object] = lambda: None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fsxds server")

    def start(self) -> tuple[str, str]:
        """Return the addresses of REST and gRPC once a snapshot is served; raises start errors."""
        work = self._thread.submit(lambda: asyncio.run(self._serve()))
        work.add_done_callback(self._ended)
        futures.wait({self._addresses}, START_PATIENCE_S)
        if not self._addresses.done():
            raise TimeoutError(f"the server did not start within {START_PATIENCE_S:g} s")
        # If it did not start, its thread is at its end.
        self._thread.shutdown(wait=self._addresses.exception() is not None)
        return self._addresses.result()

    def stop(self) -> None:
        """Wait for the end; raises earlier errors."""
        # RuntimeError: the loop is closed, because the server ended by itself.
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
        application = Application(self._directory, self._settings, _KeptLog(self), linter_of)
        async with application.serving(), asyncio.TaskGroup() as tasks:
            self.read_served = lambda: application.publisher.whole.store.current
            running = tasks.create_task(application.run())
            targets = None
            while self.views is None:
                targets = await application.publisher.published.other_than(targets)
                self._take(application)
            taking = tasks.create_task(self._take_what_is_published(application))
            self._end = lambda: loop.call_soon_threadsafe(ending.set)
            addresses = application.addresses
            self._addresses.set_result((addresses.get("REST", ""), addresses.get("gRPC", "")))
            await ending.wait()
            running.cancel()
            taking.cancel()

    async def _take_what_is_published(self, application: Application) -> Never:
        published = application.publisher.published
        while True:
            targets = published.current
            self._take(application)
            await published.other_than(targets)

    def _take(self, application: Application) -> None:
        snapshots, views = application.publisher.published.current, application.reload.views
        # A tree that was loaded after the publication is published soon.
        if (
            snapshots is not None
            and views is not None
            and all(snapshots.get(layers) is served for layers, served in views.served.items())
        ):
            with self.changed:
                self.views, self.is_lost = views, False
                self.changed.notify_all()


class _KeptLog(Log):
    def __init__(self, background: Background) -> None:
        super().__init__(LogOutput(lambda line, _: line.text, self._keep, Level.INFO))
        self._background = background

    def receive(self, event: Event) -> None:
        super().receive(event)
        if isinstance(event, HoldsChanged):
            with self._background.changed:
                self._background.held = event.problems
                self._background.changed.notify_all()
        if isinstance(event, TreeDisappeared):
            with self._background.changed:
                self._background.is_lost = True
                self._background.changed.notify_all()

    def _keep(self, line: str) -> None:
        with self._background.changed:
            self._background.log.append(line)
            self._background.changed.notify_all()
