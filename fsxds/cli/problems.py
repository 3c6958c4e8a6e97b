"""What commands share that report problems: paths that can be opened, lines, and reports."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from rich.console import Console

from fsxds.lint.report import Report, presentable_text
from fsxds.lint.report_formats import BY_NAME, as_styled_text
from fsxds.observe.log_lines import escape
from fsxds.snapshots.load import Loaded
from fsxds.values import Problem, Severity

FOUND_PROBLEMS = 1

# Their readers know the repository, and not the directory in which a step of a pipeline ran.
_OF_REPOSITORIES = frozenset({"github", "sarif"})


def base_for(format_name: str, directory: Path) -> Path:
    """Return the directory from which all paths of a report lead.

    Args:
        format_name: of the report.
        directory: the tree; the repository is the nearest directory above it, or itself, that holds `.git`.
    """
    here = Path.cwd()
    if format_name not in _OF_REPOSITORIES:
        return here
    top = Path(os.path.normpath(directory.absolute()))
    return next((one for one in (top, *top.parents) if (one / ".git").exists()), here)


def path_from(base: Path, path: Path) -> PurePosixPath:
    """Return a path as it leads from a base: relative where it leads into it, else as it was given."""
    absolute = Path(os.path.normpath(path.absolute()))
    if absolute.is_relative_to(base):
        return PurePosixPath(absolute.relative_to(base))
    return PurePosixPath(path if base == Path.cwd() else absolute)


def warn_if_empty(directory: Path, loaded: Loaded) -> None:
    """Print on stderr that no file of a tree is configuration: most often another directory was meant."""
    if not loaded.records:
        print(f"{escape(str(directory))}: no file in this directory is configuration", file=sys.stderr)


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
    """Return whether any of the problems holds its file back."""
    return any(problem.severity is Severity.ERROR for problem in problems)


def placed(problem: Problem, directory: Path) -> Problem:
    """Return the problem with a path that terminals and editors can open from here."""
    return replace(problem, path=PurePosixPath(directory) / problem.path)


def line_of(problem: Problem) -> str:
    """Word a problem as one line: `path:line:column: severity: message`."""
    return presentable_text(str(problem))
