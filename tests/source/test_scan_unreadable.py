"""Whatever stands in the way of reading a tree, nothing that was read is taken for removed."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsxds.model.errors import TreeLost
from fsxds.source.listing import TreeBounds
from fsxds.source.scan import Scanner
from tests.source.watching import contents_of, is_read, write
from tests.support.costs import cost_s

IS_ROOT = os.geteuid() == 0
READ = {"a.yaml": "a", "b.yaml": "b", "deep/c.yaml": "c"}


# What is tested here is not whose the files are.
FOLLOWING = TreeBounds(follows_outside=True)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def chain_of_links(path: Path) -> None:
    for number in range(2000):
        (path.parent / f".{number}").symlink_to(f".{number + 1}")
    path.symlink_to(".0")


THINGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "directory": (lambda path: path.mkdir(), "not-a-file"),
    "link to a directory": (lambda path: path.symlink_to("deep"), "not-a-file"),
    "pipe": (os.mkfifo, "not-a-file"),
    "socket": (make_socket, "not-a-file"),
    "zero": (lambda path: path.symlink_to("/dev/zero"), "not-a-file"),
    "full": (lambda path: path.symlink_to("/dev/full"), "not-a-file"),
    "tty": (lambda path: path.symlink_to("/dev/tty"), "not-a-file"),
    "kernel log": (lambda path: path.symlink_to("/proc/kmsg"), "unreadable-file"),
    "error while reading": (lambda path: path.symlink_to("/proc/self/mem"), "unreadable-file"),
    "endless": (lambda path: path.symlink_to("/proc/self/pagemap"), "file-too-large"),
    "circle": (lambda path: path.symlink_to(path.name), "broken-link"),
    "chain": (chain_of_links, "broken-link"),
    "nowhere": (lambda path: path.symlink_to("nowhere"), "broken-link"),
    "through a file": (lambda path: path.symlink_to("b.yaml/c"), "broken-link"),
    "long name": (lambda path: path.symlink_to("x" * 300), "unreadable-file"),
    "long way": (lambda path: path.symlink_to("d/" * 2000 + "d"), "broken-link"),
}


@pytest.mark.parametrize("thing", THINGS)
def test_what_took_the_place_of_a_file_is_a_problem_of_that_file(tmp_path: Path, thing: str) -> None:
    """Whatever stands where a file was read is a problem of that file alone, until the file is back."""
    make, rule = THINGS[thing]
    write(tmp_path, READ)
    scanner = Scanner(tmp_path, is_read=is_read, bounds=TreeBounds(100_000, follows_outside=True))
    before = scanner.scan()
    (tmp_path / "a.yaml").unlink()
    make(tmp_path / "a.yaml")
    during = [scanner.scan() for _ in range(2)]
    if thing == "directory":
        (tmp_path / "a.yaml").rmdir()
    else:
        (tmp_path / "a.yaml").unlink()
    write(tmp_path, READ)

    for tree in during:
        assert contents_of(tree) == {"b.yaml": "b", "deep/c.yaml": "c"}
        assert [(str(problem.path), problem.rule) for problem in tree.problems] == [("a.yaml", rule)]
    assert scanner.scan() == before


def failing(function: Callable[..., Any], countdown: list[int], number: int) -> Callable[..., Any]:
    """Wrap a function of `os` so that the call that counts down to zero fails."""

    def call(*arguments: Any, **options: Any) -> Any:
        countdown[0] -= 1
        if countdown[0] == 0:
            raise OSError(number, os.strerror(number))
        return function(*arguments, **options)

    return call


@pytest.mark.parametrize(
    "name", ["EACCES", "EPERM", "EIO", "ESTALE", "EMFILE", "ENFILE", "ELOOP", "ENAMETOOLONG", "ENOMEM", "EINTR"]
)
def test_an_error_of_any_call_takes_nothing_away(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever call of a look fails, every file is in the tree, or named by a problem, or the whole tree is lost."""
    root = tmp_path / "tree"
    write(root, READ)
    write(tmp_path, {"shared/s.yaml": "s", "shared/deep/d.yaml": "d", "single": "1"})
    (root / "..data").symlink_to("../shared")
    (root / "edge.d").symlink_to("..data")
    (root / "one.yaml").symlink_to("../single")
    scanner = Scanner(root, is_read=is_read, bounds=FOLLOWING)
    before = scanner.scan()
    known = set(contents_of(before))
    calls, failed = 1, True
    while failed:
        countdown = [calls]
        with monkeypatch.context() as patched:
            for function in (os.stat, os.fstat, os.open, os.read, os.lseek, os.readlink, os.scandir):
                patched.setattr(os, function.__name__, failing(function, countdown, getattr(errno, name)))
            try:
                tree = scanner.scan()
            except TreeLost:
                continue
            finally:
                failed = countdown[0] <= 0
                calls += 1
        assert known <= set(contents_of(tree)) | {str(problem.path) for problem in tree.problems}
        assert scanner.scan() == before

    assert known == {"a.yaml", "b.yaml", "deep/c.yaml", "edge.d/s.yaml", "edge.d/deep/d.yaml", "one.yaml"}
    assert calls > 30


