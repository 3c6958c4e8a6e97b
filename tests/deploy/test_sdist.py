"""The source distribution, which setuptools makes of a checkout."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

from tests.support.checkout import copy_checkout


def test_it_has_no_tests(tmp_path: Path) -> None:
    """It has the package and nothing of tests/, of which some files alone would not run."""
    checkout = copy_checkout(tmp_path / "checkout")
    (checkout / "tests").mkdir()
    (checkout / "tests" / "test_one.py").write_text("")
    make = f"from setuptools.build_meta import build_sdist; build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", make], cwd=checkout, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        files = [name.partition("/")[2] for name in archive.getnames()]

    assert "fsxds/cli/main.py" in files
    assert [] == [name for name in files if name.startswith("tests")]
