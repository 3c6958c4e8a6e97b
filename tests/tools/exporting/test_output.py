from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import pytest

from fsxds.model.errors import UsageError
from fsxds.tools.exporting.output import FilesExported, write_files
from fsxds.transports.mirror.directory import MirrorDirectory
from tests.transports.mirror.test_directory import full_disk

Files = dict[str, str]

OBJECT_1, OBJECT_2 = "objects/1.json", "objects/2.json"
FIRST: Files = {OBJECT_1: "one", "T/a": "one", "T/dir/b": "one", "index.json": "1"}
SECOND: Files = {OBJECT_2: "two", "T/a": "two", "T/dir/b/c": "two", "index.json": "2"}


def write(out: Path, files: Files) -> FilesExported:
    return write_files(out, {PurePosixPath(path): text.encode() for path, text in files.items()})


def found(out: Path) -> Files:
    """What a web server has: all but the folder of fsxds."""
    paths = (path for path in out.rglob("*") if path.is_file() and ".fsxds" not in path.parts)
    return {str(path.relative_to(out)): path.read_text() for path in paths}


def names(paths: Iterable[PurePosixPath]) -> list[str]:
    return [str(path) for path in paths]


def test_files_are_written_in_order_and_once(tmp_path: Path) -> None:
    """Objects come before what names them, the index last; equal files keep their inodes."""
    report = write(tmp_path / "deep" / "out", FIRST)
    out = tmp_path / "deep" / "out"

    assert names(report.written) == list(FIRST)
    assert found(out) == FIRST
    inodes = {path: (out / path).stat().st_ino for path in FIRST}
    again = write(out, FIRST)
    assert (again.written, again.removed, again.unchanged) == ((), (), 4)
    assert {path: (out / path).stat().st_ino for path in FIRST} == inodes


def test_what_is_gone_goes_and_objects_outlive_one_change(tmp_path: Path) -> None:
    """Files and emptied folders go at once; an object goes with the change after that, and not when nothing changes."""
    write(tmp_path, FIRST)
    write(tmp_path, SECOND)
    assert found(tmp_path) == {**SECOND, OBJECT_1: "one"}

    write(tmp_path, SECOND)
    assert found(tmp_path) == {**SECOND, OBJECT_1: "one"}
    third = {"index.json": "3"}
    report = write(tmp_path, third)
    assert names(report.removed) == ["T/a", "T/dir/b/c", OBJECT_1]
    assert found(tmp_path) == {**third, OBJECT_2: "two"}
    assert not (tmp_path / "T").exists()


def test_an_object_that_comes_back_stays(tmp_path: Path) -> None:
    """One that is used again is not taken for one without a use."""
    for files in (FIRST, SECOND, FIRST, {**FIRST, "index.json": "4"}):
        write(tmp_path, files)

    assert found(tmp_path)[OBJECT_1] == "one"


@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
def test_a_file_may_become_a_folder_and_back(tmp_path: Path, order: tuple[Files, Files]) -> None:
    """What is in the way and was exported before goes first."""
    for files in order:
        write(tmp_path, files)

    assert found(tmp_path).items() >= order[1].items()


def test_another_content_has_another_second(tmp_path: Path) -> None:
    """Web servers such as nginx make their tags of the size and the whole seconds of the time of change."""
    seen = set()
    for number in range(4):
        write(tmp_path, {"T/a": f"{number}", "index.json": f"{number}"})
        seen.add((int((tmp_path / "T/a").stat().st_mtime), (tmp_path / "T/a").stat().st_size))

    assert len(seen) == 4


def test_what_others_wrote_stays(tmp_path: Path) -> None:
    """Their files and links are not touched, and nothing is written through a link; equal files are adopted."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    out = tmp_path / "out"
    (out / "T").mkdir(parents=True)
    (out / "T/a").write_text("theirs")
    (out / "T/dir").symlink_to(elsewhere)
    (out / "index.json").write_text("1")

    report = write(out, FIRST)
    assert [remark.subject for remark in report.blocked] == ["T/a", "T/dir/b"]
    assert "T/dir was not exported by fsxds" in report.blocked[1].reason
    assert (report.unchanged, names(report.written)) == (1, [OBJECT_1])
    assert (out / "T/a").read_text() == "theirs"
    assert not list(elsewhere.iterdir())
    write(out, {})
    assert not (out / "index.json").exists()


def test_what_was_changed_since_stays_when_it_is_gone(tmp_path: Path) -> None:
    """Somebody's edit is written over while the file is exported, and is not removed with it."""
    write(tmp_path, FIRST)
    (tmp_path / "T/a").write_text("edited")
    (tmp_path / "T/dir/b").write_text("edited")

    report = write(tmp_path, {path: FIRST[path] for path in (OBJECT_1, "T/a", "index.json")})
    assert (tmp_path / "T/a").read_text() == "one"
    assert [remark.subject for remark in report.kept] == ["T/dir/b"]
    assert (tmp_path / "T/dir/b").read_text() == "edited"