def test_a_link_to_a_huge_directory_is_a_problem(tmp_path: Path) -> None:
    """What is behind a link is read up to a bound; beyond, the link is a problem, and other links lead there still."""
    root = tmp_path / "tree"
    write(root, READ)
    write(tmp_path / "huge", {"small/s.yaml": "s", "linked/l.yaml": "l"})
    (tmp_path / "huge/inner").symlink_to("linked")
    scanner = Scanner(root, is_read=is_read, bounds=FOLLOWING)
    (root / "edge").symlink_to("../huge")
    before = scanner.scan()
    for number in range(20_000):
        os.close(os.open(f"{tmp_path}/huge/small/{number}.yaml", os.O_CREAT | os.O_WRONLY))
    (root / "small.d").symlink_to("../huge/linked")
    look = scanner.look()

    assert contents_of(before) == READ | {"edge/small/s.yaml": "s", "edge/linked/l.yaml": "l"}
    assert contents_of(look.tree) == READ | {"small.d/l.yaml": "l"}
    assert {str(problem.path) for problem in look.tree.problems} == {"edge", "edge/small/s.yaml", "edge/linked/l.yaml"}
    assert {problem.rule for problem in look.tree.problems} == {"too-many-files"}
    assert set(look.directories) == {str(root), str(root / "deep"), str(tmp_path / "huge/linked")}
    assert str(tmp_path / "huge/inner") not in look.link_paths


def test_broken_links_cost_the_same_beside_many_files(tmp_path: Path) -> None:
    """A file is not compared with each link; a look at the files alone is the measure."""
    for number in range(100 * 30):
        write(tmp_path, {f"d{number // 100}/{number}.yaml": "a"})
    scanner = Scanner(tmp_path, is_read=is_read)
    scanner.scan()
    alone_s = cost_s(scanner.scan)
    for number in range(2000):
        (tmp_path / f"link{number}.yaml").symlink_to("nowhere")

    assert cost_s(scanner.scan) < 5 * alone_s


# Runs as a user that is not root, who alone can be forbidden to read.
FORBIDDEN = """
import asyncio, os, resource, tempfile
from pathlib import Path
from fsxds.source.targets import WatchOptions
from tests.source.watching import watched, write

async def main():
    await asyncio.to_thread(os.getpid)  # What is imported on demand may be out of reach for another user.
    if os.geteuid() == 0:
        os.setgroups([])
        os.setegid(65534)
        os.seteuid(65534)
    with tempfile.TemporaryDirectory() as top:
        root = Path(top) / "parent/tree"
        write(root, {"a.yaml": "a", "deep/b.yaml": "b"})
        async with watched(root, WatchOptions(poll_s=0.1, rescan_s=0.3)) as record:
            for directory in (root, root.parent):
                for mode in (0o000, 0o444):
                    lost = len(record.lost)
                    directory.chmod(mode)
                    if (directory, mode) != (root, 0o444):
                        await record.until(lambda: len(record.lost) > lost)
                        directory.chmod(0o755)
                        await record.until(lambda: record.found == len(record.lost))
                    else:
                        await record.until(lambda: record.settled[-1].tree.problems)
                        print(*sorted(str(problem.path) for problem in record.settled[-1].tree.problems))
                        directory.chmod(0o755)
                        await record.until(lambda: not record.settled[-1].tree.problems)
            write(root, {"a.yaml": "edited"})
            await record.until_contents({"a.yaml": "edited", "deep/b.yaml": "b"})
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
            lost = len(record.lost)
            await record.until(lambda: len(record.lost) > lost)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            await record.until(lambda: record.found == len(record.lost))
            write(root, {"a.yaml": "edited again"})
            await record.until_contents({"a.yaml": "edited again", "deep/b.yaml": "b"})
        for text in record.lost:
            print(text.removeprefix(str(root)))
        print(min(len(contents) for contents in record.history if contents))

asyncio.run(main())
"""


async def test_what_may_not_be_read_ends_nothing() -> None:
    """A tree, its parent or its files that may not be read, and too many open files, are lost, and come back."""
    outcome = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "error", "-c", FORBIDDEN],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert outcome.stderr == ""
    unreadable = ": the directory cannot be read: "
    assert outcome.stdout.splitlines() == [
        "a.yaml deep deep/b.yaml",
        *[f"{unreadable}Permission denied; let fsxds read it"] * 3,
        f"{unreadable}Too many open files; raise the limit of open files (ulimit -n)",
        "2",
    ]
