"""`fsxds check PATH…`: every problem of trees, or of some of their files, as serving would find it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import click

from fsxds import reload
from fsxds.api.catalogue import Catalogue
from fsxds.cli.problems import FOUND_PROBLEMS, print_report, refused_by_envoy, report_of
from fsxds.cli.running import spinner
from fsxds.cli.subjects import STDIN, Subject, base_for, read_subjects
from fsxds.envoy.envoy_features import read_features
from fsxds.lint.linter import levels_of, linter_of
from fsxds.lint.report import Report
from fsxds.settings.options import Settings
from fsxds.values import Problem


def run_check(paths: tuple[str, ...], stdin_path: str | None, settings: Settings) -> None:
    """Check what the paths name, print the report, and exit with 1 where it has failed."""
    with spinner("reading"):
        catalogue = reload.find_catalogue(settings, None if settings.with_envoy is False else read_features)
        base = base_for(settings.check_format, Path(next((path for path in paths if path != STDIN), ".")))
        subjects = tuple(read_subjects(paths, stdin_path, base, settings))
    report = _together([_check(subject, base, settings, catalogue) for subject in subjects])
    print_report(report, settings.check_format)
    if report.has_failed:
        raise click.exceptions.Exit(FOUND_PROBLEMS)


def _check(subject: Subject, base: Path, settings: Settings, catalogue: Catalogue) -> Report:
    settings = subject.settings(settings)
    with spinner(f"checking {subject.label}"):
        (loaded,) = reload.load_trees((subject.tree,), settings, catalogue, linter_of(settings))
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
    weighed = levels_of(settings).adjusted(problem)
    return () if weighed is None else (weighed,)


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
