from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fsxds.model.errors import UsageError
from fsxds.model.values import SourceTree
from fsxds.source.listing import Exclusion, TreeBounds
from fsxds.source.scan import Scanner
from fsxds.tools.diff.sides import Range, Repository


def git(directory: Path, *arguments: str) -> str:
    """Run git, independent of the user's configuration."""
    identity = (
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t",
        "-c",
        "commit.gpgsign=false",
        "-c",
        "core.hooksPath=/dev/null",
    )
    command = ["git", "-C", str(directory), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(directory: Path, **texts: str | None) -> str:
    """Write files by their stems, commit all, and return the commit."""
    for stem, text in texts.items():
        path = directory / f"{stem}.yaml"
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
    git(directory, "add", "-A", ".")
    git(directory, "commit", "-q", "-m", "x")
    return git(directory, "rev-parse", "HEAD")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a directory `xds`, which is returned."""
    git(tmp_path, "init", "-q", "-b", "main")
    xds = tmp_path / "xds"
    xds.mkdir()
    return xds


def tree_at(directory: Path, revision: str, max_file_size_bytes: int = 1000) -> SourceTree:
    """Return the tree of a revision, of which YAML is read."""

    def scan(top: Path) -> SourceTree:
        return Scanner(
            top,
            is_read=lambda name: name.endswith(".yaml"),
            exclusion=Exclusion(["excluded*"]),
            bounds=TreeBounds(max_file_size_bytes, follows_outside=True),
        ).scan()

    return Repository(directory).tree_at(revision, scan)


def contents(tree: SourceTree) -> dict[str, str]:
    """Return the files of a tree by their paths."""
    return {str(file.path): file.content.decode() for file in tree.files}


def test_revisions(checkout: Path) -> None:
    """A revision has the files that were committed, whatever is in the work tree now."""
    first = commit(checkout, cds="one", eds="e")
    commit(checkout, cds="two", eds=None)
    (checkout / "cds.yaml").write_text("three")

    assert {"cds.yaml": "one", "eds.yaml": "e"} == contents(tree_at(checkout, first))
    assert {"cds.yaml": "two"} == contents(tree_at(checkout, "HEAD"))


def test_the_repository_is_not_touched(checkout: Path) -> None:
    """What is staged and what is not stays so, and git's own directory gets no file."""
    first = commit(checkout, cds="one")
    commit(checkout, cds="two")
    (checkout / "cds.yaml").write_text("three")
    git(checkout, "add", ".")
    (checkout / "cds.yaml").write_text("four")
    git(checkout, "config", "core.splitIndex", "true")
    before = git(checkout, "status", "--porcelain"), {*(checkout.parent / ".git").rglob("*")}
    tree_at(checkout, first)

    assert before == (git(checkout, "status", "--porcelain"), {*(checkout.parent / ".git").rglob("*")})
    assert "MM xds/cds.yaml" == before[0]


def test_what_is_not_read(checkout: Path) -> None:
    """Names that are passed over, other suffixes and large files are treated as on disk; the rest of the repository is not read."""
    (checkout.parent / "other.yaml").write_text("other")
    (checkout / "README.md").write_text("x")
    (checkout / ".hidden").mkdir()
    (checkout / ".hidden" / "a.yaml").write_text("x")
    (checkout / "excluded.d").mkdir()
    (checkout / "excluded.d" / "a.yaml").write_text("x")
    commit(checkout, cds="x", large="x" * 1001)
    tree = tree_at(checkout, "main")

    assert {"cds.yaml": "x"} == contents(tree)
    assert ["README.md"] == [str(path) for path in tree.ignored]
    assert ["excluded.d"] == [str(path) for path in tree.excluded]
    assert ["large.yaml: file-too-large"] == [f"{problem.path}: {problem.rule}" for problem in tree.problems]


def test_links(checkout: Path) -> None:
    """Links to files and directories are followed within the repository, each directory once; others are problems."""
    shared = checkout.parent / "shared"
    (shared / "deep").mkdir(parents=True)
    (shared / "deep" / "b.yaml").write_text("b")
    (shared / "a.yaml").write_text("a")
    (checkout / "one.yaml").symlink_to("../shared/a.yaml")
    (checkout / "folder").symlink_to("../shared")
    (checkout / "again").symlink_to("../shared/deep")
    (checkout / "all").symlink_to("..")
    (checkout / "gone.yaml").symlink_to("nothing.yaml")
    (checkout / "out.yaml").symlink_to("/etc/hostname")
    (checkout / "circle.yaml").symlink_to("circle.yaml")
    commit(checkout.parent)
    tree = tree_at(checkout, "main")

    assert {"again/b.yaml": "b", "folder/a.yaml": "a", "one.yaml": "a"} == contents(tree)
    assert ["circle.yaml", "gone.yaml", "out.yaml"] == [str(problem.path) for problem in tree.problems]


def test_odd_names(checkout: Path) -> None:
    """Names with spaces, tabs and letters of other languages are names like others."""
    for name in ("a b.yaml", "ä.yaml", "t\tx.yaml"):
        (checkout / name).write_text(name)
    commit(checkout)

    assert {"a b.yaml", "ä.yaml", "t\tx.yaml"} == contents(tree_at(checkout, "main")).keys()


def test_a_directory_that_was_not_there(checkout: Path) -> None:
    """A revision from before the directory has no files in it."""
    first = commit(checkout.parent, top="x")
    commit(checkout, cds="x")

    assert SourceTree(()) == tree_at(checkout, first)


def test_ranges(checkout: Path) -> None:
    """Ranges are read as git reads them; one revision alone is compared with the work tree."""
    start = commit(checkout, cds="0")
    git(checkout, "checkout", "-q", "-b", "topic")
    commit(checkout, cds="1")
    git(checkout, "checkout", "-q", "main")
    commit(checkout, eds="2")
    repository = Repository(checkout)

    assert "xds/" == repository.prefix
    assert Range("main", "topic") == repository.range_of("main..topic")
    assert Range("main", "HEAD") == repository.range_of("main..")
    assert Range("main", None) == repository.range_of("main")
    assert Range(start[:16], "topic") == repository.range_of("main...topic")


@pytest.mark.parametrize("text", ["nosuch", "main..nosuch", "nosuch..main", "--all", "main...nosuch", "main:xds"])
def test_unknown_revisions(checkout: Path, text: str) -> None:
    """What git does not know as a commit is wrong use, in one line."""
    commit(checkout, cds="0")

    with pytest.raises(UsageError) as raised:
        Repository(checkout).range_of(text)

    assert 1 == len(str(raised.value).splitlines())


def test_no_checkout(tmp_path: Path) -> None:
    """A directory outside of any repository is wrong use."""
    with pytest.raises(UsageError, match="is not in a git repository; give a directory of a checkout"):
        Repository(tmp_path)


def test_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git it is said that git is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(UsageError, match="git cannot be run: No such file or directory; install git"):
        Repository(tmp_path)
