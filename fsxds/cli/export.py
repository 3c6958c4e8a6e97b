"""`fsxds export DIR OUT`: writes files for a web server, once."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TypedDict
from urllib.parse import urlsplit

import click

from fsxds.api.secrets import mask_text
from fsxds.cli.command import Choice
from fsxds.cli.running import spinner
from fsxds.cli.subjects import has_errors, load_chosen, print_problems, warn_if_empty, writing
from fsxds.events.event import count_of, escape, some_of
from fsxds.events.file_events import Remark
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.server import loading_rules, mirror_settings
from fsxds.settings.options import Settings
from fsxds.settings.upstream_rules import at_urls
from fsxds.tools.exporting.output import FilesExported, write_files
from fsxds.tools.exporting.pages import ExportRules, Pages, pages_of
from fsxds.transports.http_get.get_responses import Urls

# Nothing or not everything was exported.
INCOMPLETE_EXPORT = 1


class ExportFlags(TypedDict):
    """The flags of this command."""

    url: str | None
    allowed: tuple[str, ...]


def run_export(directory: Path, out: Path, settings: Settings, choice: Choice, flags: ExportFlags) -> None:
    """Export the view; exit with 1 if a resource or file is missing."""
    mirror_settings.reject_loop(directory, out)
    rules = _rules_of(settings, flags["url"], flags["allowed"])
    with spinner(f"exporting {directory}", in_lines=True):
        catalogue = loading_rules.find_catalogue(settings)
        loaded = load_chosen(directory, settings, catalogue, choice)
        print_problems(loaded.problems, directory)
        warn_if_empty(directory, loaded)
        if has_errors(loaded.problems) or not loaded.records:
            print(f"not exported; {escape(str(out))} is unchanged", file=sys.stderr)
            raise click.exceptions.Exit(INCOMPLETE_EXPORT)
        pages = pages_of(loaded.snapshot, rules, catalogue)
        remedy = "make it writable and large enough, or give another one, and export again: it goes on there"
        with writing(out, remedy):
            report = write_files(out, pages.files)
    _print(out, pages, report)
    if pages.withheld or pages.unnamed or report.blocked or report.kept:
        raise click.exceptions.Exit(INCOMPLETE_EXPORT)


def _rules_of(settings: Settings, url: str | None, allowed: tuple[str, ...]) -> ExportRules:
    for each in allowed:
        short_name, slash, name = each.partition("/")
        row = BY_SHORT_NAME.get(short_name)
        if row is None or not slash or not name:
            near = ", ".join(row.short_name for row in RESOURCE_TYPES if not row.is_secret)
            raise UsageError(f"--allow {each}: is not TYPE/NAME; write one of {near}, a slash, and a name")
        if row.is_secret:
            raise UsageError(f"--allow {each}: secrets are never exported; serve them by `fsxds serve` with TLS")
    authority, authorities = settings.authority or "", dict(at_urls(settings.authorities))
    if url is None:
        return ExportRules(Urls("", authority, authorities), allowed=allowed)
    # The flag is the URL of this export, whatever URL the settings give the server.
    authorities.pop(authority, None)
    return ExportRules(Urls(url.rstrip("/"), authority, authorities), _host_of(url), allowed)


def _host_of(url: str) -> str:
    with suppress(ValueError):
        parts = urlsplit(url)
        is_base = parts.scheme in {"http", "https"} and not (parts.query or parts.fragment or "@" in parts.netloc)
        if is_base and parts.hostname:
            return parts.netloc
    raise UsageError("--url: is no URL of a directory; write https://<host>[:<port>][/<path>]")


def _print(out: Path, pages: Pages, report: FilesExported) -> None:
    names = [str(path) for path in report.written if path.parts[0] != "objects"]
    written = f"{count_of(len(report.written), 'file')} written{f' ({some_of(names)})' if names else ''}"
    counts = f"{written}, {len(report.removed)} removed, {report.unchanged} unchanged"
    print(f"{escape(str(out))}: {count_of(pages.count, 'resource')}: {counts}")
    if pages.secret_count:
        print(f"{count_of(pages.secret_count, 'secret')} left out: secrets are never exported", file=sys.stderr)
    remarks: tuple[Remark, ...] = (*pages.withheld, *pages.unnamed, *report.blocked, *report.kept)
    for remark in remarks:
        print(escape(mask_text(f"{remark.subject}: {remark.reason}")), file=sys.stderr)
