from __future__ import annotations

import dataclasses
import os
import socket
import threading
from pathlib import Path, PurePosixPath

import pytest

from fsxds.model.errors import TreeLost
from fsxds.model.values import SourceFile, SourceTree
from fsxds.source.listing import Exclusion, TreeBounds, TreeListing, signature_of
from fsxds.source.scan import FileContent, Scanner, read_file
from tests.source.watching import contents_of, is_read, point, write


def scanner_of(root: Path, max_file_size_bytes: int = 1000) -> Scanner:
    return Scanner(root, is_read=is_read, bounds=TreeBounds(max_file_size_bytes, follows_outside=True))


def rules_of(tree: SourceTree) -> list[tuple[str, str]]:
    return [(str(problem.path), problem.rule) for problem in tree.problems]


def test_files_come_sorted_by_path_with_their_content(tmp_path: Path) -> None:
    """A tree holds every file that is to be read, by its path relative to the root, sorted as paths are."""
    write(tmp_path, {"b.yaml": "b", "a/z.yaml": "z", "a.json": "{}", "a/b/c.yaml": "c", "a-b.yaml": "-"})
    tree = scanner_of(tmp_path).scan()

    paths = [file.path for file in tree.files]
    assert paths == sorted(paths)
    assert contents_of(tree) == {"a-b.yaml": "-", "a.json": "{}", "a/b/c.yaml": "c", "a/z.yaml": "z", "b.yaml": "b"}
    assert tree.files[0] == SourceFile.of(PurePosixPath("a/b/c.yaml"), b"c")
    assert (tree.problems, tree.ignored) == ((), ())


def test_names_that_are_passed_over(tmp_path: Path) -> None:
    """Hidden and temporary files and directories leave no trace; files of unknown suffixes are listed as ignored."""
    quiet = [
        ".a.yaml",
        "..a.yaml",
        "a.yaml~",
        "a.swp",
        "a.yaml.tmp",
        "4913",
        "#a.yaml#",
        ".git/b.yaml",
        "..data/b.yaml",
    ]
    write(tmp_path, dict.fromkeys([*quiet, "README", "docs/notes.txt", "a.yaml.bak"], "x"))
    tree = scanner_of(tmp_path).scan()

    assert tree == SourceTree((), (), tuple(map(PurePosixPath, ("README", "a.yaml.bak", "docs/notes.txt"))))


def test_what_is_excluded_is_neither_read_nor_ignored(tmp_path: Path) -> None:
    """Names are excluded at any depth, with all that is below them, and paths from the top; links by their own names."""
    wanted = {"a.yaml": "a", "edge/values.yaml": "e", "deep/charts/x/values.yaml": "d"}
    excluded = ["README.txt", "edge/README.yaml", "node_modules/m.yaml", "charts/x/y/values.yaml", "only/this.yaml"]
    write(tmp_path, wanted | dict.fromkeys(excluded, "x"))
    (tmp_path / "edge/node_modules").symlink_to("nowhere")
    exclusion = Exclusion(["README*", "node_modules/", "charts/**/values.yaml", "./only/*.yaml"])
    scanner = Scanner(tmp_path, is_read=is_read, exclusion=exclusion)
    tree = scanner.scan()

    assert contents_of(tree) == wanted
    assert (tree.problems, tree.ignored) == ((), ())
    assert sorted(map(str, tree.excluded)) == sorted(
        [*excluded[:2], "node_modules", "edge/node_modules", *excluded[3:]]
    )


def test_a_missing_root_is_lost(tmp_path: Path) -> None:
    """A root that does not exist raises, naming it, and so does one that is a file."""
    (tmp_path / "file").write_text("")

    with pytest.raises(TreeLost, match="gone: the directory does not exist; create it"):
        scanner_of(tmp_path / "gone").scan()
    with pytest.raises(TreeLost, match="file: the directory is not a directory"):
        scanner_of(tmp_path / "file").scan()


