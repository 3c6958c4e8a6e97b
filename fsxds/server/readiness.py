"""Readiness, reports of waits at the start, the ready file, and exposed secrets.

A server that would send secrets in clear over the network does not start.

Rules: which upstreams a start waits for; whether a server starts that would send secrets in clear; when clients are
served: `/readyz`, the ready file, gRPC health.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never, Self

from fsxds.api.secrets import mask_reason
from fsxds.events.event import Observer
from fsxds.events.process_events import ReadinessChanged
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Snapshot
from fsxds.model.values import PlainValue
from fsxds.publishing.node_channels import NodeChannels
from fsxds.publishing.publisher import Publisher
from fsxds.runtime.access import SECRET
from fsxds.runtime.channels import Latest, SnapshotStore
from fsxds.runtime.row_source import UpstreamStatus
from fsxds.runtime.views import ViewLoading

# Early, so that users need not guess.
FIRST_REPORTS_S = (3.0, 9.0, 27.0)
LATER_EVERY_S = 30.0

# Reported as `waiting` if they take long.
NOT_LOADED = "the configuration is not loaded yet"
NOT_MIRRORED = "the first mirrored files are not written yet"
NOT_ANSWERED = "upstreams did not answer yet"

Report = Callable[[str, float], object]
"""Receives the awaited condition, and the seconds so far."""


def report_times() -> Iterator[float]:
    """Yield when to report a wait, in seconds: 3, 9, 27, 57, 87, ...."""
    yield from FIRST_REPORTS_S
    time_s = FIRST_REPORTS_S[-1]
    while True:
        time_s += LATER_EVERY_S
        yield time_s


async def report_waits(waits_for: Callable[[], str], report: Report) -> None:
    """Report a start's waits, until `waits_for` returns ""."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    for time_s in report_times():
        await asyncio.sleep(started_s + time_s - loop.time())
        what = waits_for()
        if not what:
            return
        report(what, time_s)


@contextmanager
def reported_wait(what: str, report: Report) -> Iterator[None]:
    """Report from a thread that this one is busy."""
    done = threading.Event()

    def keep_reporting() -> None:
        started_s = time.monotonic()
        for time_s in report_times():
            if done.wait(started_s + time_s - time.monotonic()):
                return
            report(what, time_s)

    thread = threading.Thread(target=keep_reporting, daemon=True, name="waits")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def has_no_resources(snapshot: Snapshot) -> bool:
    """Whether no file was ever good."""
    return len(snapshot.withheld) == len(BY_TYPE_URL)


@dataclass(frozen=True, slots=True)
class FirstAnswers:
    """Upstreams' first answers, which a start awaits.

    Attributes:
        silent: subscribed, without an answer to this process or an earlier one.
        is_over: the start no longer waits.
        has_unasked: an upstream, or a server of the fleet, answers when clients ask.
    """

    silent: tuple[UpstreamStatus, ...] = ()
    count: int = 0
    is_over: bool = True
    has_unasked: bool = False

    @classmethod
    def of(cls, statuses: Collection[UpstreamStatus], *, is_over: bool, asks_others: bool = False) -> Self:
        """Derive this from upstreams' states; without any, `asks_others`: servers of a fleet ask theirs."""
        has_unasked = asks_others and not statuses
        unanswered = [each for each in statuses if each.last_update_s is None]
        silent = tuple(each for each in unanswered if each.state != "connected" or each.pending)
        return cls(silent, len(statuses), is_over, has_unasked=has_unasked or len(silent) < len(unanswered))

    def __str__(self) -> str:
        named = [f"{each.name} ({each.trouble})" if each.trouble else each.name for each in self.silent]
        return mask_reason(f"the first answer of {'upstream' if len(named) == 1 else 'upstreams'} {', '.join(named)}")


NO_UPSTREAMS = FirstAnswers()


def unready_reason(
    views: Collection[Snapshot] | None,
    *,
    is_mirrored: bool,
    lost: Collection[str],
    answers: FirstAnswers = NO_UPSTREAMS,
) -> str:
    """Return why clients should use another server, without details, or "".

    Only degraded `lost` listeners count: otherwise the served snapshot stays. `views` is None before the first load.
    """
    if views is None:
        return NOT_LOADED
    silent = f"{len(answers.silent)} of {answers.count}"
    if answers.silent and not answers.is_over:
        return f"{silent} {NOT_ANSWERED}"
    without_resources = 0 if answers.has_unasked else sum(map(has_no_resources, views))
    if without_resources and answers.count and not answers.is_over:
        # Upstreams' resources are not loaded yet.
        return NOT_LOADED
    if without_resources:
        cause = (
            f"{silent} upstreams have sent no resource yet" if answers.silent else "no file there is without a mistake"
        )
        return f"{without_resources} of {len(views)} views have no content; {cause}"
    if not is_mirrored:
        return NOT_MIRRORED
    return f"{', '.join(lost)}: degraded" if lost else ""


