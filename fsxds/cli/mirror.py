"""`fsxds mirror DIR [OUT]`: writes files that Envoy watches, once."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

import click

from fsxds.cli.command import Choice
from fsxds.cli.running import spinner
from fsxds.cli.subjects import chosen_view, has_errors, print_problems, warn_if_empty, writing
from fsxds.events.event import escape
from fsxds.lint.linter import linter_of
from fsxds.model.errors import UsageError
from fsxds.observe.mirror_lines import remark_lines, summary
from fsxds.runtime.views import View, Views
from fsxds.server import loading_rules, mirror_settings
from fsxds.server.view_loading import ViewLoader
from fsxds.settings.options import Settings
from fsxds.settings.view_rules import MirrorRule
from fsxds.transports.mirror.writer import Mirror, MirrorOptions, write_once

# A file is missing, or is blocked by another file.
INCOMPLETE_MIRROR = 1


def run_mirror(directory: Path, out: Path | None, settings: Settings, choice: Choice) -> None:
    """Write one mirror, or all; exit with 1 if a file is missing."""
    rules = _wanted(out, settings, choice)
    for rule in rules:
        mirror_settings.reject_loop(directory, rule.directory)
    views: list[View] = []

    def choose(all_views: Views, existing: Collection[str]) -> list[View]:
        views.extend(chosen_view(rule.attributes, all_views, existing) for rule in rules)
        return views

    with spinner(f"mirroring {directory}", in_lines=True):
        catalogue = loading_rules.find_catalogue(settings)
        loader = ViewLoader(settings, catalogue, linter_of(settings), directory)
        (loaded,) = loader.load((loading_rules.scan_trusted(directory, settings),), choose)
        finder = mirror_settings.listener_finder(settings, directory, catalogue)
        reports = []
        for rule, view in zip(rules, views, strict=True):
            mirror = Mirror(rule.directory, catalogue, MirrorOptions.of(settings, rule, finder))
            with writing(rule.directory, "make it writable and large enough, and mirror again: it goes on there"):
                reports.append(write_once(loaded.served[view.layers], mirror))
    warn_if_empty(directory, next(iter(loaded.by_layers.values())))
    print_problems(loaded.problems, directory)
    for rule, report in zip(rules, reports, strict=True):
        print(escape(f"{rule.directory}: {summary(report)}"))
        for line in remark_lines(report):
            print(escape(line.text), file=sys.stderr)
    if any(report.blocked for report in reports) or has_errors(loaded.problems):
        raise click.exceptions.Exit(INCOMPLETE_MIRROR)


def _wanted(out: Path | None, settings: Settings, choice: Choice) -> tuple[MirrorRule, ...]:
    rules = settings.mirrors or ()
    if out is None:
        if choice:
            raise UsageError("the flags choose a view, and no directory is given for it; give OUT")
        if not rules:
            raise UsageError("give OUT, the directory to write to, or `mirrors` in the settings")
        return rules
    if not choice:
        for rule in rules:
            if rule.directory.resolve() == out.resolve():
                return (rule,)
    return (MirrorRule(out, node=choice),)
