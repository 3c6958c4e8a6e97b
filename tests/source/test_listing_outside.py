"""Links that lead out of the tree, and trees with too many files: what is read, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsxds.model.values import SourceTree
from fsxds.source.listing import BOUNDS, TreeBounds
from fsxds.source.scan import Scanner, read_file
from tests.source.watching import contents_of, is_read, point, write


def scan(root: Path, bounds: TreeBounds = BOUNDS) -> SourceTree:
    """Read a tree once."""
    return Scanner(root, is_read=is_read, bounds=bounds).scan()


def rules_of(tree: SourceTree) -> list[tuple[str, str]]:
    """Return the paths and rules of all problems."""
    return [(str(problem.path), problem.rule) for problem in tree.problems]


@pytest.mark.parametrize("target", ["../secret/a.yaml", "{outside}/a.yaml", "in/../../secret/a.yaml", "hop", "near"])
def test_a_file_outside_is_not_read(tmp_path: Path, target: str) -> None:
    """However the link leads there; a directory beside the tree whose name begins with the tree's is outside of it."""
    write(tmp_path, {"secret/a.yaml": "secret", "tree-2/a.yaml": "secret", "tree/in/b.yaml": "1"})
    (tmp_path / "tree/hop").symlink_to("../secret/a.yaml")
    (tmp_path / "tree/near").symlink_to("../tree-2/a.yaml")
    (tmp_path / "tree/link.yaml").symlink_to(target.format(outside=tmp_path / "secret"))
    tree = scan(tmp_path / "tree")

    assert contents_of(tree) == {"in/b.yaml": "1"}
    assert rules_of(tree) == [("link.yaml", "outside-link")]
    assert "`follow_outside: true`" in tree.problems[0].remedy


def test_a_directory_outside_is_not_walked(tmp_path: Path) -> None:
    """Nor is one that a link behind a link in the tree leads to; a link to what holds the tree adds nothing."""
    write(tmp_path, {"secret/a.yaml": "secret", "tree/in/b.yaml": "1"})
    (tmp_path / "tree/edge").symlink_to("../secret")
    (tmp_path / "tree/in/deep").symlink_to("../edge")
    (tmp_path / "tree/up").symlink_to("..")
    (tmp_path / "tree/top").symlink_to("/")
    tree = scan(tmp_path / "tree")

    assert contents_of(tree) == {"in/b.yaml": "1"}
    assert rules_of(tree) == [("edge", "outside-link"), ("in/deep", "outside-link")]


def test_links_are_followed_where_that_is_allowed(tmp_path: Path) -> None:
    """`follow_outside` reads what they lead to."""
    write(tmp_path, {"shared/a.yaml": "a", "tree/b.yaml": "b"})
    (tmp_path / "tree/edge").symlink_to("../shared")
    (tmp_path / "tree/c.yaml").symlink_to(tmp_path / "shared/a.yaml")
    tree = scan(tmp_path / "tree", TreeBounds(follows_outside=True))

    assert contents_of(tree) == {"b.yaml": "b", "c.yaml": "a", "edge/a.yaml": "a"}
    assert tree.problems == ()


def test_the_layouts_of_kubernetes_and_git_sync_need_no_permission(tmp_path: Path) -> None:
    """Files reached through `..data`, a ConfigMap mounted within the tree, and a tree that is a link itself, are inside."""
    for mount in (tmp_path / "volume", tmp_path / "volume/edge"):
        write(mount / "..2026_11", {"cds.yaml": "1"})
        point(mount / "..data", "..2026_11")
        (mount / "cds.yaml").symlink_to("..data/cds.yaml")
    write(tmp_path / "git/.worktrees/abc", {"config/cds.yaml": "2", "config/common/eds.yaml": "2"})
    (tmp_path / "git/.worktrees/abc/config/edge").symlink_to("common")
    point(tmp_path / "git/current", ".worktrees/abc")
    volume, git = scan(tmp_path / "volume"), scan(tmp_path / "git/current/config")

    assert contents_of(volume) == {"cds.yaml": "1", "edge/cds.yaml": "1"}
    assert contents_of(git) == {"cds.yaml": "2", "common/eds.yaml": "2"}
    assert volume.problems == git.problems == ()


