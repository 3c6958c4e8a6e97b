"""`fsxds diff A B`: compares two sides."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import click
from rich.console import Console

from fsxds.api.catalogue import Catalogue
from fsxds.cli.command import Choice, existing_directory
from fsxds.cli.running import spinner
from fsxds.cli.subjects import chosen_view, line_of
from fsxds.client.client_tls import ClientTls
from fsxds.events.event import escape
from fsxds.lint.linter import linter_of
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.model.resources import Rows, Snapshot
from fsxds.model.values import Layers, Problem, Severity, SourceTree
from fsxds.protocol.messages import Node
from fsxds.publishing.publisher import PublishRules
from fsxds.rollout.served_outline import ServedOutline
from fsxds.runtime.views import layers_within, node_of
from fsxds.server import loading_rules
from fsxds.server.loading_rules import has_upstreams
from fsxds.server.view_loading import ViewLoader
from fsxds.settings.options import Settings
from fsxds.snapshots.accept import MISSING_LAYER
from fsxds.snapshots.load import Loaded, may_define
from fsxds.snapshots.loaded_views import LoadedViews, by_views
from fsxds.tools.admin_client import ask
from fsxds.tools.diff.compare import ComparedView, Comparer, Difference, Gap, grouped
from fsxds.tools.diff.difference import Compared, HeldInViews, Side, Unread, json_text, markdown, summary, text_lines
from fsxds.tools.diff.sides import Repository, fetch_served, is_kept, is_running_address, read_kept
from fsxds.tools.held_changes import held_changes
from fsxds.transports.admin.admin_api import report_of
from fsxds.transports.admin.admin_reports import StatusReport

DIFFERENT = 1
INCOMPLETE = 3

_NOT_OVER_REST = tuple(row for row in RESOURCE_TYPES if row.rest_path is None)

Client: TypeAlias = tuple[Node | None, ClientTls | None]
"""The client's node, and its TLS."""


@dataclass(frozen=True, slots=True)
class _Read:
    side: Side
    tree: SourceTree
    is_running: bool = False
    unavailable: tuple[ResourceType, ...] = ()
    kept: Snapshot | None = None

    @property
    def is_tree(self) -> bool:
        return self.kept is None and not self.is_running


_Reads: TypeAlias = tuple[_Read, ...]
"""Both sides."""


def run_diff(
    sides: tuple[str, ...], revisions: str | None, settings: Settings, asked: tuple[Choice, ClientTls | None]
) -> None:
    """Compare two sides; exit with 1 for a difference, or 3 for an unreadable part.

    `asked` is the node that sees the sides, and the TLS for servers.
    """
    choice, tls = asked
    with spinner("loading both sides"):
        node = node_of(choice) if choice else None
        read = _read_both(sides, settings, (node, tls)) if revisions is None else _read_git(revisions, sides, settings)
        reads = tuple(read)
        catalogue = loading_rules.find_catalogue(settings)
        loader = ViewLoader(settings, catalogue, linter_of(settings))
        are_views = loader.views.names and not choice and all(one.is_tree for one in reads)
        compared, views = (
            _compare_views(reads, loader, catalogue) if are_views else _compare(reads, loader, catalogue, choice)
        )
        compared = replace(compared, held=_held(reads, views, settings))
    _print(compared, settings.diff_format)
    if compared.unread:
        raise click.exceptions.Exit(INCOMPLETE)
    if not compared.are_same:
        raise click.exceptions.Exit(DIFFERENT)


_Views: TypeAlias = Mapping[ComparedView, tuple[Snapshot, Snapshot]]
"""Both snapshots by view; the view of trees without views has no name."""


