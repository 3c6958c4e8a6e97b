"""The ways in which editors and tools save a file."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.source.watching import watched, write

OLD, NEW = "old: 1\n" * 100, "new: 2\n" * 80


def write_in_place(path: Path) -> None:
    path.write_text(NEW)


def rename_over(path: Path) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_text(NEW)
    beside.replace(path)


def save_like_vim(path: Path) -> None:
    """Vim with `backup` and a swap file: probes the directory, moves the old file away, writes a new one, syncs it."""
    swap, probe, backup = path.with_name(f".{path.name}.swp"), path.with_name("4913"), path.with_name(f"{path.name}~")
    with swap.open("wb") as swap_file:
        swap_file.write(b"b0VIM 8.2" * 100)
        swap_file.flush()
        probe.touch()
        probe.unlink()
        path.rename(backup)
        with path.open("w") as file:
            file.write(NEW)
            file.flush()
            os.fsync(file.fileno())
        swap_file.write(b"more")
        swap_file.flush()
    swap.unlink()
    backup.unlink()


def save_like_emacs(path: Path) -> None:
    """Emacs: a lock that is a link to nowhere, an auto-save file, a backup by renaming, then a new file."""
    lock, autosave = path.with_name(f".#{path.name}"), path.with_name(f"#{path.name}#")
    lock.symlink_to("somebody@example.com.4711:1700000000")
    autosave.write_text(NEW[:100])
    path.rename(path.with_name(f"{path.name}~"))
    path.write_text(NEW)
    autosave.unlink()
    lock.unlink()


def delete_and_create(path: Path) -> None:
    path.unlink()
    path.write_text(NEW)


def copy_over(path: Path) -> None:
    source = path.parent.parent / "source"
    source.write_text(NEW)
    subprocess.run(["cp", source, path], check=True)


def edit_with_sed(path: Path) -> None:
    subprocess.run(["sed", "-i", "-e", "s/old: 1/new: 2/", "-e", "81,$d", path], check=True)


@pytest.mark.parametrize(
    "save",
    [write_in_place, rename_over, save_like_vim, save_like_emacs, delete_and_create, copy_over, edit_with_sed],
)
async def test_a_saved_file_is_seen_once_and_whole(tmp_path: Path, save: Callable[[Path], None]) -> None:
    """A save is one step from the old content to the new, without the file missing or being cut in between."""
    root = tmp_path / "tree"
    write(root, {"a.yaml": OLD, "b.yaml": "b"})
    async with watched(root) as record:
        await asyncio.to_thread(save, root / "a.yaml")
        await record.until_contents({"a.yaml": NEW, "b.yaml": "b"})
        await record.nothing_more()

        assert record.history == [{"a.yaml": OLD, "b.yaml": "b"}, {"a.yaml": NEW, "b.yaml": "b"}]
        assert record.ignored == []
        assert all(not settled.tree.problems for settled in record.settled)
