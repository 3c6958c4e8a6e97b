from __future__ import annotations

import asyncio
import contextlib
import json
import os
from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.console import Console

from fsxds.events.event import Level, LogLine, escape, shortened
from fsxds.model.values import PlainValue
from fsxds.observe.log import MOST_WAITING_LINES, LineSink, human_renderer, json_renderer

NOON = datetime(2026, 5, 1, 12, 3, 11, 5000, tzinfo=UTC)


def test_human_lines_have_the_time() -> None:
    """On a stream without colours, a line is the time and the text, however long it is."""
    render = human_renderer(Console(file=StringIO(), width=20))

    assert f"12:03:11 {'x' * 100}" == render(LogLine(Level.ERROR, "event", "x" * 100), NOON)


def test_human_lines_have_colours_on_a_terminal() -> None:
    """The time is dim, a warning yellow."""
    render = human_renderer(Console(file=StringIO(), force_terminal=True, color_system="standard"))

    assert render(LogLine(Level.WARNING, "event", "text"), NOON) == "\x1b[2m12:03:11 \x1b[0m\x1b[33mtext\x1b[0m"


def test_human_lines_are_no_markup_and_cannot_be_forged() -> None:
    """Brackets stay, control characters are spelled out, secrets are hidden."""
    render = human_renderer(Console(file=StringIO()))
    text = "[red]x[/] a\n12:00:00 b \x1b[31m\u202e inline_string: 's3cr3t'"

    line = render(LogLine(Level.INFO, "event", text), NOON)

    assert line == r"12:03:11 [red]x[/] a\n12:00:00 b \x1b[31m\u202e inline_string: <hidden>"


def test_json_lines() -> None:
    """A machine gets one object on one line, with time, level, event, message and details, secrets hidden."""
    details: dict[str, PlainValue] = {
        "reason": "inline_string: 's3cr3t'\nx",
        "files": ["a\udcff", "inline_bytes: 's3cr3t'"],
        "status": 400,
    }

    text = json_renderer(LogLine(Level.WARNING, "request_rejected", "two\nlines", details), NOON)

    assert "\n" not in text
    assert json.loads(text) == {
        "ts": "2026-05-01T12:03:11.005+00:00",
        "level": "warning",
        "event": "request_rejected",
        "message": "two\nlines",
        "reason": "inline_string: <hidden>\nx",
        "files": ["a?", "inline_bytes: <hidden>"],
        "status": 400,
    }


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain, é, 日本", "plain, é, 日本"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
        ("\u2028\u2067\udc80", r"\u2028\u2067\udc80"),
    ],
)
def test_escaping(text: str, escaped: str) -> None:
    """What could forge lines, colours or directions is spelled out, other text stays."""
    assert escaped == escape(text)


def test_foreign_texts_are_cut() -> None:
    """A long foreign text is cut after 500 characters."""
    assert f"{'x' * 500}…" == shortened("x" * 501)
    assert shortened("x" * 500) == "x" * 500


def test_lines_are_written_at_once() -> None:
    """A line that there is room for is in the pipe when `write` returns."""
    reader, writer = os.pipe()
    LineSink(writer).write("one")

    assert os.read(reader, 100) == b"one\n"


def test_nobody_waits_for_a_reader() -> None:
    """When nobody reads, lines wait, too many are dropped and counted, and nothing is torn."""
    reader, writer = os.pipe()
    sink = LineSink(writer)
    line = "x" * 5000
    for _ in range(MOST_WAITING_LINES + 100):
        sink.write(line)
    received = drained(reader, sink)
    sink.write("last")
    received += drained(reader, sink)

    lines = received.decode().splitlines()
    full, note, last = lines[:-2], lines[-2], lines[-1]
    assert {line} == set(full)
    assert MOST_WAITING_LINES <= len(full) < MOST_WAITING_LINES + 100
    assert note == f"({MOST_WAITING_LINES + 100 - len(full)} lines were dropped: the log was not read)"
    assert last == "last"


def drained(reader: int, sink: LineSink) -> bytes:
    """Read all that a sink has."""
    os.set_blocking(reader, False)
    received = b""
    with contextlib.suppress(BlockingIOError):
        while True:
            received += os.read(reader, 1 << 20)
            sink.flush(patience_s=0)
    return received


async def test_waiting_lines_go_out_by_themselves() -> None:
    """In an event loop, what waited is written soon after there is room again."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += os.write(writer, b"x" * 4096)
    sink = LineSink(writer)
    sink.write("late")
    os.read(reader, filled)

    received = await asyncio.to_thread(os.read, reader, 100)

    assert received == b"late\n"


def test_a_closed_log_ends_nothing() -> None:
    """When the reader of the log is gone, lines are dropped silently."""
    reader, writer = os.pipe()
    os.close(reader)
    sink = LineSink(writer)

    sink.write("into the void")
    sink.flush(patience_s=0)

    os.close(writer)
