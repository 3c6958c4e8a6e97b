"""`fsxds convert FILE --to FORMAT`: the same messages in another format, and nothing lost."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypedDict

import click

from fsxds import reload
from fsxds.cli.problems import has_errors, line_of
from fsxds.errors import UsageError
from fsxds.formats import FORMATS, Format, format_of
from fsxds.formats.libyaml import require_libyaml
from fsxds.observe.log_lines import escape
from fsxds.resource_types import BY_SHORT_NAME, ResourceType, type_from_path
from fsxds.settings.options import Settings
from fsxds.tools.convert import (
    ConversionLossError,
    ConversionReader,
    ConversionWriter,
    ConvertedFile,
    NotOneResponseError,
    Part,
    has_comments,
)
from fsxds.values import SourceFile, pointer_of

FOUND_PROBLEMS = 1
STDIN = "-"

# As `--to` names them.
BY_NAME = {"pb" if row.name == "binary" else row.name: row for row in FORMATS}


class ConvertFlags(TypedDict):
    """The flags of the command: names of formats and of a type, None where they were not given."""

    target: str | None
    source: str | None
    type_name: str | None
    output: Path | None


def run_convert(file: str, settings: Settings, flags: ConvertFlags) -> None:
    """Write a file in another format; exit with 1 where it has problems."""
    require_libyaml()
    request = _Request(PurePosixPath(file), flags)
    content = _read(file)
    catalogue = reload.find_catalogue(settings)
    source_file = SourceFile.of(request.path, content)
    read = ConversionReader(catalogue).read(source_file, request.source_format, request.hint)
    for problem in read.problems:
        print(line_of(problem), file=sys.stderr)
    if has_errors(read.problems):
        raise click.exceptions.Exit(FOUND_PROBLEMS)
    converted = _write(ConversionWriter(catalogue), read.parts, request)
    for note in (converted.note, _note_on_comments(content, request.source_format)):
        if note:
            print(f"{escape(file)}: {note}", file=sys.stderr)
    _print(converted.content, request)


@dataclass(frozen=True, slots=True)
class _Request:
    """What was asked for."""

    path: PurePosixPath
    flags: ConvertFlags

    @property
    def source_format(self) -> Format:
        """The format to read."""
        return self._format(self.flags["source"], self.path, "--from")

    @property
    def target_format(self) -> Format:
        """The format to write."""
        return self._format(self.flags["target"], PurePosixPath(self.flags["output"] or ""), "--to")

    @property
    def hint(self) -> ResourceType | None:
        """The type of resources that do not tell their own."""
        type_name = self.flags["type_name"]
        return BY_SHORT_NAME[type_name] if type_name else type_from_path(self.path)

    def _format(self, name: str | None, path: PurePosixPath, flag: str) -> Format:
        row = BY_NAME[name] if name else format_of(path)
        if row is None:
            raise click.UsageError(f"no name tells the format; give {flag} {'|'.join(BY_NAME)}")
        return row


def _read(file: str) -> bytes:
    if file == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from error


def _write(writer: ConversionWriter, parts: Sequence[Part], request: _Request) -> ConvertedFile:
    """Return the file; UsageError where the format has no words for what is in it."""
    row = request.target_format
    name = next(name for name, other in BY_NAME.items() if other is row)
    try:
        return writer.write(parts, row, request.hint)
    except NotOneResponseError as error:
        fact = (
            "its documents have different versions, or one has nothing of a type, so they are not one DiscoveryResponse"
        )
        raise UsageError(f"{request.path}: {fact}; convert them one by one, or --to yaml") from error
    except ConversionLossError as error:
        where = f"{pointer_of(error.field_path)}: " if error.field_path else ""
        others = " or ".join(f"--to {other}" for other in BY_NAME if other != name)
        raise UsageError(f"{request.path}: {where}{name} cannot hold this{_why(name)}; use {others}") from error


def _why(name: str) -> str:
    reasons = {
        "yaml": " (in YAML a number within a Struct is one to Envoy only when it is whole and of 32 bits)",
        "json": " (JSON has no NaN and no infinity within a Struct)",
    }
    return reasons.get(name, "")


def _note_on_comments(content: bytes, source_format: Format) -> str:
    return "comments are not kept" if has_comments(content, source_format.name) else ""


def _print(content: bytes, request: _Request) -> None:
    output = request.flags["output"]
    if output is None:
        if request.target_format is BY_NAME["pb"] and sys.stdout.isatty():
            raise UsageError("binary is nothing for a terminal; give -o FILE")
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{output}: cannot be written: {error.strerror}") from error