def _held(reads: _Reads, views: _Views, settings: Settings) -> tuple[HeldInViews, ...]:
    is_relay = has_upstreams(settings)
    # A server's resources from upstreams cannot be distinguished from those from files.
    if not reads[1].is_tree or (reads[0].is_running and is_relay):
        return ()
    rules = PublishRules.of(settings, linter_of(settings).is_static).holding
    found = by_views({
        view: held_changes(after, ServedOutline(view.layers, before, {}, has_upstreams=is_relay), rules)
        for view, (before, after) in views.items()
    })  # fmt: skip
    held = []
    for change, shown in sorted(found.items()):
        side = reads[0 if change.is_removed else 1].side
        is_placed = side.prefix is not None and change.line
        place = f"{side.prefix}{change.path}:{change.line}" if is_placed else side.label
        held.append(HeldInViews(change, place, shown))
    return tuple(held)


def _compare(reads: _Reads, loader: ViewLoader, catalogue: Catalogue, choice: Choice) -> tuple[Compared, _Views]:
    # A server sends one view.
    own = loader.load(
        [read.tree for read in reads if read.is_tree],
        lambda views, existing: (chosen_view(choice, views, existing),),
    )
    sent = loader.load_whole(read.tree for read in reads if read.is_running)
    views = {True: iter(sent), False: iter(own)}
    sides = [
        _SideView(read.kept) if read.kept else next(iter(_side_views(read, next(views[read.is_running])).values()))
        for read in reads
    ]
    over_rest = any(read.is_running for read in reads)
    left = [row.noun for row in _NOT_OVER_REST if any(one.snapshot.resources(row.type_url) for one in sides)]
    if over_rest and left:
        print(f"{' and '.join(left)} are not compared: they have no REST form", file=sys.stderr)
    earlier, later = sides
    difference = Comparer(catalogue, over_rest=over_rest).compare(
        earlier.snapshot, later.snapshot, (earlier.gaps, later.gaps)
    )
    compared = Compared(reads[0].side, reads[1].side, difference, (*earlier.unread, *later.unread))
    nothing = {row.type_url: Rows(row.type_url) for row in _NOT_OVER_REST} if over_rest else {}
    before, after = (replace(one.snapshot, by_type={**one.snapshot.by_type, **nothing}) for one in sides)
    return compared, {ComparedView((), ()): (before, after)}


def _compare_views(reads: _Reads, loader: ViewLoader, catalogue: Catalogue) -> tuple[Compared, _Views]:
    before, after = (loader.folders_of(read.tree) for read in reads)
    pairs = {
        ComparedView(names, layers): (layers_within(layers, before), layers_within(layers, after))
        for layers, names in loader.views.names_by_layers(before | after).items()
    }
    sides = [
        _side_views(read, loader.load_views(read.tree, layers))
        for read, layers in zip(reads, zip(*pairs.values(), strict=True), strict=True)
    ]
    comparer, differences = Comparer(catalogue, of_views=True), dict[ComparedView, Difference]()
    views: dict[ComparedView, tuple[Snapshot, Snapshot]] = {}
    for view, pair in pairs.items():
        earlier, later = (side[layers] for side, layers in zip(sides, pair, strict=True))
        views[view] = earlier.snapshot, later.snapshot
        differences[view] = comparer.compare(earlier.snapshot, later.snapshot, (earlier.gaps, later.gaps))
    unread = dict.fromkeys(one for side in sides for view in side.values() for one in view.unread)
    compared = Compared.of_views((reads[0].side, reads[1].side), grouped(differences), tuple(unread), len(pairs))
    return compared, views


@dataclass(frozen=True, slots=True)
class _SideView:
    snapshot: Snapshot
    gaps: tuple[Gap, ...] = ()
    unread: tuple[Unread, ...] = ()


def _side_views(read: _Read, views: LoadedViews) -> dict[Layers, _SideView]:
    _print_problems(read, views.problems, is_empty=not any(one.records for one in views.by_layers.values()))
    served, contents = views.served, {file.path: file.content for file in read.tree.files}
    return {
        layers: _SideView(served[layers], *_gaps(read, loaded, contents)) for layers, loaded in views.by_layers.items()
    }


