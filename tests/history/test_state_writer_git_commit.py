from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fsxds.history.state_writer import commit_of


def git(folder: Path, *arguments: str) -> str:
    """Run git, whatever the user's settings are, and return what it prints."""
    environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    command = ["git", *identity, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with a commit of a folder `xds`."""
    top = tmp_path / "repository"
    (top / "xds").mkdir(parents=True)
    git(top, "init", "-b", "main")
    (top / "xds" / "a.yaml").write_text("[]")
    git(top, "add", ".")
    git(top, "commit", "-m", "first")
    return top


def assert_as_git(folder: Path) -> None:
    """Check that the commit of a folder is what git says."""
    assert commit_of(folder) == git(folder, "rev-parse", "HEAD")


def test_branch(repository: Path) -> None:
    """The commit of the branch, from the top and from below, through a link, and after the next commit."""
    assert_as_git(repository)
    assert_as_git(repository / "xds")
    (repository.parent / "link").symlink_to(repository / "xds")
    assert_as_git(repository.parent / "link")
    git(repository, "commit", "--allow-empty", "-m", "next")
    assert_as_git(repository)


def test_packed_references_and_detached_head(repository: Path) -> None:
    """References that git packed, with and without newer files beside them, and a commit that is checked out by itself."""
    git(repository, "tag", "-a", "v1", "-m", "tag")
    git(repository, "pack-refs", "--all")
    assert not (repository / ".git/refs/heads/main").exists()
    assert_as_git(repository)
    git(repository, "commit", "--allow-empty", "-m", "next")
    assert_as_git(repository)
    git(repository, "checkout", "--detach", "v1")
    assert_as_git(repository)


def test_worktree_and_submodule(repository: Path, tmp_path: Path) -> None:
    """A worktree has its own HEAD and the references of its repository; a submodule is a repository of its own."""
    git(repository, "worktree", "add", "-b", "other", str(tmp_path / "tree"))
    git(tmp_path / "tree", "commit", "--allow-empty", "-m", "other")
    assert_as_git(tmp_path / "tree" / "xds")
    git(repository, "pack-refs", "--all")
    assert_as_git(tmp_path / "tree")
    assert commit_of(tmp_path / "tree") != commit_of(repository)

    git(repository, "submodule", "add", str(repository), "inner")
    git(repository, "commit", "-m", "submodule")
    assert_as_git(repository / "inner" / "xds")


def test_none(tmp_path: Path) -> None:
    """A folder in no repository, a repository without a commit, and one whose references are no files have none."""
    assert commit_of(tmp_path / "nowhere") is None
    git(tmp_path, "init", "-b", "main")
    assert commit_of(tmp_path) is None
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/.invalid\n")
    assert commit_of(tmp_path) is None


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\xff" * 9000,
        b"ref: refs/../../outside\n",
        b"ref: HEAD\n",
        b"ref: refs/heads/a\n",
        b"0123",
        b"x" * 40,
        b"a" * 41,
    ],
)
def test_foreign_repository_leads_nowhere(tmp_path: Path, head: bytes) -> None:
    """What is no reference, is a circle, or leads out of the repository, is no commit."""
    (tmp_path / "outside").write_text("0" * 40)
    heads = tmp_path / ".git" / "refs" / "heads"
    heads.mkdir(parents=True)
    (heads / "a").write_text("ref: refs/heads/a")
    (tmp_path / ".git" / "HEAD").write_bytes(head)

    assert commit_of(tmp_path) is None


def test_pipes_are_not_read(tmp_path: Path) -> None:
    """Nobody waits for who writes to a pipe that stands where git has a file."""
    os.mkfifo(tmp_path / ".git")
    assert commit_of(tmp_path) is None
    (tmp_path / ".git").unlink()
    (tmp_path / ".git").mkdir()
    for name in ("HEAD", "commondir", "packed-refs"):
        os.mkfifo(tmp_path / ".git" / name)
    assert commit_of(tmp_path) is None
