"""Run what a command asks for: a coroutine to its end, or a long computation with a sign of life."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console

from fsxds.events.phrases import escape
from fsxds.model.errors import FsxdsError
from fsxds.server.readiness import reported_wait

# New objects between two looks of the garbage collector, instead of 700. Waking five thousand held polls makes some ten
# thousand; looking at all that is held, again and again, took two thirds of the time, and found next to nothing.
COLLECT_AFTER = 50_000

# Shorter work needs no sign of life.
SPINNER_DELAY_S = 1.0


def run(work: Coroutine[object, object, None]) -> None:
    """Run a coroutine until it ends, on asyncio's own event loop.

    Not on uvloop, which is faster. Where some hundred clients connected and went away within a second, a server on it
    stopped accepting connections for good: seen with 0.22.1 and 0.23.0 when uvloop itself accepted (with the latter, the
    listening socket was not in its epoll set any more). One way to get there is known: when something raises between a
    connection and its acceptance, such as the factory of protocols, uvloop takes the listening socket out of the set and
    never puts it back. What raised is not known. Since `fsxds.transports.rest.http_server` accepts by itself, 80,000 departures with either
    version, over TCP and unix sockets, with gRPC on, did no harm; but of the older code too only one of nine runs showed
    a poll that waited for over 30 s, so this proves little. And where uvloop starts a process it forks, of which gRPC
    complains.

    Raises:
        FsxdsError: with the texts of all errors of fsxds that its tasks ended with, where there are no others.
    """
    # Which other commands do without.
    from fsxds.runtime.supervisor import AbandonedThreads
    from fsxds.transports.rest.http_server import keep_large_buffers_apart

    gc.set_threshold(COLLECT_AFTER)
    keep_large_buffers_apart()
    try:
        with asyncio.Runner() as runner:
            runner.get_loop().set_default_executor(AbandonedThreads())
            runner.run(work)
    except BaseExceptionGroup as group:
        ours, others = group.split(FsxdsError)
        if ours is None or others is not None:
            raise
        raise FsxdsError("\n".join(_texts(ours))) from group


def _texts(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _texts(member)
    else:
        yield str(error)


@contextmanager
def spinner(text: str, *, in_lines: bool = False) -> Iterator[None]:
    """Show on a terminal that work goes on, when it takes longer than a second.

    Elsewhere nothing, or with `in_lines` a line on stderr after three seconds, and then at growing intervals.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        with reported_wait(text, _print_wait) if in_lines else nullcontext():
            yield
        return
    status = console.status(text)
    timer = threading.Timer(SPINNER_DELAY_S, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def _print_wait(what: str, elapsed_s: float) -> None:
    print(escape(f"{what}: {elapsed_s:g} s so far"), file=sys.stderr, flush=True)


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how much is done, when it takes longer than a second; nothing elsewhere.

    Yields:
        What receives how much is done, and of how much, as far as is known.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _done, _total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    started_s = time.monotonic()
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task(text, total=None, visible=False)

        def show(done: int, total: int) -> None:
            is_long = time.monotonic() - started_s > SPINNER_DELAY_S
            progress.update(task, completed=done, total=total, visible=is_long)

        yield show
