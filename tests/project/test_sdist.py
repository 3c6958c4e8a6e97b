"""The source distribution."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

from tests.support.checkout import TOP, copy_checkout, offline_environment


def test_it_has_the_package_and_no_tests(tmp_path: Path) -> None:
    """It has all modules of fsxds; tests are run from a checkout, which has their data."""
    checkout = copy_checkout(tmp_path / "checkout")
    (checkout / "tests").symlink_to(TOP / "tests")
    code = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    environment = offline_environment(tmp_path)
    subprocess.run(
        [sys.executable, "-c", code, tmp_path], cwd=checkout, env=environment, check=True, capture_output=True
    )
    (packed,) = tmp_path.glob("fsxds-*.tar.gz")
    with tarfile.open(packed) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {str(path.relative_to(TOP)) for path in (TOP / "fsxds").rglob("*.py")} <= names
    assert [] == [name for name in names if name.startswith("tests")]