def test_directories_of_others_are_rejected(tmp_path: Path) -> None:
    """One of mirrored files, and one into which another process exports."""
    held = MirrorDirectory(tmp_path / "held", durable=False, use="exports into this directory")
    held.hold()
    with pytest.raises(UsageError, match="exports into this directory"):
        write(held.root, FIRST)
    held.release()

    (tmp_path / "mirror" / ".fsxds").mkdir(parents=True)
    (tmp_path / "mirror" / ".fsxds" / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match="`fsxds mirror` writes this directory"):
        write(tmp_path / "mirror", FIRST)


@pytest.mark.parametrize("path", ["../a", "/etc/a", "T/../../a", ".fsxds/lock", "."])
def test_no_file_leads_out_of_the_directory(tmp_path: Path, path: str) -> None:
    """Nothing at all is written then."""
    with pytest.raises(ValueError, match="exports no file"):
        write(tmp_path / "out", {"T/a": "1", path: "2"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "manifest",
    [
        "{",
        '{"format": 2, "exported_at_s": 0, "files": {}, "unused": []}',
        '{"format": 1, "exported_at_s": 0, "files": {"../precious": null}, "unused": []}',
        '{"format": 1, "exported_at_s": 0, "files": {"/etc/passwd": null}, "unused": []}',
        '{"format": 1, "exported_at_s": 0, "files": {"T/a": null}, "unused": [".fsxds/lock"]}',
    ],
)
def test_a_damaged_manifest_owns_nothing(tmp_path: Path, manifest: str) -> None:
    """Nothing is removed or written over because of it, nor outside of the directory; equal files are adopted."""
    (tmp_path / "precious").write_text("precious")
    out = tmp_path / "out"
    write(out, FIRST)
    (out / ".fsxds/export.json").write_text(manifest)

    report = write(out, SECOND)
    assert {remark.subject for remark in report.blocked} == {"T/a", "T/dir/b/c", "index.json"}
    assert found(out).items() >= FIRST.items()
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_full_disk_leaves_whole_files_and_the_next_export_goes_on(tmp_path: Path) -> None:
    """What was there before stays; nothing half written is left, and nothing that is not known to be ours."""
    write(tmp_path, FIRST)
    large = {**SECOND, "T/a": "x" * 2000}
    with full_disk(), pytest.raises(OSError, match="File too large"):
        write(tmp_path, large)
    assert {"T/a": "one", "index.json": "1"}.items() <= found(tmp_path).items()

    report = write(tmp_path, large)
    assert report.blocked == ()
    assert found(tmp_path) == {**large, OBJECT_1: "one"}


def test_a_killed_export_leaves_whole_files_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """SIGKILL before each open, rename, removal and folder: files are whole, the index names objects that are there."""
    kills = 0
    for step in range(100):
        out = tmp_path / str(step)
        write(out, FIRST)
        child = os.fork()
        if child == 0:
            _killed_at(step)
            write(out, SECOND)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        there = found(out)
        assert set(there.values()) <= {"one", "two", "1", "2"}
        assert {"1": OBJECT_1, "2": OBJECT_2}[there["index.json"]] in there
        assert write(out, SECOND).blocked == ()
        assert {path: text for path, text in found(out).items() if path != OBJECT_1} == SECOND
        assert not (out / ".fsxds/next.tmp").exists()
        if not os.WIFSIGNALED(status):
            break
        kills += 1
    assert kills > 10


def _killed_at(step: int) -> None:
    """Let this process die before it changes something for the nth time."""
    left = [step]

    def count(event: str, _: tuple[object, ...]) -> None:
        if event in {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.utime"}:
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1

    sys.addaudithook(count)
