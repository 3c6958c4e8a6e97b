"""Which changes are taken before the settle time is over, and which are not: real saves, by real programs."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.source.watching import ONLY_AT_ONCE, UNHURRIED, Contents, point, watched, write

OLD, NEW = "old: 1\n" * 100, "new: 2\n" * 100
STEP_S = 0.025


def run(*command: str | Path, shell_input: str = "") -> None:
    """Run a program to its end."""
    subprocess.run(command, input=shell_input, text=True, check=True, capture_output=True)


def pause() -> None:
    """Hold still for longer than the short settle time, and far less than the long one."""
    time.sleep(STEP_S)


def write_in_place(path: Path) -> None:
    path.write_text(NEW)


def rename_over(path: Path) -> None:
    path.with_suffix(".tmp").write_text(NEW)
    path.with_suffix(".tmp").replace(path)


def move_from_elsewhere(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    elsewhere.write_text(NEW)
    run("mv", elsewhere, path)


def copy_over(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    elsewhere.write_text(NEW)
    run("cp", elsewhere, path)


def edit_with_sed(path: Path) -> None:
    run("sed", "-i", "s/old: 1/new: 2/", path)


def write_slowly(path: Path) -> None:
    steps = f"for _ in $(seq 100); do echo 'new: 2'; case $_ in *0) sleep {STEP_S};; esac; done > {path}"
    run("sh", shell_input=steps)


def edit_with_vim_in_place(path: Path) -> None:
    run("vim", "-u", "NONE", "-es", "-c", "set nowritebackup noswapfile", "-c", "%s/old: 1/new: 2/", "-c", "wq", path)


def keep_mode_and_time(path: Path) -> None:
    rename_over(path)
    path.chmod(0o640)
    os.utime(path, (1, 1))


@pytest.mark.parametrize(
    "save",
    [
        write_in_place,
        rename_over,
        move_from_elsewhere,
        copy_over,
        edit_with_sed,
        write_slowly,
        pytest.param(edit_with_vim_in_place, marks=pytest.mark.skipif(not shutil.which("vim"), reason="no vim")),
        keep_mode_and_time,
    ],
)
async def test_one_complete_save_is_not_waited_for(tmp_path: Path, save: Callable[[Path], None]) -> None:
    """One file that is served, closed or moved into place: the settle time is not needed to know that it is complete."""
    root = tmp_path / "tree"
    write(root, {"a.yaml": OLD, "b.yaml": "b"})
    async with watched(root, ONLY_AT_ONCE) as record:
        await asyncio.to_thread(save, root / "a.yaml")
        await record.until_contents({"a.yaml": NEW, "b.yaml": "b"})

        assert [contents["a.yaml"] for contents in record.history] == [OLD, NEW]


def truncate_and_append(path: Path) -> None:
    path.write_text("")
    for start in range(0, len(NEW), 100):
        pause()
        with path.open("a") as file:
            file.write(NEW[start : start + 100])


def write_and_append(path: Path) -> None:
    path.write_text(NEW[:100])
    for start in range(100, len(NEW), 100):
        pause()
        with path.open("a") as file:
            file.write(NEW[start : start + 100])


def append_in_steps(path: Path) -> None:
    for number in range(5):
        pause()
        run("sh", shell_input=f"echo {number} >> {path}")
    path.write_text(NEW)


def delete_and_create(path: Path) -> None:
    path.unlink()
    pause()
    path.write_text(NEW)


def create_beside_and_move(path: Path) -> None:
    beside = path.with_name("next.yaml")
    beside.write_text(NEW)
    beside.replace(path)


def move_away_and_create(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}~"))
    pause()
    path.write_text(NEW)
    pause()
    path.with_name(f"{path.name}~").unlink()


def edit_with_vim(path: Path) -> None:
    run("vim", "-u", "NONE", "-es", "-c", "set backup backupcopy=no", "-c", "%s/old: 1/new: 2/", "-c", "wq", path)


@pytest.mark.parametrize(
    "save",
    [
        truncate_and_append,
        write_and_append,
        append_in_steps,
        delete_and_create,
        create_beside_and_move,
        move_away_and_create,
        pytest.param(edit_with_vim, marks=pytest.mark.skipif(not shutil.which("vim"), reason="no vim")),
    ],
)
async def test_the_steps_of_a_save_are_one_change(tmp_path: Path, save: Callable[[Path], None]) -> None:
    """A file that is put together in steps, each of which closes it, is taken when all of them are done."""
    write(tmp_path, {"a.yaml": OLD, "b.yaml": "b"})
    async with watched(tmp_path, UNHURRIED) as record:
        await asyncio.to_thread(save, tmp_path / "a.yaml")
        await record.until_contents({"a.yaml": NEW, "b.yaml": "b"})

        assert [contents["a.yaml"] for contents in record.history] == [OLD, NEW]


async def test_temporary_files_that_follow_each_other_are_one_change(tmp_path: Path) -> None:
    """As rsync does it: the next temporary file is begun as soon as the one before was moved into its place."""
    names = [f"{number}.yaml" for number in range(5)]
    write(tmp_path, dict.fromkeys(names, OLD))

    def transfer() -> None:
        for name in names:
            with (tmp_path / f".{name}.AbCdEf").open("w") as file:
                for start in range(0, len(NEW), 350):
                    file.write(NEW[start : start + 350])
                    file.flush()
                    pause()
            (tmp_path / f".{name}.AbCdEf").replace(tmp_path / name)

    async with watched(tmp_path, UNHURRIED) as record:
        await asyncio.to_thread(transfer)
        await record.until_contents(dict.fromkeys(names, NEW))

        assert record.history == [dict.fromkeys(names, OLD), dict.fromkeys(names, NEW)]


@pytest.mark.skipif(shutil.which("rsync") is None, reason="apt-get install rsync")
@pytest.mark.parametrize("options", [[], ["--inplace"], ["--bwlimit=400"], ["--delete"]])
async def test_rsync_of_several_files_is_one_change(tmp_path: Path, options: list[str]) -> None:
    """Files that are changed, added and removed by rsync are seen together, also where the transfer is slow."""
    tree, other = tmp_path / "tree", tmp_path / "other"
    old = {f"{number}.yaml": OLD * 20 for number in range(5)}
    new = {f"{number}.yaml": NEW * 20 for number in range(1, 6)}
    write(tree, old)
    write(other, new)
    async with watched(tree, UNHURRIED) as record:
        await asyncio.to_thread(run, "rsync", "-rI", "--whole-file", *options, f"{other}/", f"{tree}/")
        expected = new if "--delete" in options else old | new
        await record.until_contents(expected)

        assert record.history == [old, expected]


async def test_a_row_of_saves_is_two_changes_at_most(tmp_path: Path) -> None:
    """The first of several files is taken by itself, whole, when the next comes late; all that follow are one change."""
    names = [f"{number}.yaml" for number in range(8)]
    write(tmp_path, dict.fromkeys(names, OLD))

    def save_all() -> None:
        for name in names:
            rename_over(tmp_path / name)
            pause()

    async with watched(tmp_path, UNHURRIED) as record:
        await asyncio.to_thread(save_all)
        await record.until_contents(dict.fromkeys(names, NEW))

        assert record.history[1:-1] in ([], [{**dict.fromkeys(names, OLD), names[0]: NEW}])


async def test_a_config_map_of_one_file_changes_in_one_step(tmp_path: Path) -> None:
    """Kubelet writes the next generation, flips `..data`, and removes the one before, each after a pause."""
    write(tmp_path, {"..1/a.yaml": OLD, "..1/b.yaml": OLD})
    point(tmp_path / "..data", "..1")
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).symlink_to(f"..data/{name}")

    def publish() -> None:
        for name in ("a.yaml", "b.yaml"):
            write(tmp_path, {f"..2/{name}": NEW})
            pause()
        point(tmp_path / "..data", "..2")
        pause()
        shutil.rmtree(tmp_path / "..1")

    async with watched(tmp_path, UNHURRIED) as record:
        await asyncio.to_thread(publish)
        await record.until_contents({"a.yaml": NEW, "b.yaml": NEW})

        assert record.history == [{"a.yaml": OLD, "b.yaml": OLD}, {"a.yaml": NEW, "b.yaml": NEW}]


async def test_a_checkout_of_few_files_is_one_change(tmp_path: Path) -> None:
    """Git deletes and creates each file; a checkout of one, of two and of new files is seen whole, in a worktree too."""
    one, two = {"a.yaml": OLD, "b.yaml": OLD}, {"a.yaml": NEW, "b.yaml": NEW, "c.yaml": NEW}
    three = {**two, "a.yaml": OLD}
    repository, tree = tmp_path / "repository", tmp_path / "tree"
    repository.mkdir()

    def git(*arguments: str | Path, directory: Path = repository) -> None:
        run("git", "-C", directory, "-c", "user.name=x", "-c", "user.email=x@example.com", *arguments)

    def commit(contents: Contents, tag: str) -> None:
        write(repository, contents)
        git("add", ".")
        git("commit", "-m", tag)
        git("tag", tag)

    git("init", "-b", "main")
    for tag, contents in (("one", one), ("two", two), ("three", three)):
        commit(contents, tag)
    git("worktree", "add", "--detach", tree, "one")
    async with watched(tree) as record:
        for tag, contents in (("two", two), ("three", three), ("one", one)):
            await asyncio.to_thread(git, "checkout", tag, directory=tree)
            await record.until_contents(contents)

        assert record.history == [one, two, three, one]


async def test_a_file_with_two_names_changes_under_both(tmp_path: Path) -> None:
    """Only one of the names has an event, so that after it all files are looked at."""
    write(tmp_path, {"a.yaml": OLD})
    (tmp_path / "b.yaml").hardlink_to(tmp_path / "a.yaml")
    async with watched(tmp_path) as record:
        (tmp_path / "a.yaml").write_text(NEW)
        await record.until_contents({"a.yaml": NEW, "b.yaml": NEW})

        assert record.history == [dict.fromkeys(("a.yaml", "b.yaml"), text) for text in (OLD, NEW)]
