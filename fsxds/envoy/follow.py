"""Keeps an Envoy running, and reports its status on each snapshot."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from asyncio.subprocess import PIPE, STDOUT, Process
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Never, Protocol

import aiohttp

from fsxds.envoy.admin import AdminPage, Listening, Statistics
from fsxds.envoy.envoy_bootstrap import BootstrapRequest, Section, files_of
from fsxds.envoy.envoy_log import LOG_ARGUMENTS, EnvoyLogLine, LoggedRejection, read_log_line, read_rejection
from fsxds.envoy.snapshot_status import AckSource, EnvoyNack, InEffect, InProgress, Nacked, nacks_of
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import ResourceType
from fsxds.model.resources import Snapshot
from fsxds.runtime.channels import SnapshotStore

# More frequent requests slow Envoy down; an Envoy with many statistics takes long to answer.
POLL_S = 0.05
SHARE_OF_TIME = 0.1
# How often to look when it is no longer urgent: a NACKed update may be fixed.
SLOW_POLL_S = 1.0
# After this time without an ACK or NACK, missing parts are reported; then at three times that age, and every half
# minute.
LONG_S = 3.0
LONGEST_REPORT_PAUSE_S = 30.0
# The sightings of a NACK before it is reported: two, so that its log line has arrived; and half a second of them after
# another NACK, whose update fsxds may have offered again just before.
SIGHTINGS = 2
SIGHTINGS_AFTER_NACK = 10


class EnvoyObserver(Protocol):
    """Receives the events of a local Envoy."""

    def envoy_started(self, admin: str, listeners: tuple[Listening, ...]) -> None:
        """Envoy runs, with these addresses for traffic."""

    def envoy_acked(self, types: tuple[ResourceType, ...], elapsed_s: float) -> None:
        """The snapshot is in effect; `types` have new resources."""

    def envoy_nacked(self, nack: EnvoyNack, elapsed_s: float) -> None:
        """Envoy NACKed a part."""

    def envoy_pending(self, waiting: InProgress, unready: tuple[str, ...], elapsed_s: float) -> None:
        """The snapshot is late; Envoy waits for `unready`."""

    def envoy_listens(self, listeners: tuple[Listening, ...]) -> None:
        """The addresses for traffic have changed."""

    def envoy_ended(self, ended: EndedEnvoy) -> None:
        """Envoy ended without being asked to."""


@dataclass(frozen=True, slots=True)
class EnvoyView:
    """Admin page, log and ACKs of one Envoy."""

    admin: AdminPage
    log: EnvoyLog
    acks: AckSource


class Follower:
    """Follows one Envoy from snapshot to snapshot."""

    def __init__(self, store: SnapshotStore, insight: EnvoyView, observer: EnvoyObserver) -> None:
        self._store, self._observer = store, observer
        self._admin, self._log, self._acks = insight.admin, insight.log, insight.acks
        # The state before the current snapshot.
        self._before: Statistics = {}
        self._log_length = 0
        self._listeners: tuple[Listening, ...] = ()
        self._is_live = False

    async def follow(self, snapshot: Snapshot, seen_s: float) -> None:
        """Report until a snapshot is in effect or superseded.

        `seen_s` is the event loop's clock when it was published.
        """
        was_nacked = self._acks.begin(snapshot)
        loop = asyncio.get_running_loop()
        trial = SnapshotProgress(snapshot, loop.time, since_s=seen_s, was_nacked=was_nacked)
        before, log_length = self._before, self._log_length
        while self._store.current is snapshot:
            length = self._log.length
            asked_s = trial.elapsed_s
            statistics = await self._admin.statistics()
            # An answer that crossed with a newer snapshot may already reflect that one.
            if statistics is not None and self._store.current is snapshot:
                self._before, self._log_length = statistics, length
                if await self._is_over(trial, before, log_length):
                    return
            await self._pause(trial, trial.elapsed_s - asked_s)

    async def _is_over(self, trial: SnapshotProgress, before: Statistics, log_length: int) -> bool:
        logged = read_rejections(self._log, log_length)
        status, reasons = self._acks.status(before, self._before, logged)
        for nack in trial.receive_status(status, reasons):
            self._observer.envoy_nacked(nack, trial.elapsed_s)
        if trial.is_reported:
            self._acks.note_reported()
        if not self._is_live and await self._admin.is_live():
            self._is_live = True
            self._listeners = await self._admin.listeners() or ()
            self._observer.envoy_started(self._admin.address, self._listeners)
        if (isinstance(status, InProgress) or not self._is_live) and trial.is_report_due():
            waiting = status if isinstance(status, InProgress) else InProgress((), 0)
            self._observer.envoy_pending(waiting, await self._admin.unready(), trial.elapsed_s)
        if not self._is_live:
            return False
        if isinstance(status, InEffect) and status.types:
            self._observer.envoy_acked(status.types, trial.elapsed_s)
        if not isinstance(status, InProgress):
            listeners = await self._admin.listeners()
            if listeners is not None and listeners != self._listeners:
                self._listeners = listeners
                self._observer.envoy_listens(listeners)
        return isinstance(status, InEffect)

    async def _pause(self, trial: SnapshotProgress, answer_took_s: float) -> None:
        pause_s = SLOW_POLL_S if trial.is_reported else max(POLL_S, answer_took_s / SHARE_OF_TIME)
        try:
            async with asyncio.timeout(pause_s):
                await self._store.newer_than(trial.snapshot.generation)
        except TimeoutError:
            return


class SnapshotProgress:
    """A snapshot's age and reports.

    `since_s` is the publication by `clock`, None for now; `was_nacked` is the previous snapshot's.
    """

    def __init__(
        self, snapshot: Snapshot, clock: Callable[[], float], *, since_s: float | None = None, was_nacked: bool = False
    ) -> None:
        self.snapshot = snapshot
        self.is_reported = False
        self._clock = clock
        self._started_s = clock() if since_s is None else since_s
        self._sightings_due = SIGHTINGS_AFTER_NACK if was_nacked else SIGHTINGS
        self._reported: set[EnvoyNack] = set()
        self._report_at_s = LONG_S

    @property
    def elapsed_s(self) -> float:
        """Seconds since the snapshot was seen."""
        return self._clock() - self._started_s

    def receive_status(
        self, status: InEffect | Nacked | InProgress, reasons: Sequence[LoggedRejection]
    ) -> tuple[EnvoyNack, ...]:
        """Return the NACKs to report now."""
        if not isinstance(status, Nacked):
            return ()
        self._sightings_due -= 1
        if self._sightings_due > 0:
            return ()
        nacks = nacks_of(status, reasons, self.snapshot)
        new = tuple(nack for nack in nacks if nack not in self._reported)
        self._reported.update(new)
        self.is_reported = True
        return new

    def is_report_due(self) -> bool:
        """Return whether to report a pending snapshot again."""
        elapsed_s = self.elapsed_s
        if elapsed_s < self._report_at_s:
            return False
        self._report_at_s = elapsed_s + min(2 * elapsed_s, LONGEST_REPORT_PAUSE_S)
        return True


def read_rejections(log: EnvoyLog, length: int) -> tuple[LoggedRejection, ...]:
    """Return rejections after the first `length` lines."""
    return tuple(found for line in log.since(length) if (found := read_rejection(line.message)))


FILE_POLL_S = 0.02
# Envoy answers in milliseconds; one that does not is stuck, which does not merit an endless wait.
ADMIN_TIMEOUT = aiohttp.ClientTimeout(total=10.0)


@dataclass(frozen=True, slots=True)
class EnvoyPlan:
    """How to start Envoy.

    Attributes:
        executable: the binary itself.
    """

    executable: Path
    bootstrap_for: Callable[[BootstrapRequest], Section]
    observe_log: Callable[[EnvoyLogLine], None]
    ack_source_of: Callable[[BootstrapRequest], AckSource]
    wanted_by: Callable[[Snapshot], Awaitable[BootstrapRequest]]


async def run_envoy(store: SnapshotStore, plan: EnvoyPlan, observer: EnvoyObserver) -> Never:
    """Keep an Envoy running, and report its status on each snapshot.

    It restarts for more subscriptions (the first listener of a tree, another runtime layer), and, after it ended by
    itself, with a new snapshot.

    Raises:
        UsageError: the executable cannot be started; in an ExceptionGroup.
    """
    snapshot = await store.newer_than(0)
    while True:
        wanted = await plan.wanted_by(snapshot)
        bootstrap = plan.bootstrap_for(wanted)
        files = files_of(bootstrap)
        while not _exist(files):  # noqa: ASYNC110, a file that appears has no event to wait for
            await asyncio.sleep(FILE_POLL_S)
        # The log is read until the very end: an Envoy whose pipe is full does not end.
        async with asyncio.TaskGroup() as tasks, running_envoy(plan.executable, bootstrap, plan.observe_log) as envoy:
            tasks.create_task(envoy.read_log())
            following = tasks.create_task(_follow_until_more_needed(store, envoy, wanted, plan, observer))
            status = await envoy.ended()
            following.cancel()
        if not envoy.was_stopped:
            observer.envoy_ended(EndedEnvoy(status, envoy.log.tail()))
        snapshot = await store.newer_than(snapshot.generation)


async def _follow_until_more_needed(
    store: SnapshotStore, envoy: LocalEnvoy, wanted: BootstrapRequest, plan: EnvoyPlan, observer: EnvoyObserver
) -> None:
    address = await envoy.admin_address()
    if address is None:
        return
    async with aiohttp.ClientSession(timeout=ADMIN_TIMEOUT) as session:
        insight = EnvoyView(AdminPage(session, address), envoy.log, plan.ack_source_of(wanted))
        follower = Follower(store, insight, observer)
        now_s = asyncio.get_running_loop().time
        snapshot: Snapshot = await store.newer_than(0)
        seen_s = now_s()
        while wanted.covers(await plan.wanted_by(snapshot)):
            await follower.follow(snapshot, seen_s)
            snapshot = await store.newer_than(snapshot.generation)
            seen_s = now_s()
    await envoy.stop()


# How long Envoy may take to end after SIGTERM; it needs some milliseconds.
END_PATIENCE_S = 2.0
# Rejections can print whole configurations; the rest of a longer line is dropped.
LONGEST_LINE_BYTES = 65536
LINES_KEPT = 2000
TAIL_LINES = 12
ADDRESS_POLL_S = 0.02
# How long an old listener keeps its connections after an edit; Envoy's ten minutes hide the edit from a browser.
DRAIN_S = 2


@dataclass(frozen=True, slots=True)
class EndedEnvoy:
    """The exit status (negative: the signal), and the log's end."""

    status: int
    tail: tuple[str, ...]