def _read_both(sides: tuple[str, ...], settings: Settings, client: Client) -> Iterator[_Read]:
    if len(sides) != 2:
        raise click.UsageError(
            "give two of them: directories, addresses of a running fsxds, or @N and @now of its history; or --git A..B"
        )
    names = frozenset(filter(is_kept, sides))
    kept = read_kept(_state_directory(settings), names) if names else {}
    for text in sides:
        if text in kept:
            yield _Read(Side(text, f"{text}:"), SourceTree(()), kept=kept[text])
        elif is_running_address(text):
            served = asyncio.run(fetch_served(text, *client))
            yield _Read(Side(text, None), served.tree, is_running=True, unavailable=served.unavailable)
        else:
            directory = existing_directory(text)
            yield _Read(_side_of(directory), loading_rules.scan_once(directory, settings))


def _state_directory(settings: Settings) -> Path:
    if settings.state is not None:
        return settings.state
    try:
        status = report_of(StatusReport, ask(settings, "/api/rollout"))
    except UsageError as error:
        raise UsageError(f"{error} To compare without it, give its --state DIR") from error
    if status.state is None:
        raise UsageError(f"{settings.admin}: fsxds keeps no history there; start it with --state DIR")
    return Path(status.state)


def _read_git(revisions: str, sides: tuple[str, ...], settings: Settings) -> Iterator[_Read]:
    if len(sides) > 1:
        raise click.UsageError("with --git there is one directory at most")
    directory = existing_directory(*sides or ".")
    repository = Repository(directory)
    between = repository.range_of(revisions)
    for revision in (between.before, between.after):
        if revision is None:
            yield _Read(_side_of(directory), loading_rules.scan_once(directory, settings))
        else:
            tree = repository.tree_at(revision, lambda top: loading_rules.scan_once(top, settings))
            yield _Read(Side(revision, f"{revision}:{repository.prefix}"), tree)


def _side_of(directory: Path) -> Side:
    return Side(str(directory), "" if directory == Path() else f"{PurePosixPath(directory)}/")


def _print_problems(read: _Read, problems: Iterable[Problem], *, is_empty: bool) -> None:
    if is_empty and not read.is_running:
        print(f"{escape(read.side.label)}: no file there is configuration", file=sys.stderr)
    for problem in problems:
        if read.is_running and problem.severity is Severity.ERROR:
            fact = f"{read.side.label}: its resources cannot be read: {problem.pointer}: {problem.message}"
            raise UsageError(f"{fact}; give its Envoy by --envoy, or its types by --descriptors")
        if problem.severity is not Severity.NOTE:
            print(line_of(replace(problem, path=PurePosixPath(f"{_prefix(read.side)}{problem.path}"))), file=sys.stderr)


def _gaps(
    read: _Read, loaded: Loaded, contents: Mapping[PurePosixPath, bytes]
) -> tuple[tuple[Gap, ...], tuple[Unread, ...]]:
    gaps, unread = [], []
    # A missing folder holds no resources.
    for held in (one for one in loaded.held if one.problem is None or one.problem.rule != MISSING_LAYER):
        parsed = loaded.records[held.path].parsed
        types = may_define(held.path) | (parsed.declared if parsed else frozenset())
        place = f"{_prefix(read.side)}{held.path}" + (f":{held.problem.line}" if held.problem else "")
        gaps.append(Gap(types, held.path, contents.get(held.path)))
        unread.append(Unread(place, held.problem.message if held.problem else "it is held back with others"))
    for row in read.unavailable:
        gaps.append(Gap(frozenset((row.type_url,))))
        unread.append(Unread(read.side.label, f"it has loaded no good {row.noun} yet"))
    return tuple(gaps), tuple(unread)


def _prefix(side: Side) -> str:
    return f"{side.label}/" if side.prefix is None else side.prefix


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
