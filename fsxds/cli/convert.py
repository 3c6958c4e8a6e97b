"""`fsxds convert FILE --to FORMAT`: converts without loss."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath
from typing import TypedDict

import click

from fsxds.cli.subjects import FOUND_PROBLEMS, has_errors, print_problems, read_input, writing
from fsxds.events.event import escape
from fsxds.formats import FORMATS, Format, format_of
from fsxds.formats.yaml_format import require_libyaml
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_SHORT_NAME, type_from_path
from fsxds.model.values import SourceFile, pointer_of
from fsxds.server import loading_rules
from fsxds.settings.options import Settings
from fsxds.tools.conversion import (
    ConversionLossError,
    ConversionReader,
    ConversionWriter,
    NotOneResponseError,
    has_comments,
)

# By the names of `--to`.
BY_NAME = {"pb" if row.name == "binary" else row.name: row for row in FORMATS}


class ConvertFlags(TypedDict):
    """The flags; None if not given."""

    target: str | None
    source: str | None
    type_name: str | None
    output: Path | None


def run_convert(file: str, settings: Settings, flags: ConvertFlags) -> None:
    """Convert a file; exit with 1 for problems."""
    require_libyaml()
    path = PurePosixPath(file)
    source = _format(flags["source"], path, "--from")
    target = _format(flags["target"], PurePosixPath(flags["output"] or ""), "--to")
    hint = BY_SHORT_NAME[flags["type_name"]] if flags["type_name"] else type_from_path(path)
    content = read_input(file, "give a file of resources, or - for stdin")
    catalogue = loading_rules.find_catalogue(settings)
    read = ConversionReader(catalogue).read(SourceFile.of(path, content), source, hint)
    print_problems(read.problems)
    if has_errors(read.problems):
        raise click.exceptions.Exit(FOUND_PROBLEMS)
    try:
        converted = ConversionWriter(catalogue).write(read.parts, target, hint)
    except NotOneResponseError as error:
        fact = "its documents have different versions, or one has no resource of a type"
        remedy = "convert them one by one, or --to yaml"
        raise UsageError(f"{path}: {fact}, so they are not one DiscoveryResponse; {remedy}") from error
    except ConversionLossError as error:
        name = next(name for name, row in BY_NAME.items() if row is target)
        where = f"{pointer_of(error.field_path)}: " if error.field_path else ""
        others = " or ".join(f"--to {other}" for other in BY_NAME if other != name)
        raise UsageError(f"{path}: {where}{name} cannot hold this{_REASONS.get(name, '')}; use {others}") from error
    for note in (converted.note, "comments are not kept" if has_comments(content, source.name) else ""):
        if note:
            print(f"{escape(file)}: {note}", file=sys.stderr)
    _print(converted.content, flags["output"], target)


def _format(name: str | None, path: PurePosixPath, flag: str) -> Format:
    row = BY_NAME[name] if name else format_of(path)
    if row is None:
        raise click.UsageError(f"no name tells the format; give {flag} {'|'.join(BY_NAME)}")
    return row


_REASONS = {
    "yaml": " (in YAML a number within a Struct is one to Envoy only when it is whole and of 32 bits)",
    "json": " (JSON has no NaN and no infinity within a Struct)",
}


def _print(content: bytes, output: Path | None, target: Format) -> None:
    if output is None:
        if target is BY_NAME["pb"] and sys.stdout.isatty():
            raise UsageError("a terminal cannot show binary; give -o FILE")
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    with writing(output, "give another file"):
        output.write_bytes(content)