class ReadyFile:
    """The ready file of this process. Blocking."""

    def __init__(self, path: Path) -> None:
        """Remove a killed process's file. Raises UsageError."""
        self._path = path
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; choose another --ready-file") from error

    def write(self, content: dict[str, PlainValue]) -> None:
        """Write the file atomically. Raises UsageError."""
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(content) + "\n")
            temporary.replace(self._path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise UsageError(f"{self._path}: cannot be written: {error.strerror}") from error

    def rewrite(self, content: dict[str, PlainValue]) -> None:
        """Write again, unless another process has."""
        if self._is_own():
            self.write(content)

    def remove(self) -> None:
        """Remove it, unless another process has written it."""
        if self._is_own():
            with suppress(OSError):
                self._path.unlink()

    def _is_own(self) -> bool:
        try:
            return bool(json.loads(self._path.read_bytes())["pid"] == os.getpid())
        except (OSError, ValueError, KeyError, TypeError):
            # Removed, or another process's.
            return False


class Readiness:
    """Knows whether clients are served; `keep_current` is a task.

    `find` returns why not, or ""; `reason` is its last result.
    """

    def __init__(self, find: Callable[[], str], degraded: Latest[tuple[str, ...]], observer: Observer) -> None:
        self.reason = Latest(NOT_LOADED)
        self.state: Latest[tuple[str, tuple[str, ...]]] = Latest((self.reason.current, ()))
        self._find = find
        self._degraded = degraded
        self._observer = observer
        # The ready file's content may have changed.
        self._changed = asyncio.Event()

    def look(self) -> None:
        """Check for a change."""
        state = reason, _ = self._find(), self._degraded.current
        if reason != self.reason.current:
            self.reason.replace(reason)
            if not reason.endswith((NOT_LOADED, NOT_MIRRORED, NOT_ANSWERED)):
                self._observer(ReadinessChanged(reason))
        if state != self.state.current:
            self.state.replace(state)
            self._changed.set()

    async def keep_current(
        self, published: Latest[Any], mirrored: Iterable[asyncio.Event], answered_within_s: float = 0.0
    ) -> None:
        """Look again after loads, first mirrored files, and changes of degraded components.

        A last time after `answered_within_s`.
        """
        async with asyncio.TaskGroup() as tasks:
            for source in (published, self._degraded):
                tasks.create_task(self._follow(source))
            for event in mirrored:
                tasks.create_task(self._look_after(event))
            await asyncio.sleep(answered_within_s)
            self.look()

    async def _follow(self, source: Latest[Any]) -> Never:
        while True:
            self.look()
            await source.replaced()

    async def _look_after(self, event: asyncio.Event) -> None:
        await event.wait()
        self.look()

    async def keep_file(
        self, file: ReadyFile, store: SnapshotStore, content: Callable[[tuple[str, ...]], dict[str, PlainValue]]
    ) -> Never:
        """Keep the ready file while clients are served from `store`."""
        store.listeners[file] = self._changed.set
        written: dict[str, PlainValue] | None = None
        while True:
            self._changed.clear()
            reason, degraded = self.state.current
            latest = None if reason else content(degraded)
            if latest is None:
                await asyncio.to_thread(file.remove)
            elif latest != written:
                await asyncio.to_thread(file.write if written is None else file.rewrite, latest)
            written = latest
            await self._changed.wait()


async def reject_exposed_secrets(
    exposed: Mapping[str, str], publisher: Publisher, channels: NodeChannels, loading: ViewLoading
) -> None:
    """Raise UsageError for a first tree with a secret, given exposed addresses.

    Loads all views; those without clients are dropped again.
    """
    await publisher.until_received()
    wanted = {layers for _, layers in channels.views if not publisher.is_loaded(layers)}
    for layers in wanted:
        loading.want(layers)
    while not all(map(publisher.is_loaded, wanted)):
        await publisher.published.replaced()
    snapshots = (publisher.published.current or {}).values()
    secrets = (secret for snapshot in snapshots for secret in snapshot.resources(SECRET).values())
    # Upstreams' secrets, without a line, come and go: a restart would fail because of an update. Access rules
    # (`runtime/access.py`) keep later secrets from other machines.
    origins = [secret.origin for secret in secrets if secret.origin.line]
    for layers in wanted - {key.layers for key in publisher.rollouts}:
        loading.drop(layers)
    if origins:
        where = " and ".join(f"{name} at {address}" for name, address in exposed.items())
        fact = f"{origins[0]}: is a secret, and other machines can reach {where} without TLS"
        remedy = "give --tls-cert and --tls-key, a loopback address or unix:PATH, or allow it with --insecure-secrets"
        raise UsageError(f"{fact}; {remedy}")
