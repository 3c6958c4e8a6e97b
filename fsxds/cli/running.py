"""Progress indicators, and tables on stdout."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fsxds.events.event import escape
from fsxds.server.readiness import reported_wait

# Shorter work needs no indicator.
SPINNER_DELAY_S = 1.0


@contextmanager
def spinner(text: str, *, in_lines: bool = False) -> Iterator[None]:
    """Show a spinner on a terminal after a second.

    Elsewhere nothing, or with `in_lines` a line on stderr after three seconds, and then at growing intervals.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        with reported_wait(text, _print_wait) if in_lines else nullcontext():
            yield
        return
    status = console.status(text)
    try:
        with _delayed(status.start):
            yield
    finally:
        status.stop()


@contextmanager
def _delayed(start: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(SPINNER_DELAY_S, start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _print_wait(what: str, elapsed_s: float) -> None:
    print(escape(f"{what}: {elapsed_s:g} s so far"), file=sys.stderr, flush=True)


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal after a second; nothing elsewhere.

    Yields:
        A function of the amounts done and total, as far as known.
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

        with _delayed(partial(progress.update, task, visible=True)):
            yield show


# Wide enough that no table is folded for a program.
PIPE_WIDTH = 10_000


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a line per row, folded to the terminal's width, never cut."""
    console = console_of_stdout()
    console.print(table_of(headings, rows, console))


def console_of_stdout() -> Console:
    """Return a console, of unlimited width without a terminal."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def table_of(headings: Sequence[str], rows: Iterable[Sequence[str | Text]], console: Console) -> Table:
    """Return a table; styled texts are escaped already."""
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(escape(cell)) for cell in row))
    return table
