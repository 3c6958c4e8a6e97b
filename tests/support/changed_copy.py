"""A copy of fsxds with a few lines more, which processes that a test starts import: to see what an addition takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]


class ChangedCopy:
    """The package `fsxds` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.site = folder / "site"
        shutil.copytree(TOP / "fsxds", self.site / "fsxds", ignore=shutil.ignore_patterns("__pycache__"))

    def write(self, path: str, text: str) -> None:
        """Write a new module, and its package where there is none."""
        target = self.site / "fsxds" / path
        assert not target.exists()
        target.parent.mkdir(exist_ok=True)
        (target.parent / "__init__.py").touch()
        target.write_text(text, encoding="utf-8")

    def insert(self, path: str, before: str, text: str) -> None:
        """Put lines before the one place where `before` stands."""
        target = self.site / "fsxds" / path
        content = target.read_text(encoding="utf-8")
        assert content.count(before) == 1, f"{before!r} in {path}"
        target.write_text(content.replace(before, text + before), encoding="utf-8")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `fsxds` of the copy to its end, and return what it wrote."""
        argv = [sys.executable, "-m", "fsxds", *arguments]
        # `python -m` looks into the current directory first.
        environment = {**os.environ, "PYTHONPATH": str(self.site)}
        return subprocess.run(argv, cwd=self.site, env=environment, capture_output=True, text=True, check=False)