def test_what_was_read_stays_when_a_link_is_turned_outside(tmp_path: Path) -> None:
    """The file's last content is neither replaced nor gone: the problem is at its path."""
    write(tmp_path, {"secret.yaml": "secret", "tree/a.yaml": "1"})
    scanner = Scanner(tmp_path / "tree", is_read=is_read)
    scanner.scan()
    (tmp_path / "tree/a.yaml").unlink()
    (tmp_path / "tree/a.yaml").symlink_to("../secret.yaml")
    tree = scanner.scan()

    assert "secret" not in contents_of(tree).values()
    assert rules_of(tree) == [("a.yaml", "outside-link")]


def test_a_file_that_turns_into_a_link_is_not_followed(tmp_path: Path) -> None:
    """Between the look and the read, too."""
    write(tmp_path, {"secret.yaml": "secret"})
    (tmp_path / "a.yaml").symlink_to("secret.yaml")

    assert read_file(str(tmp_path / "a.yaml"), 1000) is None


def test_a_directory_that_turns_into_a_file_takes_its_files_along(tmp_path: Path) -> None:
    """Between the look and the read, too: no error of reading is reported."""
    write(tmp_path, {"a": "1"})

    assert read_file(str(tmp_path / "a/b.yaml"), 1000) is None


def test_too_many_files_keep_the_tree_as_it_was(tmp_path: Path) -> None:
    """Edits are not taken in either, until there are few enough; the problem names a file and the option."""
    write(tmp_path, {"a.yaml": "1", "b.yaml": "1"})
    scanner = Scanner(tmp_path, is_read=is_read, bounds=TreeBounds(max_files=3))
    scanner.scan()
    write(tmp_path, {"c.yaml": "1"})
    over = scanner.scan()
    write(tmp_path, {"a.yaml": "2"})
    edited = scanner.look_at([str(tmp_path / "a.yaml")])
    again = scanner.scan()
    (tmp_path / "b.yaml").unlink()
    after = scanner.scan()

    assert contents_of(over) == contents_of(again) == {"a.yaml": "1", "b.yaml": "1"}
    assert edited is None
    assert [(problem.rule, "max_files" in problem.remedy) for problem in over.problems] == [("too-many-files", True)]
    assert contents_of(after) == {"a.yaml": "2", "c.yaml": "1"}
    assert after.problems == ()


def test_a_look_at_too_many_files_has_the_paths_of_its_tree(tmp_path: Path) -> None:
    """A watcher asks for the path of each file, also of one that was not listed again."""
    write(tmp_path, {f"{number}/a.yaml": "1" for number in range(3)})
    scanner = Scanner(tmp_path, is_read=is_read, bounds=TreeBounds(max_files=7))
    scanner.scan()
    write(tmp_path, {f"{number}.yaml": "1" for number in range(7)})
    look = scanner.look()

    assert {str(file.path): look.paths.get(str(file.path)) for file in look.tree.files} == {
        f"{number}/a.yaml": str(tmp_path / f"{number}/a.yaml") for number in range(3)
    }


def test_one_more_file_by_an_event_is_too_many_as_well(tmp_path: Path) -> None:
    """A look at one file leaves it to a look at all."""
    write(tmp_path, {"a.yaml": "1"})
    scanner = Scanner(tmp_path, is_read=is_read, bounds=TreeBounds(max_files=2))
    scanner.scan()
    write(tmp_path, {"b.yaml": "1"})

    assert scanner.look_at([str(tmp_path / "b.yaml")]) is None


def test_directories_count(tmp_path: Path) -> None:
    """Each takes a watch; a first tree that is too large has no files at all."""
    for number in range(5):
        (tmp_path / f"d{number}").mkdir()
    tree = scan(tmp_path, TreeBounds(max_files=3))

    assert tree.files == ()
    assert [problem.rule for problem in tree.problems] == ["too-many-files"]
