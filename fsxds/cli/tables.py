"""Tables on stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fsxds.events.phrases import escape

# Wide enough that no table is folded for a program.
PIPE_WIDTH = 10_000


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a line per row, folded to the terminal's width, never cut."""
    console = console_of_stdout()
    console.print(table_of(headings, rows, console))


def console_of_stdout() -> Console:
    """Return a console; without a terminal, its width is not limited."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def table_of(headings: Sequence[str], rows: Iterable[Sequence[str | Text]], console: Console) -> Table:
    """Return a table; styled texts must be escaped already."""
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(escape(cell)) for cell in row))
    return table
