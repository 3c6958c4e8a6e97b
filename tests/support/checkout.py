"""A copy of what installs fsxds, and pip for it without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

TOP = Path(__file__).parents[2]
# What a checkout needs for `pip install`, and what others read of it.
PARTS = ("fsxds", "pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml", "docker/action")


def copy_checkout(folder: Path) -> Path:
    """Copy the package, and how it is installed, so that an installation leaves nothing behind here."""
    for name in PARTS:
        source, target = TOP / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return folder


def commit_all(folder: Path) -> str:
    """Make the folder a git repository with one commit, and return its id."""
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")
    return git(folder, "rev-parse", "HEAD")


def git(folder: Path, *arguments: str) -> str:
    """Run git in the folder, as nobody in particular, and return what it prints."""
    who = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def offline_environment(folder: Path) -> dict[str, str]:
    """Return an environment in which pip installs a checkout alone, in a second, with nothing from a network.

    Its dependencies are those of this Python; test_image.py installs them as users do.
    """
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PRE_COMMIT_HOME": str(folder / "pre-commit"),
        # What was read of an Envoy before is not read again.
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_COMPILE": "1",
        # So pip spells `--no-build-isolation`.
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
