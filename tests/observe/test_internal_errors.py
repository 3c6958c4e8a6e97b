from __future__ import annotations

import asyncio
import gc
import json
import logging
import subprocess
import sys
import threading
import warnings

import pytest

from fsxds.events.event import Level, LogLine
from fsxds.observe.internal_errors import LibraryLogs, library_logs

LOGGERS = ("aiohttp.server", "aiohttp.web", "aiohttp.access", "asyncio", "grpc", "watchdog", "concurrent.futures")


def raised(error: Exception) -> Exception:
    """Raise an error and return it, so that it has a traceback."""
    try:
        raise error
    except type(error) as caught:
        return caught


@pytest.mark.parametrize("name", LOGGERS)
def test_a_fault_is_one_line(name: str) -> None:
    """With its traceback among the details; the same one is counted for a while, and another one is not held back."""
    lines: list[LogLine] = []
    with library_logs(lines.append):
        for error in (ValueError("a\nb"), ValueError("a\nc"), KeyError("x")):
            logging.getLogger(name).error("it\nfailed", exc_info=raised(error))

    first, other = lines
    assert (first.level, first.event, first.details["logger"]) == (Level.ERROR, "library_error", name)
    assert first.text.startswith(f"{name}: it: ValueError at ")
    assert "\n" not in first.text
    assert "ValueError: a" in str(first.details["traceback"])
    assert "KeyError" in other.text
    assert other.details["repeats"] == 1


def test_a_fault_is_told_again_after_a_while() -> None:
    """With the number of those between."""
    lines: list[LogLine] = []
    times = iter([0.0, 5.0, 11.0])
    handler = LibraryLogs(lines.append, lambda: next(times))
    for _ in range(3):
        handler.handle(logging.LogRecord("asyncio", logging.WARNING, "", 0, "slow", None, None))

    assert [line.details["repeats"] for line in lines] == [0, 1]
    assert lines[0].level is Level.WARNING


def test_the_departure_of_a_client_is_for_debugging() -> None:
    """Whichever library takes it for an error."""
    lines: list[LogLine] = []
    with library_logs(lines.append):
        logging.getLogger("asyncio").error("lost", exc_info=raised(BrokenPipeError()))
        logging.getLogger("asyncio").warning("socket.send() raised exception.")

    assert [(line.level, line.event) for line in lines] == [(Level.DEBUG, "library_message")] * 2


def test_what_python_itself_would_print_is_logged() -> None:
    """Warnings, errors of destructors, of threads, and of tasks that nobody waits for."""
    lines: list[LogLine] = []

    class Broken:
        def __del__(self) -> None:
            raise RuntimeError("in a destructor")

    def fail() -> None:
        raise RuntimeError("in a thread")

    async def forget() -> None:
        future = asyncio.get_running_loop().create_future()
        future.set_exception(RuntimeError("in a future"))

    with library_logs(lines.append), warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        Broken()
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        asyncio.run(forget())
        gc.collect()

    said = " ".join(line.text for line in lines)
    assert all(part in said for part in ("old", "in a destructor", "in a thread", "in a future"))
    assert all("\n" not in line.text for line in lines)


def test_the_process_writes_nothing_past_its_log() -> None:
    """Each line of stderr is JSON."""
    code = (
        "import logging, threading\n"
        "from fsxds.observe.log import open_log\n"
        "def fail(): raise RuntimeError('x')\n"
        "with open_log('json', 'info'):\n"
        "    threads = [threading.Thread(target=fail) for _ in range(4)]\n"
        "    [thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "    logging.getLogger('aiohttp.server').error('two\\nlines')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]

    assert {line["event"] for line in lines} == {"library_error"}
    assert len(lines) >= 2
    assert done.stdout == ""
