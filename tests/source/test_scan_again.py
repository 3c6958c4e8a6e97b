"""Looks at single files, beside looks at all of the tree."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from pathlib import Path

import pytest

from fsxds.source.listing import Exclusion
from fsxds.source.scan import Scanner, ScanResult
from tests.source.watching import contents_of, is_read, write


def looked(root: Path) -> Scanner:
    """Return a scanner that looked at all of a tree."""
    scanner = Scanner(root, is_read=is_read, exclusion=Exclusion(["excluded*"]))
    scanner.look()
    return scanner


def look_at(scanner: Scanner, *names: str) -> ScanResult | None:
    return scanner.look_at([f"{scanner.root}/{name}" for name in names])


def test_files_are_changed_added_and_removed(tmp_path: Path) -> None:
    """The files that are named are as they are now; of the others nothing is looked at, and their values are kept."""
    write(tmp_path, {"a.yaml": "1", "b/c.yaml": "1", "b/e.yaml": "1", "f.yaml": "1"})
    scanner = looked(tmp_path)
    first = scanner.scan()
    write(tmp_path, {"a.yaml": "2", "b/d.yaml": "2", "f.yaml": "2"})
    (tmp_path / "b/e.yaml").unlink()
    look = look_at(scanner, "a.yaml", "b/d.yaml", "b/e.yaml", "b/went.yaml")

    assert look is not None
    assert contents_of(look.tree) == {"a.yaml": "2", "b/c.yaml": "1", "b/d.yaml": "2", "f.yaml": "1"}
    assert look.paths == {name: f"{tmp_path}/{name}" for name in contents_of(look.tree)}
    assert look.tree.files[1] is first.files[1]


def link_to_it(path: Path) -> None:
    path.with_name("link.yaml").symlink_to(path)


def give_it_two_names(path: Path) -> None:
    path.with_name("other.yaml").hardlink_to(path)


def put_a_directory_in_its_place(path: Path) -> None:
    path.unlink()
    path.mkdir()


def put_a_link_in_its_place(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def put_a_pipe_in_its_place(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_it_too_large(path: Path) -> None:
    os.truncate(path, 100_000_000)


BEFORE = [link_to_it, give_it_two_names, put_a_directory_in_its_place, put_a_link_in_its_place, make_it_too_large]
AFTER = [
    give_it_two_names,
    put_a_directory_in_its_place,
    put_a_link_in_its_place,
    put_a_pipe_in_its_place,
    make_it_too_large,
]


@pytest.mark.parametrize("change", BEFORE)
def test_what_was_not_just_a_file_needs_a_look_at_all(tmp_path: Path, change: object) -> None:
    """A file that was linked, had another name, or could not be read, when all of the tree was looked at."""
    write(tmp_path, {"a.yaml": "1", "b.yaml": "1"})
    change(tmp_path / "a.yaml")  # type: ignore[operator]
    scanner = looked(tmp_path)
    if (tmp_path / "a.yaml").is_dir():
        (tmp_path / "a.yaml").rmdir()
    write(tmp_path, {"a.yaml": "2"})

    assert look_at(scanner, "a.yaml") is None


@pytest.mark.parametrize("change", AFTER)
def test_what_is_not_just_a_file_needs_a_look_at_all(tmp_path: Path, change: object) -> None:
    """A file that is something else now, has another name, or cannot be read."""
    write(tmp_path, {"a.yaml": "1", "b.yaml": "1"})
    scanner = looked(tmp_path)
    change(tmp_path / "a.yaml")  # type: ignore[operator]

    assert look_at(scanner, "a.yaml") is None


@pytest.mark.parametrize(
    "name",
    [
        "directory",
        "new/a.yaml",
        ".hidden/a.yaml",
        ".a.yaml",
        "excluded.yaml",
        "a.txt",
        "directory/link.yaml",
        "missing.yaml",
        "../elsewhere.yaml",
        "\udcff.yaml",
    ],
)
def test_what_is_new_needs_a_look_at_all_unless_it_is_just_a_file(tmp_path: Path, name: str) -> None:
    """A directory, a link, what a link leads to, and what is not read or not in a directory that was listed."""
    root = tmp_path / "tree"
    write(root, {"directory/a.yaml": "1", ".hidden/b.yaml": "1"})
    (root / "linked").symlink_to(".hidden")
    if name == "missing.yaml":
        (root / "link.yaml").symlink_to(name)
    scanner = looked(root)
    if name.endswith("link.yaml"):
        (root / name).symlink_to("a.yaml")
    elif name != "directory":
        write(root, {name: "2"})

    assert look_at(scanner, name) is None


def test_what_could_not_be_read_is_looked_at_with_all(tmp_path: Path) -> None:
    """While the tree has problems, of which one may be due to a file that comes or goes, only edits are looked at alone."""
    write(tmp_path, {"a.yaml": "1", "b.yaml": "1"})
    (tmp_path / "c.yaml").symlink_to("nowhere.yaml")
    scanner = looked(tmp_path)
    write(tmp_path, {"a.yaml": "2", "new.yaml": "2"})
    edited, new = look_at(scanner, "a.yaml"), look_at(scanner, "new.yaml")
    (tmp_path / "b.yaml").unlink()
    gone = look_at(scanner, "b.yaml")

    assert (edited is not None, new, gone) == (True, None, None)
    assert contents_of(scanner.scan()) == {"a.yaml": "2", "new.yaml": "2"}


def test_whatever_happens_it_sees_what_a_look_at_all_sees(tmp_path: Path) -> None:
    """After random changes, a look at what they touched finds the tree of a new look at all, or asks for one."""
    choose = random.Random(20240229)
    names = [f"{directory}{name}.yaml" for directory in ("", "one/", "one/two/", "one.yaml/") for name in "abc"]
    write(tmp_path, {"stays.yaml": "0", "one/a.yaml": "0"})
    scanner, known = looked(tmp_path), 0
    for step in range(400):
        before = what_is_there(tmp_path)
        chosen = choose.sample(names, choose.randint(1, 3))
        for name in chosen:
            change_at_random(choose, tmp_path, name, step)
        look = look_at(scanner, *chosen, *(path for path, _ in before ^ what_is_there(tmp_path)))
        known += look is not None
        look = look or scanner.look()
        expected = Scanner(tmp_path, is_read=is_read).look()

        assert contents_of(look.tree) == contents_of(expected.tree)
        assert list(contents_of(look.tree)) == list(contents_of(expected.tree))
        assert {**look.paths} == {**expected.paths}
    assert known > 50


def what_is_there(root: Path) -> set[tuple[str, int]]:
    """Return the paths below a directory, each with the number of the file or directory."""
    return {(str(path.relative_to(root)), path.lstat().st_ino) for path in root.rglob("*")}


def change_at_random(choose: random.Random, root: Path, name: str, step: int) -> None:
    with contextlib.suppress(OSError):
        match choose.randrange(8):
            case 0 | 1 | 2:
                write(root, {name: str(step)})
            case 3 | 4:
                (root / name).unlink()
            case 5:
                (root / ".next").write_text(str(step))
                (root / ".next").replace(root / name)
            case 6:
                shutil.rmtree((root / name).parent) if "/" in name else None
            case 7:
                (root / name).symlink_to("stays.yaml")
