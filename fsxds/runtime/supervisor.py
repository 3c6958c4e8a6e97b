"""Keeps components running: a failed one is restarted, without affecting others."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import PurePosixPath
from types import TracebackType
from typing import NoReturn, Self

from fsxds.events.event import Observer
from fsxds.events.process_events import (
    MOST_ATTEMPTS,
    ComponentDegraded,
    ComponentRecovered,
    InternalError,
    StopRequested,
    fault_of,
)
from fsxds.model.errors import FsxdsError
from fsxds.model.values import BackOff, Problem
from fsxds.runtime.channels import Latest

# Where containers run, SIGTERM is followed by SIGKILL after ten seconds.
STOP_WITHIN_S = 8.0
# The exit status in shells: 128 and the signal's number.
SIGNALLED = 128


class Supervisor:
    """Runs components, and tracks the degraded ones. Touched from the event loop only.

    Attributes:
        failures: the number by component.
        degraded: failed and not recovered, in the order of failures; then idle ones.
        components: all started ones.
        is_starting: while true, an error for users (`FsxdsError`) ends the process; afterwards only a vital component's.
    """

    def __init__(self, observer: Observer, back_off: BackOff | None = None) -> None:
        self.failures: Counter[str] = Counter()
        self.degraded: Latest[tuple[str, ...]] = Latest(())
        self.components: set[str] = set()
        self.is_starting = True
        self._failed: tuple[str, ...] = ()
        self._idle: tuple[str, ...] = ()
        self._observer = observer
        self._back_off = back_off or BackOff()

    async def run(self, component: str, work: Callable[[], Awaitable[object]], *, is_vital: bool = False) -> None:
        """Run a component until it returns or is cancelled, restarting it after each failure.

        `work` runs from whatever state it left behind. `is_vital`: its errors for users end the process at any time.

        Raises:
            FsxdsError: while the process is starting, or of a vital component; alone or in an exception group.
        """
        self.components.add(component)
        failures = 0
        while True:
            started_s = asyncio.get_running_loop().time()
            failure = await self._run_once(component, work, is_vital=is_vital)
            if failure is None:
                self._recover(component)
                return
            if asyncio.get_running_loop().time() - started_s >= self._back_off.well_after_s:
                failures = 0
            failures += 1
            pause_s = self._back_off.pause_s(failures)
            self._degrade(component, failure, pause_s)
            await asyncio.sleep(pause_s)

    async def _run_once(
        self, component: str, work: Callable[[], Awaitable[object]], *, is_vital: bool
    ) -> BaseException | None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        well = loop.call_later(self._back_off.well_after_s, self._recover, component)
        try:
            await work()
        except asyncio.CancelledError as error:
            # Cancelled itself; or it awaited a cancelled task, which is a failure like others.
            if task is None or task.cancelling():
                raise
            self._observer(InternalError(component, error))
            return error
        # The boundary of every component: a failure ends no other component, and not the process.
        except Exception as error:
            if not error_message(error):
                self._observer(InternalError(component, error))
            elif self.is_starting or is_vital:
                raise
            return error
        finally:
            well.cancel()
        return None

    def status(self) -> str:
        """Return the status as text."""
        return f"serving; degraded: {', '.join(self.degraded.current)}" if self.degraded.current else "serving"

    def _degrade(self, component: str, failure: BaseException, pause_s: float) -> None:
        self.failures[component] += 1
        reason = error_message(failure) or type(failure).__name__
        self._observer(ComponentDegraded(component, reason, pause_s))
        if component not in self._failed:
            self._failed = (*self._failed, component)
            self._update()

    def _recover(self, component: str) -> None:
        if component in self._failed:
            self._observer(ComponentRecovered(component))
            self._failed = _without(self._failed, component)
            self._update()

    def note(self, component: str, *, is_idle: bool) -> None:
        """Record whether a component lacks its purpose."""
        if is_idle != (component in self._idle):
            self._idle = (*self._idle, component) if is_idle else _without(self._idle, component)
            self._update()

    def _update(self) -> None:
        degraded = (*self._failed, *(name for name in self._idle if name not in self._failed))
        if degraded != self.degraded.current:
            self.degraded.replace(degraded)


def _without(components: tuple[str, ...], component: str) -> tuple[str, ...]:
    return tuple(name for name in components if name != component)


async def until_stopped(
    work: Coroutine[object, object, None], observer: Observer, at_stop: Callable[[], object] = lambda: None
) -> None:
    """Run `work` until it ends, or until SIGTERM or Ctrl-C, which cancel it.

    A second signal, or too long an end, ends the process at once. `at_stop` is called at the first signal, and before that.

    Raises:
        KeyboardInterrupt: it was Ctrl-C; SIGTERM is no error.
    """
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []

    def leave(status: int) -> None:
        at_stop()
        leave_at_once(status)

    def receive(number: signal.Signals) -> None:
        received.append(number)
        if len(received) > 1:
            leave(SIGNALLED + number)
        observer(StopRequested(number.name if number is signal.SIGTERM else "Ctrl-C"))
        at_stop()
        # In a thread, because the event loop may be blocked.
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


class AbandonedThreads(ThreadPoolExecutor):
    """Does not delay the process's end: running work's results are discarded."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002, the signature
        """Cancel queued work; leave running work."""
        super().shutdown(wait=False, cancel_futures=True)


def leave_at_once(status: int) -> NoReturn:
    """End without waiting for threads, as Python would."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def error_message(error: BaseException) -> str:
    """Return the text of an FsxdsError or a group; else ""."""
    if isinstance(error, BaseExceptionGroup):
        words = [error_message(each) for each in error.exceptions]
        return "; ".join(words) if all(words) else ""
    return str(error) if isinstance(error, FsxdsError) else ""


class Attempts:
    """Counts failures in a row on one input; each attempt is made in its context.

    >>> attempts = Attempts()
    >>> with attempts.on("snapshot 7"):
    ...     pass
    >>> attempts.are_over("snapshot 7")
    False
    """

    def __init__(self, set_aside: Callable[[BaseException], object] | None = None, most: int = MOST_ATTEMPTS) -> None:
        """`set_aside` gets the last error of `most` failures on an input."""
        self._set_aside = set_aside
        self._most = most
        self._input: object = None
        self._failures = 0

    def on(self, subject: object) -> Self:
        """Set the next input, compared by `==`."""
        if subject != self._input:
            self._input, self._failures = subject, 0
        return self

    def are_over(self, subject: object) -> bool:
        """Whether an input is not attempted again."""
        return self._failures >= self._most and subject == self._input

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._failures = 0
        elif isinstance(error, Exception):
            self._failures += 1
            if self._failures == self._most and self._set_aside is not None:
                self._set_aside(error)


def internal_problem(path: PurePosixPath, error: Exception) -> Problem:
    """Report a file on which fsxds fails."""
    fact = f"fsxds itself fails on this file, with {fault_of(error)}"
    remedy = (
        "write it in another way; and send this line, the traceback if the log has an `internal_error` and, if you may, "
        "the file to the authors of fsxds"
    )
    return Problem.of_file(path, "internal-error", fact, remedy)