def test_an_unchanged_tree_is_the_same_value(tmp_path: Path) -> None:
    """A second scan of an unchanged tree returns the very same value, and touching a file does not change it."""
    write(tmp_path, {"a.yaml": "1", "notes.txt": ""})
    scanner = scanner_of(tmp_path)
    first = scanner.scan()
    (tmp_path / "a.yaml").touch()
    second = scanner.scan()

    assert second is first


def test_only_the_changed_file_is_a_new_value(tmp_path: Path) -> None:
    """Files that did not change keep their values when others do."""
    write(tmp_path, {"a.yaml": "1", "b.yaml": "1"})
    scanner = scanner_of(tmp_path)
    before = scanner.scan()
    write(tmp_path, {"b.yaml": "2"})
    after = scanner.scan()

    assert contents_of(after) == {"a.yaml": "1", "b.yaml": "2"}
    assert after.files[0] is before.files[0]


def test_a_young_file_is_compared_by_content(tmp_path: Path) -> None:
    """A change that leaves size, inode and time of modification as they were is seen while the file is young."""
    path = tmp_path / "a.yaml"
    path.write_text("1")
    scanner = scanner_of(tmp_path)
    scanner.scan()
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_text("2")
    os.utime(path, ns=times)

    assert contents_of(scanner.scan()) == {"a.yaml": "2"}


def test_a_signature_proves_nothing_of_a_young_file(tmp_path: Path) -> None:
    """Where two writes within a tick of the clock left one signature, the second is found by reading again."""
    path = tmp_path / "a.yaml"
    path.write_text("1")
    scanner = scanner_of(tmp_path)
    scanner.scan()
    path.write_text("2")
    # No filesystem can be made to do it here, so the memory is made to look as if one had.
    remembered = scanner._seen["a.yaml"]
    scanner._seen["a.yaml"] = dataclasses.replace(remembered, signature=signature_of(path.stat()))

    assert remembered.is_racy
    assert contents_of(scanner.scan()) == {"a.yaml": "2"}


def test_the_signature_of_an_old_file_is_trusted() -> None:
    """A file that nobody touched for a while needs no second reading."""
    outcome = read_file(os.__file__, 10_000_000)

    assert isinstance(outcome, FileContent)
    assert not outcome.is_racy


def test_a_walk_knows_when_it_is_no_longer_true(tmp_path: Path) -> None:
    """A link that flips, or a root that is replaced, makes what was listed a thing of the past."""
    write(tmp_path, {"1/a.yaml": "1", "2/a.yaml": "2"})
    (tmp_path / "root").symlink_to("1")
    walk = TreeListing(f"{tmp_path}/root", is_read, ())
    untouched = walk.is_still_true()
    point(tmp_path / "root", "2")
    flipped = walk.is_still_true()
    point(tmp_path / "root", "1")
    flipped_back = walk.is_still_true()
    (tmp_path / "1").rename(tmp_path / "3")
    (tmp_path / "2").rename(tmp_path / "1")

    assert (untouched, flipped, flipped_back, walk.is_still_true()) == (True, False, True, False)


def test_what_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    """Too large files, links to nowhere or in a circle, and things that are no files are problems with a remedy."""
    write(tmp_path, {"good.yaml": "1", "large.yaml": "x" * 1001})
    (tmp_path / "broken.yaml").symlink_to("nowhere")
    (tmp_path / "circle.yaml").symlink_to("circle.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.yaml"))
    (tmp_path / "null.yaml").symlink_to("/dev/null")
    tree = scanner_of(tmp_path).scan()

    assert contents_of(tree) == {"good.yaml": "1"}
    assert rules_of(tree) == [
        ("broken.yaml", "broken-link"),
        ("circle.yaml", "broken-link"),
        ("large.yaml", "file-too-large"),
        ("null.yaml", "not-a-file"),
        ("pipe.yaml", "not-a-file"),
        ("socket.yaml", "not-a-file"),
    ]
    assert [str(problem) for problem in tree.problems if problem.rule != "broken-link"] == [
        "large.yaml:1:1: error: the file has 1001 bytes, more than the 1000 that are read; split it, or raise the setting max_file_size",
        "null.yaml:1:1: error: this is a device, not a file; put a regular file in its place",
        "pipe.yaml:1:1: error: this is a named pipe, not a file; put a regular file in its place",
        "socket.yaml:1:1: error: this is a socket, not a file; put a regular file in its place",
    ]


