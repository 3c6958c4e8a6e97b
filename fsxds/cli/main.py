"""The `fsxds` command, and the handling of errors."""

from __future__ import annotations

import gc
import io
import os
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

import click
from click.shell_completion import add_completion_class

from fsxds import __version__
from fsxds.cli.commands import COMMANDS, TASKS
from fsxds.cli.completion import SCRIPTS
from fsxds.model.errors import FsxdsError
from fsxds.settings.reading import why_gone

WRONG_USE = 2
SHORT_HELP = 59  # the characters of a line of 80 beside a task and a command
NOT_READ = 1  # the reader of a pipe went away; click has the same
INTERRUPTED = 130  # 128 + SIGINT, as shells count
# Objects between runs of the garbage collector, instead of 700. Imports make 400 000 that stay, and waking five
# thousand held polls makes ten thousand; scanning all objects took two thirds of the time, and found next to nothing.
COLLECT_AFTER = 50_000


class Commands(click.Group):
    """The subcommands, by task."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names."""
        return [str(command.name) for command in COMMANDS]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands; a task's first line begins with its name."""
        formatter.write(f"Usage: fsxds COMMAND [ARGUMENTS]\n\n{self.help}\n\n")
        for task, commands in TASKS.items():
            for number, command in enumerate(commands):
                formatter.write(
                    f"{'' if number else task:8}  {command.name:10}  {command.get_short_help_str(SHORT_HELP)}\n"
                )
        formatter.write(f"\n{self.epilog}\n")

    def invoke(self, ctx: click.Context) -> object:
        """Run a subcommand; unlike click, end the line of `^C` on a terminal only."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if sys.stderr.isatty():
                click.echo(err=True)
            raise click.Abort from None


@click.group(
    cls=Commands,
    commands=COMMANDS,
    epilog="`fsxds COMMAND --help` has flags and examples, `fsxds --version` the version.",
)
@click.version_option(__version__, prog_name="fsxds", message="%(prog)s %(version)s")
def fsxds() -> None:
    """Serve a directory of files to Envoy over xDS, by gRPC, REST or mirrored files."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    0: success; 1: problems or a difference; 2: wrong use; 130: Ctrl-C.
    """
    for shell in SCRIPTS.values():
        add_completion_class(shell)
    try:
        status = fsxds.main(arguments, prog_name="fsxds", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return WRONG_USE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "fsxds"
        if isinstance(error, click.NoSuchOption) and (
            why := why_gone(error.option_name.removeprefix("--").removeprefix("no-").replace("-", "_"))
        ):
            return _wrong_use(f"{path}: {error.option_name} is gone: {why}")
        # click writes choices on separate lines.
        return _wrong_use(f"{path}: {' '.join(error.format_message().split())} (see {path} --help)")
    except FsxdsError as error:
        return _wrong_use("\n".join(f"fsxds: {line}" for line in str(error).splitlines()))
    except click.Abort:
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def run_process() -> NoReturn:
    """Run the command line and exit, without waiting for threads."""
    gc.set_threshold(COLLECT_AFTER)
    # Otherwise gRPC writes a line, unlike those of our log, about each client that TLS rejects.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file may have any name, and the terminal any encoding; JSON is written in ASCII, as it has other escapes.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = main()
        print(end="", flush=True)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except OSError as error:
        status = _unprinted(error)
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        from fsxds.runtime.supervisor import leave_at_once

        leave_at_once(status)
    sys.exit(status)


def _unprinted(error: OSError) -> int:
    """Report a stdout that takes no more, as on a full disk; other errors are raised again."""
    try:
        # Nothing may be left of a large output; so write, not flush.
        print(flush=True)
    except OSError:
        # Python would fail again when it flushes the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return NOT_READ
        return _wrong_use(f"fsxds: stdout cannot be written: {error.strerror}")
    raise error


def _wrong_use(text: str) -> int:
    from fsxds.api.secrets import mask_text
    from fsxds.events.event import escape

    for line in text.splitlines():
        print(escape(mask_text(line)), file=sys.stderr)
    return WRONG_USE
