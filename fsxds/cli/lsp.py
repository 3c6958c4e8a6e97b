"""`fsxds lsp [DIR]`: the language server, by stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import BinaryIO

import click

from fsxds.lint.linter import linter_of
from fsxds.model.errors import UsageError
from fsxds.observe.log import open_log
from fsxds.runtime.supervisor import AbandonedThreads
from fsxds.server import loading_rules
from fsxds.settings.options import Settings

try:
    from fsxds.editor.language_server import ServerSetup, TreeServer
except ModuleNotFoundError as error:
    package = (error.name or "").partition(".")[0]
    if package == "fsxds":
        raise
    raise UsageError(f"lsp needs {package}: pip install 'fsxds[editor]'") from error


def run_lsp(directory: Path | None, settings: Settings) -> None:
    """Serve one editor until it closes or exits."""
    # stdout is for the protocol alone; all other output goes to stderr.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with output, open_log("human", "warning") as log:
        catalogue = loading_rules.find_catalogue(settings)
        setup = ServerSetup(directory, settings, catalogue, linter_of(settings), log.receive)
        try:
            # Not by `server/event_loop.py`, whose support for thousands of clients takes longer to import than all of
            # this.
            with asyncio.Runner() as runner:
                runner.get_loop().set_default_executor(AbandonedThreads())
                runner.run(_serve(setup, output))
        except SystemExit as ended:
            raise click.exceptions.Exit(ended.code if isinstance(ended.code, int) else 1) from None


async def _serve(setup: ServerSetup, output: BinaryIO) -> None:
    await TreeServer(setup).serve(sys.stdin.buffer, output)
