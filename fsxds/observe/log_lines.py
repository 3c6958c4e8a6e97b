"""One line of the log: how it is rendered for people and for programs, and written without ever waiting for a reader.

A limit on lines of which many may be caused at once: the same one once in a while, and few altogether.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime

from rich.console import Console
from rich.text import Text

from fsxds.api.secrets import mask_text
from fsxds.events.event import Level, LogLine
from fsxds.events.phrases import escape
from fsxds.model.values import PlainValue

# poll() promises room for so many bytes in a pipe (PIPE_BUF), and no more.
CHUNK_BYTES = 4096
# About what a reader that is away for a minute misses; more would only cost memory.
MOST_WAITING_LINES = 1000
RETRY_S = 0.2
STYLES = {Level.DEBUG: "dim", Level.INFO: "none", Level.WARNING: "yellow", Level.ERROR: "bold red"}
Renderer = Callable[[LogLine, datetime], str]
"""Renders a line of this time of day, without its newline."""


def human_renderer(console: Console) -> Renderer:
    """Render lines for people: `12:03:11 text`, with colours where the console has them."""

    def render(line: LogLine, moment: datetime) -> str:
        text = Text.assemble((f"{moment:%H:%M:%S} ", "dim"), (escape(mask_text(line.text)), STYLES[line.level]))
        with console.capture() as capture:
            console.print(text, soft_wrap=True, highlight=False, end="")
        return capture.get()

    return render


def json_renderer(line: LogLine, moment: datetime) -> str:
    """Render lines for programs: one JSON object with `ts`, `level`, `event`, `message` and the details."""
    facts = {
        "ts": moment.isoformat(timespec="milliseconds"),
        "level": line.level.name.lower(),
        "event": line.event,
        "message": line.text,
        **line.details,
    }
    return json.dumps({name: _masked(fact) for name, fact in facts.items()})


def _masked(fact: PlainValue) -> PlainValue:
    if isinstance(fact, str):
        # A file name may hold half a surrogate pair, which is no JSON.
        return mask_text(fact).encode(errors="replace").decode()
    return [_masked(member) for member in fact] if isinstance(fact, list) else fact


class LineSink:
    """Writes whole lines to a file descriptor and never waits for its reader. Any thread may write.

    Where the reader is behind, lines wait here; when too many wait, new ones are dropped and counted.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.RLock()
        self._waiting: deque[bytes] = deque()
        self._dropped = 0
        self._retry: asyncio.TimerHandle | None = None

    def write(self, line: str) -> None:
        """Write one line, now or as soon as there is room."""
        with self._lock:
            if len(self._waiting) >= MOST_WAITING_LINES:
                self._dropped += 1
            else:
                note = f"({self._dropped} lines were dropped: the log was not read)\n" if self._dropped else ""
                self._dropped = 0
                self._waiting.append(f"{note}{line}\n".encode(errors="backslashreplace"))
            self.flush(patience_s=0)

    def flush(self, *, patience_s: float) -> None:
        """Write what waits, and wait for room up to `patience_s` seconds each time there is none."""
        with self._lock:
            try:
                self._write_while_there_is_room(patience_s)
            except OSError:
                # Nobody reads the log any more (a closed pipe, a full disk); serving goes on without it.
                self._waiting.clear()
            if self._waiting and self._retry is None:
                self._retry = self._retry_later()

    def _write_while_there_is_room(self, patience_s: float) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        while self._waiting and poll.poll(patience_s * 1000):
            line = self._waiting.popleft()
            written = os.write(self._descriptor, line[:CHUNK_BYTES])
            if line[written:]:
                self._waiting.appendleft(line[written:])

    def _retry_later(self) -> asyncio.TimerHandle | None:
        try:
            return asyncio.get_running_loop().call_later(RETRY_S, self._try_again)
        except RuntimeError:
            return None  # Outside of a loop the next line, or the last flush, takes these along.

    def _try_again(self) -> None:
        self._retry = None
        self.flush(patience_s=0)
