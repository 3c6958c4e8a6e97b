"""Declares the commands that query a running fsxds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Unpack

import click

from fsxds.cli.command import CommandOption, table_command
from fsxds.settings.options import Settings

if TYPE_CHECKING:
    from fsxds.cli.rollout import AdminFlags
    from fsxds.cli.status import StatusFlags

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


_shown = partial(click.option, cls=CommandOption, group="What is shown")


@table_command(
    "status",
    """\
  fsxds status
  fsxds status 127.0.0.1:18002 --watch
  fsxds status envoy-1
  fsxds status --view edge --format json""",
)
@click.argument("target", metavar="[ADDRESS|NODE]", required=False)
@_shown("--node", "--node-id", metavar="ID", help="The details of this node, also where its id looks like an address.")
@_shown("--view", metavar="NAME", help="The clients of this view, or of these layers, written common+edge.")
@_shown("--search", metavar="TEXT", help="The clients with this in their node id, cluster or address.")
@_shown("--watch", is_flag=True, help="Look again each second, until Ctrl-C.")
@_shown(
    "--format",
    "output_format",
    type=click.Choice(("text", "json")),
    default="text",
    help="For people, or the JSON of the admin address; with --watch one object each second.",
)
def status(target: str | None, settings: Settings, **flags: Unpack[StatusFlags]) -> None:
    """Show what a running fsxds serves to whom, and what is wrong.

    Clients are SYNCED, STALE (they have not accepted what they are to have), NOT SENT (there is nothing of the type for
    them) or NACK; the worst come first. Files that are held back are listed with their first problem, and rollouts at
    work. HOST:PORT, unix:PATH and http:// or https:// are an ADDRESS, by default that of --admin; anything else is a
    NODE, whose details name what it lacks and what is outdated. Exit status: 0 all is synced and good; 1 something is
    held back, rejected, stale or degraded, or the node is not connected; 2 wrong use, or no answer; 130 Ctrl-C.
    """
    from fsxds.cli.status import run_status

    run_status(target, settings, flags)


_ACTIONS = ("status", "promote", "abort", "approve", "retry", "resume")


@table_command(
    "rollout",
    """\
  fsxds rollout status
  fsxds rollout status --view edge --format json
  fsxds rollout approve 9b8c7d6e5f4a
  fsxds rollout retry web
  fsxds rollout abort --admin unix:/run/fsxds-admin.sock""",
)
@click.argument("action", metavar="|".join(_ACTIONS), type=click.Choice(_ACTIONS))
@click.argument("subject", metavar="[ID|NAME]", required=False)
@_by_view
@_by_node
@_answer_format
def rollout(action: str, subject: str | None, settings: Settings, **flags: Unpack[AdminFlags]) -> None:
    """Show what becomes of rollouts, or decide about them.

    status shows for each view what is served and what the tree asks for, which clients a step waits for, what is kept
    for open connections, and what is held back and why. promote lets the other nodes follow the canary now. abort rolls
    back what is under way. approve ID lets a large removal go on. retry offers again what nodes rejected, of one NAME or
    all. resume ends rollbacks. Exit status: 0 done; of status: the tree is served; 1 nothing was done; of status: the
    tree is not served yet, or some of it is held back or rolled back; 2 wrong use, or no answer.
    """
    from fsxds.cli.rollout import run_rollout

    run_rollout(action, subject, settings, flags)


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
  fsxds rollback --all-views 2026-01-31T14:05:00Z""",
)
@click.argument("number", metavar="[@N]", required=False)
@_meant(
    "--all-views",
    "time",
    metavar="TIME",
    help="Serve in each view what was served at a time, such as 2026-01-31T14:05Z.",
)
@_by_view
@_by_node
@_answer_format
def rollback(number: str | None, settings: Settings, *, time: str | None, **flags: Unpack[AdminFlags]) -> None:
    """Serve the snapshot @N of the history again, or what all views had at a time.

    What differs from it in the tree is rolled back; all else follows the tree. Each resource stays so until its own
    content changes in the tree, or until `fsxds rollout resume`. Clients get it by the steps of a rollout. Exit status:
    0 done, 1 it cannot be done: there is no such snapshot or no history, 2 wrong use, or no answer.
    """
    from fsxds.cli.rollout import run_rollback

    run_rollback(number, settings, flags, time=time)
