"""`fsxds import FILE DIR`: moves static resources into a tree."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import click

from fsxds.api.catalogue import Catalogue
from fsxds.cli.bootstrap import (
    ALL_TYPES,
    INITIAL_FETCH_TIMEOUT,
    TransportFlags,
    bootstrap_section,
    mirror_of,
    read_address,
)
from fsxds.cli.check import catalogue_of, check_subject
from fsxds.cli.running import spinner
from fsxds.cli.subjects import FOUND_PROBLEMS, Subject, has_errors, print_problems, print_report, read_input
from fsxds.envoy.envoy_bootstrap import Identity
from fsxds.events.event import count_of, escape
from fsxds.formats import FORMATS, format_of
from fsxds.lint.report import Report
from fsxds.lint.report_formats import BY_NAME
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import SourceFile, SourceTree
from fsxds.server import loading_rules
from fsxds.settings.options import Settings
from fsxds.snapshots.parse import field_rules
from fsxds.snapshots.proposals import NoCheck
from fsxds.tools.doctor.facts import BootstrapFile, Written, read_bootstrap
from fsxds.tools.importing.pieces import ImportLossError, XdsConnection
from fsxds.tools.importing.placing import Destination, write_import
from fsxds.tools.importing.plan import ImportPlan, Planner, plain_text
from fsxds.tools.importing.upgrading import placeholder_faults, upgraded

# The maximum number of files listed as text; JSON lists all.
_MOST_LISTED = 40
_OWNED = " (for its owner alone)"


class ImportFlags(TransportFlags):
    """The flags."""

    output: Path | None
    force: bool
    dry_run: bool
    upgrade: bool
    output_format: str


@dataclass(frozen=True, slots=True)
class Imported:
    """An import; `replaced` are replaced files' new paths."""

    target: Destination
    plan: ImportPlan
    replaced: tuple[Path, ...]
    is_written: bool
    commands: tuple[str, ...]


def run_import(file: str, directory: Path, settings: Settings, flags: ImportFlags) -> None:
    """Import a bootstrap, and exit with 1 if the tree has errors.

    Raises:
        UsageError: the file is unreadable, the destination taken, or a part would be lost.
    """
    address = None if flags["address"] is None else read_address(flags["address"])
    identity = Identity(flags["node"], flags["cluster"], 0, INITIAL_FETCH_TIMEOUT)
    section = bootstrap_section(ALL_TYPES, identity, flags, address, settings)
    with spinner(f"importing {file}"):
        catalogue = catalogue_of(settings)
        planner = _planner(file, _read(file, catalogue, is_upgraded=flags["upgrade"]), catalogue)
        connection = XdsConnection.of(flags["transport"], section, planner.cluster_names())
        try:
            plan = planner.plan(connection)
        except ImportLossError as error:
            raise UsageError(f"{escape(file)}: {escape(str(error))}; no file was written") from error
    target = Destination(directory, flags["output"] or directory.absolute().parent / f"bootstrap{plan.suffix}")
    if not flags["force"]:
        target.require_free()
    replaced = () if flags["dry_run"] else write_import(plan, target)
    commands = _commands(target, flags, address, settings)
    imported = Imported(target, plan, replaced, not flags["dry_run"], commands)
    report = _check(imported, settings, catalogue)
    if flags["output_format"] == "json":
        print(json.dumps(_as_json(imported, report), indent=2))
    else:
        _print(imported, report)
    if report.has_failed:
        raise click.exceptions.Exit(FOUND_PROBLEMS)


def _read(file: str, catalogue: Catalogue, *, is_upgraded: bool) -> BootstrapFile:
    path, content = PurePosixPath(file), read_input(file, "give a bootstrap of Envoy")
    rules = field_rules(catalogue, NoCheck())
    text = None
    if (format_of(path) or FORMATS[0]).name in {"yaml", "json"}:
        # The reader rejects other text.
        with suppress(UnicodeDecodeError):
            text = plain_text(content)
    if text is None:
        return read_bootstrap(path, content, catalogue, rules)
    if faults := placeholder_faults(text, file):
        written = Written(catalogue, SourceFile.of(path, content), None)
        return BootstrapFile(None, tuple(written.problems(faults)), written)
    if not is_upgraded:
        return read_bootstrap(path, content, catalogue, rules)
    upgrade = upgraded(text, catalogue)
    for change in upgrade.changes:
        print(escape(f"{file}:{change.line}: {change.before} is {change.after} now"), file=sys.stderr)
    if upgrade.changes:
        # Rewritten JSON is YAML: new keys have no quotes.
        path, content = path.with_suffix(".yaml"), upgrade.text.encode()
    read = read_bootstrap(path, content, catalogue, rules)
    lines = upgrade.lines
    placed = (
        replace(one, path=PurePosixPath(file), line=lines[min(one.line, len(lines)) - 1]) for one in read.problems
    )
    return replace(read, problems=tuple(placed))


