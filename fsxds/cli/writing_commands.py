"""The commands that write a directory for others to read: their arguments, flags and help."""

from __future__ import annotations

from pathlib import Path

import click

from fsxds.cli.command import table_command, tree_argument
from fsxds.cli.completion import directories
from fsxds.cli.viewing import Choice, with_view_flags
from fsxds.settings.options import Settings

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
    """Write DIR as files that Envoy watches, once.

    OUT then holds what Envoy's filesystem subscriptions need. Files that are equal already are left alone; nothing
    that fsxds did not write is touched. Without OUT, all `mirrors` of the settings are written. Exit status: 0 all is
    written, 1 a file of DIR has a mistake or a file that fsxds did not write stood in the way, 2 wrong use.
    """
    from fsxds.cli.mirror import run_mirror

    run_mirror(directory, out, settings, choice)
