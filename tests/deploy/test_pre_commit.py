"""The hook, run by pre-commit itself, as a repository that uses it does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.checkout import TOP, commit_all, copy_checkout, git, offline_environment

GOOD = "resources: [{name: a, type: STATIC, connect_timeout: 1s}]\n"
BAD = "resources: [{name: a, type: STATIC, conect_timeout: 1s}]\n"


class Repository:
    """A repository with a tree of configuration, and a pre-commit that has the hook from a copy of this checkout."""

    def __init__(self, folder: Path) -> None:
        hooks = copy_checkout(folder / "hooks")
        revision = commit_all(hooks)
        self.folder = folder / "repository"
        self.tree = self.folder / "envoy"
        self.tree.mkdir(parents=True)
        self.write("clusters.yaml", GOOD)
        hook = {"id": "fsxds-check", "args": ["envoy", "--no-envoy", "--severity", "warning"]}
        config = {"repos": [{"repo": f"file://{hooks}", "rev": revision, "hooks": [hook]}]}
        (self.folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
        commit_all(self.folder)
        self._environment = offline_environment(folder)

    def write(self, name: str, text: str) -> None:
        """Write a file of the tree, and add it to the next commit."""
        (self.tree / name).write_text(text)
        if (self.folder / ".git").exists():
            git(self.folder, "add", "--all")

    def run(self) -> tuple[int, str]:
        """Run the hooks on what is added, as `git commit` does; return the status and what is printed."""
        command = [sys.executable, "-m", "pre_commit", "run", "--color=never"]
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment, check=False, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The repository; its hook is installed once."""
    return Repository(tmp_path_factory.mktemp("pre-commit"))


def test_good_tree_passes(repository: Repository) -> None:
    """The hook is installed from the checkout, and lets a commit pass."""
    repository.write("clusters.yaml", GOOD.replace("1s", "2s"))
    status, printed = repository.run()

    assert (0, True) == (status, "fsxds check" in printed and "Passed" in printed), printed


def test_mistake_stops_the_commit_with_its_place(repository: Repository) -> None:
    """The message is that of `fsxds check`, with file, line and column."""
    repository.write("clusters.yaml", BAD)
    status, printed = repository.run()
    repository.write("clusters.yaml", GOOD)

    assert (1, True) == (status, "envoy/clusters.yaml:1:37: error[unknown-field]" in printed), printed


def test_commit_that_only_removes_files_is_checked(repository: Repository) -> None:
    """Removing a cluster breaks what names it, though no file is left to pass to the hook."""
    repository.write("listeners.yaml", (TOP / "tests/deploy/data/tcp-listener.yaml").read_text())
    repository.write("other.clusters.yaml", GOOD.replace("name: a", "name: b"))
    git(repository.folder, "commit", "--quiet", "--no-verify", "--message", "a listener")
    git(repository.folder, "rm", "--quiet", "envoy/clusters.yaml")
    status, printed = repository.run()

    assert (1, True) == (status, "no-cluster" in printed), printed


def test_hook_is_of_the_form_that_pre_commit_reads() -> None:
    """`pre-commit validate-manifest` accepts it."""
    manifest = str(TOP / ".pre-commit-hooks.yaml")
    command = [sys.executable, "-m", "pre_commit", "validate-manifest", manifest]

    assert 0 == subprocess.run(command, check=False).returncode
