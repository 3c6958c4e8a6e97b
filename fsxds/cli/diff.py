"""`fsxds diff A B`: which resources and fields are different between two trees, servers or revisions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import click
from rich.console import Console

from fsxds import reload
from fsxds.cli.command import existing_directory
from fsxds.cli.problems import line_of
from fsxds.cli.running import spinner
from fsxds.errors import UsageError
from fsxds.lint.linter import linter_of
from fsxds.observe.log_lines import escape
from fsxds.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.settings.options import Settings
from fsxds.snapshots.load import Loaded, may_define
from fsxds.tools.diff.compare import Comparer, Gap
from fsxds.tools.diff.difference import Compared, Side, Unread, json_text, markdown, summary, text_lines
from fsxds.tools.diff.sides import Repository, fetch_served, is_running_address
from fsxds.values import Problem, Severity, SourceTree

DIFFERENT = 1
INCOMPLETE = 3

_NOT_OVER_REST = tuple(row for row in RESOURCE_TYPES if row.rest_path is None)


@dataclass(frozen=True, slots=True)
class _Read:
    """One side as it was read."""

    side: Side
    tree: SourceTree
    is_running: bool = False
    unavailable: tuple[ResourceType, ...] = ()


def run_diff(sides: tuple[str, ...], revisions: str | None, settings: Settings) -> None:
    """Compare two sides, print the difference, and exit with 1 or 3 where there is one, or something was not read."""
    with spinner("loading both sides"):
        before, after = _read_git(revisions, sides, settings) if revisions is not None else _read_both(sides, settings)
        catalogue = reload.find_catalogue(settings)
        loaded = reload.load_trees((before.tree, after.tree), settings, catalogue, linter_of(settings))
        for read, result in zip((before, after), loaded, strict=True):
            _print_problems(read, result)
        over_rest = before.is_running or after.is_running
        comparer = Comparer(catalogue, over_rest=over_rest)
        of_before, of_after = (list(_gaps(read, result)) for read, result in zip((before, after), loaded, strict=True))
        gaps = [gap for gap, _ in of_before], [gap for gap, _ in of_after]
        difference = comparer.compare(loaded[0].snapshot, loaded[1].snapshot, gaps)
    left = [row.noun for row in _NOT_OVER_REST if any(one.snapshot.resources(row.type_url) for one in loaded)]
    if over_rest and left:
        print(f"{' and '.join(left)} are not compared: they have no REST form", file=sys.stderr)
    unread = tuple(unread for _, unread in (*of_before, *of_after))
    compared = Compared(before.side, after.side, difference, unread)
    _print(compared, settings.diff_format)
    if unread:
        raise click.exceptions.Exit(INCOMPLETE)
    if not compared.are_same:
        raise click.exceptions.Exit(DIFFERENT)


def _read_both(sides: tuple[str, ...], settings: Settings) -> Iterator[_Read]:
    if len(sides) != 2:
        raise click.UsageError("give two of them: directories, or addresses of a running fsxds; or --git A..B")
    return (_read_side(text, settings) for text in sides)


def _read_side(text: str, settings: Settings) -> _Read:
    if is_running_address(text):
        served = asyncio.run(fetch_served(text))
        return _Read(Side(text, None), served.tree, is_running=True, unavailable=served.unavailable)
    directory = existing_directory(text)
    return _Read(_side_of(directory), reload.scan_once(directory, settings))


def _read_git(revisions: str, sides: tuple[str, ...], settings: Settings) -> Iterator[_Read]:
    if len(sides) > 1:
        raise click.UsageError("with --git there is one directory at most")
    directory = existing_directory(*sides or ".")
    repository = Repository(directory)
    between = repository.range_of(revisions)
    for revision in (between.before, between.after):
        if revision is None:
            yield _Read(_side_of(directory), reload.scan_once(directory, settings))
        else:
            tree = repository.tree_at(revision, lambda top: reload.scan_once(top, settings))
            yield _Read(Side(revision, f"{revision}:{repository.prefix}"), tree)


def _side_of(directory: Path) -> Side:
    return Side(str(directory), "" if directory == Path() else f"{PurePosixPath(directory)}/")


def _print_problems(read: _Read, loaded: Loaded) -> None:
    """Print the problems of a side; UsageError for a server whose resources cannot be read here."""
    if not loaded.records and not read.is_running:
        print(f"{escape(read.side.label)}: no file there is configuration", file=sys.stderr)
    for problem in loaded.problems:
        if read.is_running and problem.severity is Severity.ERROR:
            fact = f"{read.side.label}: what it serves cannot be read: {problem.pointer}: {problem.message}"
            raise UsageError(f"{fact}; give its Envoy by --envoy, or its types by --descriptors")
        if problem.severity is not Severity.NOTE:
            print(line_of(_placed(problem, read.side)), file=sys.stderr)


def _gaps(read: _Read, loaded: Loaded) -> Iterator[tuple[Gap, Unread]]:
    """Yield what could not be read of a side: files, and the types of which a server has nothing good."""
    contents = {file.path: file.content for file in read.tree.files}
    for held in loaded.held:
        parsed = loaded.records[held.path].parsed
        types = may_define(held.path) | (parsed.declared if parsed else frozenset())
        place = f"{_prefix(read.side)}{held.path}" + (f":{held.problem.line}" if held.problem else "")
        yield (
            Gap(types, held.path, contents.get(held.path)),
            Unread(place, held.problem.message if held.problem else "it is held back with others"),
        )
    for row in read.unavailable:
        yield (
            Gap(frozenset((row.type_url,))),
            Unread(read.side.label, f"nothing good of {row.noun} was loaded there yet"),
        )


def _prefix(side: Side) -> str:
    return f"{side.label}/" if side.prefix is None else side.prefix


def _placed(problem: Problem, side: Side) -> Problem:
    return replace(problem, path=PurePosixPath(f"{_prefix(side)}{problem.path}"))


def _print(compared: Compared, output_format: str) -> None:
    if output_format == "json":
        print(json_text(compared))
    elif output_format == "markdown":
        print(markdown(compared), end="")
    else:
        console = Console(highlight=False)
        for line in text_lines(compared):
            console.print(line, soft_wrap=True)
        print(summary(compared), file=sys.stderr)
