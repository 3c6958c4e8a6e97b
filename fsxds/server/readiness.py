"""Whether fsxds is ready: the rule, what a start waits for, reported at growing intervals, and the file that says it serves.

A server that would send secrets in clear over the network does not start.
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
from fsxds.publishing.node_channels import NodeChannels, ViewLoading
from fsxds.publishing.publisher import Publisher
from fsxds.runtime.access import SECRET
from fsxds.runtime.row_source import UpstreamStatus
from fsxds.runtime.store import Latest, SnapshotStore

# After three seconds, so that nobody has to guess.
FIRST_REPORTS_S = (3.0, 9.0, 27.0)
LATER_EVERY_S = 30.0

# What every start waits for, and reports as `waiting` where it takes long.
NOT_LOADED = "the configuration is not loaded yet"
NOT_MIRRORED = "the first mirrored files are not written yet"
NOT_ANSWERED = "upstreams did not answer yet"

Report = Callable[[str, float], object]
"""Receives what is waited for, and the seconds so far."""


def report_times() -> Iterator[float]:
    """Yield when to report a wait, in seconds since its start: 3, 9, 27, 57, 87, …."""
    yield from FIRST_REPORTS_S
    time_s = FIRST_REPORTS_S[-1]
    while True:
        time_s += LATER_EVERY_S
        yield time_s


async def report_waits(waits_for: Callable[[], str], report: Report) -> None:
    """Report what a start waits for until that is nothing.

    Args:
        waits_for: returns what it waits for now; empty when the start is over.
        report: receives that.
    """
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
    """Report from a thread that this one is busy, as long as the context lasts."""
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


def is_barren(snapshot: Snapshot) -> bool:
    """Whether nothing of a snapshot was ever good, so that clients get nothing of it."""
    return len(snapshot.withheld) == len(BY_TYPE_URL)


@dataclass(frozen=True, slots=True)
class FirstAnswers:
    """What a start awaits of upstreams.

    Attributes:
        silent: those that never sent anything, to this process or an earlier one, though they are asked for something.
        count: how many upstreams there are.
        is_over: the start waits for them no longer; others may be served meanwhile.
        has_unasked: one is connected and asked for nothing yet: what it has is there for clients when they ask.
    """

    silent: tuple[UpstreamStatus, ...] = ()
    count: int = 0
    is_over: bool = True
    has_unasked: bool = False

    @classmethod
    def of(cls, statuses: Collection[UpstreamStatus], *, is_over: bool) -> Self:
        """Return what is awaited of upstreams that stand so."""
        unheard = [each for each in statuses if each.last_update_s is None]
        silent = tuple(each for each in unheard if each.state != "connected" or each.pending)
        return cls(silent, len(statuses), is_over, has_unasked=len(silent) < len(unheard))

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
    """Return why clients had better ask elsewhere, without a word of the configuration; empty where they are served.

    What is degraded and no listener makes no difference: what is served stays, and there may be no better elsewhere.

    Args:
        views: what is served of each view that is loaded; None before the first load.
        is_mirrored: each mirror has its first files.
        lost: the listeners for clients that are degraded.
        answers: what is awaited of upstreams.
    """
    if views is None:
        return NOT_LOADED
    silent = f"{len(answers.silent)} of {answers.count}"
    if answers.silent and not answers.is_over:
        return f"{silent} {NOT_ANSWERED}"
    barren = 0 if answers.has_unasked else sum(map(is_barren, views))
    if barren and answers.count and not answers.is_over:
        # What upstreams sent is not loaded yet.
        return NOT_LOADED
    if barren:
        cause = f"nothing is known of {silent} upstreams" if answers.silent else "no file there is without a mistake"
        return f"nothing can be served in {barren} of {len(views)} views; {cause}"
    if not is_mirrored:
        return NOT_MIRRORED
    return f"{', '.join(lost)}: degraded" if lost else ""


class ReadyFile:
    """The ready file of this process. Blocking: write it outside of the event loop."""

    def __init__(self, path: Path) -> None:
        """Remove the file of a previous process, which was killed.

        Raises:
            UsageError: it cannot be removed.
        """
        self._path = path
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; choose another --ready-file") from error

    def write(self, content: dict[str, PlainValue]) -> None:
        """Write the file atomically.

        Raises:
            UsageError: it cannot be written.
        """
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(content) + "\n")
            temporary.replace(self._path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise UsageError(f"{self._path}: cannot be written: {error.strerror}") from error

    def rewrite(self, content: dict[str, PlainValue]) -> None:
        """Write the file as `write` does, unless another process has written it since."""
        if self._is_own():
            self.write(content)

    def remove(self) -> None:
        """Remove the file, unless another process has written it since."""
        if self._is_own():
            with suppress(OSError):
                self._path.unlink()

    def _is_own(self) -> bool:
        try:
            return bool(json.loads(self._path.read_bytes())["pid"] == os.getpid())
        except (OSError, ValueError, KeyError, TypeError):
            # It was removed, or is somebody else's.
            return False


class Readiness:
    """Knows whether clients are served, and wakes those who follow it. `keep_current` is to be run.

    Args:
        find: returns why they are not; empty where they are.
        degraded: the components that are degraded.
        observer: receives when it changes.

    Attributes:
        reason: why they are not, as of the last look.
        state: that, and the components that are degraded.
    """

    def __init__(self, find: Callable[[], str], degraded: Latest[tuple[str, ...]], observer: Observer) -> None:
        self.reason = Latest(NOT_LOADED)
        self.state: Latest[tuple[str, tuple[str, ...]]] = Latest((self.reason.current, ()))
        self._find = find
        self._degraded = degraded
        self._observer = observer
        # The content of the ready file may be another one now.
        self._changed = asyncio.Event()

    def look(self) -> None:
        """See whether it has changed."""
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
        """Look again after each load, when what a mirror has is set, and when other components are degraded.

        Args:
            published: is replaced by each load.
            mirrored: are set when mirrors have their first files.
            answered_within_s: in so many seconds it looks once more: upstreams are awaited no longer then.
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
        """Keep the ready file as long as clients are served, with its content of now.

        Args:
            file: the file.
            store: its content may be another one whenever a snapshot is published in it.
            content: returns the content, given the components that are degraded.
        """
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
    """Check that the first tree has no secret. Views are loaded for this; those that nobody asks for are dropped again.

    Args:
        exposed: the addresses that other machines can read, by transport.
        publisher: has the tree.
        channels: knows all views.
        loading: loads them.

    Raises:
        UsageError: it has one.
    """
    await publisher.until_received()
    wanted = {layers for _, layers in channels.views if not publisher.is_loaded(layers)}
    for layers in wanted:
        loading.want(layers)
    while not all(map(publisher.is_loaded, wanted)):
        await publisher.published.replaced()
    snapshots = (publisher.published.current or {}).values()
    secrets = (secret for snapshot in snapshots for secret in snapshot.resources(SECRET).values())
    # Those of upstreams, which have no line, come and go: a restart would fail by what an upstream sent meanwhile. They are
    # kept from other machines as others that come later, by who asks (`runtime/access.py`).
    origins = [secret.origin for secret in secrets if secret.origin.line]
    for layers in wanted - {key.layers for key in publisher.rollouts}:
        loading.drop(layers)
    if origins:
        where = " and ".join(f"{name} at {address}" for name, address in exposed.items())
        fact = f"{origins[0]}: is a secret, and other machines can reach {where} without TLS"
        remedy = "give --tls-cert and --tls-key, a loopback address or unix:PATH, or allow it with --insecure-secrets"
        raise UsageError(f"{fact}; {remedy}")
