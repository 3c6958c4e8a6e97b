"""Tables on stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fsxds.observe.log_lines import escape

# Wide enough that no table is folded where a program reads it.
PIPE_WIDTH = 10_000


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print one line per row on stdout, folded to the width of a terminal, never cut."""
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(escape(cell)) for cell in row))
    console.print(table)
