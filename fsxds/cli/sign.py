"""`fsxds sign DIR`: writes a manifest and its signature."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TypedDict

import click

from fsxds.cli.running import spinner
from fsxds.cli.subjects import FOUND_PROBLEMS, has_errors, print_problems, writing
from fsxds.events.event import count_of, escape
from fsxds.lint.linter import linter_of
from fsxds.model.errors import UsageError
from fsxds.model.values import MANIFEST, MANIFEST_SIGNATURE, SourceFile
from fsxds.runtime.views import Views
from fsxds.server import loading_rules
from fsxds.server.view_loading import ViewLoader
from fsxds.settings.options import Settings
from fsxds.signing.tree_manifest import ManifestError, TreeManifest, read_manifest, write_manifest

_MOST_KEY_BYTES = 1024 * 1024


class SignFlags(TypedDict):
    """The flags of this command."""

    key: Path
    cert: Path
    password_file: Path | None
    serial: int | None


def run_sign(directory: Path, settings: Settings, flags: SignFlags) -> None:
    """Sign a tree; exit with 1, and write nothing, for a mistake."""
    try:
        # The extra "certificates".
        from fsxds.signing.signatures import Signer
    except ImportError as error:
        raise UsageError("signing needs cryptography; pip install 'fsxds[certificates]'") from error
    now_s = time()
    password = None
    if flags["password_file"] is not None:
        password = _read("--password-file", flags["password_file"]).split(b"\n", 1)[0].removesuffix(b"\r")
    signer = Signer.of(_read("--key", flags["key"]), _read("--cert", flags["cert"]), password, now_s)
    with spinner(f"loading {directory}"):
        tree = loading_rules.scan_once(directory, settings)
        loader = ViewLoader(settings, loading_rules.find_catalogue(settings), linter_of(settings), directory)
        (loaded,) = loader.load((tree,), Views.possible)
    if has_errors(loaded.problems) or not tree.files:
        print_problems(loaded.problems, directory)
        fact = "has mistakes" if tree.files else "has no configuration"
        print(f"{escape(str(directory))} {fact}; not signed", file=sys.stderr)
        raise click.exceptions.Exit(FOUND_PROBLEMS)
    serial = _serial(flags["serial"], tree.signed.manifest, now_s)
    made = f"{datetime.fromtimestamp(now_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
    resources = (row for view in loaded.served.values() for rows in view.by_type.values() for row in rows.values())
    manifest = TreeManifest.of(serial, made, tree.files, resources)
    content = write_manifest(manifest)
    _write(directory, {MANIFEST_SIGNATURE: signer.sign(content), MANIFEST: content})
    counts = count_of(len(manifest.files), "file"), count_of(sum(map(len, manifest.resources.values())), "resource")
    print(escape(f"{directory}: {' and '.join(counts)} signed by {signer.name}, serial {serial}"))


def _serial(given: int | None, before: SourceFile | None, now_s: float) -> int:
    """Normally the time; the previous manifest's clock may be ahead."""
    try:
        newest = 0 if before is None else read_manifest(before.content).serial
    except ManifestError:
        newest = 0
    if given is None:
        return max(int(now_s), newest + 1)
    if given <= newest:
        fact = f"--serial: {given} is not more than {newest}, that of the manifest that is there"
        raise UsageError(f"{fact}; give a larger one, or leave it out")
    return given


def _read(flag: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_KEY_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{flag}: {path}: cannot be read: {error.strerror}; give another file") from error
    if len(content) > _MOST_KEY_BYTES:
        raise UsageError(f"{flag}: {path}: is larger than {_MOST_KEY_BYTES} bytes; give a file in PEM")
    return content


def _write(directory: Path, contents: dict[str, bytes]) -> None:
    """Between the two replacements, a reader finds a wrong signature, and accepts neither."""
    with writing(directory, "make it writable, and sign again"):
        for name, content in contents.items():
            with (directory / f"{name}.tmp").open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for name in contents:
            (directory / f"{name}.tmp").replace(directory / name)