def test_what_would_not_be_read_anyway_is_no_problem(tmp_path: Path) -> None:
    """Pipes, large files and broken links whose names no format claims are ignored like any other."""
    write(tmp_path, {"large.txt": "x" * 1001})
    (tmp_path / "broken.txt").symlink_to("nowhere")
    (tmp_path / ".#a.yaml").symlink_to("user@host.1:2")
    os.mkfifo(tmp_path / "pipe")
    tree = scanner_of(tmp_path).scan()

    assert (rules_of(tree), [str(path) for path in tree.ignored]) == ([], ["broken.txt", "large.txt", "pipe"])


def test_a_name_that_is_no_text_is_a_problem(tmp_path: Path) -> None:
    """A name that is not UTF-8 cannot be shown to anybody as it is, so it is a problem, shown with its bytes."""
    (tmp_path / os.fsdecode(b"a\xff.yaml")).write_text("1")
    (tmp_path / os.fsdecode(b"d\xfe")).mkdir()
    tree = scanner_of(tmp_path).scan()

    assert rules_of(tree) == [("a\\xff.yaml", "unreadable-name"), ("d\\xfe", "unreadable-name")]
    assert tree.files == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to root")
def test_files_and_directories_without_permission_are_problems(tmp_path: Path) -> None:
    """Files below a directory that became unreadable are named, since nobody knows whether they are gone."""
    write(tmp_path, {"a.yaml": "1", "d/b.yaml": "2"})
    scanner = scanner_of(tmp_path)
    scanner.scan()
    (tmp_path / "a.yaml").chmod(0)
    (tmp_path / "d").chmod(0)
    tree = scanner.scan()
    (tmp_path / "d").chmod(0o755)

    assert rules_of(tree) == [("a.yaml", "unreadable-file"), ("d", "unreadable-file"), ("d/b.yaml", "unreadable-file")]


def test_files_below_a_lost_directory_are_named_until_it_is_back(tmp_path: Path) -> None:
    """A linked directory that is away names its files as problems in every scan, and its content returns with it."""
    write(tmp_path, {"elsewhere/b.yaml": "2", "tree/a.yaml": "1"})
    (tmp_path / "tree/d").symlink_to("../elsewhere")
    scanner = scanner_of(tmp_path / "tree")
    before = scanner.scan()
    (tmp_path / "elsewhere").rename(tmp_path / "away")
    during = [rules_of(scanner.scan()) for _ in range(2)]
    (tmp_path / "away").rename(tmp_path / "elsewhere")

    assert during == [[("d", "broken-link"), ("d/b.yaml", "broken-link")]] * 2
    assert scanner.scan() == before


def test_a_deleted_link_takes_its_files_along(tmp_path: Path) -> None:
    """Files below a link that was removed on purpose are gone, without a word."""
    write(tmp_path, {"elsewhere/b.yaml": "2", "tree/a.yaml": "1"})
    (tmp_path / "tree/d").symlink_to("../elsewhere")
    scanner = scanner_of(tmp_path / "tree")
    scanner.scan()
    (tmp_path / "tree/d").unlink()

    assert scanner.scan() == SourceTree((SourceFile.of(PurePosixPath("a.yaml"), b"1"),))


def test_links_to_directories_are_followed_and_loops_visited_once(tmp_path: Path) -> None:
    """Each directory is read once, under its own name where it has one in the tree, else under the first link's."""
    write(tmp_path, {"shared/s.yaml": "s", "shared/deep/d.yaml": "d", "tree/a.yaml": "a", "tree/real/r.yaml": "r"})
    tree = tmp_path / "tree"
    (tree / "all").symlink_to("real")
    (tree / "loop").symlink_to(".")
    (tree / "up").symlink_to("..")
    (tree / "top").symlink_to("/")
    (tree / "first").symlink_to(tmp_path / "shared")
    (tree / "second").symlink_to(tmp_path / "shared")
    (tmp_path / "shared/back").symlink_to(tree)
    (tree / "linked.yaml").symlink_to("a.yaml")

    assert contents_of(scanner_of(tree).scan()) == {
        "a.yaml": "a",
        "first/deep/d.yaml": "d",
        "first/s.yaml": "s",
        "linked.yaml": "a",
        "real/r.yaml": "r",
    }


