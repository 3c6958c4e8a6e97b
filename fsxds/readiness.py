"""Whether fsxds is ready: what a start waits for, reported at growing intervals, and the file that says it serves."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fsxds.errors import UsageError
from fsxds.values import PlainValue

# After three seconds, so that nobody has to guess.
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

    def remove(self) -> None:
        """Remove the file, unless another process has written it since."""
        try:
            content = json.loads(self._path.read_bytes())
            if content["pid"] == os.getpid():
                self._path.unlink()
        except (OSError, ValueError, KeyError, TypeError):
            # It was removed, or is somebody else's.
            return
