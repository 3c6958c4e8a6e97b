"""`fsxds doctor DIR`: examines an Envoy with this tree."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import click
from envoy.config.core.v3 import base_pb2

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.cli.running import spinner
from fsxds.cli.subjects import FOUND_PROBLEMS, base_for, chosen_view, path_from, print_report, read_input, warn_if_empty
from fsxds.events.event import count_of, escape
from fsxds.lint.linter import levels_of, linter_of, make_field_rules
from fsxds.lint.report import Report, findings_of, resource_counts
from fsxds.lint.report_formats import BY_NAME
from fsxds.lint.rules import chapters
from fsxds.model.values import Severity, SourceTree
from fsxds.protocol.messages import ENVOY, attributes_of_message
from fsxds.runtime.views import View, Views
from fsxds.server import loading_rules
from fsxds.server.view_loading import ViewLoader
from fsxds.settings.forms import parse_address
from fsxds.settings.options import Settings
from fsxds.snapshots.loaded_views import LoadedViews
from fsxds.tools.doctor.examine import Case, drain_remark, examine
from fsxds.tools.doctor.facts import BootstrapFile, look_at, read_bootstrap, resource_problems

# A source that Envoy rejects, or that crashes it, is found when the tree is loaded, and held back.
_SOURCE_RULES = frozenset({"wrong-config-source", "short-refresh-delay"})


def run_doctor(directory: Path, settings: Settings, envoys: tuple[str, ...] = ()) -> None:
    """Examine a tree, its bootstrap, and running Envoys."""
    addresses = [parse_address(text) for text in envoys]
    addresses += [rule.admin for rule in settings.mirrors or () if rule.admin is not None]
    with spinner(f"examining {directory}"):
        catalogue = loading_rules.find_catalogue(settings)
        tree = loading_rules.scan_once(directory, settings)
        # Without the bootstrap: conflicts with it are reported below, and a file held for one could not be examined.
        alone = replace(settings, bootstrap=None)
        base = base_for(settings.check_format, directory)
        bootstrap = None
        if (path := settings.bootstrap) is not None:
            content = read_input(path, "give a bootstrap of Envoy")
            bootstrap = read_bootstrap(path_from(base, path), content, catalogue, make_field_rules(catalogue))

        def choose(views: Views, existing: Collection[str]) -> tuple[View, ...]:
            if bootstrap is None or bootstrap.message is None:
                return views.possible(existing)
            message: DynamicMessage = bootstrap.message
            node = base_pb2.Node.FromString(message.node.SerializeToString())
            texts = {"id": node.id, "cluster": node.cluster, "user_agent_name": ENVOY}
            named = ((attribute, text) for attribute, text in texts.items() if text)
            return (chosen_view((*named, *attributes_of_message(node)), views, existing),)

        (loaded,) = ViewLoader(alone, catalogue, linter_of(alone), directory).load((tree,), choose)
        report = _report_of(Examined(directory, loaded, tree, bootstrap), base, settings, catalogue)
    print_report(report, settings.check_format)
    warn_if_empty(directory, next(iter(loaded.by_layers.values())))
    if loaded.problems:
        known = count_of(len(loaded.problems), "problem")
        print(f"the tree itself has {known}: fsxds check {escape(str(directory))} lists them", file=sys.stderr)
    remarks = [remark for address in addresses if (remark := asyncio.run(drain_remark(address, settings.linger_s)))]
    for remark in remarks:
        print(escape(remark), file=sys.stderr)
    if report.has_failed or (remarks and settings.check_severity != Severity.ERROR.value):
        raise click.exceptions.Exit(FOUND_PROBLEMS)


@dataclass(frozen=True, slots=True)
class Examined:
    """With a bootstrap, `loaded` is its node's view; else all views."""

    directory: Path
    loaded: LoadedViews
    tree: SourceTree
    bootstrap: BootstrapFile | None


def _report_of(examined: Examined, base: Path, settings: Settings, catalogue: Catalogue) -> Report:
    bootstrap, root = examined.bootstrap, path_from(base, examined.directory)
    is_rewritten = settings.mirror_config_sources or settings.ads_config_sources
    message = bootstrap.message if bootstrap else None
    snapshots = [*examined.loaded.served.values()]
    found = [examine(Case(message, one, is_rewritten=is_rewritten), catalogue, look_at) for one in snapshots]
    sources = {file.path: file.content for file in examined.tree.files}
    shown = sources if BY_NAME[settings.check_format].shows_source else {}
    # Held files could not be examined.
    held = {file.problem for file in examined.loaded.held if file.problem}
    levels = levels_of(settings)
    rules_of_loading = _SOURCE_RULES.union(rule.name for rule in chapters()["bootstrap"].rules)
    known = [one for one in examined.loaded.problems if one in held or one.rule in rules_of_loading]
    of_tree = [problem for one in found for problem in resource_problems(one.resources, catalogue, sources)]
    adjusted = filter(None, map(levels.adjusted, of_tree))
    findings = findings_of((*known, *adjusted), root, shown, sources.keys(), catalogue.knows_word)
    files = [str(root / path) for path in sources]
    if bootstrap is not None:
        path = bootstrap.written.file.path
        faults = [fault for one in found for fault in one.bootstrap]
        adjusted = filter(None, map(levels.adjusted, (*bootstrap.problems, *bootstrap.problems_of(faults))))
        shown = {path: bootstrap.written.file.content} if shown else {}
        findings += findings_of(tuple(adjusted), PurePosixPath(), shown, is_word=catalogue.knows_word)
        files.append(str(path))
    return Report(
        str(examined.directory),
        tuple(sorted(findings, key=lambda finding: finding.problem)),
        tuple(sorted(files)),
        resource_counts(snapshots),
        Severity(settings.check_severity),
        str(base),
    )
