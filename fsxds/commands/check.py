"""`fsxds check PATH…`: every problem of trees, or of some of their files, as serving would find it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import click
from rich.console import Console

from fsxds import loading
from fsxds.api.catalogue import Catalogue
from fsxds.commands.bases import base_for, path_from
from fsxds.commands.real_envoy import refused_by_envoy
from fsxds.commands.running import spinner
from fsxds.commands.subjects import STDIN, Subject, read_subjects
from fsxds.local_envoy.asking import ask_features
from fsxds.reports.problem_formats import BY_NAME
from fsxds.reports.report import Report, findings_of, presentable_text, resource_counts
from fsxds.reports.text_report import as_styled_text
from fsxds.settings import Settings
from fsxds.snapshots.load import Loaded
from fsxds.values import Problem, Severity

FOUND_PROBLEMS = 1


def run_check(paths: tuple[str, ...], stdin_path: str | None, settings: Settings) -> None:
    """Check what the paths name, print the report, and exit with 1 where it has failed."""
    with spinner("reading"):
        catalogue = loading.find_catalogue(settings, None if settings.with_envoy is False else ask_features)
        base = base_for(settings.check_format, Path(next((path for path in paths if path != STDIN), ".")))
        subjects = tuple(read_subjects(paths, stdin_path, base, settings))
    report = _together([_check(subject, base, settings, catalogue) for subject in subjects])
    print_report(report, settings.check_format)
    if report.has_failed:
        raise click.exceptions.Exit(FOUND_PROBLEMS)


def _check(subject: Subject, base: Path, settings: Settings, catalogue: Catalogue) -> Report:
    settings = subject.settings(settings)
    with spinner(f"checking {subject.label}"):
        (loaded,) = loading.load_trees((subject.tree,), settings, catalogue)
    if subject.refers_to_others(loaded.problems):
        print(f"{subject.label}: no real Envoy was asked: it needs what these files refer to", file=sys.stderr)
    else:
        refused = refused_by_envoy(loaded, subject.directory, subject.tree, settings, catalogue)
        loaded = replace(loaded, problems=(*loaded.problems, *refused))
    told = [problem for problem in (*loaded.problems, *_emptiness(subject, settings)) if subject.is_told(problem)]
    return report_of(subject, replace(loaded, problems=tuple(told)), base, settings, catalogue)


def _emptiness(subject: Subject, settings: Settings) -> tuple[Problem, ...]:
    """Return the problem of a directory in which nothing is configuration: most often it is not the one that was meant."""
    tree = subject.tree
    if tree.files or tree.problems or subject.is_partial or settings.check_allow_empty:
        return ()
    problem = Problem(
        PurePosixPath(),
        1,
        1,
        "",
        "no-configuration",
        "no file in this directory is configuration",
        "name the directory that holds the resource files; where it may be empty, give --allow-empty",
    )
    weighed = loading.levels_of(settings).weigh(problem)
    return () if weighed is None else (weighed,)


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


def _together(reports: Sequence[Report]) -> Report:
    """Return one report of several trees."""
    if len(reports) == 1:
        return reports[0]
    counts: dict[str, int] = {}
    for report in reports:
        for noun, number in report.resources.items():
            counts[noun] = counts.get(noun, 0) + number
    return replace(
        reports[0],
        subject=", ".join(report.subject for report in reports),
        findings=tuple(finding for report in reports for finding in report.findings),
        files=tuple(path for report in reports for path in report.files),
        resources=counts,
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
