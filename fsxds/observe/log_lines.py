"""One line of the log: how it is rendered for people and for programs, and written without ever waiting for a reader.

A limit on lines of which many may be caused at once: the same one once in a while, and few altogether.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from fsxds.api.secrets import mask_text
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.values import PlainValue, TypeUrl
from fsxds.protocol.messages import Node
from fsxds.runtime.events import Level

# Control characters, line separators, and marks that turn the direction of the text after them.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# poll() promises room for so many bytes in a pipe (PIPE_BUF), and no more.
CHUNK_BYTES = 4096

# About what a reader that is away for a minute misses; more would only cost memory.
MOST_WAITING_LINES = 1000

RETRY_S = 0.2

# Envoy quotes whole messages of its configuration when it rejects them (ENVOY.md E21).
LONGEST_FOREIGN_TEXT = 500

# Of clients, files or resources in one line for people; the others are counted.
MOST_NAMES = 3
LONGEST_NAME = 80

Details: TypeAlias = dict[str, PlainValue]
"""The fields of a line."""

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))

STYLES = {Level.DEBUG: "dim", Level.INFO: "none", Level.WARNING: "yellow", Level.ERROR: "bold red"}


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line, of which `log_catalogue.CATALOGUE` has a row.

    Attributes:
        level: its severity.
        event: its name in the catalogue.
        text: the line as people read it.
        details: the fields that programs read beside it.
        admitted_as: the level by which a log decides to write it, where that is not its own: the end of a problem
            belongs in every log that had the problem.
    """

    level: Level
    event: str
    text: str
    details: Mapping[str, PlainValue] = field(default_factory=dict)
    admitted_as: Level | None = None


Renderer = Callable[[LogLine, datetime], str]
"""Renders a line of this time of day, without its newline."""


def escape(text: str) -> str:
    """Escape what could forge lines or colours on a terminal."""
    return UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def shortened(text: str) -> str:
    """Cut a foreign text, so that one rejected megabyte does not become one line."""
    return text if len(text) <= LONGEST_FOREIGN_TEXT else f"{text[:LONGEST_FOREIGN_TEXT]}…"


def type_name(type_url: TypeUrl) -> str:
    """Return the short name of a type (`cds`); its URL where it is none of the table's."""
    row = BY_TYPE_URL.get(type_url)
    return row.short_name if row else type_url


def noun_of(type_url: TypeUrl) -> str:
    """Return what resources of a type are called (`clusters`); its URL where it is none of the table's."""
    row = BY_TYPE_URL.get(type_url)
    return row.noun if row else type_url


def some_of(names: Sequence[str]) -> str:
    """Return the first few names as a phrase: `a, b, c and 5 more`."""
    shown = ", ".join(names[:MOST_NAMES])
    return f"{shown} and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else shown


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"


def duration(time_s: float) -> str:
    """Return a time in its largest unit: `3 s`, `5 min`, `2 h`, `4 d`."""
    size, unit = next((each for each in _UNITS if time_s >= each[0]), _UNITS[-1])
    return f"{int(time_s / size)} {unit}"


def omitted(repeats: int, noun: str) -> str:
    """Return what follows a line before which others were not written: ` (2 NACKs before it omitted)`; empty for none."""
    return f" ({count_of(repeats, noun)} before it omitted)" if repeats else ""


def name_of(node: Node) -> str:
    """Return how a client is called in the log: by its node id, else by its address."""
    return node.id or node.peer or "a client without an id"


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
