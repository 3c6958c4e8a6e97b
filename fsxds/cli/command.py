"""The table of options as flags of the commands, and help that shows them in groups.

Run what a command asks for: a coroutine to its end, or a long computation with a sign of life.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from fsxds.errors import FsxdsError, UsageError
from fsxds.observe.log_lines import escape
from fsxds.settings.forms import SWITCH, Option
from fsxds.settings.options import LASTING, OPTIONS, read_settings
from fsxds.waits import reported_wait

# Before the examples at the end of the help of a command, which stand as they were written.
EXAMPLES = "\b\nExamples:\n"


def value_reader(row: Option) -> Callable[[str], object]:
    """Return what reads the value of a flag, and ends with the row's complaint where it is none."""

    def read(written: str) -> object:
        try:
            return row.form.read(written)
        except ValueError as error:
            raise click.BadParameter(row.complaint(written)) from error

    return read


def existing_directory(written: str) -> Path:
    """Return the path; UsageError, which is told in one line, if there is no such directory."""
    path = Path(written)
    if path.is_dir():
        return path
    fact = "is not a directory" if path.exists() else "there is no such directory"
    from fsxds.observe.log_lines import escape

    remedy = "give the directory that holds the resource files, or write one by `fsxds init DIR`"
    raise UsageError(f"{escape(written)}: {fact}; {remedy}")


class CommandOption(click.Option):
    """A flag of one command alone, which no settings file has, shown under a heading of its own."""

    def __init__(self, *declarations: Any, group: str, **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.group = group


class TableOption(click.Option):
    """A flag made from a row of the table."""

    def __init__(self, row: Option) -> None:
        facts = f"[{f'default {row.default}; ' if row.default else ''}{row.variable}]"
        is_switch = row.form is SWITCH
        bare: dict[str, Any] = {"is_flag": False, "flag_value": row.form.bare} if row.form.bare else {}
        flag = f"{row.flag}/{row.flag.replace('--', '--no-', 1)}" if is_switch else row.flag
        super().__init__(
            [flag, row.name],
            type=None if is_switch else value_reader(row),
            metavar=None if is_switch else row.form.metavar,
            default=None,
            help=f"{row.help} {facts}",
            **bare,
        )
        self.group = row.group


def _options(row: Option) -> Iterator[TableOption]:
    yield TableOption(row)
    if row.form.negation:
        yield Negation(row)


class Negation(TableOption):
    """A flag that stands for the value false of a row."""

    def __init__(self, row: Option) -> None:
        click.Option.__init__(
            self, [row.form.negation, f"no_{row.name}"], is_flag=True, help=f"The same as {row.variable}=false."
        )
        self.group = row.group


class TableCommand(click.Command):
    """A command whose help shows its options under the headings of the table."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group, in the order of the table."""
        options = [row for row in self.get_params(ctx) if isinstance(row, click.Option)]
        for group, rows in groupby(options, lambda row: getattr(row, "group", "Help")):
            with formatter.section(group):
                formatter.write_dl([record for row in rows if (record := row.get_help_record(ctx))])


def table_command(name: str, examples: str) -> Callable[[Callable[..., None]], TableCommand]:
    """Make a function with a `settings` parameter a command that has the flags of its rows of the table.

    That of a command that lasts has a `reader` too, which reads the settings again.

    Args:
        name: the command, as the rows name it.
        examples: shown at the end of the help, as they stand.
    """
    rows = [row for row in OPTIONS if name in row.commands]

    def decorate(function: Callable[..., None]) -> TableCommand:
        @functools.wraps(function)
        def call(**given: Any) -> None:
            negated = {row.name: False for row in rows if row.form.negation and given.pop(f"no_{row.name}")}
            flags = {row.name: value for row in rows if (value := given.pop(row.name)) is not None} | negated
            read = functools.partial(read_settings, flags)
            if name in LASTING:
                from fsxds.live_settings import SettingsReader

                # Before anything else: SIGHUP during the start does not end the process.
                given["reader"] = SettingsReader(name, read)
            function(settings=read(), **given)

        command = click.command(name, cls=TableCommand, epilog=f"{EXAMPLES}{examples}")(call)
        command.params += [option for row in rows for option in _options(row)]
        return command

    return decorate


tree_argument = click.argument("directory", metavar="DIR", type=existing_directory)

# New objects between two looks of the garbage collector, instead of 700. Waking five thousand held polls makes some ten
# thousand; looking at all that is held, again and again, took two thirds of the time, and found next to nothing.
COLLECT_AFTER = 50_000

# Shorter work needs no sign of life.
SPINNER_DELAY_S = 1.0


def run(work: Coroutine[object, object, None]) -> None:
    """Run a coroutine until it ends, on asyncio's own event loop.

    Not on uvloop, which is faster. Where some hundred clients connected and went away within a second, a server on it
    stopped accepting connections for good: seen with 0.22.1 and 0.23.0 when uvloop itself accepted (with the latter, the
    listening socket was not in its epoll set any more). One way to get there is known: when something raises between a
    connection and its acceptance, such as the factory of protocols, uvloop takes the listening socket out of the set and
    never puts it back. What raised is not known. Since `fsxds.transports.rest.server` accepts by itself, 80,000 departures with either
    version, over TCP and unix sockets, with gRPC on, did no harm; but of the older code too only one of nine runs showed
    a poll that waited for over 30 s, so this proves little. And where uvloop starts a process it forks, of which gRPC
    complains.

    Raises:
        FsxdsError: with the text of all errors for people that its tasks ended with, where there are no others.
    """
    # Which other commands do without.
    from fsxds.transports.rest.server import keep_large_buffers_apart
    from fsxds.transports.sockets import AbandonedThreads

    gc.set_threshold(COLLECT_AFTER)
    keep_large_buffers_apart()
    try:
        with asyncio.Runner() as runner:
            runner.get_loop().set_default_executor(AbandonedThreads())
            runner.run(work)
    except BaseExceptionGroup as group:
        told, others = group.split(FsxdsError)
        if told is None or others is not None:
            raise
        raise FsxdsError("\n".join(_texts(told))) from group


def _texts(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _texts(member)
    else:
        yield str(error)


@contextmanager
def spinner(text: str, *, in_lines: bool = False) -> Iterator[None]:
    """Show on a terminal that work goes on, when it takes longer than a second.

    Elsewhere nothing, or with `in_lines` a line on stderr after three seconds, and then at growing intervals.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        with reported_wait(text, _print_wait) if in_lines else nullcontext():
            yield
        return
    status = console.status(text)
    timer = threading.Timer(SPINNER_DELAY_S, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def _print_wait(what: str, elapsed_s: float) -> None:
    print(escape(f"{what}: {elapsed_s:g} s so far"), file=sys.stderr, flush=True)


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how much is done, when it takes longer than a second; nothing elsewhere.

    Yields:
        What is to be told how much is done, and of how much as far as is known.
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

        def tell(done: int, total: int) -> None:
            is_long = time.monotonic() - started_s > SPINNER_DELAY_S
            progress.update(task, completed=done, total=total, visible=is_long)

        yield tell
