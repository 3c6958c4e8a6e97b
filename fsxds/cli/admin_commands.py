"""The commands that ask a running fsxds: their arguments, flags and help."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Unpack

import click

from fsxds.cli.command import CommandOption, table_command
from fsxds.settings.options import Settings

if TYPE_CHECKING:
    from fsxds.cli.rollout import AdminFlags

_meant = partial(click.option, cls=CommandOption, group="Which nodes")
_by_view = _meant("--view", metavar="NAME", help="Those of this view, or of these layers, written common+edge.")
_by_node = _meant("--node-id", metavar="ID", help="Those with the same layers as this connected node.")
_answer_format = _meant(
    "--format",
    "output_format",
    type=click.Choice(("text", "json")),
    default="text",
    help="For people or for programs.",
)


@table_command(
    "rollout",
    """\
  fsxds rollout status
  fsxds rollout status --view edge --format json
  fsxds rollout approve 9b8c7d6e5f4a
  fsxds rollout abort --admin unix:/run/fsxds-admin.sock""",
)
@click.argument(
    "action", metavar="status|promote|abort|approve", type=click.Choice(("status", "promote", "abort", "approve"))
)
@click.argument("version", metavar="[VERSION]", required=False)
@_by_view
@_by_node
@_answer_format
def rollout(action: str, version: str | None, settings: Settings, **flags: Unpack[AdminFlags]) -> None:
    """Show what becomes of rollouts, or decide about them.

    status shows for each view what is served and what the tree asks for, whom a step waits for, what is kept for open
    connections, what clients rejected, and what is held back. promote lets the other nodes follow the canary now, and
    abort takes back what goes on. approve VERSION serves what is held back because it removes much. Exit status: 0 done;
    of status: what the tree asks for is served; 1 nothing was done; of status: it is not served yet, held back, taken
    back or rolled back; 2 wrong use, or no answer.
    """
    from fsxds.cli.rollout import run_rollout

    run_rollout(action, version, settings, flags)


@table_command(
    "history",
    """\
  fsxds history
  fsxds history @3
  fsxds history --view edge --format json""",
)
@click.argument("number", metavar="[@N]", required=False)
@_by_view
@_by_node
@_answer_format
def history(number: str | None, settings: Settings, **flags: Unpack[AdminFlags]) -> None:
    """List what a running fsxds served, or show what the snapshot @N changed.

    The newest snapshot comes first. The server keeps them where it has --state. Exit status: 0 shown, 1 there is no
    history, or no such snapshot, 2 wrong use, or no answer.
    """
    from fsxds.cli.history import run_history

    run_history(number, settings, flags)


@table_command(
    "rollback",
    """\
  fsxds rollback @3
  fsxds rollback --resume
  fsxds rollback --resume --view edge""",
)
@click.argument("number", metavar="[@N]", required=False)
@_meant("--resume", "is_resumed", is_flag=True, help="Follow the tree again.")
@_by_view
@_by_node
@_answer_format
def rollback(number: str | None, settings: Settings, *, is_resumed: bool, **flags: Unpack[AdminFlags]) -> None:
    """Serve the snapshot @N of the history again.

    It is served until the tree changes, or until --resume. Clients get it by the steps of a rollout. Exit status: 0
    done, 1 it cannot be done: there is no such snapshot, no history, or nothing to resume, 2 wrong use, or no answer.
    """
    from fsxds.cli.rollout import run_rollback

    run_rollback(number, settings, flags, is_resumed=is_resumed)
