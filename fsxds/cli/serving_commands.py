"""Declares the commands of a running fsxds, and those that write a tree for other programs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from fsxds.cli.command import (
    ANY_PATH,
    Choice,
    CommandOption,
    format_option,
    table_command,
    tree_argument,
    with_view_flags,
)
from fsxds.cli.completion import directories
from fsxds.model.tree_trust import LARGEST_SERIAL
from fsxds.settings.options import Settings

if TYPE_CHECKING:
    from fsxds.cli.export import ExportFlags
    from fsxds.cli.rollout import AdminFlags
    from fsxds.cli.sign import SignFlags
    from fsxds.cli.status import StatusFlags

_meant = partial(click.option, cls=CommandOption, group="Nodes")
_by_view = _meant("--view", metavar="NAME", help="Nodes of this view, or of these layers, such as common+edge.")
_by_node = _meant("--node-id", metavar="ID", help="Nodes with the same layers as this connected node.")
_answer_format = format_option(group="Nodes")
_shown = partial(click.option, cls=CommandOption, group="Selection")
_exported = partial(click.option, cls=CommandOption, group="Writing")
_signed = partial(click.option, cls=CommandOption, group="Signature")


@table_command(
    "status",
    """\
  fsxds status
  fsxds status 127.0.0.1:18002 --watch
  fsxds status envoy-1
  fsxds status --view edge --format json""",
)
@click.argument("target", metavar="[ADDRESS|NODE]", required=False)
@_shown("--node", "--node-id", metavar="ID", help="Details of this node, even if its id looks like an address.")
@_shown("--view", metavar="NAME", help="Clients of this view, or of these layers, such as common+edge.")
@_shown("--search", metavar="TEXT", help="Clients with this text in their node id, cluster or address.")
@_shown("--watch", is_flag=True, help="Refresh each second until Ctrl-C.")
@format_option(
    group="Selection", help="For people, or the JSON of the admin address; with --watch one object per second."
)
def status(target: str | None, settings: Settings, **flags: Unpack[StatusFlags]) -> None:
    """Show the clients and problems of a running fsxds.

    Clients are SYNCED, STALE (they have not accepted their current version), NOT SENT (no resource of the type is for
    them) or NACK; the worst come first. Files that are held back follow with their first problem, and rollouts in
    progress. HOST:PORT, unix:PATH and http:// or https:// are an ADDRESS, by default that of --admin; any other word
    is a NODE, whose missing and outdated resources are listed. Exit status: 0 all is synced and good; 1 something is
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
    """Show rollouts, or decide about them.

    status shows for each view the served and the wanted version, the clients that a step waits for, the resources kept
    for open connections, and the held ones with the reason. promote gives the canaries' change to all nodes now. abort
    rolls back the change in progress. approve ID releases a large removal. retry offers rejected resources again, all
    or NAME. resume ends rollbacks. Exit status: 0 done; of status: the tree is served; 1 nothing was done; of status:
    the tree is not served yet, or some of it is held back or rolled back; 2 wrong use, or no answer.
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
    """List the snapshots that a running fsxds served.

    The newest comes first; @N shows the changes of one. The server keeps a history if it has --state. Exit status: 0
    shown, 1 there is no history, or no such snapshot, 2 wrong use, or no answer.
    """
    from fsxds.cli.rollout import run_history

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
    help="Serve in each view the snapshot of a time, such as 2026-01-31T14:05Z.",
)
@_by_view
@_by_node
@_answer_format
def rollback(number: str | None, settings: Settings, *, time: str | None, **flags: Unpack[AdminFlags]) -> None:
    """Serve an earlier snapshot of the history again.

    That is @N, or with --all-views TIME the snapshot of that time in each view. Resources that differ from the tree
    stay rolled back until their content changes in the tree, or until `fsxds rollout resume`; all others follow the
    tree. Clients get the change by the steps of a rollout. Exit status: 0 done, 1 it cannot be done: there is no such
    snapshot or no history, 2 wrong use, or no answer.
    """
    from fsxds.cli.rollout import run_rollback

    run_rollback(number, settings, flags, time=time)


@table_command(
    "mirror",
    """\
  fsxds mirror config/xds /run/envoy
  fsxds mirror config/xds out --mirror-format yaml --mirror-config-sources""",
)
@tree_argument
@click.argument("out", metavar="[OUT]", required=False, type=ANY_PATH, shell_complete=directories)
@with_view_flags
def mirror(directory: Path, out: Path | None, settings: Settings, choice: Choice) -> None:
    """Write a tree once as files that Envoy watches.

    OUT gets the files for Envoy's filesystem subscriptions. Equal files are left alone, and files that fsxds did not
    write are never touched. Without OUT, all `mirrors` of the settings are written. Exit status: 0 all is written, 1 a
    file of DIR has a mistake, or a file that fsxds did not write is in the way, 2 wrong use.
    """
    from fsxds.cli.mirror import run_mirror

    run_mirror(directory, out, settings, choice)


@table_command(
    "export",
    """\
  fsxds export config/xds public
  fsxds export config/xds public --url https://cdn.example.com/xds
  fsxds export config/xds public --view edge --settings fsxds.yaml --allow 'lds/*'""",
)
@tree_argument
@click.argument("out", metavar="OUT", type=ANY_PATH, shell_complete=directories)
@_exported("--url", metavar="URL", help="URL of OUT, for the links of lists and the index; default: paths.")
@_exported(
    "--allow",
    "allowed",
    metavar="TYPE/NAME",
    multiple=True,
    help="Export this resource although it may contain a credential; * matches any text. Secrets are never exported.",
)
@with_view_flags
def export(directory: Path, out: Path, settings: Settings, choice: Choice, **flags: Unpack[ExportFlags]) -> None:
    """Write a tree once as files for a web server or a CDN.

    OUT gets the answers of HTTP GET, under the same paths: resources in JSON, and lists of them. Each content is also
    in objects/<SHA-256>.json, and index.json has all names, versions and objects. Equal files are left alone, and
    files that fsxds did not export are never touched. Secrets are never exported. If DIR has a mistake, OUT stays as
    it is. Exit status: 0 all is exported, 1 a file of DIR has a mistake, or a resource is left out, 2 wrong use.
    """
    from fsxds.cli.export import run_export

    run_export(directory, out, settings, choice, flags)


@table_command(
    "sign",
    """\
  fsxds sign config/xds --key signer.key --cert signer.crt
  fsxds sign config/xds --key signer.key --cert signer.crt --settings fsxds.yaml
  fsxds sign config/xds --key encrypted.key --password-file password --cert signer.crt""",
)
@tree_argument
@_signed("--key", metavar="FILE", type=ANY_PATH, required=True, help="Private key in PEM: Ed25519, ECDSA or RSA.")
@_signed(
    "--cert",
    metavar="FILE",
    type=ANY_PATH,
    required=True,
    help="Certificate of the key in PEM, then the CAs between it and the one of --verify-with.",
)
@_signed("--password-file", metavar="FILE", type=ANY_PATH, help="File whose first line is the password of the key.")
@_signed(
    "--serial",
    metavar="N",
    type=click.IntRange(1, LARGEST_SERIAL),
    help="Number of the manifest, larger than all before; default: the seconds since 1970.",
)
def sign(directory: Path, settings: Settings, **flags: Unpack[SignFlags]) -> None:
    """Sign a tree for servers with --verify-with.

    Writes two files into DIR: .fsxds-manifest has the digests of all files, and of all resources that these settings
    serve of them; .fsxds-manifest.sig has its signature and the certificates. Sign again after each change, with the
    settings of the server. If DIR has a mistake, nothing is written. Exit status: 0 signed, 1 DIR has a mistake, 2
    wrong use.
    """
    from fsxds.cli.sign import run_sign

    run_sign(directory, settings, flags)
