"""The subjects of `fsxds check`: trees, files, or stdin; and the trees and views of other commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click
from rich.console import Console

from fsxds.api.catalogue import Catalogue
from fsxds.cli.command import Choice
from fsxds.events.event import escape
from fsxds.lint.linter import linter_of
from fsxds.lint.report import Report, presentable_text
from fsxds.lint.report_formats import BY_NAME, as_styled_text
from fsxds.model.errors import UsageError
from fsxds.model.values import Fault, Problem, Severity, SourceFile, SourceTree
from fsxds.runtime.views import EVERYTHING, VIEW, View, Views, node_of
from fsxds.server import loading_rules
from fsxds.server.view_loading import ViewLoader
from fsxds.settings.forms import OFF
from fsxds.settings.options import Settings
from fsxds.snapshots.accept import MISSING_LAYER
from fsxds.snapshots.load import Loaded
from fsxds.source.listing import Exclusion
from fsxds.source.scan import FileContent, read_file

if TYPE_CHECKING:
    from fsxds.tools.held_changes import OtherServer


STDIN = "-"

# Rules that need other files: whether they define the names used here, and use the names defined here.
_NOUNS = ("cluster", "endpoints", "route-configuration", "scoped-route", "secret", "extension-config")
_ASKS_OTHERS = tuple(f"no-{noun}" for noun in _NOUNS)
_USED_BY_OTHERS = tuple(f"unused-{noun}" for noun in _NOUNS)


@dataclass(frozen=True, slots=True)
class Subject:
    """One tree to check.

    Attributes:
        label: the user's name of it.
        asked: named files; of others only errors are reported. None for all files.
        is_partial: the files may refer to resources elsewhere.
        server: a server that may hold changes.
    """

    label: str
    directory: Path
    tree: SourceTree
    asked: frozenset[PurePosixPath] | None = None
    is_partial: bool = False
    server: OtherServer | None = None

    def is_reported(self, problem: Problem) -> bool:
        """Whether a problem concerns the named files."""
        if problem.rule == MISSING_LAYER and not self.tree.files:
            # An empty tree is reported once.
            return False
        return self.asked is None or problem.path in self.asked or problem.severity is Severity.ERROR

    def settings(self, settings: Settings) -> Settings:
        """Relax the rules that need other files."""
        if not self.is_partial:
            return settings
        # Files alone are in no layer.
        settings = replace(settings, views=None)
        changed = dict.fromkeys(_USED_BY_OTHERS, OFF) | dict.fromkeys(_ASKS_OTHERS, Severity.NOTE.value)
        return replace(settings, rules={**changed, **(settings.rules or {})})

    def refers_to_others(self, problems: Sequence[Problem]) -> bool:
        """Whether the subject needs files not here."""
        return self.is_partial and any(problem.rule in _ASKS_OTHERS for problem in problems)


def read_subjects(paths: Sequence[str], stdin_path: str | None, base: Path, settings: Settings) -> Iterator[Subject]:
    """Read paths: each directory is a tree, all files together are part of one.

    Args:
        paths: `-` is stdin.
        stdin_path: the name of the file on stdin.
        base: the report's paths are relative to it.
        settings: has the tree of the files.

    Raises:
        UsageError: a path does not exist, or stdin has no name.
    """
    if not paths and settings.check_tree is not None:
        paths = (str(settings.check_tree),)
    if not paths:
        raise click.UsageError("give a directory, files, or - for stdin")
    directories = [path for path in paths if path != STDIN and os.path.isdir(path)]  # noqa: PTH112 - never raises
    others = [path for path in paths if path not in directories]
    for path in others:
        if path != STDIN and not os.path.exists(path):  # noqa: PTH110
            remedy = "give a directory or files with resources, or write a tree by `fsxds init DIR`"
            raise UsageError(f"{escape(path)}: there is no such file or directory; {remedy}")
    for path in dict.fromkeys(directories):
        yield Subject(path, Path(path), loading_rules.scan_once(Path(path), settings))
    if others:
        yield _subject_of_files(others, stdin_path, base, settings)


def _subject_of_files(paths: Sequence[str], stdin_path: str | None, base: Path, settings: Settings) -> Subject:
    label = paths[0] if len(paths) == 1 else f"{len(paths)} files"
    if STDIN in paths and stdin_path is None:
        raise UsageError("-: a file's name tells its format and type; give it by --stdin-path NAME")
    named = [str(stdin_path) if path == STDIN else path for path in paths]
    contents = {path: _read(path, given, settings) for path, given in zip(named, paths, strict=True)}
    directory = settings.check_tree
    if directory is not None and all(_absolute(path).is_relative_to(_absolute(directory)) for path in named):
        scanned = loading_rules.scan_once(directory, settings)
        top = _absolute(directory)
        inside = {PurePosixPath(_absolute(path).relative_to(top)): content for path, content in contents.items()}
        piped = inside if STDIN in paths else {}
        fresh = {path: SourceFile.of(path, content) for path, content in piped.items() if isinstance(content, bytes)}
        files = {file.path: file for file in scanned.files} | fresh
        tree = replace(scanned, files=tuple(sorted(files.values(), key=lambda file: file.path.parts)))
        return Subject(label, directory, tree, frozenset(inside))
    return Subject(label, base, _tree_of(contents, base, loading_rules.exclusion_of(settings)), is_partial=True)


def _tree_of(contents: dict[str, bytes | Problem], base: Path, exclusion: Exclusion) -> SourceTree:
    named = {path_from(base, Path(path)): content for path, content in contents.items()}
    by_path = {path: content for path, content in named.items() if not exclusion.covers(str(path))}
    read = {path: content for path, content in by_path.items() if loading_rules.is_read(path.name)}
    files = [SourceFile.of(path, content) for path, content in read.items() if isinstance(content, bytes)]
    problems = [replace(content, path=path) for path, content in read.items() if isinstance(content, Problem)]
    return SourceTree(
        tuple(sorted(files, key=lambda file: file.path.parts)),
        tuple(sorted(problems)),
        tuple(sorted(path for path in by_path if path not in read)),
        tuple(sorted(path for path in named if path not in by_path)),
    )


def _read(path: str, given: str, settings: Settings) -> bytes | Problem:
    if given == STDIN:
        content = sys.stdin.buffer.read(settings.max_file_size_bytes + 1)
        if len(content) > settings.max_file_size_bytes:
            raise UsageError("-: stdin is larger than the setting max_file_size")
        return content
    outcome = read_file(path, settings.max_file_size_bytes)
    if isinstance(outcome, FileContent):
        return outcome.content
    unreadable = outcome or Fault("unreadable-file", "it is no regular file", "name files of resources")
    return Problem.of_file(PurePosixPath(path), unreadable.rule, unreadable.message, unreadable.remedy)


def _absolute(path: str | Path) -> Path:
    return Path(path).absolute()


@contextmanager
def writing(path: Path, remedy: str) -> Iterator[None]:
    """Turn an OSError of a file into a UsageError."""
    try:
        yield
    except OSError as error:
        fact = f"{escape(str(error.filename or path))}: cannot be written: {error.strerror}"
        raise UsageError(f"{fact}; {remedy}") from error


def read_input(file: str | Path, remedy: str) -> bytes:
    """Return a file's content, or stdin's for the text `-`; UsageError if it cannot be read."""
    if file == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{escape(str(file))}: cannot be read: {error.strerror}; {remedy}") from error


FOUND_PROBLEMS = 1

# The readers of these formats know the repository, not the working directory of a pipeline's step.
_OF_REPOSITORIES = frozenset({"github", "sarif"})


def base_for(format_name: str, directory: Path) -> Path:
    """Return the base of a report's paths.

    In formats of repositories, it is the nearest directory at or above `directory` with a `.git`.
    """
    here = Path.cwd()
    if format_name not in _OF_REPOSITORIES:
        return here
    top = Path(os.path.normpath(directory.absolute()))
    return next((one for one in (top, *top.parents) if (one / ".git").exists()), here)


def path_from(base: Path, path: Path) -> PurePosixPath:
    """Return a path relative to a base, unless outside."""
    absolute = Path(os.path.normpath(path.absolute()))
    if absolute.is_relative_to(base):
        return PurePosixPath(absolute.relative_to(base))
    return PurePosixPath(path if base == Path.cwd() else absolute)


def warn_if_empty(directory: Path, loaded: Loaded) -> None:
    """Print that a tree has no configuration."""
    if not loaded.records:
        print(f"{escape(str(directory))}: no file in this directory is configuration", file=sys.stderr)


def print_report(report: Report, format_name: str) -> None:
    """Print the report on stdout, its summary on stderr."""
    console = Console(highlight=False)
    if format_name == "text" and console.is_terminal:
        console.print(as_styled_text(report), soft_wrap=True, end="")
    else:
        sys.stdout.write(BY_NAME[format_name].write(report))
    sys.stdout.flush()
    print(report.summary, file=sys.stderr)


def has_errors(problems: Sequence[Problem]) -> bool:
    """Return whether a problem holds its file back."""
    return any(problem.severity is Severity.ERROR for problem in problems)


def print_problems(problems: Iterable[Problem], directory: Path = Path()) -> None:
    """Print a line each on stderr, with paths that can be opened from here."""
    for problem in problems:
        print(line_of(replace(problem, path=PurePosixPath(directory) / problem.path)), file=sys.stderr)


def line_of(problem: Problem) -> str:
    """Return `path:line:column: severity: message`."""
    return presentable_text(str(problem))


def load_chosen(directory: Path, settings: Settings, catalogue: Catalogue, choice: Choice) -> Loaded:
    """Load the chosen view, or the tree without views."""
    loader = ViewLoader(settings, catalogue, linter_of(settings), directory)
    return loader.load_one(loading_rules.scan_trusted(directory, settings), partial(chosen_view, choice))


def chosen_view(choice: Choice, views: Views, existing: Collection[str]) -> View:
    """Return the chosen view.

    Raises:
        UsageError: there is no such view, none for such a node, or the flags choose none of several.
    """
    names, view_name = views.names, dict(choice).get(VIEW)
    if not names and view_name is None:
        return EVERYTHING
    if view_name is not None and view_name not in names:
        near = get_close_matches(view_name, names, 1)
        hint = "the settings define no views; name the settings file by --settings"
        if names:
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
        raise UsageError(f"there is no view {view_name}; {hint}")
    if not choice:
        remedy = "give one by --view, or a node by --node-id, --node-cluster and --node-metadata"
        raise UsageError(f"the settings have the views {', '.join(names)}; {remedy}")
    view = views.layers_of(node_of(choice), existing)
    if view is None:
        described = ", ".join(f"{attribute} {text}" for attribute, text in choice)
        raise UsageError(f"no view of the settings matches a node of {described}; add a rule to `views`")
    return view
