"""`fsxds check DIR`: every problem of a tree, as serving would find it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import click
from rich.console import Console

from fsxds import loading
from fsxds.commands.options import table_command, tree_argument
from fsxds.commands.real_envoy import refused_by_envoy
from fsxds.commands.running import spinner
from fsxds.reports.problem_formats import BY_NAME
from fsxds.reports.report import Report, findings_of, presentable_text, resource_counts
from fsxds.reports.text_report import as_styled_text
from fsxds.settings import Settings
from fsxds.snapshots.load import Loaded
from fsxds.values import Problem, Severity, SourceTree

FOUND_PROBLEMS = 1


@table_command(
    "check",
    """\
  fsxds check config/xds
  fsxds check config/xds --severity warning --rules unused-cluster=off
  fsxds check config/xds --no-envoy
  fsxds check config/xds --format sarif > fsxds.sarif""",
)
@tree_argument
def check(directory: Path, settings: Settings) -> None:
    """Tell every problem in DIR.

    Each comes with its file, line, column, rule, fact and remedy; the rules are those of serving, and
    `fsxds explain RULE` tells more of one. A real Envoy is asked too where there is one. Exit status: 0 clean (there may be problems that are milder than
    --severity), 1 problems, 2 wrong use.
    """
    with spinner(f"checking {directory}"):
        catalogue = loading.find_catalogue(settings)
        tree = loading.scan_once(directory, settings)
        (loaded,) = loading.load_trees((tree,), settings, catalogue)
    refused = refused_by_envoy(loaded, directory, settings, catalogue)
    loaded = replace(loaded, problems=(*loaded.problems, *refused))
    report = report_of(loaded, tree, path_from_here(directory), settings)
    print_report(report, settings.check_format)
    if report.has_failed:
        raise click.exceptions.Exit(FOUND_PROBLEMS)


def report_of(loaded: Loaded, tree: SourceTree, root: PurePosixPath, settings: Settings) -> Report:
    """Return what is told of a tree that was loaded; `root` leads to it from here."""
    shows_source = BY_NAME[settings.check_format].shows_source
    sources = {file.path: file.content for file in tree.files} if shows_source else {}
    read = {file.path for file in tree.files} | {problem.path for problem in tree.problems}
    return Report(
        str(root),
        findings_of(loaded.problems, root, sources),
        tuple(str(root / path) for path in sorted(read)),
        resource_counts(loaded.snapshot),
        Severity(settings.check_severity),
    )


def path_from_here(path: Path) -> PurePosixPath:
    """Return a path as pipelines want it: relative where it leads into the current directory."""
    return PurePosixPath(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def print_report(report: Report, format_name: str) -> None:
    """Print the report on stdout, with colours where a terminal has them, and its summary on stderr."""
    console = Console(highlight=False)
    if format_name == "text" and console.is_terminal:
        console.print(as_styled_text(report), soft_wrap=True, end="")
    else:
        sys.stdout.write(BY_NAME[format_name].write(report))
    sys.stdout.flush()
    print(report.summary, file=sys.stderr)


def has_errors(problems: Sequence[Problem]) -> bool:
    """Tell whether any of the problems holds its file back."""
    return any(problem.severity is Severity.ERROR for problem in problems)


def placed(problem: Problem, directory: Path) -> Problem:
    """Return the problem with a path that terminals and editors can open from here."""
    return replace(problem, path=PurePosixPath(directory) / problem.path)


def line_of(problem: Problem) -> str:
    """Word a problem as one line: `path:line:column: severity: message`."""
    return presentable_text(str(problem))
