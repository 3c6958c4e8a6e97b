"""Say that nothing in a directory is configuration, where a command goes on all the same."""

from __future__ import annotations

import sys
from pathlib import Path

from fsxds.operations.log_lines import escape
from fsxds.snapshots.load import Loaded


def tell_if_empty(directory: Path, loaded: Loaded) -> None:
    """Tell on stderr that no file of a tree is configuration: most often another directory was meant."""
    if not loaded.records:
        print(f"{escape(str(directory))}: no file in this directory is configuration", file=sys.stderr)
