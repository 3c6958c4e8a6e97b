"""`fsxds mirror DIR OUT`: write the files that Envoy watches, once."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fsxds import app
from fsxds.commands.check import has_errors, line_of, placed
from fsxds.commands.empty_trees import tell_if_empty
from fsxds.commands.options import table_command, tree_argument
from fsxds.commands.running import spinner
from fsxds.operations.log_lines import escape
from fsxds.operations.mirror_log import remark_lines, summary
from fsxds.settings import Settings

INCOMPLETE = 1


@table_command(
    "mirror",
    """\
  fsxds mirror config/xds /run/envoy
  fsxds mirror config/xds out --mirror-format yaml --mirror-config-sources""",
)
@tree_argument
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
def mirror(directory: Path, out: Path, settings: Settings) -> None:
    """Write DIR as files that Envoy watches, once.

    OUT then holds what Envoy's filesystem subscriptions need. Files that are equal already are left alone; nothing
    that fsxds did not write is touched. Exit status: 0 all is written, 1 a file of DIR has a mistake or a file of
    somebody else stood in the way, 2 wrong use.
    """
    with spinner(f"mirroring {directory}", in_lines=True):
        loaded, report = app.mirror_once(directory, out, settings)
    tell_if_empty(directory, loaded)
    problems = [placed(problem, directory) for problem in loaded.problems]
    for problem in problems:
        print(line_of(problem), file=sys.stderr)
    print(f"{out}: {summary(report)}")
    for line in remark_lines(report):
        print(escape(line.text), file=sys.stderr)
    if report.refused or has_errors(problems):
        raise click.exceptions.Exit(INCOMPLETE)
