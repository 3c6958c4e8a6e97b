"""Report what a start waits for: after three seconds, and then at growing intervals, so that nobody has to guess."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST_REPORTS_S = (3.0, 9.0, 27.0)
LATER_EVERY_S = 30.0

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
    """Report from a thread that work goes on which keeps this one, as long as the context lasts."""
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
