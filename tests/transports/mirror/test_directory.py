"""The output directory on disk."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import pytest

from fsxds.model.errors import UsageError
from fsxds.transports.mirror.directory import MirrorDirectory

PATH = PurePosixPath("eds/a.pb")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[MirrorDirectory]:
    made = MirrorDirectory(tmp_path / "deep" / "out", durable=True)
    made.hold()
    yield made
    made.release()


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow beyond 1000 bytes: the nearest to a full disk that needs no rights."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def test_a_directory_is_held_by_one(directory: MirrorDirectory) -> None:
    """A second one is told who has it and what to do; when it is free again, it can be had."""
    other = MirrorDirectory(directory.root, durable=True)

    with pytest.raises(UsageError, match=rf"process {os.getpid()}\) mirrors into this directory; end it, or choose"):
        other.hold()
    directory.release()
    assert other.hold()
    other.release()


def test_holding_twice_is_once(directory: MirrorDirectory) -> None:
    """It tells whether the directory was taken anew, as after it was removed."""
    assert not directory.hold()
    directory.root.rename(directory.root.with_name("moved"))
    assert directory.hold()


def test_files_are_replaced_whole(directory: MirrorDirectory) -> None:
    """A reader that has the old file open goes on reading it; the signature tells the two apart."""
    first = directory.replace(PATH, b"old")
    with (directory.root / PATH).open("rb") as reader:
        second = directory.replace(PATH, b"new")
        assert reader.read() == b"old"

    assert directory.read(PATH) == b"new"
    assert directory.signature(PATH) == second != first


def test_temporaries_are_below_our_own_folder(directory: MirrorDirectory) -> None:
    """Nothing but the finished file appears beside the others, also after a crash before the rename."""
    (directory.root / ".fsxds" / "next.tmp").write_bytes(b"half")
    directory.replace(PATH, b"x")

    assert {path.name for path in directory.root.iterdir()} == {".fsxds", "eds"}
    assert {path.name for path in (directory.root / "eds").iterdir()} == {"a.pb"}
    assert {path.name for path in (directory.root / ".fsxds").iterdir()} == {"lock"}


def test_private_files_are_for_us_alone(directory: MirrorDirectory) -> None:
    """Secrets are 0600 in a folder of 0700, all else is as the umask has it."""
    umask = os.umask(0o027)
    try:
        directory.replace(PurePosixPath("sds/a.pb"), b"x", is_private=True)
        directory.replace(PATH, b"x")
    finally:
        os.umask(umask)

    assert (mode(directory.root / "sds" / "a.pb"), mode(directory.root / "sds")) == ("0o600", "0o700")
    assert (mode(directory.root / PATH), mode(directory.root / "eds")) == ("0o640", "0o750")
    assert mode(directory.root / ".fsxds") == "0o700"


def test_a_full_disk_leaves_the_old_file(directory: MirrorDirectory) -> None:
    """The error is the caller's, and no half of a file stays behind."""
    directory.replace(PATH, b"old")
    with full_disk(), pytest.raises(OSError, match="File too large"):
        directory.replace(PATH, b"x" * 2000)

    assert directory.read(PATH) == b"old"
    assert not (directory.root / ".fsxds" / "next.tmp").exists()
    directory.sync()


def test_what_stands_in_the_way_is_found(directory: MirrorDirectory) -> None:
    """Folders and links where a file is due, and files where a folder is due, are in the way; a file of ours is not."""
    root = directory.root
    (root / "cds.pb").mkdir()
    (root / "lds.pb").symlink_to("/etc/hostname")
    (root / "rds").write_text("x")
    (root / "sds").symlink_to("/tmp")
    directory.replace(PATH, b"x")

    found = {path: directory.obstacle(PurePosixPath(path)) for path in ("cds.pb", "lds.pb", "rds/a.pb", "sds/a.pb")}
    assert {path: str(what) for path, what in found.items()} == {
        "cds.pb": "cds.pb",
        "lds.pb": "lds.pb",
        "rds/a.pb": "rds",
        "sds/a.pb": "sds",
    }
    assert directory.obstacle(PATH) is None
    assert directory.obstacle(PurePosixPath("ecds/a.pb")) is None


def test_reading_takes_no_offence(directory: MirrorDirectory) -> None:
    """What is not there, and what is no file, has no content; removing what is not there is done already."""
    (directory.root / "lds.pb").mkdir()
    (directory.root / "rds").write_text("x")

    assert directory.read(PATH) is None
    assert directory.read(PurePosixPath("lds.pb")) is None
    assert directory.read(PurePosixPath("rds/a.pb")) is None
    directory.replace(PATH, b"x")
    directory.remove(PATH)
    directory.remove(PATH)
    directory.sync()
    assert directory.signature(PATH) is None


def test_folders_may_be_within_folders(directory: MirrorDirectory) -> None:
    """They are made with the file, what stands in the way of one is found at any depth, and they go when they are empty."""
    deep, other = PurePosixPath("a/b/c/d.pb"), PurePosixPath("a/e.pb")
    directory.replace(deep, b"x", is_private=True)
    directory.replace(other, b"y")
    assert (directory.read(deep), mode(directory.root / "a/b")) == (b"x", "0o700")

    directory.remove(deep)
    (directory.root / "a/b/c").rmdir()
    (directory.root / "a/b/c").symlink_to("/tmp")
    assert directory.obstacle(deep) == PurePosixPath("a/b/c")
    (directory.root / "a/b/c").unlink()

    directory.remove_empty_folders(deep)
    directory.sync()
    assert not (directory.root / "a/b").exists()
    assert directory.read(other) == b"y"
