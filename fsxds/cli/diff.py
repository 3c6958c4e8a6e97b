"""`fsxds diff A B`: which resources and fields are different between two trees, servers, revisions, or former snapshots."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import click
from rich.console import Console

from fsxds import reload
from fsxds.api.catalogue import Catalogue
from fsxds.cli.command import existing_directory
from fsxds.cli.loading import chosen_view
from fsxds.cli.problems import line_of
from fsxds.cli.running import spinner
from fsxds.cli.viewing import Choice
from fsxds.client.client_tls import ClientTls
from fsxds.errors import UsageError
from fsxds.lint.linter import linter_of
from fsxds.observe.log_lines import escape
from fsxds.protocol.messages import Node
from fsxds.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.resources import Snapshot
from fsxds.settings.options import Settings
from fsxds.snapshots.load import Loaded, may_define
from fsxds.snapshots.loaded_views import only_view
from fsxds.tools.admin_client import AdminServer, ask_admin, report_of
from fsxds.tools.diff.compare import Comparer, Gap
from fsxds.tools.diff.difference import Compared, Side, Unread, json_text, markdown, summary, text_lines
from fsxds.tools.diff.kept_sides import is_kept, read_kept
from fsxds.tools.diff.sides import Repository, fetch_served, is_running_address
from fsxds.transports.admin.rollout_control import StatusReport
from fsxds.values import Problem, Severity, SourceTree
from fsxds.view_loading import ViewLoader
from fsxds.views import node_of

DIFFERENT = 1
INCOMPLETE = 3

_NOT_OVER_REST = tuple(row for row in RESOURCE_TYPES if row.rest_path is None)


Client: TypeAlias = tuple[Node | None, ClientTls | None]
"""Who asks a server, and by what TLS."""


@dataclass(frozen=True, slots=True)
class _Read:
    """One side as it was read: a tree, or a snapshot that was `kept`."""

    side: Side
    tree: SourceTree
    is_running: bool = False
    unavailable: tuple[ResourceType, ...] = ()
    kept: Snapshot | None = None


def run_diff(
    sides: tuple[str, ...], revisions: str | None, settings: Settings, asked: tuple[Choice, ClientTls | None]
) -> None:
    """Compare two sides, print the difference, and exit with 1 or 3 where there is one, or something was not read.

    Args:
        sides: as they were written.
        revisions: of git, where they are compared.
        settings: how trees are read.
        asked: which node sees them, and by what TLS servers are asked.
    """
    choice, tls = asked
    with spinner("loading both sides"):
        node = node_of(choice) if choice else None
        read = (
            _read_git(revisions, sides, settings) if revisions is not None else _read_both(sides, settings, (node, tls))
        )
        before, after = read
        catalogue = reload.find_catalogue(settings)
        (earlier, of_before), (later, of_after) = _load((before, after), settings, catalogue, choice)
        over_rest = before.is_running or after.is_running
        comparer = Comparer(catalogue, over_rest=over_rest)
        difference = comparer.compare(earlier, later, ([gap for gap, _ in of_before], [gap for gap, _ in of_after]))
    left = [row.noun for row in _NOT_OVER_REST if any(one.resources(row.type_url) for one in (earlier, later))]
    if over_rest and left:
        print(f"{' and '.join(left)} are not compared: they have no REST form", file=sys.stderr)
    unread = tuple(unread for _, unread in (*of_before, *of_after))
    compared = Compared(before.side, after.side, difference, unread)
    _print(compared, settings.diff_format)
    if unread:
        raise click.exceptions.Exit(INCOMPLETE)
    if not compared.are_same:
        raise click.exceptions.Exit(DIFFERENT)


def _load(
    reads: tuple[_Read, _Read], settings: Settings, catalogue: Catalogue, choice: Choice
) -> Iterator[tuple[Snapshot, list[tuple[Gap, Unread]]]]:
    """Yield the snapshot of each side, and what could not be read of it; its problems are printed."""
    # What a server sends is one view already.
    own = [read.tree for read in reads if read.kept is None and not read.is_running]
    sent = [read.tree for read in reads if read.is_running]
    loader = ViewLoader(settings, catalogue, linter_of(settings))
    views = loader.load(own, lambda views, existing: (chosen_view(choice, views, existing),))
    of_own = map(only_view, views)
    of_sent = map(only_view, reload.load_trees(sent, settings, catalogue, linter_of(settings)))
    for read in reads:
        if read.kept is not None:
            yield read.kept, []
            continue
        result = next(of_sent if read.is_running else of_own)
        _print_problems(read, result)
        yield result.snapshot, list(_gaps(read, result))


def _read_both(sides: tuple[str, ...], settings: Settings, client: Client) -> Iterator[_Read]:
    if len(sides) != 2:
        raise click.UsageError(
            "give two of them: directories, addresses of a running fsxds, or @N and @now of its history; or --git A..B"
        )
    names = frozenset(filter(is_kept, sides))
    kept = read_kept(_state_directory(settings), names) if names else {}
    return (
        _Read(Side(text, f"{text}:"), SourceTree(()), kept=kept[text])
        if text in kept
        else _read_side(text, settings, client)
        for text in sides
    )


def _state_directory(settings: Settings) -> Path:
    """Return where the history is: a running fsxds knows, where the settings do not say."""
    if settings.state is not None:
        return settings.state
    try:
        answer = asyncio.run(ask_admin(AdminServer.of(settings), "GET", "/api/rollout", {}))
        status = report_of(StatusReport, answer)
    except UsageError as error:
        raise UsageError(f"{error} To compare without it, give its --state DIR") from error
    if status.state is None:
        raise UsageError(f"{settings.admin}: fsxds keeps no history there; start it with --state DIR")
    return Path(status.state)


def _read_side(text: str, settings: Settings, client: Client) -> _Read:
    if is_running_address(text):
        served = asyncio.run(fetch_served(text, *client))
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
