"""Reports of fsxds' errors and libraries' messages, with limited repetition.

A message caused by a client is a `debug` line, others for stderr a `library_error`.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from fsxds.api.secrets import mask_error
from fsxds.events.event import Details, Level, LogLine, omitted, shortened
from fsxds.events.process_events import InternalError, place_of

# On a write to a client that is gone, which aiohttp detects itself.
_DISCONNECTS = ("socket.send() raised exception",)
MOST_IN_TEN_SECONDS = 20
MOST_KEYS = 100


class RepeatLimit:
    """Admits each key once per `pause_s` seconds, at most `most`."""

    def __init__(self, most: int = MOST_KEYS, pause_s: float = 10.0) -> None:
        self._most = most
        self._pause_s = pause_s
        self._seen: OrderedDict[Hashable, float] = OrderedDict()  # {key: time of admission}, oldest first
        self._left_out = 0

    def admit(self, key: Hashable, now_s: float) -> int | None:
        """Return the rejections since the last admission; None if rejected."""
        while self._seen and next(iter(self._seen.values())) <= now_s - self._pause_s:
            self._seen.popitem(last=False)
        if key in self._seen or len(self._seen) >= self._most:
            self._left_out += 1
            return None
        self._seen[key] = now_s
        left_out, self._left_out = self._left_out, 0
        return left_out


class InternalErrors:
    """Counts errors by ended task (`mirror`); logs each once a minute."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._limit = RepeatLimit(pause_s=60.0)

    def lines(self, event: InternalError, now_s: float) -> Iterator[LogLine]:
        """Count an error; yield its line, unless just logged."""
        where, error = event.where, event.error
        self.counts[where] += 1
        name, place = type(error).__name__, place_of(error)
        repeats = self._limit.admit((where, name, place), now_s)
        if repeats is None:
            return
        more = omitted(repeats, "internal error")
        text = f"internal error in {where}: {name} at {place}: {shortened(mask_error(error))}{more}; the rest goes on"
        details: Details = {
            "where": where,
            "error": name,
            "place": place,
            "repeats": repeats,
            "traceback": traceback_of(error),
        }
        yield LogLine(Level.ERROR, "internal_error", text, details)


def traceback_of(error: BaseException) -> str:
    """Return a traceback without data quoted by exceptions."""
    return "\n".join(_trace(error))


def _trace(error: BaseException) -> Iterator[str]:
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _trace(before)
        yield "which led to:"
    yield "Traceback (most recent call last):"
    yield "".join(traceback.format_tb(error.__traceback__)).rstrip()
    yield f"{type(error).__name__}: {mask_error(error)}"
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _trace(part)


@contextmanager
def library_logs(write: Callable[[LogLine], None]) -> Iterator[None]:
    """Pass libraries' logs, warnings and uncatchable errors to `write`, from any thread."""
    handler = LibraryLogs(write)
    root = logging.getLogger()
    hooks = sys.unraisablehook, threading.excepthook
    root.addHandler(handler)
    logging.captureWarnings(capture=True)
    sys.unraisablehook = handler.unraisable
    threading.excepthook = handler.thread_died
    try:
        yield
    finally:
        sys.unraisablehook, threading.excepthook = hooks
        logging.captureWarnings(capture=False)
        root.removeHandler(handler)


class LibraryLogs(logging.Handler):
    """Makes a line of each record."""

    def __init__(self, write: Callable[[LogLine], None], now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._write = write
        self._now_s = now_s
        self._limit = RepeatLimit(MOST_IN_TEN_SECONDS)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, under this handler's lock."""
        error = record.exc_info[1] if record.exc_info else None
        message = record.getMessage().strip()
        is_clients = isinstance(error, ConnectionError) or message.startswith(_DISCONNECTS)
        level = Level.DEBUG if is_clients else Level(min(max(record.levelno // 10 * 10, Level.DEBUG), Level.ERROR))
        self._report(record.name, level, message, error)

    def unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Report a destructor's or C callback's exception: a `sys.unraisablehook`."""
        message = f"{unraisable.err_msg or 'exception ignored in'}: {unraisable.object!r}"
        with self._own_lock():
            self._report("python", Level.ERROR, message, unraisable.exc_value)

    def thread_died(self, died: threading.ExceptHookArgs) -> None:
        """Report an exception that ended a thread: a `threading.excepthook`."""
        name = died.thread.name if died.thread else "unknown"
        with self._own_lock():
            self._report("python", Level.ERROR, f"thread {name} ended", died.exc_value)

    @contextmanager
    def _own_lock(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def _report(self, name: str, level: Level, message: str, error: BaseException | None) -> None:
        fact = message.partition("\n")[0]
        if error is not None:
            fact = f"{fact}: {type(error).__name__} at {place_of(error)}: {mask_error(error)}"
        if level is Level.DEBUG:
            self._write(LogLine(level, "library_message", f"{name}: {shortened(fact)}", {"logger": name}))
            return
        cause = message if error is None else f"{type(error).__name__} {place_of(error)}"
        repeats = self._limit.admit((name, cause), self._now_s())
        if repeats is None:
            return
        more = f" ({repeats} more since)" if repeats else ""
        details: Details = {"logger": name, "repeats": repeats, "details": shortened(message)}
        if error is not None:
            details["traceback"] = traceback_of(error)
        self._write(LogLine(level, "library_error", f"{name}: {shortened(fact)}{more}", details))
