"""`fsxds mirror DIR OUT`: write the files that Envoy watches, once."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fsxds import app
from fsxds.cli.problems import has_errors, line_of, placed, warn_if_empty
from fsxds.cli.running import spinner
from fsxds.lint.linter import linter_of
from fsxds.observe.change_reports import remark_lines, summary
from fsxds.observe.log_lines import escape
from fsxds.settings.options import Settings

INCOMPLETE = 1


def run_mirror(directory: Path, out: Path, settings: Settings) -> None:
    """Mirror a tree once, and report what could not be written."""
    with spinner(f"mirroring {directory}", in_lines=True):
        loaded, report = app.mirror_once(directory, out, settings, linter_of(settings))
    warn_if_empty(directory, loaded)
    problems = [placed(problem, directory) for problem in loaded.problems]
    for problem in problems:
        print(line_of(problem), file=sys.stderr)
    print(f"{out}: {summary(report)}")
    for line in remark_lines(report):
        print(escape(line.text), file=sys.stderr)
    if report.blocked or has_errors(problems):
        raise click.exceptions.Exit(INCOMPLETE)
