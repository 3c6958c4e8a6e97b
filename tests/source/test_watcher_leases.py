from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path, PurePosixPath

from fsxds.model.values import SourceFile
from fsxds.source.watcher import Patience, Writers, is_open_for_writing, read_undisturbed

PATH = PurePosixPath("a.yaml")
AUTHOR = ("-c", "user.name=x", "-c", "user.email=x@example.com")
PATIENCE = Patience(writer_s=2.0, git_s=10.0, twice_s=1.0)


def test_the_kernel_knows_who_writes(tmp_path: Path) -> None:
    """A file is open for writing as long as somebody, in whatever process, has it open so; readers do not count."""
    path = tmp_path / "a.yaml"
    path.write_text("")
    with path.open("r"):
        read = is_open_for_writing(path)
    with path.open("a"):
        appended = is_open_for_writing(path)
    program = "import sys; file = open(sys.argv[1], 'a'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdout.readline()
        elsewhere = is_open_for_writing(path)
        other.stdin.close()

    assert (read, appended, elsewhere, is_open_for_writing(path)) == (False, True, True, False)
    assert is_open_for_writing(tmp_path / "gone") is None


def test_asking_does_not_harm_who_opens_the_file_meanwhile(tmp_path: Path) -> None:
    """The signal that the kernel sends when a lease is in somebody's way is one that does nothing."""
    assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL
    path = tmp_path / "a.yaml"
    path.write_text("")
    program = "import sys\nfor _ in range(20000): open(sys.argv[1], 'a').close()"
    with subprocess.Popen([sys.executable, "-c", program, path]) as other:
        answers = set()
        while other.poll() is None:
            answers.add(is_open_for_writing(path))

    assert other.returncode == 0
    assert answers <= {True, False}


def test_a_file_is_read_while_nobody_writes_it(tmp_path: Path) -> None:
    """A file is read unless somebody has it open for writing, and up to the limit only."""
    path = tmp_path / "a.yaml"
    path.write_text("12345")
    with path.open("a"):
        disturbed = read_undisturbed(path, 10)

    assert disturbed is None
    assert read_undisturbed(path, 10) == b"12345"
    assert read_undisturbed(path, 4) is None
    assert read_undisturbed(tmp_path / "gone", 10) is None


def test_a_writer_is_waited_for_as_long_as_patience_lasts(tmp_path: Path) -> None:
    """The rest that a file is given shrinks while it holds still, and starts anew with new content."""
    (tmp_path / "a.yaml").write_text("1")
    first = SourceFile.of(PATH, b"1")
    second = SourceFile.of(PATH, b"2")
    writers = Writers(tmp_path, PATIENCE)
    with (tmp_path / "a.yaml").open("a"):
        rests = [
            writers.rests_s([file], now_s, can_ask=True, is_reported=True).get(PATH)
            for file, now_s in [(first, 100.0), (first, 101.5), (second, 101.75), (second, 104.0)]
        ]

    assert rests == [2.0, 0.5, 2.0, None]


def test_a_file_of_old_is_not_waited_for(tmp_path: Path) -> None:
    """A file that was last modified long ago is taken as it is, although somebody has it open."""
    path = tmp_path / "a.yaml"
    path.write_text("1")
    os.utime(path, (1, 1))
    with path.open("a"):
        rests_s = Writers(tmp_path, PATIENCE).rests_s(
            [SourceFile.of(PATH, b"1")], 100.0, can_ask=True, is_reported=True
        )

    assert rests_s == {}


def test_where_nobody_can_be_asked_or_tells_content_must_be_found_twice(tmp_path: Path) -> None:
    """Content that was found once is looked at again after a while; where the end of writing has an event, it is taken at once."""
    file = SourceFile.of(PATH, b"1")
    writers = Writers(tmp_path, PATIENCE)

    assert writers.rests_s([file], 100.0, can_ask=False, is_reported=True) == {}
    assert Writers(tmp_path, PATIENCE).rests_s([file], 100.0, can_ask=False, is_reported=False) == {PATH: 1.0}
    assert writers.rests_s([file], 101.0, can_ask=False, is_reported=False) == {}


def test_git_is_waited_for_while_it_holds_its_lock(tmp_path: Path) -> None:
    """The lock on the index of the repository around the tree says that files are being replaced, unless it is old."""
    root = tmp_path / "config/xds"
    root.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    writers = Writers(root, PATIENCE)
    without_s = writers.git_rest_s()
    lock = tmp_path / ".git/index.lock"
    lock.touch()
    held_s = writers.git_rest_s()
    os.utime(lock, (1, 1))
    forgotten_s = writers.git_rest_s()

    (tmp_path / ".git/index").touch()
    other_index_s, again_s = writers.git_rest_s(), writers.git_rest_s()

    assert (without_s, forgotten_s, again_s) == (0.0, 0.0, 0.0)
    assert 0.0 < other_index_s < 0.1
    assert 1.0 < held_s <= PATIENCE.git_s


def test_the_lock_of_a_worktree_is_where_its_git_file_says(tmp_path: Path) -> None:
    """In a worktree or submodule `.git` is a file that names the directory; what else it may be locks nothing."""
    repository, tree = tmp_path / "repository", tmp_path / "tree"
    commit = [*AUTHOR, "commit", "-q", "--allow-empty", "-m", "one"]
    for arguments in (["init", "-q"], commit, ["worktree", "add", "-q", str(tree)]):
        repository.mkdir(exist_ok=True)
        subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True)
    (repository / ".git/worktrees/tree/index.lock").touch()
    held_s = Writers(tree, PATIENCE).git_rest_s()
    others = []
    for content in (b"", b"gitdir: ", b"gitdir: /nowhere", b"gitdir: a\0b", b"\xff" * 10_000):
        (tree / ".git").write_bytes(content)
        others.append(Writers(tree, PATIENCE).git_rest_s())
    (tree / ".git").unlink()
    os.mkfifo(tree / ".git")
    others.append(Writers(tree, PATIENCE).git_rest_s())

    assert 1.0 < held_s <= PATIENCE.git_s
    assert others == [0.0] * 6
