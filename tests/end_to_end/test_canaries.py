"""Nothing secret is shown: canaries in every place, and every exit looked at.

`python -m tests.end_to_end.test_canaries` prints how many were hit.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from click.testing import CliRunner
from google.protobuf import text_format
from rich.console import Console

from fsxds.api.secrets import Masker, mask_reason
from fsxds.cli import main, show
from fsxds.client.updates import Update
from fsxds.editor.api_words import hover
from fsxds.editor.diagnostics import diagnostics_of
from fsxds.editor.suggestions import Completion
from fsxds.events.event import Level, LogLine
from fsxds.formats import FORMATS
from fsxds.lint.linter import Linter
from fsxds.lint.report import Report, findings_of
from fsxds.lint.report_formats import PROBLEM_FORMATS
from fsxds.model.resource_types import type_from_path
from fsxds.model.resources import Resource, Rows, Snapshot
from fsxds.model.values import Nonce, SourceFile, Version
from fsxds.observe.log import human_renderer, json_renderer
from fsxds.observe.problem_reports import ProblemReports
from fsxds.protocol.messages import without_message
from fsxds.settings.options import OPTIONS
from fsxds.snapshots.load import Acceptance, load
from fsxds.snapshots.parse import FileParser
from fsxds.tools.conversion import ConversionReader
from fsxds.tools.diff.compare import Comparer
from fsxds.tools.diff.difference import Compared, Side, json_text, markdown, text_lines
from fsxds.tools.exporting.pages import ExportRules, pages_of
from fsxds.tools.watch_output import Holdings, update_json, update_lines
from fsxds.transports.client_status.contents import Contents
from tests.editor.trees import workbench
from tests.support.canaries import Canaries, broken_files, resources
from tests.support.polls import envoy_catalogue
from tests.support.this_envoy import kept_catalogues
from tests.support.trees import tree_of

# The editor is asked at one of so many places.
EVERY = 5

NOW = datetime(2026, 1, 1, tzinfo=UTC)

Exits = dict[str, Callable[[], Iterator[str]]]
"""What each exit shows, by its name."""

# Where the words of each command come from; a new command has to be looked at, and put here.
EXITS_OF_COMMANDS = {
    "bootstrap": (),  # written of settings alone
    "check": tuple(f"problems {row.name}" for row in PROBLEM_FORMATS),
    "completion": (),  # the names of commands, types, rules and files
    "convert": ("convert",),  # what it writes is the user's own file
    "dev": ("log text", "log json", "NACK"),
    "diff": ("diff text", "diff json", "diff markdown"),
    "doctor": tuple(f"problems {row.name}" for row in PROBLEM_FORMATS),
    "export": ("export",),
    "explain": (),  # the book of rules
    "history": (),  # names and counts
    "import": ("import text", "import json", "import problems"),
    "init": (),  # the package's own files
    "lsp": ("editor problems", "editor hover", "editor suggestions"),
    "mirror": ("log text", "log json"),
    "rollback": (),  # numbers
    "rollout": ("NACK",),  # names, ids, and reasons of clients as in the log
    "schema": (),  # the descriptors
    "serve": ("log text", "log json", "NACK", "client status"),
    "sign": (),  # names, and digests that a signer vouches for
    "show": ("show json", "show yaml"),
    "status": (*(f"problems {row.name}" for row in PROBLEM_FORMATS), "NACK"),
    "watch": ("watch json", "watch text"),
}


def exits_of_resources(before: tuple[Resource, ...], after: tuple[Resource, ...]) -> Exits:
    """Return the exits that show what is good."""
    catalogue = envoy_catalogue()
    masker, comparer, contents = Masker(catalogue), Comparer(catalogue), Contents(catalogue)
    holdings = Holdings()
    steps = [
        holdings.take(
            Update(rows[0].type_url, Version(nonce), Nonce(nonce), {row.name: row for row in rows}, is_full=True)
        )
        for nonce, rows in (("1", before), ("2", after))
    ]
    difference = comparer.compare(*steps[1].snapshots)
    compared = Compared(Side("a"), Side("b"), difference)

    def listing() -> dict[str, object]:
        return {row.name: masker.shown(row.type_url, row.body) for row in before}

    return {
        "show json": lambda: iter([show.dumped(listing(), "json")]),  # type: ignore[arg-type]
        "show yaml": lambda: iter([show.dumped(listing(), "yaml")]),  # type: ignore[arg-type]
        "watch json": lambda: (update_json(step, comparer.compare(*step.snapshots), masker) for step in steps),
        "watch text": lambda: (
            str(line) for step in steps for line in update_lines(step, comparer.compare(*step.snapshots), ())
        ),
        "diff text": lambda: map(str, text_lines(compared)),
        "diff json": lambda: iter([json_text(compared)]),
        "diff markdown": lambda: iter([markdown(compared, 10**9)]),
        "client status": lambda: (
            text for row in before for text in (str(contents.body_of(row)), str(contents.json_of(row)))
        ),
        "NACK": lambda: map(_nack, before),
        "export": lambda: iter(_exported(before)),
        "import text": lambda: iter([_imported(before, "text")]),
        "import json": lambda: iter([_imported(before, "json")]),
    }


def _exported(resources: tuple[Resource, ...]) -> Iterator[str]:
    """Yield what the export of these resources writes and prints."""
    type_url = resources[0].type_url
    snapshot = Snapshot(1, {type_url: Rows(type_url, {one.name: one for one in resources})})
    pages = pages_of(snapshot, ExportRules(), envoy_catalogue())
    yield from map(str, (*pages.withheld, *pages.unnamed, *pages.files))
    yield from (content.decode() for content in pages.files.values())


def _imported(resources: tuple[Resource, ...], output_format: str) -> str:
    """Return what the import of a bootstrap prints that has these resources as extensions."""
    bootstrap: Any = envoy_catalogue().message_class("envoy.config.bootstrap.v3.Bootstrap")()
    bootstrap.static_resources.clusters.add(name="a", type="STATIC")
    for resource in resources:
        bootstrap.bootstrap_extensions.add().MergeFromString(resource.body)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "envoy.pb")
        file.write_bytes(bootstrap.SerializeToString())
        return _printed(["import", str(file), f"{folder}/tree", "--no-envoy", "--format", output_format])


def _printed(arguments: list[str]) -> str:
    """Return what a command prints, on both streams."""
    result = CliRunner().invoke(main.fsxds, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.output


def _nack(resource: Resource) -> str:
    """Return what the log says when an Envoy rejects a resource, and prints it."""
    catalogue = envoy_catalogue()
    message = catalogue.message_class(resource.type_url.rpartition("/")[2]).FromString(resource.body)
    printed = text_format.MessageToString(message, as_one_line=True, descriptor_pool=catalogue.pool)
    reason = mask_reason(without_message(f"no such thing: {printed}"))
    return human_renderer(Console(width=10_000))(LogLine(Level.WARNING, "nack_received", reason), NOW)


def exits_of_broken_files(files: dict[str, str]) -> Exits:
    """Return the exits that show what is wrong."""
    catalogue = envoy_catalogue()
    parser = FileParser(catalogue, check=Linter())
    tree = tree_of(files)
    loaded = load(tree, None, lambda wanted: map(parser.parse, wanted), Acceptance(check=Linter()))
    assert len({problem.path for problem in loaded.problems}) > len(files) - 4
    sources = {file.path: file.content for file in tree.files}
    report = Report("t", findings_of(loaded.problems, PurePosixPath("t"), sources, (), catalogue.knows_word))
    lines = list(ProblemReports(Level.DEBUG).update(loaded.problems, loaded.held, NOW))
    lines += [LogLine(Level.ERROR, "problem_found", str(problem)) for problem in loaded.problems]

    def converted() -> Iterator[str]:
        reader = ConversionReader(catalogue)
        for name, text in files.items():
            file = SourceFile.of(PurePosixPath(name), text.encode())
            row = next(row for row in FORMATS if file.path.suffix in row.suffixes)
            yield from map(str, reader.read(file, row, type_from_path(file.path)).problems)

    def not_imported() -> Iterator[str]:
        with tempfile.TemporaryDirectory() as folder:
            for number, (name, text) in enumerate(files.items()):
                file = Path(folder, f"{number}{PurePosixPath(name).suffix}")
                file.write_text(text, encoding="utf-8")
                yield _printed(["import", str(file), f"{folder}/tree", "--no-envoy"])

    human = human_renderer(Console(width=10_000))
    return {
        "import problems": not_imported,
        **_exits_of_editor(files),
        **{f"problems {row.name}": lambda row=row: iter([row.write(report)]) for row in PROBLEM_FORMATS},  # type: ignore[misc]
        "convert": converted,
        "log text": lambda: (human(line, NOW) for line in lines),
        "log json": lambda: (json_renderer(line, NOW) for line in lines),
    }


def _exits_of_editor(files: dict[str, str]) -> Exits:
    """Return what an editor shows of files, at places all over them."""
    catalogue = envoy_catalogue()
    texts = {path: text for path, text in files.items() if PurePosixPath(path).suffix in {".yaml", ".json"}}
    with tempfile.TemporaryDirectory() as folder:
        navigator = workbench(Path(folder), catalogue, texts).navigator
    places = [(PurePosixPath(path), text, at) for path, text in texts.items() for at in range(0, len(text), EVERY)]
    suggesting = Completion(catalogue)

    return {
        "editor problems": lambda: (
            str(one)
            for path, text in texts.items()
            for one in diagnostics_of(navigator.problems_between(PurePosixPath(path), 0, len(text)), text, {})
        ),
        "editor hover": lambda: (str(hover(navigator, path, at)) for path, _, at in places),
        "editor suggestions": lambda: (str(suggesting.suggest(text, at, path, {})) for path, text, at in places),
    }


def hits_and_counts() -> tuple[list[str], int, int]:
    """Return the canaries that are shown with their places and exits, and how many places and exits there are."""
    good, other, bad = Canaries(1), Canaries(2), Canaries(3)
    first, files = resources(good), broken_files(bad)
    of_resources, of_files = exits_of_resources(first, resources(other)), exits_of_broken_files(files)
    hits = []
    for exits, canaries in ((of_resources, (*good.all, *other.all)), (of_files, tuple(bad.all))):
        for name, show_all in exits.items():
            with kept_catalogues():
                shown = "\n".join(show_all())
            assert shown.strip(), name
            hits += [f"{name}: {canary.place}" for canary in canaries if canary.is_in(shown)]
    return hits, len(first) + len(files), len(of_resources) + len(of_files)


def test_no_canary_is_shown() -> None:
    """In no exit, of no place, in no spelling."""
    hits, places, exits = hits_and_counts()

    assert [] == hits
    assert places >= 250
    assert exits >= 15


def test_every_command_and_format_is_looked_at() -> None:
    """The table of exits has every command, and every format that one of them writes."""
    exits = {name for names in EXITS_OF_COMMANDS.values() for name in names}
    formats = {row.field: set(row.form.choices) for row in OPTIONS if row.field in ("show_format", "diff_format")}

    assert set(main.fsxds.commands) == set(EXITS_OF_COMMANDS)
    assert {f"show {name}" for name in formats["show_format"]} - {"show table"} <= exits
    assert {f"diff {name}" for name in formats["diff_format"]} <= exits


def test_what_is_masked_is_still_valid_and_says_what_it_is() -> None:
    """The names of resources, of fields and of clusters stay, and the document can be read."""
    shown = Masker(envoy_catalogue())
    (first, *_) = resources(Canaries(1))
    plain = shown.shown(first.type_url, first.body)

    assert plain == yaml.safe_load(show.dumped(plain, "yaml")) == json.loads(show.dumped(plain, "json"))
    assert first.name == plain["name"]


if __name__ == "__main__":
    found, place_count, exit_count = hits_and_counts()
    sys.stdout.write(f"canaries hit: {len(found)} of {place_count} places x {exit_count} exits\n")
