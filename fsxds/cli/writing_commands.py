"""Declares the commands that write a directory for other programs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from fsxds.cli.command import Choice, CommandOption, table_command, tree_argument, with_view_flags
from fsxds.cli.completion import directories
from fsxds.model.tree_trust import LARGEST_SERIAL
from fsxds.settings.options import Settings

if TYPE_CHECKING:
    from fsxds.cli.export import ExportFlags
    from fsxds.cli.sign import SignFlags

_PATH = click.Path(path_type=Path)


@table_command(
    "mirror",
    """\
  fsxds mirror config/xds /run/envoy
  fsxds mirror config/xds out --mirror-format yaml --mirror-config-sources""",
)
@tree_argument
@click.argument("out", metavar="[OUT]", required=False, type=_PATH, shell_complete=directories)
@with_view_flags
def mirror(directory: Path, out: Path | None, settings: Settings, choice: Choice) -> None:
    """Write a tree once as files that Envoy watches.

    OUT gets the files for Envoy's filesystem subscriptions. Equal files are left alone, and files that fsxds did not
    write are never touched. Without OUT, all `mirrors` of the settings are written. Exit status: 0 all is written, 1 a
    file of DIR has a mistake, or a file that fsxds did not write is in the way, 2 wrong use.
    """
    from fsxds.cli.mirror import run_mirror

    run_mirror(directory, out, settings, choice)


_exported = partial(click.option, cls=CommandOption, group="Writing")


@table_command(
    "export",
    """\
  fsxds export config/xds public
  fsxds export config/xds public --url https://cdn.example.com/xds
  fsxds export config/xds public --view edge --settings fsxds.yaml --allow 'lds/*'""",
)
@tree_argument
@click.argument("out", metavar="OUT", type=_PATH, shell_complete=directories)
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


_signed = partial(click.option, cls=CommandOption, group="Signature")


@table_command(
    "sign",
    """\
  fsxds sign config/xds --key signer.key --cert signer.crt
  fsxds sign config/xds --key signer.key --cert signer.crt --settings fsxds.yaml
  fsxds sign config/xds --key encrypted.key --password-file password --cert signer.crt""",
)
@tree_argument
@_signed("--key", metavar="FILE", type=_PATH, required=True, help="Private key in PEM: Ed25519, ECDSA or RSA.")
@_signed(
    "--cert",
    metavar="FILE",
    type=_PATH,
    required=True,
    help="Certificate of the key in PEM, then the CAs between it and the one of --verify-with.",
)
@_signed("--password-file", metavar="FILE", type=_PATH, help="File whose first line is the password of the key.")
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