class EnvoyLog:
    """An Envoy's last log lines."""

    def __init__(self, observe: Callable[[EnvoyLogLine], None] | None = None) -> None:
        self._lines: deque[EnvoyLogLine] = deque(maxlen=LINES_KEPT)
        self._observe = observe
        self.length = 0

    def append(self, text: str) -> None:
        """Add a line."""
        line = read_log_line(text)
        self._lines.append(line)
        self.length += 1
        if self._observe is not None:
            self._observe(line)

    def since(self, length: int) -> tuple[EnvoyLogLine, ...]:
        """Return the kept lines after the first `length`."""
        newer = min(self.length - length, len(self._lines))
        return tuple(self._lines)[len(self._lines) - newer :]

    def tail(self) -> tuple[str, ...]:
        """Return the last few messages."""
        return tuple(line.message for line in tuple(self._lines)[-TAIL_LINES:])


class LocalEnvoy:
    """A running Envoy; made by `running_envoy`."""

    def __init__(self, process: Process, log: EnvoyLog, address_file: Path) -> None:
        self._process = process
        self._address_file = address_file
        self.log = log
        self.was_stopped = False

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def admin_address(self) -> str | None:
        """Wait for the admin page; None if Envoy ended."""
        while self._process.returncode is None:
            if address := (self._address_file.read_text().strip() if self._address_file.exists() else ""):
                return address
            await asyncio.sleep(ADDRESS_POLL_S)
        return None

    async def read_log(self) -> None:
        """Read the log until Envoy closes it."""
        rest = b""
        while self._process.stdout and (chunk := await self._process.stdout.read(LONGEST_LINE_BYTES)):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[:LONGEST_LINE_BYTES]
            for line in lines:
                self.log.append(line[:LONGEST_LINE_BYTES].decode(errors="replace"))

    async def ended(self) -> int:
        """Wait for the exit status."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after two seconds."""
        if self._process.returncode is not None:
            return
        self.was_stopped = True
        self._process.terminate()
        try:
            async with asyncio.timeout(END_PATIENCE_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        finally:
            # Reached in this state only when the wait was cancelled.
            if self._process.returncode is None:
                self._process.kill()


@asynccontextmanager
async def running_envoy(
    executable: Path, bootstrap: Section, observe: Callable[[EnvoyLogLine], None] | None = None
) -> AsyncIterator[LocalEnvoy]:
    """Run Envoy during the block. Unless the caller runs `read_log`, Envoy stops when the pipe is full.

    `executable` is no script: signals have to reach Envoy.

    Raises:
        UsageError: the executable cannot be started.
    """
    _check(executable)
    with TemporaryDirectory(prefix="fsxds-envoy-") as folder:
        config, address_file = _write(bootstrap, folder), Path(folder, "admin-address")
        try:
            process = await asyncio.create_subprocess_exec(
                *command_line(executable, config, address_file),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=PIPE,
                stderr=STDOUT,
                # Ctrl-C is for fsxds: it ends Envoy itself, after the last message about it.
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"{executable}: {error.strerror}; --envoy names the Envoy binary") from error
        envoy = LocalEnvoy(process, EnvoyLog(observe), address_file)
        try:
            yield envoy
        finally:
            await envoy.stop()


def _check(executable: Path) -> None:
    if not executable.is_file() or not os.access(executable, os.X_OK):
        raise UsageError(f"{executable}: is no executable file; --envoy names the Envoy binary")


def _write(bootstrap: Section, folder: str) -> Path:
    path = Path(folder, "bootstrap.json")
    path.write_text(json.dumps(bootstrap))
    return path


def command_line(executable: Path, config: Path, address_file: Path) -> tuple[str, ...]:
    """Return the command that starts Envoy."""
    # Envoy should not outlive fsxds even when that is killed. Python could only ask for that between fork and exec,
    # which is not safe beside threads; this program of util-linux, present on nearly every Linux, does it and becomes
    # Envoy.
    setpriv = shutil.which("setpriv")
    prefix = (setpriv, "--pdeathsig", "TERM") if setpriv else ()
    return (
        *prefix,
        str(executable),
        "--config-path",
        str(config),
        "--admin-address-path",
        str(address_file),
        *LOG_ARGUMENTS,
        # Without hot restart any number of Envoys can run, and none leaves shared memory behind.
        "--disable-hot-restart",
        "--concurrency",
        "1",
        "--drain-time-s",
        str(DRAIN_S),
    )


def _exist(files: tuple[PurePath, ...]) -> bool:
    return all(Path(file).exists() for file in files)