def _planner(file: str, read: BootstrapFile, catalogue: Catalogue) -> Planner:
    if has_errors(read.problems) or read.message is None:
        print_problems(read.problems)
        print(f"{escape(file)}: not imported", file=sys.stderr)
        raise click.exceptions.Exit(FOUND_PROBLEMS)
    if not read.message.HasField("static_resources"):
        raise UsageError(f"{escape(file)}: has no static_resources to import; {_instead(read)}")
    return Planner(read, field_rules(catalogue, NoCheck()), catalogue)


def _instead(read: BootstrapFile) -> str:
    bootstrap: Any = read.message
    dynamic = bootstrap.dynamic_resources
    paths = [one.path_config_source.path or one.path for one in (dynamic.lds_config, dynamic.cds_config)]
    directories = sorted({shlex.quote(str(Path(path).parent)) for path in paths if path})
    if directories:
        files = "its listeners and clusters are in files"
        return escape(f"{files}, so their directory is a tree already: `fsxds check {' '.join(directories)}`")
    return "`fsxds bootstrap` prints a bootstrap that asks fsxds"


def _check(imported: Imported, settings: Settings, catalogue: Catalogue) -> Report:
    plan, target = imported.plan, imported.target
    files = [SourceFile.of(path, content) for path, content, _ in plan.contents]
    tree = SourceTree(tuple(sorted(files, key=lambda file: file.path.parts)))
    with tempfile.NamedTemporaryFile(suffix=plan.suffix) as bootstrap:
        bootstrap.write(plan.bootstrap)
        bootstrap.flush()
        settings = replace(settings, bootstrap=Path(bootstrap.name))
        if imported.is_written:
            tree = loading_rules.scan_once(target.directory, settings)
        return check_subject(Subject(str(target.directory), target.directory, tree), Path.cwd(), settings, catalogue)


def _commands(target: Destination, flags: ImportFlags, address: str | None, settings: Settings) -> tuple[str, ...]:
    tree, bootstrap = str(target.directory), _shown(target.bootstrap)
    serve = ["fsxds", "serve", tree, "--bootstrap", bootstrap]
    if flags["transport"] == "files":
        serve += ["--mirror", str(mirror_of(flags, settings)), "--mirror-config-sources"]
    elif address is not None:
        serve += ["--http" if flags["transport"] == "rest" else "--grpc", address]
    check = ["fsxds", "check", tree, "--bootstrap", bootstrap]
    return tuple(escape(shlex.join(words)) for words in (check, serve, ["envoy", "-c", bootstrap]))


def _shown(path: Path) -> str:
    absolute = path.absolute()
    return str(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute)


def _print(imported: Imported, report: Report) -> None:
    plan, target = imported.plan, imported.target
    would_be = "" if imported.is_written else "would be "
    for file in plan.files[:_MOST_LISTED]:
        print(escape(f"{target.directory / file.path}{_OWNED if file.is_secret else ''}"))
    if len(plan.files) > _MOST_LISTED:
        print(f"… and {len(plan.files) - _MOST_LISTED} more")
    for empty in plan.empty:
        print(escape(f"{target.directory / empty.path}"))
    print(escape(f"{_shown(target.bootstrap)}{_OWNED if plan.is_secret else ''}"))
    counts = [
        count_of(number, row.noun.removesuffix("s"))
        for row in (BY_SHORT_NAME[short_name] for short_name in ("lds", "cds", "sds"))
        if (number := sum(file.resource.row is row for file in plan.files))
    ]
    print(
        f"\n{would_be}imported: {', '.join(counts) or 'no resource'}; the bootstrap and the tree together are complete"
    )
    for kept in plan.kept:
        noun = kept.resource.row.noun.removesuffix("s")
        print(escape(f"stays in the bootstrap: {noun} {kept.resource.name}: {kept.reason}"))
    for note in plan.notes:
        print(escape(note))
    for path in imported.replaced:
        print(escape(f"{path}: the previous content"))
    print("file paths in resources are unchanged: Envoy resolves them from the directory in which it starts\n")
    print_report(report, "text")
    print("\nGo on with:\n  " + "\n  ".join(imported.commands))


def _as_json(imported: Imported, report: Report) -> dict[str, object]:
    plan = imported.plan
    return {
        "written": imported.is_written,
        "tree": str(imported.target.directory),
        "bootstrap": str(imported.target.bootstrap),
        "files": [
            {
                "path": str(file.path),
                "type": file.resource.row.short_name,
                "name": file.resource.name,
                "is_secret": file.is_secret,
            }
            for file in plan.files
        ],
        "kept": [
            {"type": one.resource.row.short_name, "name": one.resource.name, "reason": one.reason} for one in plan.kept
        ],
        "notes": list(plan.notes),
        "replaced": [str(path) for path in imported.replaced],
        "problems": json.loads(BY_NAME["json"].write(report)),
        "commands": list(imported.commands),
    }
