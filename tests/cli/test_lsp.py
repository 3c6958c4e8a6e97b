"""`fsxds lsp` as a command; what the server does is tested in `tests/editor`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
RUN = "import sys; sys.modules[{missing!r}] = None; from fsxds.cli.main import main; sys.exit(main(['lsp']))"


@pytest.mark.parametrize("missing", ["pygls", "lsprotocol"])
def test_without_the_extra(missing: str) -> None:
    """Where pygls is not installed, the command names the extra that has it."""
    command = [sys.executable, "-c", RUN.format(missing=missing)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=TOP, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"fsxds: lsp needs {missing}: pip install 'fsxds[editor]'\n"