def test_a_config_map_is_read_through_its_links(tmp_path: Path) -> None:
    """Files are read under the names of their links; the hidden directories that hold them are not walked."""
    write(tmp_path, {"..2026_01/cds.yaml": "1", "..2026_01/edge/lds.yaml": "1", "..2025_12/cds.yaml": "old"})
    (tmp_path / "..data").symlink_to("..2026_01")
    (tmp_path / "cds.yaml").symlink_to("..data/cds.yaml")
    (tmp_path / "edge").symlink_to("..data/edge")

    assert contents_of(scanner_of(tmp_path).scan()) == {"cds.yaml": "1", "edge/lds.yaml": "1"}


def test_a_scan_never_mixes_generations(tmp_path: Path) -> None:
    """While links are flipped without a pause, each scan that says it is steady has read one generation."""
    names = [f"{number}.yaml" for number in range(30)]
    for generation in ("..1", "..2"):
        write(tmp_path, {f"{generation}/{name}": generation for name in names})
    point(tmp_path / "..data", "..1")
    for name in names:
        (tmp_path / name).symlink_to(f"..data/{name}")
    is_over = threading.Event()

    def flip() -> None:
        while not is_over.wait(0.002):
            point(tmp_path / "..data", "..2" if (tmp_path / "..data").readlink() == Path("..1") else "..1")

    flipping = threading.Thread(target=flip)
    flipping.start()
    try:
        scanner = scanner_of(tmp_path)
        looks = [scanner.look() for _ in range(200)]
    finally:
        is_over.set()
        flipping.join()
    steady = [set(contents_of(look.tree).values()) for look in looks if look.is_steady]

    assert {frozenset(generations) for generations in steady} == {frozenset({"..1"}), frozenset({"..2"})}
    assert len(steady) > 20
    assert all(len(look.tree.files) == 30 for look in looks)


def test_files_that_vanish_during_a_scan_are_gone(tmp_path: Path) -> None:
    """Files that come and go while the tree is read cause neither exceptions nor problems."""
    write(tmp_path, {"stays.yaml": "1"})
    is_over = threading.Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            for number in range(20):
                write(tmp_path, {f"d/{number}.yaml": "x"})
            for number in range(20):
                (tmp_path / f"d/{number}.yaml").unlink()
            (tmp_path / "d").rmdir()

    busy = threading.Thread(target=come_and_go)
    busy.start()
    try:
        scanner = scanner_of(tmp_path)
        trees = [scanner.scan() for _ in range(200)]
    finally:
        is_over.set()
        busy.join()

    assert {problem.rule for tree in trees for problem in tree.problems} <= {"unreadable-file"}
    assert all("stays.yaml" in contents_of(tree) for tree in trees)
    assert contents_of(scanner.scan()) == {"stays.yaml": "1"}


def test_a_relative_root_and_a_linked_root_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root may be given relative to the working directory, through links, and with `..`."""
    write(tmp_path, {"one/two/tree/a.yaml": "1", "tree/a.yaml": "2"})
    (tmp_path / "link").symlink_to("one/two")
    monkeypatch.chdir(tmp_path)

    assert contents_of(scanner_of(Path("link/tree")).scan()) == {"a.yaml": "1"}
    assert contents_of(scanner_of(Path("tree")).scan()) == {"a.yaml": "2"}
    # As for the kernel, `..` behind a link is the parent of the link's target.
    (tmp_path / "one/tree").symlink_to("../tree")
    assert contents_of(scanner_of(Path("link/../two/tree")).scan()) == {"a.yaml": "1"}
