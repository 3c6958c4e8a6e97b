"""`fsxds check DIR`: every problem of a tree, as serving would find it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import click

from fsxds import app
from fsxds.commands.options import table_command, tree_argument
from fsxds.commands.running import spinner
from fsxds.operations.change_reports import count_of
from fsxds.operations.log_lines import escape
from fsxds.operations.secrets import mask_text
from fsxds.resource_types import BY_TYPE_URL
from fsxds.settings import Settings
from fsxds.values import Problem, Severity, Snapshot

FOUND_PROBLEMS = 1


@table_command(
    "check",
    """\
  fsxds check config/xds
  fsxds check config/xds --unknown-fields warn --format json""",
)
@tree_argument
def check(directory: Path, settings: Settings) -> None:
    """Tell every problem in DIR.

    Each comes with its file, line, column, fact and remedy; the rules are those of serving.
    Exit status: 0 clean (there may be warnings), 1 problems, 2 wrong use.
    """
    with spinner(f"checking {directory}"):
        loaded = app.load_once(directory, settings, app.find_catalogue(settings))
    problems = [placed(problem, directory) for problem in loaded.problems]
    if settings.check_format == "json":
        print(as_json(problems, loaded.snapshot))
    else:
        for problem in problems:
            print(line_of(problem))
        print(f"{directory}: {summary(problems, loaded.snapshot)}", file=sys.stderr)
    if has_errors(problems):
        raise click.exceptions.Exit(FOUND_PROBLEMS)


def has_errors(problems: Sequence[Problem]) -> bool:
    """Tell whether any of the problems holds its file back."""
    return any(problem.severity is Severity.ERROR for problem in problems)


def placed(problem: Problem, directory: Path) -> Problem:
    """Return the problem with a path that terminals and editors can open from here."""
    return replace(problem, path=PurePosixPath(directory) / problem.path)


def line_of(problem: Problem) -> str:
    """Word a problem as one line: `path:line:column: severity: message`."""
    return escape(mask_text(str(problem)))


def as_json(problems: Sequence[Problem], snapshot: Snapshot) -> str:
    """Word the result as one JSON object, for machines."""
    rows = [
        {
            "path": str(problem.path),
            "line": problem.line,
            "column": problem.column,
            "severity": problem.severity.value,
            "rule": problem.rule,
            "pointer": problem.pointer,
            "message": mask_text(problem.message),
            "remedy": problem.remedy,
        }
        for problem in problems
    ]
    return json.dumps(
        {"clean": not has_errors(problems), "problems": rows, "resources": resource_counts(snapshot)}, indent=2
    )


def summary(problems: Sequence[Problem], snapshot: Snapshot) -> str:
    """Word the result in a few words: what is wrong, or what is there when nothing is."""
    counts = Counter(problem.severity for problem in problems)
    parts = [count_of(counts[severity], severity.value) for severity in Severity if counts[severity]]
    if not counts[Severity.ERROR]:
        resources = ", ".join(f"{number} {noun}" for noun, number in resource_counts(snapshot).items())
        parts.append(f"clean: {resources or 'no resources'}")
    return ", ".join(parts)


def resource_counts(snapshot: Snapshot) -> dict[str, int]:
    """Count the resources of a snapshot by the noun of their type; types without resources are left out."""
    return {
        BY_TYPE_URL[type_url].noun if type_url in BY_TYPE_URL else type_url: len(resources)
        for type_url, resources in snapshot.by_type.items()
        if resources
    }
